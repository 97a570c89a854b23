"""The story of an event, told from the journal (rule 26)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from fairnotice.control import shapes
from fairnotice.control.in_words import notice_in_words
from fairnotice.engine import changes
from fairnotice.engine.approval import held_by
from fairnotice.engine.changes import Change
from fairnotice.model import Event, Impact, Seen
from fairnotice.stores.store import Line


def steps(event: Event, lines: Iterable[Line], now: datetime) -> list[shapes.Step]:
    """What happened to this event and to its VMs until now, oldest first."""
    # By when it was, not by when it was recorded: what was seen is recorded in batches.
    return sorted(_told(event, list(lines), now), key=lambda step: step.at)


def last_known(event: str, lines: Iterable[Line]) -> Event | None:
    """An event as it was last recorded; None where these lines do not tell of it."""
    rows = (line.change.row for line in lines)
    found = [row for row in rows if isinstance(row, Event) and row.id == event]
    return found[-1] if found else None


def _told(event: Event, lines: Sequence[Line], now: datetime) -> Iterator[shapes.Step]:
    seen: set[Seen] = set()
    yield from _held([line for line in lines if _is_of(event, line)], now)
    for line in lines:
        change = line.change
        if not _belongs(event, change):
            continue
        if isinstance(change, changes.EventSeen):
            for first in sorted(set(change.row.seen) - seen, key=lambda one: one.at):
                yield _step(line, first.at, f"first seen by {first.vm}")
            seen |= set(change.row.seen)
        else:
            tell = _SENTENCES.get(type(change))
            if tell is not None and (text := tell(change.row)):
                yield _step(line, change.at, text)


def _step(line: Line, at: datetime, text: str, what: str = "") -> shapes.Step:
    what = what or type(line.change).__name__
    return shapes.Step(at=at, what=what, text=text, revision=line.revision)


def _held(lines: Sequence[Line], now: datetime) -> Iterator[shapes.Step]:
    """From when on it did not start because an endpoint had not confirmed it.

    No line says so: nothing changes at that instant, and that is what there is to tell.
    """
    held_from: datetime | None = None
    untils = [*(line.change.at for line in lines[1:]), now]
    for line, until in zip(lines, untils, strict=False):
        row = line.change.row
        nodes = held_by(row) if row.scheduled else ()
        if nodes and row.not_before < until and row.not_before != held_from:
            held_from = row.not_before
            text = f"held: not confirmed by {', '.join(nodes)}"
            yield _step(line, held_from, text, "EventHeld")


def _is_of(event: Event, line: Line) -> bool:
    row = line.change.row
    return isinstance(row, Event) and row.id == event.id


def _belongs(event: Event, change: Change[Any]) -> bool:
    row = change.row
    if isinstance(row, Event):
        return row.id == event.id
    return isinstance(row, Impact) and row.vm in event.resources


def _announced(row: Event) -> str:
    notice = f"{notice_in_words(row.notice_seconds)} of notice promised"
    return f"announced: {row.type} of {', '.join(row.resources)}, {notice}"


def _approved(row: Event) -> str:
    return f"approved by {row.approval.by}" if row.approval else "approved"


def _started(row: Event) -> str:
    given = row.notice_given_seconds
    return f"started, after {notice_in_words(given)} of notice" if given else "started at once"


def _gone(row: Event) -> str:
    return f"gone: {row.status}" + (f" ({row.reason})" if row.reason else "")


def _begun(row: Impact) -> str:
    to = f" to {row.target}" if row.target else ""
    return f"{row.kind} of {row.vm}{to} begun"


def _ended(row: Impact) -> str:
    return f"{row.kind} of {row.vm} {row.status}" + (f": {row.reason}" if row.reason else "")


_SENTENCES: dict[type[Change[Any]], Callable[[Any], str]] = {
    changes.EventAnnounced: _announced,
    changes.EventApproved: _approved,
    changes.EventPostponed: lambda row: (
        f"postponed: not before {row.not_before:%Y-%m-%d %H:%M:%S} UTC"
    ),
    # Confirmations are many, and nobody asks for those that come in time.
    changes.EventConfirmed: lambda row: f"released by {row.released_by}" if row.released_by else "",
    changes.EventResourcesChanged: lambda row: f"now names {', '.join(row.resources) or 'nobody'}",
    changes.EventStarted: _started,
    changes.EventSettling: lambda _: "all impact is over; settling",
    changes.EventGone: _gone,
    changes.ImpactBegun: _begun,
    changes.ImpactAsked: lambda row: f"after a restart the driver is asked about {row.vm}",
    changes.ImpactEnded: _ended,
}
