"""The system's clocks, seen through the one file that reads them."""

from datetime import UTC, timedelta

from fairnotice.clock import Clock, SystemClock


def test_the_wall_clock_is_aware_and_in_utc():
    """Instants are aware datetimes; nobody downstream has to guess the zone."""
    assert SystemClock().wall().tzinfo is UTC


def test_both_clocks_move_on_and_agree():
    """Between two looks, neither clock goes back, and the wall clock shows today."""
    clock: Clock = SystemClock()
    wall, monotonic = clock.wall(), clock.monotonic()

    assert clock.monotonic() >= monotonic
    assert abs(clock.wall() - wall) < timedelta(minutes=1)
