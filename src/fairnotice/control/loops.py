"""Loops that go on for as long as the process does, whatever they meet.

A fault of our own in one of them would else end it for good, while everything beside it goes on and
looks well. So it is said, counted, and the loop begins anew. And those that say when they have gone
round are known to be stuck where they no longer do.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from fairnotice.clock import Clock

log = logging.getLogger(__name__)

# Before a loop begins anew: one that fails at once must not fill the log.
AGAIN_SECONDS = 1.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Loops:
    """The loops of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Faults of our own, for the metrics.
        self.faults_count = 0
        self._turned_at: dict[str, float] = {}

    async def endure(self, name: str, work: Work) -> None:
        """Do this until it ends by itself; after a fault, from its beginning."""
        while True:
            try:
                await work()
            except Exception:
                self.faults_count += 1
                log.exception("a fault of fairnotice itself; %s begins anew", name)
                await self._clock.sleep(AGAIN_SECONDS)
            else:
                return

    @contextlib.asynccontextmanager
    async def beside(self, **works: Work) -> AsyncIterator[None]:
        """Have these done meanwhile, and end them with the block."""
        tasks = [asyncio.ensure_future(self.endure(name, work)) for name, work in works.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def turned(self, name: str) -> None:
        """This loop has gone round."""
        self._turned_at[name] = self._clock.monotonic()

    def stuck(self, seconds: float) -> list[str]:
        """Those that have not gone round for so long, of those that say it."""
        before = self._clock.monotonic() - seconds
        return [name for name, at in self._turned_at.items() if at < before]
