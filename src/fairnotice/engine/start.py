"""Rules 5, 9 and 18: when an operation is due, who goes first, and the start itself."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.engine import impacts, windows
from fairnotice.engine.announce import announce, is_told
from fairnotice.engine.approval import (
    cleared_at,
    held_by,
    unelapsed_seconds,
)
from fairnotice.engine.changes import EventStarted, OperationStarted
from fairnotice.engine.domains import is_held_by_another
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.ending import finish, scheduled_events
from fairnotice.engine.transitions import EVENT, OPERATION, Cause, move
from fairnotice.model import Operation
from fairnotice.words import NodeHealth


def start_what_may(draft: Draft) -> None:
    """Start, in the order of their queue, the operations that this decision made ready."""
    while draft.candidates:
        operations = [draft.operations[name] for name in draft.candidates]
        draft.candidates.clear()
        waiting = [operation for operation in operations if operation.pending]
        if len(waiting) > 1:
            waiting.sort(key=lambda operation: (due_at(draft, operation), operation.revision))
        for operation in waiting:
            _start_or_stand_aside(draft, operation)


def _start_or_stand_aside(draft: Draft, operation: Operation) -> None:
    early = due_at(draft, operation) > draft.now
    hold = None if early else _hold(draft, operation)
    if hold is not None and hold.until is not None:
        draft.wake(hold.until, Matter.OPERATION, operation.id)
    if early or hold is not None:
        _let_others_pass(draft, operation)
    elif _is_held_back(draft, operation):
        _wake_at_closing(draft, operation)
    else:
        start(draft, operation)


def _let_others_pass(draft: Draft, operation: Operation) -> None:
    """Whoever queued behind it need not wait for one that is not, or no longer, due."""
    if operation.id not in draft.stood_aside:
        draft.stood_aside.add(operation.id)
        for name in operation.vms:
            behind = draft.operations_on_vm[name]
            draft.consider(other for other in behind if other != operation.id)


def due_at(draft: Draft, operation: Operation) -> datetime:
    """When each of its events is approved, past NotBefore, or gone; without any, when asked."""
    events = [draft.events[event] for event in operation.events]
    cleared = [cleared_at(draft, event) for event in events]
    if not [event for event in events if event.scheduled]:
        # What was asked was asked, also where the clock has gone back since (rule 25).
        cleared.append(operation.asked_not_before or min(operation.asked_at, draft.now))
    return max(cleared)


class Hold(NamedTuple):
    """Past its time, and yet not due; where time alone lets it go, when that is."""

    until: datetime | None = None


def is_due(draft: Draft, operation: Operation) -> bool:
    """Whether nothing but its VMs being busy keeps it from starting."""
    return due_at(draft, operation) <= draft.now and _hold(draft, operation) is None


def _hold(draft: Draft, operation: Operation) -> Hold | None:
    """What holds it: an endpoint, the clock, a window, or a failure beside it."""
    for event in scheduled_events(draft, operation):
        if held_by(event):
            return Hold()
        missing_seconds = unelapsed_seconds(draft, event)
        if missing_seconds:
            return Hold(draft.now + timedelta(seconds=missing_seconds, milliseconds=1))
    if operation.rollout is None:
        return None
    allowed = draft.rollouts[operation.rollout].windows
    if not windows.is_open(allowed, draft.now):
        return Hold(windows.next_open(allowed, draft.now))
    return Hold() if is_held_by_another(draft, operation) else None


def _is_held_back(draft: Draft, operation: Operation) -> bool:
    """Whether one of its VMs is busy, out of reach, or somebody else's first."""
    turn = (due_at(draft, operation), operation.revision)
    for name in operation.vms:
        if is_busy(draft, name):
            return True
        for other in queue(draft, name, besides=operation.id):
            if (due_at(draft, other), other.revision) < turn:
                return True
    return False


def is_busy(draft: Draft, name: str) -> bool:
    """Whether the VM is under impact, or on a node that cannot be reached."""
    return name in draft.impact_on_vm or _is_unreachable(draft, name)


def queue(draft: Draft, name: str, besides: str = "") -> Iterator[Operation]:
    """The operations on a VM that are due and have not started."""
    for other_id in draft.operations_on_vm.get(name, ()):
        if other_id != besides:
            other = draft.operations[other_id]
            if other.pending and is_due(draft, other):
                yield other


def _wake_at_closing(draft: Draft, operation: Operation) -> None:
    """When its window closes it is not due any more, and has to let others pass."""
    if operation.rollout is not None:
        closes_at = windows.next_closed(draft.rollouts[operation.rollout].windows, draft.now)
        if closes_at is not None:
            draft.wake(closes_at, Matter.OPERATION, operation.id)


def _is_unreachable(draft: Draft, name: str) -> bool:
    """Rule 13: nothing is started on a node that cannot be reached."""
    node = draft.vms[name].node
    return node is not None and draft.nodes[node].health is NodeHealth.UNREACHABLE


def start(draft: Draft, operation: Operation) -> None:
    """Start all events of the operation in one commit, and begin its impacts."""
    status = move(OPERATION, operation.status, Cause.STARTED)
    started = operation._replace(status=status, started_at=draft.now)
    waiting = scheduled_events(draft, operation)
    draft.record(OperationStarted(draft.now, started))
    for event in waiting:
        status_now = move(EVENT, event.status, Cause.STARTED)
        draft.record(
            EventStarted(draft.now, event._replace(status=status_now, started_at=draft.now))
        )
    if operation.automatic:
        strike(draft, started)
    for name in operation.vms:
        impacts.begin(draft, started, name)
    for scope, _ in operation.touches if operation.node is not None else ():
        # A rollout's operation on another domain is not due while this one is under way.
        draft.consider(draft.platform_in_scope.get(scope, ()))
    finish(draft, operation.id)


def strike(draft: Draft, operation: Operation) -> None:
    """Show an operation that nobody was asked about: its events appear already Started."""
    vms = [draft.vms[name] for name in operation.vms]
    told = [vm for vm in vms if is_told(draft, operation.kind, vm)]
    announce(draft, operation, told, Cause.STRUCK)
