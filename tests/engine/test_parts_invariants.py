"""What must hold always: every invariant can see the violation it is there for.

Each story is a sound fleet with one row written over behind the law's back.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from fairnotice.engine.commands import JoinEndpoint
from fairnotice.engine.invariants import check, check_indexes
from fairnotice.model import Impact, Node, Rollout, RolloutNode
from fairnotice.words import (
    EventStatus,
    ImpactKind,
    ImpactStatus,
    OperationKind,
    OperationStatus,
    Power,
    RolloutNodeStatus,
    RolloutStatus,
)
from tests.engine.story import BATCH, DB, OPERATOR, WEB, Story


def change(story: Story, row, **values) -> None:
    """Write a row over, as no command ever would."""
    story.fleet.put(row._replace(**values))


def _a_node_with_too_many_vms(story: Story) -> int:
    change(story, story.node("node-0"), capacity=1)
    return 14


def _a_vm_that_runs_nowhere(story: Story) -> int:
    change(story, story.vm("db"), node=None)
    return 14


def _a_deallocated_vm_with_a_node(story: Story) -> int:
    change(story, story.vm("db"), power=Power.DEALLOCATED)
    return 20


def _a_vm_on_a_node_that_is_gone(story: Story) -> int:
    story.fleet.drop(Node("node-5"))
    return 21


def _a_vm_in_a_scope_that_is_gone(story: Story) -> int:
    story.fleet.drop(story.scope(DB))
    return 21


def _an_event_where_nobody_listens(story: Story) -> int:
    story.restart_vm("db")
    change(story, story.scope(DB), enabled_at=None, incarnation=1)
    return 9


def _a_fraction_of_a_second(story: Story) -> int:
    story.restart_vm("db")
    event = story.only(DB)
    change(story, event, not_before=event.not_before + timedelta(microseconds=1))
    return 1


def _an_event_that_names_a_stranger(story: Story) -> int:
    story.restart_vm("web-0")
    change(story, story.only(WEB), resources=("web-0", "web-1"))
    return 4


def _an_event_started_without_its_operation(story: Story) -> int:
    story.restart_vm("db")
    change(story, story.only(DB), status=EventStatus.STARTED)
    return 5


def _a_stopped_vm_in_an_event(story: Story) -> int:
    story.restart_vm("db")
    change(story, story.vm("db"), power=Power.STOPPED)
    return 20


def _an_event_with_two_nodes(story: Story) -> int:
    story.maintain("node-3")
    change(story, story.vm("BackEnd_IN_0"), node="node-5")
    return 4


def _an_event_with_two_update_domains(story: Story) -> int:
    story.maintain("node-3")
    change(story, story.vm("BackEnd_IN_0"), update_domain=1)
    return 4


def _a_vm_that_left_and_is_still_named(story: Story) -> int:
    story.maintain("node-0")
    change(story, story.vm("web-0"), node="node-5")
    return 12


def _a_disabled_scope_that_counts_on(story: Story) -> int:
    change(story, story.scope(DB), enabled_at=None, heard_at=None, incarnation=7)
    return 7


def _an_impact_before_the_start(story: Story) -> int:
    operation = story.operation(story.restart_vm("db").operations[0])
    now = story.clock.wall()
    story.fleet.put(Impact(f"{operation.id}/db", operation.id, "db", ImpactKind.REBOOT, now, now))
    return 10


def _a_start_without_intent(story: Story) -> int:
    operation = story.operation(story.restart_vm("db").operations[0])
    now = story.clock.wall()
    change(story, operation, status=OperationStatus.STARTED, started_at=now)
    change(story, story.only(DB), status=EventStatus.STARTED)
    return 10


def _an_end_before_the_impact(story: Story) -> int:
    operation = story.restart_vm("db").operations[0]
    story.approve("db")
    change(story, story.operation(operation), ended_at=story.clock.wall())
    return 11


def _an_end_before_the_event(story: Story) -> int:
    operation = story.restart_vm("db").operations[0]
    story.approve("db")
    key = f"{operation}/db"
    now = story.clock.wall()
    change(story, story.fleet.impacts[key], status=ImpactStatus.DONE, ended_at=now)
    change(story, story.operation(operation), ended_at=now)
    return 11


def _two_impacts_on_one_vm(story: Story) -> int:
    operation = story.restart_vm("db").operations[0]
    story.approve("db")
    impact = story.fleet.impacts[f"{operation}/db"]
    change(story, impact, key="another/db")
    return 5


def _a_vm_that_maintenance_misses(story: Story) -> int:
    story.maintain("node-1")
    change(story, story.vm("spot_1"), node="node-1")
    return 4


def _two_domains_at_once(story: Story) -> int:
    story.maintain("node-0")
    second = story.on_node(OperationKind.HOST_UPDATE, "node-1", force=True).operations[0]
    change(story, story.operation(second), forced=False)
    return 22


def a_rollout() -> Rollout:
    """One node at once, none may fail."""
    began = Story().began
    return Rollout("r", OperationKind.HOST_UPDATE, OPERATOR, began, 2, 1, 0, 0)


def _more_nodes_than_allowed(story: Story) -> int:
    story.fleet.put(a_rollout()._replace(live_count=2))
    for position in range(2):
        row = RolloutNode("r", f"node-{position}", position, RolloutNodeStatus.LIVE)
        story.fleet.put(row)
    return 22


def _a_rollout_over_before_its_nodes(story: Story) -> int:
    story.fleet.put(a_rollout()._replace(status=RolloutStatus.COMPLETED))
    story.fleet.put(RolloutNode("r", "node-0", 0))
    return 22


def _a_rollout_past_its_budget(story: Story) -> int:
    story.fleet.put(a_rollout()._replace(failed_count=1))
    return 22


def _too_many_user_commands(story: Story) -> int:
    for _ in range(101):
        operation = story.restart_vm("db").operations[0]
        if operation == "request-100":
            break
    change(story, story.operation("request-1"), id="one-more", request="one-more", events=())
    return 17


def _an_endpoint_that_is_gone(story: Story) -> int:
    story.tell(JoinEndpoint(node="node-1"))
    story.restart_vm("db")
    story.fleet.drop(story.fleet.endpoints["node-1"])
    return 5


def _an_endpoint_that_serves_nobody(story: Story) -> int:
    for node in ("node-1", "node-5"):
        story.tell(JoinEndpoint(node=node))
    story.restart_vm("db")
    change(story, story.only(DB), unconfirmed=("node-1", "node-5"))
    return 5


VIOLATIONS: tuple[Callable[[Story], int], ...] = (
    _a_node_with_too_many_vms,
    _a_vm_that_runs_nowhere,
    _a_deallocated_vm_with_a_node,
    _a_vm_on_a_node_that_is_gone,
    _a_vm_in_a_scope_that_is_gone,
    _an_event_where_nobody_listens,
    _a_fraction_of_a_second,
    _an_event_that_names_a_stranger,
    _an_event_started_without_its_operation,
    _a_stopped_vm_in_an_event,
    _an_event_with_two_nodes,
    _an_event_with_two_update_domains,
    _a_vm_that_left_and_is_still_named,
    _a_disabled_scope_that_counts_on,
    _an_impact_before_the_start,
    _a_start_without_intent,
    _an_end_before_the_impact,
    _an_end_before_the_event,
    _two_impacts_on_one_vm,
    _a_vm_that_maintenance_misses,
    _two_domains_at_once,
    _more_nodes_than_allowed,
    _a_rollout_over_before_its_nodes,
    _a_rollout_past_its_budget,
    _too_many_user_commands,
    _an_endpoint_that_is_gone,
    _an_endpoint_that_serves_nobody,
)


@pytest.mark.parametrize("violate", VIOLATIONS, ids=lambda violate: violate.__name__[1:])
def test_every_invariant_sees_its_violation(violate):
    """The fleet was sound, and is not any more; the rule is named."""
    story = Story()
    assert check(story.fleet) == []
    rule = violate(story)
    assert rule in {violation.rule for violation in check(story.fleet)}


def test_a_sound_fleet_has_sound_indexes():
    """Maintenance, a rollout that waits, a terminate: the indexes are what the rows say."""
    story = Story()
    story.maintain("node-0")
    story.roll_out("node-1", "node-2")
    story.delete("batch_2")
    assert story.events(BATCH)
    assert check_indexes(story.fleet) == []


def test_an_index_that_differs_from_the_rows_is_seen():
    """Somebody forgot to keep an index, the open nodes, or the nodes of a rollout."""
    story = Story()
    story.roll_out("node-0", "node-1", nodes_at_once_max=2)
    story.fleet.vms_on_node["node-0"] = ()
    story.fleet.open_nodes.clear()
    story.fleet.parked_nodes.clear()
    found = {violation.what for violation in check_indexes(story.fleet)}
    assert found == {
        "index vms_on_node is not what the rows say",
        "the open nodes are not what the rows say",
        "parked_nodes is not what the rows say",
    }
