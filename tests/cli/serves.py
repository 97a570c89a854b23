"""What tests of `serve` share: the real process, and systemd's end of its notify socket."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_SECONDS = 10
DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"
# Whoever asks from this machine is this VM.
FLEET = {
    "node": [{"name": "n"}],
    "vm": [{"name": "web", "node": "n", "address": "127.0.0.1"}, {"name": "db", "node": "n"}],
}
PLAIN = """
[store]
url = "sqlite:{folder}/it.db"
[control]
listen = "127.0.0.1:0"
[auth]
required = false
[metadata]
listen = "127.0.0.1:0"
"""
ON_POSTGRES = """
[store]
url = "{url}"
[control]
listen = "127.0.0.1:{port}"
[auth]
required = false
"""


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Serves:
    """A `fairnotice serve` that said READY=1."""

    def __init__(self, process: Any, systemd: socket.socket, config: Path, log: Path) -> None:
        self.process = process
        self.systemd = systemd
        self.config = config
        self._log = log
        self.said = self.told("READY=1")
        self.control = _place(r"https?://([\d.]+):(\d+)", self.said)
        self.metadata = _place(r"VMs at http://([\d.]+):(\d+)", self.said)

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    def told(self, word: str) -> str:
        """The next that systemd is told which has this word in it."""
        while word not in (heard := self.systemd.recv(4096).decode()):
            pass
        return heard

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        trust: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Answer:
        """Ask the API."""
        host, port = self.control
        connection = (
            http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
            if trust is None
            else http.client.HTTPSConnection(host, port, timeout=PATIENCE_SECONDS, context=trust)
        )
        return _asked(connection, method, path, body, headers)

    def look(self) -> Answer:
        """Read the document as the VM."""
        connection = http.client.HTTPConnection(*self.metadata, timeout=PATIENCE_SECONDS)
        return _asked(connection, "GET", DOCUMENT, None, {"Metadata": "true"})

    def hang_up(self, text: str) -> None:
        """Another configuration, and SIGHUP; back when it is read."""
        self.config.write_text(text)
        self.process.send_signal(signal.SIGHUP)
        self.told("RELOADING=1")
        self.told("READY=1")

    def end(self) -> int:
        """End it politely; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def _place(pattern: str, text: str) -> tuple[str, int] | None:
    found = re.search(pattern, text)
    return None if found is None else (found[1], int(found[2]))


def _asked(connection: Any, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    finally:
        connection.close()


@contextmanager
def serves(folder: Path, text: str = PLAIN, **environment: str) -> Iterator[Serves]:
    """`fairnotice serve`, ready, with this configuration."""
    config, log = folder / "serve.toml", folder / "log"
    config.write_text(text.format(folder=folder))
    notify = folder / "notify"
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, log.open("w") as written:
        systemd.bind(str(notify))
        systemd.settimeout(PATIENCE_SECONDS)
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "fairnotice", "serve", "--config", str(config)],
            env={**os.environ, "NOTIFY_SOCKET": str(notify), **environment},
            stderr=written,
        )
        try:
            yield Serves(process, systemd, config, log)
        finally:
            process.kill()
            process.wait()


def certificate(folder: Path, name: str = "tls", days: int = 30) -> tuple[Path, Path]:
    """A certificate for this machine that vouches for itself, and its key."""
    folder.mkdir(exist_ok=True)
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch"
    words += f" -subj /CN={name} -addext subjectAltName=IP:127.0.0.1,DNS:localhost -days {days}"
    line = ["openssl", *words.split(), "-keyout", str(key), "-out", str(made)]
    subprocess.run(line, check=True, capture_output=True)  # noqa: S603 - for tests alone
    return made, key
