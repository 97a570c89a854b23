"""The law's table of statuses: every row is walked by a story, and there is no other way."""

from itertools import product

import pytest

from fairnotice.engine.commands import CancelRollout, Cordon, PauseRollout, ResumeRollout
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.engine.transitions import (
    EVENT,
    IMPACT,
    OPERATION,
    ROLLOUT,
    ROLLOUT_NODE,
    Cause,
    move,
)
from fairnotice.errors import IllegalTransition, LawError
from fairnotice.model import Event, Impact, Operation, Rollout, RolloutNode
from fairnotice.words import (
    EventStatus,
    ImpactStatus,
    OperationKind,
    OperationStatus,
    Risk,
    RolloutNodeStatus,
    RolloutStatus,
)
from tests.engine.story import OPERATOR, WEB, Story

TABLES = {
    "EVENT": (EVENT, EventStatus, Event),
    "OPERATION": (OPERATION, OperationStatus, Operation),
    "IMPACT": (IMPACT, ImpactStatus, Impact),
    "ROLLOUT": (ROLLOUT, RolloutStatus, Rollout),
    "ROLLOUT_NODE": (ROLLOUT_NODE, RolloutNodeStatus, RolloutNode),
}


@pytest.mark.parametrize("name", TABLES)
def test_rule_06_a_status_changes_only_by_a_row_of_its_table(name):
    """Of all pairs of status and cause, those in the table lead on and all others are illegal."""
    table, statuses, _ = TABLES[name]
    for status, cause in product((None, *statuses), Cause):
        if (status, cause) in table:
            assert move(table, status, cause) is table[status, cause]
        else:
            with pytest.raises(IllegalTransition, match=cause.name.lower()):
                move(table, status, cause)


def test_rule_06_what_is_illegal_is_our_own_fault_and_says_what_was_tried():
    """A started event that would be canceled is a bug, named by its status and the cause."""
    with pytest.raises(LawError, match="no row for Started when canceled"):
        move(EVENT, EventStatus.STARTED, Cause.CANCELED)
    with pytest.raises(IllegalTransition, match="no row for nothing when over"):
        move(EVENT, None, Cause.OVER)


def test_rule_06_an_event_goes_one_way_only():
    """The rows of the event's table are those of rule 6, and no more."""
    scheduled, started = EventStatus.SCHEDULED, EventStatus.STARTED
    ways = {(before, after) for (before, _), after in EVENT.items()}
    assert ways == {
        (None, scheduled),
        (None, started),
        (scheduled, started),
        (scheduled, EventStatus.CANCELED),
        (started, EventStatus.COMPLETED),
    }


# ---- Every row is walked ----


def ways_of(story: Story, row_type: type) -> set[tuple[str | None, str]]:
    """(status before, status after) of every change of status in a story."""
    statuses: dict[object, str] = {}
    ways = set()
    for decision in story.decisions:
        for change in decision.changes:
            row = change.row
            if type(row) is row_type:
                key = getattr(row, "id", None) or getattr(row, "key", None) or row[:2]
                before = statuses.get(key)
                if before != row.status:
                    ways.add((before, row.status))
                statuses[key] = row.status
    return ways


def a_restart_approved_and_another_canceled() -> Story:
    """Scheduled, Started, Completed; and Scheduled, Canceled."""
    story = Story()
    story.restart_vm("web-0")
    story.approve("web-0")
    story.done()
    story.cancel(story.restart_vm("web-0").operations[0])
    return story


def a_node_fails() -> Story:
    """One of its VMs is redeployed, with the other the driver fails."""
    story = Story()
    story.fail("node-0")
    story.done("web-0")
    story.failed("batch_0")
    return story


def a_restart_times_out() -> Story:
    """Nobody listens, so it starts at once; the driver never answers."""
    story = Story(listening=())
    story.restart_vm("db")
    story.advance(minutes=10)
    return story


def a_prediction_resolves_itself() -> Story:
    """The only VM that waits is redeployed by its user."""
    story = Story(listening=())
    story.listen(WEB)
    story.predict("node-0", risk=Risk.LOW)
    story.approve("web-1", *story.redeploy("web-0").events)
    story.done()
    return story


def a_migration_has_no_place() -> Story:
    """All other nodes are cordoned."""
    story = Story(listening=())
    for node in (1, 2, 3, 4, 5):
        story.tell(Cordon(node=f"node-{node}"))
    story.on_node(OperationKind.MIGRATION, "node-0")
    return story


def a_rollout_ends() -> Story:
    """Two nodes, one after the other."""
    story = Story(listening=())
    story.roll_out("node-0", "node-5")
    story.done()
    story.done()
    return story


def a_rollout_pauses_itself_and_ends_paused() -> Story:
    """Its first node has failed before its turn, its second fails while it is paused by hand."""
    story = Story(listening=())
    story.fail("node-5")
    story.done()
    rollout = story.roll_out("node-5", "node-0", recovery_seconds=0)
    story.tell(ResumeRollout(rollout=rollout, by=OPERATOR))
    story.tell(PauseRollout(rollout=rollout, by=OPERATOR))
    story.failed()
    return story


def a_rollout_is_canceled() -> Story:
    """One node is announced, the other still to come."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1")
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    return story


def a_paused_rollout_is_canceled() -> Story:
    """The same, paused before."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1")
    story.tell(PauseRollout(rollout=rollout, by=OPERATOR))
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    return story


def an_operation_of_a_rollout_is_withdrawn() -> Story:
    """An operator cancels the one event; the rollout itself goes on."""
    story = Story()
    story.roll_out("node-0")
    story.cancel(story.only(WEB).id)
    return story


def a_rollout_skips_a_node() -> Story:
    """The node holds two update domains of one set."""
    pair = (VmSpec("a-0", "n-0", "a"), VmSpec("a-1", "n-0", "a"))
    story = Story(FleetSpec((NodeSpec("n-0"),), pair, (SetSpec("a"),)))
    story.roll_out("n-0")
    return story


STORIES = (
    a_restart_approved_and_another_canceled,
    a_node_fails,
    a_restart_times_out,
    a_prediction_resolves_itself,
    a_migration_has_no_place,
    a_rollout_ends,
    a_rollout_pauses_itself_and_ends_paused,
    a_rollout_is_canceled,
    a_paused_rollout_is_canceled,
    an_operation_of_a_rollout_is_withdrawn,
    a_rollout_skips_a_node,
)


@pytest.mark.parametrize("name", TABLES)
def test_rule_06_every_row_of_the_table_is_walked_by_a_story(name):
    """The stories above walk each row of the table, and no way that is not a row."""
    table, _, row_type = TABLES[name]
    walked = set()
    for tell in STORIES:
        walked |= ways_of(tell(), row_type)
    assert walked == {(before, after) for (before, _), after in table.items()}
