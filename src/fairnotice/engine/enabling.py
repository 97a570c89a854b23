"""Rules 8 and 9: which scopes listen, from when on, and until when."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from fairnotice.engine.announce import announce, is_automatic, is_told, least_notice
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import (
    EventSeen,
    OperationChanged,
    ScopeDisabled,
    ScopeEnabled,
    ScopeHeard,
)
from fairnotice.engine.commands import Heard, ReportServed, ReportUnserved, SeenBy
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.notice import DAY, HOUR, in_utc, whole_second
from fairnotice.engine.refusal import misfit
from fairnotice.engine.tables import Tables
from fairnotice.engine.transitions import Cause
from fairnotice.model import Operation, Scope, Seen, Unserved

# A later request is written down once an hour at most, so the silence that is on record may be
# an hour longer than the true one: a scope is disabled after 24 to 25 hours.
HEARD_EVERY_SECONDS = HOUR

# An endpoint of a node that was not heard of for so long may be serving, cut off: what it says
# when it is back decides who was silent.
UNHEARD_SECONDS = 2 * HOUR

UNSERVED_SECONDS_MAX = 366 * DAY
# So many times are kept apart; a pause between the last of them and what follows is excused too.
UNSERVED_TIMES_MAX = 32


def report_served(draft: Draft, command: ReportServed) -> Accepted:
    """Take note of who asked and who was first shown what."""
    for heard in command.heard:
        _hear(draft, heard)
    gone = _scopes_of_gone(draft, {seen.vm for seen in command.seen if seen.vm not in draft.vms})
    for seen in command.seen:
        _see(draft, seen, gone)
    return Accepted()


def _hear(draft: Draft, heard: Heard) -> None:
    scope = draft.scopes.get(heard.scope)
    if scope is None:
        return
    # An endpoint's clock may be ahead of ours, and its report may come late.
    at = min(in_utc(heard.at), draft.now)
    if scope.heard_at is None:
        heard_scope = _heard(draft, scope, at)
        if draft.now < _silent_at(draft, heard_scope):
            _enable(draft, heard_scope)
    elif (at - scope.heard_at).total_seconds() >= HEARD_EVERY_SECONDS:
        draft.record(ScopeHeard(draft.now, _heard(draft, scope, at)))


def _heard(draft: Draft, scope: Scope, at: datetime) -> Scope:
    return scope._replace(
        heard_at=at,
        heard_unserved_seconds=draft.life.unserved_seconds,
        unserved=_added_up(scope.unserved, at),
    )


def _see(draft: Draft, seen: SeenBy, gone: dict[str, set[str]]) -> None:
    event = draft.events.get(seen.event)
    if event is None or event.scope not in _scopes_of(draft, seen.vm, gone):
        return
    if all(first.vm != seen.vm for first in event.seen):
        # By an endpoint's clock, which may be wrong: not before it was there, nor after now.
        at = min(max(in_utc(seen.at), event.announced_at), draft.now)
        first = (*event.seen, Seen(seen.vm, at))
        draft.record(EventSeen(draft.now, event._replace(seen=first)))


def _scopes_of(draft: Draft, name: str, gone: dict[str, set[str]]) -> Iterable[str]:
    vm = draft.vms.get(name)
    return gone.get(name, ()) if vm is None else (vm.scope,)


def _scopes_of_gone(draft: Draft, names: set[str]) -> dict[str, set[str]]:
    """In which scopes VMs were that are taken away by now: what they saw is told after them.

    What took them away is remembered for a day, as the events are that they saw.
    """
    found: dict[str, set[str]] = {}
    for impact in draft.impacts.values() if names else ():
        operation = draft.operations[impact.operation]
        if impact.vm in names and operation.node is None:
            found.setdefault(impact.vm, set()).update(scope for scope, _ in operation.touches)
    return found


def _enable(draft: Draft, scope: Scope) -> None:
    """Somebody listens: tell of all that is still far enough away."""
    enabled = scope._replace(enabled_at=draft.now, enablings=scope.enablings + 1)
    draft.record(ScopeEnabled(draft.now, enabled))
    draft.wake(_silent_at(draft, enabled), Matter.SCOPE, scope.name)
    pending: dict[str, None] = {}
    for name in draft.vms_in_scope.get(scope.name, ()):
        pending |= dict.fromkeys(draft.operations_on_vm.get(name, ()))
    for operation_id in pending:
        operation = draft.operations[operation_id]
        if operation.pending:
            _tell(draft, operation, enabled)


def _tell(draft: Draft, operation: Operation, scope: Scope) -> None:
    """Announce a pending operation to a scope that listens only now."""
    if is_automatic(scope, KINDS[operation.kind]):
        draft.record(OperationChanged(draft.now, operation._replace(automatic=True)))
        return
    vms = [draft.vms[name] for name in operation.vms]
    told = [vm for vm in vms if vm.scope == scope.name and is_told(draft, operation.kind, vm)]
    if not told:
        return
    notice_seconds = max(least_notice(draft, operation.kind, vm) for vm in told)
    not_before = whole_second(operation.not_before)
    if not_before >= draft.now + timedelta(seconds=notice_seconds):
        operation = operation._replace(not_before=not_before)
        announce(draft, operation, told, Cause.ANNOUNCED)
        draft.wake(not_before, Matter.OPERATION, operation.id)
        draft.candidates[operation.id] = None


def _silent_at(tables: Tables, scope: Scope) -> datetime:
    """When the scope has been silent for too long, if nothing is heard until then."""
    unserved = tables.life.unserved_seconds - scope.heard_unserved_seconds
    unserved += sum((one.until - one.since).total_seconds() for one in scope.unserved)
    allowed = tables.timing.disabled_after_seconds + HEARD_EVERY_SECONDS
    assert scope.heard_at is not None  # it is enabled
    return scope.heard_at + timedelta(seconds=allowed + unserved)


def look_at_scope(draft: Draft, name: str) -> None:
    """Disable a scope that has been silent for too long, unless it has a live event."""
    scope = draft.scopes.get(name)
    if scope is None or not scope.enabled:
        return
    silent_at = _silent_at(draft, scope)
    if draft.now < silent_at:
        draft.wake(silent_at, Matter.SCOPE, name)
    elif name in draft.events_in_scope or _is_unknown(draft, name):
        draft.wake(draft.now + timedelta(seconds=HEARD_EVERY_SECONDS), Matter.SCOPE, name)
    else:
        silent = scope._replace(enabled_at=None, heard_at=None, incarnation=1, unserved=())
        draft.record(ScopeDisabled(draft.now, silent))


def _is_unknown(draft: Draft, scope: str) -> bool:
    """Whether an endpoint that serves this scope has not been heard of: unknown is not silent."""
    nodes = {draft.vms[name].node or "" for name in draft.vms_in_scope.get(scope, ())}
    endpoints = [draft.endpoints[node] for node in nodes if node in draft.endpoints]
    lately = draft.now - timedelta(seconds=UNHEARD_SECONDS)
    return any(one.heard_at is None or one.heard_at < lately for one in endpoints)


def report_unserved(draft: Draft, command: ReportUnserved) -> Accepted:
    """Nobody could ask here for a while: unknown is not silent."""
    if not 0 <= command.seconds <= UNSERVED_SECONDS_MAX:
        misfit(
            "seconds",
            f"{command.seconds} s is no time in which nobody was served.",
            f"Give 0 to {UNSERVED_SECONDS_MAX}.",
            rule=8,
        )
    until = draft.now if command.until is None else min(in_utc(command.until), draft.now)
    for name in command.scopes:
        scope = draft.scopes.get(name)
        if scope is None or scope.heard_at is None:
            continue
        # What was before is over: it was heard since.
        silent_seconds = (until - scope.heard_at).total_seconds()
        since = until - timedelta(seconds=max(0.0, min(command.seconds, silent_seconds)))
        unserved = _added_up((*scope.unserved, Unserved(since, until)), scope.heard_at)
        if unserved != scope.unserved:
            draft.record(ScopeHeard(draft.now, scope._replace(unserved=unserved)))
    return Accepted()


def _added_up(times: Iterable[Unserved], since: datetime) -> tuple[Unserved, ...]:
    """These times after an instant, in order, where they meet made one."""
    found: list[Unserved] = []
    for one in sorted(times):
        begins = max(one.since, since)
        if begins >= one.until:
            continue
        if found and (begins <= found[-1].until or len(found) == UNSERVED_TIMES_MAX):
            before = found.pop()
            found.append(Unserved(before.since, max(before.until, one.until)))
        else:
            found.append(Unserved(begins, one.until))
    return tuple(found)


def wake_enabled_scopes(draft: Draft) -> None:
    """Ask for all the timers of enabled scopes, after a restart."""
    for name in draft.scopes:
        scope = draft.scopes[name]
        if scope.enabled:
            draft.wake(_silent_at(draft, scope), Matter.SCOPE, name)
