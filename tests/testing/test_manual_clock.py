"""The clock the test owns."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from fairnotice.clock import Clock
from fairnotice.errors import UsageError
from fairnotice.testing.manual_clock import ManualClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_it_stands_still_until_advanced():
    """Two looks at a clock nobody moved show the same instant."""
    clock: Clock = ManualClock(NOON)

    assert (clock.wall(), clock.monotonic()) == (NOON, 0.0)
    assert (clock.wall(), clock.monotonic()) == (NOON, 0.0)


def test_advancing_moves_both_clocks_by_the_same():
    """A day, an hour, a minute and a second pass on the wall and on the monotonic clock."""
    clock = ManualClock(NOON)

    assert clock.advance(days=1, hours=1, minutes=1, seconds=1) == clock.wall()

    assert clock.wall() == datetime(2026, 3, 2, 13, 1, 1, tzinfo=UTC)
    assert clock.monotonic() == 86_400 + 3_600 + 60 + 1


def test_time_does_not_pass_backwards():
    """A negative advance is refused, and nothing has changed."""
    clock = ManualClock(NOON)

    with pytest.raises(UsageError, match=r"backwards \(-1 s\).*set_wall"):
        clock.advance(seconds=-1)

    assert (clock.wall(), clock.monotonic()) == (NOON, 0.0)


def test_a_stepped_wall_clock_leaves_the_monotonic_one_alone():
    """NTP sets the wall clock back an hour; elapsed time goes on counting."""
    clock = ManualClock(NOON)
    clock.advance(seconds=10)

    clock.set_wall(NOON - timedelta(hours=1))
    clock.advance(seconds=5)

    assert clock.wall() == NOON - timedelta(hours=1) + timedelta(seconds=5)
    assert clock.monotonic() == 15


def test_another_zone_is_read_in_utc():
    """Two o'clock in a zone two hours ahead is noon in UTC."""
    clock = ManualClock(datetime(2026, 3, 1, 14, tzinfo=timezone(timedelta(hours=2))))

    assert clock.wall() == NOON
    assert clock.wall().tzinfo is UTC


def test_a_naive_instant_is_refused():
    """A datetime without a zone is nobody's instant."""
    with pytest.raises(UsageError, match="aware"):
        ManualClock(NOON.replace(tzinfo=None))
