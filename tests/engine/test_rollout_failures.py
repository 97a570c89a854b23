"""Rule 22: nodes that fail, the failure budget, and nodes that are skipped."""

import pytest

from fairnotice.engine.commands import ApplyFleet, CancelRollout, Postpone, ResumeRollout
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.words import OperationKind, RolloutStatus
from tests.engine.story import BATCH, OPERATOR, SPOT, WEB, Story, sample


def singles(*per_node: int) -> FleetSpec:
    """So many standalone VMs on each node: vm-0-0 and vm-0-1 on n-0, vm-1-0 on n-1."""
    return FleetSpec(
        tuple(NodeSpec(f"n-{n}") for n in range(len(per_node))),
        tuple(
            VmSpec(f"vm-{n}-{i}", f"n-{n}")
            for n, count in enumerate(per_node)
            for i in range(count)
        ),
    )


def reason(story: Story, rollout: str, node: str) -> str:
    """Why a node of a rollout is where it is."""
    return story.fleet.rollout_nodes[rollout, node].reason


def test_rule_22_a_node_fails_when_an_impact_fails_and_the_rollout_pauses_itself():
    """The budget is 0: the first failure pauses, and nothing new is announced."""
    story = Story(singles(1, 1))
    rollout = story.roll_out("n-0", "n-1")
    story.failed()
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "pending"}
    assert "1 of 1 impacts failed" in reason(story, rollout, "n-0")
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    assert story.rollout(rollout).reason == "1 node failed, and its failure budget is 0"
    story.advance(hours=24)
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "pending"}


def test_rule_22_a_node_fails_when_an_impact_times_out():
    """A freeze of 9 seconds has 69: after that the node has failed."""
    story = Story(singles(1, 1))
    rollout = story.roll_out("n-0", "n-1")
    story.advance(seconds=68)
    assert story.statuses(rollout)["n-0"] == "live"
    story.advance(seconds=1)
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "pending"}
    assert story.rollout(rollout).status is RolloutStatus.PAUSED


def test_rule_22_one_failed_impact_of_many_is_enough():
    """Three VMs, one fails: the node has failed when all are over."""
    story = Story(singles(3, 1))
    rollout = story.roll_out("n-0", "n-1")
    story.failed("vm-0-1")
    story.done()
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "pending"}


def test_rule_22_a_node_fails_with_its_first_failed_impact_not_with_its_last():
    """A failed VM on n-0 pauses the rollout before n-1 is over, so n-2 is not announced."""
    story = Story(singles(2, 1, 1))
    rollout = story.roll_out("n-0", "n-1", "n-2", nodes_at_once_max=2)
    story.failed("vm-0-0")
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    story.done("vm-1-0")
    assert story.statuses(rollout)["n-2"] == "pending"
    story.done("vm-0-1")
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "done", "n-2": "pending"}


def test_rule_22_the_failure_budget_is_how_many_may_fail():
    """Budget 1: the first failure goes on, the second pauses."""
    story = Story(singles(1, 1, 1))
    rollout = story.roll_out("n-0", "n-1", "n-2", failure_budget=1)
    story.failed()
    assert story.rollout(rollout).status is RolloutStatus.RUNNING
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "live", "n-2": "pending"}
    story.failed()
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "failed", "n-2": "pending"}


def test_rule_22_the_budget_counts_anew_after_a_resume():
    """Budget 0: resumed after one failure, it goes on; the next failure pauses again."""
    story = Story(singles(1, 1, 1))
    rollout = story.roll_out("n-0", "n-1", "n-2")
    story.failed()
    story.tell(ResumeRollout(rollout=rollout, by=OPERATOR))
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "live", "n-2": "pending"}
    story.failed()
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    assert story.statuses(rollout)["n-2"] == "pending"


def test_rule_22_a_rollout_past_its_budget_keeps_what_was_promised():
    """Two at once, one fails: the other's event stays, and starts at its time."""
    story = Story()
    rollout = story.roll_out("node-0", "node-5", nodes_at_once_max=2)
    story.approve("web-0")
    story.approve("batch_0")
    story.failed()
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    assert story.shows(SPOT) == (2, [("Freeze", "Scheduled")])
    story.advance(minutes=15)
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])
    story.done()
    assert story.statuses(rollout) == {"node-0": "failed", "node-5": "done"}


def test_rule_22_a_rollout_whose_last_node_fails_is_over():
    """Nothing is left to be paused for."""
    story = Story(singles(1))
    rollout = story.roll_out("n-0")
    story.failed()
    assert story.rollout(rollout).status is RolloutStatus.COMPLETED
    assert story.rollout(rollout).failed_count == 1


def test_rule_22_a_node_that_failed_before_its_turn_has_failed():
    """Node n-1 is gone when n-0 is over: that counts against the budget."""
    story = Story(singles(1, 0, 1))
    rollout = story.roll_out("n-0", "n-1", "n-2")
    story.fail("n-1")
    story.done()
    assert story.statuses(rollout) == {"n-0": "done", "n-1": "failed", "n-2": "pending"}
    assert "n-1 failed" in reason(story, rollout, "n-1")
    assert story.rollout(rollout).status is RolloutStatus.PAUSED


def test_rule_22_a_node_that_vanished_has_failed():
    """The fleet file leaves n-1 out before its turn."""
    story = Story(singles(1, 0, 1))
    rollout = story.roll_out("n-0", "n-1", "n-2", failure_budget=1)
    spec = singles(1, 0, 1)
    nodes = tuple(node for node in spec.nodes if node.name != "n-1")
    story.tell(ApplyFleet(spec=spec._replace(nodes=nodes)))
    story.done()
    assert story.statuses(rollout) == {"n-0": "done", "n-1": "failed", "n-2": "live"}
    assert "vanished" in reason(story, rollout, "n-1")


def test_rule_22_a_node_that_fails_while_it_is_announced_has_failed():
    """Its event is canceled, the failure appears Started, the rollout pauses."""
    story = Story()
    rollout = story.roll_out("node-0", "node-5")
    event = story.only(WEB)
    story.fail("node-0")
    assert story.event(event.id).reason == "node-0 failed"
    assert story.shows(WEB)[1] == [("Redeploy", "Started")]
    assert story.statuses(rollout) == {"node-0": "failed", "node-5": "pending"}
    assert story.rollout(rollout).status is RolloutStatus.PAUSED


def test_rule_22_a_node_that_fails_while_it_is_under_way_has_failed():
    """Its impacts end as failed with the node."""
    story = Story()
    rollout = story.roll_out("node-5", "node-0")
    story.approve("spot_1")
    story.fail("node-5")
    assert story.statuses(rollout) == {"node-5": "failed", "node-0": "pending"}
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    assert story.rollout(rollout).failed_count == 1


def test_rule_22_an_evacuation_that_leaves_a_vm_has_failed_its_node():
    """No place for the VM: nothing is announced, and the rollout says who was left."""
    story = Story(
        FleetSpec(
            (NodeSpec("n-0"), NodeSpec("n-1", 0, 1)), (VmSpec("a", "n-0"), VmSpec("b", "n-1"))
        )
    )
    rollout = story.roll_out("n-0", "n-1", kind=OperationKind.EVACUATION)
    assert story.statuses(rollout) == {"n-0": "failed", "n-1": "pending"}
    assert "a has no place" in reason(story, rollout, "n-0")
    assert story.rollout(rollout).status is RolloutStatus.PAUSED


# ---- Skipped ----


def crowded() -> FleetSpec:
    """Two update domains of web on one node, and a node after it."""
    return FleetSpec(
        (NodeSpec("n-0"), NodeSpec("n-1")),
        (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", "n-0", "web"), VmSpec("a", "n-1")),
        (SetSpec("web"),),
    )


def test_rule_22_a_node_with_two_update_domains_of_a_scope_is_skipped_and_named():
    """The reason names the node, the scope and the VM to move; the rollout goes on."""
    story = Story(crowded())
    rollout = story.roll_out("n-0", "n-1")
    assert story.statuses(rollout) == {"n-0": "skipped", "n-1": "live"}
    for word in ("n-0", WEB, "w-1"):
        assert word in reason(story, rollout, "n-0")
    assert story.events(WEB) == ()
    story.done()
    assert story.rollout(rollout).status is RolloutStatus.COMPLETED
    assert (story.rollout(rollout).skipped_count, story.rollout(rollout).failed_count) == (1, 0)


def test_rule_22_with_the_named_vm_moved_the_node_is_not_skipped():
    """What the reason says helps."""
    story = Story(crowded())
    story.redeploy("w-1")
    story.approve("w-0")
    story.done()
    rollout = story.roll_out("n-0")
    assert story.statuses(rollout) == {"n-0": "live"}


def test_rule_22_a_vm_that_does_not_run_makes_no_second_update_domain():
    """w-1 is stopped: only w-0 would be hit."""
    story = Story(crowded())
    story.stop("w-1")
    story.done()
    rollout = story.roll_out("n-0")
    assert story.statuses(rollout) == {"n-0": "live"}


def test_rule_22_a_node_whose_operation_is_withdrawn_is_skipped_with_the_reason():
    """An operator cancels node-0's operation: the rollout goes on without it."""
    story = Story()
    rollout = story.roll_out("node-0", "node-5")
    story.cancel(story.only(WEB).id)
    assert story.statuses(rollout) == {"node-0": "skipped", "node-5": "live"}
    assert reason(story, rollout, "node-0") == "canceled by olga"


@pytest.mark.parametrize("kind", [OperationKind.HOST_UPDATE, OperationKind.MIGRATION])
def test_rule_12_a_node_whose_vms_all_left_is_done(kind):
    """The only VM of node-5 is deallocated by its user before the operation starts."""
    story = Story(sample())
    rollout = story.roll_out("node-5", kind=kind)
    story.deallocate("spot_1")
    story.done()
    assert story.events(SPOT) == ()
    assert story.statuses(rollout) == {"node-5": "done"}


# ---- A node that takes longer than what is over is remembered ----


def half_done(story: Story) -> str:
    """A migration of node-0: web is over, batch was postponed by two days; 25 hours pass."""
    rollout = story.roll_out("node-0", kind=OperationKind.MIGRATION)
    story.tell(Postpone(event=story.only(BATCH).id, not_before=story.at(hours=48), by=OPERATOR))
    story.approve("web-0")
    story.done()
    story.advance(hours=25)
    assert story.statuses(rollout) == {"node-0": "live"}
    return rollout


def test_rule_22_a_node_ends_although_its_first_operation_is_forgotten_by_then():
    """Two days later batch is migrated too, and the node is done."""
    story = Story()
    rollout = half_done(story)
    story.advance(hours=23)
    story.done()
    assert story.statuses(rollout) == {"node-0": "done"}


def test_rule_22_a_rollout_is_canceled_although_an_operation_of_it_is_forgotten():
    """What is left of node-0 is withdrawn."""
    story = Story()
    rollout = half_done(story)
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    assert story.events(BATCH) == ()
    assert story.rollout(rollout).status is RolloutStatus.CANCELED


def test_rule_22_a_failure_is_counted_although_it_is_forgotten_by_then():
    """Web failed to migrate; when batch is done two days later the node has failed all the same."""
    story = Story()
    rollout = story.roll_out("node-0", kind=OperationKind.MIGRATION)
    story.tell(Postpone(event=story.only(BATCH).id, not_before=story.at(hours=48), by=OPERATOR))
    story.approve("web-0")
    story.failed()
    story.advance(hours=48)
    story.done()
    assert story.statuses(rollout) == {"node-0": "failed"}
