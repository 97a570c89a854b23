"""The only file that asks the system what time it is.

Time is an argument everywhere else: whoever needs it is handed a `Clock`, and the law is handed
the instants themselves. tests/test_house.py fails when another file reads a clock.

Two clocks, because they answer different questions. The wall clock says which instant it is and
may be stepped, forwards or backwards, by an operator or by NTP. The monotonic clock says how much
time has passed within one life of the process and cannot be stepped. Rule 25 needs both: a start
without approval waits for NotBefore on the one and for the notice to elapse on the other.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a room that needs time is handed."""

    def wall(self) -> datetime:
        """The current instant, as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never decreases within one life of the process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has passed on the monotonic clock."""
        ...


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def wall(self) -> datetime:
        """The machine's wall clock, as an aware datetime in UTC."""
        return datetime.now(UTC)

    # Asked for every poll of a VM, so there is nothing between the caller and the system.
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    async def sleep(seconds: float) -> None:
        """Return when so much time has passed on the machine's monotonic clock."""
        # What runs in a VM reads this clock too, and mostly without a loop.
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)
