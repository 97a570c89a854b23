"""What many connections at once do: answers that are held, and clients that are slow."""

import resource
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from bench.numbers import LeftOut, Number
from bench.processes import Process
from bench.visitors import start_visitors

WAIT_MILLISECONDS_AT_MOST = 500
SLOW_CONNECTIONS = 1_000
POLLS_PER_SECOND = 200
# Of fewer polls the 99th percentile is one or two of them.
POLLING_SECONDS = 5
LATENCY_AT_MOST = 2
# Open files that a process needs besides its connections, and how often it is looked.
OTHER_FILES = 100
TRIES = 1_000


class Crowd(NamedTuple):
    """The endpoint, and from where it is visited."""

    own: Process
    port: int
    etag: str
    core: int
    folder: Path

    def visitors(self, kind: str, count: int) -> Process:
        """A process on the load's core that holds so many connections."""
        log = self.folder / f"{kind}.log"
        return start_visitors(kind, port=self.port, count=count, core=self.core, complaints=log)


def measure_waits(crowd: Crowd, waits: int, rounds: int) -> Iterator[Number | LeftOut]:
    """Milliseconds from the change until the last of the held answers has arrived whole."""
    name = f"{waits:,} held waits, from the change to the last byte"
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < waits + OTHER_FILES:
        yield LeftOut(name, f"needs {waits + OTHER_FILES} open files (ulimit -Hn)")
        return
    visitors = crowd.visitors("waiting", waits)
    try:
        etag = crowd.etag
        until_last, publishing = [], []
        for _ in range(rounds):
            visitors.ask(etag=etag)
            _wait_until_there(crowd, visitors, "held", waits)
            changed = crowd.own.ask(do="change")
            etag = changed["etag"]
            arrived = visitors.listen()
            until_last.append((arrived["last_at"] - changed["changed_at"]) * 1e3)
            publishing.append((changed["published_at"] - changed["changed_at"]) * 1e3)
    finally:
        visitors.end()
    yield Number(
        name=name,
        values=until_last,
        unit="ms",
        at_most=WAIT_MILLISECONDS_AT_MOST,
    )
    yield Number(
        name="  of it until all are written, nobody else served", values=publishing, unit="ms"
    )


def measure_slow(crowd: Crowd, rounds: int) -> Iterator[Number]:
    """The 99th percentile of a poll's latency with slow connections, against that without."""
    polls = POLLS_PER_SECOND * POLLING_SECONDS
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(_latency(crowd, polls))
        slow = crowd.visitors("slow", SLOW_CONNECTIONS)
        try:
            slow.listen()
            _wait_until_there(crowd, slow, "connections", SLOW_CONNECTIONS)
            beside.append(_latency(crowd, polls))
            _wait_until_there(crowd, slow, "connections", SLOW_CONNECTIONS)
        finally:
            slow.end()
    yield Number(
        name=f"p99 of {POLLS_PER_SECOND} polls/s beside {SLOW_CONNECTIONS:,} slow connections",
        values=[after / before for before, after in zip(alone, beside, strict=True)],
        unit="times",
        at_most=LATENCY_AT_MOST,
    )
    yield Number(name="  beside them", values=beside, unit="ms")
    yield Number(name="  alone", values=alone, unit="ms")


def _wait_until_there(crowd: Crowd, visitors: Process, what: str, count: int) -> None:
    """Wait until the endpoint itself counts so many."""
    for _ in range(TRIES):
        if crowd.own.ask(do="count")[what] >= count:
            return
        visitors.still_runs(0.05)
    raise RuntimeError(f"{count} visitors, and the endpoint never counts so many {what}")


def _latency(crowd: Crowd, polls: int) -> float:
    """The 99th percentile, in milliseconds."""
    visitors = crowd.visitors("polling", POLLS_PER_SECOND)
    try:
        seconds: list[float] = visitors.ask(polls=polls)["seconds"]
    finally:
        visitors.end()
    return quantiles(seconds, n=100)[-1] * 1e3
