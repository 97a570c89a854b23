"""A real HAProxy for tests: it listens on ports that the system chose, and is ended by its id."""

import contextlib
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass

import pytest

from tests.waiting import until

# Debian puts it where only root's PATH looks.
PROGRAM = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
needs_haproxy = pytest.mark.skipif(
    PROGRAM is None and "CI" not in os.environ,
    reason="haproxy is not installed: scripts/test-tools",
)

CONFIGURATION = """
global
    stats socket {admin} mode 600 level admin
    stats socket {admin}.looks-only mode 600 level operator
    stats socket fd@{stats} level admin
    hard-stop-after 1s
defaults
    mode http
    timeout connect 2s
    timeout client 20s
    timeout server 20s
frontend all
    bind fd@{front}
    default_backend web
backend web
    balance roundrobin
    default-server {checks}
{servers}
"""


@dataclass(frozen=True)
class Balancer:
    """Where it is, and how it is told what to do."""

    port: int
    socket: str
    address: str

    def order(self, command):
        """What it replies to a command of its Runtime API."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def listens(self):
        """Whether it can be told anything yet."""
        try:
            return bool(self.order("show info"))
        except OSError:
            return False

    def ordered(self, server):
        """What is ordered for this server of `web`, as HAProxy numbers it: 0, 1 maint, 8 drain."""
        rows = [line.split() for line in self.order("show servers state web").splitlines()]
        return next(int(row[6]) for row in rows if row[3:4] == [server])

    def status(self, server):
        """UP, DOWN, DRAIN and so on: how this server of `web` is seen."""
        rows = [line.split(",") for line in self.order("show stat").splitlines()]
        return next(row[17] for row in rows if row[:2] == ["web", server])


@contextlib.contextmanager
def balancer(directory, ports, checks="check inter 100ms fall 2 rise 1"):
    """A HAProxy in front of `web/NAME` for each name; it is there when this begins."""
    admin = directory / "admin.sock"
    file = directory / "haproxy.cfg"
    front, stats = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    servers = [f"    server {name} 127.0.0.1:{port}" for name, port in ports.items()]
    file.write_text(
        CONFIGURATION.format(
            admin=admin,
            front=front.fileno(),
            stats=stats.fileno(),
            checks=checks,
            servers="\n".join(servers),
        )
    )
    with front, stats:
        running = subprocess.Popen(  # noqa: S603
            [PROGRAM or "haproxy", "-db", "-q", "-f", file],
            pass_fds=(front.fileno(), stats.fileno()),
        )
        name, port = "{}:{}".format(*stats.getsockname()), front.getsockname()[1]
    try:
        made = Balancer(port, str(admin), name)
        until(made.listens, "HAProxy")
        yield made
    finally:
        running.terminate()
        running.wait(10)
