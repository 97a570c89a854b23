"""A wire between a process and a PostgreSQL that can be cut: nothing comes through, unnoticed.

async with Relay(socket_path) as relay:
    url = relay.url("test_0")
    relay.cut(); relay.mend()
"""

import asyncio
import contextlib


class Relay:
    """Takes connections on a port of this machine, and passes them on to a Unix socket."""

    def __init__(self, socket_path):
        self._socket_path = str(socket_path)
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, database):
        """Where this database is, by this wire."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def cut(self):
        """From now on nothing comes through; what is sent is kept."""
        self._whole.clear()

    def mend(self):
        """All that was kept comes through, late as it is."""
        self._whole.set()

    def _connected(self, reader, writer):
        task = asyncio.ensure_future(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader, writer):
        await self._whole.wait()
        with contextlib.closing(writer), contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_unix_connection(self._socket_path)
            with contextlib.closing(far_writer):
                ways = [
                    asyncio.ensure_future(self._pass(reader, far_writer)),
                    asyncio.ensure_future(self._pass(far_reader, writer)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()

    async def _pass(self, reader, writer):
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                await self._whole.wait()
                writer.write(piece)
                await writer.drain()
