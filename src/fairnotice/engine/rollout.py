"""Rule 22: the same node operation on many nodes, and which node is next."""

from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.engine import windows
from fairnotice.engine.announce import Plan, by_domain, guid, is_told, least_notice
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import RolloutChanged, RolloutNodeChanged
from fairnotice.engine.commands import (
    Asked,
    CancelRollout,
    PauseRollout,
    ResumeRollout,
    StartRollout,
)
from fairnotice.engine.domains import in_the_way, two_domains
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.ending import cancel_operation
from fairnotice.engine.evacuation import evacuate_node, is_over
from fairnotice.engine.kinds import KINDS, ROLLED_OUT
from fairnotice.engine.nodes import (
    announce_on_node,
    check_duration,
    expected_seconds,
    named_node,
    vms_hit,
)
from fairnotice.engine.refusal import Code, refuse
from fairnotice.engine.transitions import ROLLOUT, ROLLOUT_NODE, Cause, move
from fairnotice.model import (
    Node,
    NodeHealth,
    OperationKind,
    OperationStatus,
    Requester,
    Role,
    Rollout,
    RolloutNode,
    RolloutNodeStatus,
    RolloutStatus,
    Vm,
)

# ---- The commands ----


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
    pause = expected_seconds(command.kind, command.duration_seconds)
    return Rollout(
        id=command.id,
        kind=command.kind,
        requester=command.by,
        asked_at=draft.now,
        node_count=len(dict.fromkeys(command.nodes)),
        nodes_at_once_max=timing.nodes_at_once_max if at_once is None else at_once,
        failure_budget=timing.failure_budget if budget is None else budget,
        recovery_seconds=timing.recovery_seconds if recovery is None else recovery,
        duration_seconds=KINDS[command.kind].duration_seconds if pause is None else pause,
        windows=command.windows,
        status=move(ROLLOUT, None, Cause.ANNOUNCED),
        idempotency_key=command.idempotency_key,
    )


def pause_rollout(draft: Draft, command: PauseRollout) -> Accepted:
    """Announce nothing new."""
    rollout = _operators_rollout(draft, command.rollout, command.by)
    if rollout.status is RolloutStatus.RUNNING:
        _pause(draft, rollout, f"paused by {command.by.name}")
    return Accepted(request=rollout.id)


def resume_rollout(draft: Draft, command: ResumeRollout) -> Accepted:
    """Go on, with a whole failure budget again."""
    rollout = _operators_rollout(draft, command.rollout, command.by)
    if rollout.status is RolloutStatus.PAUSED:
        status = move(ROLLOUT, rollout.status, Cause.RESUMED)
        resumed = rollout._replace(status=status, reason="", forgiven_count=rollout.failed_count)
        draft.record(RolloutChanged(draft.now, resumed))
        draft.wake(draft.now, Matter.ROLLOUT, rollout.id)
    return Accepted(request=rollout.id)


def cancel_rollout(draft: Draft, command: CancelRollout) -> Accepted:
    """Withdraw what is Scheduled; what has started goes on to its end."""
    rollout = _operators_rollout(draft, command.rollout, command.by)
    if rollout.status is RolloutStatus.CANCELED:
        return Accepted(request=rollout.id)
    reason = f"canceled by {command.by.name}"
    status = move(ROLLOUT, rollout.status, Cause.CANCELED)
    canceled = rollout._replace(status=status, reason=reason, ended_at=draft.now)
    draft.record(RolloutChanged(draft.now, canceled))
    _wake_to_forget(draft, rollout.id)
    rows = (row for row in draft.rollout_nodes.values() if row.rollout == rollout.id)
    for row in list(rows):
        if row.status is RolloutNodeStatus.PENDING:
            _move_node(draft, row, Cause.CANCELED, reason)
        elif row.status is RolloutNodeStatus.LIVE and row.request is not None:
            for operation_id in draft.requests[row.request].operations:
                operation = draft.operations[operation_id]
                if operation.pending:
                    cancel_operation(draft, operation, reason)
    return Accepted(request=rollout.id)


# ---- Which node is next ----


class Verdict(NamedTuple):
    """Whether a node can be taken now; else why not, and, where time alone helps, until when."""

    cause: Cause | None = None
    why: str = ""
    until: datetime | None = None


GO = Verdict(Cause.STARTED)


def look_at_rollout(draft: Draft, rollout_id: str) -> None:
    """Take as many nodes as may be taken now."""
    rollout = draft.rollouts.get(rollout_id)
    if rollout is None or rollout.status is not RolloutStatus.RUNNING:
        return
    wake_at: datetime | None = None
    for name in draft.fleet.pending_nodes.get(rollout_id, ()):
        rollout = draft.rollouts[rollout_id]
        full = rollout.live_count >= rollout.nodes_at_once_max
        if full or rollout.status is not RolloutStatus.RUNNING:
            break
        verdict = look_at_node(draft, rollout, name)
        if verdict.cause is Cause.STARTED:
            _take(draft, rollout, name)
        elif verdict.cause is not None:
            row = draft.rollout_nodes[rollout_id, name]
            _move_node(draft, row, verdict.cause, verdict.why)
        elif verdict.until is not None:
            wake_at = verdict.until if wake_at is None else min(wake_at, verdict.until)
    if wake_at is not None:
        draft.wake(wake_at, Matter.ROLLOUT, rollout_id)


def look_at_node(draft: Draft, rollout: Rollout, name: str) -> Verdict:
    """Whether a rollout may take this node now."""
    node = draft.nodes.get(name)
    if node is None or node.health is NodeHealth.FAILED:
        return Verdict(Cause.FAILED, f"{name} {'vanished' if node is None else 'failed'}")
    if node.health is NodeHealth.UNREACHABLE:
        return Verdict(why=f"{name} cannot be reached")
    if name in draft.operations_on_node:
        return Verdict(why=f"{name} has an operation announced or under way")
    vms = vms_hit(draft, name)
    meeting = two_domains(vms)
    if meeting is not None:
        return Verdict(
            Cause.SKIPPED,
            f"{name} holds two update domains of {meeting.scope}: move {meeting.name} away",
        )
    return _look_at_scopes(draft, rollout, node, vms)


def _look_at_scopes(draft: Draft, rollout: Rollout, node: Node, vms: list[Vm]) -> Verdict:
    touches = by_domain(vms)
    other = in_the_way(draft, node, touches)
    if other is not None:
        return Verdict(why=f"{other.kind} on {other.node} has another domain of one of its scopes")
    recovered_at = None
    for scope_name, update_domain in touches:
        last = draft.scopes[scope_name].last_touched
        if last is not None and last.update_domain != update_domain:
            until = last.ended_at + timedelta(seconds=rollout.recovery_seconds)
            recovered_at = until if recovered_at is None else max(recovered_at, until)
    if recovered_at is not None and recovered_at > draft.now:
        return Verdict(why="a scope recovers from its last update domain", until=recovered_at)
    return GO


def _take(draft: Draft, rollout: Rollout, name: str) -> None:
    """Announce the rollout's operation on this node, its NotBefore inside a window."""
    node = draft.nodes[name]
    vms = vms_hit(draft, name)
    request = guid(rollout.id, name)
    row = draft.rollout_nodes[rollout.id, name]
    _move_node(draft, row._replace(request=request), Cause.STARTED, "")
    pattern = Plan(
        id="",
        request=request,
        kind=rollout.kind,
        vms=(),
        asked_not_before=_not_before(draft, rollout, vms),
        duration_seconds=rollout.duration_seconds,
        rollout=rollout.id,
    )
    asked = Asked(id=request, by=rollout.requester)
    if rollout.kind is OperationKind.EVACUATION:
        answer = evacuate_node(draft, asked, node, vms, pattern)
    else:
        answer = announce_on_node(draft, asked, node, vms, pattern)
    if not answer.operations:
        _node_over(draft, draft.rollout_nodes[rollout.id, name])


def _not_before(draft: Draft, rollout: Rollout, vms: list[Vm]) -> datetime | None:
    if not rollout.windows:
        return None
    told = [vm for vm in vms if is_told(draft, rollout.kind, vm)]
    notice = max((least_notice(draft, rollout.kind, vm) for vm in told), default=0)
    return windows.next_open(rollout.windows, draft.now + timedelta(seconds=notice))


# ---- What becomes of its nodes ----


def follow_operations(draft: Draft) -> None:
    """Note the nodes whose operations this decision has brought to their end."""
    for operation_id in draft.ended_operations:
        operation = draft.operations[operation_id]
        if operation.rollout is None or operation.node is None:
            continue
        row = draft.rollout_nodes.get((operation.rollout, operation.node))
        live = row is not None and row.status is RolloutNodeStatus.LIVE
        if row is not None and live and is_over(draft, draft.requests[operation.request]):
            _node_over(draft, row)
    draft.ended_operations.clear()


def _node_over(draft: Draft, row: RolloutNode) -> None:
    request = draft.requests[row.request or ""]
    operations = [draft.operations[operation] for operation in request.operations]
    statuses = {operation.status for operation in operations}
    node = draft.nodes.get(row.node)
    if node is None or node.health is NodeHealth.FAILED:
        _move_node(draft, row, Cause.FAILED, f"{row.node} failed")
    elif OperationStatus.FAILED in statuses or request.left:
        reasons = [operation.reason for operation in operations if operation.reason]
        reasons += [f"{name} has no place" for name in request.left]
        _move_node(draft, row, Cause.FAILED, "; ".join(reasons))
    elif OperationStatus.CANCELED in statuses:
        _move_node(draft, row, Cause.SKIPPED, operations[0].reason)
    else:
        _move_node(draft, row, Cause.OVER, "")


_COUNTED = {
    RolloutNodeStatus.LIVE: "live_count",
    RolloutNodeStatus.DONE: "done_count",
    RolloutNodeStatus.FAILED: "failed_count",
    RolloutNodeStatus.SKIPPED: "skipped_count",
    RolloutNodeStatus.CANCELED: "skipped_count",
}


def _move_node(draft: Draft, row: RolloutNode, cause: Cause, reason: str) -> None:
    """Write down where a node is now, count it, and draw the rollout's conclusions."""
    moved = row._replace(status=move(ROLLOUT_NODE, row.status, cause), reason=reason)
    draft.record(RolloutNodeChanged(draft.now, moved))
    rollout = draft.rollouts[row.rollout]
    counts = {_COUNTED[moved.status]: getattr(rollout, _COUNTED[moved.status]) + 1}
    if row.status is RolloutNodeStatus.LIVE:
        counts["live_count"] = rollout.live_count - 1
    rollout = rollout._replace(**counts)
    draft.record(RolloutChanged(draft.now, rollout))
    if rollout.ended_at is None:
        _conclude(draft, rollout)


def _conclude(draft: Draft, rollout: Rollout) -> None:
    over = rollout.done_count + rollout.failed_count + rollout.skipped_count
    failures = rollout.failed_count - rollout.forgiven_count
    if over == rollout.node_count:
        status = move(ROLLOUT, rollout.status, Cause.ALL_NODES_OVER)
        ended = rollout._replace(status=status, ended_at=draft.now)
        draft.record(RolloutChanged(draft.now, ended))
        _wake_to_forget(draft, rollout.id)
    elif failures > rollout.failure_budget and rollout.status is RolloutStatus.RUNNING:
        _pause(draft, rollout, f"{failures} nodes failed, {rollout.failure_budget} may")
    elif rollout.live_count < rollout.nodes_at_once_max:
        draft.wake(draft.now, Matter.ROLLOUT, rollout.id)


def _pause(draft: Draft, rollout: Rollout, reason: str) -> None:
    status = move(ROLLOUT, rollout.status, Cause.PAUSED)
    draft.record(RolloutChanged(draft.now, rollout._replace(status=status, reason=reason)))


def _wake_to_forget(draft: Draft, rollout: str) -> None:
    forgotten_at = draft.now + timedelta(days=draft.timing.history_days)
    draft.wake(forgotten_at, Matter.ROLLOUT, rollout)


# ---- Reasons to say no ----


def _check(draft: Draft, command: StartRollout) -> None:
    if not command.nodes:
        refuse(Code.INVALID, "A rollout needs nodes.", "Name at least one.", rule=22)
    for name in command.nodes:
        named_node(draft, name)
    if command.kind not in ROLLED_OUT:
        refuse(
            Code.INVALID,
            f"{command.kind} cannot be rolled out.",
            f"Choose one of {', '.join(ROLLED_OUT)}.",
            rule=22,
        )
    check_duration(command.kind, command.duration_seconds)
    for window in command.windows:
        wrong = windows.problem(window)
        if wrong:
            refuse(Code.INVALID, f"That is no window: {wrong}.", "Correct it.", rule=22)
    limits = (command.recovery_seconds, command.failure_budget)
    at_once = command.nodes_at_once_max
    negative = any(limit is not None and limit < 0 for limit in limits)
    if negative or (at_once is not None and at_once < 1):
        refuse(
            Code.INVALID,
            "The limits of a rollout are not negative, and one node at once is the least.",
            "Correct them, or leave them out.",
            rule=22,
        )


def _operators_rollout(draft: Draft, rollout_id: str, by: Requester) -> Rollout:
    if by.role is not Role.OPERATOR:
        refuse(Code.FORBIDDEN, "Only an operator steers a rollout.", "Ask one.", rule=22)
    rollout = draft.rollouts.get(rollout_id)
    if rollout is None:
        refuse(Code.NOT_FOUND, f"There is no rollout {rollout_id}.", "List the rollouts.", rule=22)
    if rollout.status is RolloutStatus.COMPLETED:
        refuse(Code.CONFLICT, f"{rollout_id} is completed.", "Start a new one.", rule=22)
    return rollout
