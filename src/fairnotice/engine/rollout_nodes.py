"""Rule 22: what becomes of the nodes of a rollout, and so of the rollout."""

from collections.abc import Iterator
from datetime import timedelta

from fairnotice.engine.changes import RolloutChanged, RolloutNodeChanged
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.evacuation import is_over
from fairnotice.engine.transitions import ROLLOUT, ROLLOUT_NODE, Cause, move
from fairnotice.model import Rollout, RolloutNode
from fairnotice.words import (
    NodeHealth,
    OperationStatus,
    RolloutNodeStatus,
    RolloutStatus,
)

_COUNTED = {
    RolloutNodeStatus.LIVE: "live_count",
    RolloutNodeStatus.DONE: "done_count",
    RolloutNodeStatus.FAILED: "failed_count",
    RolloutNodeStatus.SKIPPED: "skipped_count",
    RolloutNodeStatus.CANCELED: "skipped_count",
}


def follow(draft: Draft) -> None:
    """Note what this decision has done to the nodes of rollouts."""
    for row in _live_rows(draft, draft.failed_operations):
        if not row.failing:
            _node_failing(draft, row)
    for row in _live_rows(draft, draft.ended_operations):
        if is_over(draft, draft.requests[row.request or ""]):
            node_over(draft, row)
    draft.failed_operations.clear()
    draft.ended_operations.clear()


def _live_rows(draft: Draft, operations: list[str]) -> Iterator[RolloutNode]:
    """The live nodes of rollouts that these operations belong to, as they are when reached."""
    for name in operations:
        operation = draft.operations[name]
        row = draft.rollout_nodes.get((operation.rollout or "", operation.node or ""))
        if row is not None and row.status is RolloutNodeStatus.LIVE:
            yield row


def _node_failing(draft: Draft, row: RolloutNode) -> None:
    """One impact failed: that decides the node's fate, whatever else is still under way there."""
    draft.record(RolloutNodeChanged(draft.now, row._replace(failing=True)))
    rollout = draft.rollouts[row.rollout]
    rollout = rollout._replace(failing_count=rollout.failing_count + 1)
    draft.record(RolloutChanged(draft.now, rollout))
    _conclude(draft, rollout)


def node_over(draft: Draft, row: RolloutNode) -> None:
    """All that the rollout had announced on a node is over."""
    request = draft.requests[row.request or ""]
    operations = [draft.operations[operation] for operation in request.operations]
    statuses = {operation.status for operation in operations}
    node = draft.nodes.get(row.node)
    if node is None or node.health is NodeHealth.FAILED:
        move_node(draft, row, Cause.NODE_FAILED, f"{row.node} failed")
    elif row.failing or request.left:
        reasons = [operation.reason for operation in operations if operation.reason]
        reasons += [f"{name} has no place, or does not run" for name in request.left]
        move_node(draft, row, Cause.NODE_FAILED, "; ".join(reasons))
    elif OperationStatus.CANCELED in statuses:
        canceled = draft.rollouts[row.rollout].status is RolloutStatus.CANCELED
        cause = Cause.CANCELED if canceled else Cause.SKIPPED
        move_node(draft, row, cause, operations[0].reason)
    else:
        move_node(draft, row, Cause.OVER, "")


def move_node(draft: Draft, row: RolloutNode, cause: Cause, reason: str) -> None:
    """Write down where a node is now, count it, and draw the rollout's conclusions."""
    status = move(ROLLOUT_NODE, row.status, cause)
    moved = row._replace(status=status, reason=reason, waits_for="", failing=False)
    draft.record(RolloutNodeChanged(draft.now, moved))
    rollout = draft.rollouts[row.rollout]
    counts = {_COUNTED[status]: getattr(rollout, _COUNTED[status]) + 1}
    if row.status is RolloutNodeStatus.LIVE:
        counts["live_count"] = rollout.live_count - 1
        counts["failing_count"] = rollout.failing_count - row.failing
    rollout = rollout._replace(**counts)
    draft.record(RolloutChanged(draft.now, rollout))
    _conclude(draft, rollout)


def _conclude(draft: Draft, rollout: Rollout) -> None:
    """Completed, paused by its failures, or free to take another node."""
    if rollout.ended_at is not None:
        return
    over = rollout.done_count + rollout.failed_count + rollout.skipped_count
    failures = rollout.failed_count + rollout.failing_count - rollout.forgiven_count
    if over == rollout.node_count:
        status = move(ROLLOUT, rollout.status, Cause.ALL_NODES_OVER)
        end_rollout(draft, rollout._replace(status=status))
    elif failures > rollout.failure_budget and rollout.status is RolloutStatus.RUNNING:
        failed = "1 node" if failures == 1 else f"{failures} nodes"
        pause(
            draft, rollout, f"{failed} failed, and its failure budget is {rollout.failure_budget}"
        )
    elif rollout.live_count < rollout.nodes_at_once_max:
        draft.wake(draft.now, Matter.ROLLOUT, rollout.id)


def end_rollout(draft: Draft, rollout: Rollout) -> None:
    """The rollout is over; it is remembered for as long as history is kept."""
    draft.record(RolloutChanged(draft.now, rollout._replace(ended_at=draft.now)))
    forgotten_at = draft.now + timedelta(days=draft.timing.history_days)
    draft.wake(forgotten_at, Matter.ROLLOUT, rollout.id)


def pause(draft: Draft, rollout: Rollout, reason: str) -> None:
    """Announce nothing new until somebody resumes it."""
    status = move(ROLLOUT, rollout.status, Cause.PAUSED)
    draft.record(RolloutChanged(draft.now, rollout._replace(status=status, reason=reason)))
