"""A clock the test owns."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

from fairnotice.clock import Clock, SystemClock
from fairnotice.errors import UsageError

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class RealPace:
    """The clock of an endpoint before a law whose clock a test owns.

    NotBefore and Date are on the test's clock, while the rate and the waits of real clients go by
    the machine's: where time stands still nobody would be answered a second time.
    """

    def __init__(self, shown: Clock) -> None:
        self._shown = shown

    def wall(self) -> datetime:
        """The instant that the test has set."""
        return self._shown.wall()

    monotonic = staticmethod(SystemClock.monotonic)
    sleep = staticmethod(SystemClock.sleep)


class ManualClock:
    """A `fairnotice.clock.Clock` that moves only when it is told to.

    Both of its clocks advance together. `set_wall` steps the wall clock alone, in either
    direction, as an operator or NTP does to a real machine.
    """

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        self._wall = _in_utc(start)
        # Whole microseconds: sums of seconds that are not exact would wake nobody at the instant
        # at which somebody is due.
        self._passed = timedelta(0)
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []
        self._sequence = count()

    def wall(self) -> datetime:
        """The instant the test has set, in UTC."""
        return self._wall

    def monotonic(self) -> float:
        """Seconds by which the test has advanced the clock."""
        return self._passed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return when the test has let so much time pass."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = self._passed + max(timedelta(seconds=seconds), timedelta.resolution)
        heapq.heappush(self._sleepers, (due, next(self._sequence), woken))
        await woken

    @property
    def next_wake(self) -> datetime | None:
        """When the first of those who sleep has slept long enough; None where nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            return None
        return self._wall + (self._sleepers[0][0] - self._passed)

    def _wake(self) -> None:
        """Wake whoever has slept long enough, in the loop that he sleeps in."""
        while self._sleepers and self._sleepers[0][0] <= self._passed:
            woken = heapq.heappop(self._sleepers)[2]
            woken.get_loop().call_soon_threadsafe(_finish, woken)

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
        self._passed += passed
        self._wake()
        return self._wall

    def set_wall(self, instant: datetime) -> None:
        """Step the wall clock to `instant`; the monotonic clock does not notice."""
        self._wall = _in_utc(instant)


def _finish(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


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
