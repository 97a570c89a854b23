"""Now: what is announced and under way, as a timeline and as a table; or that nothing is."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import islice
from typing import Any

from fairnotice.engine.changes import Row
from fairnotice.model import Event, Impact, Operation, Scope
from fairnotice.portal.parts import Key, Page, Part
from fairnotice.portal.site import Site, Viewer
from fairnotice.portal.telling import told
from fairnotice.portal.timeline import SPANS, Span, bar, span_of
from fairnotice.words import NodeState

# What is over stays in view, so that one sees how it ended.
OVER_SHOWN = 8
# Of more than these the next are shown: nobody reads further, and history has all.
LANES_SHOWN, BARS_SHOWN, EVENTS_SHOWN = 40, 20, 300
BROKEN = (NodeState.FAILED, NodeState.UNREACHABLE)
COUNTED_EVERY = timedelta(seconds=2)
# To choose from, beside the one that fits.
CHOICES = (60, 900, 10_800, 172_800, 2_592_000)
SUMMARY, AXIS, QUIET, OVER = Key("summary"), Key("axis"), Key("quiet"), Key("over")
ALWAYS = (SUMMARY, AXIS, QUIET, OVER)


class NowPage(Page):
    """What is scheduled and started."""

    template = "now.html"
    section = "now"

    def __init__(self, site: Site, viewer: Viewer, seconds: int | None = None) -> None:
        super().__init__(site, viewer)
        self._seconds = seconds if seconds in SPANS else None
        self._counted_at = self.now - COUNTED_EVERY
        self._enabled_count = 0
        self._counted_revision = 0
        self._shown = self._next()
        self._span = span_of(self._live(), self.now, self._seconds)

    # ---- The span of the timeline ----

    @property
    def state(self) -> str:
        """The span that is drawn, and of what some is left out."""
        return f"{self._span.begins_at.isoformat()} {self._span.seconds} {self._left_out()}"

    def resume(self, state: str) -> None:
        """Go on with a span of ours; of what was left out it is not known what the page has."""
        begins_at, _, more = state.partition(" ")
        seconds, _, left_out = more.partition(" ")
        try:
            span = Span(datetime.fromisoformat(begins_at), int(seconds))
        except ValueError:
            return
        unsure = left_out.split(",")
        self._shown = {key: None for key in self._shown if key.kind not in unsure}
        if span.seconds in SPANS and span.begins_at.tzinfo is not None:
            self._span = span

    def _moved(self) -> bool:
        """Whether another span is needed; then it is taken."""
        best = span_of(self._live(), self.now, self._seconds)
        lasts = self._span.begins_at <= self.now < self._span.redrawn_at
        if lasts and best.seconds == self._span.seconds:
            return False
        self._span = best
        return True

    # ---- Parts ----

    def keys(self) -> Iterable[Key]:
        """All of it, but of very many only the next."""
        self._moved()
        self._shown = self._next()
        return (*ALWAYS, *self._shown)

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """The rows and lanes of the events that changed; all lanes where the span did.

        And those that are among the next from now on, or no more.
        """
        before, self._shown = self._shown, self._next()
        found = dict.fromkeys(ALWAYS)
        rows = list(rows)
        for event in self._events_of(rows):
            found |= {Key("event", event.id): None, Key("lane", event.scope): None}
        untold = dict.fromkeys(Key("untold", _operation_of(row)) for row in rows)
        found |= dict.fromkeys(untold.keys() & self._shown.keys())
        found |= dict.fromkeys(before.keys() ^ self._shown.keys())
        if self._moved():
            found |= dict.fromkeys(self._lanes())
        return found

    def passing(self) -> Iterable[Key]:
        """When now has gone so far: another span. What has become due says so."""
        due = [event for event in self._live() if event.scheduled and event.not_before <= self.now]
        found = [key for event in due for key in (Key("event", event.id), Key("lane", event.scope))]
        if self._counted_revision < self.fleet.revision and self._is_count_due():
            found += [SUMMARY, QUIET]
        return (AXIS, *self._lanes(), *found) if self._moved() else found

    def part(self, key: Key) -> Part | None:
        """One of them."""
        if key.kind in ("event", "lane", "untold"):
            draw = {"event": self._event, "lane": self._lane, "untold": self._untold}[key.kind]
            return draw(key) if key in self._shown else None
        more: dict[str, Any] = {}
        if key == SUMMARY:
            more = {"counts": self._counts()}
        elif key == AXIS:
            lanes = len([key for key in self._shown if key.kind == "lane"])
            more = {"span": self._span, "choices": CHOICES, "chosen": self._seconds}
            more |= {"lanes": lanes, "of_lanes": len(self.fleet.events_in_scope)}
        elif key == QUIET:
            more = {"vm": next(iter(self.fleet.vms), None), "nodes": self.fleet.nodes}
            more |= {"broken": self._broken(), "deaf": bool(self.fleet.vms) and not self._enabled()}
        elif key == OVER:
            more = {"over": [told(self.fleet, event, self.now) for event in self._over()]}
        return self.drawn(key, f"{key.kind}-box", f"part_{key.kind}.html", **more)

    def _event(self, key: Key) -> Part | None:
        event = self.fleet.events.get(key.name)
        if event is None or not event.visible:
            return None
        shown = told(self.fleet, event, self.now)
        return self.drawn(key, "events", "part_event.html", _order(event), told=shown)

    def _untold(self, key: Key) -> Part | None:
        operation = self.fleet.operations.get(key.name)
        if operation is None or not operation.live:
            return None
        order = f"{operation.pending:d}{operation.not_before:%Y%m%d%H%M%S}{operation.id}"
        return self.drawn(key, "events", "part_untold.html", order, operation=operation)

    def _lane(self, key: Key) -> Part | None:
        names = self.fleet.events_in_scope.get(key.name, ())
        events = sorted((self.fleet.events[name] for name in names), key=_order)
        if not events:
            return None
        next_ones = events[:BARS_SHOWN]
        bars = [
            (told(self.fleet, event, self.now), bar(event, self._span, self.now))
            for event in next_ones
        ]
        order = _order(events[0])
        return self.drawn(key, "lanes", "part_lane.html", order, bars=bars, scope=key.name)

    # ---- What there is ----

    def _live(self) -> list[Event]:
        names = (name for names in self.fleet.events_in_scope.values() for name in names)
        return [self.fleet.events[name] for name in names]

    def _next(self) -> dict[Key, None]:
        """The events and scopes that are shown: those under way, and then those that come next."""
        live = sorted(self._live(), key=_order)
        scopes = islice(dict.fromkeys(event.scope for event in live), LANES_SHOWN)
        shown = dict.fromkeys(Key("lane", scope) for scope in scopes)
        shown |= dict.fromkeys(Key("event", event.id) for event in live[:EVENTS_SHOWN])
        return shown | dict.fromkeys(Key("untold", name) for name in self._untold_operations())

    def _untold_operations(self) -> list[str]:
        """What is about to be done, or is, without an event: in its scopes nobody listens."""
        places = (self.fleet.operations_on_vm, self.fleet.operations_on_node)
        names = {name for place in places for names in place.values() for name in names}
        untold = (self.fleet.operations[name] for name in names)
        mute = [one for one in untold if not any(self._is_visible(name) for name in one.events)]
        mute.sort(key=lambda one: (one.not_before, one.id))
        return [one.id for one in mute[:EVENTS_SHOWN]]

    def _is_visible(self, name: str) -> bool:
        event = self.fleet.events.get(name)
        return event is not None and event.visible

    def _broken(self) -> list[str]:
        """The nodes that have failed, or of which nothing is heard."""
        return [node.name for node in self.fleet.nodes.values() if node.state in BROKEN]

    def _left_out(self) -> str:
        """The kinds of parts of which not all are shown."""
        scopes = self.fleet.events_in_scope
        lanes = ("lane",) if len(scopes) > LANES_SHOWN else ()
        events = ("event",) if sum(map(len, scopes.values())) > EVENTS_SHOWN else ()
        return ",".join((*lanes, *events))

    def _lanes(self) -> Iterable[Key]:
        return [key for key in self._shown if key.kind == "lane"]

    def _over(self) -> list[Event]:
        over = ((event.gone_at, event.id) for event in self.fleet.events.values() if event.gone_at)
        return [self.fleet.events[name] for _, name in nlargest(OVER_SHOWN, over)]

    def _counts(self) -> dict[str, int]:
        live = self._live()
        waiting = [event for event in live if event.scheduled]
        concerned = {name for event in live for name in event.resources}
        names = [key.name for key in self._shown if key.kind == "untold"]
        untold = [self.fleet.operations[name] for name in names if name in self.fleet.operations]
        concerned |= {name for operation in untold for name in operation.vms}
        return {
            "scheduled": len(waiting),
            "left_out": max(len(live) - EVENTS_SHOWN, 0),
            "started": len(live) - len(waiting),
            "vms": len(concerned),
            "of_vms": len(self.fleet.vms),
            "nodes": len(self.fleet.nodes),
            "scopes": len(self.fleet.scopes),
            "enabled": self._enabled(),
            "untold": len(untold),
            "broken": len(self._broken()),
        }

    def _enabled(self) -> int:
        """How many scopes listen. There may be many, so they are not counted at every change."""
        if self._is_count_due():
            self._counted_at = self.now
            self._enabled_count = sum(scope.enabled for scope in self.fleet.scopes.values())
            self._counted_revision = self.fleet.revision
        return self._enabled_count

    def _is_count_due(self) -> bool:
        return self.now >= self._counted_at + COUNTED_EVERY

    def _events_of(self, rows: Iterable[Row]) -> Iterable[Event]:
        """The events that these rows are about."""
        for row in rows:
            if isinstance(row, Event):
                yield row
            elif isinstance(row, Operation | Impact):
                operation = row if isinstance(row, Operation) else None
                known = operation or self.fleet.operations.get(getattr(row, "operation", ""))
                names = known.events if known is not None else ()
                yield from (self.fleet.events[name] for name in names if name in self.fleet.events)
            elif isinstance(row, Scope):
                shown = self.fleet.events_in_scope.get(row.name, ())
                yield from (self.fleet.events[name] for name in shown)


def _operation_of(row: Row) -> str:
    """The operation that a row is about; empty where it is about none."""
    if isinstance(row, Operation):
        return row.id
    return row.operation if isinstance(row, Impact | Event) else ""


def _order(event: Event) -> str:
    """What is under way comes first, then what comes next; of one instant, by scope."""
    return f"{event.scheduled:d}{event.not_before:%Y%m%d%H%M%S}{event.scope} {event.id}"
