"""Where the service is: told, at the usual address, or in a DHCP lease of any of three kinds."""

import pytest

from fairnotice.client.discovery import PORTS, USUAL, Surroundings, leased_address
from fairnotice.errors import Away, NoEndpoint, RequestRefused
from tests.client.bodies import GOOD, one
from tests.client.scripted import answer, serving
from tests.ports import own_port

HELLO = answer(GOOD["2017-08-01 to 2019-01-01"][0])
# What each DHCP client leaves behind, with 127.0.0.1 in option 245.
LEASES = {
    "dhclient": (
        "var/lib/dhcp/dhclient.eth0.leases",
        """
lease {
  interface "eth0";
  option unknown-245 a8:3f:81:10;
}
lease {
  interface "eth0";
  option routers 10.0.0.1;
  option unknown-245 7f:00:00:01;
  expire never;
}
""",
    ),
    "systemd-networkd": (
        "run/systemd/netif/leases/2",
        "# This is private data. Do not parse.\nADDRESS=10.0.0.4\nOPTION_245=7f000001\n",
    ),
    "NetworkManager": (
        "run/NetworkManager/devices/2",
        "[device]\nmanaged=true\n[dhcp4]\ndhcp4.private_245=7f:00:00:01\ndhcp4.routers=10.0.0.1\n",
    ),
    "NetworkManager with dhclient": (
        "var/lib/NetworkManager/dhclient-0e4a-eth0.lease",
        "lease {\n  option unknown-245 7f:0:0:1;\n}\n",
    ),
}


@pytest.fixture
def closed():
    """A port at which nobody listens, and nobody will."""
    return own_port()


def around(tmp_path, closed, port, **environment):
    """A VM whose usual address is dead, and whose service may listen on either of two ports."""
    return Surroundings(environment, tmp_path, f"http://127.0.0.1:{closed}", (closed, port))


@pytest.mark.parametrize("name", LEASES)
def test_a_lease_names_the_service(kind, tmp_path, closed, name):
    """The usual address and the first port are dead; the second port of the newest lease is it."""
    path, text = LEASES[name]
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    with serving(HELLO) as service:
        client = kind(surroundings=around(tmp_path, closed, service.port))

        assert client.url() == service.url
        assert client.call("get") == one()


def test_a_place_that_answers_something_else_is_passed_by(kind, tmp_path, closed):
    """Port 80 is another service, as of Azure's own agent; the next one is asked."""
    path, text = LEASES["systemd-networkd"]
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    with serving(answer(b"", 404)) as other, serving(HELLO) as service:
        there = around(tmp_path, closed, service.port)
        assert kind(surroundings=there._replace(usual=other.url)).url() == service.url
        # Where there is no better one it is taken, and says itself what is wrong.
        alone = kind(surroundings=there._replace(usual=other.url, ports=(closed,)))
        assert alone.url() == other.url
        with pytest.raises(RequestRefused):
            alone.call("get")


def test_whoever_is_told_does_not_look(kind, tmp_path, closed):
    """An argument counts before the environment, and that before the usual address."""
    with serving(HELLO) as told, serving(HELLO) as usual:
        there = around(tmp_path, closed, closed, FAIRNOTICE_METADATA_URL=told.url)
        there = there._replace(usual=usual.url)
        assert kind(surroundings=there).url() == told.url
        assert kind("http://127.0.0.1:1", surroundings=there).url() == "http://127.0.0.1:1"
        assert kind(surroundings=there._replace(environment={})).url() == usual.url
        assert told.asked == []


def test_nowhere(kind, tmp_path, closed):
    """The sentence says where it was looked for, and what to set; a watch goes on looking."""
    there = around(tmp_path, closed, closed)
    with pytest.raises(NoEndpoint, match=rf"http://127.0.0.1:{closed}.*FAIRNOTICE_METADATA_URL"):
        kind(surroundings=there).call("get")
    with pytest.raises(Away, match="cannot be reached"):
        kind(f"http://127.0.0.1:{closed}").call("get")


def test_in_a_vm():
    """The addresses are Azure's."""
    assert Surroundings({}).usual == USUAL == "http://169.254.169.254"
    assert PORTS == (80, 8080)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("option unknown-245 a8:3f:81:10;", "168.63.129.16"),
        ("OPTION_245=a83f8110", "168.63.129.16"),
        ("  private_245 = A8:3F:81:10", "168.63.129.16"),
        ("option option-245 168.63.129.16;", "168.63.129.16"),
        ("OPTION_245=a83f81", None),
        ("option unknown-245 a8:3f:81:100;", None),
        ("option unknown-245 300.1.1.1;", None),
        ("option unknown-2450 a8:3f:81:10;", None),
        ("# nothing", None),
    ],
)
def test_option_245(text, address):
    """As each of them writes it; what is no address is none."""
    assert leased_address(text) == address


def test_a_lease_that_may_not_be_read_is_passed_by(tmp_path):
    """A folder in its place stands for a file of another user: root may read all."""
    (tmp_path / "var/lib/dhcp/x.lease").mkdir(parents=True)
    assert Surroundings({}, tmp_path).candidates() == [USUAL]
