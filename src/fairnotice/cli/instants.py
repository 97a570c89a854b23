"""Time as people type and read it: `+15m`, `2026-01-31T22:00Z`, `in 4 min`."""

import argparse
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from fairnotice.control.in_words import (
    DAY,
    DAY_NAMES,
    HOUR,
    MINUTE,
    clock_time,
    seconds_in_words,
    window_in_words,
)

# Shown by the portal too, so they are told on its floor.
__all__ = ["MINUTE", "clock_time", "seconds_in_words", "window_in_words"]
_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
_LENGTH = re.compile(r"(?:\d+[smhd])+")
_PART = re.compile(r"(\d+)([smhd])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DAYS = tuple(name.lower() for name in DAY_NAMES)
_WINDOW = re.compile(
    r"(?P<days>[a-z,-]+) (?P<from>\d\d?:\d\d)-(?P<to>\d\d?:\d\d)", re.IGNORECASE | re.ASCII
)
# Beyond this, nobody plans; and no sum of instants is more than a clock can show.
_LENGTH_SECONDS_MAX = 400 * DAY


# ---- Typed ----


def length(text: str) -> timedelta:
    """A length of time: `90s`, `15m`, `1h30m`, `2d`; a number alone is seconds, `75` or `0.5`."""
    found = seconds(text)
    if not found:
        raise _no_length(text)
    return timedelta(seconds=found)


def seconds(text: str) -> float:
    """The same in seconds, and 0 is one, too."""
    if _NUMBER.fullmatch(text):
        found = float(text)
    elif _LENGTH.fullmatch(text):
        found = float(sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    else:
        raise _no_length(text)
    if found > _LENGTH_SECONDS_MAX:
        raise _no_length(text)
    return found


def _no_length(text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is no length of time; try 90s, 15m or 1h30m")


def instant(text: str) -> Callable[[datetime], datetime]:
    """An instant, `2026-01-31T22:00Z`, or one from now on, `+15m`: what it is, given now."""
    # A number alone might be meant as minutes there: what is done then should be no surprise.
    if text.startswith("+") and text[-1:] in _UNITS:
        ahead = length(text[1:])
        return lambda now: now + ahead
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no instant; try 2026-01-31T22:00Z, or +15m for 15 minutes from now"
        )
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} does not say in which time zone; put a Z behind it for UTC"
        )
    fixed = found.astimezone(UTC)
    return lambda _: fixed


def window(text: str) -> dict[str, object]:
    """A weekly maintenance window as the API takes it: `Sat,Sun 22:00-04:00`, in UTC."""
    found = _WINDOW.fullmatch(text.strip())
    weekdays = _weekdays(found["days"].lower()) if found else []
    begins, ends = (_minute(found["from"]), _minute(found["to"])) if found else (None, None)
    if not weekdays or begins is None or ends is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no window; try 'Sat,Sun 22:00-04:00' or 'Mon-Fri 01:00-05:00' (UTC)"
        )
    minutes = (ends - begins) % (DAY // MINUTE) or DAY // MINUTE
    return {"weekdays": weekdays, "start_minute": begins, "length_minutes": minutes}


def _weekdays(text: str) -> list[int]:
    """`mon-fri,sun` as numbers, Monday is 0; none where a word is no day."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            return []
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found |= {day % 7 for day in range(begin, end + (1 if begin <= end else 8))}
    return sorted(found)


def _minute(text: str) -> int | None:
    hour, _, minute = text.partition(":")
    fits = int(hour) < DAY // HOUR and int(minute) < HOUR // MINUTE
    return int(hour) * (HOUR // MINUTE) + int(minute) if fits else None


# ---- Shown ----


def from_api(text: str) -> datetime:
    """An instant of the API."""
    return datetime.fromisoformat(text)


def to_api(when: datetime) -> str:
    """An instant for the API."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Said of an event that is past its NotBefore, and has not started.
DUE = "due: waits for its turn"


def countdown(not_before: datetime, now: datetime, held_by: Iterable[str] = ()) -> str:
    """`in 12 s` of what is still to come; what is past is held by nodes, or waits for its turn."""
    if not_before > now:
        return until(not_before, now)
    nodes = ", ".join(held_by)
    return f"held: not confirmed by {nodes}" if nodes else DUE


def until(when: datetime, now: datetime) -> str:
    """`in 12 s`, `now`, `4 min ago`."""
    seconds = (when - now).total_seconds()
    if seconds >= 1:
        return f"in {seconds_in_words(seconds)}"
    return "now" if seconds > -1 else f"{seconds_in_words(-seconds)} ago"
