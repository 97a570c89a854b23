"""A server that answers with the bytes it is told to, and remembers what it was asked."""

import socketserver
import threading
from contextlib import contextmanager

DATE = b"Date: Sun, 01 Mar 2026 12:00:00 GMT"


def answer(body=b"", status=200, *headers):
    """An answer of HTTP."""
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), DATE, *headers]
    return b"\r\n".join((*lines, b"", body))


def header(request, name):
    """A header of a request; None where it is not there."""
    for line in request.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name.lower():
            return value.strip()
    return None


class Scripted:
    """`says` is asked for each request: bytes to send, or None to close without an answer."""

    def __init__(self, says, *, keeps=True):
        self.says = says
        self.keeps = keeps
        self.asked = []
        self.connections = 0

    def serve(self, file, send):
        """One connection."""
        self.connections += 1
        while request := self._request(file):
            self.asked.append(request)
            said = self.says(request)
            if said is None:
                return
            send(said)
            if not self.keeps or header(request, b"Connection") == b"close":
                return

    @staticmethod
    def _request(file):
        lines = []
        while (line := file.readline()) not in (b"\r\n", b""):
            lines.append(line)
        head = b"".join(lines)
        return (
            head + b"\r\n" + file.read(int(header(head, b"Content-Length") or 0)) if head else b""
        )


@contextmanager
def serving(says, *, keeps=True):
    """A scripted server; `says` may also be the one answer to everything."""
    scripted = Scripted(says if callable(says) else lambda _: says, keeps=keeps)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            try:
                scripted.serve(self.rfile, self.connection.sendall)
            except OSError:
                return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        scripted.port = server.server_address[1]
        scripted.url = f"http://127.0.0.1:{scripted.port}"
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()
