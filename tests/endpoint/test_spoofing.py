"""A VM that takes what is another's gets nothing: hosts on a real bridge, and a real endpoint."""

import json
import sys

import pytest

from tests.endpoint.bridging import (
    ADDRESSES,
    CLASSIC,
    EVENTS_URL,
    MACS,
    METADATA,
    bridged_node,
    needs_a_bridge,
    run,
)
from tests.waiting import until

pytestmark = needs_a_bridge

# No other program binds to such an address without fail.
ASKS_FROM_ITS_LINK = """
import http.client, socket, sys
source = (sys.argv[1], 0, 0, socket.if_nametoindex("eth0"))
asked = http.client.HTTPConnection(sys.argv[2], 80, timeout=2, source_address=source)
path = "/metadata/scheduledevents?api-version=2020-07-01"
asked.request("GET", path, headers={"Metadata": "true"})
print(asked.getresponse().status)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A node with a control plane and an endpoint that checks."""
    with bridged_node(tmp_path_factory.mktemp("spoofing")) as node:
        node.on_node("ip addr add 169.254.169.254/32 dev br0")
        node.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        node.control_plane()
        node.endpoint()
        yield node


@pytest.fixture
def node(served):
    """The same, with everybody at his own place afterwards."""
    yield served
    for letter, name in served.hosts.items():
        run(f"ip -n {name} addr flush dev eth0")
        served.take(letter, address=ADDRESSES[letter], mac=MACS[letter])
        run(f"ip -n {name} route replace default via 10.79.0.1")
    served.on_node("ip neigh flush dev br0")
    served.place()
    for letter in served.hosts:
        served.answered(letter)


def test_everybody_at_his_own_place_is_answered(node):
    """At both addresses."""
    for letter in node.hosts:
        assert node.status(letter) == 200
        assert node.status(letter, where=CLASSIC) == 200


def test_who_takes_anothers_address_gets_nothing(node):
    """He tells everybody that it is his; the tables say whose hardware it leads to."""
    node.take("b", address=ADDRESSES["a"])
    node.lie("b", ADDRESSES["a"])

    assert node.status("b", ADDRESSES["a"]) in {0, 403}
    assert node.status("b", ADDRESSES["b"]) == 200


def test_who_takes_the_address_of_one_that_is_down_gets_nothing(node):
    """Nobody answers for it any more but the liar."""
    run(f"ip -n {node.hosts['a']} link set eth0 down")
    node.take("b", address=ADDRESSES["a"])
    node.lie("b", ADDRESSES["a"])

    assert node.status("b", ADDRESSES["a"]) == 403
    assert node.refused("other_mac") > 0
    run(f"ip -n {node.hosts['a']} link set eth0 up")


def test_who_takes_hardware_and_address_gets_nothing(node):
    """The bridge learns that it is behind another port, and that is not the VM's."""
    before = node.refused("other_port")
    run(f"ip -n {node.hosts['a']} link set eth0 down")
    run(f"ip -n {node.hosts['b']} addr flush dev eth0")
    node.take("b", address=ADDRESSES["a"], mac=MACS["a"])
    run(f"ip -n {node.hosts['b']} route replace default via 10.79.0.1")

    assert node.status("b") == 403
    assert node.refused("other_port") > before
    run(f"ip -n {node.hosts['a']} link set eth0 up")


def test_who_takes_both_while_the_other_talks_gets_nothing(node):
    """The tables say now the one and now the other: whoever was contradicted is not believed."""
    run(f"ip -n {node.hosts['b']} addr flush dev eth0")
    node.take("b", address=ADDRESSES["a"], mac=MACS["a"])
    run(f"ip -n {node.hosts['b']} route replace default via 10.79.0.1")
    with node.keeps_asking("a") as ask:
        answers = set()
        for _ in range(10):
            answers.add(node.status("b", seconds=1))
            if ask() != 200:
                break
    assert answers <= {0, 403}


def test_a_connection_that_stays_is_looked_at_again(node):
    """What was a VM's when it began is nobody's when the VM's port is another's."""
    with node.keeps_asking("a") as ask:
        assert ask() == 200
        node.place(a="fn-b")
        assert until(lambda: ask() == 403, "a refusal", seconds=3)
    # Nothing makes a connection good that was refused; another one is.
    node.place()
    node.answered("a")


def test_a_vm_that_nobody_has_placed_is_nobody(node):
    """What the file does not say is a no, and so is a file that cannot be read."""
    node.place(a=None)
    assert node.status("a") == 403
    assert node.status("b") == 200
    node.vms.write_text("{")
    assert node.status("b") == 403
    node.vms.unlink()
    assert node.status("b") == 403


def test_a_vm_that_arrives_is_answered_soon(node):
    """As after a live migration: another port, and the bridge learns where its hardware is."""
    node.on_node("ip link del fn-c")
    node.plug_in("c", "fn-d")
    assert node.status("c") == 403
    node.place(c="fn-d")

    assert until(lambda: node.status("c", seconds=1) == 200, "an answer", seconds=3)

    node.on_node("ip link del fn-d")
    node.plug_in("c", "fn-c")


def test_without_a_bridge_to_ask_nobody_is_anybody(tmp_path):
    """And with the check off, everybody is who he says, as before."""
    with bridged_node(tmp_path) as node:
        node.on_node("ip addr add 169.254.169.254/32 dev br0")
        node.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        node.control_plane()
        unchecked = node.endpoint(checked=False)
        node.take("b", address=ADDRESSES["a"])
        node.lie("b", ADDRESSES["a"])
        assert node.status("b", ADDRESSES["a"]) == 200
        node.end(unchecked)
        node.endpoint(workers=2)
        assert node.status("b", ADDRESSES["a"]) in {0, 403}
        assert node.status("c") == 200
        until(lambda: node.refused("vouched") > 0, "the count of the workers")


# ---- Another bridge, and the other version of IP ----


@pytest.fixture
def two_bridges(tmp_path):
    """The liar c is on a bridge of his own, in a network that looks the same."""
    with bridged_node(tmp_path) as node:
        node.on_node("ip addr add 169.254.169.254/32 dev br0")
        node.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        node.on_node("ip link add br1 type bridge")
        node.on_node("ip link set fn-c master br1")
        node.on_node("ip link set br1 up")
        run(f"ip -n {node.hosts['c']} addr flush dev eth0")
        node.take("c", address=ADDRESSES["a"], mac=MACS["a"])
        run(f"ip -n {node.hosts['c']} route replace default via 10.79.0.2")
        node.on_node("ip addr add 10.79.0.2/24 dev br1 noprefixroute")
        node.control_plane()
        node.endpoint()
        yield node


def test_the_same_address_on_another_bridge_is_another(two_bridges):
    """With everything a VM's but its bridge: answers go to the VM, or nobody is believed."""
    node = two_bridges
    assert node.status("a") == 200
    assert node.status("c") == 0
    assert node.status("a") == 200

    # Now answers would go to the liar; the tables of the VMs' bridge still have the VM.
    node.on_node(f"ip route add {ADDRESSES['a']}/32 dev br1")
    assert node.status("c") == 403
    assert node.refused("other_way") > 0
    assert node.status("b") == 200


def test_by_version_six_it_is_the_same(tmp_path):
    """An endpoint at an address of version 6; and link-local ones are nobody's."""
    six = {letter: f"fd00:79::1{number}" for number, letter in enumerate("abc", 1)}
    where = "[fd00:79::fe]"
    with bridged_node(tmp_path) as node:
        node.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        node.on_node("ip addr add fd00:79::fe/64 dev br0 nodad")
        for letter, name in node.hosts.items():
            run(f"ip -n {name} addr add {six[letter]}/64 dev eth0 nodad")
        node.control_plane(addresses=six)
        node.endpoint(listen=f"{where}:80")
        node.answered("a", where=where)
        assert node.status("b", where=where) == 200

        run(f"ip -n {node.hosts['a']} link set eth0 down")
        run(f"ip -n {node.hosts['b']} addr add {six['a']}/64 dev eth0 nodad")
        # As after a while in which nobody answered for it.
        node.on_node("ip -6 neigh flush dev br0")
        assert node.status("b", six["a"], where=where) == 403
        assert node.refused("other_mac") > 0
        assert node.status("b", six["b"], where=where) == 200

        local = node.on("b", "ip -6 -o addr show dev eth0 scope link").split()[3].partition("/")[0]
        # It is heard, and told that it is nobody's.
        asks = [sys.executable, "-c", ASKS_FROM_ITS_LINK, local, where.strip("[]")]
        until(lambda: "tentative" not in node.on("b", "ip addr show dev eth0"), "its address")
        assert node.on("b", asks) == "403\n"


# ---- Who is nobody ----


@pytest.fixture(scope="module")
def unknown(tmp_path_factory):
    """A node where b, at an address of nobody's, and c are no VMs of the fleet."""
    with bridged_node(tmp_path_factory.mktemp("unknown")) as node:
        node.on_node("ip addr add 169.254.169.254/32 dev br0")
        node.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        node.take("b", address="10.79.0.99")
        node.control_plane(addresses={"a": ADDRESSES["a"]})
        yield node


@pytest.mark.parametrize(
    ("vms", "source", "says"),
    [
        ("b", "10.79.0.99", "10.79.0.99 at fn-b is{}that port is b's, whose addresses are {} ("),
        ("b", "10.79.0.12", "{1} at fn-b is{0}that port is b's, whose address it is in "),
        ("", "10.79.0.99", "10.79.0.99 at fn-b is{}that port is nobody's ("),
        ("other", "10.79.0.99", "10.79.0.99 at fn-b is{}that port is not in "),
    ],
)
def test_a_refusal_says_whose_the_port_is(unknown, vms, source, says):
    """No label, a wrong address in it, or not in the fleet: which it is, once a minute."""
    node, refused = unknown, " no VM's address, and is refused; "
    port = "fn-z" if vms == "other" else "fn-b"
    place = {"port": port, "mac": MACS["b"], "addresses": [ADDRESSES["b"]]}
    node.vms.write_text(json.dumps({"vms": {vms: [place]}}))
    endpoint = node.endpoint()
    log = node.folder / f"log-{len(node.processes) - 1}"
    assert [node.status("b", source) for _ in range(3)] == [403, 403, 403]
    assert node.refused("no_vm") >= 3
    assert says.format(refused, ADDRESSES["b"]) in log.read_text()
    assert log.read_text().count("no VM's address") == 1
    node.end(endpoint)


def test_of_who_has_no_port_nothing_is_made_up(unknown):
    """The node itself asks: it is at no port of its bridge."""
    endpoint = unknown.endpoint()
    log = unknown.folder / f"log-{len(unknown.processes) - 1}"
    unknown.on_node(f"curl -s -o /dev/null {EVENTS_URL.format(METADATA)}")
    assert (
        "is no VM's address, and is refused; at which port it is, is not known" in log.read_text()
    )
    unknown.end(endpoint)
