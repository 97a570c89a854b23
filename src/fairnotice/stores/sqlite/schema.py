"""Making the tables of a new SQLite file, and bringing those of an older one up to date."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from fairnotice.errors import UsageError
from fairnotice.stores.sql import newer, read_migrations, read_queries, read_sql

_QUERIES = read_queries(__package__)
_MIGRATIONS = read_migrations(__package__)
VERSION = _MIGRATIONS[-1].number

_OUR_TABLES = {"service", "fleet", "journal"}


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables where there are none; migrate older ones, after a backup.

    errors.NewerDatabase for what a later fairnotice has written, errors.UsageError for what is
    no database of ours.
    """
    try:
        tables = {name for (name,) in connection.execute(_QUERIES["tables"])}
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise UsageError(f"{path} is no SQLite database: give another path.") from error
    if not tables:
        _run(connection, read_sql(__package__, "schema.sql"))
        return
    if not tables >= _OUR_TABLES:
        raise UsageError(
            f"{path} is a database of something else (it holds {', '.join(sorted(tables))}): "
            f"give another path."
        )
    migrate(connection, path)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the tables up to date; the database as it was is in `PATH.backup-vN`."""
    version = schema_version(connection)
    if version > VERSION:
        raise newer(str(path), version, VERSION)
    if version == VERSION:
        return
    back_up(connection, path.with_name(f"{path.name}.backup-v{version}"))
    for migration in _MIGRATIONS:
        if migration.number > version:
            _run(connection, migration.sql)


def schema_version(connection: sqlite3.Connection) -> int:
    """The number of the last migration that this database has seen."""
    (version,) = connection.execute(_QUERIES["schema_version"]).fetchone()
    return int(version)


def must_be_current(connection: sqlite3.Connection) -> None:
    """An error where the file was replaced by one of another schema while it was in use."""
    if (version := schema_version(connection)) != VERSION:
        raise sqlite3.OperationalError(f"it was replaced by one of schema {version}")


def back_up(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the database, durably; the copy has its name only when it is whole."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(sqlite3.connect(partial)) as copy:
        connection.backup(copy)
        # The copy brings the mark of write-ahead logging along; a backup is one file.
        copy.execute("PRAGMA journal_mode = DELETE")
    _flush(partial)
    partial.replace(path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run a script in one transaction."""
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
