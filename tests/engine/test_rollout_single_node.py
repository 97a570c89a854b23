"""Rule 22: a command on one node, refused where a second domain of a scope would go, or forced."""

from dataclasses import replace

import pytest

from fairnotice.engine.refusal import Code
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.model import Requester
from fairnotice.words import OperationKind, Risk, Role
from tests.engine.story import BATCH, DB, SPOT, USER, WEB, Story

PLANNED = (
    OperationKind.HOST_UPDATE,
    OperationKind.HOST_REBOOT,
    OperationKind.MIGRATION,
    OperationKind.EVACUATION,
)


def web_on(*places: tuple[int, int]) -> FleetSpec:
    """A set with a VM on each of these (fault domain, update domain), and a spare node."""
    return FleetSpec(
        (*(NodeSpec(f"n-{n}", fault) for n, (fault, _) in enumerate(places)), NodeSpec("spare")),
        tuple(
            VmSpec(f"w-{n}", f"n-{n}", "web", update_domain=update)
            for n, (_, update) in enumerate(places)
        ),
        (SetSpec("web"),),
    )


@pytest.mark.parametrize("kind", PLANNED)
def test_rule_22_a_second_update_domain_is_refused_with_the_event_named(kind):
    """Domain 0 of web is announced: no operation of any kind on domain 1."""
    story = Story(web_on((0, 0), (0, 1)))
    story.maintain("n-0")
    refusal = story.refused(story.node_command(kind, "n-1"))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 22)
    assert refusal.event == story.only(WEB).id
    assert story.only(WEB).id in refusal.remedy
    assert "force" in refusal.remedy


def test_rule_22_a_second_fault_domain_is_refused_with_the_event_named():
    """The same update domain in another fault domain."""
    story = Story(web_on((0, 0), (1, 0)))
    story.maintain("n-0")
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "n-1"))
    assert (refusal.code, refusal.rule, refusal.event) == (Code.CONFLICT, 22, story.only(WEB).id)


def test_rule_22_the_event_named_is_of_the_scope_they_share():
    """Node-0 and node-3 share batch only: its event is named, not that of web."""
    story = Story()
    story.maintain("node-0")
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "node-3"))
    assert refusal.event == story.only(BATCH).id


def test_rule_22_a_started_operation_is_in_the_way_too():
    """Domain 0 is frozen right now."""
    story = Story(web_on((0, 0), (0, 1)))
    story.maintain("n-0")
    story.approve("w-0")
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "n-1"))
    assert (refusal.rule, refusal.event) == (22, story.only(WEB).id)


def test_rule_22_a_scope_that_does_not_listen_is_kept_apart_too():
    """There is no event to name, so the operation is."""
    story = Story(web_on((0, 0), (0, 1)), listening=())
    operation = story.maintain("n-0").operations[0]
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "n-1"))
    assert (refusal.code, refusal.rule, refusal.event) == (Code.CONFLICT, 22, None)
    assert operation in refusal.remedy


@pytest.mark.parametrize("kind", PLANNED)
def test_rule_22_forced_it_is_accepted(kind):
    """Whoever forces it knows what he does, and it is on record."""
    story = Story(web_on((0, 0), (0, 1)))
    story.maintain("n-0")
    answer = story.on_node(kind, "n-1", force=True)
    assert len(story.events(WEB)) == 2
    assert all(story.operation(name).forced for name in answer.operations)


def test_rule_22_repair_needs_no_force():
    """An emergency does not wait."""
    story = Story(web_on((0, 0), (0, 1)))
    story.maintain("n-0")
    story.on_node(OperationKind.REPAIR, "n-1")
    assert [event.type.value for event in story.events(WEB)] == ["Freeze", "Reboot"]


def test_rule_22_failures_need_no_force():
    """Neither a prediction nor a failure asks whether it may."""
    story = Story(web_on((0, 0), (1, 1), (2, 2)))
    story.maintain("n-0")
    story.predict("n-1", risk=Risk.HIGH)
    story.fail("n-2")
    assert [event.type.value for event in story.events(WEB)] == ["Freeze", "Redeploy", "Redeploy"]


def test_rule_22_a_prediction_is_in_the_way_once_started():
    """Announced it is not; approved it is."""
    story = Story(web_on((0, 0), (1, 1), (1, 1)))
    prediction = story.predict("n-1", risk=Risk.LOW).events[0]
    story.cancel(story.maintain("n-0").operations[0])
    story.approve("w-1", prediction)
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "n-0"))
    assert (refusal.rule, refusal.event) == (22, prediction)


def test_rule_22_a_failure_is_in_the_way():
    """Node n-1 is gone and its VM is being redeployed."""
    story = Story(web_on((0, 0), (1, 1), (1, 1)))
    failure = story.fail("n-1").events[0]
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "n-0"))
    assert (refusal.rule, refusal.event) == (22, failure)
    story.done()
    story.maintain("n-0")


def test_rule_22_an_operation_of_a_rollout_is_in_the_way():
    """A rollout is at work on domain 0."""
    story = Story(web_on((0, 0), (0, 1)))
    story.roll_out("n-0")
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "n-1"))
    assert (refusal.rule, refusal.event) == (22, story.only(WEB).id)


def test_rule_22_a_preempt_and_a_users_restart_are_in_nobodys_way():
    """Only live platform operations on nodes count."""
    story = Story()
    story.evict("spot_1")
    story.restart_vm("web-1")
    story.maintain("node-2")
    assert story.shows(SPOT)[1] == [("Preempt", "Scheduled"), ("Freeze", "Scheduled")]


def test_rule_22_the_same_domain_and_the_same_node_are_fine():
    """A second node of the same update and fault domain, and a second operation on one node."""
    story = Story(web_on((0, 0), (0, 0)))
    story.maintain("n-0")
    story.maintain("n-1")
    story.on_node(OperationKind.HOST_REBOOT, "n-0")
    assert len(story.events(WEB)) == 3


def test_rule_22_standalone_vms_are_in_nobodys_way():
    """Two nodes of two fault domains with standalone VMs only."""
    nodes = (NodeSpec("n-0", 0), NodeSpec("n-1", 1))
    story = Story(FleetSpec(nodes, (VmSpec("db", "n-0"), VmSpec("b", "n-1"))))
    story.maintain("n-0")
    story.maintain("n-1")
    assert story.shows(DB)[1] == [("Freeze", "Scheduled")]


def test_rule_22_once_it_is_over_the_next_may_be_asked_for():
    """A single command does not wait for recovery: that is what rollouts do."""
    story = Story(web_on((0, 0), (0, 1)))
    story.maintain("n-0")
    story.approve("w-0")
    story.done()
    story.maintain("n-1")
    assert story.only(WEB).resources == ("w-1",)


@pytest.mark.parametrize("kind", PLANNED)
def test_rule_22_a_node_with_two_update_domains_is_refused_unless_forced(kind):
    """The VM to move is named; forced, each update domain has its own event."""
    spec = FleetSpec(
        (NodeSpec("n-0"), NodeSpec("n-1"), NodeSpec("n-2")),
        (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", "n-0", "web")),
        (SetSpec("web"),),
    )
    story = Story(spec)
    refusal = story.refused(story.node_command(kind, "n-0"))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 22)
    assert "w-1" in refusal.remedy
    story.on_node(kind, "n-0", force=True)
    assert [event.resources for event in story.events(WEB)] == [("w-0",), ("w-1",)]


def test_rule_22_repair_of_a_node_with_two_update_domains_needs_no_force():
    """The emergency does not ask how the VMs were placed."""
    spec = FleetSpec(
        (NodeSpec("n-0"),),
        (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", "n-0", "web")),
        (SetSpec("web"),),
    )
    story = Story(spec)
    story.on_node(OperationKind.REPAIR, "n-0")
    assert len(story.events(WEB)) == 2


@pytest.mark.parametrize("kind", [OperationKind.RESTART, OperationKind.PREDICTED_FAILURE])
def test_rule_22_not_every_kind_is_planned_on_a_node(kind):
    """A restart is for VMs, a prediction is a command of its own."""
    story = Story()
    refusal = story.refused(story.node_command(kind, "node-0"))
    assert refusal.code is Code.INVALID
    assert "host-update" in refusal.remedy


@pytest.mark.parametrize("by", [USER, Requester("web-0", Role.VM)])
def test_rule_22_only_an_operator_plans_something_on_a_node(by):
    """The table of operations: maintenance, migration and repair are asked for by the operator."""
    story = Story()
    for kind in (*PLANNED, OperationKind.REPAIR):
        refusal = story.refused(replace(story.node_command(kind, "node-5"), by=by))
        assert refusal.code is Code.FORBIDDEN
