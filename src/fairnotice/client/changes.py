"""What has happened between two documents, and where somebody had got to. Pure.

A position is what was known after a change: the events that were shown then. Whoever saves it with
what he did about the change, and begins there again, is told what came after it, once.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

from fairnotice.client.document import Document, Event
from fairnotice.errors import UsageError

_FORMAT = 1


class ChangeKind(StrEnum):
    """What has become of an event."""

    ANNOUNCED = "announced"
    CHANGED = "changed"
    STARTED = "started"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a watch has got to: the events as they were known then."""

    events: tuple[Event, ...] = ()

    def to_json(self) -> str:
        """As one line of text, to be saved."""
        rows = [_row(event) for event in self.events]
        return json.dumps({"format": _FORMAT, "events": rows}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Position":
        """The position that was saved; UsageError where this is none."""
        try:
            found = json.loads(text)
            if found["format"] != _FORMAT:
                raise UsageError(f"The position is of format {found['format']!r}, not {_FORMAT}.")
            return cls(tuple(map(_event, found["events"])))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError("This is no saved position of a watch.") from error

    def after(self, document: Document) -> Iterator["Change"]:
        """What is new in a document, each change with the position behind it.

        What is gone comes first, then what is shown, in the document's order. Incarnations are not
        compared: they may start anew.
        """
        known = {event.id: event for event in self.events}
        shown = {event.id: event for event in document.events}
        for name in [name for name in known if name not in shown]:
            before = known.pop(name)
            yield Change(ChangeKind.GONE, before, before, Position(tuple(known.values())))
        for name, event in shown.items():
            old = known.get(name)
            if old != event:
                known[name] = event
                yield Change(_kind(old, event), event, old, Position(tuple(known.values())))


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that has become of one event."""

    kind: ChangeKind
    # As it is shown now; of one that is gone, as it was shown last.
    event: Event
    # None where it was not known before.
    before: Event | None
    position: Position

    def __str__(self) -> str:
        return f"{self.kind}: {self.event}"


def _kind(before: Event | None, event: Event) -> ChangeKind:
    # Hardware that failed does not wait: an event may be Started when it is first shown.
    if event.is_started and not (before and before.is_started):
        return ChangeKind.STARTED
    return ChangeKind.ANNOUNCED if before is None else ChangeKind.CHANGED


def _row(event: Event) -> dict[str, object]:
    instant = event.not_before
    # As NotBefore is written everywhere else: Z, and no +00:00.
    told = instant.isoformat().replace("+00:00", "Z") if instant else None
    return {**asdict(event), "not_before": told}


def _event(row: dict[str, object]) -> Event:
    instant = row["not_before"]
    resources = row["resources"]
    if not isinstance(resources, list):
        raise TypeError("resources")
    read = datetime.fromisoformat(str(instant)) if instant is not None else None
    return Event(**{**row, "not_before": read, "resources": tuple(resources)})  # type: ignore[arg-type]
