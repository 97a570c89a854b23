"""The agent's numbers, in the text format of Prometheus, and the few lines of HTTP that serve them.

http.server would cost a megabyte and more, in a process that is to be small.
"""

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from fairnotice.errors import UsageError

_REQUEST_BYTES_MAX = 8192
_REQUEST_SECONDS = 5.0
# Of each: its type, and what it means.
FAMILIES = {
    "fairnotice_agent_ready": ("gauge", "1 while it watches and nothing is prepared"),
    "fairnotice_agent_plans": ("gauge", "events with a plan that is not over"),
    "fairnotice_agent_prepared_handlers": ("gauge", "handlers whose preparation is not recovered"),
    "fairnotice_agent_last_answer_seconds": ("gauge", "since the service last gave a document"),
    "fairnotice_agent_documents_total": ("counter", "documents that were looked at"),
    "fairnotice_agent_misses_total": ("counter", "tries that gave no document"),
    "fairnotice_agent_steps_total": ("counter", "handlers that ended, by what came of them"),
    "fairnotice_agent_go_aheads_total": ("counter", "acknowledgements, by what came of them"),
}


class Numbers:
    """What is counted. Labels are pairs; a count without any has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, **labels: str) -> None:
        """One more."""
        with self._lock:
            self._counts[name, tuple(labels.items())] += 1

    def text(self, gauges: dict[str, float]) -> str:
        """The whole page."""
        with self._lock:
            counts = dict(self._counts)
        lines = []
        for name, (kind, meaning) in FAMILIES.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            if kind == "gauge":
                lines += [f"{name} {gauges[name]:g}"] if name in gauges else []
                continue
            found = {labels: number for (of, labels), number in counts.items() if of == name}
            plain = name not in _LABELLED
            lines += [f"{name} {found.get((), 0)}"] if plain else []
            lines += [f"{name}{_shown(labels)} {n}" for labels, n in found.items() if labels]
        return "\n".join(lines) + "\n"


_LABELLED = frozenset({"fairnotice_agent_steps_total", "fairnotice_agent_go_aheads_total"})


def _shown(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Page:
    """Serves one page at `/metrics`, to one caller after the other."""

    def __init__(self, at: tuple[str, int], text: Callable[[], str]) -> None:
        self._text = text
        family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(at)
            self._socket.listen(8)
        except OSError as error:
            self._socket.close()
            raise UsageError(
                f"metrics cannot listen at {at[0]}:{at[1]}: {error.strerror}."
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._closed = False
        threading.Thread(target=self._serve, name="metrics", daemon=True).start()

    def _serve(self) -> None:
        while not self._closed:
            # A caller that goes away, or never says anything, is no concern of the next one.
            with suppress(OSError):
                connection, _ = self._socket.accept()
                with connection:
                    connection.settimeout(_REQUEST_SECONDS)
                    connection.sendall(self._answer(_request_line(connection)))

    def _answer(self, line: bytes) -> bytes:
        method, _, rest = line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _http("405 Method Not Allowed", b"Only GET.\n")
        if path != b"/metrics":
            return _http("404 Not Found", b"There is /metrics.\n")
        return _http("200 OK", self._text().encode("utf-8"), head=method == b"HEAD")

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed = True
        self._socket.close()


def _request_line(connection: socket.socket) -> bytes:
    """The first line of a request, once all of its head has come."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _REQUEST_BYTES_MAX:
        piece = connection.recv(_REQUEST_BYTES_MAX)
        if not piece:
            break
        head += piece
    return head.partition(b"\r\n")[0]


def _http(status: str, body: bytes, *, head: bool = False) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii") + (b"" if head else body)
