"""Where the clouds of a test process live: an event loop in a thread of its own.

The test has its own thread, and often its own loop; the endpoint has to answer the test's client
also while that one waits. Starting a thread costs more than a cloud, so all clouds share it.
"""

import asyncio
import atexit
import os
from collections.abc import Callable, Coroutine
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

from fairnotice.errors import UsageError

Result = TypeVar("Result")


class Backstage:
    """A loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="fairnotice-cloud", daemon=True)
        self._thread.start()
        self.process = os.getpid()
        atexit.register(self._end)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have this done over there, and wait for it."""
        why = self._why_not()
        if why:
            work.close()
            raise UsageError(why)
        under_way = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return under_way.result()
        except BaseException:
            # Whoever waits was interrupted: what he waits for is not to go on behind his back.
            under_way.cancel()
            raise

    def _why_not(self) -> str:
        """Why whoever asks here would wait for ever; empty where he would not."""
        if self.process != os.getpid():
            return "This process was forked, and its parent's clouds are not in it: make one here."
        if current_thread() is self._thread:
            return "This is the cloud's own thread, which cannot wait for itself."
        return ""

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Have this done over there, and do not wait for it."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    async def inside(self, look: Callable[[], Result]) -> Result:
        """What this returns when it is called over there."""
        return look()

    def _end(self) -> None:
        """The process ends, and with it clouds that nobody closed: without complaints."""
        if self.process == os.getpid():
            self.call(_cancel_all())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_lock = Lock()
_shared: Backstage | None = None


def backstage() -> Backstage:
    """The one of this process; a process that was forked has lost its parent's thread."""
    global _shared  # noqa: PLW0603 - one thread for a process, made when it is first needed
    with _lock:
        if _shared is None or _shared.process != os.getpid():
            _shared = Backstage()
        return _shared
