"""The client's own door to a cloud, which can be shut and opened again at the same port."""

import asyncio
import contextlib
import socket

from fairnotice.control.running import LOOPBACK
from fairnotice.metadata.identity import Door
from fairnotice.metadata.server import Server
from fairnotice.testing.clouds.cloud import Cloud

# How often, and how far apart, a port is asked for that was ours a moment ago.
BIND_TRIES = 200
BIND_SECONDS = 0.01


class Endpoint:
    """A port of its own for one VM. While it is shut, connections are refused."""

    def __init__(self, cloud: Cloud, vm: str) -> None:
        self._cloud = cloud
        self._vm = vm
        self._server: Server | None = None
        # Bound, and nobody listens: refused, and yet nobody else is given the port.
        self._held: socket.socket | None = _bound(0)
        self.place: tuple[str, int] = self._held.getsockname()

    def open(self) -> None:
        """Answer from now on."""
        self._cloud.call(self._open())

    def shut(self) -> None:
        """Answer no more, and break every connection."""
        self._cloud.call(self._shut())

    def drop_connections(self) -> None:
        """Close the connections that are open now; new ones are answered."""
        self._cloud.call(self._drop())

    def close(self) -> None:
        """It is not needed any more."""
        self._cloud.call(self._close())

    async def _open(self) -> None:
        if self._held is not None:
            self._server = Server(self._cloud.core.worker)
            self._server.listen_on(Door(vm=self._vm), self._held)
            self._held = None

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            self._held = await self._bound_again()

    async def _bound_again(self) -> socket.socket:
        """The same port. A process that is just being started may still hold the old socket."""
        for _ in range(BIND_TRIES):
            with contextlib.suppress(OSError):
                return _bound(self.place[1])
            await asyncio.sleep(BIND_SECONDS)
        return _bound(self.place[1])

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._held is not None:
            self._held.close()

    async def _drop(self) -> None:
        for connection in list(self._cloud.core.worker.connections):
            connection.end()


def _bound(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOOPBACK, port))
    except OSError:
        sock.close()
        raise
    return sock
