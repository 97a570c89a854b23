"""As a cloud runs it: two `serve` with TLS and tokens on one PostgreSQL, an endpoint of a node.

A VM polls its endpoint and approves there. The leader is killed. The endpoint's token is revoked,
and renewed. Everything is a process of its own, and speaks as it would across machines.
"""

import signal
import ssl
from contextlib import ExitStack

import pytest

from fairnotice.clock import SystemClock
from fairnotice.control.tokens import Wanted, make
from fairnotice.stores.opening import open_store
from fairnotice.words import TokenRole
from tests.cli.serves import certificate, serves
from tests.cli.typed import typed
from tests.endpoint.noding import endpoint
from tests.ports import own_port
from tests.waiting import until

VM = "127.69.0.10"
FLEET = {"node": [{"name": "n"}], "vm": [{"name": "web", "node": "n", "address": VM}]}
SERVE = """
timing = "dev"
[store]
url = "{store}"
[control]
listen = "127.0.0.1:{port}"
[tls]
certificate = "{certificate}"
key = "{key}"
[cluster]
address = "https://127.0.0.1:{port}"
trust = "{certificate}"
lease_seconds = 1.0
[driver]
kind = "command"
state_directory = "{impacts}"
[driver.commands]
reboot = ["true"]
[log]
level = "info"
"""
APPROVED_WITHIN_SECONDS = 10.0
CLOCK = SystemClock()


class Planes:
    """The control planes, asked by an admin."""

    def __init__(self, trust, token):
        self.living = []
        self.token = token
        self._how = {"trust": trust, "Authorization": f"Bearer {token}"}

    def ask(self, serve, method, path, body=None):
        answer = serve.call(method, path, body, **self._how)
        assert answer.status < 300, (answer.status, answer.body)
        return answer.json

    def leader(self):
        """Who leads, and who does not, once somebody does."""

        def look():
            standing = [self.ask(one, "GET", "/readyz") for one in self.living]
            found = [
                one for one, said in zip(self.living, standing, strict=True) if said["leading"]
            ]
            return found if all(said["leader"] for said in standing) else None

        (found,) = until(look, "a leader")
        return found, [one for one in self.living if one is not found]

    def restart(self, serve):
        """Restart the VM, asked for here; the event that announces it."""
        (operation,) = self.ask(serve, "POST", "/v1/vms/web/restart")["operations"]
        return self.ask(serve, "GET", f"/v1/operations/{operation}")["events"][0]

    def show_node(self, serve, ca):
        """What `fairnotice node show` says, asked here."""
        env = {"FAIRNOTICE_TOKEN": self.token, "FAIRNOTICE_CA": str(ca)}
        return typed("node", "show", "n", url=url_of(serve), env=env)

    def event(self, serve, event):
        return self.ask(serve, "GET", f"/v1/events/{event}")


def url_of(serve):
    """Where a control plane is asked."""
    return "https://{}:{}".format(*serve.control)


@pytest.fixture
def cloud(tmp_path, postgres_url):
    """Two control planes, and the token of the node's endpoint in a file."""
    made, key = certificate(tmp_path)
    store = open_store(postgres_url)
    tokens = [
        make(Wanted("root", TokenRole.ADMIN), "test", CLOCK.wall()),
        make(Wanted("n-1", TokenRole.ENDPOINT, node="n"), "test", CLOCK.wall()),
    ]
    assert all(store.add_token(one.token) for one in tokens)
    store.close()
    planes = Planes(ssl.create_default_context(cafile=str(made)), tokens[0].text)
    (tmp_path / "token").write_text(tokens[1].text + "\n")
    with ExitStack() as stack:
        for name in "ab":
            folder = tmp_path / name
            folder.mkdir()
            more = {"store": postgres_url, "certificate": made, "key": key, "impacts": tmp_path}
            text = SERVE.format(port=own_port(), **more)
            planes.living.append(stack.enter_context(serves(folder, text)))
        yield planes


def approved_in_time(node, event):
    """The endpoint says 200 to an approval, soon enough, however often it has to be asked."""
    ends = CLOCK.monotonic() + APPROVED_WITHIN_SECONDS
    while (answer := node.approve(VM, event)).status != 200:
        assert answer.status == 503, answer.body
        assert CLOCK.monotonic() < ends, "the approval was not taken in time"


def test_everything_together(cloud, tmp_path):
    """A VM is told, approves and is heard, whoever leads; a revoked token cuts off, no more."""
    leader, (follower,) = cloud.leader()
    cloud.ask(follower, "PUT", "/v1/fleet", FLEET)
    keys = f'token_file = "{tmp_path / "token"}"\ntrust = "{tmp_path / "tls.pem"}"'
    urls = (url_of(leader), url_of(follower))
    with endpoint(tmp_path / "e", "n", *urls, more=keys) as node:
        assert node.ask(VM).events == []

        # Whichever is asked, the one that leads tells: every endpoint reports to it.
        for one in (leader, follower):
            assert "follows" in cloud.show_node(one, tmp_path / "tls.pem").out

        # Announced through one that follows, approved through the endpoint, and it starts.
        event = cloud.restart(follower)
        node.shows(VM, event)
        approved_in_time(node, event)
        until(lambda: cloud.event(follower, event)["started_at"], "the impact")
        until(lambda: cloud.event(follower, event)["gone_at"], "its end")
        # Each makes durable what it has noted, when it is asked.
        _, asked = (cloud.ask(one, "GET", "/v1/audit")["items"] for one in (follower, leader))
        restarts = [one for one in asked if one["path"] == "/v1/vms/web/restart"]
        assert [one["source"] for one in restarts] == ["127.0.0.1 through 127.0.0.1"]
        assert all(one["status"] < 300 for one in asked)

        # The leader is killed, and with it the feed that the endpoint follows.
        event = cloud.restart(follower)
        node.shows(VM, event)
        leader.process.kill()
        cloud.living.remove(leader)
        approved_in_time(node, event)
        until(lambda: cloud.event(follower, event)["started_at"], "the impact")
        until(node.connected, "the feed of another")

        # The token is revoked: the endpoint is cut off, says so, and goes on serving.
        cloud.ask(follower, "POST", "/v1/tokens/n-1/revoke")
        until(lambda: not node.connected(), "the cut")
        until(lambda: "answered 401 to join" in (tmp_path / "e" / "log").read_text(), "the reason")
        assert node.ask(VM).status == 200
        assert node.approve(VM, event).status == 503

        # Another one is written into its file: no restart is needed.
        body = {"name": "n-2", "role": "endpoint", "node": "n"}
        secret = cloud.ask(follower, "POST", "/v1/tokens", body)["secret"]
        (tmp_path / "token").write_text(secret)
        node.process.send_signal(signal.SIGHUP)
        until(node.connected, "the feed with another token")
        assert "the token is another one now" in (tmp_path / "e" / "log").read_text()
