"""The board on disk, for a start without a control plane; and until when this process lived."""

import asyncio
import logging
from datetime import datetime
from pathlib import Path

import msgspec

from fairnotice.clock import Clock
from fairnotice.control.node_lines import Hello, decode
from fairnotice.endpoint.diary import replace
from fairnotice.endpoint.holding import Holding, Told
from fairnotice.errors import Unavailable, UsageError

log = logging.getLogger(__name__)

# How often at most the board is written, and how often that somebody is alive.
SAVE_SECONDS = 2.0
ALIVE_SECONDS = 10.0
# The law believes no more (rule 8).
AWAY_SECONDS_MAX = 366 * 86_400.0
SIGHTINGS = "sightings-"


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
        self._written = -1

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
        told: Told | None = None
        try:
            hello = decode(lines[0]) if lines[0] else None
            if not (isinstance(hello, Hello) and hello.node == self._node):
                return None
            for line in lines:
                told = holding.take(line) or told
        except (Unavailable, msgspec.DecodeError) as error:
            log.warning("the board that was saved is damaged: %s", error)
            return None
        return told

    def away_seconds(self) -> float:
        """For how long nobody was here, as far as is known."""
        try:
            last = datetime.fromisoformat(self._alive.read_text("ascii").strip())
        except (OSError, ValueError):
            return 0.0
        away_seconds = (self.clock.wall() - last).total_seconds()
        return min(max(0.0, away_seconds), AWAY_SECONDS_MAX)

    async def saving(self, holding: Holding) -> None:
        """Write what is new, every now and then."""
        alive_at = -ALIVE_SECONDS
        while True:
            now = self.clock.monotonic()
            if now - alive_at >= ALIVE_SECONDS:
                alive_at = now
                self._write(self._alive, self.clock.wall().isoformat().encode("ascii"))
            if holding.revision != self._written:
                self._written = holding.revision
                # In a thread: a large board on a slow disk must not keep VMs waiting.
                data = b"".join(holding.whole())
                await asyncio.to_thread(self._write, self._board, data)
            await self.clock.sleep(SAVE_SECONDS)

    def save(self, holding: Holding) -> None:
        """Write it all, at the end."""
        self._write(self._alive, self.clock.wall().isoformat().encode("ascii"))
        if holding.hello and holding.revision != self._written:
            self._write(self._board, b"".join(holding.whole()))

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        try:
            replace(path, data)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)
