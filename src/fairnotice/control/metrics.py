"""What the platform tells Prometheus: counted with every commit, written out when somebody asks.

    tally = Tally(conductor, clock)            # follows the conductor's commits from here on
    text = exposition(tally, worker)           # everything, the metadata endpoint's own included

Counters count from the start of the process; what is in force (gauges) is right from the first.
A commit costs a few dictionary look-ups for each event and operation in it.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.engine import Fleet, changes
from fairnotice.engine.changes import Change
from fairnotice.metadata.metrics import CONTENT_TYPE, escaped
from fairnotice.metadata.metrics import exposition as endpoint_exposition
from fairnotice.metadata.worker import Worker
from fairnotice.model import Event, Operation
from fairnotice.words import EventStatus, EventType, OperationKind, OperationStatus

__all__ = ["CONTENT_TYPE", "Tally", "exposition"]

# The notices of both timing profiles, and what a person gives: minutes to a week.
NOTICE_BUCKETS = (0, 5, 10, 15, 30, 60, 300, 600, 900, 1_800, 3_600, 86_400, 604_800)
ENDED = (
    OperationStatus.COMPLETED,
    OperationStatus.FAILED,
    OperationStatus.CANCELED,
    OperationStatus.RESOLVED,
)

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


class Metric(NamedTuple):
    """One metric with all its samples; a sample's name may have a suffix."""

    name: str
    kind: str
    meaning: str
    samples: Iterable[Sample]


class Tally:
    """Follows commits and counts what they did to events and operations."""

    def __init__(self, conductor: Conductor, clock: Clock) -> None:
        self._conductor = conductor
        self._clock = clock
        # How many endpoints of nodes follow here.
        self.followers: Callable[[], int] = lambda: 0
        # How often a loop beside the conductor's met a fault of our own.
        self.faults: Callable[[], int] = lambda: 0
        # Where each known event is, so that a change of it moves one count.
        self._where: dict[str, tuple[EventType, EventStatus]] = {}
        self.events: Counter[tuple[EventType, EventStatus]] = Counter()
        # Scheduled events that not all their VMs have seen; Started ones.
        self._unseen: dict[str, Event] = {}
        self._started: dict[str, Event] = {}
        self.reached: Counter[tuple[EventType, EventStatus]] = Counter()
        self.approvals: Counter[tuple[EventType, bool]] = Counter()
        self.never_saw: Counter[EventType] = Counter()
        self.operations: Counter[tuple[OperationKind, OperationStatus]] = Counter()
        self.notice_seconds = dict.fromkeys(EventType, 0.0)
        self.notice_buckets: Counter[tuple[EventType, int]] = Counter()
        self.lag_seconds = 0.0
        self.commits = 0
        conductor.feed.follow(self)

    # ---- Following ----

    def loaded(self, fleet: Fleet) -> None:
        """This is the whole state: what is in force is counted anew, what has happened is not."""
        self._where.clear()
        self.events.clear()
        self._unseen.clear()
        self._started.clear()
        for event in fleet.events.values():
            self._place(event)

    def committed(self, _: Fleet, committed: Sequence[Change[Any]]) -> None:
        """These changes are durable."""
        self.commits += 1
        late = self._clock.wall() - committed[0].at
        self.lag_seconds = max(0.0, late.total_seconds())
        for change in committed:
            if isinstance(change.row, Event):
                self._event_changed(change)
            elif isinstance(change, changes.OperationEnded):
                operation: Operation = change.row
                self.operations[operation.kind, operation.status] += 1

    def _event_changed(self, change: Change[Event]) -> None:
        event = change.row
        if isinstance(change, changes.EventForgotten):
            self._take_out(event.id)
            return
        self._place(event)
        if isinstance(change, changes.EventApproved) and event.approval is not None:
            self.approvals[event.type, event.approval.at < event.not_before] += 1
        if isinstance(change, changes.EventAnnounced | changes.EventStarted | changes.EventGone):
            self._moved(event)

    def _moved(self, event: Event) -> None:
        """The event has reached another status."""
        self.reached[event.type, event.status] += 1
        if event.status is EventStatus.STARTED:
            given = event.notice_given_seconds or 0.0
            self.notice_seconds[event.type] += given
            self.notice_buckets[event.type, bisect_left(NOTICE_BUCKETS, given)] += 1
        elif event.status is EventStatus.COMPLETED:
            self.never_saw[event.type] += _unseen_count(event)

    def _place(self, event: Event) -> None:
        self._take_out(event.id)
        self._where[event.id] = (event.type, event.status)
        self.events[event.type, event.status] += 1
        if event.status is EventStatus.STARTED:
            self._started[event.id] = event
        elif event.scheduled and _unseen_count(event):
            self._unseen[event.id] = event

    def _take_out(self, name: str) -> None:
        where = self._where.pop(name, None)
        if where is not None:
            self.events[where] -= 1
        self._started.pop(name, None)
        self._unseen.pop(name, None)

    # ---- What is asked ----

    @property
    def recording(self) -> bool:
        """Whether commands are made durable."""
        return self._conductor.trouble is None

    @property
    def revision(self) -> int:
        """The last one in the journal."""
        return self._conductor.feed.revision

    def lead(self) -> Iterator[tuple[str, str, str, float]]:
        """This control plane's part in who leads."""
        conductor = self._conductor
        leader = conductor.leader
        epoch = conductor.epoch if leader is None else leader.epoch
        yield (
            "leading",
            "gauge",
            "1 where commands are taken, 0 where another leads.",
            conductor.leading,
        )
        yield "epoch", "gauge", "Of the lead, as far as it is known here: it only grows.", epoch
        known = "1 while some control plane is known to lead, 0 while none is."
        yield "leader_known", "gauge", known, conductor.leading or leader is not None
        lag = "For how long one that follows has not known where the journal ends."
        yield "following_lag_seconds", "gauge", lag, conductor.lag_seconds

    def seconds_until_unseen(self) -> dict[EventType, float]:
        """By type: how far off the next NotBefore is that one of its VMs has not seen."""
        nearest: dict[EventType, datetime] = {}
        for event in self._unseen.values():
            known = nearest.get(event.type, event.not_before)
            nearest[event.type] = min(known, event.not_before)
        now = self._clock.wall()
        return {kind: (at - now).total_seconds() for kind, at in nearest.items()}

    def seconds_started(self) -> dict[EventType, float]:
        """By type: how long the oldest Started event has been so; 0 where there is none."""
        now = self._clock.wall()
        oldest = dict.fromkeys(EventType, 0.0)
        for event in self._started.values():
            since = event.started_at or event.announced_at
            age = (now - since).total_seconds()
            oldest[event.type] = max(oldest[event.type], age)
        return oldest

    @property
    def fleet(self) -> Fleet:
        """The state as it was last committed."""
        return self._conductor.fleet


def _unseen_count(event: Event) -> int:
    seen = {first.vm for first in event.seen}
    return sum(name not in seen for name in event.resources)


# ---- Writing ----


def exposition(tally: Tally, worker: Worker | None = None, more: Iterable[Metric] = ()) -> str:
    """All metrics of this process, in Prometheus' text format (CONTENT_TYPE)."""
    lines: list[str] = []
    for metric in (*_metrics(tally), *more):
        lines.append(f"# HELP {metric.name} {metric.meaning}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += [
            _line(metric.name + suffix, labels, value) for suffix, labels, value in metric.samples
        ]
    text = "\n".join(lines) + "\n"
    return text if worker is None else text + endpoint_exposition(worker)


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels)
    written = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{inside}}} {written}" if inside else f"{name} {written}"


def _metrics(tally: Tally) -> Iterator[Metric]:
    yield from _of_events(tally)
    yield from _of_promises(tally)
    yield from _of_endpoints(tally)
    yield Metric(
        "fairnotice_operations_total",
        "counter",
        "Operations that ended, by kind and by how.",
        [
            ("", (("kind", kind), ("status", status)), tally.operations[kind, status])
            for kind in OperationKind
            for status in ENDED
        ],
    )
    for name, kind, meaning, value in (
        ("journal_revision", "gauge", "The last revision in the journal.", tally.revision),
        ("journal_commits_total", "counter", "Commits made durable.", tally.commits),
        (
            "journal_lag_seconds",
            "gauge",
            "From the decision to the journal, in the last commit.",
            tally.lag_seconds,
        ),
        (
            "journal_recording",
            "gauge",
            "1 while commands can be recorded, 0 while nothing can.",
            tally.recording,
        ),
        ("faults_total", "counter", "Faults of our own that a loop went on after.", tally.faults()),
        *tally.lead(),
    ):
        yield Metric(f"fairnotice_{name}", kind, meaning, [("", (), value)])


def _of_events(tally: Tally) -> Iterator[Metric]:
    each = [(kind, status) for kind in EventType for status in EventStatus]
    for name, type_, meaning, counts in (
        (
            "fairnotice_events",
            "gauge",
            "Events that are in force, or over for less than a day.",
            tally.events,
        ),
        (
            "fairnotice_events_total",
            "counter",
            "Events that reached this status.",
            tally.reached,
        ),
    ):
        samples = [
            ("", (("type", kind), ("status", status)), counts[kind, status])
            for kind, status in each
        ]
        yield Metric(name, type_, meaning, samples)
    yield Metric(
        "fairnotice_event_started_age_seconds",
        "gauge",
        "How long the oldest Started event has been so; 0 where there is none.",
        [("", (("type", kind),), age) for kind, age in tally.seconds_started().items()],
    )
    yield Metric(
        "fairnotice_event_unseen_not_before_seconds",
        "gauge",
        "Seconds to the next NotBefore that a VM named has not seen; absent where there is none.",
        [("", (("type", kind),), left) for kind, left in tally.seconds_until_unseen().items()],
    )


def _of_endpoints(tally: Tally) -> Iterator[Metric]:
    fleet = tally.fleet
    for name, meaning, value in (
        ("endpoints", "Nodes whose endpoint has joined.", len(fleet.endpoints)),
        ("endpoints_following", "Endpoints that follow this control plane.", tally.followers()),
    ):
        yield Metric(f"fairnotice_{name}", "gauge", meaning, [("", (), value)])
    yield Metric(
        "fairnotice_endpoint_unconfirmed_events",
        "gauge",
        "Events that a node's endpoint has not said it shows; absent where there is none.",
        [
            ("", (("node", escaped(node)),), len(events))
            for node, events in fleet.unconfirmed_on_node.items()
            if events
        ],
    )


def _of_promises(tally: Tally) -> Iterator[Metric]:
    yield Metric(
        "fairnotice_notice_given_seconds",
        "histogram",
        "Notice given: from the announcement to the start.",
        list(_notice(tally)),
    )
    for name, meaning, counts in (
        (
            "fairnotice_approvals_total",
            "Approvals that counted: the first of an event.",
            {
                kind: sum(tally.approvals[kind, early] for early in (True, False))
                for kind in EventType
            },
        ),
        (
            "fairnotice_approvals_before_not_before_total",
            "Approvals before NotBefore: the impact need not wait.",
            {kind: tally.approvals[kind, True] for kind in EventType},
        ),
        (
            "fairnotice_vms_never_saw_event_total",
            "VMs that were hit and had not looked since their event was announced.",
            {kind: tally.never_saw[kind] for kind in EventType},
        ),
    ):
        samples = [("", (("type", kind),), count) for kind, count in counts.items()]
        yield Metric(name, "counter", meaning, samples)


def _notice(tally: Tally) -> Iterator[Sample]:
    for kind in EventType:
        count = 0
        for place, bound in enumerate((*NOTICE_BUCKETS, math.inf)):
            count += tally.notice_buckets[kind, place]
            written = "+Inf" if math.isinf(bound) else str(bound)
            yield "_bucket", (("type", kind), ("le", written)), count
        yield "_sum", (("type", kind),), tally.notice_seconds[kind]
        yield "_count", (("type", kind),), count
