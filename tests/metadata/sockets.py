"""An endpoint on real sockets, and clients of it: everything is ended when the story is."""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvloop

from fairnotice.metadata.identity import Door
from fairnotice.metadata.rate import Rate
from fairnotice.metadata.server import Server
from fairnotice.metadata.worker import Limits
from tests.metadata.wireless import LiveStory, get, read_answers, served_sample
from tests.waiting import soon

# Generous: whatever takes longer than this hangs.
LIMIT_SECONDS = 30
# Where the VMs of this machine ask from.
HERE = {"web-0": ("127.0.0.1", "::1"), "web-1": ("127.0.0.3",), "db": ("127.0.0.2",)}


def local_sample():
    """The sample fleet; three of its VMs are on this machine."""
    spec = served_sample()
    vms = (vm._replace(addresses=HERE.get(vm.name, vm.addresses)) for vm in spec.vms)
    return spec._replace(vms=tuple(vms))


def on_sockets(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story on uvloop, as the endpoint runs."""

    async def within_the_limit() -> None:
        await asyncio.wait_for(story(), LIMIT_SECONDS)

    uvloop.run(within_the_limit())


class Endpoint:
    """A listening endpoint on a free port."""

    def __init__(self, *, rate_limit: Rate | None = None, limits: Limits | None = None) -> None:
        self.stage = LiveStory(local_sample())
        self.worker = self.stage.worker(rate_limit=rate_limit, limits=limits)
        self.server = Server(self.worker)
        self.mishaps: list[dict[str, Any]] = []

    def listen(self, door: Door | None = None, host: str = "127.0.0.1") -> int:
        return self.server.listen(host, 0, door or Door()).port


@asynccontextmanager
async def endpoint(**options: Any):
    """An endpoint on 127.0.0.1; nothing may have failed in the loop when it is closed."""
    served = Endpoint(**options)
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: served.mishaps.append(context)
    )
    served.port = served.listen()
    try:
        yield served
    finally:
        served.server.close()
        await soon(lambda: not served.worker.connections)
    assert served.mishaps == []


async def talk(port: int, *pieces: bytes, source: str = "127.0.0.1", pause: float = 0) -> bytes:
    """Send pieces, then read until the endpoint closes."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, local_addr=(source, 0), limit=2**26
    )
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        return await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def ask(port: int, *pieces: bytes, source: str = "127.0.0.1"):
    """Send a request that closes; its one answer."""
    (answer,) = read_answers(await talk(port, *pieces, source=source))
    return answer


def last(*headers: str, **more: Any) -> bytes:
    """A poll on a connection of its own."""
    return get("Connection: close", *headers, **more)


async def run(line: str, **environment: str) -> tuple[int, bytes]:
    """Run a command line without this machine's proxies; its exit code and what it printed."""
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    process = await asyncio.create_subprocess_exec(
        *shlex.split(line),
        env={**clean, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed
