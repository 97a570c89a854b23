"""A clock the test owns."""

from datetime import UTC, datetime, timedelta

from fairnotice.errors import UsageError

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A `fairnotice.clock.Clock` that moves only when it is told to.

    Both of its clocks advance together. `set_wall` steps the wall clock alone, in either
    direction, as an operator or NTP does to a real machine.
    """

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        self._wall = _in_utc(start)
        self._monotonic = 0.0

    def wall(self) -> datetime:
        """The instant the test has set, in UTC."""
        return self._wall

    def monotonic(self) -> float:
        """Seconds by which the test has advanced the clock."""
        return self._monotonic

    def advance(
        self,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> datetime:
        """Let time pass on both clocks; the new wall time. Time does not pass backwards."""
        passed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        must_not_pass_backwards(passed)
        self._wall += passed
        self._monotonic += passed.total_seconds()
        return self._wall

    def set_wall(self, instant: datetime) -> None:
        """Step the wall clock to `instant`; the monotonic clock does not notice."""
        self._wall = _in_utc(instant)


def must_not_pass_backwards(passed: timedelta) -> None:
    """UsageError unless this much time can pass."""
    if passed < timedelta(0):
        raise UsageError(
            f"Time cannot pass backwards ({passed.total_seconds():g} s). "
            "To step the wall clock, as NTP does, use the clock's set_wall."
        )


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise UsageError(f"{instant} has no time zone; give an aware datetime")
    return instant.astimezone(UTC)
