"""History: events by VM, type and time; and one event as a story, with its notice kept or not."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from fairnotice.control import shapes
from fairnotice.engine.changes import Row
from fairnotice.model import Event
from fairnotice.portal.parts import Key, Page, Part, newest_first
from fairnotice.portal.site import Site, Viewer
from fairnotice.portal.telling import MEANINGS, told
from fairnotice.words import EventStatus, EventType

EVENTS_SHOWN = 200


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


class HistoryPage(Page):
    """The events of the last day, the newest first."""

    template = "history.html"
    section = "history"

    def __init__(self, site: Site, viewer: Viewer, search: Search) -> None:
        super().__init__(site, viewer)
        self.search = search
        self.types = list(EventType)
        self.statuses = list(EventStatus)

    def keys(self) -> Iterable[Key]:
        """The newest of those that are looked for."""
        yield Key("found")
        yield from (Key("past", event.id) for event in self._found())

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """The events among these rows."""
        found = [Key("past", row.id) for row in rows if isinstance(row, Event)]
        return (Key("found"), *found)

    def part(self, key: Key) -> Part | None:
        """One of them."""
        if key.kind == "found":
            count = sum(self.search.finds(event) for event in self.fleet.events.values())
            known = len(self.fleet.events)
            return self.drawn(
                key, "found-box", "part_found.html", count=count, known=known, most=EVENTS_SHOWN
            )
        event = self.fleet.events.get(key.name)
        if event is None or not self.search.finds(event):
            return None
        order = newest_first(event.announced_at) + event.id
        return self.drawn(key, "past", "part_past.html", order, told=told(event, self.now))

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
            "told": None if row is None else told(row, self.now),
            "meaning": MEANINGS[event.type],
        }
        return self.drawn(key, f"{key.kind}-box", f"part_{key.kind.replace('-', '_')}.html", **more)
