"""The document, byte for byte, in each of the seven api-versions.

Newer versions only ever add keys at the end of an event, so an event is written once, as the
pieces below, and each version takes as many of them as it knows.
"""

from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import NamedTuple

from fairnotice.model import Document, Event
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import EventType, ScopeKind

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# The first version that shows an event type; the others were there from the beginning.
_SHOWN_FROM = {EventType.PREEMPT: "2017-11-01", EventType.TERMINATE: "2019-01-01"}


class _Pieces(NamedTuple):
    """One event, cut where the versions part. Each piece begins where the last one ends."""

    first_version: str
    head: str
    resources: str
    resources_of_2017_03_01: str
    not_before: str
    description: str
    source: str
    duration: str


def render(document: Document, version: str, kind: ScopeKind) -> bytes:
    """The document as this api-version shows it to the VMs of a scope of this kind."""
    return _compose(document.incarnation, _cut(document, kind), version)


def render_all(document: Document, kind: ScopeKind) -> dict[str, bytes]:
    """The document in every api-version; half the work of seven calls of `render`."""
    pieces = _cut(document, kind)
    return {
        version: _compose(document.incarnation, pieces, version) for version in SCHEDULED_EVENTS
    }


def rfc1123(instant: datetime) -> str:
    """An instant as HTTP writes it, 29 characters in any locale.

    A part of a second is dropped: a VM must never be told a later NotBefore than the true one.
    """
    at = instant.astimezone(UTC)
    return (
        f"{_WEEKDAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year:04}"
        f" {at.hour:02}:{at.minute:02}:{at.second:02} GMT"
    )


def _cut(document: Document, kind: ScopeKind) -> list[_Pieces]:
    prefix = "" if kind is ScopeKind.CLOUD_SERVICE else "_"
    return [_pieces(event, prefix) for event in document.events]


def _pieces(event: Event, prefix: str) -> _Pieces:
    return _Pieces(
        first_version=_SHOWN_FROM.get(event.type, ""),
        head=(
            f'{{"EventId":{encode_basestring(event.id.upper())},"EventStatus":"{event.status}",'
            f'"EventType":"{event.type}","ResourceType":"VirtualMachine","Resources":'
        ),
        resources=_strings(event.resources),
        resources_of_2017_03_01=_strings(tuple(prefix + name for name in event.resources)),
        not_before=f',"NotBefore":"{rfc1123(event.not_before) if event.scheduled else ""}"',
        description=f',"Description":{encode_basestring(event.description)}',
        source=f',"EventSource":"{event.source}"',
        duration=f',"DurationInSeconds":{event.duration_seconds}',
    )


def _strings(texts: tuple[str, ...]) -> str:
    return f"[{','.join(map(encode_basestring, texts))}]"


def _compose(incarnation: int, events: list[_Pieces], version: str) -> bytes:
    shown = ",".join(_event(event, version) for event in events if event.first_version <= version)
    document = f'{{"DocumentIncarnation":{incarnation},"Events":[{shown}]}}'
    # Half of a surrogate pair is no UTF-8; written as \udXXX it is still JSON.
    return document.encode("utf-8", "backslashreplace")


def _event(event: _Pieces, version: str) -> str:
    if version == "2017-03-01":
        return f"{event.head}{event.resources_of_2017_03_01}{event.not_before}}}"
    text = event.head + event.resources + event.not_before
    if version >= "2019-04-01":
        text += event.description
    if version >= "2019-08-01":
        text += event.source
    if version >= "2020-07-01":
        text += event.duration
    return text + "}"
