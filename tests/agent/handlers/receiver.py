"""A receiver of webhooks, for tests."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(ThreadingHTTPServer):
    """Answers what it was told to, the last of it for ever, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, *answers, context=None):
        super().__init__(("127.0.0.1", 0), Take)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answers = list(answers)
        self.taken = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        self.url = (
            f"http{'s' if context else ''}://127.0.0.1:{self.server_address[1]}/hooks?room=ops"
        )

    def handle_error(self, request, client_address):
        """A client that goes away is what some tests are about."""

    def __exit__(self, *error):
        self.shutdown()
        super().__exit__(*error)


class Take(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers, json.loads(body)))
        answers = self.server.answers
        status, said, headers = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(said)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *words):
        """Say nothing."""
