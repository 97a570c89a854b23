"""From bytes to requests: what one connection is reading, however the network cuts it.

Bytes are given to the parser in segments that end where a request may end, so that the beginning
of each request is known. The parser's callbacks only gather; what a request asks for is decided
outside of them, where an exception of ours is not taken for malformed HTTP.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import httptools

from fairnotice.metadata.replies import Reply, reply
from fairnotice.metadata.request import Raw, Request, Target, understand
from fairnotice.metadata.worker import Limits
from fairnotice.wire import error_bodies

MALFORMED = reply(400, error_bodies.MALFORMED)
HEADERS_TOO_LARGE = reply(431, error_bodies.HEADERS_TOO_LARGE)

# RFC 9110: a method is any token. These the parser knows; to it, any other is written as one that
# no path of ours takes.
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_METHOD_BYTES_MAX = 64
_PARSED = frozenset(
    b"GET POST HEAD PUT DELETE PATCH OPTIONS TRACE CONNECT COPY LOCK MKCOL MOVE PROPFIND PROPPATCH "
    b"SEARCH UNLOCK BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY "
    b"SUBSCRIBE UNSUBSCRIBE PURGE MKCALENDAR LINK UNLINK PRI".split()
)
_STAND_IN = b"PUT"
_HTTP = ("1.0", "1.1")
_END = b"\r\n\r\n"


class Read(NamedTuple):
    """A request that was read; or the last answer to what cannot be read any further, and why."""

    request: Request
    body: bytes = b""
    too_large: bool = False
    why: str = ""


def refusal(answer: Reply, why: str) -> Read:
    """What stands for a request that cannot be read."""
    return Read(Request(Target.NOTHING, early=answer, close=True), why=why)


class Reader:
    """The request that a connection is reading."""

    def __init__(self, limits: Limits, remember: Callable[[bytes, Request], None]) -> None:
        self.limits = limits
        self.remember = remember
        # Whether a request has begun and not ended.
        self.reading = False
        # It will send its body when it is told to (Expect: 100-continue).
        self.expects = False
        self._parser: httptools.HttpRequestParser | None = None
        # The beginning of a method, whose end has not come yet; a method unknown to the parser.
        self._beginning = b""
        self._in_method = False
        self._strange = ""
        # Its bytes, where they came as one segment.
        self._whole = b""
        self._fresh = False
        # The last bytes that were parsed, where a blank line may have begun.
        self._last = b""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._head_complete = False
        self._trailer_bytes = 0
        self._body = bytearray()
        self._body_bytes_left = 0
        self._too_large = False
        self._ended: list[Raw] = []

    # ---- Segments ----

    def feed(self, data: bytes) -> Iterator[Read]:
        """The requests that end with these bytes; a refusal is the last of them."""
        while data:
            if not self.reading:
                # RFC 9112: blank lines before a request are no part of it.
                data = data.lstrip(b"\r\n")
                if not data:
                    return
                self._begin()
            if self._in_method:
                data = self._after_method(data)
            segment, data = self._cut(data)
            if not segment:
                return
            self._whole = segment if self._fresh and not self._strange else b""
            self._fresh = False
            try:
                data = self._parse(segment) + data
            except httptools.HttpParserCallbackError:
                raise
            except httptools.HttpParserError as error:
                yield refusal(MALFORMED, f"malformed: {error}")
                return
            yield from self._whole_ones()
            refused = self._unfinished(len(segment))
            if refused is not None:
                yield refused
                return

    def _begin(self) -> None:
        self.reading = self._in_method = self._fresh = True
        self._strange = ""
        self._last = b""

    def _after_method(self, data: bytes) -> bytes:
        """The request as the parser takes it; nothing while its method may go on."""
        data = self._beginning + data
        token = _TOKEN.match(data)
        end = token.end() if token else 0
        if end == len(data) and end <= _METHOD_BYTES_MAX:
            self._beginning = data
            return b""
        self._beginning = b""
        self._in_method = False
        if not end or data[end : end + 1] != b" " or data[:end] in _PARSED:
            return data
        self._strange = data[:end].decode("ascii")
        return _STAND_IN + data[end:]

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        """So much of it as does not reach into the next request, and the rest."""
        if self._body_bytes_left:
            end = self._body_bytes_left
            self._body_bytes_left = max(0, end - len(data))
        else:
            found = (self._last + data).find(_END)
            end = len(data) if found < 0 else found + len(_END) - len(self._last)
        segment = data[:end]
        self._last = (self._last + segment)[-len(_END) + 1 :]
        return segment, data[end:]

    def _parse(self, segment: bytes) -> bytes:
        """Parse it; what is left of it."""
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(segment)
        except httptools.HttpParserUpgrade as upgrade:
            # Java's client asks every server whether it speaks HTTP/2; it is answered here.
            self._parser = None
            return segment[upgrade.args[0] :]
        return b""

    def _whole_ones(self) -> Iterator[Read]:
        ended, self._ended = self._ended, []
        for raw in ended:
            size = len(raw.target) + sum(len(name) + len(value) + 4 for name, value in raw.headers)
            if size > self.limits.head_bytes_max:
                yield refusal(HEADERS_TOO_LARGE, "headers too large")
                return
            if raw.http not in _HTTP:
                yield refusal(MALFORMED, "another HTTP")
                return
            request = understand(raw)
            whole = self._whole
            if not self._body and whole.endswith(_END) and whole.count(_END) == 1:
                self.remember(whole, request)
            yield Read(request, bytes(self._body), self._too_large)

    def _unfinished(self, received: int) -> Read | None:
        """What is wrong already with a request that goes on."""
        if not self.reading:
            return None
        if not self._head_complete:
            self._head_bytes += received
            if self._head_bytes > self.limits.head_bytes_max:
                return refusal(HEADERS_TOO_LARGE, "headers too large")
        elif self._parser is not None and self._parser.get_http_version() not in _HTTP:
            return refusal(MALFORMED, "another HTTP")
        elif self._too_large:
            # It is not waited for the end of what is too large already.
            return Read(understand(self._raw())._replace(close=True), too_large=True)
        elif self._trailer_bytes > self.limits.head_bytes_max:
            return refusal(HEADERS_TOO_LARGE, "trailers too large")
        return None

    def _raw(self) -> Raw:
        parser = self._parser
        assert parser is not None
        return Raw(
            method=self._strange or parser.get_method().decode("latin-1"),
            target=self._url.decode("latin-1"),
            headers=tuple(self._headers),
            keeps_alive=parser.should_keep_alive() and not self._strange,
            http=parser.get_http_version(),
        )

    # ---- The parser's calls ----

    def on_message_begin(self) -> None:
        """A request begins."""
        self.reading = True
        self.expects = False
        self._url = b""
        self._headers = []
        self._head_bytes = 0
        self._head_complete = False
        self._trailer_bytes = 0
        self._body = bytearray()
        self._body_bytes_left = 0
        self._too_large = False

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or behind a chunked body a trailer, which says nothing here."""
        if self._head_complete:
            self._trailer_bytes += len(name) + len(value) + 4
        else:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """All headers. Some .NET clients wait to be told to send the body."""
        self._head_complete = True
        for name, value in self._headers:
            if name == b"content-length" and value.isdigit():
                self._body_bytes_left = int(value)
        self._too_large = self._body_bytes_left > self.limits.body_bytes_max
        asked = any(
            name == b"expect" and value.strip().lower() == b"100-continue"
            for name, value in self._headers
        )
        assert self._parser is not None
        # RFC 9110: HTTP/1.0 knows no such thing.
        self.expects = asked and self._parser.get_http_version() == "1.1"

    def on_body(self, body: bytes) -> None:
        """A piece of the body. What is too long is not kept."""
        self.expects = False
        if len(self._body) + len(body) > self.limits.body_bytes_max:
            self._too_large = True
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """A whole request."""
        self.reading = self.expects = False
        self._body_bytes_left = 0
        self._ended.append(self._raw())
