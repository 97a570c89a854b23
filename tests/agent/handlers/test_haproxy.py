"""A real HAProxy: drained, waited for, ready again; and what an operator ordered stays."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fairnotice.errors import HandlerFailed
from tests.agent.handlers.calls import FREEZE, after, call, made
from tests.haproxy import balancer, needs_haproxy
from tests.waiting import until

pytestmark = needs_haproxy
READY, MAINT, DRAIN = 0, 1, 8


class Web(ThreadingHTTPServer):
    """A back end that answers when it is let."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.release()
        self.server.go.wait(20)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        """Say nothing."""


@pytest.fixture
def web():
    """A back end."""
    server = Web()
    yield server
    server.go.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(tmp_path, web):
    """An HAProxy before it, twice: as two servers, without health checks."""
    port = web.server_address[1]
    with balancer(tmp_path, {"web-0": port, "web-1": port}, "") as made_of:
        yield made_of


def handler(proxy, state=None, servers="'web/web-0'"):
    """The handler for this HAProxy, over its Unix socket."""
    return made(f"kind = 'haproxy'\nsocket = '{proxy.socket}'\nservers = [{servers}]", state)


def test_a_server_is_drained_and_ready_again_in_a_later_life(proxy, tmp_path):
    """What was done is known to the agent that begins anew, over TCP as well."""
    handler(proxy, tmp_path).prepare(call())
    assert (proxy.ordered("web-0"), proxy.ordered("web-1")) == (DRAIN, READY)

    toml = f"kind = 'haproxy'\naddress = '{proxy.address}'\nservers = ['web/web-0']"
    made(toml, tmp_path).recover(after())
    assert proxy.ordered("web-0") == READY


def test_sessions_are_waited_for(proxy, web):
    """The handler is done when the last one has ended, not before."""
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(get, proxy.port) for _ in range(2)]
        for _ in asking:
            web.asked.acquire(timeout=10)
        preparing = pool.submit(handler(proxy).prepare, call(20))
        until(lambda: proxy.ordered("web-0") == DRAIN)
        assert not preparing.done()
        web.go.set()
        preparing.result(10)
        assert [one.result(10) for one in asking] == [200, 200]


def get(port):
    """The status that a request through the proxy ends with."""
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", "/")
        return connection.getresponse().status


def test_sessions_that_do_not_end_are_told_at_the_deadline(proxy, web):
    """Or when it must end; the server is draining, and is made ready afterwards."""
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(get, proxy.port) for _ in range(2)]
        for _ in asking:
            web.asked.acquire(timeout=10)
        both = handler(proxy, servers="'web/web-0', 'web/web-1'")
        with pytest.raises(
            HandlerFailed, match=r"left, 1 of web/web-0 and 1 of web/web-1: its time was over"
        ):
            both.prepare(call(1))
        web.go.set()
    both.recover(after())
    assert (proxy.ordered("web-0"), proxy.ordered("web-1")) == (READY, READY)


def test_what_an_operator_ordered_stays(proxy):
    """Maintenance from before, drain from before, and maintenance that came meanwhile."""
    for before in ("maint", "drain"):
        proxy.order(f"set server web/web-0 state {before}")
        found = proxy.ordered("web-0")
        one = handler(proxy)
        one.prepare(call())
        one.recover(after())
        assert proxy.ordered("web-0") == found != READY

    proxy.order("set server web/web-0 state ready")
    one.prepare(call())
    proxy.order("set server web/web-0 state maint")
    one.recover(after())
    assert proxy.ordered("web-0") & MAINT


def test_two_events_hold_it_until_the_last_is_over(proxy, tmp_path):
    """The first that is over lets no new work in under the second."""
    one = handler(proxy, tmp_path)
    one.prepare(call())
    one.prepare(call(event=FREEZE))

    one.recover(after())
    assert proxy.ordered("web-0") == DRAIN
    handler(proxy, tmp_path).recover(after(event=FREEZE))
    assert proxy.ordered("web-0") == READY


def test_what_could_not_be_made_ready_is_after_the_next_event(proxy, tmp_path):
    """A failure while recovering does not leave a server out for ever."""
    handler(proxy, tmp_path).prepare(call())
    away = made(f"kind = 'haproxy'\nsocket = '{tmp_path}/away'\nservers = ['web/web-0']", tmp_path)
    with pytest.raises(HandlerFailed):
        away.recover(after(0.3))
    assert proxy.ordered("web-0") == DRAIN

    handler(proxy, tmp_path).prepare(call(event=FREEZE))
    handler(proxy, tmp_path).recover(after(event=FREEZE))
    assert proxy.ordered("web-0") == READY


def test_what_is_wrong_is_said(proxy, tmp_path):
    """A server or a socket that is not there, a socket without rights, what is no HAProxy."""
    with pytest.raises(HandlerFailed, match="HAProxy has no server web/web-9"):
        handler(proxy, servers="'web/web-9'").prepare(call())
    with pytest.raises(HandlerFailed, match=r"HAProxy at .*/none\.sock failed: No such file"):
        made(f"kind = 'haproxy'\nsocket = '{tmp_path}/none.sock'\nservers = ['web/web-0']").prepare(
            call(1)
        )
    looks_only = f"kind = 'haproxy'\nsocket = '{proxy.socket}.looks-only'\nservers = ['web/web-0']"
    with pytest.raises(HandlerFailed, match="HAProxy refused: Permission denied"):
        made(looks_only).prepare(call())
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=say, args=(other,), daemon=True).start()
        address = "{}:{}".format(*other.getsockname())
        with pytest.raises(HandlerFailed, match="HAProxy does not tell its servers: 220 mail"):
            made(f"kind = 'haproxy'\naddress = '{address}'\nservers = ['web/web-0']").prepare(
                call()
            )


def say(listening):
    """What a mail server would."""
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"220 mail\r\n")
        connection.recv(100)


def test_an_haproxy_that_is_away_for_a_moment_is_made_ready_when_it_is_back(tmp_path, web):
    """It has forgotten what was ordered, as HAProxy does: nothing is left to undo."""
    port = web.server_address[1]
    (tmp_path / "state").mkdir()
    with balancer(tmp_path, {"web-0": port}, "") as first:
        one = handler(first, tmp_path / "state")
        one.prepare(call())
    with ThreadPoolExecutor() as pool:
        recovering = pool.submit(one.recover, after(20))
        with balancer(tmp_path, {"web-0": port}, "") as again:
            recovering.result(20)
            assert again.ordered("web-0") == READY
