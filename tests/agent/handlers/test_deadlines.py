"""Whatever a handler is given as deadline, and whatever it meets, it returns by then."""

import contextlib
import os
import socket
import sys
import threading

import pytest

from fairnotice.errors import HandlerFailed
from tests.agent.handlers.calls import CLOCK, call, made

# A machine under load wakes threads late.
SLACK_SECONDS = 2.0
STUCK = "['sh', '-c', 'trap \"\" TERM; while :; do sleep 1; done']"


@pytest.fixture
def mute():
    """The address of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield "{}:{}".format(*listening.getsockname())


@pytest.fixture
def dripping():
    """The address of somebody who says one byte after the other, and never an end."""
    stopping = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)

    def drip(connection):
        with connection, contextlib.suppress(OSError):
            while not stopping.wait(0.05):
                connection.sendall(b"2")

    def serve():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listening.accept()[0],), daemon=True).start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    yield "{}:{}".format(*listening.getsockname())
    stopping.set()
    listening.shutdown(socket.SHUT_RDWR)
    server.join(10)
    listening.close()


@pytest.fixture
def full(tmp_path):
    """A log socket whose reader reads nothing any more."""
    path = str(tmp_path / "log.sock")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as writer,
    ):
        reader.bind(path)
        writer.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                writer.sendto(b"x" * 1000, path)
        yield path


@pytest.fixture(autouse=True)
def stuck_systemctl(tmp_path, monkeypatch):
    """A systemctl that never ends."""
    (tmp_path / "systemctl").write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.fixture
def handlers(mute, dripping, full, tmp_path):
    """One of each kind, none of which can ever be done."""
    os.mkfifo(tmp_path / "fifo")
    return [
        made(toml)
        for toml in (
            f"kind = 'command'\nprepare = {STUCK}\nrecover = {STUCK}",
            f"kind = 'checkpoint'\nsave = {STUCK}",
            f"kind = 'failover'\ncommand = ['true']\ncheck = {STUCK}",
            "kind = 'failover'\ncommand = ['true']\ncheck = ['false']",
            f"kind = 'shutdown'\ncommand = {STUCK}",
            "kind = 'systemd'\nunits = ['web.service']",
            f"kind = 'webhook'\nurl = 'http://{mute}/'",
            f"kind = 'webhook'\nurl = 'http://{dripping}/'",
            f"kind = 'mail'\nserver = '{mute}'\nfrom = 'a@b'\nto = ['a@b']",
            f"kind = 'mail'\nserver = '{dripping}'\nfrom = 'a@b'\nto = ['a@b']\nsecurity = 'plain'",
            f"kind = 'haproxy'\naddress = '{mute}'\nservers = ['web/web-0']",
            f"kind = 'haproxy'\naddress = '{dripping}'\nservers = ['web/web-0']",
            f"kind = 'log'\nto = 'syslog'\nsocket = '{full}'",
            f"kind = 'log'\nto = 'file'\nfile = '{tmp_path}/fifo'",
            "kind = 'health-gate'\nlisten = '127.0.0.1:0'\nwait_seconds = 60",
        )
    ]


def late(handlers, told):
    """Those that did not fail in time, all begun at once."""
    over = {}

    def prepare(number, handler):
        with contextlib.suppress(HandlerFailed):
            handler.prepare(told)
            return
        over[number] = CLOCK.monotonic()

    threads = [
        threading.Thread(target=prepare, args=pair, daemon=True) for pair in enumerate(handlers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    limit = told.deadline + SLACK_SECONDS
    return [number for number in range(len(handlers)) if over.get(number, limit) >= limit]


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.01, 0.3, 1.5])
def test_every_handler_returns_by_its_deadline(handlers, seconds):
    """Also one that has passed already."""
    assert late(handlers, call(seconds)) == []


def test_every_handler_ends_when_it_is_told_to(handlers):
    """Long before its deadline; a command within its grace."""
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    told = call(60, stopping=stopping)
    assert late(handlers, told) == []
    assert told.remaining_seconds() > 50


def test_a_handler_that_was_told_to_end_before_begins_nothing(handlers, tmp_path):
    """Nor does one whose time was over before it began."""
    stopping = threading.Event()
    stopping.set()
    told = call(60, stopping=stopping)
    quick = [
        made(f"kind = 'log'\nto = 'file'\nfile = '{tmp_path}/done'"),
        made(f"kind = 'command'\nprepare = ['touch', '{tmp_path}/done']"),
    ]

    assert late([*handlers, *quick], told) == []
    assert told.remaining_seconds() > 50
    assert late(quick, call(-1)) == []
    assert not (tmp_path / "done").exists()
