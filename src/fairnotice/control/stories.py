"""The story of an event, told from the journal (rule 26)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fairnotice.control import shapes
from fairnotice.control.in_words import notice_in_words
from fairnotice.engine import changes
from fairnotice.engine.changes import Change
from fairnotice.model import Event, Impact, Seen
from fairnotice.stores.store import Line


def steps(event: Event, lines: Iterable[Line]) -> list[shapes.Step]:
    """What happened to this event and to its VMs, oldest first."""
    return [
        shapes.Step(at=at, what=type(line.change).__name__, text=text, revision=line.revision)
        # By when it was, not by when it was recorded: what was seen is recorded in batches.
        for line, at, text in sorted(_told(event, lines), key=lambda told: told[1])
    ]


def last_known(event: str, lines: Iterable[Line]) -> Event | None:
    """An event as it was last recorded; None where these lines do not tell of it."""
    rows = (line.change.row for line in lines)
    found = [row for row in rows if isinstance(row, Event) and row.id == event]
    return found[-1] if found else None


def _told(event: Event, lines: Iterable[Line]) -> Iterator[tuple[Line, Any, str]]:
    seen: set[Seen] = set()
    for line in lines:
        change = line.change
        if not _belongs(event, change):
            continue
        if isinstance(change, changes.EventSeen):
            for first in sorted(set(change.row.seen) - seen, key=lambda one: one.at):
                yield line, first.at, f"first seen by {first.vm}"
            seen |= set(change.row.seen)
        else:
            tell = _SENTENCES.get(type(change))
            if tell is not None:
                yield line, change.at, tell(change.row)


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
    changes.EventResourcesChanged: lambda row: f"now names {', '.join(row.resources) or 'nobody'}",
    changes.EventStarted: _started,
    changes.EventSettling: lambda _: "all impact is over; settling",
    changes.EventGone: _gone,
    changes.ImpactBegun: _begun,
    changes.ImpactAsked: lambda row: f"after a restart the driver is asked about {row.vm}",
    changes.ImpactEnded: _ended,
}
