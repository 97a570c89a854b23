"""What a service costs that has nothing to do: CPU, and what it writes to its disk.

First nobody polls. Then every VM does, again and again: the first poll of a scope is written
down, because it enables it, and after that one per hour. To see hours pass, a service is given a
clock that hurries; all else about it is as it is.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.databases import build
from bench.numbers import LeftOut, Number
from bench.pollers import start_pollers
from bench.processes import Process, cores
from bench.service_process import SOCKET, Commands, start_service

CORE_PERCENT_AT_MOST = 1
WRITES_PER_SCOPE_AT_MOST = 1
# After so long a start has come to its end.
SETTLING_SECONDS = 3
SPEED = 600
HOUR_SECONDS = 3_600
# Two hours and a half at least: in the first one after its enabling a scope has nothing to write.
HURRYING_SECONDS_MIN = 15


def measure(folder: Path, vms: int, seconds: float) -> Iterator[Number | LeftOut]:
    """Nobody polls; everybody polls; everybody polls for hours."""
    pinned = cores()
    if pinned is None:
        yield LeftOut("an idle service", "needs two cores, one for those who poll")
        return
    yield from _unpolled(folder, vms, seconds)
    for speed in (1, SPEED):
        path = folder / f"idle-{speed}.db"
        build(f"sqlite:{path}", vms, enabled=False)
        service = start_service(f"sqlite:{path}", folder, pinned.server, speed=speed)
        started = [service]
        try:
            port = service.listen()["port"]
            commands = Commands(folder / SOCKET)
            before, began = commands.ask(do="look"), time.perf_counter()
            started.append(
                pollers := start_pollers(
                    "passing", port=port, vms=range(vms), core=pinned.load, folder=folder
                )
            )
            pollers.listen()
            if speed == 1:
                service.still_runs(SETTLING_SECONDS)
                lines = commands.ask(do="look")["revision"] - before["revision"]
                yield _per_scope("polled for the first time, writes", lines / before["scopes"])
                yield from _polled(service, pollers, path, seconds)
            else:
                yield _hours(commands, pollers, began, max(seconds, HURRYING_SECONDS_MIN))
        finally:
            for process in reversed(started):
                process.end()


def _unpolled(folder: Path, vms: int, seconds: float) -> Iterator[Number]:
    path = folder / "idle.db"
    build(f"sqlite:{path}", vms, enabled=True)
    service = start_service(f"sqlite:{path}", folder, None)
    try:
        service.listen()
        service.still_runs(SETTLING_SECONDS)
        files, written, used = _files(path), service.written_bytes(), service.cpu_seconds()
        began = time.perf_counter()
        service.still_runs(seconds)
        share = (service.cpu_seconds() - used) / (time.perf_counter() - began)
        yield Number(
            name=f"idle with {vms:,} VMs, nobody polls",
            values=[share * 100],
            unit="% of core",
            at_most=CORE_PERCENT_AT_MOST,
        )
        yield _written(service.written_bytes() - written, touched=_files(path) != files)
    finally:
        service.end()


def _polled(service: Process, pollers: Process, path: Path, seconds: float) -> Iterator[Number]:
    """Everybody polls about once a second, after everybody did before."""
    files, written = _files(path), service.written_bytes()
    began = time.perf_counter()
    passes = 0
    while (passed := time.perf_counter() - began) < seconds:
        pollers.ask()
        passes += 1
        service.still_runs(max(0.0, began + passes - time.perf_counter()))
    polls = passes / passed
    yield _written(service.written_bytes() - written, touched=_files(path) != files)
    yield Number(name="  polls of each VM meanwhile", values=[polls], unit="per s")


def _hours(commands: Commands, pollers: Process, began: float, seconds: float) -> Number:
    """Journal lines per scope and hour after its enabling, on a clock that hurries."""
    enabled = commands.ask(do="look")
    while time.perf_counter() - began < seconds:
        pollers.ask()
    lines = commands.ask(do="look")["revision"] - enabled["revision"]
    assert lines, "hours have passed, and nothing was written: this clock does not hurry"
    hours = (time.perf_counter() - began) * SPEED / HOUR_SECONDS
    return _per_scope("polled for hours, writes per hour", lines / enabled["scopes"] / hours)


def _per_scope(name: str, writes: float) -> Number:
    return Number(name=name, values=[writes], unit="per scope", at_most=WRITES_PER_SCOPE_AT_MOST)


def _written(count: int, *, touched: bool) -> Number:
    """None at all, and no file of the database is another than before."""
    assert count or not touched, "nothing was written, and yet a file has changed"
    return Number(name="  written to disk meanwhile", values=[count], unit="bytes", at_most=0)


def _files(path: Path) -> list[tuple[str, int, int]]:
    """The database's files: their sizes, and when they were last written."""
    found = [(one.name, one.stat()) for one in sorted(path.parent.glob(f"{path.name}*"))]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]
