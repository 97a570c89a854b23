"""Rules 1 to 6, 11, 16, 24 and 25: the life of each event, from its announcement to its end."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from fairnotice.engine.changes import (
    Change,
    EventAnnounced,
    EventForgotten,
    EventGone,
    EventPostponed,
    EventStarted,
)
from fairnotice.engine.commands import Confirm, Restarted
from fairnotice.engine.invariants import Violation
from fairnotice.model import Event
from fairnotice.testing.witness_commit import Commit, Memory
from fairnotice.words import EventStatus, EventType

WAYS_OUT = (
    (EventStatus.SCHEDULED, EventStatus.CANCELED),
    (EventStatus.STARTED, EventStatus.COMPLETED),
)
# Two readings of a monotonic clock that should be equal may differ by rounding.
CLOCK_ROUNDING_SECONDS = 0.001


class Events:
    """What was announced, and what became of it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def look(self, commit: Commit, change: Change[Any]) -> Iterator[Violation]:
        """One change of one event, compared with what it was before."""
        event = change.row
        if not isinstance(event, Event) or isinstance(change, EventForgotten):
            return
        before = self.memory.events.get(event.id)
        if isinstance(change, EventAnnounced):
            if before is not None:
                yield Violation(6, f"{event.id} was announced twice")
            yield from self._look_at_notice(commit, event)
        elif before is None:
            yield Violation(6, f"{event.id} was never announced")
        else:
            yield from self._look_at_life(commit, change, before, event)

    def _look_at_life(
        self, commit: Commit, change: Change[Any], before: Event, event: Event
    ) -> Iterator[Violation]:
        if _identity(before) != _identity(event):
            yield Violation(6, f"{event.id} is not the event that was announced")
        if before.gone_at is not None and event.status is not before.status:
            yield Violation(6, f"{event.id} came back")
        if isinstance(change, EventStarted):
            yield from self._look_at_start(commit, before)
        elif isinstance(change, EventGone):
            yield from self._look_at_end(commit, before, event)
        else:
            yield from _look_at_not_before(change, before, event)

    def _look_at_notice(self, commit: Commit, event: Event) -> Iterator[Violation]:
        """Rule 2, by the numbers of the timing profile alone."""
        if event.status is EventStatus.STARTED:
            if event.approval is not None:
                yield Violation(3, f"{event.id} began approved")
            return
        least = self._least(commit, event)
        if event.not_before < commit.now.wall + least:
            yield Violation(2, f"{event.id} gives less than {least} of notice")

    def _least(self, commit: Commit, event: Event) -> timedelta:
        vms = [commit.vm(name) for name in event.resources]
        notices = (self.memory.least_notice(commit, event.type, vm) for vm in vms if vm)
        return max(notices, default=timedelta())

    # ---- The start ----

    def _look_at_start(self, commit: Commit, event: Event) -> Iterator[Violation]:
        """Rules 1, 5, 16 and 25: nothing starts that nobody let go."""
        now = commit.now
        early = now.wall < event.not_before
        if event.approval is None:
            if early:
                yield Violation(1, f"{event.id} started before NotBefore, not approved")
            if not self.memory.has_elapsed(event, now.monotonic + CLOCK_ROUNDING_SECONDS):
                yield Violation(25, f"{event.id} started before its notice had elapsed")
            if event.unconfirmed and event.type is not EventType.PREEMPT:
                yield Violation(5, f"{event.id} started unconfirmed by {event.unconfirmed}")
        elif early and event.type is EventType.TERMINATE:
            yield from self._look_at_terminates(commit, event)

    def _look_at_terminates(self, commit: Commit, event: Event) -> Iterator[Violation]:
        """Rule 16: those announced before it, and those of its own command, are let go first."""
        request = commit.operation(event.operation).request
        scale_set = _scale_set(commit, event)
        for other in self.memory.scheduled.values():
            if other.type is not EventType.TERMINATE or _scale_set(commit, other) != scale_set:
                continue
            together = commit.operation(other.operation).request == request
            waits = other.approval is None and commit.now.wall < other.not_before
            if waits and (together or other.revision < event.revision):
                yield Violation(16, f"{event.id} went before {other.id}")

    # ---- The end ----

    def _look_at_end(self, commit: Commit, before: Event, event: Event) -> Iterator[Violation]:
        """Rules 6 and 11: by one of two ways, and not before all its impacts have settled."""
        if (before.status, event.status) not in WAYS_OUT:
            yield Violation(6, f"{event.id} went from {before.status} to {event.status}")
        if event.status is not EventStatus.COMPLETED:
            return
        keys = {f"{event.operation}/{name}" for name in event.resources}
        ended = [at for key, at in self.memory.ended.items() if key in keys]
        live = [name for name in event.resources if not _has_ended(commit, event, name)]
        settle = timedelta(seconds=self.memory.timing.settle_seconds)
        if live:
            yield Violation(11, f"{event.id} was gone before {live} were through")
        elif commit.now.wall < ended[-1] + settle:
            yield Violation(11, f"{event.id} was gone before its VMs had settled")

    # ---- When notice begins anew ----

    def conclude(self, commit: Commit) -> Iterator[Violation]:
        """Rules 5, 24 and 25: what nobody could be served has its notice anew, once."""
        if isinstance(commit.command, Restarted):
            yield from self._look_after_restart(commit, commit.command)
        elif isinstance(commit.command, Confirm):
            yield from self._look_at_shown(commit, commit.command.node)

    def _look_at_shown(self, commit: Commit, node: str) -> Iterator[Violation]:
        """Rule 5: what an endpoint shows at last is shown with most of its least notice."""
        for event in commit.fleet.events.values():
            looked_at = event.seen or event.approval or event.id in self.memory.renewed
            if node not in event.unconfirmed or not event.scheduled or looked_at:
                continue
            after = commit.event(event.id)
            most = self._least(commit, after) * 0.9
            if not after.unconfirmed and after.not_before < commit.now.wall + most:
                yield Violation(5, f"{after.id} is shown at last, and has no notice")

    def _look_after_restart(self, commit: Commit, command: Restarted) -> Iterator[Violation]:
        """Rule 25: with the clock behind the last record, all that is Scheduled has it anew."""
        now = commit.now.wall
        behind = now < (commit.fleet.recorded_at or now)
        for event in commit.fleet.events.values():
            served = command.takeover or event.seen or self._was_renewed(event)
            if not event.scheduled or event.approval is not None or (served and not behind):
                continue
            after = commit.event(event.id)
            if after.visible and after.not_before < now + self._least(commit, after):
                yield Violation(24, f"{after.id} has no notice after the restart")

    def _was_renewed(self, event: Event) -> bool:
        """Whether an earlier life has renewed its notice."""
        return self.memory.renewed.get(event.id, self.memory.life) < self.memory.life


def _has_ended(commit: Commit, event: Event, name: str) -> bool:
    impact = commit.impact(event.operation, name)
    return impact is not None and not impact.live


def _scale_set(commit: Commit, event: Event) -> str | None:
    scope = commit.scope(event.scope)
    return None if scope is None else scope.of


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
