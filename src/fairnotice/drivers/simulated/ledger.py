"""The machine room's memory: one line of JSON for each thing that happened, in a file or nowhere.

A line counts when it ends with a newline and has reached the disk. What a process that died left
of its last line is cut off by the next one that looks. Several processes may hold the same file:
each takes the lock, reads what the others have added, and only then decides.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from fairnotice.errors import Unavailable

Line = dict[str, Any]


class Ledger(Protocol):
    """What remembers lines."""

    def locked(self) -> AbstractContextManager[None]:
        """Nobody else reads or adds lines inside of it."""
        ...

    def news(self) -> list[Line]:
        """The lines that were not yet given out, in their order."""
        ...

    def add(self, *lines: Line) -> None:
        """Remember these; they are given out with the next news."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class NoLedger:
    """Remembers as long as it lives."""

    def __init__(self) -> None:
        self._lines: list[Line] = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else is there."""
        yield

    def news(self) -> list[Line]:
        """What was added since."""
        lines, self._lines = self._lines, []
        return lines

    def add(self, *lines: Line) -> None:
        """Remember these until they are given out."""
        self._lines += lines

    def close(self) -> None:
        """Nothing to let go of."""


class FileLedger:
    """Remembers in a file that only grows.

    It works in the event loop's own thread: a few milliseconds for each impact, in a driver that
    is made for laptops and tests, buy that nothing can come between a decision and its line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to = 0
        with self._unavailable("open"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # The name of a new file is as durable as its lines.
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    @contextmanager
    def _unavailable(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"Cannot {what} {self.path}: {error.strerror}.") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else reads or adds lines inside of it, in this process or in another."""
        with self._unavailable("lock"):
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def news(self) -> list[Line]:
        """What anybody has added since; a torn last line is cut off for good."""
        with self._unavailable("read"):
            size = os.fstat(self._file).st_size
            if size == self._read_to:
                return []
            text = os.pread(self._file, size - self._read_to, self._read_to)
            whole = text.rfind(b"\n") + 1
            if whole < len(text):
                os.ftruncate(self._file, self._read_to + whole)
        try:
            lines = [json.loads(line) for line in text[:whole].splitlines()]
        except ValueError as error:
            raise Unavailable(f"{self.path} is damaged: {error}.") from error
        self._read_to += whole
        return lines

    def add(self, *lines: Line) -> None:
        """Write these at the end, all or none, and return when they are on the disk."""
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        with self._unavailable("write"):
            end = os.fstat(self._file).st_size
            try:
                written = os.pwrite(self._file, text, end)
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, end)
                raise
            if written < len(text):
                os.ftruncate(self._file, end)
                raise Unavailable(f"Cannot write {self.path}: the disk is full.")

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
