"""Waiting until something is so: no longer than it takes, and not for ever."""

import asyncio
import threading

from fairnotice.clock import SystemClock

PATIENCE_SECONDS = 20.0
LOOK_AGAIN_SECONDS = 0.02
CLOCK = SystemClock()


def until(holds, what="it", seconds=PATIENCE_SECONDS):
    """Wait until something holds, in a thread; what it then is."""
    ends = CLOCK.monotonic() + seconds
    while not (found := holds()):
        assert CLOCK.monotonic() < ends, f"{what} did not come in {seconds:g} s"
        threading.Event().wait(LOOK_AGAIN_SECONDS)
    return found


async def soon(holds, what="it", seconds=PATIENCE_SECONDS):
    """The same in a loop, in which everything else goes on."""
    ends = CLOCK.monotonic() + seconds
    while not (found := holds()):
        assert CLOCK.monotonic() < ends, f"{what} did not come in {seconds:g} s"
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return found
