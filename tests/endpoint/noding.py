"""What tests of the endpoint share: an endpoint as a process, and a link that can be cut."""

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

from fairnotice.clock import SystemClock
from tests.ports import own_port
from tests.waiting import until

PATIENCE_SECONDS = 15
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
CONFIG = """
node = "{node}"
control_planes = {urls}
state_directory = "{state}"
workers = {workers}
{more}
[metadata]
listen = "127.0.0.1:{port}"
rate_limit = "off"
[metrics]
listen = "127.0.0.1:0"
[log]
level = "info"
"""
CLOCK = SystemClock()


class Answer:
    """What a VM was answered."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def events(self):
        assert self.status == 200, (self.status, self.body)
        return json.loads(self.body)["Events"]


class EndpointProcess:
    """`fairnotice endpoint`, as a process."""

    def __init__(self, folder, node, urls, workers=1, more=""):
        self.folder = folder
        self.node = node
        self.urls = urls
        self.workers = workers
        # Further keys, such as token_file.
        self.more = more
        self.port = 0
        self.process = None

    def start(self, *, wait=True, **environment):
        self.folder.mkdir(exist_ok=True)
        config = self.folder / "endpoint.toml"
        state = self.folder / "state"
        urls = json.dumps(self.urls)
        told = {"node": self.node, "workers": self.workers, "port": self.port, "more": self.more}
        text = CONFIG.format(urls=urls, state=state, **told)
        config.write_text(text)
        self.log = (self.folder / "log").open("a")
        command = [sys.executable, "-m", "fairnotice", "endpoint", "--config", str(config)]
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **environment},
        )
        if wait:
            self.wait()
        return self

    def wait(self):
        """Wait until it serves."""
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        found = re.search(r":(\d+), metrics on .*:(\d+)", line)
        assert found, (line, (self.folder / "log").read_text())
        self.port, self.metrics_port = int(found[1]), int(found[2])

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        self._end(signal.SIGTERM)
        assert self.process.returncode == 0, (self.folder / "log").read_text()

    def _end(self, number):
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()
        self.log.close()

    # ---- As a VM ----

    def ask(self, address, method="GET", path=EVENTS, body=None, **headers):
        """One request from this address."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_SECONDS, source_address=(address, 0)
        )
        try:
            connection.request(method, path, body, {"Metadata": "true", **headers})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def approve(self, address, *events):
        body = {"StartRequests": [{"EventId": event} for event in events]}
        return self.ask(address, "POST", body=json.dumps(body))

    def shows(self, address, event):
        """Wait until a VM is shown an event."""
        return until(
            lambda: [one for one in self.ask(address).events if one["EventId"] == event],
            f"event {event} at {address}",
        )

    # ---- As an operator ----

    def metric(self, name, labels=""):
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.metrics_port, timeout=PATIENCE_SECONDS
        )
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        found = re.search(rf"^{name}{re.escape(labels)} (\S+)$", text, re.MULTILINE)
        assert found, text
        return float(found[1])

    def connected(self):
        return self.metric("fairnotice_endpoint_connected") == 1


@contextmanager
def endpoint(folder, node, *urls, environment=None, **more):
    """An endpoint that runs until the block is left."""
    process = EndpointProcess(folder, node, list(urls), **more).start(**environment or {})
    try:
        yield process
    finally:
        with contextlib.suppress(ValueError):
            process.kill()


class Relay:
    """A TCP relay in front of a server: a link that can be cut and mended."""

    def __init__(self, where):
        self._where = where
        self._lock = threading.Lock()
        self._open = set()
        self.port = own_port()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.url = f"http://127.0.0.1:{self.port}"
        self._begin()

    def _begin(self):
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._where)
            except OSError:
                return
            with self._lock:
                self._open |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self._close(source)
        self._close(sink)

    def _close(self, sock):
        with self._lock:
            self._open.discard(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def cut(self):
        """Nobody comes through any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            open_now = list(self._open)
        for sock in open_now:
            self._close(sock)

    def mend(self):
        """Everybody comes through again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._begin()


@contextmanager
def relay(served):
    """A relay in front of a control plane."""
    found = Relay(tuple(served.run.control))
    try:
        yield found
    finally:
        found.cut()
