"""Receivers of webhooks: real HTTP servers on loopback that answer as a test says."""

import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from typing import NamedTuple

PATIENCE_SECONDS = 15.0


class Received(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict
    body: bytes
    status: int

    @property
    def event(self):
        """The one event in it, whichever schema it has."""
        told = json.loads(self.body)
        return told[0] if isinstance(told, list) else told

    @property
    def properties(self):
        """What it says of the event."""
        return self.event["data"]["resourceInfo"]["properties"]


class Receiver:
    """Agrees to be told, and takes what it is told, unless a test says otherwise."""

    def __init__(self):
        self.tried = []
        self._arrived = Queue()
        # What is answered to a delivery: a status, or (status, headers, body).
        self.answers = lambda _: 200
        # What is answered to the question whether it agrees; None: as is proper.
        self.agrees = None
        self.hangs = threading.Event()
        self.garbage = False
        self.url = ""

    def next(self, seconds=PATIENCE_SECONDS):
        """The next delivery that was taken."""
        return self._arrived.get(timeout=seconds)

    def several(self, count):
        """So many of them."""
        return [self.next() for _ in range(count)]

    def nothing_within(self, seconds):
        """Whether nothing was taken for so long."""
        try:
            self.next(seconds)
        except Empty:
            return True
        return False

    def take(self, handler):
        """Answer one request."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Received(handler.command, handler.path, headers, body, 0)
        if handler.command == "OPTIONS" or headers.get("aeg-event-type") == (
            "SubscriptionValidation"
        ):
            self.tried.append(asked)
            self._agree(handler, asked)
            return
        if self.garbage:
            handler.wfile.write(b"\0\1 this is no HTTP\r\n\r\n")
            return
        if self.hangs.is_set():
            self.tried.append(asked)
            threading.Event().wait(2.0)
            return
        answer = self.answers(asked)
        status, more, said = answer if isinstance(answer, tuple) else (answer, {}, b"")
        asked = asked._replace(status=status)
        self.tried.append(asked)
        if status < 300:
            # Before it is answered: whoever sent it may be gone by then.
            self._arrived.put(asked)
        _answer(handler, status, more, said)

    def _agree(self, handler, asked):
        if self.agrees is not None:
            _answer(handler, *self.agrees(asked))
        elif asked.method == "OPTIONS":
            origin = asked.headers["webhook-request-origin"]
            _answer(handler, 200, {"WebHook-Allowed-Origin": origin}, b"")
        else:
            code = asked.event["data"]["validationCode"]
            _answer(handler, 200, {}, json.dumps({"validationResponse": code}).encode())


def _answer(handler, status, headers, body):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def receiving(tls=None, port=0):
    """A receiver that runs."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            receiver.take(self)

        def do_OPTIONS(self):
            receiver.take(self)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # A test may leave in the middle of a request.
        block_on_close = False

        def handle_error(self, *_):
            pass

    with Server(("127.0.0.1", port), Handler) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        receiver.port = server.server_address[1]
        receiver.url = f"{scheme}://127.0.0.1:{receiver.port}/in"
        thread = threading.Thread(target=lambda: server.serve_forever(0.02))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
