"""Rule 13: nodes that fail, and nodes that cannot be reached."""

import pytest

from fairnotice.engine import Code
from fairnotice.engine import commands as ask
from fairnotice.model import Requester
from fairnotice.words import (
    EventStatus,
    ImpactStatus,
    NodeState,
    OperationKind,
    OperationStatus,
    Power,
    Risk,
    Role,
)
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, SPOT, USER, WEB, Story

FENCING = Requester("fence", Role.PLATFORM)


def unreachable(story: Story, node: str) -> None:
    """The health feed loses sight of the node."""
    story.tell(ask.ReportReachable(node=node, reachable=False))


def reachable(story: Story, node: str) -> None:
    """The health feed sees the node again."""
    story.tell(ask.ReportReachable(node=node, reachable=True))


# ---- Sudden failure ----


def test_rule_13_a_sudden_failure_appears_started():
    """Node-3 fails: both its scopes see a Redeploy that is already Started, with no notice."""
    story = Story()
    story.fail("node-3")
    assert story.node("node-3").state is NodeState.FAILED
    assert story.shows(SHOP) == (2, [("Redeploy", "Started")])
    assert story.shows(BATCH) == (2, [("Redeploy", "Started")])
    event = story.only(SHOP)
    assert event.resources == ("FrontEnd_IN_0", "BackEnd_IN_0")
    assert event.source == "Platform"
    assert event.description == "Virtual machine has encountered a failure."
    assert event.duration_seconds == -1
    assert event.started_at == story.began
    assert {impact.vm for impact in story.under_way.values()} == {
        "FrontEnd_IN_0",
        "BackEnd_IN_0",
        "batch_2",
    }
    story.done()
    assert story.shows(SHOP) == (3, [])
    assert story.vm("batch_2").node not in ("node-3", None)


def test_rule_13_a_failure_cancels_what_is_scheduled_for_that_node():
    """The maintenance of node-0 is canceled with the reason, in the commit of the failure."""
    story = Story()
    (operation,) = story.maintain("node-0").operations
    maintenance = story.only(WEB)
    story.approve("web-1")
    story.fail("node-0")
    assert story.shows(WEB) == (3, [("Redeploy", "Started")])
    gone = story.event(maintenance.id)
    assert gone.status is EventStatus.CANCELED
    assert "node-0 failed" in gone.reason
    assert story.operation(operation).status is OperationStatus.CANCELED


def test_rule_13_a_failure_leaves_other_nodes_alone():
    """Node-0 fails; the maintenance of node-5 stays as it was promised."""
    story = Story()
    story.maintain("node-5")
    maintenance = story.only(SPOT)
    story.fail("node-0")
    assert story.only(SPOT) == maintenance


def test_rule_13_a_failure_cancels_every_operation_announced_on_its_node():
    """A prediction has one operation per event: all of them are withdrawn."""
    story = Story()
    operations = story.predict("node-1", risk=Risk.LOW).operations
    assert len(operations) == 3
    story.fail("node-1")
    assert {story.operation(name).status for name in operations} == {OperationStatus.CANCELED}
    for scope in (WEB, BATCH, DB):
        assert story.shows(scope) == (3, [("Redeploy", "Started")])


def test_rule_13_a_failure_ends_as_failed_what_is_under_way_there():
    """The host was rebooting when it failed: that impact has failed, and the VM is moved."""
    story = Story()
    (operation,) = story.on_node(OperationKind.HOST_REBOOT, "node-5").operations
    story.approve("spot_1")
    (key,) = story.under_way
    story.advance(minutes=1)
    story.fail("node-5")
    impact = story.fleet.impacts[key]
    assert impact.status is ImpactStatus.FAILED
    assert "node-5 failed" in impact.reason
    assert story.operation(operation).status is OperationStatus.FAILED
    assert story.shows(SPOT) == (4, [("Redeploy", "Started")])


def test_rule_13_a_failure_ends_a_users_impact_there_too():
    """Db was on its way to another node; its own failed, so it begins its way anew."""
    story = Story()
    story.redeploy("db")
    story.approve("db")
    (key,) = story.under_way
    story.fail("node-1")
    assert story.fleet.impacts[key].status is ImpactStatus.FAILED
    assert story.shows(DB) == (4, [("Redeploy", "Started")])
    story.done()
    assert story.vm("db").node not in ("node-1", None)


def test_rule_13_a_failure_overrides_an_unapproved_restart_which_then_follows():
    """The restart waits for the failure to be over; it was promised, and it happens."""
    story = Story()
    story.restart_vm("db")
    story.fail("node-1")
    assert story.shows(DB) == (3, [("Reboot", "Scheduled"), ("Redeploy", "Started")])
    story.advance(minutes=16)
    assert story.shows(DB) == (3, [("Reboot", "Scheduled"), ("Redeploy", "Started")])
    story.done("db")
    assert story.shows(DB) == (4, [("Reboot", "Started")])


def test_rule_13_a_disabled_scope_sees_no_failure_and_is_moved_all_the_same():
    """Nobody listens in db: no event, and yet it is redeployed."""
    story = Story(listening=(WEB,))
    (operation,) = story.fail("node-1").operations
    assert story.shows(DB) == (1, [])
    assert {impact.vm for impact in story.under_way.values()} == {"web-1", "batch_1", "db"}
    story.done()
    assert story.operation(operation).status is OperationStatus.COMPLETED


def test_rule_13_a_vm_that_does_not_run_is_in_no_event_of_a_failure():
    """A stopped db loses its node, and is placed anew when it is started."""
    story = Story()
    story.stop("db")
    story.done("db")
    story.fail("node-1")
    assert story.events(DB) == ()
    assert (story.vm("db").power, story.vm("db").node) == (Power.STOPPED, None)
    story.start("db")
    assert story.vm("db").node not in ("node-1", None)


def test_rule_13_a_failed_node_fails_once():
    """Two people report the same failure: the second changes nothing."""
    story = Story()
    story.fail("node-5")
    story.unchanged(ask.FailNode(id="again", by=FENCING, node="node-5"))
    story.done()
    story.unchanged(ask.FailNode(id="again", by=FENCING, node="node-5"))


def test_rule_13_an_empty_node_fails_without_an_event():
    """Nobody was on it: it is failed, and nothing is live."""
    story = Story()
    story.evict("spot_1")
    story.advance(seconds=30)
    story.done()
    (operation,) = story.fail("node-5").operations
    assert story.node("node-5").state is NodeState.FAILED
    assert not story.operation(operation).live


def test_rule_13_nothing_is_planned_on_a_failed_node():
    """Maintenance and predictions of a failed node are refused until it is repaired."""
    story = Story()
    story.fail("node-5")
    story.done()
    for command in (
        story.node_command(OperationKind.HOST_UPDATE, "node-5"),
        story.node_command(OperationKind.EVACUATION, "node-5"),
        ask.PredictFailure(id="p", by=OPERATOR, node="node-5", risk=Risk.HIGH),
    ):
        refusal = story.refused(command)
        assert (refusal.code, refusal.rule) == (Code.CONFLICT, 13)
        assert "node-5 is failed" in refusal.why


@pytest.mark.parametrize("by", [OPERATOR, FENCING], ids=lambda by: by.name)
def test_rule_13_an_operator_or_a_fencing_command_calls_a_node_failed(by):
    """Both are believed."""
    story = Story()
    story.tell(ask.FailNode(id="f", by=by, node="node-5"))
    assert story.node("node-5").state is NodeState.FAILED


@pytest.mark.parametrize("by", [USER, Requester("spot_1", Role.VM)], ids=lambda by: by.name)
def test_rule_13_nobody_else_calls_a_node_failed(by):
    """Its VMs may still run: a user, or a VM, cannot say that they do not."""
    story = Story()
    refusal = story.refused(ask.FailNode(id="f", by=by, node="node-5"))
    assert refusal.code is Code.FORBIDDEN


# ---- Unreachable ----


def test_rule_13_a_node_that_cannot_be_reached_is_not_failed():
    """Its VMs may still run: no event, no move, however long it lasts."""
    story = Story()
    unreachable(story, "node-1")
    assert story.node("node-1").state is NodeState.UNREACHABLE
    story.advance(hours=20)
    assert story.node("node-1").state is NodeState.UNREACHABLE
    assert story.vm("db") == story.vm("db")._replace(node="node-1", power=Power.RUNNING)
    assert story.events(DB) == ()
    assert not story.under_way


@pytest.mark.parametrize("approved", [True, False])
def test_rule_13_nothing_is_started_on_a_node_that_cannot_be_reached(approved):
    """Approved or past NotBefore, the restart waits, and starts when the node is back."""
    story = Story()
    story.restart_vm("db")
    unreachable(story, "node-1")
    if approved:
        story.approve("db")
    story.advance(minutes=20)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    reachable(story, "node-1")
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_13_a_maintenance_waits_for_its_node_to_come_back():
    """A due maintenance of a node out of sight does not start, neither does an eviction."""
    story = Story()
    story.maintain("node-5")
    unreachable(story, "node-5")
    story.evict("spot_1")
    story.advance(minutes=20)
    assert story.shows(SPOT) == (3, [("Freeze", "Scheduled"), ("Preempt", "Scheduled")])
    reachable(story, "node-5")
    assert ("Preempt", "Started") in story.shows(SPOT)[1]
    assert len(story.under_way) == 1


def test_rule_13_a_delete_without_notice_waits_for_the_node_too():
    """Nobody knows whether db runs: it is deleted when its node is back."""
    story = Story()
    unreachable(story, "node-1")
    story.delete("db")
    assert not story.under_way
    reachable(story, "node-1")
    assert [impact.vm for impact in story.under_way.values()] == ["db"]


def test_rule_13_nothing_is_put_on_a_node_that_cannot_be_reached():
    """Five of six nodes are out of sight: db finds no place, then the one that came back."""
    story = Story()
    for number in (0, 2, 3, 4, 5):
        unreachable(story, f"node-{number}")
    refusal = story.refused(ask.Redeploy(id="r", by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    reachable(story, "node-4")
    story.redeploy("db")
    story.approve("db")
    story.done("db")
    assert story.vm("db").node == "node-4"


def test_rule_13_nothing_is_planned_on_a_node_that_cannot_be_reached():
    """Maintenance, evacuation and prediction are refused, and so is returning it to service."""
    story = Story()
    unreachable(story, "node-5")
    for command in (
        story.node_command(OperationKind.HOST_UPDATE, "node-5"),
        story.node_command(OperationKind.EVACUATION, "node-5"),
        ask.PredictFailure(id="p", by=OPERATOR, node="node-5", risk=Risk.HIGH),
        ask.Uncordon(node="node-5"),
    ):
        refusal = story.refused(command)
        assert (refusal.code, refusal.rule) == (Code.CONFLICT, 13)
        assert "node-5 is unreachable" in refusal.why


@pytest.mark.parametrize("power", [ask.Stop, ask.Start, ask.Deallocate])
def test_rule_13_power_commands_need_a_node_that_can_be_reached(power):
    """Nobody can stop or start what nobody can reach."""
    story = Story()
    if power is ask.Start:
        story.stop("db")
        story.done("db")
    unreachable(story, "node-1")
    refusal = story.refused(power(id="p", by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 13)
    assert "node-1" in refusal.why


def test_rule_13_an_impact_under_way_goes_on_while_the_node_is_out_of_sight():
    """It began before; its end is taken when it comes."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    unreachable(story, "node-1")
    story.done("db")
    assert story.shows(DB) == (4, [])


def test_rule_13_an_unreachable_node_is_failed_when_an_operator_says_so():
    """The operator has pulled the plug: now its VMs surely do not run, and are moved."""
    story = Story()
    unreachable(story, "node-5")
    story.fail("node-5")
    assert story.node("node-5").state is NodeState.FAILED
    assert story.shows(SPOT) == (2, [("Redeploy", "Started")])


def test_rule_13_reports_that_say_nothing_new_change_nothing():
    """Reachable twice, unreachable twice, and either of a failed node."""
    story = Story()
    story.unchanged(ask.ReportReachable(node="node-5", reachable=True))
    unreachable(story, "node-5")
    story.unchanged(ask.ReportReachable(node="node-5", reachable=False))
    story.fail("node-5")
    story.unchanged(ask.ReportReachable(node="node-5", reachable=True))
    story.unchanged(ask.ReportReachable(node="node-5", reachable=False))
    assert story.node("node-5").state is NodeState.FAILED


def test_rule_13_a_cordoned_node_is_cordoned_again_when_it_comes_back():
    """Out of reach and back: that is no uncordon."""
    story = Story()
    story.tell(ask.Cordon(node="node-5"))
    unreachable(story, "node-5")
    reachable(story, "node-5")
    assert story.node("node-5").state is NodeState.CORDONED
