"""The store on PostgreSQL: NOTIFY as the wake-up, the journal's revision as the truth."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from select import POLLIN, poll
from threading import Lock
from typing import Any, NamedTuple

import psycopg

from fairnotice.engine.changes import Change, Row
from fairnotice.errors import (
    FairnoticeError,
    JournalMoved,
    LeadLost,
    StoreInUse,
    Unavailable,
    UsageError,
)
from fairnotice.stores import sql
from fairnotice.stores.copies import AnyRow, Copy, Pieces
from fairnotice.stores.postgres import copying, schema
from fairnotice.stores.postgres.access import PostgresAccess
from fairnotice.stores.postgres.sessions import Connection, Where, hang_up
from fairnotice.stores.postgres.webhooks import PostgresWebhooks
from fairnotice.stores.rows import change_from, decoded
from fairnotice.stores.store import Line, Loaded

# As bytes, because psycopg takes text only where it is a literal of the code.
_QUERIES = {name: text.encode() for name, text in sql.read_queries(__package__).items()}

# How long a call waits for somebody else's lock on a row (a person's shell, another leader).
BUSY_SECONDS = 3.0
# Who waits looks at the truth so often, should a wake-up have been lost.
LOOK_INTERVAL_SECONDS = 1.0
# Rows that a load has in hand at a time.
LOAD_ROWS = 10_000

Cursor = psycopg.ServerCursor[Any]


class _Service(NamedTuple):
    """The row that says where the journal stands."""

    epoch: int
    revision: int
    recorded_at: datetime | None
    feed_from: int


class PostgresStore(PostgresAccess, PostgresWebhooks):
    """Rows and journal in the schema `fairnotice` of the database at this URL.

    After a failure the next call connects anew, so a store outlives its server's restarts.
    """

    def __init__(self, url: str, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._busy_seconds = busy_seconds
        self._where = Where(url)
        self._closed = False
        self._main: Connection | None = None
        # The rows of a load that are still being read, by a connection of their own.
        self._loading: Cursor | None = None
        # Connections that listen: as many as ever waited at the same time.
        self._lookouts: list[Connection] = []
        self._watching: list[Connection] = []
        self._lookouts_lock = Lock()
        with self._door("open"):
            self._main = self._connect()
            schema.prepare(self._main, self._where.name)

    # ---- The port ----

    def lead(self) -> int:
        """Take the lead: a new epoch, durable when this returns."""
        with self._door("lead"):
            found = self._usable().execute(_QUERIES["begin_epoch"]).fetchone()
            if found is None:
                raise StoreInUse(
                    f"lead: several control planes share the database {self._where.name}, and one "
                    "of them leads. Who joins them needs an address of its own (table [cluster])."
                )
            return int(found[0])

    def load(self) -> Loaded:
        """All rows, read while they are asked for, and the revision that they show."""
        with self._door("load"):
            self._end_loading()
            connection = self._connect()
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.autocommit = False
            self._loading = found = connection.cursor("load")
            service = _service(connection)
            found.itersize = LOAD_ROWS
            found.execute(_QUERIES["rows"])
        return Loaded(self._rows(found), service.revision, _in_utc(service.recorded_at))

    def _rows(self, found: Cursor) -> Iterator[Row]:
        try:
            yield from decoded(found)
        except psycopg.Error as error:
            raise self._where.trouble("load", error) from error
        finally:
            _end(found)

    def _end_loading(self) -> None:
        """Close the connection of a load whose rows nobody read to the end."""
        if self._loading is not None:
            _end(self._loading)
            self._loading = None

    def commit(self, epoch: int, after: int, changes: Sequence[Change[Any]]) -> None:
        """Make these changes durable, all or none, as the revisions that follow `after`."""
        try:
            with self._door("commit"):
                self._write(self._usable(), epoch, after, changes)
        except (LeadLost, JournalMoved):
            raise
        except Unavailable:
            # The connection may have gone after the commit and before the word of it.
            if not changes or not self._arrived(epoch, after, changes):
                self._drop()
                raise

    def _write(
        self, connection: Connection, epoch: int, after: int, changes: Sequence[Change[Any]]
    ) -> None:
        move = {
            "epoch": epoch,
            "after": after,
            "revision": after + len(changes),
            "recorded_at": changes[-1].at if changes else None,
        }
        # A pipeline: after the first answer, statements are sent without waiting for each other.
        with connection.pipeline(), connection.transaction():
            if connection.execute(_QUERIES["move_journal"], move).fetchone() is None:
                found = _service(connection)
                raise sql.refused(
                    epoch, after, found_epoch=found.epoch, found_revision=found.revision
                )
            for piece in sql.pieces(after, changes):
                if piece.gone:
                    connection.execute(_QUERIES["remove_rows"], _columns(piece.gone))
                if piece.kept:
                    connection.execute(_QUERIES["keep_rows"], _columns(piece.kept))
                connection.execute(_QUERIES["add_lines"], _columns(piece.lines))
            connection.execute(_QUERIES["wake"], (after + len(changes),))

    def _arrived(self, epoch: int, after: int, changes: Sequence[Change[Any]]) -> bool:
        """Whether a commit that failed on our side was made after all.

        The revision alone does not tell: it may be an earlier commit's, that failed likewise.
        """
        try:
            with self._door("commit"):
                found = _service(self._usable())
            if (found.epoch, found.revision) != (epoch, after + len(changes)):
                return False
            for start in range(0, len(changes), sql.PIECE_CHANGES):
                piece = changes[start : start + sql.PIECE_CHANGES]
                lines = self.changes_after(after + start, len(piece)) or []
                if [line.change for line in lines] != list(piece):
                    return False
        except Unavailable:
            return False
        return True

    def changes_after(self, revision: int, limit: int) -> list[Line] | None:
        """Up to `limit` lines that follow this revision; None where some are forgotten."""
        with self._door("changes_after"):
            connection = self._usable()
            lines = _lines(connection.execute(_QUERIES["lines_after"], (revision, limit)))
            # Asked after the lines: what was forgotten while they were read is then known.
            service = _service(connection)
            return lines if service.feed_from <= revision <= service.revision else None

    def history(self, about: str) -> list[Line]:
        """The story of one thing, oldest first."""
        with self._door("history"):
            connection = self._usable()
            if event := sql.event_of(about):
                found = connection.execute(_QUERIES["story_of_event"], (event,)).fetchone()
                about = found[0] if found else about
            return _lines(connection.execute(_QUERIES["history"], (about,)))

    def events_gone(self, before: int, limit: int) -> list[Line]:
        """Events that are over, the newest first."""
        with self._door("events_gone"):
            connection = self._usable()
            return _lines(connection.execute(_QUERIES["events_gone"], (before, limit)))

    def forget(self, *, journal_before: datetime, history_before: datetime) -> int:
        """Delete some of what is kept no longer; how many lines."""
        feed_before = max(journal_before, history_before)
        with self._door("forget"):
            return self._forget(lasting=False, before=feed_before) or self._forget(
                lasting=True, before=history_before
            )

    def _forget(self, *, lasting: bool, before: datetime) -> int:
        connection = self._usable()
        which = (lasting, before, sql.FORGET_LINES)
        with connection.transaction():
            gone = connection.execute(_QUERIES["remove_old_lines"], which).fetchall()
            if gone:
                connection.execute(_QUERIES["move_feed"], max(gone))
        return len(gone)

    def copy(self) -> Copy:
        """Everything at one revision, by a connection of its own."""
        with self._door("copy"):
            copy = copying.copied(self._connect())
        recorded_at = _in_utc(copy.recorded_at)
        return copy._replace(
            recorded_at=recorded_at, pieces=Pieces(self._copied(copy.pieces), copy.pieces.close)
        )

    def _copied(self, pieces: Pieces) -> Iterator[AnyRow]:
        try:
            yield from pieces
        except psycopg.Error as error:
            raise self._where.trouble("copy", error) from error

    def fill(self, copy: Copy) -> None:
        """Take over a copy, all or nothing."""
        with self._door("fill"):
            copying.fill(self._usable(), self._where.name, copy)

    def wait_beyond(self, revision: int, seconds: float) -> int:
        """Wait until the journal is beyond this revision, or so long; where it is now."""
        self._must_be_open("wait_beyond")
        lookout = None
        try:
            lookout = self._lookout()
            for wait_seconds in sql.waits(seconds, LOOK_INTERVAL_SECONDS):
                # Looked at while listening, and before waiting: nothing falls in between.
                if self._closed or _service(lookout).revision > revision:
                    break
                _listen(lookout, revision, wait_seconds)
            now = _service(lookout).revision
        except psycopg.Error as error:
            if lookout is not None:
                lookout.close()
            raise self._where.trouble("wait_beyond", error) from error
        finally:
            with self._lookouts_lock:
                self._watching = [one for one in self._watching if one is not lookout]
        self._keep(lookout)
        return now

    def _lookout(self) -> Connection:
        """A connection that listens, and that nobody else is waiting with."""
        with self._lookouts_lock:
            kept = self._lookouts.pop() if self._lookouts else None
        if kept is None:
            kept = self._connect()
            kept.execute(_QUERIES["listen"])
        with self._lookouts_lock:
            self._watching.append(kept)
        return kept

    def _keep(self, lookout: Connection) -> None:
        """Have the connection ready for who waits next."""
        with self._lookouts_lock:
            if self._closed:
                lookout.close()
            else:
                self._lookouts.append(lookout)

    def hang_up(self) -> None:
        """Have whatever is under way fail now. Called by another thread."""
        with self._lookouts_lock:
            in_use = list(self._watching)
        # Whatever is let go of meanwhile is in none of these any more, and hung up twice is once.
        main, loading = self._main, self._loading
        if main is not None:
            in_use.append(main)
        if loading is not None:
            in_use.append(loading.connection)
        for connection in in_use:
            hang_up(connection)

    def close(self) -> None:
        """Let go of everything."""
        with self._lookouts_lock:
            self._closed = True
            for lookout in self._lookouts:
                lookout.close()
            self._lookouts.clear()
        self._drop()

    # ---- Connections ----

    @contextmanager
    def _door(self, operation: str) -> Iterator[None]:
        """Where psycopg's errors become ours. Whatever fails, the next call connects anew."""
        self._must_be_open(operation)
        try:
            yield
        except FairnoticeError:
            if operation == "open":
                self._drop()
            raise
        except psycopg.Error as error:
            self._drop()
            raise self._where.trouble(operation, error) from error
        except BaseException:
            self._drop()
            raise

    def _must_be_open(self, operation: str) -> None:
        if self._closed:
            raise UsageError(f"{operation}: the store on {self._where.name} is closed.")

    def _usable(self) -> Connection:
        """The main connection; a new one where it failed, or the server has gone meanwhile."""
        if self._main is not None and not _alive(self._main):
            self._drop()
        if self._main is None:
            self._main = self._connect()
        return self._main

    def _connect(self) -> Connection:
        connection = self._where.connect()
        connection.execute(_QUERIES["prepare_session"], (f"{self._busy_seconds * 1000:.0f}ms",))
        return connection

    def _drop(self) -> None:
        """Close what is open. The server rolls back what was under way."""
        self._end_loading()
        if self._main is not None:
            self._main.close()
            self._main = None


def _end(found: Cursor) -> None:
    # In this order the cursor needs no word from a server that may be gone.
    found.connection.close()
    found.close()


def _alive(connection: Connection) -> bool:
    """Whether the server has not said goodbye; asks the socket, not the server."""
    if connection.closed:
        return False
    # Nothing is under way, so whatever can be read is a last word.
    socket = poll()
    socket.register(connection.fileno(), POLLIN)
    return not socket.poll(0)


def _listen(connection: Connection, revision: int, seconds: float) -> None:
    """Wait until a wake-up tells of a later revision, or so long."""
    for notice in connection.notifies(timeout=seconds):
        if int(notice.payload) > revision:
            return


def _service(connection: Connection) -> _Service:
    found = connection.execute(_QUERIES["service"]).fetchone()
    assert found is not None
    return _Service(*found)


def _columns(table: Iterable[tuple[Any, ...]]) -> list[str]:
    """The columns of a table, each as the text of a PostgreSQL array.

    psycopg's own arrays escape character by character: 56 ms for a commit of 512 changes, which
    takes 10 ms so.
    """
    return [
        '{"' + '","'.join([_quoted(str(item)) for item in column]) + '"}'
        for column in zip(*table, strict=True)
    ]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _in_utc(at: datetime | None) -> datetime | None:
    """The instant with the zone that all of ours have; psycopg has one of its own."""
    return at and at.replace(tzinfo=UTC)


def _lines(found: Iterable[tuple[int, str, datetime, str]]) -> list[Line]:
    return [
        Line(revision, change_from(what, at.replace(tzinfo=UTC), body))
        for revision, what, at, body in found
    ]
