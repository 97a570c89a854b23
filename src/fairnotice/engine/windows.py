"""Weekly maintenance windows, in UTC (rule 22)."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.model import Window

WEEK_DAYS = 7
DAY_MINUTES = 24 * 60


def is_open(windows: Iterable[Window], at: datetime) -> bool:
    """Whether one of the windows is open; without any it always is."""
    windows = tuple(windows)
    if not windows:
        return True
    return any(
        opening <= at < opening + timedelta(minutes=window.length_minutes)
        for window in windows
        for opening in _openings(window, at - timedelta(days=WEEK_DAYS))
    )


def next_open(windows: Iterable[Window], at: datetime) -> datetime:
    """The first instant from `at` on at which a window is open."""
    windows = tuple(windows)
    if is_open(windows, at):
        return at
    return min(opening for window in windows for opening in _openings(window, at) if opening > at)


def next_closed(windows: Iterable[Window], at: datetime) -> datetime | None:
    """The first instant from `at` on at which no window is open; None where one always is."""
    windows = tuple(windows)
    closes_at = at
    while is_open(windows, closes_at):
        ends = (
            opening + timedelta(minutes=window.length_minutes)
            for window in windows
            for opening in _openings(window, closes_at - timedelta(days=WEEK_DAYS))
            if opening <= closes_at
        )
        closes_at = max((end for end in ends if end > closes_at), default=at)
        if closes_at == at or closes_at > at + timedelta(days=2 * WEEK_DAYS):
            return None
    return closes_at


class Problem(NamedTuple):
    """What is wrong with a window: which field of it, and why in words."""

    field: str
    why: str


def problem(window: Window) -> Problem | None:
    """What is wrong with a window; None where nothing is."""
    if not window.weekdays or not all(0 <= day < WEEK_DAYS for day in window.weekdays):
        return Problem("weekdays", "a window needs weekdays from 0 (Monday) to 6")
    if not 0 <= window.start_minute < DAY_MINUTES:
        return Problem("start_minute", "a window starts between minute 0 and 1439 of the day")
    if not 0 < window.length_minutes <= DAY_MINUTES * WEEK_DAYS:
        return Problem("length_minutes", "a window is between one minute and one week long")
    return None


def _openings(window: Window, after: datetime) -> Iterable[datetime]:
    """When the window opens in the eight days around a week from this instant on."""
    midnight = after.replace(hour=0, minute=0, second=0, microsecond=0)
    for offset in range(WEEK_DAYS + 1):
        day = midnight + timedelta(days=offset)
        if day.weekday() in window.weekdays:
            yield day + timedelta(minutes=window.start_minute)
