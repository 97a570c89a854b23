"""The board on disk, for a start without a control plane; and until when this process lived.

What is shown is confirmed when it is here (rule 5): one that is killed a moment later shows it in
its next life too. So everything that is told is written at once, as the lines it came in, behind
those that are there; and all of it anew where they have become many.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairnotice.clock import Clock
from fairnotice.control.node_lines import Hello, SnapshotBegins, decode
from fairnotice.endpoint.diary import replace
from fairnotice.endpoint.holding import Holding, Told
from fairnotice.errors import Unavailable, UsageError

log = logging.getLogger(__name__)

# How soon what could not be written is tried again, and how often that somebody is alive.
AGAIN_SECONDS = 2.0
ALIVE_SECONDS = 10.0
# Lines behind the board, before it is written anew.
BEHIND_BYTES_MAX = 1024 * 1024
# The law believes no more (rule 8).
AWAY_SECONDS_MAX = 366 * 86_400.0
SIGHTINGS = "sightings-"


class _Page(NamedTuple):
    """What goes to the disk together."""

    data: bytes
    revision: int
    # Instead of what is there, or behind it.
    whole: bool
    told: list[Told]


class Saved:
    """The files of one endpoint in its state directory."""

    def __init__(self, directory: Path, node: str, clock: Clock) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{directory} cannot be made: {error.strerror}.") from error
        self.clock = clock
        self._directory = directory
        self._node = node
        self._board = directory / "board.jsonl"
        self._alive = directory / "alive"
        self.unreported = directory / "unreported.jsonl"
        # What is on disk, up to which revision.
        self.revision = 0
        # When a control plane last said that this is how things are.
        self.told_at: datetime | None = None
        self._waiting: list[Told] = []
        self._arrived = asyncio.Event()
        # Whether the file is another life's, or damaged: what is told is not written behind it.
        self._anew = True
        self._behind_bytes = 0
        # A thread that writes may outlive the task that waits for it.
        self._one_at_a_time = threading.Lock()

    def sighting(self, worker: int) -> Path:
        """Where a worker writes down what it shows."""
        return self._directory / f"{SIGHTINGS}{worker}.jsonl"

    def sightings(self) -> list[Path]:
        """What workers of earlier lives have written."""
        return sorted(self._directory.glob(f"{SIGHTINGS}*.jsonl"))

    def load(self, holding: Holding) -> Told | None:
        """What an earlier life was told, taken; None where there is nothing of this node."""
        try:
            lines = self._board.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the board that was saved cannot be read: %s", error)
            return None
        hello = _read(lines[0])
        if not (isinstance(hello, Hello) and hello.node == self._node):
            return None
        told: Told | None = None
        try:
            for line in lines:
                told = holding.take(line) or told
        except Unavailable as error:
            # It was cut by a crash, or by a disk that was full.
            log.warning("the board that was saved is damaged at its end: %s", error)
        holding.begin()
        if told is not None:
            self.revision = told.at.revision
            # It was told when it was written, and perhaps once more when nothing was new.
            written = datetime.fromtimestamp(self._board.stat().st_mtime, UTC)
            self.told_at = max(self._alive_lines()[1] or written, written)
        return told

    def away_seconds(self) -> float:
        """For how long nobody was here, as far as is known."""
        last = self._alive_lines()[0]
        return 0.0 if last is None else min(self._since(last), AWAY_SECONDS_MAX)

    @property
    def age_seconds(self) -> float:
        """How long ago a control plane said that what is held is how things are."""
        return 0.0 if self.told_at is None else self._since(self.told_at)

    def _since(self, instant: datetime) -> float:
        return max(0.0, (self.clock.wall() - instant).total_seconds())

    def _alive_lines(self) -> tuple[datetime | None, datetime | None]:
        """When an earlier life was last there, and was last told something."""
        try:
            alive, _, told = self._alive.read_text("ascii").partition("\n")
            return datetime.fromisoformat(alive), datetime.fromisoformat(told) if told else None
        except (OSError, ValueError):
            return None, None

    # ---- What is told ----

    def keep(self, told: Told) -> None:
        """Have this written, and soon."""
        self.told_at = self.clock.wall()
        if told.at.revision > self.revision or len(told.lines) > 1:
            self._waiting.append(told)
            self._arrived.set()

    async def saving(
        self, holding: Holding, kept: Callable[[], None], turned: Callable[[], None]
    ) -> None:
        """Write what is told, for ever; say when it is written, and when there was a look."""
        alive_at = -ALIVE_SECONDS
        while True:
            turned()
            now = self.clock.monotonic()
            if now - alive_at >= ALIVE_SECONDS:
                alive_at = now
                self._write_alive()
            if self._waiting:
                page = self._taken(holding)
                # In a thread: a large board on a slow disk must not keep VMs waiting.
                self._settle(page, await asyncio.to_thread(self._put, page))
                kept()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._arrived.wait()
            self._arrived.clear()

    def save(self, holding: Holding) -> None:
        """Write it all, at the end."""
        self._write_alive()
        if holding.hello and (self._waiting or holding.revision > self.revision):
            self._anew = True
            page = self._taken(holding)
            self._settle(page, self._put(page))

    def _taken(self, holding: Holding) -> _Page:
        """All that was told until now, to be written."""
        told, self._waiting = self._waiting, []
        whole = self._anew or self._behind_bytes > BEHIND_BYTES_MAX
        whole = whole or any(isinstance(one, SnapshotBegins) for t in told for one in t.facts)
        lines = holding.whole() if whole else [line for one in told for line in one.lines]
        return _Page(b"".join(lines), holding.revision, whole, told)

    def _put(self, page: _Page) -> OSError | None:
        """Write this, in whichever thread; why not, where it cannot be."""
        try:
            with self._one_at_a_time:
                if page.whole:
                    replace(self._board, page.data, forced=True)
                else:
                    self._append(page.data)
        except OSError as error:
            return error
        return None

    def _append(self, data: bytes) -> None:
        # Measured: 0.3 ms for a change, of whatever board; all of it anew, 20 ms for 5,000 VMs.
        with self._board.open("ab") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())

    def _settle(self, page: _Page, error: OSError | None) -> None:
        """Note what has come of a page."""
        if error is None:
            self.revision = page.revision
            self._anew = False
            self._behind_bytes = 0 if page.whole else self._behind_bytes + len(page.data)
            return
        # Nothing more is confirmed until it can be written.
        log.warning("%s cannot be written: %s", self._board, error)
        self._anew = True
        self._waiting = [*page.told[-1:], *self._waiting]

    def _write_alive(self) -> None:
        told = "" if self.told_at is None else self.told_at.isoformat()
        try:
            replace(self._alive, f"{self.clock.wall().isoformat()}\n{told}".encode("ascii"))
        except OSError as error:
            log.warning("%s cannot be written: %s", self._alive, error)


def _read(line: bytes) -> object:
    try:
        return decode(line)
    except msgspec.DecodeError:
        return None
