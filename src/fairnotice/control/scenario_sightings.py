"""What the VMs of a scenario saw, and when: the evidence that promises are held against."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from fairnotice.control import shapes
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.engine import Timing
from fairnotice.words import EventSource, EventStatus, EventType, ImpactKind


class Shown(NamedTuple):
    """An event as the document shows it."""

    id: str
    type: EventType
    status: EventStatus
    source: EventSource
    resources: tuple[str, ...]
    # A document shows it only until the start.
    not_before: datetime | None
    description: str = ""
    duration_seconds: int = -1

    def __str__(self) -> str:
        return f"{self.type} of {', '.join(self.resources)}"


class Sighting(NamedTuple):
    """One answer to one poll of one VM."""

    vm: str
    # When it was asked for, and when the answer was there.
    asked_at: datetime
    at: datetime
    incarnation: int
    events: tuple[Shown, ...] = ()
    # The VM itself, looked at before it asked; None where nobody can look, or it is deleted.
    machine: Machine | None = None

    def event(self, name: str) -> Shown | None:
        """The event of this id, if it was shown."""
        return next((event for event in self.events if event.id == name), None)


class Evidence(NamedTuple):
    """All that is known of a story when it is over."""

    # By VM, oldest first.
    sightings: Mapping[str, Sequence[Sighting]]
    # When the first approval of an event was sent.
    approved: Mapping[str, datetime]
    # The fleet as it was before.
    vms: Mapping[str, shapes.Vm]
    # What the control plane remembers of the story.
    events: Sequence[shapes.Event] = ()
    impacts: Sequence[shapes.Impact] = ()
    # The machines before and after; empty where nobody can look.
    before: Mapping[str, Machine] = {}
    after: Mapping[str, Machine] = {}


class Promised(NamedTuple):
    """What a scenario was promised, beyond what always holds."""

    timing: Timing
    # Of types whose notice does not follow from the timing alone.
    notice_seconds: Mapping[EventType, int] = {}
    # Hardware fails without notice: its events appear already Started.
    without_notice: bool = False
    # What happens to each VM, once; nothing happens to any other.
    struck: Mapping[str, ImpactKind] = {}
    # Events that were taken back.
    canceled: frozenset[str] = frozenset()
    # So long a set is left in peace between two of its update domains; None: no rollout.
    recovery_seconds: int | None = None

    def notice_of(self, event_type: EventType) -> int:
        """The least notice of an event of this type."""
        known = self.notice_seconds.get(event_type)
        return self.timing.notice_seconds.get(event_type, 0) if known is None else known


def read_document(body: bytes) -> tuple[int, tuple[Shown, ...]]:
    """The incarnation and the events of a document in api-version 2020-07-01."""
    document = json.loads(body)
    return document["DocumentIncarnation"], tuple(
        Shown(
            id=event["EventId"],
            type=EventType(event["EventType"]),
            status=EventStatus(event["EventStatus"]),
            source=EventSource(event["EventSource"]),
            resources=tuple(event["Resources"]),
            not_before=parsedate_to_datetime(event["NotBefore"]) if event["NotBefore"] else None,
            description=event["Description"],
            duration_seconds=event["DurationInSeconds"],
        )
        for event in document["Events"]
    )
