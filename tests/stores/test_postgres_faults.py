"""What can befall a PostgreSQL, and that nothing is lost or half written by it."""

from contextlib import closing
from threading import Event, Thread

import psycopg
import pytest

from fairnotice.engine.changes import NodeDeclared
from fairnotice.errors import JournalMoved, Unavailable, UsageError
from fairnotice.model import Node
from fairnotice.stores.postgres.store import PostgresStore
from fairnotice.testing.sample_rows import START
from tests.stores.stories import Leading, bulk, nodes

LIMIT_SECONDS = 30


@pytest.fixture
def store(postgres_url):
    """A store that does not wait long for locks."""
    with closing(PostgresStore(postgres_url, busy_seconds=0.1)) as store:
        yield store


@pytest.fixture
def operator(postgres_url):
    """Somebody with a shell of their own on the same database."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_goes_and_comes_back_is_outlived(postgres_server, store, how):
    """While it is gone each call says so; then the same store goes on."""
    leading = Leading(store)
    leading.declare("before")
    getattr(postgres_server, how)()
    try:
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"^commit: "):
                leading.declare("meanwhile")
        with pytest.raises(Unavailable, match=r"^load: ") as failed:
            store.load()
        assert isinstance(failed.value.__cause__, psycopg.OperationalError)
        with pytest.raises(Unavailable, match=r"^wait_beyond: "):
            store.wait_beyond(1, 0)
    finally:
        postgres_server.start()

    leading.declare("after")
    assert nodes(store) == ["before", "after"]
    assert store.wait_beyond(1, 0) == 2


def hang_up(operator):
    """End every connection of a store to this database."""
    operator.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name = 'fairnotice' AND datname = current_database()"
    )


def test_a_connection_lost_between_two_calls_is_not_noticed(store, operator):
    """The next call connects anew, and nobody is told of an error."""
    leading = Leading(store)
    leading.declare("before")
    hang_up(operator)
    leading.declare("after")
    hang_up(operator)
    assert nodes(store) == ["before", "after"]


def test_a_connection_lost_while_waiting_is_told(store, operator):
    """Whoever waits may wait again."""
    leading = Leading(store)
    failed = Event()

    def wait():
        try:
            store.wait_beyond(0, LIMIT_SECONDS)
        except Unavailable:
            failed.set()

    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    # Again and again, because nobody knows when it has begun to wait.
    while not failed.wait(0.05):
        hang_up(operator)
    waiting.join(LIMIT_SECONDS)
    leading.declare("after")
    assert store.wait_beyond(0, LIMIT_SECONDS) == 1


class LosesTheWord(PostgresStore):
    """The commit is made, and the connection goes before the word of it comes."""

    def _write(self, connection, epoch, after, changes):
        super()._write(connection, epoch, after, changes)
        raise psycopg.OperationalError("the server closed the connection unexpectedly")


def test_a_commit_whose_word_was_lost_is_found(postgres_url):
    """It is looked for at once, by a new connection."""
    with closing(LosesTheWord(postgres_url)) as store:
        leading = Leading(store)
        leading.commit(*bulk(3))
        assert store.load().revision == 3


def test_another_commit_is_not_taken_for_ours(postgres_url):
    """The journal is where ours would have led; but what is there is not ours."""

    class Fails(PostgresStore):
        def _write(self, *_):
            raise psycopg.OperationalError("the server closed the connection unexpectedly")

    with closing(PostgresStore(postgres_url)) as store:
        leading = Leading(store)
        leading.declare("made, and thought lost")
    with closing(Fails(postgres_url)) as store, pytest.raises(Unavailable, match=r"^commit: "):
        store.commit(leading.epoch, 0, [NodeDeclared(START, Node("other"))])
    with closing(PostgresStore(postgres_url)) as store, pytest.raises(JournalMoved):
        store.commit(leading.epoch, 0, [NodeDeclared(START, Node("other"))])


def test_a_locked_row_is_told_and_outlived(store, operator):
    """Somebody left a transaction open in a shell."""
    leading = Leading(store)
    leading.declare("before")
    with operator.transaction():
        operator.execute("UPDATE fairnotice.service SET epoch = epoch")
        with pytest.raises(Unavailable, match=r"^commit: .*lock"):
            leading.declare("meanwhile")
        assert nodes(store) == ["before"]
    leading.declare("after")
    assert nodes(store) == ["before", "after"]


def test_a_read_only_database_is_told_and_outlived(store, operator):
    """As after a switch to a standby."""
    leading = Leading(store)
    leading.declare("before")
    name = operator.info.dbname
    operator.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    hang_up(operator)
    with pytest.raises(Unavailable, match=r"^commit: .*read-only"):
        leading.declare("meanwhile")
    operator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    leading.declare("after")
    assert nodes(store) == ["before", "after"]


def test_two_stores_wake_each_other(postgres_url, store):
    """One leads, another process follows."""
    leading = Leading(store)
    with closing(PostgresStore(postgres_url)) as follower:
        seen = []
        waiting = Thread(target=lambda: seen.append(follower.wait_beyond(0, LIMIT_SECONDS)))
        waiting.start()
        leading.declare("one")
        waiting.join(LIMIT_SECONDS)
        assert seen == [1]
        assert len(follower.changes_after(0, 10)) == 1


def test_forgetting_nothing_writes_nothing(store, operator):
    """An idle service leaves its disk alone: no transaction is given a number."""
    leading = Leading(store)
    leading.commit(*bulk(10))
    at = store.load().recorded_at
    ask = "SELECT pg_snapshot_xmax(pg_current_snapshot())"
    before = operator.execute(ask).fetchone()
    assert store.forget(journal_before=at, history_before=at) == 0
    store.wait_beyond(leading.revision, 0.05)
    assert operator.execute(ask).fetchone() == before


def test_a_closed_store_says_so(store):
    """Closing twice does no harm."""
    store.close()
    store.close()
    for call in (store.lead, store.load, lambda: store.wait_beyond(0, 0)):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_a_schema_of_something_else_is_left_alone(postgres_url, operator):
    """A schema of our name without our tables."""
    operator.execute("CREATE SCHEMA fairnotice CREATE TABLE birds (name text)")
    with pytest.raises(UsageError, match=r"something else's.*birds"):
        PostgresStore(postgres_url)
    tables = operator.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'fairnotice'")
    assert tables.fetchone() == (1,)


def test_nobody_there_is_told_without_the_password(tmp_path):
    """No server at this address."""
    with pytest.raises(Unavailable, match=r"^open: ") as failed:
        PostgresStore(f"postgresql://me:secret@/fleet?host={tmp_path}")
    assert "secret" not in str(failed.value)
