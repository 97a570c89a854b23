"""The document as a VM holds it: frozen, and read leniently.

What real services have sent is accepted: raw control characters, keys and types that nobody knows,
keys that an older api-version has not, NotBefore in four formats. What cannot be used is BadAnswer.
"""

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairnotice.client.instants import read_instant
from fairnotice.errors import BadAnswer
from fairnotice.words import EventStatus

_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class Event:
    """An event as the document shows it. Words that are not known are kept as they came."""

    # Upper case, whatever the service sent.
    id: str
    type: str
    status: str
    resources: tuple[str, ...] = ()
    # None once it is Started, and where the service said nothing that can be read.
    not_before: datetime | None = None
    description: str = ""
    source: str = ""
    # None where the api-version does not tell; -1 is the service's "not known".
    duration_seconds: int | None = None
    resource_type: str = ""

    def __str__(self) -> str:
        # NotBefore means something only until the start, as the engine's own events say it.
        words = f"{self.type} of {', '.join(self.resources) or 'nobody'}, {self.status}"
        if self.not_before is not None and not self.is_started:
            words += f", not before {self.not_before:%Y-%m-%d %H:%M:%S} UTC"
        return one_line(words)

    @property
    def is_started(self) -> bool:
        """Whether the impact may come at any moment, has come, or is just over."""
        return self.status == EventStatus.STARTED

    def names(self, vm: str) -> bool:
        """Whether it is about this VM. In 2017-03-01 names carry a leading underscore."""
        wanted = vm.casefold()
        return any(wanted in (name, name.removeprefix("_")) for name in self._folded())

    def _folded(self) -> tuple[str, ...]:
        return tuple(name.casefold() for name in self.resources)


@dataclass(frozen=True, slots=True)
class Document:
    """The live events of a scope."""

    incarnation: int
    events: tuple[Event, ...] = ()

    def event(self, name: str) -> Event | None:
        """The event of this id, in any case; None where it is not shown."""
        wanted = name.upper()
        return next((event for event in self.events if event.id == wanted), None)


def read_document(body: bytes) -> Document:
    """The document that these bytes are. Raises BadAnswer, and nothing else."""
    found = read_object(body)
    if "Events" not in found:
        raise BadAnswer(f"The answer has no Events: {shown(body)}")
    incarnation = found.get("DocumentIncarnation", 0)
    number = _integer(incarnation)
    if number is None:
        raise BadAnswer(f"DocumentIncarnation is {shown(incarnation)}, which is no number.")
    listed = found["Events"]
    if not isinstance(listed, list | None):
        raise BadAnswer(f"Events is {shown(listed)}, which is no list.")
    # Of two with the same id the later one counts.
    events = {event.id: event for event in map(_event, listed or ())}
    return Document(number, tuple(events.values()))


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that these bytes are, control characters and all. Raises BadAnswer."""
    if not body:
        raise BadAnswer("The answer has an empty body.")
    try:
        found = json.loads(body.decode("utf-8-sig", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer is no JSON: {shown(body)}") from error
    if not isinstance(found, dict):
        raise BadAnswer(f"The answer is no JSON object: {shown(body)}")
    return found


def one_line(text: str) -> str:
    """The text with every line end and control character as a space."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def shown(value: object) -> str:
    """The beginning of something that came, for a sentence."""
    text = ascii(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _event(raw: object) -> Event:
    if not isinstance(raw, dict):
        raise BadAnswer(f"An event is {shown(raw)}, which is no object.")
    name = _text(raw, "EventId").upper()
    if not name:
        raise BadAnswer(f"An event has no EventId: {shown(raw)}")
    return Event(
        id=name,
        type=_text(raw, "EventType"),
        status=_text(raw, "EventStatus"),
        resources=_resources(raw.get("Resources")),
        not_before=read_instant(_text(raw, "NotBefore")),
        description=_text(raw, "Description"),
        source=_text(raw, "EventSource"),
        duration_seconds=_integer(raw.get("DurationInSeconds")),
        resource_type=_text(raw, "ResourceType"),
    )


def _text(raw: dict[str, object], key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadAnswer(f"{key} is {shown(value)}, which is no text.")
    return value


def _resources(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadAnswer(f"Resources is {shown(value)}, which is no list of names.")
    return tuple(value)


def _integer(value: object) -> int | None:
    """A whole number, also as text, as old clients and servers have it; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
        return None
    try:
        return int(value)
    except ValueError:
        return None
