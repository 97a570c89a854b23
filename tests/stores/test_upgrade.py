"""What an older release left on disk, in the middle of its work, is gone on with to its end.

tests/stores/write_older.py says how these databases were made, and by which code.
"""

import json
import sqlite3
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from fairnotice.engine import commands as ask
from fairnotice.engine.changes import ImpactBegun, ImpactEnded, OperationPlanned
from fairnotice.stores.opening import open_store
from fairnotice.stores.rows import encode, id_of, kind_of
from fairnotice.stores.sqlite.schema import VERSION
from fairnotice.testing.conducted import ConductedStage
from fairnotice.testing.manual_clock import DEFAULT_START
from fairnotice.words import EventStatus, OperationStatus, RolloutStatus
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, WEB
from tests.house import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
# When its last change was recorded.
LEFT_AT = DEFAULT_START + timedelta(hours=2, minutes=16)
# What every older schema has; names as PostgreSQL's twin calls them.
TABLES = ("fairnotice.service", "fairnotice.fleet", "fairnotice.journal")


class Sqlite:
    """A SQLite file that an older release wrote."""

    def __init__(self, path):
        self.path = path
        self.url = f"sqlite:{path}"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript((FIXTURES / "schema-3-sqlite.sql").read_text("utf-8"))

    def table(self, name):
        """Its rows, in their order."""
        with closing(sqlite3.connect(self.path)) as connection:
            query = f"SELECT * FROM {name.removeprefix('fairnotice.')} ORDER BY 1"  # noqa: S608
            return connection.execute(query).fetchall()


class Postgres:
    """A PostgreSQL database that an older release wrote."""

    def __init__(self, url):
        self.url = url
        with psycopg.connect(url) as connection:
            connection.execute((FIXTURES / "schema-3-postgres.sql").read_text("utf-8"))

    def table(self, name):
        """Its rows, in their order."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()  # noqa: S608


@pytest.fixture(params=["sqlite", "postgres"])
def older(request, tmp_path):
    """A database of schema 3, as it was left."""
    if request.param == "sqlite":
        return Sqlite(tmp_path / "fleet.db")
    return Postgres(request.getfixturevalue("postgres_url"))


def test_every_row_of_an_older_release_is_there_and_means_the_same(older):
    """Rows, journal and service line by line; nothing is lost, added or read differently."""
    service, fleet, journal = (older.table(name) for name in TABLES)
    assert len(fleet) == 62
    assert len(journal) == 112

    with closing(open_store(older.url)) as store:
        loaded = store.load()
        read = list(loaded.rows)
        lines = store.changes_after(0, 1_000)

    assert older.table("fairnotice.fleet") == fleet
    assert older.table("fairnotice.journal") == journal
    # Of the service only the schema's version is another: epoch, revision and instant hold.
    assert [(row[0], *row[2:]) for row in older.table("fairnotice.service")] == [
        (row[0], *row[2:]) for row in service
    ]
    assert older.table("fairnotice.service")[0][1] == VERSION
    assert [(kind_of(row), id_of(row)) for row in read] == [(row[1], row[2]) for row in fleet]
    for row, (*_, body) in zip(read, fleet, strict=True):
        # A field may have come after those that it knew.
        assert json.loads(encode(row))[: len(json.loads(body))] == json.loads(body)
    for line, written in zip(lines, journal, strict=True):
        assert (line.revision, type(line.change).__name__) == (written[0], written[2])
        body = json.loads(written[-1])
        assert json.loads(encode(line.change.row))[: len(body)] == body


def test_what_an_older_release_has_begun_is_brought_to_its_end(older):
    """An impact under way, a held event, a delete, a rollout: each ends once, as promised then."""
    now = LEFT_AT + timedelta(minutes=3)
    with closing(ConductedStage(start=now, open_store=lambda: open_store(older.url))) as stage:
        told = {event.operation: event for event in stage.fleet.events.values() if event.visible}
        before = {name: stage.document(name).incarnation for name in (WEB, BATCH, SHOP, DB)}
        # Nobody knew of the delete: it has its notice anew. Of the later restart nothing changes.
        assert told["deleted"].not_before == now + timedelta(minutes=5)
        assert told["later"].not_before == LEFT_AT + timedelta(hours=5)

        assert list(stage.asked) == ["begun/FrontEnd_IN_1"]
        stage.report("begun/FrontEnd_IN_1")
        stage.advance(minutes=16)
        assert stage.fleet.events[told["held"].id].status is EventStatus.SCHEDULED
        stage.tell(ask.Release(event=told["held"].id, by=OPERATOR))
        begun = _until_all_is_over(stage)

        assert sorted(key.partition("/")[2] for key in begun) == [
            *("BackEnd_IN_0", "batch_0", "batch_3", "db", "spot_1", "web-0", "web-2")
        ]
        assert "batch_3" not in stage.fleet.vms
        assert stage.fleet.operations["begun"].status is OperationStatus.COMPLETED
        assert stage.fleet.rollouts["kernel"].status is RolloutStatus.COMPLETED
        for name, incarnation in before.items():
            assert stage.document(name).incarnation > incarnation
    with closing(open_store(older.url)) as store:
        story = [type(line.change) for line in store.history("operation:begun")]
    # The part that the older release told, and the one that this one did.
    assert story[0] is OperationPlanned
    assert (story.count(ImpactBegun), story.count(ImpactEnded)) == (1, 1)


def _until_all_is_over(stage):
    """Carry out whatever is begun, until nothing is live; the keys of it."""
    begun = set()
    for _ in range(100):
        for key in list(stage.under_way):
            assert key not in begun
            begun.add(key)
            stage.report(key)
        if not any(operation.live for operation in stage.fleet.operations.values()):
            rollout = stage.fleet.rollouts["kernel"]
            if rollout.ended_at is not None:
                break
        stage.advance(minutes=9)
    return begun
