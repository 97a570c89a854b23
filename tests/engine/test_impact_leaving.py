"""Rule 12: what a VM leaves behind when it leaves its node, and what follows it."""

from datetime import timedelta

import pytest

from fairnotice.engine import Decision
from fairnotice.engine.changes import VmMoved, VmPowerChanged, VmRemoved
from fairnotice.engine.commands import Confirm, JoinEndpoint
from fairnotice.engine.specs import NodeSpec
from fairnotice.words import EventStatus, NodeState, OperationKind, OperationStatus
from tests.engine.story import BATCH, DB, SHOP, SPOT, WEB, Story, sample

LEFT = (VmMoved, VmPowerChanged, VmRemoved)


def commit_that_left(story: Story, vm: str) -> Decision:
    """The one decision in which the VM was written down anew, or dropped."""
    (decision,) = (
        decision
        for decision in story.decisions
        if any(isinstance(change, LEFT) and change.row.name == vm for change in decision.changes)
    )
    return decision


def redeploy(story: Story, vm: str) -> None:
    """The user redeploys the VM, which approves at once."""
    story.approve(vm, *story.redeploy(vm).events)


LEAVE = {
    "redeployed": redeploy,
    "deleted": Story.delete,
    "stopped": Story.stop,
    "deallocated": Story.deallocate,
}


@pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)
def test_rule_12_a_vm_that_leaves_is_out_of_the_resources_in_the_same_commit(leave):
    """The front end goes: the event keeps its id and its time, and names the back end only."""
    story = Story()
    story.maintain("node-3")
    event = story.only(SHOP)
    assert event.resources == ("FrontEnd_IN_0", "BackEnd_IN_0")
    story.advance(minutes=1)
    leave(story, "FrontEnd_IN_0")
    story.done("FrontEnd_IN_0")
    rest = story.only(SHOP)
    assert (rest.id, rest.not_before) == (event.id, event.not_before)
    assert rest.resources == ("BackEnd_IN_0",)
    commit = commit_that_left(story, "FrontEnd_IN_0")
    rows = [change.row for change in commit.changes]
    assert any(getattr(row, "resources", ()) == ("BackEnd_IN_0",) for row in rows)


def test_rule_12_leaving_is_one_step_of_the_incarnation():
    """Stopped in one commit, so the document moves by one."""
    story = Story()
    story.maintain("node-3")
    assert story.shows(SHOP) == (2, [("Freeze", "Scheduled")])
    story.stop("BackEnd_IN_0")
    assert story.shows(SHOP) == (2, [("Freeze", "Scheduled")])
    story.done("BackEnd_IN_0")
    assert story.shows(SHOP) == (3, [("Freeze", "Scheduled")])
    assert story.only(SHOP).resources == ("FrontEnd_IN_0",)


@pytest.mark.parametrize("vm", ["spot_0", "spot_1"], ids=["deleted", "deallocated"])
def test_rule_12_an_evicted_vm_leaves(vm):
    """A Spot VM under a planned maintenance is evicted: the maintenance is no longer its own."""
    story = Story()
    story.maintain(story.vm(vm).node)
    maintenance = story.only(SPOT)
    story.evict(vm)
    story.advance(seconds=30)
    story.done(vm)
    assert story.events(SPOT) == ()
    gone = story.event(maintenance.id)
    assert gone.status is EventStatus.CANCELED
    assert vm in gone.reason
    assert gone in [change.row for change in commit_that_left(story, vm).changes]


def test_rule_12_a_migrated_vm_leaves():
    """The shop is live-migrated away from under a reboot of its node."""
    story = Story()
    reboot = story.on_node(OperationKind.HOST_REBOOT, "node-3")
    story.on_node(OperationKind.MIGRATION, "node-3")
    (migration,) = (event for event in story.events(SHOP) if event.type == "Freeze")
    story.approve("FrontEnd_IN_0", migration.id)
    story.done("FrontEnd_IN_0")
    (left,) = (event for event in story.events(SHOP) if event.type == "Reboot")
    assert left.resources == ("BackEnd_IN_0",)
    story.done("BackEnd_IN_0")
    assert story.events(SHOP) == ()
    assert story.event(left.id).status is EventStatus.CANCELED
    assert story.operation(reboot.operations[0]).vms == ("batch_2",)


def test_rule_12_a_vm_leaves_every_scheduled_event_of_a_node_operation_there():
    """Two maintenances of one node are announced: db leaves both."""
    story = Story()
    story.maintain("node-1")
    story.on_node(OperationKind.HOST_REBOOT, "node-1")
    assert [kind for kind, _ in story.shows(DB)[1]] == ["Freeze", "Reboot"]
    story.stop("db")
    story.done("db")
    assert story.events(DB) == ()


def test_rule_12_a_started_event_keeps_its_resources():
    """Db is done with its freeze and is deleted at once; nothing of what started is rewritten."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=15)
    story.done("FrontEnd_IN_0")
    story.stop("FrontEnd_IN_0")
    story.done("FrontEnd_IN_0")
    assert story.shows(SHOP) == (3, [("Freeze", "Started")])
    assert story.only(SHOP).resources == ("FrontEnd_IN_0", "BackEnd_IN_0")


def test_rule_12_an_impact_that_failed_leaves_the_vm_where_it_is():
    """The redeploy failed, so the front end has not left, and the event names it still."""
    story = Story()
    story.maintain("node-3")
    story.approve("FrontEnd_IN_0", *story.redeploy("FrontEnd_IN_0").events)
    story.failed("FrontEnd_IN_0")
    assert story.vm("FrontEnd_IN_0").node == "node-3"
    assert story.only(SHOP).resources == ("FrontEnd_IN_0", "BackEnd_IN_0")


@pytest.mark.parametrize("leave", ["redeploy", "fail"])
def test_rule_12_operations_on_the_vm_itself_follow_it(leave):
    """A restart of db stays as it was announced, and happens where db is by then."""
    story = Story()
    story.restart_vm("db")
    restart = story.only(DB)
    if leave == "redeploy":
        story.approve("db", *story.redeploy("db").events)
    else:
        story.fail("node-1")
    story.done()
    moved_to = story.vm("db").node
    assert moved_to != "node-1"
    kept = story.only(DB)
    assert (kept.id, kept.status, kept.not_before) == (restart.id, "Scheduled", restart.not_before)
    assert kept.resources == ("db",)
    story.advance(minutes=15)
    (impact,) = story.under_way.values()
    assert (impact.vm, impact.source) == ("db", moved_to)


def test_rule_12_an_event_left_without_resources_is_canceled_with_the_reason():
    """Web-0 stops; its event of the maintenance is canceled because web-0 stopped."""
    story = Story()
    story.maintain("node-0")
    event = story.only(WEB)
    story.stop("web-0")
    story.done("web-0")
    assert story.shows(WEB) == (3, [])
    gone = story.event(event.id)
    assert gone.status is EventStatus.CANCELED
    assert gone.gone_at == story.clock.wall()
    assert "web-0" in gone.reason
    assert "stopped" in gone.reason


def test_rule_12_the_operation_goes_on_with_what_is_left():
    """Web-0 has left: batch_0 keeps its notice, and it alone is frozen."""
    story = Story()
    (operation,) = story.maintain("node-0").operations
    story.stop("web-0")
    story.done("web-0")
    assert story.only(BATCH).not_before == story.at(minutes=15)
    story.advance(seconds=899)
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])
    story.advance(seconds=1)
    assert [impact.vm for impact in story.under_way.values()] == ["batch_0"]
    story.done()
    assert story.operation(operation).status is OperationStatus.COMPLETED


def test_rule_12_with_nobody_left_to_wait_for_it_starts_by_rule_9():
    """Only web listens; when web-0 has left, nobody waits for batch_0, which is hit at once."""
    story = Story(listening=(WEB,))
    (operation,) = story.maintain("node-0").operations
    story.stop("web-0")
    assert story.operation(operation).pending
    story.done("web-0")
    assert story.operation(operation).status is OperationStatus.STARTED
    assert [impact.vm for impact in story.under_way.values()] == ["batch_0"]


def test_rule_12_with_nobody_left_it_never_starts_before_what_its_requester_gave():
    """The operator said two hours, and two hours it is, although nobody listens any more."""
    story = Story(listening=(WEB,))
    not_before = story.at(hours=2)
    (operation,) = story.maintain("node-0", not_before=not_before).operations
    story.stop("web-0")
    story.done("web-0")
    story.advance(minutes=119)
    assert story.operation(operation).pending
    story.advance(minutes=1)
    assert story.operation(operation).started_at == not_before


def test_rule_12_an_operation_without_any_vm_left_ends():
    """The only VM of the node has left: the node is free again."""
    story = Story()
    (operation,) = story.maintain("node-5").operations
    story.stop("spot_1")
    story.done("spot_1")
    assert not story.operation(operation).live
    assert "node-5" not in story.fleet.operations_on_node


# ---- Predicted failures ----


def test_rule_12_a_user_who_redeploys_under_a_predicted_failure_has_helped_himself():
    """Db moves away in its own time: the prediction is resolved and will not move it again."""
    story = Story()
    story.stop("web-1", "batch_1")
    story.done()
    (operation,) = story.predict("node-1", risk="low").operations
    prediction = story.only(DB)
    assert prediction.not_before == story.at(days=7)
    story.approve("db", *story.redeploy("db").events)
    story.done("db")
    assert story.events(DB) == ()
    assert story.event(prediction.id).status is EventStatus.CANCELED
    assert "db" in story.event(prediction.id).reason
    assert story.operation(operation).status is OperationStatus.RESOLVED
    assert story.operation(operation).reason
    assert story.node("node-1").state is NodeState.CORDONED
    story.advance(hours=24 * 8)
    assert not story.under_way


def test_rule_12_a_prediction_is_resolved_only_with_its_last_vm():
    """Two shop VMs share the event: the first leaves it, the second resolves it."""
    story = Story()
    story.predict("node-3", risk="medium")
    prediction = story.only(SHOP)
    assert prediction.resources == ("FrontEnd_IN_0", "BackEnd_IN_0")
    story.stop("FrontEnd_IN_0")
    story.done("FrontEnd_IN_0")
    assert story.only(SHOP).resources == ("BackEnd_IN_0",)
    assert story.operation(prediction.operation).pending
    story.delete("BackEnd_IN_0")
    story.done("BackEnd_IN_0")
    assert story.events(SHOP) == ()
    assert story.operation(prediction.operation).status is OperationStatus.RESOLVED


def test_rule_12_other_scopes_of_a_prediction_keep_theirs():
    """Db has helped itself; web-1 and batch_1 of the same node are still announced."""
    story = Story()
    story.predict("node-1", risk="low")
    story.stop("db")
    story.done("db")
    assert story.events(DB) == ()
    assert [event.resources for event in story.events(WEB)] == [("web-1",)]
    assert [event.resources for event in story.events(BATCH)] == [("batch_1",)]


# ---- Endpoints: rule 5 follows the VM ----


def only_place(node: str):
    """The sample fleet, in which nothing but this node has room beside its VMs."""
    spec = sample()
    taken = [vm.node for vm in spec.vms]
    nodes = tuple(
        NodeSpec(known.name, known.fault_domain, max(taken.count(known.name), 1))
        for known in spec.nodes
        if known.name != node
    )
    return spec._replace(nodes=(*nodes, NodeSpec(node, 2, 16)))


def test_rule_12_the_endpoint_of_the_new_node_has_to_confirm_what_follows_the_vm():
    """Db's restart was confirmed on node-1; on node-5 it waits for that node's endpoint."""
    story = Story(only_place("node-5"))
    story.tell(JoinEndpoint(node="node-5"))
    story.restart_vm("db")
    restart = story.only(DB)
    assert restart.unconfirmed == ()
    story.approve("db", *story.redeploy("db").events)
    story.done("db")
    assert story.vm("db").node == "node-5"
    assert story.event(restart.id).unconfirmed == ("node-5",)
    story.tell(Confirm(node="node-5", revision=restart.revision))
    story.advance(minutes=20)
    assert story.event(restart.id).scheduled
    story.tell(Confirm(node="node-5", revision=story.fleet.revision))
    story.notice_passes()
    assert story.event(restart.id).status is EventStatus.STARTED


def test_rule_12_a_vm_that_moved_needs_no_word_from_the_node_it_left():
    """Node-1's endpoint is silent for ever; db is elsewhere, and its restart goes on."""
    story = Story()
    story.tell(JoinEndpoint(node="node-1"))
    story.restart_vm("db")
    restart = story.only(DB)
    assert restart.unconfirmed == ("node-1",)
    story.approve("db", *story.redeploy("db").events)
    story.done("db")
    story.advance(minutes=15)
    assert story.event(restart.id).status is EventStatus.STARTED
    assert story.event(restart.id).started_at == restart.announced_at + timedelta(minutes=15)
