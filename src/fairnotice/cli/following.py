"""Events as they follow from the feed: what there is now, and each change as a sentence."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from fairnotice.cli.instants import clock_time, from_api, seconds_in_words

Row = Mapping[str, Any]


class Followed(NamedTuple):
    """An event as the feed told of it last."""

    id: str
    type: str
    status: str
    resources: tuple[str, ...]
    announced_at: datetime
    not_before: datetime
    started_at: datetime | None
    gone_at: datetime | None
    seen: tuple[str, ...]
    approved_by: str
    settling: bool
    reason: str
    # Nodes whose endpoint has to confirm it before it starts; none where it is approved (rule 5).
    held_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`Reboot of web-0, web-1`."""
        return f"{self.type} of {', '.join(self.resources) or 'nobody'}"


class Told(NamedTuple):
    """One change, for people: when, which event, and what happened."""

    at: datetime
    event: Followed
    text: str


def followed(row: Row) -> Followed:
    """The event of a row of the feed. What has no name there stands in the order of the model."""
    approval = row["approval"]
    return Followed(
        id=row["id"],
        type=row["type"],
        status=row["status"],
        resources=tuple(row["resources"]),
        announced_at=from_api(row["announced_at"]),
        not_before=from_api(row["not_before"]),
        started_at=_instant(row["started_at"]),
        gone_at=_instant(row["gone_at"]),
        seen=tuple(_first(seen, "vm") for seen in row["seen"]),
        approved_by="" if approval is None else _first(approval, "by"),
        settling=row["settling_since"] is not None,
        reason=row["reason"],
        held_by=tuple(row.get("unconfirmed", ())) if _waits(row) else (),
    )


def _waits(row: Row) -> bool:
    return row["status"] == "Scheduled" and row["approval"] is None


def _instant(text: str | None) -> datetime | None:
    return None if text is None else from_api(text)


def _first(pair: Any, name: str) -> str:  # noqa: ANN401, a list or a table
    return str(pair[name] if isinstance(pair, dict) else pair[0])


class Following:
    """All events that the feed has told of, and only those that name one VM where that is asked."""

    def __init__(self, vm: str | None = None) -> None:
        self._vm = vm
        self.events: dict[str, Followed] = {}
        self.revision = 0
        # Impacts name their operation, and so does an event's row.
        self._operations: dict[str, list[str]] = {}
        self._in_snapshot = False

    def take(self, line: Row) -> list[Told]:
        """Follow one line of the feed; what there is to tell of it."""
        snapshot = line["what"] == "Snapshot"
        if snapshot and not self._in_snapshot:
            self.events.clear()
            self._operations.clear()
        self._in_snapshot = snapshot
        self.revision = line["revision"]
        row = line["row"]
        if line["kind"] == "event" and self._concerns(row["resources"], row["id"]):
            return self._take_event(line, followed(row))
        if line["kind"] == "impact" and not line["removed"] and not snapshot:
            return self._take_impact(line, row)
        return []

    def _concerns(self, vms: Iterable[str], event: str = "") -> bool:
        return self._vm is None or self._vm in vms or event in self.events

    def _take_event(self, line: Row, event: Followed) -> list[Told]:
        before = self.events.get(event.id)
        if line["removed"]:
            self.events.pop(event.id, None)
            return []
        self.events[event.id] = event
        mine = self._operations.setdefault(line["row"]["operation"], [])
        if event.id not in mine:
            mine.append(event.id)
        if line["at"] is None:
            return []
        at = from_api(line["at"])
        return [Told(at, event, text) for text in _sentences(line["what"], event, before)]

    def _take_impact(self, line: Row, row: Row) -> list[Told]:
        event = self._event_of(row)
        if event is None:
            return []
        word = "begun" if line["what"] == "ImpactBegun" else row["status"]
        to = f" to {row['target']}" if row["target"] and word == "begun" else ""
        why = f": {row['reason']}" if row["reason"] else ""
        return [Told(from_api(line["at"]), event, f"{row['kind']} of {row['vm']}{to} {word}{why}")]

    def _event_of(self, row: Row) -> Followed | None:
        known = (self.events.get(name) for name in self._operations.get(row["operation"], ()))
        found = [event for event in known if event is not None and row["vm"] in event.resources]
        return found[0] if found else None


# ---- Sentences ----


def _announced(event: Followed) -> str:
    notice = (event.not_before - event.announced_at).total_seconds()
    return f"announced, {seconds_in_words(notice)} of notice"


def _started(event: Followed) -> str:
    assert event.started_at is not None
    given = (event.started_at - event.announced_at).total_seconds()
    return f"started after {seconds_in_words(given)} of notice" if given else "started at once"


def _gone(event: Followed) -> str:
    why = f" ({event.reason})" if event.reason else ""
    return f"gone: {event.status}{why}"


_SENTENCES: dict[str, Callable[[Followed], str]] = {
    "EventAnnounced": _announced,
    "EventApproved": lambda event: f"approved by {event.approved_by}",
    "EventPostponed": lambda event: (
        f"postponed, not before {clock_time(event.not_before, event.announced_at)}"
    ),
    "EventResourcesChanged": lambda event: f"now names {', '.join(event.resources) or 'nobody'}",
    "EventStarted": _started,
    "EventSettling": lambda _: "all impact is over",
    "EventGone": _gone,
}


def _sentences(what: str, event: Followed, before: Followed | None) -> list[str]:
    if what == "EventSeen":
        known = before.seen if before is not None else ()
        return [f"first seen by {vm}" for vm in event.seen if vm not in known]
    tell = _SENTENCES.get(what)
    return [] if tell is None else [tell(event)]
