"""Asking a metadata endpoint as a VM does, a connection for each request."""

import asyncio
import json
from typing import NamedTuple

TARGET = "/vm/{}/metadata/scheduledevents?api-version=2020-07-01"


class Answer(NamedTuple):
    """An answer, read."""

    status: int
    headers: dict
    document: dict | None


class Visitor:
    """Somebody who knows where the endpoint is."""

    def __init__(self, port):
        self.port = port
        self._writers = set()

    async def get(self, vm):
        """This VM's document."""
        return await self._request("GET", vm)

    async def approve(self, vm, *events):
        """Approve these events as this VM."""
        body = {"StartRequests": [{"EventId": event} for event in events]}
        return await self._request("POST", vm, json.dumps(body).encode())

    async def _request(self, method, vm, body=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.add(writer)
        head = (
            f"{method} {TARGET.format(vm)} HTTP/1.1\r\nMetadata: true\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        self._writers.discard(writer)
        if not answer:
            raise ConnectionResetError
        return read(answer)

    def hang_up(self):
        """Close every connection that is still open."""
        for writer in self._writers:
            writer.close()


def read(answer):
    """The bytes of one answer."""
    head, _, text = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    headers = {name.lower(): value for name, value in pairs}
    document = json.loads(text) if text.startswith(b"{") else None
    return Answer(int(status.split()[1]), headers, document)
