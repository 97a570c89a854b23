"""Looks at every commit of the law and says what it broke.

It remembers what it saw and shares no code with the engine's decisions: where the law decides by
its own functions, the witness reckons anew from rows, settings and the clock. So a change that
bends the law and its checks alike is still caught.

Its parts, by subject: witness_told.py (who has to be told), witness_events.py (the life of an
event), witness_starts.py (who goes first), witness_impacts.py (once, and its end), and here
scopes and their documents.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from fairnotice.engine import AZURE, Decision, Fleet, Timing
from fairnotice.engine.changes import Change, EventApproved, ScopeDisabled, ScopeEnabled
from fairnotice.engine.commands import (
    Approve,
    Cancel,
    Command,
    HearEndpoint,
    JoinEndpoint,
    ReportServed,
)
from fairnotice.engine.invariants import Violation, check
from fairnotice.model import Event, Moment, Scope
from fairnotice.testing.witness_commit import Commit, Memory
from fairnotice.testing.witness_events import Events
from fairnotice.testing.witness_impacts import Impacts
from fairnotice.testing.witness_starts import Starts
from fairnotice.testing.witness_told import Told
from fairnotice.words import EventStatus, Role

Content = tuple[Any, ...]


class LawBroken(AssertionError):
    """The law was broken; the message names the rule and the place."""

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("; ".join(f"rule {rule}: {what}" for rule, what in violations))


class LawWitness:
    """A witness who raises LawBroken at the first commit that breaks the law."""

    def __init__(self, timing: Timing = AZURE) -> None:
        self.memory = Memory(timing)
        self.told = Told(self.memory)
        self.lives = Events(self.memory)
        self.starts = Starts(self.memory)
        self.impacts = Impacts(self.memory)
        self.scopes = Scopes(self.memory)
        self.parts = (self.told, self.lives, self.starts, self.impacts, self.scopes)

    @property
    def events(self) -> dict[str, Event]:
        """Every event that was ever announced, as it was last."""
        return self.memory.events

    @property
    def begun(self) -> set[str]:
        """The key of every impact that was ever begun."""
        return self.memory.begun

    # ---- What a stage calls ----

    def before(self, fleet: Fleet, command: Command, decision: Decision, now: Moment) -> None:
        """Look at what is about to change."""
        commit = Commit(fleet, command, decision, now)
        found = list(_look_at_command(commit))
        self.scopes.hear(commit)
        for change in decision.changes:
            commit.take(change)
            for part in self.parts:
                found += part.look(commit, change)
            self.memory.take(commit, change)
        for concluding in (self.told, self.lives, self.impacts):
            found += concluding.conclude(commit)
        if found:
            raise LawBroken(found)

    def after(self, fleet: Fleet, now: Moment) -> None:  # noqa: ARG002 - part of the protocol
        """Look at what has become of it."""
        found = [*check(fleet), *self.scopes.read(fleet)]
        if found:
            raise LawBroken(found)


def _look_at_command(commit: Commit) -> Iterator[Violation]:
    """Rules 3 and 15: a VM approves for its own scope, and cancels nothing."""
    command, changes = commit.command, commit.decision.changes
    if isinstance(command, Cancel) and command.by.role is Role.VM and changes:
        yield Violation(15, f"{command.by.name} canceled {command.target}")
    if isinstance(command, Approve) and command.by.role is Role.VM:
        scope = commit.fleet.vms[command.by.name].scope
        for change in changes:
            if isinstance(change, EventApproved) and change.row.scope != scope:
                yield Violation(3, f"{command.by.name} approved for {change.row.scope}")


class Scopes:
    """Rules 7 and 8: who listens, and what is read."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.documents: dict[str, tuple[int, int, Content]] = {}
        self.heard_at: dict[str, datetime] = {}
        # When the endpoint of a node last said anything.
        self.endpoint_heard_at: dict[str, datetime] = {}

    def hear(self, commit: Commit) -> None:
        """Take note of who asked, and when."""
        if isinstance(commit.command, ReportServed):
            for heard in commit.command.heard:
                known = self.heard_at.get(heard.scope, heard.at)
                self.heard_at[heard.scope] = max(known, heard.at)
        elif isinstance(commit.command, JoinEndpoint | HearEndpoint):
            self.endpoint_heard_at[commit.command.node] = commit.now.wall

    def look(self, commit: Commit, change: Change[Any]) -> Iterator[Violation]:
        """A scope is enabled, or disabled: after 24 hours at least, under no live event."""
        if isinstance(change, ScopeEnabled):
            self.heard_at[change.row.name] = commit.now.wall
        if not isinstance(change, ScopeDisabled):
            return
        name = change.row.name
        silent = (commit.now.wall - self.heard_at[name]).total_seconds()
        if silent < self.memory.timing.disabled_after_seconds:
            yield Violation(8, f"{name} was disabled after {silent:.0f} s")
        events = commit.fleet.events.values()
        if any(event.scope == name and commit.event(event.id).visible for event in events):
            yield Violation(8, f"{name} was disabled under a live event")
        serving = {vm.node or "" for vm in commit.fleet.vms.values() if vm.scope == name}
        for node in serving & commit.fleet.endpoints.keys():
            heard_at = self.endpoint_heard_at.get(node)
            if heard_at is None or commit.now.wall - heard_at > timedelta(hours=2):
                yield Violation(8, f"{name} was disabled, and {node} was not heard of")

    def read(self, fleet: Fleet) -> Iterator[Violation]:
        """Rule 7: one more for each change of what is read, and only then."""
        contents: dict[str, Content] = {}
        for event in fleet.events.values():
            if event.visible:
                contents[event.scope] = (*contents.get(event.scope, ()), _content(event))
        for scope in fleet.scopes.values():
            yield from self._read(scope, contents.get(scope.name, ()))

    def _read(self, scope: Scope, content: Content) -> Iterator[Violation]:
        enablings, incarnation, known = self.documents.get(scope.name, (-1, 1, ()))
        if not scope.enabled:
            self.documents.pop(scope.name, None)
            return
        if enablings != scope.enablings:
            if scope.incarnation != (2 if content else 1):
                yield Violation(7, f"{scope.name} begins at {scope.incarnation}")
        elif scope.incarnation != incarnation + (content != known):
            expected = incarnation + (content != known)
            yield Violation(7, f"{scope.name} is at {scope.incarnation} where {expected} is due")
        self.documents[scope.name] = (scope.enablings, scope.incarnation, content)


def _content(event: Event) -> Content:
    """What a VM reads of an event."""
    not_before = event.not_before if event.status is EventStatus.SCHEDULED else ""
    return (event.id, event.status, event.type, event.resources, not_before, event.description)
