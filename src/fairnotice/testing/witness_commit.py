"""What the witness looks at, one commit at a time, and what it remembers of those before."""

from datetime import datetime, timedelta
from typing import Any

from fairnotice.engine import Decision, Fleet, Timing
from fairnotice.engine.changes import Change, EventAnnounced, EventPostponed, ImpactEnded, Removal
from fairnotice.engine.commands import Command, Confirm, Restarted
from fairnotice.model import (
    Event,
    Impact,
    Life,
    Moment,
    Node,
    Operation,
    ScaleSet,
    Scope,
    Vm,
)
from fairnotice.words import EventType, Priority, ScopeKind


class Commit:
    """A decision about to be applied: every row as its changes so far have left it."""

    def __init__(self, fleet: Fleet, command: Command, decision: Decision, now: Moment) -> None:
        self.fleet = fleet
        self.command = command
        self.decision = decision
        self.now = now
        self._rows: dict[tuple[type, Any], Any] = {}

    def take(self, change: Change[Any]) -> None:
        """From here on this is how the row is; None where it was removed."""
        row = change.row
        self._rows[type(row), row[0]] = None if isinstance(change, Removal) else row

    def vm(self, name: str) -> Vm | None:
        """The VM of this name."""
        vm: Vm | None = self._rows.get((Vm, name), self.fleet.vms.get(name))
        return vm

    def node(self, name: str | None) -> Node | None:
        """The node of this name."""
        node: Node | None = self._rows.get((Node, name), self.fleet.nodes.get(name or ""))
        return node

    def scope(self, name: str) -> Scope | None:
        """The scope of this name."""
        scope: Scope | None = self._rows.get((Scope, name), self.fleet.scopes.get(name))
        return scope

    def operation(self, name: str) -> Operation:
        """The operation of this id."""
        operation: Operation | None = self._rows.get((Operation, name))
        return operation or self.fleet.operations[name]

    def event(self, name: str) -> Event:
        """The event of this id."""
        event: Event | None = self._rows.get((Event, name))
        return event or self.fleet.events[name]

    def impact(self, operation: str, vm: str) -> Impact | None:
        """What this operation does to this VM."""
        key = f"{operation}/{vm}"
        impact: Impact | None = self._rows.get((Impact, key), self.fleet.impacts.get(key))
        return impact

    def terminate_minutes(self, vm: Vm) -> int | None:
        """The terminate notice of the VM's scale set; None where there is none."""
        scope = self.scope(vm.scope)
        if scope is None or scope.kind is not ScopeKind.PLACEMENT_GROUP:
            return None
        if vm.priority is Priority.SPOT:
            return None
        return self.scale_set(scope.of).terminate_notice_minutes

    def scale_set(self, name: str) -> ScaleSet:
        """The scale set of this name."""
        scale_set: ScaleSet | None = self._rows.get((ScaleSet, name))
        return scale_set or self.fleet.scale_sets[name]


class Memory:
    """What the witness has seen so far: its own books, not the law's indexes."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.life = 0
        # Every event that was ever announced, as it was last; those that are Scheduled.
        self.events: dict[str, Event] = {}
        self.scheduled: dict[str, Event] = {}
        # Operations that have not started, and those that have and are not over.
        self.pending: dict[str, Operation] = {}
        self.started: dict[str, Operation] = {}
        # Every impact that was ever begun, by key.
        self.begun: set[str] = set()
        # Every impact that has ended, in the order seen: a clock may have gone back since.
        self.ended: dict[str, datetime] = {}
        # The life in which an event's notice was promised, and when it has elapsed there.
        self.elapsed: dict[str, tuple[int, float]] = {}
        # Events whose notice began anew, and the life in which it did.
        self.renewed: dict[str, int] = {}

    def take(self, commit: Commit, change: Change[Any]) -> None:
        """Remember this change; the next one is compared with it."""
        row = change.row
        if isinstance(row, Event):
            self._time(commit, change, row)
            _file(self.events, row.id, row, there=True)
            _file(self.scheduled, row.id, row, there=row.scheduled)
        elif isinstance(row, Operation):
            _file(self.pending, row.id, row, there=row.live and row.pending)
            _file(self.started, row.id, row, there=row.live and not row.pending)
        elif isinstance(change, ImpactEnded):
            self.ended[row.key] = commit.now.wall
        elif isinstance(row, Life):
            self.life = row.number

    def _time(self, commit: Commit, change: Change[Any], event: Event) -> None:
        """Rule 25: when the notice has elapsed on the clock that nobody can set."""
        now = commit.now
        whole = now.monotonic + (event.not_before - now.wall).total_seconds()
        if isinstance(change, EventAnnounced):
            self.elapsed[event.id] = (self.life, whole)
        elif isinstance(change, EventPostponed) and isinstance(commit.command, Restarted | Confirm):
            self.renewed.setdefault(event.id, self.life)
            self.elapsed[event.id] = (self.life, whole)
        elif isinstance(change, EventPostponed):
            life, elapsed_at = self.elapsed[event.id]
            longer = event.not_before - self.events[event.id].not_before
            self.elapsed[event.id] = (life, elapsed_at + longer.total_seconds())

    def has_elapsed(self, event: Event, monotonic: float) -> bool:
        """Whether the notice has elapsed, or was promised in another life."""
        life, elapsed_at = self.elapsed[event.id]
        return life != self.life or monotonic >= elapsed_at

    def least_notice(self, commit: Commit, event_type: EventType, vm: Vm) -> timedelta:
        """The least notice of this type, by the numbers of the timing profile alone."""
        if event_type is EventType.TERMINATE:
            minutes = commit.terminate_minutes(vm) or 0
            return timedelta(seconds=minutes * self.timing.terminate_minute_seconds)
        return timedelta(seconds=self.timing.notice_seconds[event_type])


def _file(book: dict[str, Any], key: str, row: Event | Operation, *, there: bool) -> None:
    if there:
        book[key] = row
    else:
        book.pop(key, None)
