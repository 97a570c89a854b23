"""What was left half done, and nobody asks for: whoever looks at the nodes ends it, once."""

import asyncio
import threading
from datetime import timedelta

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt import footing, host, records
from fairnotice.drivers.libvirt.records import Record, records_in
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, ended, impact_of, libvirt, order, states
from tests.waiting import soon

pytestmark = pytest.mark.usefixtures("no_patience")
OFF, PAUSED = libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_PAUSED
LIMITS = {"reboot_limit_seconds": 0.05, "shutdown_limit_seconds": 0.05}
NOW = SystemClock().wall()
# Of what is not over yet, however long all tests before it take.
AHEAD = timedelta(days=-1)


@pytest.fixture(autouse=True)
def _none_later_either(monkeypatch):
    monkeypatch.setattr(footing, "LATE_SECONDS", 0.0)


@pytest.fixture
def nodes(tmp_path):
    """Three nodes, and a VM on the first."""
    three = TestNodes(tmp_path, "n1", "n2", "n3")
    three["n1"].run("vm")
    return three


def domain(nodes, node="n1"):
    """The VM's."""
    return nodes[node].connection.lookupByName("vm")


def left(nodes, kind, phase, ago=timedelta(minutes=30), **more):
    """The VM is in the middle of this, and the law has given it up."""
    target = "n2" if kind is ImpactKind.REDEPLOY else ""
    at = NOW - ago
    record = Record("op/vm", "vm", kind, 1, at, at, at, target, "n1", phase=phase)
    record = record._replace(limit_seconds=0.0, **more)
    node = nodes["n1"].connection.lookupByName("vm")
    uri = records.impact_uri(record.key)
    flags = 3 if node.isActive() else 2
    node.setMetadata(2, records.written(record), records.PREFIX, uri, flags)


def phases(nodes, node="n1"):
    """How far each impact has come, by what is written."""
    return {one.key: one.phase for one in records_in(domain(nodes, node).XMLDesc(0))}


def is_over(nodes):
    """Whether what was left is written to have ended."""
    return lambda: phases(nodes) == {"op/vm": records.ENDED}


def look(nodes, is_so=lambda: True, failed=(), **settings):
    """A control plane that nobody asks anything looks around until it is so, and twice more."""
    failed = frozenset(failed)

    async def story():
        driver = nodes.driver(**LIMITS, **settings)
        await driver.survey(1, failed)
        await soon(is_so)
        for _ in range(2):
            await driver.survey(1, failed)
        # Whatever was begun comes to its own end.
        await driver.close()

    asyncio.run(story())


OF_A_REBOOT = (records.ASKING, records.RESETTING, records.RESET)
OF_A_MOVE = (records.LEAVING, records.STAYING, records.MOVING, records.RETURNING)


@pytest.mark.parametrize(
    ("kind", "phase"),
    [(ImpactKind.REBOOT, phase) for phase in OF_A_REBOOT]
    + [(ImpactKind.REDEPLOY, phase) for phase in OF_A_MOVE],
)
def test_a_vm_that_we_have_switched_off_runs_again(nodes, kind, phase):
    """Its node was away for longer than the law waits, and is back: it is not left off for good."""
    domain(nodes).destroy()
    left(nodes, kind, phase)
    look(nodes, is_over(nodes))
    assert states(nodes) == {"n1": RUNNING}
    assert phases(nodes) == {"op/vm": records.ENDED}
    assert nodes.done("op/vm") == 1


@pytest.mark.parametrize("kind", [ImpactKind.REBOOT, ImpactKind.REDEPLOY])
def test_a_node_that_is_away_past_the_limit_leaves_nobody_off(nodes, kind):
    """From its beginning: the guest has heard, its node goes, the law gives up, it is back."""

    def lose(node, name, call, *given):
        answer = call(*given)
        if name == "shutdown":
            nodes[node].away = True
        return answer

    async def story():
        driver = nodes.driver(**LIMITS)
        await driver.survey(1)
        nodes["n1"].around = lose
        short = order(kind, limit_seconds=0.5)
        await asyncio.gather(driver.impact(short, 1), return_exceptions=True)
        assert states(nodes)["n1"] == OFF
        await asyncio.sleep(0.6)
        await driver.survey(1)
        assert states(nodes)["n1"] == OFF
        nodes["n1"].around, nodes["n1"].away = lambda _, __, call, *given: call(*given), False
        await driver.survey(1)
        await soon(lambda: states(nodes) == {"n1": RUNNING})
        await driver.close()

    asyncio.run(story())
    assert phases(nodes) == {"op/vm": records.ENDED}


def test_the_law_that_still_asks_does_not_have_it_done_twice(nodes):
    """Both find it while it is being started; it is one deed."""
    domain(nodes).destroy()
    left(nodes, ImpactKind.REBOOT, records.ASKING)
    looked, started = threading.Event(), []

    def around(_, name, call, *given):
        if name == "create":
            started.append(1)
            looked.wait(20)
        return call(*given)

    async def story():
        driver = nodes.driver(**LIMITS)
        nodes["n1"].around = around
        for _ in range(3):
            asked = [driver.outcome("op/vm", 1) for _ in range(3)]
            await asyncio.gather(driver.survey(1), *asked)
            await soon(lambda: started)
        looked.set()
        report = await asyncio.wait_for(ended(driver, "op/vm", 1), 20)
        await driver.survey(1)
        await driver.close()
        return report

    assert asyncio.run(story()).outcome is Outcome.DONE
    assert len(started) == 1


@pytest.mark.parametrize(
    ("kind", "phase"), [(ImpactKind.STOP, records.BEGUN), (ImpactKind.DEALLOCATE, records.ENDED)]
)
def test_what_is_meant_to_be_off_stays_off(nodes, kind, phase):
    """An impact that came later decides, ended or not."""
    domain(nodes).destroy()
    left(nodes, ImpactKind.REBOOT, records.ASKING)
    later = timedelta(minutes=20)
    left(nodes, kind, phase, later, key="later/vm")
    look(nodes)
    assert states(nodes) == {"n1": OFF}
    assert phases(nodes) == {"op/vm": records.ASKING, "later/vm": phase}


def test_what_may_run_elsewhere_is_not_started(nodes):
    """A node that cannot be asked may have it: this is what is left of it, then."""
    domain(nodes).destroy()
    left(nodes, ImpactKind.REBOOT, records.ASKING)
    nodes["n3"].away = True
    look(nodes)
    assert states(nodes)["n1"] == OFF
    nodes["n3"].away = False
    look(nodes, is_over(nodes))
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize(
    ("kind", "phase", "lost"),
    [(ImpactKind.REBOOT, phase, "n3") for phase in OF_A_REBOOT]
    + [(ImpactKind.REDEPLOY, phase, "n3") for phase in OF_A_MOVE]
    + [(ImpactKind.REDEPLOY, phase, "n2") for phase in (records.LEAVING, records.STAYING)],
)
def test_a_node_that_has_failed_keeps_nobody_off(nodes, kind, phase, lost):
    """Nothing runs there, an operator says: nobody waits until it is back."""
    domain(nodes).destroy()
    left(nodes, kind, phase)
    nodes[lost].away = True
    look(nodes, is_over(nodes), failed=[lost])
    nodes[lost].away = False
    assert states(nodes) == {"n1": RUNNING}


@pytest.mark.parametrize("failed", [["n2"], ["n2", "n3"]])
def test_what_has_failed_may_be_said_of_others_than_are_away(nodes, failed):
    """A node that is only away keeps it off; and one that has failed, if it has it after all."""
    left(nodes, ImpactKind.REBOOT, records.ASKING)
    nodes["n2"].connection.defineXML(domain(nodes).XMLDesc(2)).create()
    domain(nodes).destroy()
    nodes["n3"].away = True
    look(nodes, failed=failed)
    assert states(nodes)["n1"] == OFF


def test_what_is_left_of_a_vm_is_not_started_when_its_node_has_failed(nodes):
    """It was cut off in a reboot, moved when its node failed, and its next node fails too."""
    host.mark(domain(nodes), "op/vm")
    left(nodes, ImpactKind.REBOOT, records.ASKING, AHEAD)
    look(nodes)
    nodes["n1"].away = True
    moved = impact_of(nodes, ImpactKind.REDEPLOY, key="m/vm", failed_nodes=frozenset({"n1"}))
    assert moved.outcome is Outcome.DONE
    look(nodes)
    nodes["n1"].away = False
    domain(nodes).destroy()
    nodes["n2"].away = True
    look(nodes, failed=["n2"])
    assert states(nodes)["n1"] == OFF
    assert phases(nodes) == {"op/vm": records.ASKING}


def test_a_move_to_a_node_that_has_failed_is_not_said_to_go_on(nodes, caplog):
    """Nobody can say how far it has come there; it would be said at every look."""
    domain(nodes).destroy()
    left(nodes, ImpactKind.REDEPLOY, records.MOVING)
    nodes["n2"].away = True
    look(nodes, failed=["n2"])
    assert "is carried on" not in caplog.text


def test_what_is_held_of_a_vm_is_given_back_though_the_node_that_it_left_has_failed(nodes, caplog):
    """Cut off in a redeploy, and moved by hand; its node went for good: ended at the next look."""
    hold(nodes, ImpactKind.REDEPLOY, records.LEAVING)
    xml = domain(nodes).XMLDesc(0)
    domain(nodes).destroy()
    domain(nodes).undefine()
    nodes["n3"].connection.defineXML(xml).create()
    nodes["n1"].away = True
    look(nodes, lambda: phases(nodes, "n3") == {"op/vm": records.ENDED}, failed=["n1"])
    assert domain(nodes, "n3").autostart() == 1
    assert caplog.text.count("is carried on") == 1


@pytest.mark.parametrize("phase", [records.MOVING, records.RETURNING, records.STAYING])
@pytest.mark.parametrize("ago", [timedelta(minutes=30), AHEAD])
def test_what_is_left_of_a_vm_elsewhere_is_not_started_for_it(nodes, phase, ago):
    """The node where it was defined last has failed: an older definition is not the VM."""
    older = nodes["n3"].connection.defineXML(domain(nodes).XMLDesc(2).replace("65536", "32768"))
    look(nodes)
    domain(nodes).destroy()
    left(nodes, ImpactKind.REDEPLOY, phase, ago)
    (record,) = records_in(domain(nodes).XMLDesc(0))
    uri = records.impact_uri(record.key)
    older.setMetadata(2, records.written(record), records.PREFIX, uri, 2)
    nodes["n1"].away = True
    look(nodes, failed=["n1"])
    assert RUNNING not in states(nodes).values()
    assert phases(nodes, "n3") == {"op/vm": phase}


def test_what_runs_elsewhere_is_not_started(nodes):
    """Its node had failed and is back."""
    xml = domain(nodes).XMLDesc(0)
    domain(nodes).destroy()
    left(nodes, ImpactKind.REBOOT, records.ASKING)
    nodes["n2"].connection.defineXML(xml).create()
    look(nodes)
    assert states(nodes) == {"n1": OFF, "n2": RUNNING}


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        (ImpactKind.FREEZE, records.FROZEN),
        (ImpactKind.REBOOT, records.RESET),
        (ImpactKind.REBOOT, records.ASKING),
    ],
)
def test_what_has_only_not_been_written_to_have_ended_is_not_held_against_anybody(
    nodes, kind, phase
):
    """It was let go of, and that could not be written; who pauses it later has a reason."""
    left(nodes, kind, phase)
    look(nodes, is_over(nodes))
    domain(nodes).suspend()
    look(nodes)
    assert states(nodes) == {"n1": PAUSED}
    assert nodes.done("op/vm") == 0


@pytest.mark.parametrize(("days", "state"), [(6, RUNNING), (8, PAUSED)])
def test_a_pause_long_after_is_somebody_elses(nodes, days, state):
    """Nobody is left paused for good; but what is older than anything we remember is not ours."""
    left(nodes, ImpactKind.FREEZE, records.FROZEN, timedelta(days=days))
    domain(nodes).suspend()
    look(nodes, lambda: states(nodes) == {"n1": state}, kept_days=7)
    assert states(nodes) == {"n1": state}


def hold(nodes, kind, phase, **more):
    """The VM runs in the middle of this, and is not as its owner has it: marked, kept from both.

    From being started with its node, and from being restarted when its guest shuts down.
    """
    vm, live = domain(nodes), libvirt.VIR_DOMAIN_AFFECT_LIVE
    vm.setLifecycleAction(0, libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_DESTROY, live)
    chosen = "<poweroff chosen='restart'/>"
    vm.setMetadata(2, chosen, records.PREFIX, records.POWEROFF, live)
    if kind is ImpactKind.REBOOT:
        host.mark(vm, "op/vm")
    left(nodes, kind, phase, autostart=True, **more)


def must_be_held(nodes):
    """Nobody has given anything back."""
    assert domain(nodes).autostart() == 0
    assert "<on_poweroff>destroy<" in domain(nodes).XMLDesc(0)


def must_be_as_chosen(nodes):
    """All is as its owner has it, and nothing was done to it."""
    assert states(nodes) == {"n1": RUNNING}
    assert nodes.done("op/vm") == 0
    assert domain(nodes).autostart() == 1
    assert "<on_poweroff>restart<" in domain(nodes).XMLDesc(0)
    assert records.POWEROFF not in domain(nodes).XMLDesc(0)


LEFT_RUNNING = (
    *((ImpactKind.REDEPLOY, phase) for phase in (records.BEGUN, *OF_A_MOVE)),
    *((ImpactKind.START, phase) for phase in (records.BEGUN, records.MOVING, records.RETURNING)),
    *((ImpactKind.REBOOT, phase) for phase in (records.BEGUN, *OF_A_REBOOT)),
    *((ImpactKind.FREEZE, phase) for phase in (records.BEGUN, records.FREEZING, records.FROZEN)),
    (ImpactKind.MIGRATE, records.BEGUN),
    (ImpactKind.STOP, records.BEGUN),
    (ImpactKind.DEALLOCATE, records.BEGUN),
    (ImpactKind.DELETE, records.BEGUN),
)


@pytest.mark.parametrize(("kind", "phase"), LEFT_RUNNING)
def test_a_vm_that_runs_on_is_as_its_owner_has_it_when_nobody_asks_any_more(nodes, kind, phase):
    """Its node was away past the limit and the guest has not heard: nothing is begun that late."""
    hold(nodes, kind, phase)
    look(nodes, is_over(nodes))
    must_be_as_chosen(nodes)


@pytest.mark.parametrize(
    ("kind", "phase"),
    [(ImpactKind.REDEPLOY, phase) for phase in (records.BEGUN, *OF_A_MOVE)]
    + [(ImpactKind.REBOOT, phase) for phase in (records.BEGUN, records.ASKING)],
)
def test_what_the_law_still_waits_for_is_not_ended_while_its_vm_runs(nodes, kind, phase):
    """It is asked for soon, and then carried on: who only looks leaves it as it is."""
    hold(nodes, kind, phase, ago=AHEAD)
    look(nodes)
    must_be_held(nodes)
    assert phases(nodes) == {"op/vm": phase}


@pytest.mark.parametrize("limit_seconds", [0.5, 600.0])
def test_a_later_epoch_has_as_much_patience_anew(nodes, limit_seconds):
    """Its law asks for what was begun before; when it has given that up as well, it is ended."""
    hold(nodes, ImpactKind.REDEPLOY, records.LEAVING)
    (record,) = records_in(domain(nodes).XMLDesc(0))
    record = record._replace(limit_seconds=limit_seconds)
    uri = records.impact_uri(record.key)
    domain(nodes).setMetadata(2, records.written(record), records.PREFIX, uri, 3)

    async def story():
        driver = nodes.driver(**LIMITS)
        await driver.survey(2)
        assert phases(nodes) == {"op/vm": records.LEAVING}
        await asyncio.sleep(0.6)
        await driver.survey(2)
        await soon(lambda: not driver._deeds)
        await driver.close()

    asyncio.run(story())
    if limit_seconds < 1:
        must_be_as_chosen(nodes)
    else:
        must_be_held(nodes)


def test_a_redeploy_whose_guest_has_not_heard_gives_back_what_it_held(nodes):
    """From its beginning: it is asked, its node goes, the law gives up, it is back and runs."""
    domain(nodes).setAutostart(1)

    def lose(node, name, call, *given):
        if name != "shutdown":
            return call(*given)
        nodes[node].away = True
        return None

    async def story():
        driver = nodes.driver(**LIMITS)
        nodes["n1"].around = lose
        short = order(ImpactKind.REDEPLOY, limit_seconds=0.5)
        await asyncio.gather(driver.impact(short, 1), return_exceptions=True)
        assert domain(nodes).autostart() == 0
        await asyncio.sleep(0.6)
        nodes["n1"].away = False
        await driver.survey(1)
        await soon(is_over(nodes))
        await driver.close()

    asyncio.run(story())
    assert states(nodes) == {"n1": RUNNING}
    assert domain(nodes).autostart() == 1
    assert nodes.done("op/vm") == 1


def test_what_runs_on_and_is_paused_by_somebody_stays_so(nodes):
    """It is not for us to let it go; what was held is given back when it runs again."""
    hold(nodes, ImpactKind.REBOOT, records.ASKING)
    domain(nodes).suspend()
    look(nodes)
    assert states(nodes) == {"n1": PAUSED}
    domain(nodes).resume()
    look(nodes, is_over(nodes))
    must_be_as_chosen(nodes)


def test_one_that_is_paused_in_a_reset_is_let_go_though_its_time_is_over(nodes):
    """Whoever suspended it lost the node, and leads still: it is not reset any more, but runs."""
    host.mark(domain(nodes), "op/vm")
    domain(nodes).suspend()
    left(nodes, ImpactKind.REBOOT, records.RESETTING)
    look(nodes, is_over(nodes))
    assert states(nodes) == {"n1": RUNNING}
    assert phases(nodes) == {"op/vm": records.ENDED}
    assert nodes.done("op/vm") == 0


def test_what_ended_while_others_were_looked_at_is_not_done_again(nodes):
    """One node takes its time; what was seen of the VM before is old by then."""
    left(nodes, ImpactKind.REDEPLOY, records.LEAVING, ago=AHEAD)
    domain(nodes).destroy()

    async def story():
        driver = nodes.driver(**LIMITS)
        (seen,) = records_in(domain(nodes).XMLDesc(0))
        assert (await ended(driver, "op/vm", 2)).outcome is Outcome.DONE
        calls = [list(node.calls) for node in nodes.nodes.values()]
        report = await driver._take_up(seen, 2)
        assert report.outcome is Outcome.DONE
        assert [node.calls for node in nodes.nodes.values()] == calls
        await driver.close()

    asyncio.run(story())
    assert states(nodes) == {"n2": RUNNING}


def test_a_phase_that_nobody_knows_takes_nothing_away(nodes):
    """A later version may have begun it: it fails, and what there is stays."""
    domain(nodes).destroy()
    left(nodes, ImpactKind.REDEPLOY, "flying", ago=AHEAD)

    async def story():
        driver = nodes.driver(**LIMITS)
        assert (await ended(driver, "op/vm", 2)).outcome is Outcome.FAILED
        await driver.close()

    asyncio.run(story())
    assert states(nodes) == {"n1": OFF}
