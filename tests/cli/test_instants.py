"""Time as people type it and read it."""

import argparse
from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.cli.instants import instant, length, seconds, seconds_in_words, until, window
from fairnotice.control.in_words import notice_in_words

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_lengths_of_time():
    """A number and a unit, several where need be; without a unit it is seconds."""
    assert length("90s") == timedelta(seconds=90)
    assert length("1h30m") == timedelta(minutes=90)
    assert length("75") == length("75s")
    assert (seconds("0.5"), seconds("0"), seconds("2m")) == (0.5, 0, 120)
    for wrong in ("", "m", "-5m", "0s", "0", "99999d", "1.5h", "nan", "inf", "1e9", "-1"):
        with pytest.raises(argparse.ArgumentTypeError):
            length(wrong)


def test_instants():
    """From now on, or fixed; in another time zone it is the same instant."""
    assert instant("+15m")(NOON) == NOON + timedelta(minutes=15)
    with pytest.raises(argparse.ArgumentTypeError, match="15m for 15 minutes"):
        instant("+15")
    assert instant("2026-01-31T22:00Z")(NOON) == datetime(2026, 1, 31, 22, tzinfo=UTC)
    assert instant("2026-01-31T23:00+01:00")(NOON) == datetime(2026, 1, 31, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sat,Sun 22:00-04:00", ([5, 6], 1320, 360)),
        ("mon-fri 1:00-05:30", ([0, 1, 2, 3, 4], 60, 270)),
        ("Sat-Mon 00:00-00:00", ([0, 5, 6], 0, 1440)),
    ],
)
def test_windows(text, expected):
    """Days, and from when to when; past midnight too."""
    found = window(text)

    assert (found["weekdays"], found["start_minute"], found["length_minutes"]) == expected


@pytest.mark.parametrize("text", ["Sat", "Caturday 1:00-2:00", "Sat 25:00-26:00", "Sat 1:99-2:00"])
def test_what_is_no_window(text):
    """It is refused with an example."""
    with pytest.raises(argparse.ArgumentTypeError, match="Sat,Sun"):
        window(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.2 s"),
        (-3, "0.0 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_seconds_in_words(seconds, words):
    """As much as one wants to know."""
    assert seconds_in_words(seconds) == words


def test_a_notice_is_told_as_it_was_promised():
    """NotBefore is rounded up to a whole second: that is no more notice."""
    assert [notice_in_words(seconds) for seconds in (900.7, 30.0, 0.4)] == [
        "15 min",
        "30 s",
        "0.4 s",
    ]


def test_how_long_until():
    """In the future, now, in the past."""
    ahead = [until(NOON + timedelta(seconds=seconds), NOON) for seconds in (90, 0.5, -90)]

    assert ahead == ["in 1 min 30 s", "now", "1 min 30 s ago"]
