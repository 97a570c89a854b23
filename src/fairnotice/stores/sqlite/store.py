"""The store on a SQLite file: write-ahead log, full synchronous, one process at a time."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Condition
from typing import Any, NamedTuple

from fairnotice.engine.changes import Change, Row
from fairnotice.errors import FairnoticeError, Unavailable, UsageError
from fairnotice.stores import sql
from fairnotice.stores.copies import AnyRow, Copy, Pieces
from fairnotice.stores.file_lock import FileLock
from fairnotice.stores.rows import change_from, decoded
from fairnotice.stores.sqlite import copying, schema
from fairnotice.stores.sqlite.access import SqliteAccess
from fairnotice.stores.sqlite.webhooks import SqliteWebhooks
from fairnotice.stores.store import Line, Loaded

_QUERIES = sql.read_queries(__package__)

# How long a call waits for somebody else's lock on the database (a backup, a person's shell).
BUSY_SECONDS = 3.0
# How often another process's commit is looked for. A look costs 16 µs.
LOOK_INTERVAL_SECONDS = 0.05

# Errors that mean a wrong statement of ours, and no trouble with the file.
_OUR_FAULT = (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.DataError)
# What stands in the way of a path, and waiting does not help.
_WRONG_PATH = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


# The database and its log, each by device and inode.
_Files = tuple[tuple[int, int], tuple[int, int]]


class _Opened(NamedTuple):
    """A connection, and which files it has open."""

    connection: sqlite3.Connection
    files: _Files


class _Service(NamedTuple):
    """The row that says where the journal stands."""

    epoch: int
    revision: int
    recorded_at: str | None
    feed_from: int


class SqliteStore(SqliteAccess, SqliteWebhooks):
    """Rows and journal in the SQLite file at `path`, which is made where there is none.

    The file is locked for this process (`PATH.lock`) until `close`. After a failure the file is
    opened anew by the next call, so a store outlives whatever befalls its disk.
    """

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        # A link is followed, so that log and lock are beside the file itself.
        self._path = path.resolve()
        self._names = self._path, self._path.with_name(self._path.name + "-wal")
        self._busy_seconds = busy_seconds
        self._closed = False
        self._main: _Opened | None = None
        # The connection of a load whose rows are still being read.
        self._loading: sqlite3.Connection | None = None
        # Connections that wait_beyond looks with: as many as ever waited at the same time.
        self._lookouts: list[_Opened] = []
        self._moved = Condition()
        self._revision = 0
        with self._door("open"):
            if not self._path.parent.is_dir():
                raise UsageError(f"There is no directory {self._path.parent}: make it first.")
            self._lock = FileLock(self._path)
        try:
            with self._door("open"):
                self._main = self._make()
                self._revision = _service(self._main.connection).revision
        except BaseException:
            self._lock.release()
            raise

    def _make(self) -> _Opened:
        """Open the file for the first time: it is made, or migrated, where need be."""
        # SQLite gives its other files the permissions of this one.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = self._connect()
        try:
            schema.prepare(connection, self._path)
            connection.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            connection.close()
            raise
        return self._opened(connection)

    # ---- The port ----

    def lead(self) -> int:
        """Take the lead: a new epoch, durable when this returns."""
        with self._writing("lead") as connection:
            connection.execute(_QUERIES["begin_epoch"])
            return _service(connection).epoch

    def load(self) -> Loaded:
        """All rows, read while they are asked for, and the revision that they show."""
        with self._door("load"):
            self._end_loading()
            self._loading = connection = self._open().connection
            connection.execute("BEGIN")
            service = _service(connection)
            found = connection.execute(_QUERIES["rows"])
        recorded_at = service.recorded_at and datetime.fromisoformat(service.recorded_at)
        return Loaded(self._rows(connection, found), service.revision, recorded_at or None)

    def _rows(
        self, connection: sqlite3.Connection, found: Iterable[tuple[str, str]]
    ) -> Iterator[Row]:
        try:
            yield from decoded(found)
        except sqlite3.Error as error:
            raise self._trouble("load", error) from error
        finally:
            connection.close()

    def _end_loading(self) -> None:
        """Close the connection of a load whose rows nobody read to the end."""
        if self._loading is not None:
            self._loading.close()
            self._loading = None

    def commit(self, epoch: int, after: int, changes: Sequence[Change[Any]]) -> None:
        """Make these changes durable, all or none, as the revisions that follow `after`."""
        move = {
            "epoch": epoch,
            "after": after,
            "revision": after + len(changes),
            "recorded_at": sql.instant(changes[-1].at) if changes else None,
        }
        with self._writing("commit") as connection:
            if connection.execute(_QUERIES["move_journal"], move).rowcount != 1:
                found = _service(connection)
                raise sql.refused(
                    epoch, after, found_epoch=found.epoch, found_revision=found.revision
                )
            for piece in sql.pieces(after, changes):
                connection.executemany(_QUERIES["remove_row"], piece.gone)
                connection.executemany(_QUERIES["keep_row"], piece.kept)
                connection.executemany(_QUERIES["add_line"], piece.lines)
        with self._moved:
            self._revision = after + len(changes)
            self._moved.notify_all()

    def changes_after(self, revision: int, limit: int) -> list[Line] | None:
        """Up to `limit` lines that follow this revision; None where some are forgotten."""
        with self._reading("changes_after") as connection:
            service = _service(connection)
            if not service.feed_from <= revision <= service.revision:
                return None
            return _lines(connection.execute(_QUERIES["lines_after"], (revision, limit)))

    def history(self, about: str) -> list[Line]:
        """The story of one thing, oldest first."""
        with self._reading("history") as connection:
            if event := sql.event_of(about):
                found = connection.execute(_QUERIES["story_of_event"], (event,)).fetchone()
                about = found[0] if found else about
            return _lines(connection.execute(_QUERIES["history"], (about,)))

    def events_gone(self, before: int, limit: int) -> list[Line]:
        """Events that are over, the newest first."""
        with self._reading("events_gone") as connection:
            return _lines(connection.execute(_QUERIES["events_gone"], (before, limit)))

    def forget(self, *, journal_before: datetime, history_before: datetime) -> int:
        """Delete some of what is kept no longer; how many lines."""
        feed_before = max(journal_before, history_before)
        return self._forget(lasting=False, before=feed_before) or self._forget(
            lasting=True, before=history_before
        )

    def _forget(self, *, lasting: bool, before: datetime) -> int:
        which = (lasting, sql.instant(before), sql.FORGET_LINES)
        # Looked for first: a transaction that may write is not begun for nothing.
        with self._reading("forget") as connection:
            old = connection.execute(_QUERIES["old_lines"], which).fetchall()
        if old:
            with self._writing("forget") as connection:
                connection.executemany(_QUERIES["remove_line"], old)
                connection.execute(_QUERIES["move_feed"], max(old))
        return len(old)

    def copy(self) -> Copy:
        """Everything at one revision, by a connection of its own."""
        with self._door("copy"):
            copy = copying.copied(self._open().connection)
        return copy._replace(pieces=Pieces(self._copied(copy.pieces), copy.pieces.close))

    def _copied(self, pieces: Pieces) -> Iterator[AnyRow]:
        try:
            yield from pieces
        except sqlite3.Error as error:
            raise self._trouble("copy", error) from error

    def fill(self, copy: Copy) -> None:
        """Take over a copy, all or nothing."""
        with self._writing("fill") as connection:
            copying.fill(connection, str(self._path), copy)
        with self._moved:
            self._revision = copy.revision
            self._moved.notify_all()

    def wait_beyond(self, revision: int, seconds: float) -> int:
        """Wait until the journal is beyond this revision, or so long; where it is now."""
        self._must_be_open("wait_beyond")
        for wait_seconds in sql.waits(seconds, LOOK_INTERVAL_SECONDS):
            now = self._look()
            if now > revision:
                return now
            with self._moved:
                self._moved.wait_for(
                    lambda: self._closed or self._revision > revision, wait_seconds
                )
        return self._look()

    def _look(self) -> int:
        """Where the journal is, as the file says; as far as known, once the store is closed."""
        with self._moved:
            if self._closed:
                return self._revision
            lookout = self._lookouts.pop() if self._lookouts else None
        try:
            if lookout is None or not self._same_files(lookout):
                _close(lookout)
                lookout = self._open()
            revision = _service(lookout.connection).revision
        except (sqlite3.Error, OSError) as error:
            _close(lookout)
            raise self._trouble("wait_beyond", error) from error
        self._keep(lookout)
        return revision

    def _keep(self, lookout: _Opened) -> None:
        """Have the connection ready for who looks next."""
        with self._moved:
            if self._closed:
                _close(lookout)
            else:
                self._lookouts.append(lookout)

    def hang_up(self) -> None:
        """Nothing here waits for an answer from elsewhere."""

    def close(self) -> None:
        """Let go of everything."""
        with self._moved:
            if self._closed:
                return
            self._closed = True
            self._moved.notify_all()
        self._drop()
        self._lock.release()

    # ---- Connections ----

    @contextmanager
    def _writing(self, operation: str) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: whole and durable, or not at all."""
        with self._door(operation):
            main = self._usable()
            main.connection.execute("BEGIN IMMEDIATE")
            try:
                yield main.connection
            except FairnoticeError:
                main.connection.execute("ROLLBACK")
                raise
            main.connection.execute("COMMIT")
            # SQLite writes happily into a file that was deleted meanwhile.
            if not self._same_files(main):
                raise FileNotFoundError(f"{self._path} was deleted or replaced")

    @contextmanager
    def _reading(self, operation: str) -> Iterator[sqlite3.Connection]:
        """A transaction that reads: all its queries see the same state."""
        with self._door(operation):
            connection = self._usable().connection
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _door(self, operation: str) -> Iterator[None]:
        """Where SQLite's errors become ours. Whatever fails, the file is opened anew next time."""
        self._must_be_open(operation)
        try:
            yield
        except FairnoticeError:
            raise
        except (sqlite3.Error, OSError) as error:
            self._drop()
            raise self._trouble(operation, error) from error
        except BaseException:
            self._drop()
            raise

    def _must_be_open(self, operation: str) -> None:
        if self._closed:
            raise UsageError(f"{operation}: the store on {self._path} is closed.")

    def _trouble(self, operation: str, error: Exception) -> Exception:
        if isinstance(error, _OUR_FAULT):
            return error
        sentence = f"{operation}: the database {self._path} cannot be used: {error}"
        if operation == "open" and isinstance(error, _WRONG_PATH):
            return UsageError(f"{sentence}. Give a path that this user may write.")
        return Unavailable(sentence)

    def _usable(self) -> _Opened:
        """The main connection; opened anew where it failed, or its file is another now."""
        if self._main is not None and not self._same_files(self._main):
            self._drop()
        if self._main is None:
            self._main = self._open()
        return self._main

    def _open(self) -> _Opened:
        """A connection to the file that was made earlier."""
        self._must_not_meet_another_log()
        connection = self._connect()
        try:
            schema.must_be_current(connection)
            return self._opened(connection)
        except BaseException:
            connection.close()
            raise

    def _must_not_meet_another_log(self) -> None:
        """An error where the database was replaced, and its log is still the former one's.

        SQLite would write the one's log into the other.
        """
        (database, log), names = self._files_seen, self._names
        found = names[0].stat()
        if (found.st_dev, found.st_ino) == database or not names[1].exists():
            return
        found = names[1].stat()
        if (found.st_dev, found.st_ino) == log:
            raise FileExistsError(
                f"it was replaced while in use, and {names[1]} belongs to the former one. Stop "
                f"fairnotice, remove that file, and start again"
            )

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a file that was deleted is not silently made anew.
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )

    def _opened(self, connection: sqlite3.Connection) -> _Opened:
        connection.execute("PRAGMA synchronous = FULL")
        # A log that one large commit has swollen is cut to this when it is next begun anew.
        connection.execute("PRAGMA journal_size_limit = 67108864")
        # The first read makes the log, where there is none.
        _service(connection)
        self._files_seen = self._files()
        return _Opened(connection, self._files_seen)

    def _files(self) -> _Files:
        """Which files the names of the database and its log stand for now."""
        database, log = (name.stat() for name in self._names)
        return (database.st_dev, database.st_ino), (log.st_dev, log.st_ino)

    def _same_files(self, opened: _Opened) -> bool:
        try:
            return self._files() == opened.files
        except FileNotFoundError:
            return False

    def _drop(self) -> None:
        """Close what is open. SQLite rolls back what was under way."""
        with suppress(sqlite3.Error):
            self._end_loading()
        _close(self._main)
        self._main = None
        with self._moved:
            for lookout in self._lookouts:
                _close(lookout)
            self._lookouts.clear()


def _close(opened: _Opened | None) -> None:
    if opened is not None:
        with suppress(sqlite3.Error):
            opened.connection.close()


def _service(connection: sqlite3.Connection) -> _Service:
    return _Service(*connection.execute(_QUERIES["service"]).fetchone())


def _lines(found: Iterable[tuple[int, str, str, str]]) -> list[Line]:
    return [
        Line(revision, change_from(what, datetime.fromisoformat(at), body))
        for revision, what, at, body in found
    ]
