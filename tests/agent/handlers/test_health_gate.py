"""The gate as a load balancer sees it: open, shut first, open again; through restarts too."""

import contextlib
import socket
import threading
from http.client import HTTPConnection

import pytest

from fairnotice.errors import HandlerFailed
from tests.agent.handlers.calls import FREEZE, after, call, made

GATE = "kind = 'health-gate'\nlisten = '127.0.0.1:0'\nwait_seconds = 0\n"


@contextlib.contextmanager
def opened(toml=GATE, state=None, *, prepared=False):
    """A gate that listens."""
    gate = made(toml, state)
    gate.open(prepared=prepared)
    try:
        yield gate
    finally:
        gate.close()


def probe(gate, method="GET", path="/health"):
    """The status and the body that a probe gets."""
    connection = HTTPConnection("127.0.0.1", gate.port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_it_is_shut_first_and_open_again():
    """200, then 503 before anything else is done, then 200."""
    with opened() as gate:
        assert probe(gate) == (200, b"ok\n")
        gate.prepare(call())
        assert probe(gate) == (503, b"this VM prepares for an event\n")
        gate.recover(after())
        assert probe(gate)[0] == 200


def test_probes_are_given_time_to_notice():
    """Preparing lasts as long as configured; the gate is shut from its beginning."""
    with opened("kind = 'health-gate'\nlisten = '127.0.0.1:0'\nwait_seconds = 0.7") as gate:
        preparing = threading.Thread(target=gate.prepare, args=(told := call(10),))
        before = told.remaining_seconds()
        preparing.start()
        while probe(gate)[0] != 503:
            pass
        assert preparing.is_alive()
        preparing.join(10)
        assert before - told.remaining_seconds() >= 0.7


def test_too_little_time_to_notice_is_said():
    """The gate is shut all the same."""
    with opened("kind = 'health-gate'\nlisten = '127.0.0.1:0'") as gate:
        with pytest.raises(HandlerFailed, match="less than 10 s to notice: its time was over"):
            gate.prepare(call(0.2))
        assert probe(gate)[0] == 503


def test_it_stays_shut_through_a_restart_of_the_agent(tmp_path):
    """With what was written down, and without: the journal knows that it was left prepared."""
    with opened(state=tmp_path) as gate:
        gate.prepare(call())
        gate.prepare(call(event=FREEZE))
    with opened(state=tmp_path, prepared=True) as gate:
        assert probe(gate)[0] == 503
        gate.recover(after())
        assert probe(gate)[0] == 503
        gate.recover(after(event=FREEZE))
        assert probe(gate)[0] == 200
    with opened(prepared=True) as gate:
        assert probe(gate)[0] == 503
        gate.recover(after())
        assert probe(gate)[0] == 200


def test_what_was_written_down_of_nothing_prepared_is_forgotten(tmp_path):
    """The journal decides: nobody would ever open a gate that it does not know as shut."""
    with opened(state=tmp_path) as gate:
        gate.prepare(call())
    with opened(state=tmp_path) as gate:
        assert probe(gate)[0] == 200


def test_notes_that_are_damaged_are_put_aside(tmp_path, caplog):
    """It is said, and the agent begins all the same."""
    notes = tmp_path / "handlers" / "it.json"
    notes.parent.mkdir()
    notes.write_text('{"gate": 7}')
    with opened(state=tmp_path, prepared=True) as gate:
        assert probe(gate)[0] == 503
    assert "damaged" in caplog.text
    assert notes.with_suffix(".damaged").exists()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/health", 200),
        ("GET", "/health?full=1", 200),
        ("POST", "/health", 405),
        ("GET", "/healthz", 404),
    ],
)
def test_other_questions(method, path, status):
    """HEAD has no body; what a probe was configured wrongly for is told apart."""
    with opened() as gate:
        found, body = probe(gate, method, path)
        assert found == status
        assert (body == b"") == (method == "HEAD")


def test_a_client_that_says_nothing_holds_up_no_probe():
    """Nor does one that speaks no HTTP."""
    with opened() as gate, socket.create_connection(("127.0.0.1", gate.port)) as silent:
        assert probe(gate)[0] == 200
        silent.sendall(b"hello\r\n\r\n")
        assert silent.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_port_that_somebody_has_is_said():
    """When the agent begins, not when the first event comes."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gate = made(f"kind = 'health-gate'\nlisten = '127.0.0.1:{taken.getsockname()[1]}'")
        with pytest.raises(HandlerFailed, match=r"Nobody can listen at 127\.0\.0\.1:\d+: Address"):
            gate.open(prepared=False)
