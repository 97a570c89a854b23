"""Live migrations, as far as they can be told without a hypervisor that has them."""

import asyncio
import threading

import pytest

from fairnotice.drivers.libvirt import driver as drivers
from fairnotice.drivers.libvirt import migrating
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.records import moved_in, records_in
from fairnotice.drivers.libvirt.settings import NodeAddress
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, ended, libvirt, order, states
from tests.waiting import soon, until

OFF = libvirt.VIR_DOMAIN_SHUTOFF
MIGRATE = order(ImpactKind.MIGRATE)


class Migrations:
    """What libvirt does between two nodes; each step is in the hands of the test."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.began, self.go_on, self.aborts = threading.Event(), threading.Event(), 0
        # What an operator does with the VM: while he does, libvirt begins no migration.
        self.others_job = None
        # So many attempts to call it off are refused, and whether it arrives even so.
        self.refusals, self.arrives = 0, True
        self.leaves_remains = False
        # As its node had it when it left.
        self.autostart = []
        for node in nodes.nodes.values():
            node.instead |= {
                "migrateToURI3": self.migrate, "abortJob": self.abort, "jobStats": self.job,
            }  # fmt: skip
            node.around = self.locked

    def locked(self, node, _, call, *given):
        """Nobody changes a domain while it moves: whoever tries waits, and finds it gone."""
        if node == "n1":
            until(lambda: not self.began.is_set(), "the end of the migration")
        return call(*given)

    def migrate(self, domain, *_):
        """Blocks until it is over."""
        if self.others_job is not None and not self.go_on.wait(0.5):
            raise libvirt.libvirtError("cannot acquire state change lock (held by another job)")
        self.began.set()
        self.go_on.wait(20)
        try:
            if not self.arrives:
                raise libvirt.libvirtError("operation aborted: migration out job: canceled")
            self.arrive(domain)
        finally:
            self.began.clear()

    def arrive(self, domain):
        """On the other node, persistent, but not autostarted; and from its own it is gone."""
        self.autostart.append(domain.autostart())
        (target,) = (one for one in self.nodes.nodes.values() if one.connection != domain.connect())
        moved = target.connection.defineXML(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        moved.create()
        domain.destroy()
        if not self.leaves_remains:
            domain.undefine()

    def abort(self, _):
        """As `virsh domjobabort`, whoever has begun it."""
        self.others_job = None
        self.aborts += 1
        if self.aborts <= self.refusals:
            raise libvirt.libvirtError("cannot abort now")
        self.arrives = False
        self.go_on.set()

    def job(self, _):
        """What is under way with a domain."""
        if self.others_job is None and not self.began.is_set():
            return {"type": libvirt.VIR_DOMAIN_JOB_NONE}
        out = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
        operation = out if self.others_job is None else self.others_job
        return {"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "operation": operation}


# All that libvirt may have under way with a domain, but for a migration that leaves its node.
OTHERS_JOBS = {
    name.removeprefix("VIR_DOMAIN_JOB_OPERATION_"): number
    for name, number in vars(libvirt).items()
    if name.startswith("VIR_DOMAIN_JOB_OPERATION_") and not name.endswith("MIGRATION_OUT")
}


@pytest.fixture
def nodes(tmp_path):
    """Two, and a VM on the first."""
    both = TestNodes(tmp_path, "n1", "n2")
    both["n1"].run("vm", Label())
    return both


@pytest.fixture
def migrations(nodes):
    """Those of its nodes."""
    all_of_them = Migrations(nodes)
    yield all_of_them
    all_of_them.go_on.set()


def impact(there, wanted=MIGRATE, **settings):
    """What becomes of an order, by a driver of its own."""

    async def story():
        driver = there.driver(**settings)
        report = await driver.impact(wanted, 1)
        await driver.close()
        return report

    return asyncio.run(asyncio.wait_for(story(), 20))


def test_a_vm_that_arrives_has_migrated(nodes, migrations):
    """It runs there, and nowhere else."""
    migrations.go_on.set()
    assert impact(nodes).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}


def test_what_a_migration_leaves_behind_goes(nodes, migrations):
    """It would be how the VM was, and might be started one day."""
    migrations.leaves_remains = True
    migrations.go_on.set()
    assert impact(nodes).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}
    assert moved_in(nodes["n2"].connection.lookupByName("vm").XMLDesc(0)).by == MIGRATE.key


@pytest.mark.parametrize("arrives", [True, False])
def test_a_vm_that_its_node_starts_is_started_by_the_next_one(nodes, migrations, arrives):
    """Libvirt does not take that along; and while it moves, nobody else starts it."""
    nodes["n1"].connection.lookupByName("vm").setAutostart(1)
    migrations.arrives = arrives
    migrations.go_on.set()
    assert (impact(nodes).outcome is Outcome.DONE) == arrives
    assert migrations.autostart == ([0] if arrives else [])
    (where,) = states(nodes)
    assert nodes[where].connection.lookupByName("vm").autostart() == 1


@pytest.mark.parametrize("peer_uri", ["", "qemu+tls://n2/system"])
def test_a_migration_by_a_uri_of_the_control_plane_names_what_is_missing(
    nodes, migrations, peer_uri
):
    """The other node has no such file, and says no more than that."""
    migrations.arrives = False
    migrations.go_on.set()
    addresses = {
        "n1": NodeAddress("qemu+tls://n1/system?pkipath=/etc/fairnotice/pki"),
        "n2": NodeAddress("qemu+tls://n2/system?pkipath=/etc/fairnotice/pki", peer_uri),
    }
    report = impact(nodes, nodes=addresses)
    said = "n2 may be out of reach for other nodes: it has no peer_uri, and its uri has pkipath= of"
    assert report.outcome is Outcome.FAILED
    assert report.reason.startswith("n1: operation aborted")
    assert (said in report.reason) == (not peer_uri)


@pytest.mark.parametrize("refusals", [0, 2])
def test_a_migration_that_is_not_over_in_time_is_called_off(nodes, migrations, refusals):
    """The law has given it up by then: it does not arrive later."""
    migrations.refusals = refusals
    report = impact(nodes, MIGRATE._replace(limit_seconds=0.2))
    assert (report.outcome, report.reason) == (Outcome.FAILED, "vm did not arrive on n2")
    assert migrations.aborts > refusals
    assert states(nodes) == {"n1": RUNNING}


def test_one_that_arrives_while_it_is_called_off_has_arrived(nodes, migrations):
    """It is too late for staying, and libvirt has no job any more."""

    def arrive(_):
        migrations.began.clear()
        threading.Timer(0.3, migrations.go_on.set).start()
        raise libvirt.libvirtError("it is in its last phase")

    nodes["n1"].instead["abortJob"] = arrive
    assert impact(nodes, MIGRATE._replace(limit_seconds=0.2)).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}


def test_one_that_cannot_be_called_off_is_said_to(nodes, migrations, monkeypatch):
    """Somebody has to look at it."""
    monkeypatch.setattr(migrating, "CALLING_OFF_SECONDS", 0.2)
    migrations.refusals = 1000
    # Until then nobody can write down what came of it.
    threading.Timer(1.0, migrations.go_on.set).start()
    report = impact(nodes, MIGRATE._replace(limit_seconds=0.1))
    assert (report.outcome, "may yet arrive" in report.reason) == (Outcome.FAILED, True)


def test_a_later_impact_calls_a_migration_off(nodes, migrations, monkeypatch):
    """It stays where it was, and that befalls it which was ordered last."""
    monkeypatch.setattr(drivers, "LAST_SECONDS", 0.0)
    migrations.refusals = 2
    nodes["n1"].connection.lookupByName("vm").setAutostart(1)

    async def story():
        driver = nodes.driver()
        migration = asyncio.create_task(driver.impact(MIGRATE, 1))
        await asyncio.to_thread(migrations.began.wait)
        report = await driver.impact(order(ImpactKind.STOP, "later/vm"), 1)
        given_up = await migration
        await driver.close()
        return report, given_up

    report, given_up = asyncio.run(asyncio.wait_for(story(), 20))
    assert report.outcome is Outcome.DONE
    assert given_up.reason == "later/vm was begun after it"
    assert migrations.aborts > migrations.refusals
    assert states(nodes) == {"n1": OFF}
    assert nodes["n1"].connection.lookupByName("vm").autostart() == 1


def test_a_migration_that_is_refused_has_failed(nodes, migrations):
    """And nothing has moved."""
    migrations.arrives = False
    migrations.go_on.set()
    report = impact(nodes)
    assert (report.outcome, "job: canceled" in report.reason) == (Outcome.FAILED, True)
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize("limit_seconds", [0.2, 20])
@pytest.mark.parametrize("job", OTHERS_JOBS)
def test_a_backup_and_the_like_is_neither_taken_for_the_migration_nor_ended(
    nodes, migrations, job, limit_seconds
):
    """It is the operator's: libvirt refuses the migration at its time, and says why itself."""
    migrations.others_job = OTHERS_JOBS[job]
    report = impact(nodes, MIGRATE._replace(limit_seconds=limit_seconds))
    assert report.outcome is Outcome.FAILED
    assert "held by another job" in report.reason or limit_seconds < 1
    assert (migrations.others_job, migrations.aborts) == (OTHERS_JOBS[job], 0)
    assert states(nodes) == {"n1": RUNNING}


def test_a_migration_begins_when_a_backup_has_ended(nodes, migrations):
    """Libvirt waits for that a while; so nobody has to ask again."""
    migrations.others_job = libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP

    def end():
        migrations.others_job = None
        migrations.go_on.set()

    threading.Timer(0.2, end).start()
    assert impact(nodes).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}
    assert migrations.aborts == 0


def test_one_that_begins_just_before_it_is_asked_for_is_waited_for(nodes, migrations):
    """Whoever asked for it has died; the nodes go on."""

    def refuse(domain, *_):
        migrations.began.set()
        threading.Timer(0.3, migrations.arrive, [domain]).start()
        raise libvirt.libvirtError("another migration job is already running")

    nodes["n1"].instead["migrateToURI3"] = refuse
    assert impact(nodes).outcome is Outcome.DONE
    assert states(nodes) == {"n2": RUNNING}


@pytest.mark.parametrize(
    "left",
    [  # arrives, autostart, paused
        (True, 0, False),
        (True, 1, False),
        # As in the last moment of one.
        (True, 1, True),
        (False, 0, False),
        (False, 1, False),
    ],
)
def test_whoever_carries_one_on_only_looks_until_it_is_over(nodes, migrations, monkeypatch, left):
    """Killed in the middle; the nodes go on, and what comes of it is what is said of it."""
    monkeypatch.setattr(drivers, "LAST_SECONDS", 0.0)
    arrives, autostart, paused = left
    migrations.arrives = arrives
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.setAutostart(autostart)

    async def story():
        first, second = nodes.driver(), nodes.driver()
        begun = asyncio.create_task(first.impact(MIGRATE, 1))
        await asyncio.to_thread(migrations.began.wait)
        await first.close()
        assert begun.cancelled()
        if paused:
            domain.suspend()
        assert (await second.outcome(MIGRATE.key, 2)).outcome is Outcome.UNDER_WAY
        threading.Timer(0.3, migrations.go_on.set).start()
        report = await ended(second, MIGRATE.key, 2)
        await second.close()
        return report

    report = asyncio.run(asyncio.wait_for(story(), 20))
    assert (report.outcome is Outcome.DONE) == arrives, report
    (where,) = states(nodes)
    assert where == ("n2" if arrives else "n1")
    assert nodes[where].connection.lookupByName("vm").autostart() == autostart


@pytest.mark.usefixtures("migrations")
def test_one_whose_guest_ends_meanwhile_has_failed_at_once(nodes):
    """It is off where it was, and on its way nowhere."""
    domain = nodes["n1"].connection.lookupByName("vm")

    def end(*_):
        domain.destroy()
        raise libvirt.libvirtError("domain is not running")

    nodes["n1"].instead["migrateToURI3"] = end
    assert impact(nodes).outcome is Outcome.FAILED
    assert states(nodes) == {"n1": OFF}


@pytest.mark.parametrize("arrived", [True, False])
def test_one_that_nobody_asks_for_any_more_is_ended(nodes, migrations, monkeypatch, arrived):
    """Its limit passed while nobody led: what was held back while it moved is given back."""
    monkeypatch.setattr(drivers, "LAST_SECONDS", 0.0)
    nodes["n1"].connection.lookupByName("vm").setAutostart(1)

    async def story():
        first, second = nodes.driver(), nodes.driver()
        begun = asyncio.create_task(first.impact(MIGRATE._replace(limit_seconds=0.5), 1))
        await asyncio.to_thread(migrations.began.wait)
        await first.close()
        assert begun.cancelled()
        await asyncio.sleep(0.5)
        migrations.arrives = arrived
        migrations.go_on.set()
        await soon(lambda: not migrations.began.is_set())
        await second.survey(2)
        await soon(lambda: not second._deeds)
        await second.close()

    asyncio.run(asyncio.wait_for(story(), 20))
    (where,) = states(nodes)
    domain = nodes[where].connection.lookupByName("vm")
    assert (where, domain.autostart()) == ("n2" if arrived else "n1", 1)
    (record,) = records_in(domain.XMLDesc(0))
    assert record.ended
    assert (record.outcome is Outcome.DONE) == arrived
