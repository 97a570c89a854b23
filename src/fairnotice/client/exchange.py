"""HTTP/1.1 as far as a metadata service speaks it, without I/O: both clients read with it.

The standard library's client would cost a VM some megabytes (ssl, email), and the asynchronous one
could not use it.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from fairnotice.client.document import shown
from fairnotice.errors import Away, BadAnswer, UsageError

_PORT = 80
_HEAD_END = b"\r\n\r\n"
_HEAD_BYTES_MAX = 64 * 1024
_BODY_BYTES_MAX = 4 * 1024 * 1024
_NO_BODY = frozenset({204, 304})
_INFORMATIONAL = range(100, 200)
_HEXADECIMAL = 16


class Place(NamedTuple):
    """Where to connect, and what to write into the request there."""

    host: str
    port: int
    # As it stands in the Host header.
    authority: str
    # In front of every path: `/vm/web-0`, or all of `http://…` where a proxy is asked.
    prefix: str

    @classmethod
    def of(cls, url: str, proxy: str | None = None) -> "Place":
        """The place of a service, or of the proxy on the way; UsageError where it is no URL."""
        host, port, authority, prefix = _parts(url)
        if proxy is None:
            return cls(host, port, authority, prefix)
        host, port, _, _ = _parts(proxy if "://" in proxy else f"http://{proxy}")
        return cls(host, port, authority, f"http://{authority}{prefix}")


def _parts(url: str) -> tuple[str, int, str, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    fits = url.isascii() and url.isprintable() and " " not in url
    if not host or parts.scheme != "http" or parts.query or not fits:
        raise UsageError(
            f"{url!r} is no address of a metadata service. Give http://HOST:PORT; where several "
            "VMs are served at one address, as by fairnotice up, http://HOST:PORT/vm/NAME."
        )
    return host, port or _PORT, parts.netloc.rpartition("@")[2], parts.path.rstrip("/")


class Request(NamedTuple):
    """What is asked for."""

    target: str
    headers: Mapping[str, str] = {}
    # Where there is one it is a POST.
    body: bytes | None = None

    def to_bytes(self, place: Place, *, keep: bool) -> bytes:
        """As it is sent; `keep`: the connection stays for the next one."""
        method = "GET" if self.body is None else "POST"
        headers = {"Host": place.authority, "Metadata": "true", **self.headers}
        if not keep:
            headers["Connection"] = "close"
        if self.body is not None:
            headers["Content-Type"] = "application/json"
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{method} {place.prefix}{self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join((*lines, "", "")).encode("latin-1") + (self.body or b"")


class Answer(NamedTuple):
    """What came back."""

    status: int
    # Names in lower case; of two the later one.
    headers: Mapping[str, str]
    body: bytes
    # Whether the next request may use the connection.
    keep: bool


class Reading:
    """Takes the bytes of one answer as they come."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._head: tuple[int, dict[str, str], bool] | None = None

    @property
    def begun(self) -> bool:
        """Whether anything has come."""
        return bool(self._raw) or self._head is not None

    def feed(self, data: bytes) -> Answer | None:
        """Take what came; the answer when it is whole. Nothing more comes after b"".

        Raises BadAnswer where this is no HTTP, and Away where it ended too early.
        """
        self._raw += data
        answer = self._read(ended=not data)
        if answer is None and not data:
            what = "in the middle of the answer" if self.begun else "without an answer"
            raise Away(f"The connection was closed {what}.")
        return answer

    def _read(self, *, ended: bool) -> Answer | None:
        while self._head is None:
            head, end, rest = bytes(self._raw).partition(_HEAD_END)
            if not end:
                self._must_look_like_http()
                return None
            self._raw = bytearray(rest)
            found = _head(head)
            # "100 Continue" and its like come before the answer.
            self._head = None if found[0] in _INFORMATIONAL else found
        status, headers, keep = self._head
        body = b"" if status in _NO_BODY else self._body(headers, ended=ended)
        if body is None:
            return None
        framed = status in _NO_BODY or "content-length" in headers or _chunked(headers)
        return Answer(status, headers, body, keep and framed and not ended)

    def _must_look_like_http(self) -> None:
        start = bytes(self._raw[:5])
        if not b"HTTP/".startswith(start) or len(self._raw) > _HEAD_BYTES_MAX:
            raise BadAnswer(f"The answer is no HTTP: {shown(bytes(self._raw[:60]))}")

    def _body(self, headers: dict[str, str], *, ended: bool) -> bytes | None:
        raw = self._raw
        if len(raw) > _BODY_BYTES_MAX:
            raise BadAnswer(f"The answer is longer than {_BODY_BYTES_MAX} bytes.")
        if _chunked(headers):
            return _unchunked(bytes(raw))
        if "content-length" not in headers:
            # It goes on until the connection ends.
            return bytes(raw) if ended else None
        length = _number(headers["content-length"], 10)
        return bytes(raw[:length]) if len(raw) >= length else None


def _head(head: bytes) -> tuple[int, dict[str, str], bool]:
    """Status, headers, and whether the connection stays."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/") or not (status.isascii() and status.isdigit()):
        raise BadAnswer(f"The answer is no HTTP: {shown(first)}")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    said = headers.get("connection", "").lower()
    keep = "close" not in said and (version != "HTTP/1.0" or "keep-alive" in said)
    return int(status), headers, keep


def _chunked(headers: Mapping[str, str]) -> bool:
    return headers.get("transfer-encoding", "").lower().endswith("chunked")


def _unchunked(raw: bytes) -> bytes | None:
    """The body without its framing; None while more must come."""
    parts: list[bytes] = []
    while True:
        line, end, rest = raw.partition(b"\r\n")
        if not end:
            return None
        size = _number(line.partition(b";")[0].decode("latin-1").strip(), _HEXADECIMAL)
        if size == 0:
            # Trailers are not for us; the connection goes with the last chunk.
            return b"".join(parts) if rest.startswith(b"\r\n") or _HEAD_END in rest else None
        if len(rest) < size + 2:
            return None
        parts.append(rest[:size])
        raw = rest[size + 2 :]


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise BadAnswer(f"The answer's length is {shown(text)}.")
    return number
