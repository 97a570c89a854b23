"""The store's own thread: its calls block, and nothing else may."""

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fairnotice.engine import Fleet, Timing
from fairnotice.stores.store import Line, Store

# From so many VMs on, the rows that were loaded are not looked at by the garbage collector.
FROZEN_FROM_VMS = 1_000

Result = TypeVar("Result")


class StoreThread:
    """Asks a store one question at a time, away from the loop.

    A store that is `in_memory` never waits for a disk, so it needs no thread of its own.
    """

    def __init__(self, store: Store, *, in_memory: bool = False) -> None:
        self.store = store
        self._thread = None if in_memory else ThreadPoolExecutor(1, "fairnotice-store")

    def ask(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        """What this call answers; calls are made in turn."""
        loop = asyncio.get_running_loop()
        if self._thread is not None:
            return loop.run_in_executor(self._thread, call)
        answer: asyncio.Future[Result] = loop.create_future()
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer meets it
            answer.set_exception(error)
        return answer

    def read_lines(self, revision: int, limit: int) -> "asyncio.Future[list[Line] | None]":
        """Lines of the journal that follow this revision; None where some are forgotten."""
        return self.ask(lambda: self.store.changes_after(revision, limit))

    async def load(self, timing: Timing, show: Callable[[Fleet], None]) -> None:
        """Read the state as it is remembered, and have it shown."""
        # Rows refer to nothing that refers back, so looking for cycles among them is in vain.
        # Measured with 100,000 VMs: half of the time of a start, and later 50 ms at a time.
        collecting = gc.isenabled()
        gc.disable()
        vms_count = 0
        try:
            fleet = await self.ask(lambda: self._load(timing))
            vms_count = len(fleet.vms)
            show(fleet)
        finally:
            # For a few rows it is not worth it: all other garbage would be kept with them.
            if vms_count >= FROZEN_FROM_VMS:
                gc.freeze()
            if collecting:
                gc.enable()

    def _load(self, timing: Timing) -> Fleet:
        """Runs in the store's thread: a million rows take their time."""
        loaded = self.store.load()
        return Fleet.load(loaded.rows, timing, loaded.revision, loaded.recorded_at)

    async def close(self) -> None:
        """Let go of the store and the thread."""
        await self.ask(self.store.close)
        if self._thread is not None:
            self._thread.shutdown()
