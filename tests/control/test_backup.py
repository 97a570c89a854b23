"""The backup over HTTP: a whole file while commands go on, or a problem, and nothing left open."""

import io
import sqlite3
from contextlib import closing
from random import Random

import pytest

from fairnotice.errors import Unavailable
from fairnotice.stores import backups
from fairnotice.stores.backups import Backup
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from fairnotice.testing.manual_clock import DEFAULT_START
from tests.control.calling import restarted, serving
from tests.stores.stories import bulk

# More than all that lies between a service and who reads slowly.
ROWS, CHARACTERS = 12_000, 1_000


@pytest.fixture
def served(tmp_path):
    """A service on a file that is too large to be sent in one piece."""
    path, chance = tmp_path / "fleet.db", Random(1)
    large = [
        type(one)(one.at, one.row._replace(of=chance.randbytes(CHARACTERS // 2).hex()))
        for one in bulk(ROWS)
    ]
    with closing(open_store(f"sqlite:{path}")) as store:
        store.commit(store.lead(), 0, large)
    with serving(store=open_store(f"sqlite:{path}")) as service:
        service.path = path
        yield service


def is_being_read(path):
    """Whether somebody reads an earlier state of the file, so that its log cannot be emptied."""
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return bool(busy)


def test_what_comes_is_restored_as_it_was_while_commands_go_on(served):
    """The event announced before it is in it, the one announced while it is sent is not."""
    before = restarted(served, "web-0")
    connection = served.connection()
    with closing(connection):
        connection.request("GET", "/v1/backup")
        response = connection.getresponse()
        data = response.read(1_000)
        meanwhile = restarted(served, "web-1")
        data += response.read()

    assert response.headers["content-type"] == "application/gzip"
    store = MemoryStore()
    backups.restore(Backup(io.BytesIO(data), "it"), store, DEFAULT_START)
    assert store.history(f"event:{before}")
    assert not store.history(f"event:{meanwhile}")


def test_who_leaves_before_the_end_leaves_nothing_open(served):
    """The file's earlier state is let go of with his connection; the next one gets the whole."""
    with closing(served.connection()) as connection:
        connection.request("GET", "/v1/backup")
        with closing(connection.getresponse()) as response:
            response.read(1_000)
            restarted(served)
            assert is_being_read(served.path)
    assert any(not is_being_read(served.path) for _ in range(10_000) if served.get("/healthz"))

    whole = served.get("/v1/backup").body
    assert Backup(io.BytesIO(whole), "it").check().counts["journal"] > ROWS


def test_a_store_in_trouble_is_a_problem_and_no_file():
    """It is said before the first byte."""

    class Away(MemoryStore):
        def copy(self):
            raise Unavailable("copy: the disk is gone")

    with serving(store=Away()) as served:
        answer = served.get("/v1/backup")
    assert answer.status == 503
    assert "the disk is gone" in answer.problem["detail"]
