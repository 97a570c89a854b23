"""A mail server of a few lines, for tests: a real SMTP conversation, with TLS where asked for."""

import os
import shutil
import socketserver
import ssl
import subprocess
import threading

import pytest


class Mailbox(socketserver.ThreadingTCPServer):
    """Keeps what it is sent. `answers` are said in the place of the next `RCPT` replies."""

    daemon_threads = True

    def __init__(self, context=None, *, tls_first=False):
        super().__init__(("127.0.0.1", 0), Conversation)
        self.context = context
        self.tls_first = tls_first
        self.answers = []
        self.kept = []
        self.logins = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def handle_error(self, request, client_address):
        """A client that goes away is what some tests are about."""

    def __exit__(self, *error):
        self.shutdown()
        super().__exit__(*error)


class Conversation(socketserver.StreamRequestHandler):
    def finish(self):
        super().finish()
        self.request.close()

    def setup(self):
        if self.server.tls_first:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()
        self.secure = self.server.tls_first

    def say(self, line):
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self):
        self.say("220 mailbox")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == "QUIT":
                self.say("221 bye")
                return
            getattr(self, f"on_{verb.lower()}", self.on_other)(line)

    def on_other(self, _):
        self.say("250 ok")

    def on_ehlo(self, _):
        self.say("250-mailbox")
        if self.server.context and not self.secure:
            self.say("250-STARTTLS")
        if self.secure:
            self.say("250-AUTH PLAIN")
        self.say("250 SIZE 1000000")

    def on_starttls(self, _):
        self.say("220 go ahead")
        self.rfile.close()
        self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()
        self.secure = True

    def on_auth(self, line):
        self.server.logins.append(line)
        self.say("235 welcome")

    def on_rcpt(self, _):
        self.say(self.server.answers.pop(0) if self.server.answers else "250 ok")

    def on_data(self, _):
        self.say("354 go on")
        lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
        self.server.kept.append("".join(lines))
        self.say("250 kept")


def server_context(certificate, key):
    """What the server shows itself with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def self_signed(folder):
    """A certificate of 127.0.0.1 and its key, as files."""
    if not shutil.which("openssl") and "CI" not in os.environ:
        pytest.skip("openssl is not installed: scripts/test-tools")
    asked = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    asked += " -subj /CN=mailbox -addext subjectAltName=IP:127.0.0.1 -keyout key -out certificate"
    subprocess.run(asked.split(), cwd=folder, check=True, capture_output=True)  # noqa: S603
    return folder / "certificate", folder / "key"
