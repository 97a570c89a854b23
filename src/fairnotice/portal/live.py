"""What has changed on a page, for as long as somebody stays: server-sent events.

Each message carries the parts that look another way than before, at most four times a second. A
page that was away for too long, or was drawn by another process, is sent all of it.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, NamedTuple

import msgspec

from fairnotice.conductor.feed import Snapshot
from fairnotice.control.feeding import either
from fairnotice.errors import Unavailable
from fairnotice.portal.assets import BUILD
from fairnotice.portal.parts import Key, Page, Part

# After a message nothing is sent for so long: what happens together is shown together.
PAUSE_SECONDS = 0.25
# So often it is looked whether time alone has changed something.
LOOK_SECONDS = 1.0
# So many looks without anything to say, and the page is told that the connection lives.
QUIET_LOOKS = 5

# An element's id, its box, its place there and itself; without the last two it is gone.
Sent = tuple[str, str, str, str | None]


class Message(msgspec.Struct):
    """One message to a page."""

    revision: int
    # Seconds of the epoch: the page counts by the service's clock.
    now: float
    # Which styles and scripts belong to what is sent.
    build: str
    state: str
    # All there is: what is not in it is gone.
    whole: bool
    parts: list[Sent]


class Standing(NamedTuple):
    """Where a page is that somebody looks at; revision -1 stands for nowhere."""

    revision: int
    state: str


async def messages(page: Page, standing: Standing, *endings: asyncio.Event) -> AsyncIterator[bytes]:
    """What a page has to be told, until whoever looks goes away or nothing is left to look at."""
    showing = Showing(page, standing)

    def waits() -> list[Coroutine[Any, Any, Any]]:
        return [ending.wait() for ending in endings]

    while not any(ending.is_set() for ending in endings):
        message = await showing.look()
        if message is not None:
            yield b"data: " + msgspec.json.encode(message) + b"\n\n"
            await either(asyncio.sleep(PAUSE_SECONDS), *waits())
        await either(showing.moved(), asyncio.sleep(LOOK_SECONDS), *waits())


class Showing:
    """One page on one screen: what it shows, so that only what differs is sent."""

    def __init__(self, page: Page, standing: Standing) -> None:
        self._page = page
        self._feed = page.site.service.conductor.feed
        self._revision = standing.revision
        # Each part as it was last sent, as a number: two that look alike are told apart by it.
        self._sent: dict[str, int] = {}
        self._quiet = QUIET_LOOKS
        if standing.state:
            page.resume(standing.state)

    async def moved(self) -> None:
        """Wait until something is committed."""
        await self._feed.wait_beyond(self._revision)

    async def look(self) -> Message | None:
        """What is to be said now; None where nothing is."""
        keys = await self._touched()
        whole = keys is None
        parts: list[Part | Sent] = [self._page.banner()]
        async for key, part in self._page.parts(self._page.keys() if keys is None else keys):
            parts.append(part or (key.id, "", "", None))
        if whole:
            self._sent.clear()
        changed = [part for part in parts if self._is_new(part)]
        self._quiet += 1
        if not changed and not whole and self._quiet < QUIET_LOOKS:
            return None
        self._quiet = 0
        return Message(
            revision=self._revision,
            now=self._page.now.timestamp(),
            build=BUILD,
            state=self._page.state,
            whole=whole,
            parts=changed,
        )

    async def _touched(self) -> Iterable[Key] | None:
        """The parts that may have changed; None where all have to be sent."""
        if self._revision < 0:
            self._revision = self._feed.revision
            await self._page.refresh()
            return None
        try:
            found = await self._feed.after(self._revision)
        except Unavailable:
            found = []
        await self._page.refresh()
        if isinstance(found, Snapshot):
            self._revision = found.revision
            return None
        if not found:
            return self._page.passing()
        self._revision = found[-1].revision
        rows = [line.change.row for line in found]
        return dict.fromkeys((*self._page.touched(rows), *self._page.passing()))

    def _is_new(self, part: Part | Sent) -> bool:
        name, _, _, html = part
        if html is None:
            self._sent.pop(name, None)
            return True
        looks = hash(html)
        if self._sent.get(name) == looks:
            return False
        self._sent[name] = looks
        return True
