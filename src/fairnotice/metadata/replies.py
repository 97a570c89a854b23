"""HTTP answers as bytes. All of an answer but its Date is known beforehand."""

from typing import NamedTuple

from fairnotice import __version__

JSON = b"application/json; charset=utf-8"
TEXT = b"text/plain; charset=utf-8"

OK, NOT_MODIFIED = 200, 304

PHRASES = {
    OK: b"OK",
    NOT_MODIFIED: b"Not Modified",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    410: b"Gone",
    413: b"Content Too Large",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}

# One Microsoft client looks for "imds" in it.
_PRODUCT = b"IMDS/fairnotice-" + ".".join(__version__.split(".")[:2]).encode()
_CLOSE = b"Connection: close\r\n"
_KEPT = b"Connection: keep-alive\r\n"


class Reply(NamedTuple):
    """An answer without its Date: what comes before it and what comes after."""

    status: int
    head: bytes
    # The rest for a connection that stays open as HTTP/1.1 does by itself, for one that is
    # closed after this answer, and for one that HTTP/1.0 asked to keep.
    tail: bytes
    tail_close: bytes
    tail_kept: bytes


def reply(
    status: int, body: bytes = b"", *, content_type: bytes = JSON, headers: bytes = b""
) -> Reply:
    """An answer, ready but for its Date. `headers` are whole lines, each with its line end."""
    head = b"HTTP/1.1 %d %s\r\nServer: %s\r\nDate: " % (status, PHRASES[status], _PRODUCT)
    if status != NOT_MODIFIED:
        if body:
            headers = b"Content-Type: %s\r\n%s" % (content_type, headers)
        headers += b"Content-Length: %d\r\n" % len(body)
    rest = b"\r\n" + body
    start = b"\r\n" + headers
    return Reply(status, head, start + rest, start + _CLOSE + rest, start + _KEPT + rest)


def compose(answer: Reply, date: bytes, *, close: bool, kept: bool = False) -> bytes:
    """The whole answer."""
    if close:
        return answer.head + date + answer.tail_close
    return answer.head + date + (answer.tail_kept if kept else answer.tail)
