"""Marks on disk of a command that may outlive the agent: that it was begun, and how it ended.

Before the journal says that a step is begun, a mark is promised: a file that names the boot of the
machine, with a lock on it. The command is then run by a small shell, in a session of its own, which
inherits the lock. It writes one mark before it starts the command, and one with the exit code when
that has ended, whether there is an agent then or not. So a later life of the agent can tell:

    ended              there is an exit code
    under way          the lock is held
    not begun          it was promised in this boot, and there is no mark that it was begun
    nobody knows       all else: shell and command were killed, or the machine was rebooted

Nothing here waits for the disk: what is written outlives every process, and what a machine that
lost its power may have lost counts only in the boot in which it was promised.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from urllib.parse import quote

FOLDER = "marks"
_SHELL = "/bin/sh"
# Its standard input is the lock, which the command does not get: a service that it leaves running
# is none to wait for. TERM is for the command; a trap that is no ignoring is not inherited.
_WRAPPER = """trap : TERM INT HUP
echo $$ >"$0.begun" || exit
(exec "$@" </dev/null >"$0.out" 2>&1)
code=$?
echo $code >"$0.ended"
exit $code"""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBER = re.compile(rb"[0-9]+\n")


class Trace(StrEnum):
    """What is known of a handler that was begun by an earlier life of the agent."""

    # Nothing was done.
    NOT_BEGUN = "not begun"
    # It goes on or has ended. To call it again does nothing a second time: it waits for the end,
    # and returns or raises as if the agent had been there all the time.
    KNOWN = "known"
    UNKNOWN = "unknown"


@cache
def boot() -> str:
    """Which boot of the machine this is; empty where it does not say."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


class Mark:
    """The marks of one handler in one phase of one event; for one command."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    # ---- Leaving them ----

    def promise(self) -> None:
        """From here on no mark says something, too: nothing was begun. Raises OSError."""
        import fcntl  # noqa: PLC0415 - there is none on Windows

        # What commands print is for nobody else.
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # What was promised before holds no longer, should anything below fail.
            os.ftruncate(lock, 0)
            for kind in ("begun", "out", "ended"):
                self._file(kind).unlink(missing_ok=True)
            os.write(lock, boot().encode("ascii"))
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def take_back(self) -> None:
        """What is done from here on leaves no marks. Raises OSError."""
        self._file("lock").unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the lock; whoever runs the command holds it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def lock(self) -> int | None:
        """The lock for the shell to inherit; None where nothing was promised in this life."""
        return self._lock

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """The command line that runs this command and leaves its marks."""
        return [_SHELL, "-c", _WRAPPER, str(self._path), *command]

    # ---- Reading them ----

    def trace(self) -> Trace:
        """What became of it; not for the life that has promised it."""
        try:
            promised = self._file("lock").read_text("ascii", errors="replace")
        except OSError:
            return Trace.UNKNOWN
        # The mark of the end is looked for last: it is written before the lock is let go.
        if self.under_way() or self.code() is not None:
            return Trace.KNOWN
        if self._file("begun").exists() or not promised or promised != boot():
            return Trace.UNKNOWN
        return Trace.NOT_BEGUN

    def under_way(self) -> bool:
        """Whether the shell lives that runs the command."""
        import fcntl  # noqa: PLC0415 - there is none on Windows

        try:
            lock = os.open(self._file("lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def code(self) -> int | None:
        """The exit code, as a shell tells it; None while there is none."""
        return self._number("ended")

    def leader(self) -> int | None:
        """The process that leads the command's session; None where it was not begun."""
        return self._number("begun")

    def said(self, size: int) -> bytes:
        """The end of what the command has printed."""
        with suppress(OSError), self._file("out").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
        return b""

    def _number(self, kind: str) -> int | None:
        try:
            text = self._file(kind).read_bytes()
        except OSError:
            return None
        # One without an end was torn.
        return int(text) if _NUMBER.fullmatch(text) else None

    def _file(self, kind: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{kind}")


class Marks:
    """All marks of an agent, in a folder of its state: a folder for each event."""

    def __init__(self, state: Path) -> None:
        # Commands have working directories of their own.
        self._folder = state.absolute() / FOLDER

    def of(self, event: str, phase: str, handler: str) -> Mark:
        """The marks of this handler, promised or not."""
        return Mark(self._folder / quote(event, safe="") / f"{quote(handler, safe='')}.{phase}")

    def forget(self, kept: Iterable[str]) -> None:
        """Remove those of all events but these."""
        names = {quote(event, safe="") for event in kept}
        with suppress(OSError):
            for folder in self._folder.iterdir():
                if folder.name not in names:
                    _remove(folder)


def can_be_left() -> bool:
    """Whether there is a shell that leaves marks; there is none on Windows."""
    return os.name == "posix" and os.access(_SHELL, os.X_OK)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
