"""What the SQL twins share: their .sql files, and a commit laid out for their tables."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import count, groupby, islice
from typing import Any, NamedTuple

import msgspec

from fairnotice.engine.changes import Change, Removal
from fairnotice.errors import FairnoticeError, JournalMoved, LeadLost, NewerDatabase, UsageError
from fairnotice.stores import rows
from fairnotice.stores.copies import AnyRow, FleetRow

# A commit is written in pieces of so many changes, in one transaction: a fleet of a million VMs
# is declared in one commit, and its text should not stand in memory a second time.
PIECE_CHANGES = 5_000
# Lines that one transaction forgets: short enough for commits to come in between.
FORGET_LINES = 2_000


class Migration(NamedTuple):
    """What leads from the schema before to the one of this number."""

    number: int
    sql: str


def read_queries(package: str) -> dict[str, str]:
    """The queries of a twin's queries.sql, by name."""
    text = read_sql(package, "queries.sql")
    queries = {}
    for block in text.split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        queries[name.strip()] = "\n".join(lines).strip().removesuffix(";")
    return queries


def read_migrations(package: str) -> list[Migration]:
    """The migrations of a twin in their order; the last one's number is the schema's version."""
    folder = resources.files(package) / "migrations"
    return sorted(
        Migration(int(file.name[:4]), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    )


def read_sql(package: str, name: str) -> str:
    """The text of one of a twin's .sql files."""
    return (resources.files(package) / name).read_text("utf-8")


class RowGone(NamedTuple):
    """A row that is no more, or is about to be written anew at the end."""

    kind: str
    id: str


class RowKept(NamedTuple):
    """A row as it is after the commit; new ones stand where their first change stands."""

    position: int
    kind: str
    id: str
    body: str


class JournalLine(NamedTuple):
    """One change, as the journal's table holds it."""

    revision: int
    at: str
    what: str
    kind: str
    id: str
    about: str
    lasting: bool
    body: str


class Piece(NamedTuple):
    """A part of a commit: to be written in this order."""

    gone: list[RowGone]
    kept: list[RowKept]
    lines: list[JournalLine]


def pieces(after: int, changes: Sequence[Change[Any]]) -> Iterator[Piece]:
    """A commit as the tables are to be told it, some thousand changes at a time."""
    for start in range(0, len(changes), PIECE_CHANGES):
        yield _piece(after + start, changes[start : start + PIECE_CHANGES])


def _piece(after: int, changes: Sequence[Change[Any]]) -> Piece:
    gone: dict[RowGone, None] = {}
    kept: dict[RowGone, RowKept] = {}
    lines = []
    # Changes of one decision carry the same instant: it is written out once.
    last_at, at = None, ""
    for revision, change in enumerate(changes, after + 1):
        row = change.row
        key = RowGone(kind := rows.kind_of(row), id_ := rows.id_of(row))
        body = rows.encode(row)
        if change.at is not last_at:
            last_at, at = change.at, instant(change.at)
        if isinstance(change, Removal):
            gone[key] = None
            kept.pop(key, None)
        else:
            first = kept.get(key)
            position = revision if first is None else first.position
            kept[key] = RowKept(position, kind, id_, body)
        lines.append(
            JournalLine(
                revision,
                at,
                type(change).__name__,
                kind,
                id_,
                rows.about(row),
                kind in rows.LASTING,
                body,
            )
        )
    return Piece(list(gone), list(kept.values()), lines)


def batches(copied: Iterator[AnyRow]) -> Iterator[tuple[type, list[tuple[Any, ...]]]]:
    """A copy as its tables are to be filled: some thousand rows of one table at a time."""
    positions = count(1)
    for table, found in groupby(copied, type):
        while values := [msgspec.structs.astuple(row) for row in islice(found, PIECE_CHANGES)]:
            if table is FleetRow:
                values = [(next(positions), *row) for row in values]
            yield table, values


def instant(at: datetime) -> str:
    """An instant as text of one length, so that text is ordered as time is."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def refused(epoch: int, after: int, *, found_epoch: int, found_revision: int) -> FairnoticeError:
    """Why the journal did not take a commit of this epoch after this revision."""
    if found_epoch != epoch:
        return LeadLost(f"The lead of epoch {epoch} is lost: epoch {found_epoch} has begun.")
    return JournalMoved(
        f"The journal ends at revision {found_revision}, not at {after}: load the state anew."
    )


def newer(name: str, found: int, known: int) -> NewerDatabase:
    """The error for a database that a later fairnotice has written."""
    return NewerDatabase(
        f"The database {name} has schema {found}; this fairnotice knows {known} at most. It was "
        f"written by a later fairnotice: install that one, or restore the backup that it made "
        f"before it migrated the database."
    )


def not_empty(name: str) -> UsageError:
    """The error for a database that should be filled and is not empty."""
    return UsageError(f"The database {name} is not empty, so nothing was restored: name a new one.")


def waits(seconds: float, interval_seconds: float) -> Iterator[float]:
    """So many seconds in waits of an interval each, the last one shorter."""
    whole = int(seconds / interval_seconds)
    for _ in range(whole):
        yield interval_seconds
    if (rest := seconds - whole * interval_seconds) > 0:
        yield rest


def event_of(about: str) -> str | None:
    """The id of the event whose story is asked for; None where it is another's."""
    return about.removeprefix("event:") if about.startswith("event:") else None
