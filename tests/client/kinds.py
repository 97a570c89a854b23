"""Both kinds of client with one face, so that a test runs through both."""

import asyncio
import threading
from contextlib import contextmanager

from fairnotice.client import AsyncScheduledEvents, Missed, ScheduledEvents

PATIENCE_SECONDS = 20


class Sync:
    """ScheduledEvents, as it is."""

    def __init__(self, url=None, **how):
        self.client = ScheduledEvents(url, **how)

    def call(self, name, *given, **how):
        """What a method returns."""
        return getattr(self.client, name)(*given, **how)

    def url(self):
        return self.client.url

    @contextmanager
    def following(self, name, *given):
        """What an iterator has given so far, as it comes, in the background."""
        got, stop = [], threading.Event()

        def take():
            for item in getattr(self.client, name)(*given, stop=stop):
                got.append(item)  # noqa: PERF402 - each is seen as soon as it comes

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield got
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


class Async:
    """AsyncScheduledEvents, each call in a loop of its own."""

    def __init__(self, url=None, **how):
        self.client = AsyncScheduledEvents(url, **how)

    def call(self, name, *given, **how):
        """What a method returns."""

        async def asked():
            return await getattr(self.client, name)(*given, **how)

        return asyncio.run(asked())

    def url(self):
        return self.call("url")

    @contextmanager
    def following(self, name, *given):
        """What an iterator has given so far, as it comes, in the background."""
        got, started = [], threading.Event()
        place = {}

        async def take():
            place.update(loop=asyncio.get_running_loop(), task=asyncio.current_task())
            started.set()
            async for item in getattr(self.client, name)(*given):
                got.append(item)  # noqa: PERF401 - each is seen as soon as it comes

        def run():
            try:
                asyncio.run(take())
            except asyncio.CancelledError:
                return

        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(PATIENCE_SECONDS)
        try:
            yield got
        finally:
            place["loop"].call_soon_threadsafe(place["task"].cancel)
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


KINDS = {"threads": Sync, "asyncio": Async}


def missed(got):
    """Those of a stream's items that are no documents."""
    return [item for item in got if isinstance(item, Missed)]
