"""Rules 5, 9, 22 and 25: who goes first, and what a rollout has to wait for."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from fairnotice.engine.changes import (
    Change,
    LifeBegan,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
)
from fairnotice.engine.invariants import Violation
from fairnotice.engine.kinds import KINDS
from fairnotice.model import Event, Operation, Window
from fairnotice.testing.witness_commit import Commit, Memory
from fairnotice.words import EventType, OperationKind


class Starts:
    """When operations are planned and started, against all others that are live."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        # By scope and update domain: when the last operation on it was over.
        self.last_touched: dict[str, dict[int, datetime]] = {}

    def look(self, commit: Commit, change: Change[Any]) -> Iterator[Violation]:
        """One operation is planned, starts or ends."""
        if isinstance(change, OperationPlanned):
            yield from self._look_at_recovery(commit, change.row)
        elif isinstance(change, OperationStarted):
            yield from self._look_at_queue(commit, change.row)
            yield from self._look_at_asked(commit, change.row)
            if change.row.rollout is not None:
                yield from _look_at_window(commit, change.row)
                yield from self._look_at_domains(change.row)
        elif isinstance(change, OperationEnded):
            self._remember_touched(commit, change.row)
        elif isinstance(change, LifeBegan):
            self._set_back(commit.now.wall)

    def _set_back(self, now: datetime) -> None:
        """A new life may begin with its clock behind: nothing was over later than now."""
        for touched in self.last_touched.values():
            for domain, ended_at in touched.items():
                touched[domain] = min(ended_at, now)

    # ---- The queue ----

    def _look_at_queue(self, commit: Commit, operation: Operation) -> Iterator[Violation]:
        """Rule 5: what became due earlier on one of its VMs goes first."""
        if KINDS[operation.kind].power or operation.kind is OperationKind.FAILURE:
            return
        turn = (_due_at(commit, operation), operation.revision)
        vms = set(operation.vms)
        for other in self.memory.pending.values():
            if other.id == operation.id or vms.isdisjoint(other.vms):
                continue
            if self._is_due(commit, other) and (_due_at(commit, other), other.revision) < turn:
                yield Violation(5, f"{operation.id} started before {other.id}, which is first")

    def _is_due(self, commit: Commit, operation: Operation) -> bool:
        """Whether it is surely due. Rollouts have windows, Terminates a queue of their own."""
        if operation.rollout is not None or _due_at(commit, operation) > commit.now.wall:
            return False
        for event in _events(commit, operation):
            if event.type is EventType.TERMINATE:
                return False
            if event.scheduled and event.approval is None:
                elapsed = self.memory.has_elapsed(event, commit.now.monotonic)
                if event.unconfirmed or not elapsed:
                    return False
        return True

    def _look_at_asked(self, commit: Commit, operation: Operation) -> Iterator[Violation]:
        """Rule 9: with nobody to wait for, still not before the instant that was asked for."""
        events = [event for event in _events(commit, operation) if event.scheduled]
        asked = operation.asked_not_before
        if not events and asked is not None and commit.now.wall < asked:
            yield Violation(9, f"{operation.id} started before {asked}, as nobody was told")

    # ---- Rollouts ----

    def _look_at_recovery(self, commit: Commit, operation: Operation) -> Iterator[Violation]:
        if operation.rollout is None:
            return
        rollout = commit.fleet.rollouts.get(operation.rollout)
        recovery = timedelta(seconds=rollout.recovery_seconds if rollout else 0)
        for scope, domain in operation.touches:
            for last, ended_at in self.last_touched.get(scope, {}).items():
                over_at = ended_at + recovery
                if domain is not None and last != domain and commit.now.wall < over_at:
                    yield Violation(22, f"{operation.id} gives {scope} no time to recover")

    def _look_at_domains(self, operation: Operation) -> Iterator[Violation]:
        """Nothing else strikes another update or fault domain of a scope it touches."""
        for scope, domain in operation.touches:
            for other in self.memory.started.values() if domain is not None else ():
                if other.node in (None, operation.node):
                    continue
                theirs = {touched for name, touched in other.touches if name == scope}
                apart = other.fault_domain != operation.fault_domain
                if theirs and (apart or theirs != {domain}):
                    yield Violation(22, f"{operation.id} strikes {scope} beside {other.id}")

    def _remember_touched(self, commit: Commit, operation: Operation) -> None:
        hit = operation.started_at is not None and operation.vms
        if operation.node is not None and hit:
            for scope, domain in operation.touches:
                if domain is not None:
                    self.last_touched.setdefault(scope, {})[domain] = commit.now.wall


def _events(commit: Commit, operation: Operation) -> list[Event]:
    return [commit.event(event) for event in operation.events]


def _due_at(commit: Commit, operation: Operation) -> datetime:
    """When all its events were let go; without any Scheduled one, when it was asked for.

    A clock that went back is no reason to wait for what was done before: none of it counts as
    later than now (rule 25).
    """
    now = commit.now.wall
    events = _events(commit, operation)
    let_go = [_let_go_at(event, now) for event in events]
    if not any(event.scheduled for event in events):
        let_go.append(operation.asked_not_before or min(operation.asked_at, now))
    return max(let_go)


def _let_go_at(event: Event, now: datetime) -> datetime:
    at = event.not_before
    if event.approval is not None:
        at = min(at, event.approval.at, now)
    if event.gone_at is not None:
        at = min(at, event.gone_at, now)
    return at


def _look_at_window(commit: Commit, operation: Operation) -> Iterator[Violation]:
    rollout = commit.fleet.rollouts.get(operation.rollout or "")
    windows = () if rollout is None else rollout.windows
    if windows and not any(_is_inside(window, commit.now.wall) for window in windows):
        yield Violation(22, f"{operation.id} started outside its windows")


def _is_inside(window: Window, at: datetime) -> bool:
    """Whether the window is open, minute by minute of the week."""
    minute = at.weekday() * 1440 + at.hour * 60 + at.minute
    for day in window.weekdays:
        since = (minute - (day * 1440 + window.start_minute)) % 10080
        if since < window.length_minutes:
            return True
    return False
