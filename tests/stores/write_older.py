"""Writes the databases of an older fairnotice that tests/stores/test_upgrade.py goes on with.

Run by the code whose databases are wanted, in a checkout of it; those in tests/fixtures are of
commit 8d1c8a6, the last one with schema 3:

    git worktree add --detach ../older 8d1c8a6
    cd ../older && make install
    project=../fairnotice
    PYTHONPATH=. .venv/bin/python $project/tests/stores/write_older.py $project/tests/fixtures

They are not written again: what a release has left on people's disks does not change any more.
"""

import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg.sql import Literal

from fairnotice.engine import commands as ask
from fairnotice.stores.opening import open_store
from fairnotice.stores.sqlite.schema import VERSION
from fairnotice.testing.conducted import ConductedStage
from fairnotice.words import OperationKind, Outcome, Role
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, USER, WEB, sample
from tests.postgres import PostgresServer

TABLES = ("service", "fleet", "journal")


def tell_the_story(url):
    """A day of a fleet, left in the middle: of an impact, a rollout, a held event, a delete."""
    stage = ConductedStage(open_store=lambda: open_store(url))
    stage.tell(ask.ApplyFleet(spec=sample()))
    # Of the Spot VMs nobody listens.
    stage.listen(WEB, BATCH, SHOP, DB)
    over(stage)
    stage.advance(hours=2)
    stage.listen(WEB, BATCH, SHOP, DB)
    under_way(stage)
    stage.close()


def over(stage):
    """What is history already: a restart, one that failed, one taken back, a VM gone and a life."""
    stage.tell(ask.Restart(id="over", by=USER, vms=("db",), idempotency_key="once"))
    seen(stage, DB, "db")
    approve(stage, DB, "db")
    stage.report(next(iter(stage.under_way)))
    stage.tell(ask.Restart(id="failed", by=USER, vms=("web-1",)))
    stage.advance(minutes=15)
    stage.report(next(iter(stage.under_way)), Outcome.FAILED, 'it said "no"; \\ ü🦜')
    stage.tell(ask.Redeploy(id="canceled", by=USER, vms=("db",)))
    stage.tell(ask.Cancel(target="canceled", by=USER))
    stage.tell(ask.Evict(id="evicted", by=USER, vms=("spot_0",)))
    stage.report(next(iter(stage.under_way)))
    stage.restart()


def under_way(stage):
    """What the next fairnotice has to go on with."""
    stage.tell(ask.JoinEndpoint(node="node-1"))
    nodes = ("node-0", "node-2", "node-5")
    stage.tell(
        ask.StartRollout(id="kernel", by=OPERATOR, nodes=nodes, kind=OperationKind.HOST_REBOOT)
    )
    seen(stage, WEB, "web-2")
    # Held: the endpoint of its node has not confirmed it.
    stage.tell(ask.Restart(id="held", by=USER, vms=("db",)))
    stage.tell(ask.Restart(id="begun", by=USER, vms=("FrontEnd_IN_1",)))
    approve(stage, SHOP, "FrontEnd_IN_1")
    stage.advance(minutes=1)
    stage.tell(ask.Delete(id="deleted", by=USER, vms=("batch_3",)))
    later = stage.now.wall + timedelta(hours=5)
    stage.tell(ask.Restart(id="later", by=USER, vms=("BackEnd_IN_0",), not_before=later))
    stage.tell(ask.Cordon(node="node-4"))


def seen(stage, scope, vm):
    """This VM was served what its scope reads."""
    shown = stage.document(scope).events
    report = tuple(ask.SeenBy(event.id, vm, stage.now.wall) for event in shown)
    stage.tell(ask.ReportServed(seen=report))


def approve(stage, scope, vm):
    """This VM approves all that it reads."""
    shown = tuple(event.id for event in stage.document(scope).events)
    stage.tell(ask.Approve(events=shown, by=OPERATOR._replace(name=vm, role=Role.VM)))


# ---- As text ----


def sqlite_text(folder):
    """The file, as SQLite's own dump has it."""
    tell_the_story(f"sqlite:{folder}/fleet.db")
    with closing(sqlite3.connect(Path(folder) / "fleet.db")) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def postgres_text(url):
    """The schema as that release makes it, and a statement for each row."""
    tell_the_story(url)
    made = resources.files("fairnotice.stores.postgres") / "schema.sql"
    lines = [made.read_text("utf-8"), "DELETE FROM fairnotice.service;"]
    with psycopg.connect(url) as connection:
        connection.execute("SET timezone = 'UTC'")
        for table in TABLES:
            for row in connection.execute(f"TABLE fairnotice.{table} ORDER BY 1"):
                values = ", ".join(Literal(value).as_string(connection) for value in row)
                lines.append(" ".join(("INSERT INTO", f"fairnotice.{table} VALUES ({values});")))
    return "\n".join(lines) + "\n"


def main(folder):
    """Write both."""
    with TemporaryDirectory() as scratch:
        text = sqlite_text(scratch)
    (folder / f"schema-{VERSION}-sqlite.sql").write_text(text, "utf-8")
    with PostgresServer() as server:
        text = postgres_text(server.new_database())
    (folder / f"schema-{VERSION}-postgres.sql").write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
