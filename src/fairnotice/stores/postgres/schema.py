"""Making the tables of a new PostgreSQL database, and bringing older ones up to date."""

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from fairnotice.errors import UsageError
from fairnotice.stores.sql import newer, read_migrations, read_queries, read_sql

_QUERIES = {name: text.encode() for name, text in read_queries(__package__).items()}
_MAKE_ROOM = SQL(read_queries(__package__)["make_room"])
_BACK_UP = SQL(read_queries(__package__)["back_up"])
_MIGRATIONS = read_migrations(__package__)
VERSION = _MIGRATIONS[-1].number

_OUR_TABLES = {"service", "fleet", "journal"}


def prepare(connection: psycopg.Connection[Any], name: str) -> None:
    """Make the tables where there are none; migrate older ones, after a backup.

    All in one transaction. errors.NewerDatabase for what a later fairnotice has written,
    errors.UsageError for a schema `fairnotice` that is not ours.
    """
    with connection.transaction():
        connection.execute(_QUERIES["one_at_a_time"])
        found = connection.execute(_QUERIES["tables"]).fetchone()
        assert found is not None
        there, tables = found
        if not there:
            connection.execute(read_sql(__package__, "schema.sql").encode())
        elif not set(tables) >= _OUR_TABLES:
            raise UsageError(
                f"The schema fairnotice of the database {name} is something else's (it holds "
                f"{', '.join(sorted(tables)) or 'nothing'}): give another database."
            )
        else:
            migrate(connection, name, tables)


def migrate(connection: psycopg.Connection[Any], name: str, tables: Iterable[str]) -> None:
    """Bring the tables up to date; as they were, they are in the schema fairnotice_backup_vN."""
    version = schema_version(connection)
    if version > VERSION:
        raise newer(name, version, VERSION)
    if version == VERSION:
        return
    backup = Identifier(f"fairnotice_backup_v{version}")
    connection.execute(_MAKE_ROOM.format(backup=backup))
    for table in tables:
        connection.execute(_BACK_UP.format(backup=backup, table=Identifier(table)))
    for migration in _MIGRATIONS:
        if migration.number > version:
            connection.execute(migration.sql.encode())


def schema_version(connection: psycopg.Connection[Any]) -> int:
    """The number of the last migration that this database has seen."""
    found = connection.execute(_QUERIES["schema_version"]).fetchone()
    assert found is not None
    return int(found[0])
