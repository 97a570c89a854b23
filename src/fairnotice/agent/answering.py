"""The agent's small HTTP server: a question of one line, an answer, and the connection is closed.

Each caller has a thread of its own, so that one who says nothing holds up no other; a probe of a
load balancer must be answered whatever else is going on. `http.server` would do the same, and cost
the agent more memory than the rest of it.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

_REQUEST_SECONDS = 5.0
_REQUEST_BYTES_MAX = 8192
_PIECES_MAX = 32
_CALLERS_MAX = 64


class Answer(NamedTuple):
    """What a caller is told."""

    status: str
    text: str
    content_type: str = "text/plain; charset=utf-8"


class Listener:
    """Answers GET and HEAD by what `answer` says of the path, until it is closed.

    Raises OSError where nobody can listen at that address.
    """

    def __init__(self, at: tuple[str, int], answer: Callable[[str], Answer]) -> None:
        self._answer = answer
        self._free = threading.BoundedSemaphore(_CALLERS_MAX)
        family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self._socket = socket.create_server(at, family=family, backlog=_CALLERS_MAX)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="listener", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        # On Linux it is this, and not the closing, that wakes the thread which waits for callers.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                if self._free.acquire(blocking=False):
                    threading.Thread(target=self._serve_one, args=(caller,), daemon=True).start()
                else:
                    caller.close()

    def _serve_one(self, caller: socket.socket) -> None:
        # A caller that goes away is no news.
        try:
            with caller, contextlib.suppress(OSError):
                caller.settimeout(_REQUEST_SECONDS)
                caller.sendall(self._reply(_request_line(caller)))
        finally:
            self._free.release()

    def _reply(self, line: bytes) -> bytes:
        words = line.decode("latin-1").split()
        if len(words) < 2:  # noqa: PLR2004 - method and path
            return _http(Answer("400 Bad Request", "this is no HTTP\n"))
        method, path = words[0], words[1].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return _http(Answer("405 Method Not Allowed", "ask with GET\n"))
        return _http(self._answer(path), head=method == "HEAD")


def _request_line(caller: socket.socket) -> bytes:
    """The first line of a request, once all of its head has come."""
    head = b""
    for _ in range(_PIECES_MAX):
        piece = caller.recv(_REQUEST_BYTES_MAX)
        head += piece
        if not piece or b"\r\n\r\n" in head or len(head) > _REQUEST_BYTES_MAX:
            break
    return head.partition(b"\r\n")[0]


def _http(answer: Answer, *, head: bool = False) -> bytes:
    body = answer.text.encode("utf-8")
    lines = (
        f"HTTP/1.1 {answer.status}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii") + (b"" if head else body)
