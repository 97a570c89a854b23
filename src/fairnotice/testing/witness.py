"""Looks at every commit of the law and says what it broke.

It remembers what it saw and shares no code with the engine's decisions: where the law decides by
its own functions, the witness reckons anew from rows, settings and the clock. So a change that
bends the law and its checks alike is still caught.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from fairnotice.engine import AZURE, Decision, Fleet, Timing
from fairnotice.engine.changes import (
    Change,
    EventAnnounced,
    EventApproved,
    EventGone,
    EventPostponed,
    EventStarted,
    ImpactBegun,
    LifeBegan,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    ScopeDisabled,
    ScopeEnabled,
)
from fairnotice.engine.commands import Approve, Cancel, Command, ReportOutcome, ReportServed
from fairnotice.engine.effects import BeginImpact
from fairnotice.engine.invariants import Violation, check
from fairnotice.model import Event, Impact, Moment, Node, Operation, Scope, Vm, Window
from fairnotice.words import (
    EventStatus,
    EventType,
    ImpactKind,
    NodeState,
    OperationKind,
    Outcome,
    Role,
)

Content = tuple[Any, ...]

WAYS_OUT = (
    (EventStatus.SCHEDULED, EventStatus.CANCELED),
    (EventStatus.STARTED, EventStatus.COMPLETED),
)


class LawBroken(AssertionError):
    """The law was broken; the message names the rule and the place."""

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("; ".join(f"rule {rule}: {what}" for rule, what in violations))


class LawWitness:
    """A witness who raises LawBroken at the first commit that breaks the law."""

    def __init__(self, timing: Timing = AZURE) -> None:
        self.timing = timing
        self.events: dict[str, Event] = {}
        self.announced_monotonic: dict[str, tuple[int, float, float]] = {}
        self.life = 0
        self.begun: set[str] = set()
        self.handed_out: set[str] = set()
        self.documents: dict[str, tuple[int, int, Content]] = {}
        self.heard_at: dict[str, datetime] = {}
        self.last_touched: dict[str, dict[int, datetime]] = {}
        # Rows as the commit at hand has left them so far, by type and name.
        self.rows: dict[tuple[type, Any], Any] = {}

    # ---- What a stage calls ----

    def before(self, fleet: Fleet, command: Command, decision: Decision, now: Moment) -> None:
        """Look at what is about to change."""
        found: list[Violation] = []
        found += self._look_at_command(fleet, command, decision)
        self.rows.clear()
        for change in decision.changes:
            self.rows[type(change.row), change.row[0]] = change.row
            found += self._look_at_change(fleet, change, now)
        found += self._look_at_effects(command, decision)
        if found:
            raise LawBroken(found)

    def after(self, fleet: Fleet, now: Moment) -> None:  # noqa: ARG002 - part of the protocol
        """Look at what has become of it."""
        found = check(fleet)
        found += [wrong for scope in fleet.scopes.values() for wrong in self._read(fleet, scope)]
        if found:
            raise LawBroken(found)

    # ---- Commands ----

    def _look_at_command(
        self, fleet: Fleet, command: Command, decision: Decision
    ) -> Iterator[Violation]:
        if isinstance(command, ReportServed):
            for heard in command.heard:
                known = self.heard_at.get(heard.scope, heard.at)
                self.heard_at[heard.scope] = max(known, heard.at)
        if isinstance(command, Cancel) and command.by.role is Role.VM and decision.changes:
            yield Violation(15, f"{command.by.name} canceled {command.target}")
        if isinstance(command, Approve) and command.by.role is Role.VM:
            scope = fleet.vms[command.by.name].scope
            for change in decision.changes:
                if isinstance(change, EventApproved) and change.row.scope != scope:
                    yield Violation(3, f"{command.by.name} approved for {change.row.scope}")

    def _look_at_effects(self, command: Command, decision: Decision) -> Iterator[Violation]:
        """Rule 10: the driver is handed each key once, unless it says that it did not begin."""
        again = None
        if isinstance(command, ReportOutcome) and command.outcome is Outcome.NOT_BEGUN:
            again = command.key
        for effect in decision.effects:
            if isinstance(effect, BeginImpact):
                key = effect.impact.key
                if key in self.handed_out and key != again:
                    yield Violation(10, f"{key} was handed to the driver twice")
                if key not in self.begun:
                    yield Violation(10, f"{key} was handed to the driver without intent")
                self.handed_out.add(key)

    # ---- Changes ----

    def _look_at_change(
        self, fleet: Fleet, change: Change[Any], now: Moment
    ) -> Iterator[Violation]:
        row = change.row
        if isinstance(row, Event):
            yield from self._look_at_event(fleet, change, row, now)
            self.events[row.id] = row
        elif isinstance(change, ImpactBegun):
            yield from self._look_at_impact(fleet, row)
        elif isinstance(change, OperationPlanned):
            yield from self._look_at_rollout(fleet, row, now)
        elif isinstance(change, OperationStarted):
            yield from self._look_at_window(fleet, row, now)
        elif isinstance(change, OperationEnded):
            self._remember_touched(row, now)
        elif isinstance(change, LifeBegan):
            self.life = row.number
        elif isinstance(change, ScopeEnabled):
            self.heard_at[row.name] = now.wall
        elif isinstance(change, ScopeDisabled):
            yield from self._look_at_silence(fleet, row, now)

    def _look_at_event(
        self, fleet: Fleet, change: Change[Any], event: Event, now: Moment
    ) -> Iterator[Violation]:
        before = self.events.get(event.id)
        if isinstance(change, EventAnnounced):
            if before is not None:
                yield Violation(6, f"{event.id} was announced twice")
            promised = (event.not_before - now.wall).total_seconds()
            self.announced_monotonic[event.id] = (self.life, now.monotonic, promised)
            yield from self._look_at_notice(fleet, event, now)
            return
        if before is None:
            yield Violation(6, f"{event.id} was never announced")
            return
        if _identity(before) != _identity(event):
            yield Violation(6, f"{event.id} is not the event that was announced")
        if before.gone_at is not None and event.status is not before.status:
            yield Violation(6, f"{event.id} came back")
        if isinstance(change, EventStarted):
            yield from self._look_at_start(fleet, before, now)
        elif isinstance(change, EventGone):
            if (before.status, event.status) not in WAYS_OUT:
                yield Violation(6, f"{event.id} went from {before.status} to {event.status}")
        else:
            yield from _look_at_not_before(change, before, event)

    def _look_at_notice(self, fleet: Fleet, event: Event, now: Moment) -> Iterator[Violation]:
        """Rule 2, by the numbers of the timing profile alone."""
        if event.status is EventStatus.STARTED:
            if event.approval is not None:
                yield Violation(3, f"{event.id} began approved")
            return
        if event.type is EventType.TERMINATE:
            scale_set = fleet.scale_sets[fleet.scopes[event.scope].of]
            least = (scale_set.terminate_notice_minutes or 0) * self.timing.terminate_minute_seconds
        else:
            least = self.timing.notice_seconds[event.type]
        if event.not_before < now.wall + timedelta(seconds=least):
            yield Violation(2, f"{event.id} gives less than {least} s of notice")

    def _look_at_start(self, fleet: Fleet, event: Event, now: Moment) -> Iterator[Violation]:
        """Rules 1, 5, 16 and 25: nothing starts that nobody let go."""
        early = now.wall < event.not_before
        if event.approval is None:
            if early:
                yield Violation(1, f"{event.id} started before NotBefore, not approved")
            life, since, promised = self.announced_monotonic[event.id]
            if life == self.life and now.monotonic - since < promised - 0.001:
                yield Violation(25, f"{event.id} started before its notice had elapsed")
            if event.unconfirmed and event.type is not EventType.PREEMPT:
                yield Violation(5, f"{event.id} started unconfirmed by {event.unconfirmed}")
        elif early and event.type is EventType.TERMINATE:
            yield from self._look_at_queue(fleet, event, now)

    def _look_at_queue(self, fleet: Fleet, event: Event, now: Moment) -> Iterator[Violation]:
        scale_set = fleet.scopes[event.scope].of
        for other in self.events.values():
            if other.type is not EventType.TERMINATE or other.status is not EventStatus.SCHEDULED:
                continue
            scope = fleet.scopes.get(other.scope)
            if scope is None or scope.of != scale_set or other.revision >= event.revision:
                continue
            if other.approval is None and now.wall < other.not_before:
                yield Violation(16, f"{event.id} went before {other.id}")

    def _look_at_impact(self, fleet: Fleet, impact: Impact) -> Iterator[Violation]:
        """Rules 10, 13 and 14: once, in reach, and only where the VM may be put."""
        if impact.key in self.begun:
            yield Violation(10, f"{impact.key} was begun twice")
        self.begun.add(impact.key)
        source = self._node(fleet, impact.source)
        if source is not None and source.state is NodeState.UNREACHABLE:
            yield Violation(13, f"{impact.key} was begun on unreachable {impact.source}")
        target = self._node(fleet, impact.target)
        if impact.kind not in (ImpactKind.REDEPLOY, ImpactKind.MIGRATE) or target is None:
            return
        if target.state is not NodeState.IN_SERVICE:
            yield Violation(14, f"{impact.vm} goes to {target.name}, which is {target.state}")
        operation = self.rows.get((Operation, impact.operation))
        if operation is None or operation.kind is not OperationKind.FAILURE:
            yield from self._look_at_neighbours(fleet, impact, target.name)

    def _node(self, fleet: Fleet, name: str | None) -> Node | None:
        node: Node | None = self.rows.get((Node, name), fleet.nodes.get(name or ""))
        return node

    def _look_at_neighbours(self, fleet: Fleet, impact: Impact, target: str) -> Iterator[Violation]:
        vm = fleet.vms[impact.vm]
        for name in fleet.vms_on_node.get(target, ()):
            other = self.rows.get((Vm, name), fleet.vms[name])
            beside = other.node == target and other.scope == vm.scope
            if beside and other.update_domain != vm.update_domain:
                yield Violation(14, f"{vm.name} goes beside {name}, of another update domain")

    # ---- Rollouts ----

    def _look_at_rollout(
        self, fleet: Fleet, operation: Operation, now: Moment
    ) -> Iterator[Violation]:
        if operation.rollout is None:
            return
        rollout = fleet.rollouts[operation.rollout]
        recovery = timedelta(seconds=rollout.recovery_seconds)
        for scope, domain in operation.touches:
            for last, ended_at in self.last_touched.get(scope, {}).items():
                if domain is not None and last != domain and now.wall < ended_at + recovery:
                    yield Violation(22, f"{operation.id} gives {scope} no time to recover")

    def _look_at_window(
        self, fleet: Fleet, operation: Operation, now: Moment
    ) -> Iterator[Violation]:
        if operation.rollout is None:
            return
        windows = fleet.rollouts[operation.rollout].windows
        if windows and not any(_is_inside(window, now.wall) for window in windows):
            yield Violation(22, f"{operation.id} started outside its windows")

    def _remember_touched(self, operation: Operation, now: Moment) -> None:
        hit = operation.started_at is not None and operation.vms
        if operation.node is not None and hit:
            for scope, domain in operation.touches:
                if domain is not None:
                    self.last_touched.setdefault(scope, {})[domain] = now.wall

    # ---- Scopes and documents ----

    def _look_at_silence(self, fleet: Fleet, scope: Scope, now: Moment) -> Iterator[Violation]:
        """Rule 8: at least 24 hours, and never under a live event."""
        silent = (now.wall - self.heard_at[scope.name]).total_seconds()
        if silent < self.timing.disabled_after_seconds:
            yield Violation(8, f"{scope.name} was disabled after {silent:.0f} s")
        events = fleet.events_in_scope.get(scope.name, ())
        if any(self.events[event].visible for event in events):
            yield Violation(8, f"{scope.name} was disabled under a live event")

    def _read(self, fleet: Fleet, scope: Scope) -> Iterator[Violation]:
        """Rule 7: one more for each change of what is read, and only then."""
        events = [fleet.events[event] for event in fleet.events_in_scope.get(scope.name, ())]
        content = tuple(_content(event) for event in events)
        enablings, incarnation, known = self.documents.get(scope.name, (-1, 1, ()))
        if not scope.enabled:
            self.documents.pop(scope.name, None)
        elif enablings != scope.enablings:
            if scope.incarnation != (2 if content else 1):
                yield Violation(7, f"{scope.name} begins at {scope.incarnation}")
            self.documents[scope.name] = (scope.enablings, scope.incarnation, content)
        else:
            expected = incarnation + (content != known)
            if scope.incarnation != expected:
                yield Violation(
                    7, f"{scope.name} is at {scope.incarnation} where {expected} is due"
                )
            self.documents[scope.name] = (scope.enablings, scope.incarnation, content)


def _look_at_not_before(change: Change[Any], before: Event, event: Event) -> Iterator[Violation]:
    """Rule 2: NotBefore moves by postponing only, and only to later."""
    if not isinstance(change, EventPostponed):
        if event.not_before != before.not_before:
            yield Violation(2, f"NotBefore of {event.id} moved without a word")
    elif event.not_before <= before.not_before or before.approval is not None:
        yield Violation(2, f"{event.id} was brought forward, or postponed when approved")


def _identity(event: Event) -> tuple[Any, ...]:
    """What never changes of an event."""
    return (
        event.operation,
        event.scope,
        event.type,
        event.source,
        event.description,
        event.update_domain,
        event.announced_at,
    )


def _content(event: Event) -> Content:
    """What a VM reads of an event."""
    not_before = event.not_before if event.status is EventStatus.SCHEDULED else ""
    return (event.id, event.status, event.type, event.resources, not_before, event.description)


def _is_inside(window: Window, at: datetime) -> bool:
    """Whether the window is open, minute by minute of the week."""
    minute = at.weekday() * 1440 + at.hour * 60 + at.minute
    for day in window.weekdays:
        since = (minute - (day * 1440 + window.start_minute)) % 10080
        if since < window.length_minutes:
            return True
    return False
