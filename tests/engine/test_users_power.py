"""Rule 20: power, and what does not need notice."""

import pytest

from fairnotice.engine import Code
from fairnotice.engine import commands as ask
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.words import EventStatus, OperationKind, OperationStatus, Power
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, SPOT, USER, WEB, Story


def resting(power: Power) -> Story:
    """Db does not run."""
    story = Story()
    (story.stop if power is Power.STOPPED else story.deallocate)("db")
    story.done("db")
    return story


def hub() -> Story:
    """Db and other on node a; node b has one slot."""
    return Story(
        FleetSpec(
            nodes=(NodeSpec("a"), NodeSpec("b", 0, 1)),
            vms=(VmSpec("db", "a"), VmSpec("other", "a")),
        )
    )


def kinds(story: Story) -> list[str]:
    """What the driver is doing."""
    return [impact.kind.value for impact in story.under_way.values()]


# ---- At once, and no event ----


def test_rule_20_stop_acts_at_once_and_makes_no_event():
    """Asked, begun, done: db keeps its node, and its document never moved."""
    story = Story()
    story.stop("db")
    assert kinds(story) == ["stop"]
    assert story.vm("db").power is Power.RUNNING
    story.done("db")
    assert (story.vm("db").power, story.vm("db").node) == (Power.STOPPED, "node-1")
    assert story.shows(DB) == (1, [])


def test_rule_20_deallocate_acts_at_once_and_gives_up_the_place():
    """A deallocated VM has no node."""
    story = Story()
    story.deallocate("db")
    assert kinds(story) == ["deallocate"]
    story.done("db")
    assert (story.vm("db").power, story.vm("db").node) == (Power.DEALLOCATED, None)
    assert "db" not in story.fleet.vms_on_node["node-1"]
    assert story.shows(DB) == (1, [])


def test_rule_20_start_acts_at_once_where_it_stopped():
    """A stopped db starts on its node."""
    story = resting(Power.STOPPED)
    story.start("db")
    assert kinds(story) == ["start"]
    story.done("db")
    assert (story.vm("db").power, story.vm("db").node) == (Power.RUNNING, "node-1")
    assert story.shows(DB) == (1, [])


def test_rule_20_a_stopped_vm_may_be_deallocated():
    """It gives up the place that it kept."""
    story = resting(Power.STOPPED)
    story.deallocate("db")
    story.done("db")
    assert (story.vm("db").power, story.vm("db").node) == (Power.DEALLOCATED, None)


def test_rule_20_power_acts_at_once_ahead_of_what_waits():
    """A maintenance is due and waits for web-1; the stop of db does not queue behind it."""
    story = Story()
    story.maintain("node-1")
    story.advance(minutes=14)
    story.approve("web-1", *story.restart_vm("web-1").events)
    story.advance(minutes=2)
    assert story.shows(DB) == (2, [("Freeze", "Scheduled")])
    story.stop("db")
    assert kinds(story) == ["reboot", "stop"]


@pytest.mark.parametrize(
    ("power", "command"),
    [
        (Power.STOPPED, ask.Stop),
        (Power.DEALLOCATED, ask.Stop),
        (Power.DEALLOCATED, ask.Deallocate),
    ],
)
def test_rule_20_what_rests_already_is_left_alone(power, command):
    """Twice is as good as once."""
    resting(power).unchanged(command(id="again", by=USER, vms=("db",)))


def test_rule_20_a_start_of_what_runs_changes_nothing():
    """It runs."""
    Story().unchanged(ask.Start(id="s", by=USER, vms=("db",)))


def test_rule_20_several_vms_are_stopped_all_or_none():
    """Web-0 is under impact: web-1 is not stopped either."""
    story = Story()
    story.restart_vm("web-0")
    story.approve("web-0")
    refusal = story.refused(ask.Stop(id="s", by=USER, vms=("web-1", "web-0")))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 20)
    story.stop("web-1", "web-2")
    story.done("web-1", "web-2")
    assert story.vm("web-1").power is story.vm("web-2").power is Power.STOPPED


@pytest.mark.parametrize("command", [ask.Stop, ask.Deallocate])
def test_rule_20_a_stop_that_failed_leaves_it_running(command):
    """And its events with it."""
    story = Story()
    story.restart_vm("db")
    story.tell(command(id="s", by=USER, vms=("db",)))
    story.failed("db")
    assert (story.vm("db").power, story.vm("db").node) == (Power.RUNNING, "node-1")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_20_a_start_that_failed_leaves_it_stopped():
    """The driver could not: it does not run, and may be started again."""
    story = resting(Power.STOPPED)
    story.start("db")
    story.failed("db")
    assert not story.vm("db").running
    story.start("db")
    story.done("db")
    assert story.vm("db").running


# ---- In no event ----


@pytest.mark.parametrize("power", [Power.STOPPED, Power.DEALLOCATED])
def test_rule_20_a_vm_that_does_not_run_is_in_no_event(power):
    """Node-1 is maintained, predicted to fail, and fails: db, resting, sees nothing of it."""
    story = resting(power)
    story.maintain("node-1")
    story.predict("node-1", risk="low")
    story.fail("node-1")
    story.done()
    assert story.shows(DB) == (1, [])
    assert all("db" not in event.resources for event in story.fleet.events.values())


# ---- A VM that stops ----


@pytest.mark.parametrize("stop", [Story.stop, Story.deallocate])
def test_rule_20_its_own_scheduled_delete_is_carried_out_at_once(stop):
    """Batch_0's Terminate has four minutes to go; it stops, so nobody is left to be told."""
    story = Story()
    (operation,) = story.delete("batch_0").operations
    story.advance(minutes=1)
    stop(story, "batch_0")
    assert story.shows(BATCH) == (2, [("Terminate", "Scheduled")])
    story.done("batch_0")
    assert story.shows(BATCH) == (3, [])
    assert kinds(story) == ["delete"]
    story.done("batch_0")
    assert "batch_0" not in story.fleet.vms
    assert story.operation(operation).status is OperationStatus.COMPLETED


@pytest.mark.parametrize(("vm", "left"), [("spot_0", None), ("spot_1", Power.DEALLOCATED)])
def test_rule_20_its_own_scheduled_eviction_is_carried_out_at_once(vm, left):
    """By its policy the Spot VM is deleted, or deallocated."""
    story = Story()
    story.evict(vm)
    story.stop(vm)
    story.done(vm)
    assert story.shows(SPOT) == (3, [])
    assert len(story.under_way) == 1
    story.done(vm)
    assert (story.vm(vm).power if vm in story.fleet.vms else None) == left


@pytest.mark.parametrize("ask_for", [Story.restart_vm, Story.redeploy])
@pytest.mark.parametrize("stop", [Story.stop, Story.deallocate])
def test_rule_20_its_restart_or_redeploy_is_canceled(stop, ask_for):
    """Even approved: the event is gone with the reason, and nothing happens later."""
    story = Story()
    (operation,) = ask_for(story, "db").operations
    event = story.only(DB)
    stop(story, "db")
    story.approve("db")
    story.done("db")
    assert story.shows(DB) == (3, [])
    assert story.event(event.id).status is EventStatus.CANCELED
    assert "db" in story.event(event.id).reason
    assert story.operation(operation).status is OperationStatus.CANCELED
    story.start("db")
    story.done("db")
    story.advance(minutes=20)
    assert not story.under_way


def test_rule_20_an_eviction_that_deallocates_stops_the_vm_too():
    """Its restart is canceled in the same commit."""
    story = Story()
    story.restart_vm("spot_1")
    story.evict("spot_1")
    story.advance(seconds=30)
    story.done("spot_1")
    assert story.events(SPOT) == ()
    assert story.vm("spot_1").power is Power.DEALLOCATED


# ---- Refusals ----


@pytest.mark.parametrize("power", [Power.STOPPED, Power.DEALLOCATED])
@pytest.mark.parametrize("command", [ask.Restart, ask.Redeploy])
def test_rule_20_restart_and_redeploy_of_a_vm_that_does_not_run_are_refused(command, power):
    """The refusal says what it is, and to start it."""
    story = resting(power)
    refusal = story.refused(command(id="c", by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 20)
    assert power.value in refusal.why
    assert "Start" in refusal.remedy


def under(what: str) -> tuple[Story, str]:
    """A VM under some impact."""
    story = Story()
    if what == "freeze":
        story.maintain("node-5")
    elif what == "migration":
        story.on_node(OperationKind.MIGRATION, "node-5")
    elif what == "failure":
        story.fail("node-5")
    elif what == "stop":
        story.stop("spot_1")
    else:
        story.evict("spot_1")
    story.advance(minutes=15 if what in ("freeze", "migration") else 1)
    assert "spot_1" in story.fleet.impact_on_vm
    return story, "spot_1"


@pytest.mark.parametrize("command", [ask.Stop, ask.Start, ask.Deallocate])
@pytest.mark.parametrize("what", ["freeze", "migration", "failure", "stop", "eviction"])
def test_rule_20_power_commands_on_a_vm_under_impact_are_refused(what, command):
    """Whatever is done to it, and whatever is asked."""
    story, vm = under(what)
    refusal = story.refused(command(id="p", by=USER, vms=(vm,)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 20)
    assert vm in refusal.why


def test_rule_20_a_refused_power_command_names_the_event():
    """So that a person can look it up."""
    story, vm = under("freeze")
    event = story.only(SPOT)
    assert story.refused(ask.Stop(id="p", by=USER, vms=(vm,))).event == event.id


# ---- Placed at its start ----


def test_rule_20_a_deallocated_vm_is_placed_at_its_start():
    """Its old node is cordoned meanwhile: it starts on another one."""
    story = resting(Power.DEALLOCATED)
    story.tell(ask.Cordon(node="node-1"))
    story.start("db")
    assert story.vm("db").node not in ("node-1", None)
    story.done("db")
    assert story.vm("db").running


def test_rule_20_a_start_without_a_place_is_refused():
    """Node a is cordoned, and other has taken the only slot of b."""
    story = hub()
    story.deallocate("db", "other")
    story.done()
    story.tell(ask.Cordon(node="a"))
    story.start("other")
    assert story.vm("other").node == "b"
    refusal = story.refused(ask.Start(id="s", by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    assert "db" in refusal.why


def test_rule_20_two_starts_of_one_command_do_not_share_a_slot():
    """One slot for two: none is started."""
    story = hub()
    story.deallocate("db", "other")
    story.done()
    story.tell(ask.Cordon(node="a"))
    assert story.refused(ask.Start(id="s", by=USER, vms=("db", "other"))).code is Code.NO_ROOM
    story.tell(ask.Uncordon(node="a"))
    story.start("db", "other")


@pytest.mark.parametrize("closed", ["live operation", "cordoned"])
def test_rule_20_a_stopped_vm_is_not_started_on_a_node_that_takes_nobody(closed):
    """It would be put there anew, untold of what is to come; deallocated it starts elsewhere."""
    story = resting(Power.STOPPED)
    if closed == "cordoned":
        story.tell(ask.Cordon(node="node-1"))
    else:
        story.maintain("node-1")
    refusal = story.refused(ask.Start(id="s", by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 14)
    assert "node-1" in refusal.why
    assert "deallocate" in refusal.remedy
    story.deallocate("db")
    story.done("db")
    story.start("db")
    assert story.vm("db").node not in ("node-1", None)


# ---- Delete and evict ----


@pytest.mark.parametrize(
    ("vm", "scope"), [("db", DB), ("web-0", WEB), ("FrontEnd_IN_0", SHOP), ("spot_0", SPOT)]
)
def test_rule_20_delete_without_terminate_notification_acts_at_once(vm, scope):
    """No event, begun at once, and the VM is gone when it is done."""
    story = Story()
    story.delete(vm)
    assert kinds(story) == ["delete"]
    assert story.shows(scope) == (1, [])
    story.done(vm)
    assert vm not in story.fleet.vms


def test_rule_20_the_scope_of_a_standalone_vm_goes_with_it():
    """Nobody is left who could read its document."""
    story = Story()
    story.delete("db")
    story.done("db")
    assert DB not in story.fleet.scopes
    assert WEB in story.fleet.scopes


def test_rule_20_a_delete_takes_along_what_was_still_announced_of_its_vm():
    """Db has a restart Scheduled; deleted, it has neither that event nor a scope."""
    story = Story()
    (restart,) = story.restart_vm("db").operations
    event = story.only(DB)
    story.delete("db")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.done("db")
    assert story.event(event.id).status is EventStatus.CANCELED
    assert "db" in story.event(event.id).reason
    assert story.operation(restart).status is OperationStatus.CANCELED
    assert DB not in story.fleet.scopes


def test_rule_20_delete_of_a_scale_set_instance_without_notification_acts_at_once():
    """Batch has its notification taken away."""
    story = Story()
    story.tell(ask.SetTerminateNotice(scale_set="batch", minutes=None))
    story.delete("batch_0")
    assert story.shows(BATCH) == (1, [])
    assert kinds(story) == ["delete"]


@pytest.mark.parametrize("power", [Power.STOPPED, Power.DEALLOCATED])
def test_rule_20_delete_of_a_vm_that_does_not_run_acts_at_once(power):
    """It is in no event, so nobody is told although its scale set gives notice."""
    story = Story()
    (story.stop if power is Power.STOPPED else story.deallocate)("batch_0")
    story.done()
    story.delete("batch_0")
    assert story.shows(BATCH) == (1, [])
    story.done("batch_0")
    assert "batch_0" not in story.fleet.vms


@pytest.mark.parametrize("vms", [("db",), ("batch_0",), ("spot_0", "db")])
def test_rule_20_evicting_a_regular_vm_is_refused(vms):
    """Even beside a Spot VM, which is not evicted then."""
    story = Story()
    refusal = story.refused(ask.Evict(id="e", by=OPERATOR, vms=vms))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 20)
    assert "Regular" in refusal.why


def test_rule_20_evicting_a_deallocated_vm_is_refused():
    """There is nothing to take away."""
    story = Story()
    story.deallocate("spot_1")
    story.done()
    refusal = story.refused(ask.Evict(id="e", by=OPERATOR, vms=("spot_1",)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 20)


def test_rule_20_evicting_a_stopped_vm_acts_at_once():
    """It holds a place that is wanted, and is in no event."""
    story = Story()
    story.stop("spot_1")
    story.done()
    story.evict("spot_1")
    assert story.shows(SPOT) == (1, [])
    story.done()
    assert (story.vm("spot_1").power, story.vm("spot_1").node) == (Power.DEALLOCATED, None)


def test_rule_20_what_is_so_already_is_said():
    """Nothing is done to those: whoever asked for it hears what they are taken for."""
    story = Story()
    story.stop("db")
    story.done()
    story.start("web-0", "db")
    told = [text for decision in story.decisions for text in decision.warnings]
    assert told == ["web-0 is running already, as far as is known: nothing is done."]
    story.done()
    again = story.unchanged(ask.Start(id="again", by=USER, vms=("db", "web-0", "web-1", "web-2")))
    assert [text.split()[0] for text in again.warnings] == ["db", "web-0", "web-1", "Nor"]
