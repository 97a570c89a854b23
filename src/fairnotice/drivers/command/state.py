"""What run.sh has written down, read under its locks."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from fairnotice.drivers.command.settings import readable
from fairnotice.drivers.driver import Report
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.words import Outcome

# NAME_MAX is 255, and a suffix follows.
_NAME_LENGTH_MAX = 200
# What timeout(1) ends with: its limit has passed, and TERM or KILL was sent.
_LIMIT_CODES = (124, 137)
# Files are stamped by a clock that ticks this seldom at worst.
_COARSE_SECONDS = 0.01
# What timeout(1) and shells end with when there is nothing to run.
_CODE_MEANINGS = {126: " (it cannot be executed)", 127: " (there is no such command)"}


def file_name(key: str) -> str:
    """The name under which a key's files lie; no two keys share one."""
    name = quote(key, safe="")
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    # quote never writes a % that is not followed by two hexadecimal digits.
    return f"%sha256-{hashlib.sha256(key.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class State:
    """A directory of keys. It blocks: call it from a thread."""

    directory: Path
    output_bytes_max: int

    @contextmanager
    def locked(self, epoch: int | None) -> Iterator[None]:
        """Nobody begins anything inside of it; LeadLost to whoever has an older epoch.

        So a key that has not begun under this lock is never begun by an older control plane.
        """
        with _unavailable(self.directory), _opened(self.directory / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if epoch is not None:
                self._meet(epoch)
            yield

    def check_epoch(self, epoch: int) -> None:
        """LeadLost if a later one has begun; else this is the one that counts."""
        with self.locked(epoch):
            pass

    def _meet(self, epoch: int) -> None:
        highest = self._highest_epoch()
        if epoch < highest:
            raise LeadLost(f"Epoch {epoch} is over: {highest} has begun.")
        if epoch > highest:
            self._raise_epoch(epoch)

    def _highest_epoch(self) -> int:
        try:
            return int((self.directory / "epoch").read_text("ascii"))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise Unavailable(f"{self.directory / 'epoch'} is damaged: {error}.") from error

    def _raise_epoch(self, epoch: int) -> None:
        new = self.directory / "epoch.new"
        with new.open("w", encoding="ascii") as file:
            file.write(f"{epoch}\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.directory / "epoch")
        _sync(self.directory)

    def look(self, key: str, epoch: int | None) -> Report:
        """What is known of this key: unknown where it began and nobody saw it end."""
        with self.locked(epoch):
            ended = self._path(key, "ended")
            begun = self._path(key, "begun")
            if ended.exists():
                return self._ended(key)
            if not begun.exists():
                return Report(Outcome.NOT_BEGUN)
            under_way = _is_held(self._path(key, "lock"))
            # It may have ended between the two looks: it lets go of its lock afterwards.
            if ended.exists():
                return self._ended(key)
            if under_way:
                return Report(Outcome.UNDER_WAY)
            return Report(Outcome.UNKNOWN, "it was begun, and what ran it died before it ended")

    def take_back(self, key: str, epoch: int) -> None:
        """It was begun here, and nothing came of it: it may be begun again."""
        with self.locked(epoch):
            if not _is_held(self._path(key, "lock")):
                self._path(key, "begun").unlink(missing_ok=True)
                _sync(self.directory)

    def _path(self, key: str, suffix: str) -> Path:
        return self.directory / f"{file_name(key)}.{suffix}"

    def _ended(self, key: str) -> Report:
        code = int(self._path(key, "ended").read_text("ascii"))
        output = self._output(key)
        if code == 0:
            return Report(Outcome.DONE, output)
        said = f"exit code {code}{_CODE_MEANINGS.get(code, '')}"
        if code in _LIMIT_CODES:
            said = self._limit_passed(key) or said
        return Report(Outcome.FAILED, f"{said}: {output}" if output else said)

    def _limit_passed(self, key: str) -> str | None:
        """Whether it ran until its limit: only then is the code timeout's and not its own."""
        begun, ended = self._path(key, "begun"), self._path(key, "ended")
        with suppress(OSError, ValueError, IndexError):
            limit_seconds = float(begun.read_text("ascii").split()[1])
            if ended.stat().st_mtime - begun.stat().st_mtime >= limit_seconds - _COARSE_SECONDS:
                return f"stopped when its time limit of {limit_seconds:g} s had passed"
        return None

    def _output(self, key: str) -> str:
        """The end of what it printed."""
        with suppress(FileNotFoundError), self._path(key, "out").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - self.output_bytes_max - 1))
            return readable(file.read(), self.output_bytes_max)
        return ""

    def forget(self, before: datetime) -> int:
        """Remove what ended before that instant; how many keys.

        The mark of the end goes last: half a removal must not look like a key that is new.
        """
        forgotten = 0
        with _unavailable(self.directory):
            for ended in self.directory.glob("*.ended"):
                if ended.stat().st_mtime < before.timestamp():
                    name = ended.name.removesuffix("ended")
                    for suffix in ("out", "lock", "begun", "ended"):
                        (self.directory / f"{name}{suffix}").unlink(missing_ok=True)
                    forgotten += 1
        return forgotten

    def why_unwritable(self) -> str:
        """What the system says when one tries to write there."""
        try:
            probe = self.directory / "probe.new"
            probe.write_bytes(b".\n")
            probe.unlink()
        except OSError as error:
            return f"{self.directory} cannot be written: {error.strerror}."
        return f"{self.directory} could not be written."


def kept_since(now: datetime, kept_days: float) -> datetime:
    """What ended before this instant may be forgotten."""
    return now - timedelta(days=kept_days)


def _sync(directory: Path) -> None:
    """The names in a directory are on the disk when this returns."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _unavailable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"Cannot use {directory}: {error.strerror}.") from error


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _is_held(path: Path) -> bool:
    """Whether somebody holds this lock; two who ask at once do not see each other."""
    if not path.exists():
        return False
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
