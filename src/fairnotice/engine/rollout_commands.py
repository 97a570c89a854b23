"""Rule 22: starting a rollout and steering it."""

from fairnotice.engine import windows
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import RolloutChanged, RolloutNodeChanged
from fairnotice.engine.commands import CancelRollout, PauseRollout, ResumeRollout, StartRollout
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.ending import cancel_operation
from fairnotice.engine.kinds import KINDS, ROLLED_OUT
from fairnotice.engine.nodes import check_duration, expected_seconds, named_node
from fairnotice.engine.notice import DAY
from fairnotice.engine.refusal import Code, misfit, refuse
from fairnotice.engine.rollout_nodes import end_rollout, move_node, pause
from fairnotice.engine.transitions import ROLLOUT, ROLLOUT_NODE, Cause, move
from fairnotice.engine.users import fingerprint
from fairnotice.model import Requester, Rollout, RolloutNode
from fairnotice.words import Role, RolloutNodeStatus, RolloutStatus

# What may be asked for, from and to.
LIMITS = (
    ("recovery_seconds", 0, 30 * DAY),
    ("failure_budget", 0, 1_000_000),
    ("nodes_at_once_max", 1, 1_000_000),
)


def start_rollout(draft: Draft, command: StartRollout) -> Accepted:
    """Begin a rollout; its first nodes are chosen by the tick that it asks for."""
    rollout = rollout_of(draft, command)
    draft.record(RolloutChanged(draft.now, rollout))
    for position, node in enumerate(dict.fromkeys(command.nodes)):
        status = move(ROLLOUT_NODE, None, Cause.ANNOUNCED)
        row = RolloutNode(rollout.id, node, position, status)
        draft.record(RolloutNodeChanged(draft.now, row))
    draft.wake(draft.now, Matter.ROLLOUT, rollout.id)
    return Accepted(request=rollout.id)


def rollout_of(draft: Draft, command: StartRollout) -> Rollout:
    """The rollout that a command describes, if it describes one."""
    _check(draft, command)
    timing = draft.timing
    at_once, budget = command.nodes_at_once_max, command.failure_budget
    recovery = command.recovery_seconds
    duration = expected_seconds(command.kind, command.duration_seconds)
    return Rollout(
        id=command.id,
        kind=command.kind,
        requester=command.by,
        asked_at=draft.now,
        node_count=len(dict.fromkeys(command.nodes)),
        nodes_at_once_max=timing.nodes_at_once_max if at_once is None else at_once,
        failure_budget=timing.failure_budget if budget is None else budget,
        recovery_seconds=timing.recovery_seconds if recovery is None else recovery,
        duration_seconds=KINDS[command.kind].duration_seconds if duration is None else duration,
        windows=command.windows,
        status=move(ROLLOUT, None, Cause.ANNOUNCED),
        idempotency_key=command.idempotency_key,
        fingerprint=fingerprint(command),
    )


def pause_rollout(draft: Draft, command: PauseRollout) -> Accepted:
    """Announce nothing new; what was promised is kept."""
    rollout = _live_rollout(draft, command.rollout, command.by)
    if rollout.status is RolloutStatus.RUNNING:
        pause(draft, rollout, f"paused by {command.by.name}")
    return Accepted(request=rollout.id)


def resume_rollout(draft: Draft, command: ResumeRollout) -> Accepted:
    """Go on, with a whole failure budget again."""
    rollout = _live_rollout(draft, command.rollout, command.by)
    if rollout.status is RolloutStatus.PAUSED:
        status = move(ROLLOUT, rollout.status, Cause.RESUMED)
        forgiven = rollout.failed_count + rollout.failing_count
        resumed = rollout._replace(status=status, reason="", forgiven_count=forgiven)
        draft.record(RolloutChanged(draft.now, resumed))
        wake_rollout(draft, rollout.id)
    return Accepted(request=rollout.id)


def cancel_rollout(draft: Draft, command: CancelRollout) -> Accepted:
    """Withdraw what is Scheduled; what has started goes on to its end."""
    rollout = _rollout(draft, command.rollout, command.by)
    if rollout.status is RolloutStatus.CANCELED:
        return Accepted(request=rollout.id)
    rollout = _live_rollout(draft, command.rollout, command.by)
    reason = f"canceled by {command.by.name}"
    status = move(ROLLOUT, rollout.status, Cause.CANCELED)
    end_rollout(draft, rollout._replace(status=status, reason=reason))
    for row in _rows(draft, rollout.id):
        if row.status is RolloutNodeStatus.PENDING:
            move_node(draft, row, Cause.CANCELED, reason)
        elif row.status is RolloutNodeStatus.LIVE:
            for operation_id in draft.requests[row.request or ""].operations:
                operation = draft.operations[operation_id]
                if operation.pending:
                    cancel_operation(draft, operation, reason)
    return Accepted(request=rollout.id)


def wake_rollout(draft: Draft, rollout_id: str) -> None:
    """Look at all nodes that are still to come, those that wait for a scope too."""
    draft.wake(draft.now, Matter.ROLLOUT, rollout_id)
    scopes = dict.fromkeys(row.waits_for for row in _rows(draft, rollout_id) if row.waits_for)
    for scope in scopes:
        draft.wake(draft.now, Matter.PARKED, f"{rollout_id}/{scope}")


def _rows(draft: Draft, rollout_id: str) -> list[RolloutNode]:
    return [row for row in draft.rollout_nodes.values() if row.rollout == rollout_id]


# ---- Reasons to say no ----


def _check(draft: Draft, command: StartRollout) -> None:
    if not command.nodes:
        misfit("nodes", "A rollout needs nodes.", "Name at least one.", rule=22)
    for name in command.nodes:
        named_node(draft, name)
    if command.kind not in ROLLED_OUT:
        misfit(
            "impact",
            f"{command.kind} cannot be rolled out.",
            f"Choose one of {', '.join(ROLLED_OUT)}.",
            rule=22,
        )
    check_duration(command.kind, command.duration_seconds)
    for number, window in enumerate(command.windows):
        wrong = windows.problem(window)
        if wrong is not None:
            field = f"windows[{number}].{wrong.field}"
            misfit(field, f"That is no window: {wrong.why}.", "Correct it.", rule=22)
    for name, low, high in LIMITS:
        limit = getattr(command, name)
        if limit is not None and not low <= limit <= high:
            misfit(
                name,
                f"{limit} is no {name} for a rollout.",
                f"Give {low} to {high}, or leave it out.",
                rule=22,
            )


def _rollout(draft: Draft, rollout_id: str, by: Requester) -> Rollout:
    if by.role is not Role.OPERATOR:
        refuse(Code.FORBIDDEN, "Only an operator steers a rollout.", "Ask one.", rule=22)
    rollout = draft.rollouts.get(rollout_id)
    if rollout is None:
        refuse(Code.NOT_FOUND, f"There is no rollout {rollout_id}.", "List the rollouts.", rule=22)
    return rollout


def _live_rollout(draft: Draft, rollout_id: str, by: Requester) -> Rollout:
    rollout = _rollout(draft, rollout_id, by)
    if rollout.ended_at is not None:
        refuse(Code.CONFLICT, f"{rollout_id} is {rollout.status}.", "Start a new one.", rule=22)
    return rollout
