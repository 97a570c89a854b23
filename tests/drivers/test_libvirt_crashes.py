"""Deaths and refusals at every call that changes anything: whatever happens, no VM is left behind.

Never paused for good, never off where it should run, never on two nodes, never rebooted twice.
"""

import asyncio
from itertools import count

import pytest

from fairnotice.clock import SystemClock
from fairnotice.conductor import orders as conducted
from fairnotice.conductor.orders import Orders
from fairnotice.drivers.driver import Report
from fairnotice.drivers.libvirt import footing, pauses
from fairnotice.drivers.libvirt.records import MOVING, records_in
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import (
    LIMITS,
    RUNNING,
    Died,
    ended,
    impact_of,
    libvirt,
    order,
    states,
    surround,
)

pytestmark = pytest.mark.usefixtures("no_patience")
REDEPLOY = ImpactKind.REDEPLOY
OFF = libvirt.VIR_DOMAIN_SHUTOFF
AFTERWARDS = {
    ImpactKind.FREEZE: {"n1": RUNNING},
    ImpactKind.REBOOT: {"n1": RUNNING},
    ImpactKind.REDEPLOY: {"n2": RUNNING},
    ImpactKind.STOP: {"n1": OFF},
    ImpactKind.DEALLOCATE: {"n1": OFF},
    ImpactKind.DELETE: {},
}


@pytest.fixture(autouse=True)
def _nor_of_the_conductor(monkeypatch):
    monkeypatch.setattr(conducted, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(conducted, "ASK_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(pauses, "LOOK_AGAIN_SECONDS_MAX", 0.01)


def dying(at):
    """Whoever calls this for that many times has died; and the calls there were."""
    calls = []

    def die(call):
        calls.append(call)
        if len(calls) > at:
            raise Died

    return die, calls


async def undecided(driver):
    """Whether nobody says what became of it, however often it is carried on."""
    for _ in range(3):
        try:
            report = await driver.outcome("op/vm", 1)
        except Unavailable:
            continue
        if report.outcome is not Outcome.UNDER_WAY:
            return False
        await asyncio.sleep(0.05)
    return True


async def as_the_law_hears(driver, wanted):
    """What whoever orders it for the law reports in the end."""
    heard = asyncio.get_running_loop().create_future()

    async def tell(command):
        heard.set_result(Report(command.outcome, command.reason))

    orders = Orders(driver, SystemClock(), tell, lambda _: not heard.done(), frozenset)
    orders.begin(wanted, 1)
    return await heard


async def another_life(nodes, kind):
    """How it ends for whoever comes next."""
    driver = nodes.driver(**LIMITS)
    report = await ended(driver, "op/vm", 2)
    if report.outcome is Outcome.NOT_BEGUN:
        report = await driver.impact(order(kind), 2)
    await driver.close()
    return report


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("kind", AFTERWARDS)
def test_a_control_plane_that_dies_at_any_change_is_carried_on(fresh, kind, deaf):
    """Before it and after it: the next life ends what was begun, once."""

    async def story(nodes, at, where):
        die, calls = dying(at)
        surround(nodes, **({"before": lambda _: None} | {where: die}), deaf=deaf)
        first = nodes.driver(**LIMITS)
        (died,) = await asyncio.gather(first.impact(order(kind), 1), return_exceptions=True)
        boots = []
        surround(nodes, lambda _: None, boots.append, deaf=deaf)
        report = await another_life(nodes, kind)
        await first.close()
        return isinstance(died, Died), report, [*calls[: at + (where == "after")], *boots]

    for where in ("before", "after"):
        for at in count():
            nodes = fresh(deaf=deaf)
            died, report, changes = asyncio.run(story(nodes, at, where))
            assert report.outcome is Outcome.DONE, (where, at, report, changes)
            assert states(nodes) == AFTERWARDS[kind], (where, at, changes)
            assert [name for _, name in changes].count("create") <= 1
            if not died:
                assert at > 3
                break


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("trouble", ["away", "refuses"])
def test_a_redeploy_that_died_at_any_change_leaves_no_vm_off_when_its_target_fails(
    fresh, trouble, deaf
):
    """It runs where it was; or it is on the target for certain, which is waited for."""

    def refuse(call):
        if call == ("n2", "create"):
            raise libvirt.libvirtError("the disk is not there")

    async def story(nodes, at):
        die, _ = dying(at)
        surround(nodes, lambda _: None, die, deaf=deaf)
        first = nodes.driver(**LIMITS)
        (died,) = await asyncio.gather(first.impact(order(REDEPLOY), 1), return_exceptions=True)
        nodes["n2"].away = trouble == "away"
        surround(nodes, refuse if trouble == "refuses" else lambda _: None, deaf=deaf)
        later = nodes.driver(**LIMITS)
        if nodes["n2"].away and may_be_elsewhere(nodes):
            assert await undecided(later), at
            nodes["n2"].away = False
        report = await ended(later, "op/vm", 2)
        if report.outcome is Outcome.NOT_BEGUN:
            report = await later.impact(order(REDEPLOY), 2)
        nodes["n2"].away = False
        await later.close()
        await first.close()
        return isinstance(died, Died), report

    for at in count():
        nodes = fresh(deaf=deaf)
        nodes["n1"].connection.lookupByName("vm").setAutostart(1)
        died, report = asyncio.run(story(nodes, at))
        where = "n2" if report.outcome is Outcome.DONE else "n1"
        assert states(nodes) == {where: RUNNING}, (at, report)
        assert nodes[where].connection.lookupByName("vm").autostart() == 1, (at, report)
        if not died:
            assert at > 8
            break


def may_be_elsewhere(nodes):
    """Whether the first node cannot say for certain that the VM is nowhere else."""
    for domain in nodes["n1"].connection.listAllDomains(0):
        if domain.name() == "vm":
            return any(one.phase == MOVING for one in records_in(domain.XMLDesc(0)))
    return True


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("kind", AFTERWARDS)
def test_a_change_that_is_refused_once_is_made_the_next_time(fresh, kind, deaf):
    """Libvirt says so when another one holds the lock of a domain."""

    async def story(nodes, at):
        calls = []

        def refuse(call):
            calls.append(call)
            if len(calls) == at + 1:
                raise libvirt.libvirtError("cannot acquire state change lock")

        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        surround(nodes, refuse, deaf=deaf)
        report = await as_the_law_hears(driver, order(kind))
        await driver.close()
        return len(calls) <= at, report, calls

    for at in count():
        nodes = fresh(deaf=deaf)
        whole, report, calls = asyncio.run(story(nodes, at))
        assert report.outcome is Outcome.DONE, (at, report, calls)
        assert states(nodes) == AFTERWARDS[kind], (at, calls)
        if whole:
            break


@pytest.mark.parametrize("kind", AFTERWARDS)
def test_a_refusal_that_lasts_a_while_is_no_outcome(fresh, kind):
    """Wherever it begins: what the law hears in the end is what has become of the VM."""
    tries = 2 * (len(footing.TRY_AGAIN_SECONDS) + 1)
    # One whose place cannot be given up is off all the same.
    failed = {"n1": OFF if kind is ImpactKind.DEALLOCATE else RUNNING}

    async def story(nodes, at):
        calls = []

        def refuse(call):
            calls.append(call)
            if call[1] == "setMetadata" and at < len(calls) <= at + tries:
                raise libvirt.libvirtError("cannot acquire state change lock")

        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        surround(nodes, refuse)
        report = await as_the_law_hears(driver, order(kind))
        surround(nodes, lambda _: None)
        await driver.close()
        return len(calls) <= at, report, calls

    for at in count():
        nodes = fresh()
        whole, report, calls = asyncio.run(story(nodes, at))
        expected = AFTERWARDS[kind] if report.outcome is Outcome.DONE else failed
        assert report.outcome in {Outcome.DONE, Outcome.FAILED}, (at, report, calls)
        assert states(nodes) == expected, (at, report, calls)
        if at == 0:
            assert report.outcome is Outcome.DONE, (report, calls)
        if whole:
            break


def test_a_guest_that_ends_just_when_it_is_to_be_reset_is_started(fresh):
    """It was slow to hear, and is rebooted all the same; once."""
    nodes = fresh()

    def end(call):
        if call[1] == "suspend":
            nodes["n1"].connection.lookupByName("vm").destroy()

    surround(nodes, end, deaf=True)
    assert impact_of(nodes, ImpactKind.REBOOT).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_one_that_was_started_instead_of_reset_is_not_reset_by_the_next_life(fresh):
    """The mark of the boot before is gone."""
    nodes = fresh()

    def end(call):
        if call[1] == "suspend":
            nodes["n1"].connection.lookupByName("vm").destroy()

    def die(call):
        if call[1] == "create":
            raise Died

    surround(nodes, end, die, deaf=True)
    with pytest.raises(Died):
        impact_of(nodes, ImpactKind.REBOOT)
    surround(nodes, lambda _: None)
    report = asyncio.run(another_life(nodes, ImpactKind.REBOOT))
    assert report.outcome is Outcome.DONE
    assert [name for name, _ in nodes["n1"].calls if name in ("reset", "create")] == []


@pytest.mark.parametrize(
    ("kind", "deaf", "refused", "said"),
    [
        (ImpactKind.FREEZE, False, ("n1", "suspend"), "could not be paused"),
        (ImpactKind.REBOOT, True, ("n1", "suspend"), "could not be paused"),
        (ImpactKind.REBOOT, True, ("n1", "reset"), "could not be reset"),
        (ImpactKind.REDEPLOY, False, ("n2", "defineXML"), "the disk is not there"),
        (ImpactKind.REDEPLOY, False, ("n2", "create"), "the disk is not there"),
        (ImpactKind.REDEPLOY, True, ("n1", "destroy"), "could not be stopped"),
        (ImpactKind.REBOOT, True, ("n1", "reset"), "\x1b[31mthe disk is not there"),
    ],
)
def test_what_is_refused_for_good_leaves_the_vm_running_where_it_was(
    fresh, kind, deaf, refused, said
):
    """And nothing of it elsewhere."""

    def refuse(call):
        if call == refused:
            raise libvirt.libvirtError("\x1b[31mthe disk is not there\x1b[0m")

    async def story(nodes):
        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        surround(nodes, refuse, deaf=deaf)
        report = await driver.impact(order(kind), 1)
        assert (await driver.outcome("op/vm", 1)).outcome is report.outcome
        await driver.close()
        return report

    nodes = fresh()
    report = asyncio.run(story(nodes))
    assert report.outcome is Outcome.FAILED
    assert said in report.reason
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize(("kind", "deaf"), [(ImpactKind.FREEZE, False), (ImpactKind.REBOOT, True)])
def test_a_resume_that_is_refused_is_tried_until_it_runs(fresh, kind, deaf):
    """However often; nothing is called ended while it is paused."""
    refusals = iter(range(20))

    def refuse(call):
        if call[1] == "resume" and next(refusals, None) is not None:
            raise libvirt.libvirtError("cannot acquire state change lock")

    async def story(nodes):
        driver = nodes.driver(**LIMITS)
        surround(nodes, refuse, deaf=deaf)
        report = await driver.impact(order(kind), 1)
        await driver.close()
        return report

    nodes = fresh()
    assert asyncio.run(story(nodes)).outcome is Outcome.DONE
    assert next(refusals, None) is None
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize("kind", AFTERWARDS)
def test_a_node_that_is_lost_at_any_change_decides_nothing(fresh, kind):
    """Whoever cannot be asked may have the VM: it is neither done, nor begun anew elsewhere."""

    async def story(nodes, at):
        calls = []

        def lose(call):
            calls.append(call)
            if call[0] == "n1" and len(calls) > at:
                nodes["n1"].away = True
                raise libvirt.libvirtError("the line broke")

        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        surround(nodes, lose)
        (said,) = await asyncio.gather(driver.impact(order(kind), 1), return_exceptions=True)
        lost = nodes["n1"].away
        if lost:
            # Unless it was seen to be done before.
            done = states(nodes) == AFTERWARDS[kind] != {"n1": RUNNING}
            assert isinstance(said, Unavailable) or done, (at, said, calls)
            assert done or await undecided(driver), (at, calls)
            nodes["n1"].away = False
        surround(nodes, lambda _: None)
        report = await another_life(nodes, kind)
        await driver.close()
        return lost, report, calls

    for at in count():
        nodes = fresh()
        lost, report, calls = asyncio.run(story(nodes, at))
        assert report.outcome is Outcome.DONE, (at, report, calls)
        assert states(nodes) == AFTERWARDS[kind], (at, calls)
        if not lost:
            break
