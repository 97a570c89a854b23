"""What the tests of recordings share: files, endpoints that answer any bytes, raw clients."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairnotice.testing.manual_clock import DEFAULT_START, ManualClock
from fairnotice.testing.recordings.recorder import Endpoint, Recorder, polls
from fairnotice.testing.recordings.recording import Answer, Asked, Exchange, Opening, Writer

(POLL,) = polls("2020-07-01", instance=False)
PATIENCE_SECONDS = 20
ID = "602D9444-D2CD-49C7-8624-8643E7171297"
EMPTY = b'{"DocumentIncarnation":1,"Events":[]}'
# A quarter of an hour after the clock begins.
NOT_BEFORE = "Thu, 01 Jan 2026 00:15:00 GMT"


def document(incarnation: int = 2, **more: Any) -> bytes:
    """A document with an event."""
    event = {
        "EventId": ID,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web-0"],
        "NotBefore": NOT_BEFORE,
    }
    whole = {"DocumentIncarnation": incarnation, "Events": [event | more]}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def http(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """An answer as bytes."""
    lines = [f"HTTP/1.1 {status}", "Server: IMDS/1", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join((*lines, "", "")).encode() + body


def answer(body: bytes, *headers: str, **more: Any) -> Answer:
    """The same, as it is recorded."""
    head, _, _ = http(body, *headers, **more).partition(b"\r\n\r\n")
    return Answer(tuple(head.split(b"\r\n")), body)


def taped(
    path: Path, *answers: tuple[float, Answer], asked: Asked = POLL, end: float | None = None
) -> Path:
    """A recording of these answers, each at its second."""
    writer = Writer()
    lines = [writer.opening(Opening(DEFAULT_START))]
    lines += [writer.line(Exchange(at, 0.0, asked, one)) for at, one in answers]
    lines += [] if end is None else [writer.end(end)]
    path.write_bytes(b"".join(lines))
    return path


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """An endpoint that answers with these bytes, one connection each, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)

        def serve() -> None:
            for data in answers:
                connection, _ = listener.accept()
                # Whoever has enough goes away.
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def recorded(path: Path, url: str, *asked: Asked, **options: Any) -> list[Exchange]:
    """What came of these requests; the recording of it is at this path."""
    with path.open("wb") as file:
        recorder = Recorder(Endpoint.of(url), file, ManualClock(), **options)
        recorder.begin(url)
        came = [recorder.exchange(one) for one in asked]
        recorder.end()
    return came


def spoken(url: str, request: bytes) -> bytes:
    """All that a server sends until it closes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        data = b""
        while part := connection.recv(65_536):
            data += part
    return data
