"""A service to talk to, and `fairnotice` as a person types it: in a pipe, or on a terminal."""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from fairnotice.clock import SystemClock
from fairnotice.control.fleet_files import sample_fleet, specification
from fairnotice.control.running import Place, Plan, Running, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.stores.memory import MemoryStore

PROGRAM = (sys.executable, "-m", "fairnotice")
PATIENCE_SECONDS = 20
# One VM of each scope: when it has asked for its document, all of the scope are told of events.
LISTENERS = ("web-0", "batch_0", "spot_0", "FrontEnd_IN_0", "db")
HOME = tempfile.mkdtemp(prefix="fairnotice-home-")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


# ---- The service ----


class Served(NamedTuple):
    """Where a service is."""

    url: str
    metadata: str

    def look(self, vm: str) -> dict[str, Any]:
        """Read the document as this VM."""
        target = f"{self.metadata}/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
        with urlopen(Request(target, headers={"Metadata": "true"})) as answer:  # noqa: S310
            document: dict[str, Any] = json.load(answer)
        return document


@contextmanager
def served(listeners: tuple[str, ...] = LISTENERS) -> Iterator[Served]:
    """A whole service with the sample fleet, in a thread of its own; these VMs have asked."""
    there: list[Running] = []
    up, over = threading.Event(), threading.Event()

    async def serve() -> None:
        clock = SystemClock()
        anywhere = Place("127.0.0.1", 0)
        plan = Plan(
            MemoryStore(), SimulatedDriver(clock), clock, metadata=anywhere, control=anywhere
        )
        async with running(plan) as run:
            await run.service.apply_fleet(specification(sample_fleet()))
            there.append(run)
            up.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(PATIENCE_SECONDS)
        found = Served(f"http://{there[0].control}", f"http://{there[0].metadata}")
        for vm in listeners:
            found.look(vm)
        yield found
    finally:
        over.set()
        thread.join()


# ---- In a pipe ----


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed with --json."""
        return json.loads(self.out)


def environment(url: str | None, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a person without settings, but for where the service is."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("FAIRNOTICE_", "XDG_", "NO_COLOR", "COLUMNS", "LINES"))
    }
    kept |= {"HOME": HOME, "TERM": "xterm-256color"} | dict(more or {})
    return kept | ({"FAIRNOTICE_URL": url} if url else {})


def typed(
    *words: str,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> Ended:
    """Type this command where nothing is a terminal."""
    done = subprocess.run(  # noqa: S603
        [*PROGRAM, *words],
        env=environment(url, env),
        input=stdin or "",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


# ---- On a terminal ----


class Terminal:
    """A command that runs on a pseudo-terminal, of 100 columns where nothing else is said."""

    def __init__(
        self,
        *words: str,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        columns: int = 100,
    ) -> None:
        self._main, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(  # noqa: S603
            [*PROGRAM, *words], env=environment(url, env), stdin=there, stdout=there, stderr=there
        )
        os.close(there)
        self.raw = ""

    @property
    def text(self) -> str:
        """All that it has written, without colours."""
        return ESCAPES.sub("", self.raw)

    def wait_for(self, text: str) -> None:
        """Wait until it has written this."""
        clock = SystemClock()
        limit = clock.monotonic() + PATIENCE_SECONDS
        while text not in self.text:
            assert clock.monotonic() < limit, f"{text!r} is not in:\n{self.text}"
            self._read()

    def type(self, text: str) -> None:
        """Type this."""
        os.write(self._main, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait until it has ended; its exit code."""
        while self._read():
            pass
        os.close(self._main)
        return self._process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        """Read what there is; whether there may be more."""
        ready, _, _ = select.select([self._main], [], [], 0.2)
        if not ready:
            return self._process.poll() is None
        try:
            self.raw += os.read(self._main, 65_536).decode(errors="replace")
        except OSError:
            return False
        return True


def write(folder: Path, name: str, text: str) -> str:
    """A file with this text; its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)
