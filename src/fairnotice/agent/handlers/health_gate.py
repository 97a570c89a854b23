"""`kind = "health-gate"`: a health endpoint that a load balancer probes; it answers 503 first.

It answers 200 while nothing is prepared, and 503 from the first moment of preparing until the last
event that holds it is over, through restarts of the agent. Having shut, it waits as long as
configured, so that the probes notice: their interval times the failures it takes, and a bit.
"""

import socket
import socketserver
import threading

from fairnotice.agent.handlers.handler import Call, Handler
from fairnotice.agent.handlers.notes import Notes
from fairnotice.agent.tables import Table
from fairnotice.errors import HandlerFailed

_THING = "gate"
# An event of an earlier life whose id nobody wrote down.
_UNKNOWN = ""
_LINE_BYTES_MAX = 8192
_LINES_MAX = 100
_PROBE_SECONDS = 5.0
# How soon it is noticed that the agent ends; each look costs some 20 µs.
_LOOK_SECONDS = 0.2


def make(table: Table) -> "HealthGate":
    """The handler of this table."""
    path = table.text("path", "/health")
    if not path.startswith("/"):
        raise table.refuse(f"path is {path!r}: it begins with /.")
    wait_seconds = table.seconds("wait_seconds", 10.0, zero=True)
    return HealthGate(table.address("listen"), path, wait_seconds, Notes(table.notes))


class HealthGate(Handler):
    """Listens while the agent runs."""

    def __init__(
        self, listen: tuple[str, int], path: str, wait_seconds: float, notes: Notes
    ) -> None:
        self._listen = listen
        self._path = path
        self._wait_seconds = wait_seconds
        self._notes = notes
        self._server: _Server | None = None

    def open(self, prepared: bool) -> None:  # noqa: FBT001 - as every handler
        """Listen, and answer as it was left."""
        if not prepared:
            self._notes.forget()
        elif not self._notes.held(_THING):
            self._notes.hold(_UNKNOWN, _THING, "open")
        try:
            self._server = _Server(self._listen, self._path, self._notes)
        except OSError as error:
            told = ":".join(map(str, self._listen))
            raise HandlerFailed(f"Nobody can listen at {told}: {error.strerror}.") from error
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(_LOOK_SECONDS,), daemon=True, name="gate").start()

    def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def port(self) -> int:
        """Where it listens; asked for by those who let the system choose."""
        assert self._server is not None
        return int(self._server.server_address[1])

    def prepare(self, call: Call) -> None:
        """Answer 503 from now on, and wait so that it is noticed."""
        self._notes.hold(call.event.id, _THING, "open")
        enough = call.clock.monotonic() + self._wait_seconds
        while (left := enough - call.clock.monotonic()) > 0:
            if not call.wait(left):
                raise HandlerFailed(
                    f"The gate is shut, but probes had less than {self._wait_seconds:g} s to "
                    f"notice: {call.why_ended()}."
                )

    def recover(self, call: Call) -> None:
        """Answer 200 again, unless another event holds it."""
        self._notes.release(_UNKNOWN)
        self._notes.release(call.event.id)


class _Server(socketserver.ThreadingTCPServer):
    """Answers probes, each in a thread of its own: one that hangs holds up no other."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, listen: tuple[str, int], path: str, notes: Notes) -> None:
        self.path = path
        self.notes = notes
        self.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        super().__init__(listen, _Probe)

    def handle_error(self, request: object, client_address: object) -> None:
        """A probe that went away is no news."""


class _Probe(socketserver.StreamRequestHandler):
    """One request, and the connection is closed: probes open a new one each time."""

    timeout = _PROBE_SECONDS
    server: _Server

    def handle(self) -> None:
        """Read the request, say how it is."""
        words = self.rfile.readline(_LINE_BYTES_MAX).decode("latin-1").split()
        for _ in range(_LINES_MAX):
            if self.rfile.readline(_LINE_BYTES_MAX) in {b"\r\n", b"\n", b""}:
                break
        status, said = self._answer(words)
        body = b"" if words[:1] == ["HEAD"] else said
        self.wfile.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(said)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
            + body
        )

    def _answer(self, words: list[str]) -> tuple[str, bytes]:
        if len(words) < 2:  # noqa: PLR2004 - method and path
            return "400 Bad Request", b"this is no HTTP\n"
        if words[0] not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", b"ask with GET\n"
        if words[1].partition("?")[0] != self.server.path:
            return "404 Not Found", f"health is at {self.server.path}\n".encode()
        if self.server.notes.held(_THING):
            return "503 Service Unavailable", b"this VM prepares for an event\n"
        return "200 OK", b"ok\n"
