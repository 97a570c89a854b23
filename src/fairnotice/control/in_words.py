"""Time as people read it, on a terminal and on a page: `4 min 10 s`, `Sat,Sun 22:00-04:00`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400
DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def seconds_in_words(seconds: float) -> str:
    """`0.4 s`, `12 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 1:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    for unit, word, small, small_word in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // small
            return f"{whole // unit} {word}" + (f" {rest} {small_word}" if rest else "")
    return f"{whole} s"


def notice_in_words(seconds: float) -> str:
    """A notice as it was promised: NotBefore is a whole second, so what is beyond one is chance."""
    return seconds_in_words(int(seconds) if seconds >= 1 else seconds)


def clock_time(when: datetime, now: datetime) -> str:
    """`12:37:16` today, with the date on another day; in UTC."""
    same = when.date() == now.date()
    return f"{when:%H:%M:%S}" if same else f"{when:%Y-%m-%d %H:%M:%S}"


def window_in_words(found: Mapping[str, Any]) -> str:
    """A window of the API as it is typed: `Sat,Sun 22:00-04:00`; a longer one with its length."""
    days = ",".join(DAY_NAMES[day] for day in found["weekdays"])
    begins, minutes = found["start_minute"], found["length_minutes"]
    if minutes > DAY // MINUTE:
        return f"{days} {_hour(begins)} for {seconds_in_words(minutes * MINUTE)}"
    return f"{days} {_hour(begins)}-{_hour((begins + minutes) % (DAY // MINUTE))}"


def _hour(minute: int) -> str:
    hour, minute = divmod(minute, HOUR // MINUTE)
    return f"{hour:02}:{minute:02}"
