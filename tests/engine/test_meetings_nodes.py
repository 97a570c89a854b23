"""Where two rules meet on a node or in a rollout: one story each."""

import pytest

from fairnotice.engine import commands as ask
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.words import (
    EventStatus,
    ImpactStatus,
    NodeState,
    OperationStatus,
    Power,
    Risk,
    RolloutNodeStatus,
    RolloutStatus,
)
from tests.engine.story import BATCH, DB, OPERATOR, USER, WEB, Story


def doing(story: Story) -> list[tuple[str, str]]:
    """What the driver is doing to whom."""
    live = [impact for key, impact in story.under_way.items() if story.fleet.impacts[key].live]
    return [(impact.vm, impact.kind.value) for impact in live]


def three() -> Story:
    """Nodes a, b and c; db and its neighbour on a, nobody elsewhere; both listen."""
    spec = FleetSpec(
        nodes=tuple(NodeSpec(name) for name in "abc"),
        vms=(VmSpec("db", "a"), VmSpec("neighbour", "a")),
    )
    return Story(spec, listening=(DB, "vm:neighbour"))


def on_its_way(story: Story) -> tuple[str, str]:
    """Db is being redeployed: the key of the impact, and where it goes."""
    story.redeploy("db")
    story.approve("db")
    (impact,) = story.under_way.values()
    return impact.key, impact.target


def web_of_three() -> Story:
    """Web-0, web-1 and web-2, alone on a, b and c, in three update domains; d is empty."""
    spec = FleetSpec(
        nodes=tuple(NodeSpec(name) for name in "abcd"),
        availability_sets=(SetSpec("web"),),
        vms=tuple(
            VmSpec(f"web-{number}", node, availability_set="web")
            for number, node in enumerate("abc")
        ),
    )
    return Story(spec)


def node_of(story: Story, rollout: str, node: str) -> RolloutNodeStatus:
    """Where a node of a rollout is."""
    return story.fleet.rollout_nodes[rollout, node].status


def wait_for_an_event(story: Story) -> None:
    """Half an hour, in which a scope recovers, or less where it need not."""
    for _ in range(31):
        if not story.events(WEB):
            story.advance(minutes=1)


# ---- On its way to a node ----


def test_rules_13_14_a_node_failing_while_a_vm_is_on_its_way_to_it():
    """Db never arrives: its redeploy has failed, it runs on where it was, and nobody is moved."""
    story = three()
    key, target = on_its_way(story)
    (failure,) = story.fail(target).operations
    impact = story.fleet.impacts[key]
    assert impact.status is ImpactStatus.FAILED
    assert target in impact.reason
    assert story.events(DB) == ()
    assert (story.vm("db").node, story.vm("db").power) == ("a", Power.RUNNING)
    assert story.fleet.used_slots(target) == 0
    assert not story.operation(failure).live
    # A driver that says "done" now is not believed: the place is gone.
    story.report(key)
    assert story.vm("db").node == "a"


def test_rules_12_13_14_the_source_failing_while_a_vm_leaves_it():
    """Its redeploy has failed with the node; the failure moves it, and its place is its own."""
    story = three()
    key, _ = on_its_way(story)
    story.fail("a")
    assert story.fleet.impacts[key].status is ImpactStatus.FAILED
    assert story.shows(DB)[1] == [("Redeploy", "Started")]
    assert sorted(doing(story)) == [("db", "redeploy"), ("neighbour", "redeploy")]
    story.done()
    assert story.vm("db").node in ("b", "c")
    assert sum(story.fleet.used_slots(name) for name in "abc") == 2


def test_rules_13_14_both_nodes_fail_one_after_the_other():
    """Db was moved because of the first failure and not arrived at the second: it is stopped."""
    story = three()
    story.stop("neighbour")
    story.done("neighbour")
    story.fail("a")
    (impact,) = story.under_way.values()
    story.fail(impact.target)
    assert (story.vm("db").node, story.vm("db").power) == (None, Power.STOPPED)
    assert story.events(DB) == ()
    story.start("db")
    story.done()
    assert story.vm("db").node not in ("a", impact.target, None)


def test_rules_13_14_a_vm_that_starts_on_a_node_that_fails():
    """Its start has failed with the node: it does not run, has no node, and may be started."""
    story = three()
    story.deallocate("db")
    story.done("db")
    story.start("db")
    placed_on = story.vm("db").node
    story.fail(placed_on)
    assert (story.vm("db").running, story.vm("db").node) == (False, None)
    story.done()
    story.start("db")
    assert story.vm("db").node not in (placed_on, None)


def test_rules_2_14_a_vm_on_its_way_to_a_node_is_told_of_what_is_announced_there():
    """It will be there at NotBefore, so it has the same notice as everybody else there."""
    story = three()
    _, target = on_its_way(story)
    (operation,) = story.maintain(target).operations
    assert story.shows(DB)[1] == [("Redeploy", "Started"), ("Freeze", "Scheduled")]
    story.advance(minutes=15)
    assert story.operation(operation).pending
    story.done("db")
    assert doing(story) == [("db", "freeze")]


def test_rules_12_14_a_vm_that_did_not_arrive_is_not_hit_there():
    """The redeploy failed: db leaves the event of the node that it never reached."""
    story = three()
    _, target = on_its_way(story)
    story.maintain(target)
    story.failed("db")
    assert story.events(DB) == ()
    story.advance(minutes=20)
    assert doing(story) == []


def test_rules_11_13_the_move_of_a_prediction_fails_and_is_not_retried():
    """The place failed under way: db stays on the cordoned node, and an operator sees it."""
    story = three()
    story.stop("neighbour")
    story.done("neighbour")
    (operation,) = story.predict("a", risk=Risk.HIGH).operations
    story.approve("db")
    (impact,) = story.under_way.values()
    story.fail(impact.target)
    assert story.operation(operation).status is OperationStatus.FAILED
    assert story.vm("db").node == "a"
    assert story.node("a").state is NodeState.CORDONED
    story.advance(hours=1)
    assert doing(story) == []
    assert story.events(DB) == ()


# ---- Predictions ----


def test_rules_5_12_13_a_users_redeploy_under_a_predicted_failure():
    """Db is on its way when the prediction is due: it waits, and is resolved by the arrival."""
    story = Story()
    story.predict("node-1", risk=Risk.HIGH)
    prediction = story.only(DB)
    story.advance(minutes=9)
    story.approve("db", *story.redeploy("db").events)
    story.advance(minutes=2)
    assert story.shows(DB)[1] == [("Redeploy", "Scheduled"), ("Redeploy", "Started")]
    story.done("db")
    assert story.events(DB) == ()
    assert story.event(prediction.id).status is EventStatus.CANCELED
    assert story.operation(prediction.operation).status is OperationStatus.RESOLVED
    assert story.node("node-1").state is NodeState.CORDONED
    # The others of the node are moved by the prediction, each by its own event.
    assert {vm for vm, _ in doing(story)} == {"web-1", "batch_1"}


def test_rules_11_13_a_users_redeploy_that_fails_under_a_predicted_failure():
    """He has not helped himself: the prediction, due by now, moves db."""
    story = Story()
    story.predict("node-1", risk=Risk.HIGH)
    story.advance(minutes=9)
    story.approve("db", *story.redeploy("db").events)
    story.advance(minutes=2)
    story.failed("db")
    assert story.shows(DB)[1] == [("Redeploy", "Started")]
    assert story.only(DB).source == "Platform"


def test_rules_4_15_a_cancel_of_one_event_of_a_prediction_leaves_the_others():
    """One operation per event: db's is taken back, web-1's and batch_1's stay."""
    story = Story()
    story.predict("node-1", risk=Risk.LOW)
    story.cancel(story.only(DB).id)
    assert story.events(DB) == ()
    assert story.only(WEB).resources == ("web-1",)
    assert story.only(BATCH).resources == ("batch_1",)


def test_rules_5_13_an_uncordoned_node_does_not_forget_its_prediction():
    """The operator wants the node back in service; what was announced is still announced."""
    story = three()
    story.predict("a", risk=Risk.LOW)
    story.tell(ask.Uncordon(node="a"))
    assert story.shows(DB) == (2, [("Redeploy", "Scheduled")])
    assert story.node("a").state is NodeState.IN_SERVICE


# ---- Unreachable ----


def test_rules_5_13_15_what_is_held_by_a_node_out_of_reach_can_be_taken_back():
    """Due and approved, not started: its requester may still cancel it."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    story.tell(ask.ReportReachable(node="node-1", reachable=False))
    story.approve("db")
    story.cancel(operation, by=USER)
    story.tell(ask.ReportReachable(node="node-1", reachable=True))
    assert doing(story) == []


def test_rules_11_13_an_impact_on_a_node_out_of_reach_times_out_and_the_next_waits():
    """Nothing comes back: the first restart times out, the second waits for the node."""
    story = Story()
    story.restart_vm("db")
    story.restart_vm("db")
    story.approve("db")
    story.tell(ask.ReportReachable(node="node-1", reachable=False))
    story.advance(minutes=10)
    assert story.shows(DB)[1] == [("Reboot", "Scheduled")]
    story.tell(ask.ReportReachable(node="node-1", reachable=True))
    assert story.shows(DB)[1] == [("Reboot", "Started")]


# ---- Rollouts ----


def test_rules_13_22_a_failure_of_its_node_in_the_middle_of_a_rollout():
    """What was announced there is canceled, the node has failed, and past the budget it pauses."""
    story = web_of_three()
    rollout = story.roll_out("a", "b")
    maintenance = story.only(WEB)
    assert maintenance.resources == ("web-0",)
    story.advance(minutes=5)
    story.fail("a")
    assert story.event(maintenance.id).status is EventStatus.CANCELED
    assert story.shows(WEB) == (3, [("Redeploy", "Started")])
    assert node_of(story, rollout, "a") is RolloutNodeStatus.FAILED
    assert story.fleet.rollouts[rollout].status is RolloutStatus.PAUSED
    story.done()
    story.advance(hours=2)
    assert story.shows(WEB) == (4, [])
    story.tell(ask.ResumeRollout(rollout=rollout, by=OPERATOR))
    assert story.only(WEB).resources == ("web-1",)


def test_rules_13_22_a_failure_of_another_node_in_the_middle_of_a_rollout():
    """Web-2's node fails: web-0, approved, is not frozen while web-2 is down, and then is."""
    story = web_of_three()
    story.roll_out("a", "b")
    (maintenance,) = story.events(WEB)
    story.fail("c")
    story.approve("web-1", maintenance.id)
    assert story.event(maintenance.id).scheduled
    story.advance(minutes=16)
    assert story.event(maintenance.id).scheduled
    story.done("web-2")
    story.advance(hours=1)
    assert story.event(maintenance.id).status is not EventStatus.SCHEDULED


def test_rules_13_22_a_rollout_waits_for_scopes_to_recover_from_a_failure():
    """Its next update domain comes no sooner than 30 minutes after the failure is over."""
    story = web_of_three()
    story.fail("c")
    story.roll_out("a")
    assert story.shows(WEB) == (2, [("Redeploy", "Started")])
    story.advance(minutes=1)
    story.done("web-2")
    story.advance(seconds=29 * 60 + 59)
    assert story.shows(WEB) == (3, [])
    story.advance(seconds=1)
    assert story.only(WEB).resources == ("web-0",)


def test_rules_15_22_an_operators_cancel_of_one_nodes_operation_of_a_rollout():
    """The node is left out, nothing has failed, and the rollout goes on with the next."""
    story = web_of_three()
    rollout = story.roll_out("a", "b")
    story.cancel(story.only(WEB).id)
    assert story.fleet.rollouts[rollout].status is RolloutStatus.RUNNING
    assert node_of(story, rollout, "a") is RolloutNodeStatus.SKIPPED
    assert "olga" in story.fleet.rollout_nodes[rollout, "a"].reason
    assert story.fleet.rollouts[rollout].failed_count == 0
    story.advance(minutes=1)
    assert story.only(WEB).resources == ("web-1",)
    story.approve("web-0")
    story.done()
    assert story.fleet.rollouts[rollout].status is RolloutStatus.COMPLETED


def test_rules_12_22_a_node_whose_vms_have_left_is_done_and_the_rollout_goes_on():
    """Web-0 is stopped by its user: nothing is left to do on a, and b is next."""
    story = web_of_three()
    rollout = story.roll_out("a", "b")
    story.stop("web-0")
    story.done("web-0")
    assert node_of(story, rollout, "a") is RolloutNodeStatus.DONE
    wait_for_an_event(story)
    assert story.only(WEB).resources == ("web-1",)


@pytest.mark.parametrize("ending", ["done", "canceled"])
def test_rules_15_22_a_rollout_goes_on_when_what_was_in_its_way_is_over(ending):
    """A single maintenance has another update domain: the rollout waits for it, not for ever."""
    story = web_of_three()
    (single,) = story.maintain("c").operations
    story.roll_out("a")
    assert [event.resources for event in story.events(WEB)] == [("web-2",)]
    if ending == "done":
        story.approve("web-0")
        story.done()
    else:
        story.cancel(single)
    wait_for_an_event(story)
    assert story.only(WEB).resources == ("web-0",)


def test_rules_13_14_22_a_vm_is_not_put_on_the_node_that_a_rollout_has_announced():
    """Node b has room and comes first; db goes to c, where nobody was told of anything."""
    spec = FleetSpec(
        nodes=tuple(NodeSpec(name) for name in "abc"),
        vms=(VmSpec("db", "a"), VmSpec("other", "b")),
    )
    story = Story(spec, listening=(DB, "vm:other"))
    story.roll_out("b")
    story.fail("a")
    assert [impact.target for impact in story.under_way.values()] == ["c"]


def test_rules_5_16_22_a_user_deletes_the_vm_that_a_rollout_waits_for():
    """Web-0 is deleted at once; the rollout's operation has nobody left, ends, and goes on."""
    story = web_of_three()
    rollout = story.roll_out("a", "b")
    story.delete("web-0")
    story.advance(minutes=16)
    assert story.shows(WEB) == (2, [("Freeze", "Scheduled")])
    story.done("web-0")
    assert node_of(story, rollout, "a") is RolloutNodeStatus.DONE
    wait_for_an_event(story)
    assert story.only(WEB).resources == ("web-1",)
