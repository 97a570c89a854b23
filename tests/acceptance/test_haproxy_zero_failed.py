"""A VM behind a real HAProxy is restarted by an event, under load: with the agent nobody notices.

The back ends and the agent are processes of their own. When the cloud reboots the machine of web-0,
what runs on it is killed hard, the agent too, and started again when it is back.
"""

import contextlib
import subprocess
import sys
import threading
from collections import Counter
from http.client import HTTPConnection, HTTPException

from fairnotice.testing import Cloud
from tests.haproxy import balancer, needs_haproxy
from tests.ports import own_port
from tests.waiting import until

pytestmark = needs_haproxy
VMS = ("web-0", "web-1", "web-2")
LOADERS = 6
BACK_END = """
import sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        threading.Event().wait(0.05)
        self.send_response(200)
        self.send_header("Content-Length", str(len(NAME)))
        self.end_headers()
        self.wfile.write(NAME)
    def log_message(self, *words):
        pass

class Server(ThreadingHTTPServer):
    daemon_threads = True

NAME = sys.argv[1].encode()
Server(("127.0.0.1", int(sys.argv[2])), Answer).serve_forever()
"""
AGENT = """
state = "{directory}/state"

[[rule]]
name = "drain"
types = ["Reboot", "Redeploy"]
prepare = ["haproxy"]

[handler.haproxy]
kind = "haproxy"
socket = "{socket}"
servers = ["web/web-0"]
"""


class Machine:
    """What runs on one VM: the back end, and the agent if there is one."""

    def __init__(self, name, port, agent=None):
        self._commands = [[sys.executable, "-c", BACK_END, name, str(port)]]
        self._environment = None
        self._running = []
        if agent is not None:
            config, self._environment = agent
            words = ["-m", "fairnotice", "agent", "run", "--config", str(config)]
            self._commands.append([sys.executable, *words])

    def boot(self):
        """Start all of it."""
        self._running = [
            subprocess.Popen(command, env=self._environment)  # noqa: S603
            for command in self._commands
        ]

    def kill(self):
        """End all of it, without a word."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait(10)


class Load:
    """Requests through the balancer, without an end, each over a connection of its own."""

    def __init__(self, port):
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.answered = Counter()
        self.failed = Counter()
        self._threads = [threading.Thread(target=self._ask) for _ in range(LOADERS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self):
        while not self._stop.is_set():
            counter, what = self._one()
            with self._lock:
                counter[what] += 1

    def _one(self):
        try:
            connection = HTTPConnection("127.0.0.1", self._port, timeout=20)
            with contextlib.closing(connection):
                connection.request("GET", "/", headers={"Connection": "close"})
                answer = connection.getresponse()
                body = answer.read().decode()
        except (OSError, HTTPException) as error:
            return self.failed, repr(error)
        return (self.answered, body) if answer.status == 200 else (self.failed, answer.status)

    def more_of(self, name, count=20):
        """Wait until this back end has answered so many more."""
        enough = self.answered[name] + count
        until(lambda: self.answered[name] >= enough, 20)


@contextlib.contextmanager
def shop(directory, *, with_agent):
    """The cloud, what runs on its web VMs, the balancer before them, and the load on it."""
    with contextlib.ExitStack() as stack:
        cloud = stack.enter_context(Cloud())
        places = {name: own_port() for name in VMS}
        proxy = stack.enter_context(balancer(directory, places))
        config = directory / "agent.toml"
        config.write_text(AGENT.format(directory=directory, socket=proxy.socket))
        agent = (config, cloud.environment("web-0")) if with_agent else None
        machines = {
            name: Machine(name, port, agent if name == "web-0" else None)
            for name, port in places.items()
        }
        for machine in machines.values():
            stack.callback(machine.kill)
            machine.boot()
        until(lambda: [proxy.status(name) for name in VMS] == ["UP"] * 3, 20)
        load = stack.enter_context(Load(proxy.port))
        load.more_of("web-0")
        if with_agent:
            cloud.wait_until(lambda: [one for one in cloud.requests if one.vm == "web-0"], 20)
        yield cloud, machines["web-0"], proxy, load


def reboot(cloud, event, machine, proxy):
    """The cloud has begun to reboot the machine: kill what is on it, and start it again."""
    assert event.status == "Started"
    before = cloud.vm("web-0").machine.boot_id
    machine.kill()
    until(lambda: proxy.status("web-0").startswith("DOWN"))
    machine.boot()
    until(lambda: not proxy.status("web-0").startswith("DOWN"), 20)
    cloud.run_until(event, "Completed")
    assert cloud.vm("web-0").machine.boot_id != before


def test_with_the_agent_no_request_fails(tmp_path):
    """Drained, acknowledged, rebooted with the agent itself, and back in the pool: 0 failed."""
    with shop(tmp_path, with_agent=True) as (cloud, machine, proxy, load):
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: event.status == "Started", 30)
        assert event.approved_by == "web-0"
        assert proxy.ordered("web-0") == 8

        reboot(cloud, event, machine, proxy)
        until(lambda: proxy.ordered("web-0") == 0, 30)
        load.more_of("web-0")
    assert dict(load.failed) == {}
    assert set(load.answered) == set(VMS)


def test_without_the_agent_some_fail(tmp_path):
    """The same restart at its NotBefore, with nobody who prepares for it."""
    with shop(tmp_path, with_agent=False) as (cloud, machine, proxy, load):
        event = cloud.vm("web-0").restart()
        cloud.advance(minutes=15)

        reboot(cloud, event, machine, proxy)
        load.more_of("web-0")
    assert load.failed.total() > 0
