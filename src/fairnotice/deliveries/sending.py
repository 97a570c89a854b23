"""One request to a receiver outside, and what may be asked there at all.

Whoever names the address of a webhook has this service connect to it. So: HTTPS, verified, unless
the receiver is on this machine or plain HTTP was allowed for it; no redirect is followed; and no
address where clouds keep the credentials of machines (addresses.py).
"""

import asyncio
import contextlib
import ipaddress
import re
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from fairnotice.deliveries.addresses import Addresses
from fairnotice.deliveries.shapes import Headers
from fairnotice.errors import Unavailable, UsageError

# Azure Event Grid waits so long for an answer.
ANSWER_SECONDS = 30.0
# The head of an answer says whether a delivery was taken, as it does for Azure Event Grid. What is
# below it is read for so long and no longer: a receiver that is still writing would else be told
# that the connection broke. Only a handshake wants to know what it says.
REST_SECONDS = 3.0
ANSWER_BYTES_MAX = 64 * 1024
URL_CHARACTERS_MAX = 2_048
PORTS = {"http": 80, "https": 443}
READ_BYTES = 16 * 1024
USER_AGENT = "fairnotice"
_HIDDEN_FROM = re.compile("[?#]")
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
NO_HTTP = (httptools.HttpParserError, httptools.HttpParserUpgrade)

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
        # What it says may repeat a password.
        raise UsageError(
            f"{shown(url)!r} is no URL: it cannot be read where its host and its port are."
        ) from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"{shown(url)!r} is no https:// URL.")
    if port == 0:
        raise UsageError(f"{shown(url)!r} names port 0, where nobody can listen.")
    if len(url) > URL_CHARACTERS_MAX or any(not "!" <= one <= "~" for one in url):
        raise UsageError(
            f"A URL of a webhook has up to {URL_CHARACTERS_MAX:,} characters of ASCII and no space."
        )
    if parts.username is not None or parts.fragment:
        raise UsageError("A URL of a webhook has neither a user nor a fragment in it.")
    if not _can_be_looked_up(parts.hostname):
        raise UsageError(
            f"{shown(url)!r} names no host: between two dots of a name are 1 to 63 characters."
        )
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
    """A URL as it may be shown, whatever is wrong with it: without what may be a secret.

    That is what stands behind its question mark, and a user with his password before an @.
    """
    if "@" not in url:
        hidden = _HIDDEN_FROM.search(url)
        return url if hidden is None else f"{url[: hidden.end()]}…"
    scheme, place = _SCHEME.match(url), _place_without_user(url)
    # Nothing of what comes behind a host: a password with a slash in it looks like a path.
    return f"{scheme[0] if scheme else ''}{f'{place}/' if place else ''}…"


def _place_without_user(url: str) -> str:
    """Host and port as they stand in a URL; "" where it names a user, or cannot be read."""
    try:
        parts = urlsplit(url)
        # The port is read where it is asked for: a password with a slash in it is none.
        _ = parts.port
    except ValueError:
        return ""
    return parts.netloc if parts.hostname and parts.username is None else ""


def _can_be_looked_up(host: str) -> bool:
    try:
        # As `getaddrinfo` does.
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Sender:
    """Asks receivers, each time over a connection of its own.

    Unavailable where there is no answer, UsageError where nobody may be asked.
    """

    def __init__(self, trust: ssl.SSLContext | None = None) -> None:
        # SSL_CERT_FILE adds an authority of one's own.
        self._trust = trust or ssl.create_default_context()
        self._addresses = Addresses()

    async def ask(
        self,
        method: str,
        target: Target,
        headers: Headers,
        body: bytes = b"",
        seconds: float = ANSWER_SECONDS,
    ) -> Answer:
        """What is answered, whatever the status: its head, and what comes below it in time."""
        try:
            async with asyncio.timeout(seconds) as limit:
                reader, writer = await self._connected(target, seconds)
                try:
                    writer.write(_request(method, target, headers, body))
                    await writer.drain()
                    reading = _Reading(reader)
                    await reading.head()
                    limit.reschedule(None)
                    await reading.rest()
                finally:
                    # Not close: the good-bye of TLS would wait for a receiver that may be gone.
                    writer.transport.abort()
        except TimeoutError as error:
            raise Unavailable(f"there was no answer within {seconds:g} s") from error
        except NO_HTTP as error:
            raise Unavailable(f"what was answered is no HTTP ({error})") from error
        except ConnectionRefusedError as error:
            raise Unavailable("nobody listens there") from error
        except OSError as error:
            raise Unavailable(str(error) or type(error).__name__) from error
        return reading.answer

    async def _connected(self, target: Target, seconds: float) -> Connection:
        """A connection to the first of its addresses where somebody listens.

        One that swallows what is sent to it (a name with a dead AAAA record) has its share of half
        of the time: so the last is reached, whatever the others do, and has time to answer.
        """
        *others, last = await self._addresses.of(target.host, target.port)
        share_seconds = seconds / 2 / max(1, len(others))
        for address in others:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(share_seconds):
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


class _Reading:
    """An answer as it comes in."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._left_bytes = 2 * ANSWER_BYTES_MAX
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._complete = False

    @property
    def answer(self) -> Answer:
        """What has come of it."""
        return Answer(self._status, self._headers, bytes(self._body[:ANSWER_BYTES_MAX]))

    async def head(self) -> None:
        """Read until it is known what is answered; Unavailable where nothing is."""
        while not self._status:
            if not await self._more():
                closed = "the connection was closed before an answer"
                raise Unavailable(closed if self._left_bytes > 0 else "its answer has no end")

    async def rest(self) -> None:
        """Read what is below it, as far as it comes; whatever goes wrong, the head has said it."""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(REST_SECONDS):
                while not self._complete and len(self._body) < ANSWER_BYTES_MAX:
                    self._complete |= not await self._more()

    async def _more(self) -> bool:
        """Whether there may be more after this."""
        data = await self._reader.read(READ_BYTES)
        self._left_bytes -= len(data)
        try:
            self._parser.feed_data(data)
        except NO_HTTP:
            if not self._status:
                raise
            self._complete = True
        return bool(data) and self._left_bytes > 0

    # ---- What the parser has seen ----

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header, unless it comes below the body."""
        if not self._status:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Note that the head is there, unless another one follows it (1xx)."""
        status = self._parser.get_status_code()
        if status // 100 == 1:
            self._headers.clear()
        else:
            self._status = status

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._body += piece

    def on_message_complete(self) -> None:
        """Note the end."""
        self._complete = bool(self._status)
