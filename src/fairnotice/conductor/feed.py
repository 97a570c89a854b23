"""What has been committed, for those who follow: boards at once, others by revision."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fairnotice.engine import Fleet
from fairnotice.engine.changes import Change, Row
from fairnotice.engine.tables import TABLES
from fairnotice.errors import Unavailable
from fairnotice.stores.store import Line

log = logging.getLogger(__name__)

# So many lines are at hand without asking the store: minutes of a busy fleet.
LINES_AT_HAND_MAX = 20_000
# More than any revision: who asks for what follows it wants the state as it is, and what follows.
# Every number of JavaScript up to here is exact.
FROM_NOW = 2**53 - 1
# Whoever has read more elsewhere is let wait so long: one that follows is behind by less.
REACH_SECONDS_MAX = 3.0

# Reads lines that are no longer at hand: None where the store has forgotten some.
ReadLines = Callable[[int, int], "asyncio.Future[list[Line] | None]"]


class Follower(Protocol):
    """Somebody in this process who shows what is committed."""

    def loaded(self, fleet: Fleet) -> None:
        """This is the whole state, now and until the next commit."""

    def committed(self, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:
        """These changes are durable and in the fleet; nobody was answered yet."""


class Snapshot(NamedTuple):
    """The whole state, for a follower that is too far behind."""

    revision: int
    rows: tuple[Row, ...]


class Feed:
    """The newest commits at hand, and the way to older ones."""

    def __init__(self, fleet: Fleet, read: ReadLines) -> None:
        self._read = read
        self._lines: deque[Line] = deque(maxlen=LINES_AT_HAND_MAX)
        self._followers: list[Follower] = []
        self._fleet = fleet
        self._moved = asyncio.Event()
        # Nothing comes any more: whoever waits may go.
        self.ended = False
        # What is shown here may be old: whoever follows does better elsewhere.
        self.cut_off = False

    @property
    def revision(self) -> int:
        """The last one that was committed."""
        return self._fleet.revision

    def follow(self, follower: Follower) -> None:
        """Tell this follower of the state as it is, and of every commit from now on."""
        self._followers.append(follower)
        follower.loaded(self._fleet)

    def begin(self, fleet: Fleet) -> None:
        """This is the state from which the feed goes on."""
        self._fleet = fleet
        self._lines.clear()
        for follower in self._followers:
            self._show_all(follower)
        self._wake()

    def committed(self, changes: Sequence[Change[Any]]) -> None:
        """These changes are durable and in the fleet."""
        first = self._fleet.revision - len(changes) + 1
        self._lines.extend(Line(first + offset, change) for offset, change in enumerate(changes))
        for follower in self._followers:
            try:
                follower.committed(self._fleet, changes)
            except Exception:
                # It is committed all the same, and what follows from it has to be done.
                log.exception("a follower could not show a commit; it is shown everything")
                self._show_all(follower)
        self._wake()

    def _show_all(self, follower: Follower) -> None:
        try:
            follower.loaded(self._fleet)
        except Exception:
            log.exception("a follower could not show the fleet")

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def after(self, revision: int, limit: int = 1_000) -> list[Line] | Snapshot:
        """What followed this revision, at most so many lines; or all there is, instead.

        FROM_NOW is answered by all there is. errors.Unavailable where this revision is not reached
        here soon.
        """
        if revision >= FROM_NOW:
            return self.snapshot()
        if revision > self.revision:
            await self.reach(revision, REACH_SECONDS_MAX)
        if revision == self.revision:
            return []
        if self._lines and self._lines[0].revision <= revision + 1 <= self.revision:
            start = revision + 1 - self._lines[0].revision
            return [self._lines[n] for n in range(start, min(start + limit, len(self._lines)))]
        until = self.revision
        older = await self._read(revision, limit)
        if older is None:
            return self.snapshot()
        # The store may be ahead of us, where the answer to a commit was lost.
        return [line for line in older if line.revision <= max(until, self.revision)]

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        tables = (getattr(self._fleet, name).values() for name in TABLES)
        rows = tuple(row for table in tables for row in table)
        return Snapshot(self.revision, (*rows, self._fleet.life))

    async def wait_beyond(self, revision: int) -> int:
        """Wait until something was committed after this revision; the last revision then."""
        while self.revision == revision and not self.ended and not self.cut_off:
            await self._moved.wait()
        return self.revision

    async def reach(self, revision: int, seconds: float) -> None:
        """Wait until this revision is committed here, at most so long; else errors.Unavailable.

        Whoever has read it elsewhere is ahead of us and must not be led back: revisions only
        grow, also by a restore. FROM_NOW is read by nobody.
        """
        if revision >= FROM_NOW:
            return
        try:
            async with asyncio.timeout(seconds):
                while self.revision < revision and not self.ended and not self.cut_off:
                    await self.wait_beyond(self.revision)
        except TimeoutError:
            pass
        if self.revision < revision:
            raise Unavailable(f"this control plane is at {self.revision}, not yet at {revision}")

    def cut(self) -> None:
        """The journal cannot be read for a while: let those go who wait for it."""
        if not self.cut_off:
            self.cut_off = True
            self._wake()

    def mend(self) -> None:
        """The journal is read again."""
        self.cut_off = False

    def end(self) -> None:
        """Nothing is committed any more: let those go who wait for it."""
        self.ended = True
        self._wake()
