"""Keeping a fleet as the journal has it, in a process that does not lead."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fairnotice.clock import Clock
from fairnotice.conductor.feed import Feed
from fairnotice.conductor.store_thread import StoreThread
from fairnotice.engine import Fleet
from fairnotice.engine.changes import Change
from fairnotice.errors import Unavailable

log = logging.getLogger(__name__)

# How long one look at the journal lasts where nothing happens.
LOOK_SECONDS = 1.0
# Whoever is further behind than this reads the rows, which are fewer.
LINES_MAX = 50_000
RETRY_SECONDS = 0.25
# A journal that could not be read for so long is lost: who follows us goes elsewhere.
LOST_SECONDS = 3.0


class Following:
    """Reads the journal after somebody else's commits."""

    def __init__(self, store: StoreThread, feed: Feed, clock: Clock) -> None:
        self._store = store
        self._feed = feed
        self._clock = clock
        # Somebody who waits needs a thread of his own, or nobody else is answered.
        self._thread = ThreadPoolExecutor(1, "fairnotice-follow")
        # The look under way, and from which revision on.
        self._look: tuple[int, asyncio.Future[int]] | None = None
        self._interrupted = asyncio.Event()
        # When it was last known where the journal ends, and that we are there.
        self.level_at = clock.monotonic()

    @property
    def lag_seconds(self) -> float:
        """For how long it has not been known that we are where the journal ends."""
        return max(0.0, self._clock.monotonic() - self.level_at - LOOK_SECONDS)

    @property
    def lost(self) -> bool:
        """Whether that is so long that nobody should read here."""
        return self._clock.monotonic() - self.level_at - LOOK_SECONDS > LOST_SECONDS

    def begin(self) -> None:
        """What was known until now came from our own commits."""
        self.level_at = self._clock.monotonic()

    def interrupt(self) -> None:
        """There is something else to do than waiting for the journal."""
        self._interrupted.set()

    async def beyond(self, revision: int) -> int | None:
        """Where the journal ends, once it has moved or after a while; None when interrupted."""
        looked_from, look = self._look or (revision, self._begin_look(revision))
        self._look = looked_from, look
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        waited: set[asyncio.Future[Any]] = {look, interrupted}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            interrupted.cancel()
        self._interrupted.clear()
        if not look.done():
            return None
        self._look = None
        until = look.result()
        # A look from before our own commits, while we led, says nothing.
        return until if looked_from == revision else None

    def _begin_look(self, revision: int) -> "asyncio.Future[int]":
        loop = asyncio.get_running_loop()
        wait_beyond = self._store.store.wait_beyond
        return loop.run_in_executor(self._thread, wait_beyond, revision, LOOK_SECONDS)

    async def end(self) -> int:
        """Where the journal ends now."""
        return await self._store.ask(lambda: self._store.store.wait_beyond(-1, 0.0))

    async def read_to(self, until: int, fleet: Fleet, load: Callable[[], Awaitable[None]]) -> None:
        """Have everything up to this revision, where a commit ended, in the fleet and shown.

        Where lines are forgotten, or the journal is not the one that was read before, everything
        is loaded anew.
        """
        changes = await self._changes(fleet.revision, until)
        if changes is None:
            await load()
        elif changes:
            # Whole commits, without a pause: nobody is shown half of one.
            for change in changes:
                fleet.apply(change)
            self._feed.committed(changes)
        self.level_at = self._clock.monotonic()

    async def _changes(self, revision: int, until: int) -> list[Change[Any]] | None:
        if until == revision:
            return []
        if not revision < until <= revision + LINES_MAX:
            return None
        lines = await self._store.read_lines(revision, until - revision)
        if lines is None or len(lines) != until - revision:
            return None
        return [line.change for line in lines]

    async def close(self) -> None:
        """Wait for nothing any more."""
        if self._look is not None:
            self._store.store.hang_up()
            with contextlib.suppress(Unavailable):
                await self._look[1]
        self._thread.shutdown()
