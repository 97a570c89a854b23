"""A store in trouble: the endpoint goes on reading, approvals are 503, and it ends by itself."""

import asyncio
import os
import sqlite3
import subprocess
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from fairnotice.clock import SystemClock
from fairnotice.control.serving import Serving
from fairnotice.engine import Decision
from fairnotice.engine.commands import ApplyFleet
from fairnotice.engine.specs import VmSpec
from fairnotice.errors import Unavailable
from fairnotice.metadata.identity import Door
from fairnotice.metadata.server import Server
from fairnotice.stores.opening import open_store
from fairnotice.stores.sqlite.store import SqliteStore
from tests.conductor.orchestra import FLEET, conducting, restart
from tests.conductor.requests import Visitor

PATIENCE_SECONDS = 15


@asynccontextmanager
async def served(store):
    """A conductor on this store, behind an endpoint; and somebody to talk to it."""
    clock = SystemClock()
    async with conducting(store, clock=clock) as conductor:
        newcomer = VmSpec("new", "node-3")
        await conductor.submit(ApplyFleet(spec=FLEET._replace(vms=(*FLEET.vms, newcomer))))
        serving = Serving(conductor, clock)
        server = Server(serving.worker(rate_limit=None))
        port = server.listen("127.0.0.1", 0, Door(prefix_allowed=True)).port
        reporting = asyncio.create_task(serving.reporting())
        try:
            yield conductor, Visitor(port)
        finally:
            reporting.cancel()
            server.close()


async def refuses_and_recovers(store, begin_trouble, end_trouble, go_on=lambda: None):
    """What must hold, whatever the trouble is."""
    async with served(store) as (conductor, visitor):
        await conductor.submit(restart("before", "db"))
        _, _, document = await visitor.get("db")
        (event,) = document["Events"]
        begin_trouble()
        try:
            with pytest.raises(Unavailable) as refused:
                await conductor.submit(restart("during", "db"))
            assert "commit" in str(refused.value)
            assert conductor.trouble is not None
            # Reading goes on, for those who were there and for those who come for the first time.
            assert not conductor.fleet.scopes["vm:new"].enabled
            for vm in ("db", "web-0", "new"):
                status, _, document = await visitor.get(vm)
                assert status == 200
            go_on()
            status, headers, _ = await visitor.approve("db", event["EventId"])
            assert status == 503
            assert int(headers["retry-after"]) > 0
        finally:
            end_trouble()
        await recovered(conductor)
        await enabled(conductor, "vm:new")
        status, _, _ = await visitor.approve("db", event["EventId"])
        assert status == 200
        assert isinstance(await conductor.submit(restart("after", "db")), Decision)
        assert "during" not in conductor.fleet.requests


async def recovered(conductor):
    """Nobody asks for anything, and yet the trouble ends."""
    for _ in range(PATIENCE_SECONDS * 20):
        if conductor.trouble is None:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still in trouble: {conductor.trouble}")


async def enabled(conductor, scope):
    """Whoever was answered meanwhile is known to listen now."""
    for _ in range(PATIENCE_SECONDS * 20):
        if conductor.fleet.scopes[scope].enabled:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{scope} was answered, and that is lost")


@contextmanager
def small_disk(folder):
    """A file system of its own, four megabytes large."""
    if os.geteuid():
        if os.environ.get("CI"):
            pytest.fail("a file system can be mounted by root only")
        pytest.skip("a file system can be mounted by root only")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)  # noqa: S603 - our own line
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


def remount(folder, how):
    """Make the file system readable only, or writable again."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)  # noqa: S603, S607


def fill(rubbish):
    """Leave no byte free."""
    with rubbish.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_disk_that_is_full(tmp_path):
    """Until somebody makes room."""
    with small_disk(tmp_path / "disk") as folder:
        store = open_store(f"sqlite:{folder}/fairnotice.db")
        rubbish = folder / "rubbish"
        # SQLite makes some room itself when it gives up its log, and somebody takes that too.
        filling = lambda: fill(rubbish)  # noqa: E731
        asyncio.run(refuses_and_recovers(store, filling, rubbish.unlink, go_on=filling))


def test_a_directory_that_is_read_only(tmp_path):
    """Until it is mounted as before."""
    with small_disk(tmp_path / "disk") as folder:
        store = open_store(f"sqlite:{folder}/fairnotice.db")

        def read_only():
            # A file system with files open for writing cannot be made read-only otherwise.
            store._drop()
            for lookout in store._lookouts:
                lookout.connection.close()
            store._lookouts.clear()
            remount(folder, "ro")

        asyncio.run(refuses_and_recovers(store, read_only, lambda: remount(folder, "rw")))


def test_a_database_that_somebody_else_holds_locked(tmp_path):
    """A backup, or a person's shell, until it lets go."""
    path = tmp_path / "fairnotice.db"
    store = SqliteStore(path, busy_seconds=0.2)
    somebody = sqlite3.connect(path, isolation_level=None)
    trouble = refuses_and_recovers(
        store,
        lambda: somebody.execute("BEGIN IMMEDIATE"),
        lambda: somebody.execute("ROLLBACK"),
    )
    asyncio.run(trouble)
    somebody.close()


def test_a_database_file_that_is_gone_and_back(tmp_path):
    """Moved away by mistake, and put back: nothing is written to a file without a name."""
    path = tmp_path / "fairnotice.db"
    away = tmp_path / "away"
    away.mkdir()
    files = [path.name + end for end in ("", "-wal", "-shm")]

    def move(source, target):
        for name in files:
            if (source / name).exists():
                (source / name).rename(target / name)

    store = open_store(f"sqlite:{path}")
    trouble = refuses_and_recovers(
        store, lambda: move(tmp_path, away), lambda: move(away, tmp_path)
    )
    asyncio.run(trouble)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_postgres_gone_and_back(postgres_server, how):
    """Shut down, or dead at once; the connection is made anew."""
    store = open_store(postgres_server.new_database())
    trouble = refuses_and_recovers(store, getattr(postgres_server, how), postgres_server.start)
    asyncio.run(trouble)
