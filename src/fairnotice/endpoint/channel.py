"""What parent and worker say to each other: JSON, an object a line, over a pair of sockets.

The lines of the feed go to a worker as they came. Beside them there are: `settings`, the first line
of all; what a VM asked for, by number (`approve`, `enable`, `identity`) with its `answer`; and what
a worker says of itself (`shown`, `served`, `metrics`, `fault`). What it has seen is `kept` when the
parent has it.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

READ_BYTES = 256 * 1024
# Whoever does not take what he is sent is as good as dead.
UNSENT_BYTES_MAX = 256 * 1024 * 1024


class Channel:
    """One end of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> "Channel":
        """The end of a pair that this process has."""
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=READ_BYTES))

    def send(self, kind: str, **more: Any) -> None:  # noqa: ANN401 - JSON
        """Say this."""
        self.send_lines([json.dumps({"kind": kind, **more}).encode("ascii") + b"\n"])

    def send_lines(self, lines: list[bytes]) -> None:
        """Say what is written already."""
        if self._writer.is_closing():
            return
        self._writer.write(b"".join(lines))
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.close()

    async def lines(self) -> AsyncIterator[bytes]:
        """What the other end says, until it is gone."""
        rest = b""
        try:
            while piece := await self._reader.read(READ_BYTES):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line
        except ConnectionError:
            return

    def close(self) -> None:
        """Say no more."""
        self._writer.close()

    async def closed(self) -> None:
        """Return when all of it is said, or nobody hears it."""
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
