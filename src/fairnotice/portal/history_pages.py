"""History: events by VM, type and time; and one event as a story, with its notice kept or not."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fairnotice.control import shapes
from fairnotice.engine.changes import Row
from fairnotice.model import Event
from fairnotice.portal.parts import Key, Page, Part, newest_first
from fairnotice.portal.site import Site, Viewer
from fairnotice.portal.telling import MEANINGS, told
from fairnotice.stores.store import Line, Store
from fairnotice.words import EventStatus, EventType

EVENTS_SHOWN = 200
# So many lines of the journal are read at a time, and so often: then whoever searches is asked.
READ_TOGETHER = 500
READS_MAX = 20


class Search(NamedTuple):
    """Which events are looked for."""

    vm: str = ""
    type: str = ""
    status: str = ""
    since: str = ""
    until: str = ""

    def finds(self, event: Event) -> bool:
        """Whether this is one of them; a VM is found by a part of its name."""
        since, until = _instant(self.since), _instant(self.until)
        return (
            (not self.type or event.type == self.type)
            and (not self.status or event.status == self.status)
            and (since is None or event.announced_at >= since)
            and (until is None or event.announced_at <= until)
            and (not self.vm or any(self.vm.lower() in name.lower() for name in event.resources))
        )


def _instant(text: str) -> datetime | None:
    """What a browser's field says, in UTC; None where it says nothing."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


class Older(NamedTuple):
    """Events of which only the journal knows, and from where on there may be more."""

    events: Mapping[str, Event] = {}
    before: int | None = None


async def older(site: Site, search: Search, before: int) -> Older:
    """Those that are looked for among what was over before this revision, the newest first."""
    found: dict[str, Event] = {}
    since = _instant(search.since)
    for _ in range(READS_MAX):
        ask = partial(_events_gone, before=before)
        lines = await site.service.conductor.ask_store(ask)
        for line in lines:
            event = line.change.row
            before = line.revision
            if search.finds(event) and event.id not in site.fleet.events:
                found[event.id] = event
            if len(found) >= EVENTS_SHOWN:
                return Older(found, before)
        if len(lines) < READ_TOGETHER or (since is not None and lines[-1].change.at < since):
            return Older(found)
    return Older(found, before)


def _events_gone(store: Store, before: int) -> list[Line]:
    return store.events_gone(before, READ_TOGETHER)


class HistoryPage(Page):
    """Events, the newest first: those of the last day, and older ones for as long as is kept."""

    template = "history.html"
    section = "history"

    def __init__(
        self, site: Site, viewer: Viewer, search: Search, before: int | None = None
    ) -> None:
        super().__init__(site, viewer)
        self.search = search
        # None: from now on back; else only what was over before this revision.
        self.before = before
        self.older = Older()
        self.types = list(EventType)
        self.statuses = list(EventStatus)

    async def look_back(self) -> "HistoryPage":
        """Read what only the journal knows; it does not change any more."""
        before = self.fleet.revision + 1 if self.before is None else self.before
        self.older = await older(self.site, self.search, before)
        return self

    @property
    def further(self) -> str:
        """Where the search goes on; empty where it has come to the end."""
        if self.older.before is None:
            return ""
        return "/history?" + urlencode({**self.search._asdict(), "before": self.older.before})

    def keys(self) -> Iterable[Key]:
        """The newest of those that are looked for, and what the journal has."""
        yield Key("found")
        if self.before is None:
            yield from (Key("past", event.id) for event in self._found())
        yield from (Key("past", name) for name in self.older.events)

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """The events among these rows."""
        if self.before is not None:
            return ()
        found = [Key("past", row.id) for row in rows if isinstance(row, Event)]
        return (Key("found"), *found)

    def part(self, key: Key) -> Part | None:
        """One of them."""
        if key.kind == "found":
            count = sum(self.search.finds(event) for event in self.fleet.events.values())
            more = {"count": count, "older": len(self.older.events), "most": EVENTS_SHOWN}
            return self.drawn(key, "found-box", "part_found.html", page=self, more=more)
        event = self.fleet.events.get(key.name) or self.older.events.get(key.name)
        if event is None or not self.search.finds(event):
            return None
        order = newest_first(event.announced_at) + event.id
        return self.drawn(
            key, "past", "part_past.html", order, told=told(self.fleet, event, self.now)
        )

    def _found(self) -> Iterable[Event]:
        newest = reversed(list(self.fleet.events.values()))
        return islice((event for event in newest if self.search.finds(event)), EVENTS_SHOWN)


class EventPage(Page):
    """One event, for as long as history is kept."""

    template = "event.html"
    section = "history"

    def __init__(self, site: Site, viewer: Viewer, history: shapes.History) -> None:
        super().__init__(site, viewer)
        self._history = history
        self.id = history.event.id

    @property
    def title(self) -> str:
        """What happened, or will."""
        event = self._history.event
        return f"{event.type} of {', '.join(event.resources[:3]) or 'nobody'}"

    async def refresh(self) -> None:
        """Read its story anew."""
        await super().refresh()
        self._history = await self.site.service.history(self.id)

    def keys(self) -> Iterable[Key]:
        """Few enough to be drawn all."""
        return (Key("event-head"), Key("event-promise"), Key("event-story"))

    def part(self, key: Key) -> Part | None:
        """One of them."""
        event = self._history.event
        row = self.fleet.events.get(self.id)
        more: dict[str, Any] = {
            "event": event,
            "steps": self._history.steps,
            "told": None if row is None else told(self.fleet, row, self.now),
            "meaning": MEANINGS[event.type],
        }
        return self.drawn(key, f"{key.kind}-box", f"part_{key.kind.replace('-', '_')}.html", **more)
