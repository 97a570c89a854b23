"""A whole service to measure: `python -m bench.service_process --store sqlite:PATH --socket PATH`.

Conductor, simulated machines and metadata endpoint in one process, as on a laptop. One line of
JSON says that it is ready: the fleet loaded, the board filled, the port listening. Commands come
in on the Unix socket, one line of JSON each, answered by one when they are durable:

    {"do": "restart", "id": "r1", "vm": "vm-000001"}   ->   {"incarnation": 7}
    {"do": "cancel", "id": "r1", "vm": "vm-000001"}    ->   {"incarnation": 8}
    {"do": "look"}                                     ->   {"revision": 154512, "scopes": 4350,
                                                             "leading": true}

With `--join ADDRESS` it is one of several that share a PostgreSQL, and leads when it is its turn.
With `--speed 600` an hour passes in six seconds, for all but the machine's own clock.
"""

import argparse
import asyncio
import json
import socket
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop

from bench.endpoint_process import ADDRESS, RATE, allow_many_connections
from bench.fleets import LISTENING
from bench.processes import Process
from bench.stories import USER
from fairnotice.clock import Clock, SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.serving import Serving
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine import Decision
from fairnotice.engine.commands import Cancel, Command, Restart
from fairnotice.metadata.identity import Door
from fairnotice.metadata.server import Server
from fairnotice.metadata.worker import Limits, Worker
from fairnotice.stores.lease import Lease
from fairnotice.stores.opening import open_lease, open_store

SOCKET = "commands.sock"
# What control planes have unless they are told otherwise.
LEASE_SECONDS = 2.5


class HastyClock:
    """Time that passes faster than the machine's."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._system = SystemClock()
        self._began = (self._system.wall(), self._system.monotonic())

    def wall(self) -> datetime:
        """The instant that it began at, and all that has passed since."""
        return self._began[0] + timedelta(seconds=self.monotonic() - self._began[1])

    def monotonic(self) -> float:
        """Seconds, each shorter than a second."""
        began = self._began[1]
        return began + (self._system.monotonic() - began) * self._speed

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has passed here."""
        await self._system.sleep(seconds / self._speed)


class Service:
    """The process: a conductor, what it shows, and whoever commands it."""

    def __init__(self, url: str, speed: float) -> None:
        self.clock: Clock = SystemClock() if speed == 1 else HastyClock(speed)
        # Those who ask take as long as ever.
        self.limits = Limits(
            request_seconds_max=Limits().request_seconds_max * speed,
            idle_seconds_max=Limits().idle_seconds_max * speed,
        )
        clock = self.clock
        driver = SimulatedDriver(clock, durations=AT_ONCE)
        self.conductor = Conductor(open_store(url), driver, clock, LISTENING)
        self.serving = Serving(self.conductor, clock)

    async def serve(self, socket_path: str, lease: Lease | None) -> None:
        """Serve until ended."""
        if lease is None:
            await self.conductor.start()
        else:
            await self.conductor.join(lease)
        serving = self.serving
        worker = Worker(
            serving.board,
            self.clock,
            serving.approve,
            serving.enable,
            rate_limit=RATE,
            limits=self.limits,
        )
        listener = Server(worker).listen(ADDRESS, 0, Door())
        clerk = Clerk(self.conductor)
        async with await asyncio.start_unix_server(clerk.take_commands, socket_path):
            print(json.dumps({"port": listener.port}), flush=True)
            await serving.reporting()


class Clerk:
    """Whoever takes commands for a conductor."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    async def take_commands(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take one line after the other."""
        async for line in reader:
            answer = await self._answer(json.loads(line))
            writer.write(json.dumps(answer).encode() + b"\n")

    async def _answer(self, asked: dict[str, str]) -> dict[str, Any]:
        fleet = self._conductor.fleet
        if asked["do"] == "look":
            leading = self._conductor.leading
            return {"revision": fleet.revision, "scopes": len(fleet.scopes), "leading": leading}
        decision = await self._conductor.submit(_command(asked))
        assert isinstance(decision, Decision), f"refused: {decision}"
        scope = fleet.scopes[fleet.vms[asked["vm"]].scope]
        return {"incarnation": scope.incarnation}


def _command(asked: dict[str, str]) -> Command:
    if asked["do"] == "restart":
        return Restart(id=asked["id"], by=USER, vms=(asked["vm"],))
    return Cancel(target=asked["id"], by=USER)


class Commands:
    """The other end of a service's socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    def ask(self, **command: object) -> dict[str, Any]:
        """Command something, and wait for the answer."""
        self._socket.sendall(json.dumps(command).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._lines.readline())
        return answer

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()


def start_service(
    url: str, folder: Path, core: int | None, *, speed: float = 1, join: str | None = None
) -> Process:
    """Such a process; the first line it says is that it is ready."""
    command = [sys.executable, "-m", "bench.service_process", "--store", url]
    command += ["--socket", str(folder / SOCKET), "--speed", str(speed)]
    command += [] if join is None else ["--join", join]
    return Process(command, core, folder / "service.log")


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.service_process", description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--join")
    options = parser.parse_args()
    allow_many_connections()
    Path(options.socket).unlink(missing_ok=True)

    async def serve() -> None:
        join = options.join
        lease = None if join is None else open_lease(options.store, join, LEASE_SECONDS)
        await Service(options.store, options.speed).serve(options.socket, lease)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


if __name__ == "__main__":
    main()
