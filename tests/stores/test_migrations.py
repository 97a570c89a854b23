"""Older databases are migrated after a backup, newer ones refused; twins have the same face."""

import re
import sqlite3
import stat
from contextlib import closing
from importlib import import_module
from pathlib import Path

import psycopg
import pytest

from fairnotice.errors import NewerDatabase, Unavailable
from fairnotice.stores import sql
from fairnotice.stores.opening import open_store
from fairnotice.stores.rows import about, encode, id_of, kind_of
from fairnotice.testing.sample_rows import ROWS, START
from tests.house import PACKAGE

TWINS = ["sqlite", "postgres"]


def _in_sqlite(query):
    """What is written here for PostgreSQL, in SQLite's words."""
    return query.replace("fairnotice.", "").replace("%s", "?")


class Sqlite:
    """A SQLite file, as a person with a shell sees it."""

    package = "fairnotice.stores.sqlite"
    breaking = "DROP TABLE journal; SELECT nonsense FROM nowhere;"
    in_its_words = staticmethod(_in_sqlite)

    def __init__(self, path):
        self.path = path
        self.url = f"sqlite:{path}"

    def run(self, script):
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(_in_sqlite(script))

    def write(self, query, values):
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(_in_sqlite(query), values)

    def ask(self, query, path=None):
        with closing(sqlite3.connect(path or self.path)) as connection:
            return connection.execute(_in_sqlite(query)).fetchall()

    def shape(self):
        return self.ask("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name")

    def backed_up(self, query, version=1):
        backup = Path(f"{self.path}.backup-v{version}")
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        return self.ask(query, backup)


class Postgres:
    """A PostgreSQL database, as a person with a shell sees it."""

    package = "fairnotice.stores.postgres"
    breaking = "DROP TABLE fairnotice.journal; SELECT nonsense FROM nowhere;"
    in_its_words = staticmethod(str)

    def __init__(self, url):
        self.url = url

    def run(self, script):
        with psycopg.connect(self.url) as connection:
            connection.execute(script)

    def write(self, query, values):
        with psycopg.connect(self.url) as connection:
            connection.cursor().executemany(query, values)

    def ask(self, query):
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()

    def shape(self):
        return (
            self.ask(
                "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, "
                "column_default FROM information_schema.columns "
                "WHERE table_schema = 'fairnotice' ORDER BY 1, 3"
            ),
            self.ask("SELECT indexdef FROM pg_indexes WHERE schemaname = 'fairnotice' ORDER BY 1"),
            self.ask(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
                "WHERE connamespace = 'fairnotice'::regnamespace ORDER BY 1"
            ),
            self.ask(
                "SELECT relname, reloptions FROM pg_class "
                "WHERE relnamespace = 'fairnotice'::regnamespace ORDER BY 1"
            ),
        )

    def backed_up(self, query, version=1):
        return self.ask(query.replace("fairnotice.", f"fairnotice_backup_v{version}."))


@pytest.fixture(params=TWINS)
def make(request, tmp_path):
    """Makes empty databases of one sort."""
    if request.param == "sqlite":
        return lambda name: Sqlite(tmp_path / name)
    server = request.getfixturevalue("postgres_server")
    return lambda _: Postgres(server.new_database())


def first_version(database):
    """Fill the database as the first fairnotice did; the rows that it holds."""
    database.run(sql.read_migrations(database.package)[0].sql)
    fleet = [(n, kind_of(row), id_of(row), encode(row)) for n, row in enumerate(ROWS, 1)]
    database.write("INSERT INTO fairnotice.fleet VALUES (%s, %s, %s, %s)", fleet)
    at = sql.instant(START)
    line = (1, at, "VmDeclared", kind_of(ROWS[1]), "db", about(ROWS[1]), True, encode(ROWS[1]))
    database.write("INSERT INTO fairnotice.journal VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", [line])
    database.run("UPDATE fairnotice.service SET epoch = 3, revision = 1")
    return list(ROWS)


def version(database):
    """The schema's version that the database says it has."""
    return database.ask("SELECT schema_version FROM fairnotice.service")


def test_a_new_database_is_what_all_migrations_make(make):
    """schema.sql, and the migrations one after another: the same tables, the same first row."""
    new, migrated = make("new"), make("migrated")
    new.run(sql.read_sql(new.package, "schema.sql"))
    for migration in sql.read_migrations(new.package):
        migrated.run(migration.sql)

    assert new.shape() == migrated.shape()
    ask = "SELECT * FROM fairnotice.service"
    assert new.ask(ask) == migrated.ask(ask)
    assert version(new) == [(len(sql.read_migrations(new.package)),)]


def test_an_older_database_is_migrated_after_a_backup(make):
    """Its rows, its journal and its epoch are there; as it was, it is in the backup."""
    old, new = make("old"), make("new")
    rows = first_version(old)
    open_store(new.url).close()

    with closing(open_store(old.url)) as store:
        assert list(store.load().rows) == rows
        assert store.lead() == 4
        assert [line.change.row for line in store.history("vm:db")] == [rows[1]]

    assert old.shape() == new.shape()
    assert version(old) == version(new)
    assert old.backed_up("SELECT schema_version, epoch FROM fairnotice.service") == [(1, 3)]
    assert old.backed_up("SELECT count(*) FROM fairnotice.fleet") == [(len(rows),)]
    assert old.backed_up("SELECT count(*) FROM fairnotice.journal") == [(1,)]
    # Opened once more, there is nothing to do, and no second backup of what is newer.
    open_store(old.url).close()
    assert old.backed_up("SELECT schema_version FROM fairnotice.service") == [(1,)]


def test_the_backup_before_a_migration_holds_every_table(make, monkeypatch):
    """Tokens too: what is added to a schema is in the backup of the next migration."""
    older = make("older")
    open_store(older.url).close()
    older.write("INSERT INTO fairnotice.token VALUES (%s, %s, %s)", [("one", 1, "{}")])
    schema = import_module(f"{older.package}.schema")
    later = schema.VERSION + 1
    script = older.in_its_words(
        "ALTER TABLE fairnotice.token ADD COLUMN added integer; "
        "UPDATE fairnotice.service SET schema_version = schema_version + 1;"
    )
    migrations = [*schema._MIGRATIONS, sql.Migration(later, script)]
    monkeypatch.setattr(schema, "_MIGRATIONS", migrations)
    monkeypatch.setattr(schema, "VERSION", later)

    open_store(older.url).close()

    assert older.ask("SELECT * FROM fairnotice.token") == [("one", 1, "{}", None)]
    assert older.backed_up("SELECT * FROM fairnotice.token", later - 1) == [("one", 1, "{}")]


def test_a_migration_that_fails_changes_nothing(make, monkeypatch):
    """The old version stays as it was, and the next start tries again."""
    old = make("old")
    rows = first_version(old)
    before = old.shape()
    schema = import_module(f"{old.package}.schema")
    broken = sql.Migration(2, old.breaking)
    with monkeypatch.context() as planted:
        planted.setattr(schema, "_MIGRATIONS", [schema._MIGRATIONS[0], broken])
        with pytest.raises(Unavailable, match=r"^open: .*nowhere"):
            open_store(old.url)
    assert old.shape() == before
    assert version(old) == [(1,)]

    with closing(open_store(old.url)) as store:
        assert list(store.load().rows) == rows


def test_a_newer_database_is_refused(make):
    """The error says which schema it has, and what to do; nothing is changed."""
    newer = make("newer")
    open_store(newer.url).close()
    newer.run("UPDATE fairnotice.service SET schema_version = 99")

    with pytest.raises(NewerDatabase, match=r"schema 99.*knows 5.*install"):
        open_store(newer.url)
    assert version(newer) == [(99,)]


# ---- Twins ----


def test_twins_hold_the_same_files():
    """To add a store, copy the simplest. Only PostgreSQL has what several processes share."""
    sqlite, postgres = (
        sorted(
            file.relative_to(PACKAGE / "stores" / twin).as_posix()
            for file in (PACKAGE / "stores" / twin).rglob("*")
            if file.suffix in {".py", ".sql"}
        )
        for twin in TWINS
    )
    assert sorted((*sqlite, "lease.py", "sessions.py")) == postgres


@pytest.mark.parametrize("twin", TWINS)
def test_each_query_has_a_description_and_a_use(twin):
    """SQL is written in SQL, and none is left behind."""
    folder = PACKAGE / "stores" / twin
    code = "".join(file.read_text("utf-8") for file in folder.glob("*.py"))
    text = (folder / "queries.sql").read_text("utf-8")
    described = re.findall(r"^-- name: (\w+)\n-- [A-Z].+[.]$", text, re.MULTILINE)

    assert described == list(sql.read_queries(f"fairnotice.stores.{twin}"))
    assert [name for name in described if f'["{name}"]' not in code] == []
    assert not re.search(r"\b(SELECT|INSERT|UPDATE|DELETE)\b [^:]", code)
