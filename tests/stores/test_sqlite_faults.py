"""What can befall a SQLite file, and that nothing is lost or half written by it."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import timedelta
from threading import Thread

import pytest

from fairnotice.engine.changes import NodeDeclared
from fairnotice.errors import JournalMoved, LeadLost, Unavailable, UsageError
from fairnotice.model import Node
from fairnotice.stores import sql
from fairnotice.stores.sqlite.store import SqliteStore
from fairnotice.testing.sample_rows import START
from tests.stores.stories import Leading, bulk, needs_root, nodes

LIMIT_SECONDS = 30


@pytest.fixture
def path(tmp_path):
    """Where the database will be."""
    return tmp_path / "fleet.db"


def run(*line):
    """Run a command line."""
    subprocess.run(line, check=True, timeout=LIMIT_SECONDS)  # noqa: S603 - our own lines


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own, of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    yield folder
    run("umount", "--lazy", str(folder))


@needs_root
def test_a_full_disk_is_told_and_outlived(small_disk):
    """The commit fails whole; when there is room again, the same store goes on."""
    with closing(SqliteStore(small_disk / "fleet.db")) as store:
        leading = Leading(store)
        leading.declare("before")
        filler = small_disk / "filler"
        filler.write_bytes(bytes(1_600_000))

        with pytest.raises(Unavailable, match=r"^commit: .*full") as failed:
            leading.commit(*bulk(2_000))
        assert isinstance(failed.value.__cause__, sqlite3.OperationalError)
        assert nodes(store) == ["before"]
        assert store.load().revision == 1

        filler.unlink()
        leading.declare("after")
        assert nodes(store) == ["before", "after"]


@needs_root
def test_a_file_system_that_turns_read_only_is_outlived(small_disk):
    """After its first failure the store holds no file open for writing, so this is possible."""
    store = SqliteStore(small_disk / "fleet.db", busy_seconds=0.05)
    leading = Leading(store)
    leading.declare("before")
    with taken(small_disk / "fleet.db"), pytest.raises(Unavailable):
        leading.declare("locked out")

    run("mount", "-o", "remount,ro", str(small_disk))
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"^commit: "):
            leading.declare("read-only")
    with pytest.raises(Unavailable, match=r"^lead: "):
        store.lead()

    run("mount", "-o", "remount,rw", str(small_disk))
    leading.declare("after")
    assert nodes(store) == ["before", "after"]
    store.close()


@needs_root
def test_a_read_only_directory_at_the_start_is_told(small_disk):
    """Nothing is made there, and it works once it can."""
    run("mount", "-o", "remount,ro", str(small_disk))
    with pytest.raises(Unavailable, match=r"^open: .*Read-only"):
        SqliteStore(small_disk / "fleet.db")

    run("mount", "-o", "remount,rw", str(small_disk))
    SqliteStore(small_disk / "fleet.db").close()


@contextmanager
def taken(path):
    """Somebody else is writing in the database."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_a_locked_database_is_told_and_outlived(path):
    """Reading goes on meanwhile."""
    with closing(SqliteStore(path, busy_seconds=0.05)) as store:
        leading = Leading(store)
        leading.declare("before")

        with taken(path):
            with pytest.raises(Unavailable, match=r"^commit: .*locked"):
                leading.declare("meanwhile")
            assert nodes(store) == ["before"]
            assert len(store.history("node:before")) == 1
        leading.declare("after")
        assert nodes(store) == ["before", "after"]


def test_a_deleted_database_swallows_nothing(path):
    """A commit into a deleted file is an error, and no new file is made in its place."""
    with closing(SqliteStore(path)) as store:
        leading = Leading(store)
        leading.declare("before")
        kept = path.with_name("moved away")
        path.rename(kept)

        for _ in range(2):
            with pytest.raises(Unavailable, match=r"^commit: "):
                leading.declare("into the void")
        with pytest.raises(Unavailable, match=r"^wait_beyond: "):
            store.wait_beyond(0, 0)
        with pytest.raises(Unavailable, match=r"^load: "):
            store.load()
        assert not path.exists()

        kept.rename(path)
        leading.declare("after")
        assert nodes(store) == ["before", "after"]


def test_a_database_deleted_during_a_commit_is_told(path):
    """The last moment counts too."""

    class Unlucky(SqliteStore):
        def _usable(self):
            main = super()._usable()
            if unlucky:
                path.unlink()
            return main

    unlucky = False
    with closing(Unlucky(path)) as store:
        leading = Leading(store)
        unlucky = True
        with pytest.raises(Unavailable, match=r"^commit: .*deleted or replaced"):
            leading.declare("gone")


def test_a_database_replaced_by_an_older_copy_is_noticed(path):
    """It is another journal: whoever leads has to load it anew."""
    with closing(SqliteStore(path)) as store:
        Leading(store).declare("before")
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    with closing(SqliteStore(path)) as store:
        leading = Leading(store)
        leading.declare("lost")
        copy.replace(path)
        with pytest.raises(Unavailable, match=r"belongs to the former one"):
            leading.declare("after")

        for leftover in ("fleet.db-wal", "fleet.db-shm"):
            path.with_name(leftover).unlink()
        with pytest.raises(LeadLost):
            leading.declare("after")
        leading.epoch = store.lead()
        with pytest.raises(JournalMoved):
            leading.declare("after")
        assert nodes(store) == ["before"]


def test_a_deleted_log_loses_nothing(path):
    """What stood only in the log is saved into the database."""
    with closing(SqliteStore(path)) as store:
        leading = Leading(store)
        leading.declare("before")
        path.with_name("fleet.db-wal").unlink()
        leading.declare("after")
        assert nodes(store) == ["before", "after"]


HOLD = """
import sys
from pathlib import Path
from fairnotice.stores.sqlite.store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time(path):
    """The second is told which process holds the file; kill -9 lets go of it."""
    line = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # noqa: S603
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(Unavailable, match=f"process {other.pid}"):
            SqliteStore(path)
        other.send_signal(signal.SIGKILL)
        other.wait(LIMIT_SECONDS)
    SqliteStore(path).close()


OTHERS_COMMIT = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], isolation_level=None).execute("UPDATE service SET revision = 5")
"""


def test_waiting_sees_what_another_process_commits(path):
    """The file is the truth, not what this process did."""
    with closing(SqliteStore(path)) as store:
        seen = []
        waiting = Thread(target=lambda: seen.append(store.wait_beyond(0, LIMIT_SECONDS)))
        waiting.start()
        run(sys.executable, "-c", OTHERS_COMMIT, str(path))
        waiting.join(LIMIT_SECONDS)
        assert seen == [5]


def test_closing_ends_waiting(path):
    """Whoever waits is let go, and a closed store says that it is."""
    store = SqliteStore(path)
    seen = []
    waiting = Thread(target=lambda: seen.append(store.wait_beyond(0, LIMIT_SECONDS)))
    waiting.start()
    store.close()
    store.close()
    waiting.join(LIMIT_SECONDS)
    assert seen == [0]
    for call in (store.lead, store.load, lambda: store.wait_beyond(0, 0)):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_nobody_else_may_read_it(path):
    """Names of VMs and of people are nobody else's business."""
    with closing(SqliteStore(path)) as store:
        Leading(store).declare("one")
        files = list(path.parent.iterdir())
        assert len(files) == 4
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_forgetting_nothing_writes_nothing(path):
    """An idle service leaves its disk alone."""
    with closing(SqliteStore(path)) as store:
        leading = Leading(store)
        leading.commit(*bulk(10))
        at = leading.store.load().recorded_at
        log = path.with_name("fleet.db-wal")
        before = log.stat().st_mtime_ns, log.stat().st_size
        assert store.forget(journal_before=at, history_before=at) == 0
        store.wait_beyond(leading.revision, 0.06)
        assert (log.stat().st_mtime_ns, log.stat().st_size) == before


# ---- Paths that cannot be ----


def test_a_missing_directory_is_told(tmp_path):
    """It is not made: a wrong path would hold a fleet."""
    with pytest.raises(UsageError, match="no directory"):
        SqliteStore(tmp_path / "typo" / "fleet.db")


def test_a_directory_is_no_database(tmp_path):
    """The path of a directory."""
    with pytest.raises(UsageError, match="cannot be used"):
        SqliteStore(tmp_path)


def test_a_directory_of_somebody_else_is_told(tmp_path):
    """A user without the right to write there."""
    tmp_path.chmod(0o500)
    with not_as_root(), pytest.raises(UsageError, match="may write"):
        SqliteStore(tmp_path / "fleet.db")


@contextmanager
def not_as_root():
    """Root may write everywhere, so for a while we are somebody else."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_is_no_database_is_left_alone(path):
    """A file of something else."""
    path.write_text("Dear diary, " * 1_000)
    with pytest.raises(UsageError, match="no SQLite database"):
        SqliteStore(path)
    assert path.read_text() == "Dear diary, " * 1_000


def test_a_database_of_something_else_is_left_alone(path):
    """A database without our tables."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE birds (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"something else.*birds"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_every_commit_waits_for_the_disk(tmp_path):
    """A write-ahead log that is synced with every commit, not only now and then."""
    store = SqliteStore(tmp_path / "fairnotice.db")
    connection = store._usable().connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_link_to_the_database_is_followed(tmp_path):
    """Log and lock are beside the file itself, and whoever comes by the other name is refused."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real" / "fairnotice.db")
    store = SqliteStore(link)
    assert store.lead() == 1
    assert (tmp_path / "real" / "fairnotice.db-wal").exists()
    with pytest.raises(Unavailable):
        SqliteStore(tmp_path / "real" / "fairnotice.db")
    store.close()


def test_forgetting_takes_a_piece_at_a_time(tmp_path, monkeypatch):
    """So that commits get their turn in between."""
    monkeypatch.setattr(sql, "FORGET_LINES", 3)
    store = SqliteStore(tmp_path / "fairnotice.db")
    changes = [NodeDeclared(START, Node(f"node-{n}")) for n in range(8)]
    store.commit(store.lead(), 0, changes)
    later = START + timedelta(days=1)
    pieces = [store.forget(journal_before=later, history_before=later) for _ in range(4)]
    assert pieces == [3, 3, 2, 0]
    store.close()
