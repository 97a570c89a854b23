"""An endpoint process to measure: `python -m bench.endpoint_process --vms 100000 --together 10000`.

All checks are on, the rate limit among them, though set so high that no load reaches it. The VM
`vm-000000` is whoever comes from 127.0.0.1; every VM also has an address of its own in 127/8, so
that one machine can be all of them. The first VMs are together in one scope, and its document
shows an event. One line of JSON says that it is ready; each line that comes in is answered by one.
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import time
from typing import Any

import uvloop

from bench.boards import board_of, document_of, scope_of
from fairnotice.clock import SystemClock
from fairnotice.metadata.board import Board
from fairnotice.metadata.identity import Door
from fairnotice.metadata.rate import rate_of
from fairnotice.metadata.server import Server
from fairnotice.metadata.worker import Worker
from fairnotice.model import Scope

ADDRESS = "127.0.0.1"
POLLED_VM = "vm-000000"
# More than any load reaches, so that every poll is counted and none is refused.
RATE = rate_of(per_second=10_000_000, burst=1_000_000)


def address_of(number: int) -> str:
    """The loopback address that only the VM of this number has."""
    return f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


class Endpoint:
    """The process: a board, a worker on it, and whoever started it at standard input."""

    def __init__(self, vms: int, together: int) -> None:
        self.board = board_of(vms)
        self.scope = scope_of("together")
        self.incarnation = 0
        self._publish()
        _give_addresses(self.board, self.scope, together)
        self.worker = Worker(self.board, SystemClock(), _approve, _enable, rate_limit=RATE)
        gc.collect()

    def _publish(self) -> None:
        self.incarnation += 1
        self.board.publish(self.scope, document_of(self.scope, self.incarnation, [POLLED_VM]))

    async def serve(self) -> None:
        """Serve until standard input ends."""
        server = Server(self.worker)
        listener = server.listen(ADDRESS, 0, Door())
        _say(port=listener.port, etag=self._etag())
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._command_received, ended)
        await ended.wait()
        server.close()

    def _command_received(self, ended: asyncio.Event) -> None:
        line = os.read(sys.stdin.fileno(), 4096)
        if not line:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            ended.set()
            return
        if json.loads(line)["do"] == "change":
            changed_at = time.perf_counter()
            self._publish()
            _say(changed_at=changed_at, published_at=time.perf_counter(), etag=self._etag())
        else:
            _say(held=self.worker.held_count, connections=len(self.worker.connections))

    def _etag(self) -> str:
        return self.board.pages[self.scope.name].answers[-1].etag.decode()


def _give_addresses(board: Board, together: Scope, count: int) -> None:
    for number, (name, caller) in enumerate(tuple(board.callers.items())):
        own = (address_of(number),)
        addresses = (*own, ADDRESS) if name == POLLED_VM else own
        board.put_caller(name, together.name if number < count else caller.page.name, addresses)


async def _approve(vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
    raise NotImplementedError(f"nobody approves here, {vm} wanted {events}")


async def _enable(scope: str) -> None:
    raise NotImplementedError(f"all scopes are enabled, {scope} is not")


def _say(**what: Any) -> None:  # noqa: ANN401 - whatever JSON can say
    print(json.dumps(what), flush=True)


def allow_many_connections() -> None:
    """As many open files as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.endpoint_process", description=__doc__)
    parser.add_argument("--vms", type=int, default=100_000)
    parser.add_argument("--together", type=int, default=100, help="VMs of the changing scope")
    options = parser.parse_args()
    allow_many_connections()
    endpoint = Endpoint(options.vms, options.together)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(endpoint.serve())


if __name__ == "__main__":
    main()
