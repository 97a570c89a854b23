"""A small HTTP server on threads of the standard library, and answers as bytes.

For a handful of clients, inside a VM too: the endpoint of `metadata/` serves thousands and needs
an extra. What is answered is bytes, so that an answer can be as broken as it was recorded.
"""

import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import NamedTuple

from fairnotice.clock import Clock
from fairnotice.errors import FairnoticeError, UsageError
from fairnotice.metadata.replies import compose, reply
from fairnotice.metadata.request import Raw
from fairnotice.testing.recordings.recording import Answer, Failure
from fairnotice.wire import error_bodies
from fairnotice.wire.document import rfc1123

_LOG = logging.getLogger(__name__)
_IDLE_SECONDS = 75
_BODY_BYTES_MAX = 64 * 1024
_DRAINED_BYTES_MAX = 1024 * 1024
_LINE_BYTES_MAX = 64 * 1024
_NO_BODY = (204, 304)
_SILENT = (Failure.REFUSED, Failure.UNREACHABLE)


class Said(NamedTuple):
    """What a client is sent, after how long, and what becomes of the connection."""

    data: bytes
    close: bool = False
    hold_seconds: float = 0.0


class Call(NamedTuple):
    """A request as it came in, and from where."""

    raw: Raw
    body: bytes
    peer: str


Responder = Callable[[Call], Said]


def unchunked(file: BufferedIOBase, bytes_max: int) -> tuple[bytes, bool]:
    """A body without its chunks, and whether it is whole."""
    body = bytearray()
    while len(body) <= bytes_max:
        size, _, _ = file.readline(_LINE_BYTES_MAX).partition(b";")
        try:
            count = int(size.strip(), 16)
        except ValueError:
            return bytes(body), False
        if count <= 0:
            return bytes(body), _trailers_end(file)
        chunk = file.read(min(count, bytes_max + 1))
        body += chunk
        if len(chunk) < count or file.read(2) != b"\r\n":
            return bytes(body), False
    return bytes(body), False


def _trailers_end(file: BufferedIOBase) -> bool:
    while line := file.readline(_LINE_BYTES_MAX):
        if not line.strip():
            return True
    return False


def is_chunked(value: bytes | None) -> bool:
    """Whether a Transfer-Encoding says that a body comes in chunks."""
    return value is not None and value.lower().split(b",")[-1].strip() == b"chunked"


def said(answer: Answer, raw: Raw, hold_seconds: float = 0.0) -> Said:
    """A recorded answer for this request: its head and body as they were, and its failure too.

    Only what belongs to the connection is this connection's: chunks are cut anew, and whoever
    wants his connection closed is told that it is.
    """
    if answer.failure in _SILENT or not answer.head:
        # Nobody can refuse a connection that was made; to drop it at once comes nearest.
        return Said(answer.body, close=True, hold_seconds=hold_seconds)
    lines, body = list(answer.head), answer.body
    bodiless = raw.method == "HEAD" or answer.status in _NO_BODY
    if is_chunked(answer.header("transfer-encoding")):
        if raw.http == "1.0":
            lines = _without(lines, b"transfer-encoding:")
        elif not bodiless:
            last = b"" if answer.failure else b"0\r\n\r\n"
            body = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + last
    framed = bodiless or (raw.http != "1.0" and is_framed(answer))
    close = not raw.keeps_alive or not framed or bool(answer.failure)
    if not raw.keeps_alive:
        lines = [*_without(lines, b"connection:"), b"Connection: close"]
    elif (answer.header("connection") or b"").lower() == b"close":
        close = True
    data = b"\r\n".join((*lines, b"", b"" if bodiless else body))
    return Said(data, close=close, hold_seconds=hold_seconds)


def is_framed(answer: Answer) -> bool:
    """Whether a client knows where the body ends, without an end of the connection."""
    if is_chunked(answer.header("transfer-encoding")):
        return True
    length = answer.header("content-length")
    return length is not None and length.isdigit()


def _without(lines: list[bytes], name: bytes) -> list[bytes]:
    return [line for line in lines if not line.lower().startswith(name)]


class AnsweringServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers every request with what the responder says, in a thread per connection."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, place: tuple[str, int], responder: Responder, clock: Clock) -> None:
        self.respond = responder
        self.clock = clock
        self.ended = threading.Event()
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(place, _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{place[0]}:{place[1]} cannot be listened on: {why}.") from error
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def begin(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def end(self) -> None:
        """Stop listening; answers that are held are not given any more."""
        self.ended.set()
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: AnsweringServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def handle_one_request(self) -> None:
        """Read a request, and answer it."""
        try:
            self._one()
        except OSError:
            self.close_connection = True

    def _one(self) -> None:
        self.raw_requestline = self.rfile.readline(_LINE_BYTES_MAX)
        if not self.raw_requestline.strip():
            self.close_connection = not self.raw_requestline
            return
        if not self.parse_request():
            self.close_connection = True
            return
        body, fault = self._body()
        if fault is not None:
            self._send(fault)
            return
        headers = tuple(
            (name.lower().encode("latin-1"), str(value).encode("latin-1", "replace"))
            for name, value in self.headers.items()
        )
        http = "1.0" if self.request_version == "HTTP/1.0" else "1.1"
        raw = Raw(self.command, self.path, headers, not self.close_connection, http)
        try:
            told = self.server.respond(Call(raw, body, str(self.client_address[0])))
        except FairnoticeError:
            # Said where it is waited for; the client is told that it was not its fault.
            told = self._last(500, error_bodies.FAILED)
        except Exception:  # noqa: BLE001 - ours; the next request is answered again
            _LOG.exception("a request was not answered")
            told = self._last(500, error_bodies.FAILED)
        self._send(told)

    def _body(self) -> tuple[bytes, Said | None]:
        coding = self.headers.get("Transfer-Encoding")
        length = self.headers.get("Content-Length", "0").strip()
        if coding is not None:
            body, whole = unchunked(self.rfile, _BODY_BYTES_MAX)
            if not whole:
                return b"", self._last(400, error_bodies.MALFORMED)
            return body, None
        if not (length.isascii() and length.isdecimal()):
            return b"", self._last(400, error_bodies.MALFORMED)
        if int(length) > _BODY_BYTES_MAX:
            # Whoever is not read to the end may lose the answer with the connection.
            self.rfile.read(min(int(length), _DRAINED_BYTES_MAX))
            return b"", self._last(413, error_bodies.TOO_LARGE)
        return self.rfile.read(int(length)), None

    def _last(self, status: int, body: bytes) -> Said:
        """The last answer on this connection, to what cannot be read."""
        date = rfc1123(self.server.clock.wall()).encode()
        return Said(compose(reply(status, body), date, close=True), close=True)

    def _send(self, told: Said) -> None:
        if told.hold_seconds > 0 and self.server.ended.wait(told.hold_seconds):
            self.close_connection = True
            return
        self.close_connection = self.close_connection or told.close
        if told.data:
            self.wfile.write(told.data)

    def send_error(self, code: int, *_: object) -> None:
        """Say what cannot be read, in the words of the wire."""
        large = code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        fault = error_bodies.HEADERS_TOO_LARGE if large else error_bodies.MALFORMED
        self._send(self._last(431 if large else 400, fault))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing: whoever is asked tells what he answered."""
