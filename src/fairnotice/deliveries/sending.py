"""One request to a receiver outside, and what may be asked there at all.

Whoever names the address of a webhook has this service connect to it. So: HTTPS, verified, unless
the receiver is on this machine or plain HTTP was allowed for it; no redirect is followed; the
address that was checked is the one that is connected to, whatever its name stands for a moment
later; and no link-local address, where clouds keep the credentials of machines.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from fairnotice.deliveries.shapes import Headers
from fairnotice.errors import Unavailable, UsageError

# Azure Event Grid waits so long for an answer.
ANSWER_SECONDS = 30.0
# Of an answer, so much is read; only a handshake's means something.
ANSWER_BYTES_MAX = 64 * 1024
URL_CHARACTERS_MAX = 2_048
PORTS = {"http": 80, "https": 443}
READ_BYTES = 16 * 1024
USER_AGENT = "fairnotice"
# Where clouds keep what machines may know, beside the link-local addresses.
OF_CLOUDS = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254"))
)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Target(NamedTuple):
    """A URL, taken apart."""

    host: str
    port: int
    authority: str
    path: str
    secure: bool


class Answer(NamedTuple):
    """What a receiver answered; names of headers are in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes


def target_of(url: str, *, allow_http: bool) -> Target:
    """Where a URL leads; UsageError where nobody may be told anything there."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{shown(url)} is no URL: {error}.") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"{shown(url)!r} is no https:// URL.")
    if len(url) > URL_CHARACTERS_MAX or any(not "!" <= one <= "~" for one in url):
        raise UsageError(
            f"A URL of a webhook has up to {URL_CHARACTERS_MAX:,} characters of ASCII and no space."
        )
    if parts.username is not None or parts.fragment:
        raise UsageError("A URL of a webhook has neither a user nor a fragment in it.")
    secure = parts.scheme == "https"
    if not (secure or allow_http or _is_loopback(parts.hostname)):
        raise UsageError(
            f"What is sent to {shown(url)} could be read on the way. Give an https:// URL; or, "
            "where nobody can listen there, allow plain HTTP (allow_http, --allow-http)."
        )
    query = f"?{parts.query}" if parts.query else ""
    return Target(
        parts.hostname,
        port or PORTS[parts.scheme],
        parts.netloc,
        f"{parts.path or '/'}{query}",
        secure,
    )


def shown(url: str) -> str:
    """A URL as it may be shown: what stands behind its question mark is often a secret."""
    before, mark, _ = url.partition("?")
    return f"{before}?…" if mark else before


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def must_be_allowed(address: str) -> None:
    """UsageError for an address that no receiver has, and that others could be after."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found.sixtofour or found
    if found.is_loopback:
        return
    nobodys = found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved
    if nobodys or found in OF_CLOUDS:
        raise UsageError(f"{found} is an address that no webhook may have.")


class Sender:
    """Asks receivers, each time over a connection of its own.

    Unavailable where there is no answer, UsageError where nobody may be asked.
    """

    def __init__(self, trust: ssl.SSLContext | None = None) -> None:
        # SSL_CERT_FILE adds an authority of one's own.
        self._trust = trust or ssl.create_default_context()

    async def ask(
        self,
        method: str,
        target: Target,
        headers: Headers,
        body: bytes = b"",
        seconds: float = ANSWER_SECONDS,
    ) -> Answer:
        """What is answered, whatever the status."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(method, target, headers, body)
        except TimeoutError as error:
            raise Unavailable(f"there was no answer within {seconds:g} s") from error
        except httptools.HttpParserError as error:
            raise Unavailable(f"what was answered is no HTTP ({error})") from error
        except ConnectionRefusedError as error:
            raise Unavailable("nobody listens there") from error
        except OSError as error:
            raise Unavailable(str(error) or type(error).__name__) from error

    async def _ask(self, method: str, target: Target, headers: Headers, body: bytes) -> Answer:
        reader, writer = await self._connected(target)
        try:
            writer.write(_request(method, target, headers, body))
            await writer.drain()
            return await _answer(reader, method)
        finally:
            # abort and not close: the good-bye of TLS would wait for a receiver that may be gone.
            writer.transport.abort()

    async def _connected(self, target: Target) -> Connection:
        """A connection to the first of its addresses where somebody listens."""
        *others, last = await _resolved(target)
        for address in others:
            with contextlib.suppress(OSError):
                return await self._opened(address, target)
        return await self._opened(last, target)

    async def _opened(self, address: str, target: Target) -> Connection:
        return await asyncio.open_connection(
            address,
            target.port,
            ssl=self._trust if target.secure else None,
            server_hostname=target.host if target.secure else None,
            limit=READ_BYTES,
        )


async def _resolved(target: Target) -> list[str]:
    """The addresses of the receiver; UsageError where one of them may not be asked."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]) for one in found]
    for address in addresses:
        must_be_allowed(address)
    if not addresses:
        raise Unavailable(f"{target.host} has no address")
    return addresses


def _request(method: str, target: Target, headers: Headers, body: bytes) -> bytes:
    lines = [
        f"{method} {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"User-Agent: {USER_AGENT}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii", "replace") + body


async def _answer(reader: asyncio.StreamReader, method: str) -> Answer:
    parsed = _Parsed()
    parser = httptools.HttpResponseParser(parsed)
    parsed.status_of = parser.get_status_code
    left_bytes = 2 * ANSWER_BYTES_MAX
    while not parsed.complete and left_bytes > 0:
        data = await reader.read(READ_BYTES)
        if not data:
            break
        left_bytes -= len(data)
        parser.feed_data(data)
        # The rest is not wanted: that it was taken is said above it.
        if len(parsed.body) > ANSWER_BYTES_MAX or (parsed.status and method == "OPTIONS"):
            break
    if not parsed.status:
        why = "the connection was closed before an answer"
        raise Unavailable(why if left_bytes > 0 else "its answer has no end")
    return Answer(parsed.status, parsed.headers, bytes(parsed.body[:ANSWER_BYTES_MAX]))


class _Parsed:
    """What the parser has seen."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = False
        self.status_of: Callable[[], int] = lambda: 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Note that the head is there, unless another one follows it (1xx)."""
        status = self.status_of()
        if status // 100 == 1:
            self.headers.clear()
            return
        self.status = status

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self.body += piece

    def on_message_complete(self) -> None:
        """Note the end."""
        self.complete = bool(self.status)
