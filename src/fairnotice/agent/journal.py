"""The agent's memory on disk: what it has begun and ended, a line each, on disk before it is done.

A line is its checksum and an object: `1f2e3d4c {"kind": "begun", …}`. What was torn by a crash is
at the end, and had not been acted on: it is cut off. Damage anywhere else is no crash, and is said.
"""

import json
import logging
import os
import threading
from binascii import crc32
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from fairnotice.agent import records as law
from fairnotice.agent.handlers.marks import Marks
from fairnotice.agent.records import Line, Record, Records
from fairnotice.clock import Clock
from fairnotice.errors import AgentRuns, JournalDamaged, Unavailable, UsageError

FILE = "journal"
log = logging.getLogger("fairnotice.agent")
LOCK = "agent.lock"
# What is over stays known for so long: an event that comes back is none to act on again.
KEPT = timedelta(days=2)
# So many lines, and the file is written anew with what still counts.
LINES_MAX = 2_000
# So often and so long apart a lock is tried that somebody holds.
_LOOKS = 25
_LOOK_SECONDS = 0.02


def encoded(line: Line) -> bytes:
    """A line as it is in the file."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return b"%08x %s\n" % (crc32(text), text)


def decoded(raw: bytes) -> Line | None:
    """The line; None where it is torn or damaged."""
    checksum, _, text = raw.partition(b" ")
    if checksum != b"%08x" % crc32(text):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read(folder: Path) -> Records:
    """What the journal in this folder says; for whoever only wants to look."""
    return _read(folder / FILE)[0]


def _read(file: Path) -> tuple[Records, int, int]:
    """The records, how many lines they are, and how many bytes are good."""
    try:
        whole = file.read_bytes()
    except FileNotFoundError:
        return {}, 0, 0
    except OSError as error:
        raise Unavailable(f"The journal {file} cannot be read: {error.strerror}.") from error
    found: Records = {}
    count = good = 0
    # Behind the last newline there is nothing, or a line that was torn.
    lines = whole.split(b"\n")[:-1]
    for raw in lines:
        line = decoded(raw)
        if line is None:
            if any(decoded(later) is not None for later in lines[count + 1 :]):
                raise _damaged(file, count + 1)
            break
        try:
            law.add(found, line)
        except (LookupError, ValueError, TypeError) as error:
            raise _damaged(file, count + 1) from error
        except UsageError as error:
            raise JournalDamaged(
                f"Line {count + 1} of the journal {file} is not of this fairnotice: {error} Let "
                f"the one that wrote it bring its plans to an end, or move the file away."
            ) from error
        count += 1
        good += len(raw) + 1
    return found, count, good


def _damaged(file: Path, line: int) -> JournalDamaged:
    return JournalDamaged(
        f"Line {line} of the journal {file} is damaged, so it is not known what is prepared. Look "
        f"what is (drained, stopped, 503 …), recover that by hand, and move the file away."
    )


class Journal:
    """The journal of this agent, which no other may write while it lives."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._file = folder / FILE
        self._clock = clock
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._lock = _locked(folder / LOCK)
        except OSError as error:
            raise Unavailable(f"The folder {folder} cannot be used: {error.strerror}.") from error
        try:
            self.records, self._count, good = _read(self._file)
            self._open(good)
            if any(self._is_old(record) for record in self.records.values()):
                self._write_anew()
        except BaseException:
            self._lock.close()
            raise

    def _open(self, good: int) -> None:
        """Open it for more, without what was torn."""
        self._size = good
        try:
            self._out = self._file.open("ab", buffering=0)
            self._out.truncate(good)
            os.fsync(self._out.fileno())
            _sync_folder(self.folder)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> Unavailable:
        return Unavailable(f"{self._file} cannot be written: {error.strerror}.")

    def append(self, line: Line) -> None:
        """Write a line down, and take it into account. It is on disk when this returns."""
        stamped = {**line, "at": self._clock.wall().isoformat(timespec="milliseconds")}
        raw = encoded(stamped)
        if self._out.closed:
            # It could not be written anew, or not be opened again then.
            self._open(self._size)
        try:
            written = self._out.write(raw)
            os.fsync(self._out.fileno())
        except OSError as error:
            self._take_back()
            raise self._unwritable(error) from error
        if written != len(raw):
            self._take_back()
            raise Unavailable(f"{self._file} cannot be written: the disk is full.")
        self._size += len(raw)
        law.add(self.records, stamped)
        self._count += 1
        if self._count > LINES_MAX and line["kind"] == law.LineKind.OVER:
            self._write_anew()

    def _take_back(self) -> None:
        """Leave no part of a line: were another one put behind it, that would be damage."""
        with suppress(OSError):
            self._out.truncate(self._size)

    def _is_old(self, record: Record) -> bool:
        if not record.over or not record.at:
            return False
        return self._clock.wall() - datetime.fromisoformat(record.at) > KEPT

    def _write_anew(self) -> None:
        """Leave out what is over and old; the old file counts until the new one is whole."""
        kept = {name: one for name, one in self.records.items() if not self._is_old(one)}
        lines = list(_encoded(kept.values()))
        try:
            self._put_in_place(b"".join(lines))
        except OSError as error:
            # It is only longer than it need be; the next plan that is over tries again.
            log.warning("%s cannot be written anew: %s", self._file, error.strerror)
            return
        self.records.clear()
        self.records.update(kept)
        self._count = len(lines)
        self._open(sum(map(len, lines)))
        Marks(self.folder).forget(kept)

    def _put_in_place(self, whole: bytes) -> None:
        part = self._file.with_name(FILE + ".part")
        with part.open("wb") as out:
            out.write(whole)
            out.flush()
            os.fsync(out.fileno())
        # Windows replaces no file that is open.
        self._out.close()
        part.replace(self._file)

    def close(self) -> None:
        """Let another agent have it."""
        self._out.close()
        self._lock.close()


def _encoded(kept: Iterable[Record]) -> Iterator[bytes]:
    for record in kept:
        for line in law.lines_of(record):
            yield encoded({**line, "at": record.at})


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file last; Windows knows no such thing."""
    if os.name != "nt":
        held = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


# ---- One agent only ----


def _locked(path: Path) -> BinaryIO:
    """The lock file, held until it is closed or this process dies; AgentRuns where it is taken."""
    held = path.open("a+b")
    try:
        _take_soon(held)
    except OSError as error:
        held.seek(0)
        # Windows lets nobody read what is locked.
        pid = b"" if os.name == "nt" else held.read(20).strip()
        held.close()
        who = f"process {pid.decode('ascii', 'replace')}" if pid else "another process"
        raise AgentRuns(
            f"An agent runs here already ({who} holds {path}); a VM needs one only."
        ) from error
    held.truncate(0)
    held.write(b"%d\n" % os.getpid())
    held.flush()
    return held


def is_held(folder: Path) -> bool | None:
    """Whether an agent has this folder's journal now; None where that cannot be known."""
    if os.name == "nt":
        # Only whoever may write may try.
        return None
    try:
        looked = (folder / LOCK).open("rb")
    except FileNotFoundError:
        return False
    except OSError:
        return None
    with looked:
        try:
            _take(looked, shared=True)
        except OSError:
            return True
    return False


def _take_soon(held: BinaryIO) -> None:
    """What an agent was about to start when it was killed holds its lock for a moment more."""
    for _ in range(_LOOKS):
        with suppress(OSError):
            _take(held)
            return
        threading.Event().wait(_LOOK_SECONDS)
    _take(held)


def _take(held: BinaryIO, *, shared: bool = False) -> None:
    if os.name == "nt":
        import msvcrt  # noqa: PLC0415 - there is none elsewhere

        msvcrt.locking(held.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    import fcntl  # noqa: PLC0415 - there is none on Windows

    fcntl.flock(held.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
