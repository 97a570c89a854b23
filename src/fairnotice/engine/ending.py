"""How events and operations end: over, canceled, or with nothing left (rules 6, 11, 12, 15)."""

from datetime import timedelta

from fairnotice.engine.changes import (
    EventGone,
    EventSettling,
    OperationEnded,
    ScopeRemoved,
    ScopeTouched,
)
from fairnotice.engine.domains import counts
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.transitions import EVENT, OPERATION, Cause, move
from fairnotice.model import Event, LastTouched, Operation
from fairnotice.words import EventType, ImpactStatus, ScopeKind


def impact_key(operation: str, vm: str) -> str:
    """What makes an impact happen once (rule 10)."""
    return f"{operation}/{vm}"


def cancel_operation(draft: Draft, operation: Operation, reason: str) -> None:
    """Take back an operation that has not started, with all its events."""
    for event in scheduled_events(draft, operation):
        event_gone(draft, event, Cause.CANCELED, reason)
    end_operation(draft, operation, Cause.CANCELED, reason)


def scheduled_events(draft: Draft, operation: Operation) -> list[Event]:
    """The events of an operation that are still Scheduled."""
    events = [draft.events[event] for event in operation.events]
    return [event for event in events if event.scheduled]


def event_gone(draft: Draft, event: Event, cause: Cause, reason: str = "") -> None:
    """The event leaves the document for good."""
    status = move(EVENT, event.status, cause)
    draft.record(
        EventGone(draft.now, event._replace(status=status, gone_at=draft.now, reason=reason))
    )
    if event.scheduled:
        consider_terminates(draft, event)
    remove_empty_scope(draft, event.scope)


def consider_terminates(draft: Draft, event: Event) -> None:
    """Those that waited for this Terminate may go now (rule 16)."""
    if event.type is EventType.TERMINATE:
        scale_set = draft.scopes[event.scope].of
        for other in draft.terminates_in_set.get(scale_set, ()):
            if draft.events[other].approval is not None:
                draft.candidates[draft.events[other].operation] = None


def finish(draft: Draft, operation_id: str) -> None:
    """Let go what is over: events whose impacts have all ended, then the operation itself."""
    operation = draft.operations[operation_id]
    for event_id in operation.events:
        event = draft.events[event_id]
        if event.visible and not _any_live(draft, operation, event.resources):
            _settle(draft, event)
    if any(draft.events[event].visible for event in operation.events):
        return
    if not _any_live(draft, operation, operation.vms):
        failed = sum(_has_failed(draft, operation, vm) for vm in operation.vms)
        if failed:
            reason = f"{failed} of {len(operation.vms)} impacts failed"
            end_operation(draft, operation, Cause.OVER_WITH_FAILURE, reason)
        else:
            end_operation(draft, operation, Cause.OVER, "")


def _settle(draft: Draft, event: Event) -> None:
    """Show the end of an event no sooner than a VM can have seen its start, and settled."""
    shown = draft.fleet.events.get(event.id)
    seen_started = shown is not None and not shown.scheduled
    since = event.settling_since or draft.now
    over_at = since + timedelta(seconds=draft.timing.settle_seconds)
    if seen_started and draft.now >= over_at:
        event_gone(draft, event, Cause.OVER)
    elif event.settling_since is None:
        draft.record(EventSettling(draft.now, event._replace(settling_since=draft.now)))
        draft.wake(over_at, Matter.EVENT, event.id)


def end_operation(draft: Draft, operation: Operation, cause: Cause, reason: str) -> None:
    """The operation is over; whatever waited for it is looked at again."""
    ended = operation._replace(
        status=move(OPERATION, operation.status, cause), ended_at=draft.now, reason=reason
    )
    draft.record(OperationEnded(draft.now, ended))
    draft.ended_operations.append(ended.id)
    forgotten_at = draft.now + timedelta(seconds=draft.timing.remembered_seconds)
    draft.wake(forgotten_at, Matter.OPERATION, ended.id)
    for vm in ended.vms:
        draft.consider(draft.operations_on_vm.get(vm, ()))
    if ended.node is not None:
        _leave_scopes(draft, ended)


def _leave_scopes(draft: Draft, operation: Operation) -> None:
    """Remember which update domain had its turn, and let rollouts look again (rule 22)."""
    for scope_name, update_domain in operation.touches:
        scope = draft.scopes.get(scope_name)
        hit = operation.started_at is not None and operation.vms
        if scope is not None and hit and update_domain is not None:
            before = (last for last in scope.last_touched if last.update_domain != update_domain)
            last_touched = (LastTouched(update_domain, draft.now), *before)[:2]
            touched = scope._replace(last_touched=last_touched)
            draft.record(ScopeTouched(draft.now, touched))
        others = draft.platform_in_scope.get(scope_name, ())
        draft.consider(others)
        if not any(counts(draft.operations[other]) for other in others):
            wake_parked(draft, scope_name)
    wake_rollouts(draft, operation.node)


def wake_parked(draft: Draft, scope: str) -> None:
    """The scope is left in peace: rollouts look at the nodes that waited for it."""
    waiting = dict.fromkeys(rollout for rollout, _ in draft.fleet.parked_nodes.get(scope, ()))
    waiting |= {row.rollout: None for row in draft.newly_waiting if row.waits_for == scope}
    for rollout in waiting:
        draft.wake(draft.now, Matter.PARKED, f"{rollout}/{scope}")


def wake_rollouts(draft: Draft, node: str | None) -> None:
    """What was in the way on this node may be over: rollouts that have it to take look again."""
    pending = draft.fleet.pending_nodes
    waiting = {rollout: None for rollout, nodes in pending.items() if node in nodes}
    waiting |= {row.rollout: None for row in draft.newly_waiting if row.node == node}
    for rollout in waiting:
        draft.wake(draft.now, Matter.ROLLOUT, rollout)


def remove_empty_scope(draft: Draft, name: str) -> None:
    """A standalone VM's scope goes with the VM, but not before its last event."""
    scope = draft.scopes.get(name)
    if (
        scope is not None
        and scope.kind is ScopeKind.STANDALONE
        and name not in draft.vms_in_scope
        and name not in draft.events_in_scope
    ):
        draft.record(ScopeRemoved(draft.now, scope))


def _any_live(draft: Draft, operation: Operation, vms: tuple[str, ...]) -> bool:
    return any(draft.impacts[impact_key(operation.id, vm)].live for vm in vms)


def _has_failed(draft: Draft, operation: Operation, vm: str) -> bool:
    return draft.impacts[impact_key(operation.id, vm)].status is not ImpactStatus.DONE
