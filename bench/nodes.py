"""One endpoint per node: what following costs, and what an endpoint costs its node."""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from bench import peers
from bench.endpoint_process import address_of
from bench.numbers import LeftOut, Number
from bench.peers import free_port
from bench.pollers import POLL
from bench.processes import Process, cores
from fairnotice.clock import SystemClock
from fairnotice.control.peers import Peer
from fairnotice.endpoint.front import Front, Manner, Served
from fairnotice.endpoint.holding import Holding

SNAPSHOT_SECONDS_AT_MOST = 3
FOLLOWERS_PERCENT_AT_MOST = 5
ENDPOINT_TIMES_AT_MOST = 1.25
TURNS = 3
ENDPOINT_MB_AT_MOST = 60
IDLE_SECONDS = 60.0
STARTING_SECONDS_MAX = 20
CONFIG = """
node = "{node}"
control_planes = ["http://127.0.0.1:{control}"]
state_directory = "{folder}/state"
[metadata]
listen = "127.0.0.1:{metadata}"
rate_limit = "off"
[metrics]
listen = "off"
"""


def measure(*, vms: int, rounds: int, followers: int, seconds: float) -> Iterator[Number | LeftOut]:
    """A large snapshot, many idle followers, one small endpoint."""
    pinned = cores()
    if pinned is None:
        yield LeftOut("endpoints of nodes", "needs two cores, one for those who follow")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _control_plane(folder, pinned.server, 1, vms) as (_, port):
            taken = [uvloop.run(_snapshot(port)) for _ in range(rounds)]
            yield Number(
                name=f"a follower of {vms:,} VMs is up from a snapshot",
                values=taken,
                unit="s",
                at_most=SNAPSHOT_SECONDS_AT_MOST,
            )
        with _control_plane(folder, pinned.server, followers, 10) as (control, port):
            yield Number(
                name=f"{followers} idle followers cost their control plane",
                values=[uvloop.run(_followers(control, port, followers, seconds))],
                unit="% of core",
                at_most=FOLLOWERS_PERCENT_AT_MOST,
            )
        with _control_plane(folder, pinned.load, 1, 100) as (_, port):
            yield from _endpoint(folder, port, pinned.server, seconds)


@contextlib.contextmanager
def _control_plane(
    folder: Path, core: int, nodes: int, vms_per_node: int
) -> Iterator[tuple[Process, int]]:
    command = [sys.executable, "-m", "bench.nodes_process", "--nodes", str(nodes)]
    command += ["--vms-per-node", str(vms_per_node)]
    process = Process(command, core, folder / "control.log")
    try:
        yield process, process.listen()["port"]
    finally:
        process.end()


class _Nobody:
    """Nobody asks for anything here."""

    async def approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        """Never called."""
        raise NotImplementedError(vm, events)

    async def enable(self, scope: str) -> None:
        """Never called."""
        raise NotImplementedError(scope)

    async def identify(self, vm: str, resource: str, identity: str) -> tuple[int, bytes]:
        """Never called."""
        raise NotImplementedError(vm, resource, identity)


def _unheard(_: Served) -> None:
    """Nobody is served here either."""


async def _snapshot(port: int) -> float:
    """Seconds from asking for the feed to a board that shows all of it."""
    began = time.perf_counter()
    front, holding = Front(_Nobody(), SystemClock(), Manner(), _unheard), Holding()
    lines = Peer(f"http://127.0.0.1:{port}").lines(
        "/v1/endpoints/node-0/feed", idle_seconds=IDLE_SECONDS
    )
    async for line in lines:
        told = holding.take(line)
        if told is not None:
            front.show(told)
            break
    return time.perf_counter() - began


async def _followers(control: Process, port: int, count: int, seconds: float) -> float:
    """What a control plane uses for its followers, in percent of a core."""
    told: list[asyncio.Event] = [asyncio.Event() for _ in range(count)]

    async def follow(number: int) -> None:
        peer = Peer(f"http://127.0.0.1:{port}")
        path = f"/v1/endpoints/node-{number}/feed"
        async for line in peer.lines(path, idle_seconds=IDLE_SECONDS):
            if json.loads(line)["kind"] == "at":
                told[number].set()

    tasks = [asyncio.create_task(follow(number)) for number in range(count)]
    try:
        for one in told:
            await one.wait()
        await asyncio.sleep(1)
        used, began = control.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(seconds)
        return (control.cpu_seconds() - used) / (time.perf_counter() - began) * 100
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def start_endpoint(folder: Path, control: int, core: int | None, node: str) -> tuple[Process, int]:
    """A real endpoint of a node that follows a control plane here, and its port."""
    metadata = free_port()
    config = folder / "endpoint.toml"
    told = {"control": control, "folder": folder, "metadata": metadata, "node": node}
    config.write_text(CONFIG.format(**told), "utf-8")
    command = [sys.executable, "-m", "fairnotice", "endpoint", "--config", str(config)]
    return Process(command, core, folder / "endpoint.log"), metadata


def wait_for(port: int) -> None:
    """Return when an endpoint listens there: it has something to show."""

    async def opened() -> None:
        _, writer = await _opened(port, address_of(0))
        writer.close()

    asyncio.run(opened())


def _endpoint(folder: Path, control: int, core: int, seconds: float) -> Iterator[Number | LeftOut]:
    """A real endpoint, and 100 VMs that each ask once a second on a connection that they keep.

    Each poll wakes whoever answers it, and waking costs more than answering: how much is the
    machine's. So nginx is asked as often, in turns.
    """
    process, metadata = start_endpoint(folder, control, core, "node-0")
    try:
        ours, nginxs = _in_turns(folder, process, metadata, core, seconds)
        resident = process.resident_bytes_max() / 1e6
    finally:
        process.end()
    name = "an endpoint with 100 VMs that ask once a second"
    yield Number(name=name, values=ours, unit="% of core")
    if nginxs:
        yield Number(name="nginx, asked as often", values=nginxs, unit="% of core")
        yield Number(
            name="the endpoint against nginx",
            values=[one / other for one, other in zip(ours, nginxs, strict=True)],
            unit="times",
            at_most=ENDPOINT_TIMES_AT_MOST,
        )
    else:
        yield LeftOut("the endpoint against nginx", peers.missing_tools())
    yield Number(
        name="an endpoint with 100 VMs, resident",
        values=[resident],
        unit="MB",
        at_most=ENDPOINT_MB_AT_MOST,
    )


def _in_turns(
    folder: Path, process: Process, metadata: int, core: int, seconds: float
) -> tuple[list[float], list[float]]:
    """What the endpoint uses and what nginx uses, in percent of a core, one after the other."""
    ours, nginxs = [], []
    port = free_port()
    nginx = None
    if not peers.missing_tools():
        (folder / "document.json").write_bytes(b'{"DocumentIncarnation":1,"Events":[]}')
        nginx = peers.start_nginx(folder, core, port)
    try:
        for _ in range(TURNS):
            ours.append(asyncio.run(_polled(process, metadata, 100, seconds)))
            if nginx is not None:
                nginxs.append(asyncio.run(_polled(nginx, port, 100, seconds)))
    finally:
        if nginx is not None:
            nginx.end()
    return ours, nginxs


async def _polled(process: Process, port: int, vms: int, seconds: float) -> float:
    """What the endpoint uses while all VMs ask, in percent of a core."""
    opened = [await _opened(port, address_of(number)) for number in range(vms)]

    async def ask(number: int, until: float) -> None:
        reader, writer = opened[number]
        await asyncio.sleep(number / vms)
        while time.perf_counter() < until:
            writer.write(POLL)
            await reader.readuntil(b"]}")
            await asyncio.sleep(1)

    # Once before: each scope's first answer is written down.
    await asyncio.gather(*(ask(number, time.perf_counter() + 2) for number in range(vms)))
    used, began = process.cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(ask(number, began + seconds) for number in range(vms)))
    share = (process.cpu_seconds() - used) / (time.perf_counter() - began)
    for _, writer in opened:
        writer.close()
    return share * 100


async def _opened(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    ends = time.perf_counter() + STARTING_SECONDS_MAX
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        except ConnectionError:
            if time.perf_counter() > ends:
                raise
            await asyncio.sleep(0.1)
