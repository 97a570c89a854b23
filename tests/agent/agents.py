"""Agents for tests: real ones, as a process or as a thread, with handlers that write lines."""

import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from fairnotice.agent import config, journal
from fairnotice.agent.daemon import Agent
from fairnotice.client import ScheduledEvents
from fairnotice.clock import SystemClock

HANDLERS = ("one", "two")


class Home:
    """A VM's disk, as far as an agent has one: configuration, journal, and what handlers wrote."""

    def __init__(self, folder: Path, rule: str = "", more: str = "", slow: str = "") -> None:
        self.folder = folder
        self.lines = folder / "lines"
        self.ready = folder / "ready"
        self.state = folder / "state"
        self.config = folder / "agent.toml"
        folder.mkdir(exist_ok=True)
        rule = rule or 'duration_at_least = 0\nprepare = ["one", "two"]'
        handlers = "\n".join(self.handler(name, slow) for name in HANDLERS)
        self.config.write_text(
            f'state = "{self.state}"\nready_file = "{self.ready}"\nmargin_seconds = 1\n'
            f'{more}\n[[rule]]\nname = "drain"\n{rule}\n{handlers}\n'
        )

    def handler(self, name: str, slow: str = "") -> str:
        """A handler that writes a line when it is begun."""
        told = f'echo "$FAIRNOTICE_PHASE {name} $FAIRNOTICE_EVENT_TYPE" >> {self.lines}{slow}'
        shell = f"['sh', '-c', '''{told}''']"
        return f'[handler.{name}]\nkind = "command"\nprepare = {shell}\nrecover = {shell}\n'

    @property
    def wrote(self) -> list[str]:
        """What the handlers wrote: `prepare one`, in its order."""
        text = self.lines.read_text() if self.lines.exists() else ""
        return [" ".join(line.split()[:2]) for line in text.splitlines()]

    def count(self) -> Counter[str]:
        """How often each was run."""
        return Counter(self.wrote)

    @property
    def journal(self) -> list[str]:
        """The kinds of the journal's lines, in their order."""
        file = self.state / journal.FILE
        raw = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        return [str((journal.decoded(line) or {}).get("kind")) for line in raw]

    @property
    def over(self) -> bool:
        """Whether every plan is over, and there was one."""
        found = journal.read(self.state).values()
        return bool(found) and all(one.over for one in found)


@contextmanager
def process(home: Home, cloud, vm: str = "web-0"):
    """The agent as people run it."""
    with (home.folder / "log").open("ab") as log:
        started = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "fairnotice", "agent", "run", "--config", str(home.config)],
            env={**cloud.environment(vm), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=log,
            stderr=log,
        )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
            started.wait(10)


def watching(home: Home, cloud, seconds: float = 10.0) -> None:
    """Wait until an agent watches."""
    cloud.wait_until(home.ready.exists, seconds)


@contextmanager
def thread(home: Home, url: str):
    """The agent in this process, which starts faster."""
    agent = Agent(config.load(home.config), ScheduledEvents(url), SystemClock())
    running = threading.Thread(target=agent.run, daemon=True)
    running.start()
    try:
        yield agent
    finally:
        agent.stop.set()
        running.join(10)


# Agents to be killed by the dozen: processes that need not begin with Python and its modules.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["fairnotice.agent.daemon", "tests.agent.agents"])


@contextmanager
def fork(home: Home, url: str):
    """The agent as a process that starts fast; to be killed, since it ends in no other way."""
    started = _FORKS.Process(target=_live, args=(home.config, url), daemon=True)
    started.start()
    try:
        yield started
    finally:
        started.kill()
        started.join(10)


def _live(file: Path, url: str) -> None:
    Agent(config.load(file), ScheduledEvents(url), SystemClock()).run()


def lives(pid: int) -> bool:
    """Whether there is such a process."""
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110
