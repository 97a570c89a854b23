"""How many polls a core answers, beside nginx and FastAPI on the same core in the same run.

Everybody serves the same document on one core; wrk asks from the other. The courses take turns,
forwards in one round and backwards in the next, and each round gives one ratio. wrk is near its
own limit at these rates, so CPU time per poll, as the scheduler counts it for the serving process,
is compared as well.
"""

import http.client
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import crowds, peers
from bench.numbers import LeftOut, Number
from bench.processes import Cores, Process, cores

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
CONNECTIONS = 64
WARMING_SECONDS = 1


class Course(NamedTuple):
    """Who is asked, and how."""

    name: str
    server: str
    headers: tuple[str, ...] = ()


class Run(NamedTuple):
    """What one turn of a course gave."""

    per_second: float
    cpu_microseconds: float


class Ratio(NamedTuple):
    """One course against another: polls/s, and CPU per poll the other way round."""

    name: str
    course: str
    against: str
    per_second_at_least: float
    cpu_at_least: float | None = None


RATIOS = (
    Ratio("kept alive, against nginx", "own", "nginx", 0.85, 0.85),
    Ratio("one connection per poll, against nginx", "own once", "nginx once", 0.75, 0.60),
    Ratio("kept alive, against uvicorn and FastAPI", "own", "fastapi", 15),
    Ratio("304, against own 200", "own 304", "own", 0.8),
)


class Servers:
    """Those who serve in this run, and the ports they are asked at."""

    def __init__(self, folder: Path, cores: Cores, stack: ExitStack) -> None:
        self.folder = folder
        self.cores = cores
        self.running: dict[str, tuple[Process, int]] = {}
        self.left_out: dict[str, str] = {}
        self.etag = ""
        self._stack = stack

    def start_own(self, vms: int, together: int) -> Process:
        """The endpoint with so many VMs on its board, so many of them in the polled scope."""
        command = [sys.executable, "-m", "bench.endpoint_process"]
        command += ["--vms", str(vms), "--together", str(together)]
        process = Process(command, self.cores.server, self.folder / "own.log")
        self._stack.callback(process.end)
        said = process.listen()
        self.etag = said["etag"]
        self.running["own"] = (process, said["port"])
        (self.folder / "document.json").write_bytes(_document(said["port"]))
        return process

    def start_peers(self) -> None:
        """Nginx and FastAPI, each where it can be had; otherwise the reason is kept."""
        for name, start in (("nginx", peers.start_nginx), ("fastapi", peers.start_fastapi)):
            reason = peers.install_fastapi(self.folder) if name == "fastapi" else ""
            if reason:
                self.left_out[name] = reason
                continue
            port = peers.free_port()
            process = start(self.folder, self.cores.server, port)
            self._stack.callback(process.end)
            _wait_until_served(process, port, (self.folder / "document.json").read_bytes())
            self.running[name] = (process, port)


def measure(vms: int, rounds: int, seconds: int, waits: int) -> Iterator[Number | LeftOut]:
    """Every ratio and what it is made of; then what crowds of connections do."""
    pinned = cores()
    if pinned is None:
        yield LeftOut("the endpoint under load", "needs two cores, one for the load")
        return
    with tempfile.TemporaryDirectory(prefix="fairnotice-bench-") as name, ExitStack() as stack:
        servers = Servers(Path(name), pinned, stack)
        own = servers.start_own(vms, waits)
        reason = peers.missing_tools()
        if reason:
            yield from (LeftOut(ratio.name, reason) for ratio in RATIOS)
        else:
            servers.start_peers()
            yield from _ratios(servers, rounds, seconds)
        port = servers.running["own"][1]
        crowd = crowds.Crowd(own, port, servers.etag, pinned.load, Path(name))
        yield from crowds.measure_waits(crowd, waits, rounds)
        yield from crowds.measure_slow(crowd, rounds)


# ---- wrk ----


def _ratios(servers: Servers, rounds: int, seconds: int) -> Iterator[Number | LeftOut]:
    runs = _alternate(servers, rounds, seconds)
    for ratio in RATIOS:
        if ratio.against in servers.left_out:
            yield LeftOut(ratio.name, servers.left_out[ratio.against])
        else:
            pairs = list(zip(runs[ratio.course], runs[ratio.against], strict=True))
            yield Number(
                name=f"{ratio.name}, by polls/s",
                values=[own.per_second / other.per_second for own, other in pairs],
                unit="times",
                at_least=ratio.per_second_at_least,
            )
            yield Number(
                name=f"{ratio.name}, by CPU",
                values=[other.cpu_microseconds / own.cpu_microseconds for own, other in pairs],
                unit="times",
                at_least=ratio.cpu_at_least,
            )
    for name, turns in runs.items():
        yield Number(name=f"  {name}", values=[turn.per_second for turn in turns], unit="polls/s")
        yield Number(
            name=f"  {name}", values=[turn.cpu_microseconds for turn in turns], unit="us CPU"
        )


def _courses(servers: Servers) -> list[Course]:
    close = ("Connection: close",)
    courses = (
        Course("own", "own"),
        Course("nginx", "nginx"),
        Course("own 304", "own", (f'If-None-Match: "{servers.etag}"',)),
        Course("fastapi", "fastapi"),
        Course("own once", "own", close),
        Course("nginx once", "nginx", close),
    )
    return [course for course in courses if course.server in servers.running]


def _alternate(servers: Servers, rounds: int, seconds: int) -> Mapping[str, list[Run]]:
    courses = _courses(servers)
    runs: dict[str, list[Run]] = {course.name: [] for course in courses}
    for course in courses:
        _run(servers, course, WARMING_SECONDS)
    for number in range(rounds):
        for course in reversed(courses) if number % 2 else courses:
            runs[course.name].append(_run(servers, course, seconds))
    return runs


def _run(servers: Servers, course: Course, seconds: int) -> Run:
    process, port = servers.running[course.server]
    command = ["taskset", "--cpu-list", str(servers.cores.load)]
    command += ["wrk", "--threads", "1", "--connections", str(CONNECTIONS)]
    command += ["--duration", f"{seconds}s", "--timeout", "10s"]
    for header in ("Metadata: true", *course.headers):
        command += ["--header", header]
    command.append(f"http://127.0.0.1:{port}{TARGET}")
    before = process.cpu_seconds()
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    used = process.cpu_seconds() - before
    return _understood(done.stdout, used)


def _understood(said: str, cpu_seconds: float) -> Run:
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(f"not every poll was answered:\n{said}")
    polls = re.search(r"(\d+) requests in", said)
    per_second = re.search(r"Requests/sec: +([\d.]+)", said)
    assert polls is not None
    assert per_second is not None
    return Run(float(per_second[1]), cpu_seconds / int(polls[1]) * 1e6)


# ---- Asking once ----


def _document(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", TARGET, headers={"Metadata": "true"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, f"answered {response.status}: {body!r}"
    return body


def _wait_until_served(process: Process, port: int, document: bytes) -> None:
    for _ in range(200):
        process.still_runs(0.1)
        try:
            served = _document(port)
        except ConnectionRefusedError:
            continue
        assert served == document, f"another document: {served!r}"
        return
    raise RuntimeError(f"nobody answers at port {port}")
