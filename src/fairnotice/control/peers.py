"""Asking another process of ours over HTTP or HTTPS: a follower its leader, an endpoint both.

On asyncio's streams and httptools, because a process that serves a node's VMs must stay small. And
whatever keeps a peer from answering is one `Unavailable`, whose sentence says what was asked, where
and what happened, because whoever asks then does the same about all of it: he goes elsewhere.

A connection is kept after an answer and used again. The peer may close it at any moment, also while
the next request is on its way, and then nobody knows whether that was carried out. So it is sent
once more only where doing it twice is doing it once.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from fairnotice.control.holders import is_loopback
from fairnotice.errors import Unavailable, UsageError

ASK_SECONDS = 10.0
# Between asking for a stream and the head of its answer.
BEGIN_SECONDS = 30.0
BODY_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024
KEPT_MAX = 8
READ_BYTES = 256 * 1024
PORTS = {"http": 80, "https": 443}
OK = 200
INFORMATIONAL = 100
TOLD_CHARACTERS = 300

Headers = Iterable[tuple[str, str]]


class PeerAnswer(NamedTuple):
    """What a peer answered; the names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Peer:
    """A process of ours at a URL. `token` goes with every request that brings none of its own."""

    def __init__(
        self, url: str, *, token: str | None = None, trust: ssl.SSLContext | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._at = _place(url)
        # Where nobody on the way reads what is said.
        self._private = self._at.secure or is_loopback(self._at.address)
        self._token = self._sendable(token)
        self._trust = (trust or ssl.create_default_context()) if self._at.secure else None
        self._kept: list[_Connection] = []

    def use(self, token: str | None) -> None:
        """Say this token from now on."""
        self._token = self._sendable(token)

    async def trust(self, context: ssl.SSLContext) -> None:
        """Believe only whom this vouches for, from now on."""
        if self._at.secure:
            self._trust = context
            await self.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Headers = (),
        body: bytes = b"",
        seconds: float = ASK_SECONDS,
        repeatable: bool = False,
    ) -> PeerAnswer:
        """What it answers to this, whatever the status; Unavailable where it does not answer."""
        request = self._request(method, path, headers, body)
        with self._named(method, path):
            async with asyncio.timeout(seconds):
                kept = self._take_kept()
                if kept is not None:
                    answer = await self._exchange(kept, request)
                    if answer is not None:
                        return answer
                    if not (repeatable or method == "GET"):
                        raise Unavailable("the connection was closed before an answer")
                answer = await self._exchange(await self._open(), request)
                if answer is None:
                    raise Unavailable("the connection was closed before an answer")
                return answer

    async def lines(
        self, path: str, *, idle_seconds: float, headers: Headers = ()
    ) -> AsyncIterator[bytes]:
        """The lines of a stream as they come, without their ends, until the peer ends it.

        Unavailable where it is not given, breaks off, or says nothing for `idle_seconds`.
        """
        request = self._request("GET", path, headers, b"")
        connection: _Connection | None = None
        try:
            with self._named("GET", path):
                async with asyncio.timeout(BEGIN_SECONDS):
                    connection = await self._open()
                    await connection.begin(request)
            rest = b""
            while piece := await self._next_piece(connection, path, idle_seconds):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line
                if len(rest) > LINE_BYTES_MAX:
                    raise Unavailable(f"{self.url}{path}: a line longer than {LINE_BYTES_MAX}")
        finally:
            if connection is not None:
                connection.close()

    async def close(self) -> None:
        """Close the connections that are kept."""
        while self._kept:
            self._kept.pop().close()

    # ---- Inside ----

    @contextlib.contextmanager
    def _named(self, method: str, path: str) -> Iterator[None]:
        """Let whatever goes wrong inside be an Unavailable that says where."""
        where = f"{method} {self.url}{path.partition('?')[0]}"
        try:
            yield
        except TimeoutError as error:
            raise Unavailable(f"{where}: no answer in time") from error
        except httptools.HttpParserError as error:
            raise Unavailable(f"{where}: the answer is no HTTP ({error})") from error
        except ConnectionRefusedError as error:
            raise Unavailable(f"{where}: nobody listens there") from error
        except (Unavailable, OSError, UnicodeError) as error:
            raise Unavailable(f"{where}: {error}") from error

    def _sendable(self, token: str | None) -> str | None:
        """The token, where nobody on the way reads it. It is never repeated."""
        if token is not None and not self._private:
            raise UsageError(
                f"a token is not sent to {self.url}: on the way everybody could read it. "
                "Give an address of https://."
            )
        return token

    def _request(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        given = [(name, value) for name, value in headers if name.lower() != "content-length"]
        names = {name.lower() for name, _ in given}
        if "authorization" in names:
            self._sendable("")
        if "host" not in names:
            given.append(("Host", self._at.authority))
        if self._token is not None and "authorization" not in names:
            given.append(("Authorization", f"Bearer {self._token}"))
        if body or method != "GET":
            given.append(("Content-Length", str(len(body))))
        head = [f"{method} {self._at.base}{path} HTTP/1.1", *(f"{n}: {v}" for n, v in given)]
        if any(character in line for line in head for character in "\r\n\0"):
            raise UsageError("a header or path with a line end in it cannot be sent")
        try:
            return "\r\n".join((*head, "", "")).encode("latin-1") + body
        except UnicodeError as error:
            raise UsageError(f"{path!r} or a header of it is not in Latin-1") from error

    def _take_kept(self) -> "_Connection | None":
        while self._kept:
            connection = self._kept.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _open(self) -> "_Connection":
        reader, writer = await asyncio.open_connection(
            self._at.address, self._at.port, ssl=self._trust, limit=READ_BYTES
        )
        return _Connection(reader, writer)

    async def _exchange(self, connection: "_Connection", request: bytes) -> PeerAnswer | None:
        """The answer; None where the connection was closed before the first byte of one."""
        done = False
        try:
            await connection.send(request)
            answer = await connection.answer()
            done = True
        finally:
            if done and connection.usable and len(self._kept) < KEPT_MAX:
                self._kept.append(connection)
            else:
                connection.close()
        return answer

    async def _next_piece(self, connection: "_Connection", path: str, seconds: float) -> bytes:
        with self._named("GET", path):
            async with asyncio.timeout(seconds):
                return await connection.piece()


class _Place(NamedTuple):
    """A URL, taken apart."""

    address: str
    port: int
    authority: str
    base: str
    secure: bool


def _place(url: str) -> _Place:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname or parts.username is not None:
        raise UsageError(f"{url!r} is no http:// or https:// URL of a control plane")
    if not url.isascii() or parts.query or parts.fragment:
        raise UsageError(f"{url!r} has more in it than a scheme, an address and a path")
    authority = parts.netloc
    return _Place(
        parts.hostname,
        port or PORTS[parts.scheme],
        authority,
        parts.path.rstrip("/"),
        parts.scheme == "https",
    )


class _Connection:
    """A connection, and the answer that comes over it now."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._busy = False
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._anything = self._head = self._complete = False
        self._until_end = True
        self._status = 0
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []

    @property
    def usable(self) -> bool:
        """Whether another request may be sent: no answer is open, and the peer has not left."""
        return not (self._busy or self._reader.at_eof() or self._writer.is_closing())

    async def send(self, request: bytes) -> None:
        """Send this; what keeps it from being sent shows when its answer is read."""
        self._begin_answer()
        self._busy = True
        # A peer may refuse a request before it has read all of it: then its answer is there.
        with contextlib.suppress(OSError):
            self._writer.write(request)
            await self._writer.drain()

    async def answer(self) -> PeerAnswer | None:
        """The whole answer; None where the connection was closed before its first byte."""
        body = bytearray(self._take())
        while not self._complete:
            if not await self._read_more() and not self._anything:
                return None
            body += self._take()
            if len(body) > BODY_BYTES_MAX:
                raise Unavailable(f"an answer of more than {BODY_BYTES_MAX} bytes")
        return PeerAnswer(self._status, self._headers, bytes(body))

    async def begin(self, request: bytes) -> None:
        """Send this, and wait for the head of an answer that goes on."""
        await self.send(request)
        while not self._head:
            if not await self._read_more() and not self._anything:
                raise Unavailable("the connection was closed before an answer")
        if self._status != OK:
            answer = await self.answer()
            told = answer.body[:TOLD_CHARACTERS].decode("utf-8", "replace") if answer else ""
            raise Unavailable(f"answered {self._status}: {told}".rstrip(": "))

    async def piece(self) -> bytes:
        """What has come of the body since, at least a byte; nothing at the end of it."""
        while not self._pieces:
            if self._complete:
                return b""
            await self._read_more()
        return self._take()

    def close(self) -> None:
        """Leave it; what the peer still sends is not wanted."""
        # abort and not close: the good-bye of TLS would wait for a peer that may be gone.
        self._writer.transport.abort()

    async def _read_more(self) -> bool:
        """Feed the parser what comes; False at the end of what the peer sends."""
        try:
            data = await self._reader.read(READ_BYTES)
        except ConnectionError:
            if self._anything:
                raise
            data = b""
        if not data:
            if self._anything and not (self._head and self._until_end):
                raise Unavailable("the connection broke off in the middle of an answer")
            self._complete = self._anything
            return False
        self._anything = True
        self._parser.feed_data(data)
        return True

    def _take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    # ---- The parser calls these ----

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; two of one name are one list, as RFC 9110 says."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """Note that the head is there, unless another one follows it (1xx)."""
        self._status = self._parser.get_status_code()
        if self._status // 100 * 100 == INFORMATIONAL:
            self._headers = {}
            return
        self._head = True
        self._until_end = not ({"content-length", "transfer-encoding"} & self._headers.keys())

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Note the end, and whether the peer keeps the connection."""
        if not self._head:
            return
        self._complete = True
        self._busy = not self._parser.should_keep_alive()
