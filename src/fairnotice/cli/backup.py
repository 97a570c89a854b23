"""`fairnotice backup`: everything that a control plane remembers, in one file, while it runs."""

import os
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from fairnotice.cli import exits, shown
from fairnotice.cli.output_files import must_be_new
from fairnotice.cli.parsing import Subparsers, leaf, store_options
from fairnotice.cli.session import Session
from fairnotice.errors import UsageError
from fairnotice.stores.backups import Backup, Summary, written
from fairnotice.stores.opening import open_store

STANDARD = "-"
# What each table's rows are called.
WORDS = {"fleet": "rows", "journal": "lines of history", "token": "tokens", "audit": "of the audit"}


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    lines = (
        "fairnotice backup fleet.backup            # of the control plane that runs",
        "fairnotice backup - | ssh vault 'cat > fleet.backup'",
        "fairnotice backup fleet.backup --store sqlite:fleet.db   # while none runs",
    )
    summary = "keep everything that is remembered in a file, while the service runs"
    parser = leaf(subparsers, "backup", _back_up, summary, lines)
    parser.add_argument("file", metavar="FILE", help="where to; - for standard output")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    store_options(parser, "database", "of this store, and not by a control plane")


def _back_up(session: Session) -> int:
    options = session.options
    if options.database is None:
        return _write(session, session.remote.pieces("v1", "backup"))
    with closing(open_store(options.database)) as store:
        return _write(session, written(store.copy(), session.clock.wall()))


def _write(session: Session, pieces: Iterable[bytes]) -> int:
    file = session.options.file
    if file == STANDARD:
        if sys.stdout.isatty():
            raise UsageError("A backup is no text for a terminal: name a file, or use a pipe.")
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return exits.DONE
    path = Path(file)
    must_be_new(path, force=session.options.force)
    try:
        found = _kept(path, pieces)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    return session.show(as_json(found), lambda _: shown.say(f"{path}: {in_words(found)}"))


def _kept(path: Path, pieces: Iterable[bytes]) -> Summary:
    """Write the file, durably and for its owner only; it has its name only when it is whole."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    opened = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(opened, "w+b") as file:
            found = _checked(file, pieces, partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return found


def _checked(file: IO[bytes], pieces: Iterable[bytes], path: Path) -> Summary:
    file.writelines(pieces)
    file.flush()
    os.fsync(file.fileno())
    # Read once more from its beginning: a backup that cannot be restored is found out now.
    file.seek(0)
    return Backup(file, str(path)).check()


# ---- What it holds ----


def in_words(found: Summary) -> str:
    """What a backup holds, in one line."""
    counts = (f"{found.counts.get(table, 0):,} {word}" for table, word in WORDS.items())
    return f"revision {found.revision:,} of {found.taken_at:%Y-%m-%d %H:%M:%S} UTC; " + ", ".join(
        counts
    )


def as_json(found: Summary) -> dict[str, Any]:
    """The same for a program."""
    return {
        "taken_at": found.taken_at.isoformat(),
        "revision": found.revision,
        "counts": {table: found.counts.get(table, 0) for table in WORDS},
        "webhooks": found.webhooks,
    }
