"""Where the bars of the timeline are: instants to percents of a span of time. No HTML here."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from fairnotice.model import Event

MINUTE, HOUR, DAY = 60, 3600, 86400
# What a timeline may span, and how far apart its marks are.
SPANS = {
    MINUTE: 10,
    2 * MINUTE: 20,
    3 * MINUTE: 30,
    5 * MINUTE: MINUTE,
    10 * MINUTE: 2 * MINUTE,
    15 * MINUTE: 3 * MINUTE,
    30 * MINUTE: 5 * MINUTE,
    HOUR: 10 * MINUTE,
    3 * HOUR: 30 * MINUTE,
    12 * HOUR: 2 * HOUR,
    2 * DAY: 8 * HOUR,
    8 * DAY: DAY,
    30 * DAY: 5 * DAY,
    120 * DAY: 20 * DAY,
    480 * DAY: 80 * DAY,
}
LONGEST = max(SPANS)
# Where now is when a span begins, and where it is when the next one does.
NOW_AT, NOW_MAX = 0.15, 0.4
# What is further away than so many times what is nearer does not squeeze it, where it is the lesser
# part: it is told in words. Azure's own notices, 30 seconds to 15 minutes, are not so far apart.
FAR = 40.0
# Of what is over nobody knows how long; of what is to come, if nothing is said: a part of the span.
UNKNOWN_SHARE = 0.06
UNKNOWN_SECONDS_MAX = 120.0
# A bar is at least so wide, in percent, or nobody sees it.
LEAST = 0.4
# Beyond this, in percent, there is more room on the left.
MIDDLE = 55


class Mark(NamedTuple):
    """One line of the axis."""

    at_percent: float
    text: str


class Span(NamedTuple):
    """The time that a timeline shows."""

    begins_at: datetime
    seconds: int

    @property
    def ends_at(self) -> datetime:
        """The right edge."""
        return self.begins_at + timedelta(seconds=self.seconds)

    @property
    def redrawn_at(self) -> datetime:
        """When now has come so far that the next span begins."""
        return self.begins_at + timedelta(seconds=self.seconds * NOW_MAX)

    def percent(self, when: datetime) -> float:
        """Where an instant is; at an edge where it is beyond."""
        share = (when - self.begins_at).total_seconds() / self.seconds
        return round(100 * min(max(share, 0.0), 1.0), 3)

    def marks(self) -> list[Mark]:
        """The axis, at round instants."""
        step = SPANS[self.seconds]
        first = -(-int(self.begins_at.timestamp()) // step) * step
        last = int(self.ends_at.timestamp())
        instants = (datetime.fromtimestamp(at, UTC) for at in range(first, last, step))
        return [Mark(self.percent(at), _text(at, self.seconds)) for at in instants]


def _text(at: datetime, seconds: int) -> str:
    if seconds <= 5 * MINUTE:
        return f"{at:%H:%M:%S}"
    return f"{at:%H:%M}" if seconds <= 12 * HOUR else f"{at:%a %d, %H:%M}"


class Bar(NamedTuple):
    """An event on the timeline, in percents: its notice, then its impact."""

    notice_at: float
    notice_width: float
    impact_at: float
    impact_width: float
    # None where the timeline does not reach it.
    not_before_at: float | None
    # It goes on for as long as it goes on: its right end is now.
    grows: bool
    # It is further away than the timeline shows.
    beyond: bool

    @property
    def text_before(self) -> bool:
        """Whether there is more room on the left of it."""
        return self.notice_at > MIDDLE


def span_of(events: Iterable[Event], now: datetime, seconds: int | None = None) -> Span:
    """The span that shows these best, or the one that was asked for."""
    ahead = sorted(max((event.not_before - now).total_seconds(), 0.0) for event in events)
    if seconds is None:
        seconds = _fitting(ahead)
    step = SPANS[seconds]
    begins = (now.timestamp() - seconds * NOW_AT) // step * step
    return Span(datetime.fromtimestamp(begins, UTC), seconds)


def _fitting(ahead: list[float]) -> int:
    reach = float(MINUTE) / 2
    for nearer, one in enumerate(ahead):
        if one > reach * FAR and 2 * nearer >= len(ahead):
            break
        reach = max(reach, one)
    share = 1 - NOW_MAX - UNKNOWN_SHARE
    return next((span for span in SPANS if span * share >= reach), LONGEST)


def bar(event: Event, span: Span, now: datetime) -> Bar:
    """Where this event is."""
    starts_at = event.started_at or event.not_before
    impact_at = span.percent(starts_at)
    notice_at = span.percent(event.announced_at)
    grows = event.started_at is not None and event.gone_at is None and event.duration_seconds < 0
    ends_at = event.gone_at or _expected_end(event, starts_at, span)
    ends_at = max(ends_at, now) if event.started_at else ends_at
    if grows:
        ends_at = now
    return Bar(
        notice_at=notice_at,
        notice_width=max(round(impact_at - notice_at, 3), 0.0),
        impact_at=impact_at,
        impact_width=max(round(span.percent(ends_at) - impact_at, 3), LEAST),
        not_before_at=_inside(span, event.not_before),
        grows=grows,
        beyond=starts_at >= span.ends_at,
    )


def _inside(span: Span, when: datetime) -> float | None:
    return span.percent(when) if span.begins_at <= when < span.ends_at else None


def _expected_end(event: Event, starts_at: datetime, span: Span) -> datetime:
    known = event.duration_seconds >= 0
    unknown = min(span.seconds * UNKNOWN_SHARE, UNKNOWN_SECONDS_MAX)
    seconds = event.duration_seconds if known else unknown
    return starts_at + timedelta(seconds=seconds)
