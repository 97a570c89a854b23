"""Several control planes on one PostgreSQL: how soon a change is seen elsewhere, and a takeover.

A change is commanded at the one that leads; a second process follows the journal, and a VM asks
that one for its document from the moment on in which the command was answered. The same at the
endpoint of a node, which follows the feed of the second. In a takeover the leader is killed, and
another has taken a command.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from select import select
from time import perf_counter
from typing import NamedTuple

from bench.commits import missing_for_postgres, postgres
from bench.databases import build
from bench.fleets import STANDALONE_PER_NODE
from bench.nodes import start_endpoint, wait_for
from bench.numbers import LeftOut, Number
from bench.peers import free_port
from bench.pollers import start_pollers
from bench.processes import Process, cores
from bench.service_process import SOCKET, Commands, start_service
from bench.showing import until_shown

VMS = 10_000
CHANGED_VMS = 500
# The first VMs of the fleet are there, in scopes of their own.
NODE = "node-000-00"
# Milliseconds: the median, and the 99th percentile.
SEEN_AT_MOST = (15, 100)
TAKEOVER_SECONDS_AT_MOST = 3
LOOK_EVERY_SECONDS = 0.002


class Member:
    """One of the control planes."""

    def __init__(self, url: str, folder: Path, name: str, core: int | None) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.process = self._started(url, name, core)
        self.port = int(self.process.listen()["port"])
        self.commands = Commands(self.folder / SOCKET)

    def _started(self, url: str, name: str, core: int | None) -> Process:
        return start_service(url, self.folder, core, join=f"http://{name}")

    def until_leading(self) -> None:
        """Wait until it takes commands."""
        while not self.commands.ask(do="look")["leading"]:
            select([], [], [], LOOK_EVERY_SECONDS)

    def end(self) -> None:
        """End it."""
        self.commands.close()
        self.process.end()


class Plane(Member):
    """One of them with its API, which endpoints follow."""

    def _started(self, url: str, name: str, core: int | None) -> Process:  # noqa: ARG002 - it has an address of its own
        command = [sys.executable, "-m", "bench.control_process", "--store", url]
        command += ["--port", str(free_port()), "--socket", str(self.folder / SOCKET)]
        return Process(command, core, self.folder / "control.log")


def measure(*, rounds: int, changes: int, takeovers: int) -> Iterator[Number | LeftOut]:
    """Both, on databases of their own."""
    missing, pinned = missing_for_postgres(), cores()
    if missing is not None or pinned is None:
        why = "needs two cores" if missing is None else f"{missing} is not installed"
        yield LeftOut("several control planes", why)
        return
    with tempfile.TemporaryDirectory(prefix="fairnotice-bench-") as name, postgres() as server:
        url = server.new_database()
        build(url, VMS, enabled=True)
        yield from _seen(url, Path(name), pinned.load, rounds, changes)
        url = server.new_database()
        build(url, VMS, enabled=True)
        yield from _seen_at_node(url, Path(name), pinned.load, rounds, changes)
        yield _takeover(url, Path(name), takeovers)


def _seen(url: str, folder: Path, core: int, rounds: int, changes: int) -> Iterator[Number]:
    """From the answer at one to the new document at the other."""
    leader = Member(url, folder, "leads", None)
    leader.until_leading()
    follower = Member(url, folder, "follows", None)
    try:
        served = Served(follower.port, range(CHANGED_VMS), core)
        shown = _changed(leader, served, folder, rounds, changes)
    finally:
        follower.end()
        leader.end()
    yield from until_shown("the document of a second process", shown, SEEN_AT_MOST)


def _seen_at_node(url: str, folder: Path, core: int, rounds: int, changes: int) -> Iterator[Number]:
    """The same through the feed, at the endpoint of a node that follows the one that follows."""
    leader = Plane(url, folder, "plane-leads", None)
    leader.until_leading()
    follower = Plane(url, folder, "plane-follows", None)
    endpoint: Process | None = None
    try:
        endpoint, port = start_endpoint(folder, follower.port, None, NODE)
        wait_for(port)
        served = Served(port, range(STANDALONE_PER_NODE), core)
        shown = _changed(leader, served, folder, rounds, changes)
    finally:
        if endpoint is not None:
            endpoint.end()
        follower.end()
        leader.end()
    yield from until_shown("the document of a node's endpoint", shown, SEEN_AT_MOST)


class Served(NamedTuple):
    """Where which VMs ask, and on which core they are."""

    port: int
    vms: range
    core: int


def _changed(
    leader: Member, served: Served, folder: Path, rounds: int, changes: int
) -> list[list[float]]:
    """For each round, milliseconds from the leader's answers until each was shown."""
    commands = leader.folder / SOCKET
    pollers = start_pollers("changing", **served._asdict(), folder=folder, commands=commands)
    try:
        pollers.listen()
        pollers.ask(changes=changes // 5)  # warms up
        return [pollers.ask(changes=changes)["until_shown"] for _ in range(rounds)]
    finally:
        pollers.end()


def _takeover(url: str, folder: Path, takeovers: int) -> Number:
    """From the kill to a command that the next one has made durable."""
    took = []
    leader = Member(url, folder, "member-0", None)
    leader.until_leading()
    for number in range(takeovers):
        spare = Member(url, folder, f"member-{number + 1}", None)
        # So that kills fall anywhere between two renewals of the lease.
        leader.process.still_runs(0.5 + number % 5 / 10)
        began = perf_counter()
        leader.process.kill()
        spare.until_leading()
        spare.commands.ask(do="restart", id=f"takeover-{number}", vm=f"vm-{number:06}")
        took.append(perf_counter() - began)
        leader.end()
        leader = spare
    leader.end()
    return Number(
        name="takeover after a kill", values=took, unit="s", at_most=TAKEOVER_SECONDS_AT_MOST
    )
