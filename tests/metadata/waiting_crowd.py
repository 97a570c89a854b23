"""Many VMs that wait, in a process of their own: a connection takes a descriptor at each end.

`python -m tests.metadata.waiting_crowd PORT COUNT ETAG` opens so many connections, asks on each to
be told of the next document, and when all were answered says how many different answers there
were, not looking at their Date.
"""

import asyncio
import re
import sys

import uvloop

from tests.metadata.wireless import get
from tests.waiting import soon


class Held(asyncio.Protocol):
    """A VM that waits for the next document."""

    def __init__(self, request, answers):
        self.request = request
        self.answers = answers
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.data += data
        if b"\r\n\r\n" in self.data and self.data.endswith(b"]}"):
            self.answers.append(re.sub(rb"\r\nDate: [^\r]+", b"", self.data))


async def wait_together(port: int, count: int, etag: str) -> None:
    """Connect, a hundred at a time, and wait for the last answer."""
    raw = get(f"If-None-Match: {etag}", "Prefer: wait=60")
    answers: list[bytes] = []
    loop = asyncio.get_running_loop()
    for _ in range(count // 100):
        await asyncio.gather(
            *(
                loop.create_connection(lambda: Held(raw, answers), "127.0.0.1", port)
                for _ in range(100)
            )
        )
    await soon(lambda: len(answers) == count)
    sys.stdout.write(f"{len(answers)} {len(set(answers))}\n")


if __name__ == "__main__":
    _, where, number, known = sys.argv
    uvloop.run(wait_together(int(where), int(number), known))
