"""By which way VMs ask and are answered: a bridge without a route to them, and other gateways."""

import json

import pytest

from tests.endpoint.bridging import CLASSIC, METADATA, bridged_node, needs_a_bridge, run
from tests.waiting import until

pytestmark = needs_a_bridge

HOSTS, NODE_ADDRESS = "10.79.0.0/24", "10.79.0.1/24"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that is set up and answers."""
    with bridged_node(tmp_path_factory.mktemp("routes")) as node:
        node.setup(*flags(node), "--apply")
        node.control_plane()
        node.endpoint()
        for letter in "abc":
            node.answered(letter)
        yield node


@pytest.fixture
def without_a_route(node):
    """Its own address is elsewhere, and so is what it has no other way to."""
    node.on_node(f"ip addr del {NODE_ADDRESS} dev br0")
    node.on_node("ip link add mgmt type bridge")
    node.on_node("ip link set mgmt up")
    node.on_node("ip addr add 192.0.2.2/24 dev mgmt")
    node.on_node("ip route add default via 192.0.2.1")
    for name in node.hosts.values():
        run(f"ip -n {name} route replace {METADATA} dev eth0")
    yield node
    node.on_node(f"ip route flush {HOSTS}")
    node.on_node("ip link del mgmt")
    node.on_node(f"ip addr replace {NODE_ADDRESS} dev br0")
    for name in node.hosts.values():
        run(f"ip -n {name} route del {METADATA} dev eth0")
    node.place()


def flags(node):
    """How the command is called here."""
    record = str(node.folder / "record")
    return ("--bridge", "br0", "--vms", str(node.vms), "--record", record, "--no-libvirt")


def checked(node):
    """What `--check` ends with, and what it says of VMs that are not answered."""
    found = node.setup(*flags(node), "--check", "--json", check=False)
    return found.returncode, json.loads(found.stdout)["not_answered"]


def test_a_bridge_without_a_route_to_its_vms_is_found(without_a_route):
    """They hear nothing and no log says why; the check does, and what it says to do helps."""
    node = without_a_route
    assert [node.status(letter, seconds=1) for letter in "ab"] == [0, 0]
    code, said = checked(node)
    assert code == 1
    assert said == (
        "answers to 10.79.0.11 (a), 10.79.0.12 (b), 10.79.0.13 (c) would not leave by br0: give it "
        "an address in the VMs' network, or a route there (ip route add NETWORK dev br0)"
    )
    assert f"not answered: {said}.\n" in node.setup(*flags(node), "--check", check=False).stdout
    assert f"as it should be, but:\n# {said}.\n" in node.setup(*flags(node), "--apply")

    node.on_node(said.rpartition("(")[2].rstrip(")").replace("NETWORK", HOSTS))
    assert checked(node) == (0, None)
    for letter in "abc":
        node.answered(letter)


@pytest.mark.parametrize("kind", ["unreachable", "prohibit", "blackhole"])
def test_a_route_that_says_no_is_no_route(without_a_route, kind):
    """Nor is none at all."""
    without_a_route.on_node("ip route del default")
    assert checked(without_a_route)[0] == 1
    without_a_route.on_node(f"ip route add {kind} {HOSTS}")
    assert checked(without_a_route)[0] == 1


def test_of_many_vms_some_are_named(without_a_route):
    """One line says it; who has one address here is answered, and who is nobody need not be."""
    node = without_a_route
    numbers = range(20, 70)
    vms = {f"vm-{at}": [{"port": f"p{at}", "addresses": [f"10.79.0.{at}"]}] for at in numbers}
    vms[""] = [{"port": "q0", "addresses": ["10.79.0.99"]}]
    vms["six"] = [{"port": "q1", "addresses": ["2001:db8::1"]}]
    vms["unknown"] = [{"port": "q2"}]
    node.vms.write_text(json.dumps({"vms": vms}))
    assert (
        "10.79.0.20 (vm-20), 10.79.0.21 (vm-21), 10.79.0.22 (vm-22) and 47 more"
        in (checked(node)[1])
    )
    two = [{"port": "p0", "addresses": ["203.0.113.9", "10.79.0.20"]}]
    node.vms.write_text(json.dumps({"vms": {"two": two}}))
    assert checked(node)[1].startswith("answers to 10.79.0.20, 203.0.113.9 (two) would not")
    node.on_node(f"ip route add {HOSTS} dev br0")
    assert checked(node) == (0, None)


@pytest.mark.parametrize("address", [METADATA, CLASSIC])
def test_whose_gateway_is_another_machine_is_answered(node, address):
    """With no route of its own for it: what is for the endpoint is taken in at the bridge."""
    name = node.hosts["a"]
    run(f"ip -n {name} route replace default via 10.79.0.13")
    until(lambda: node.on("a", "busybox arping -c 1 -w 1 -I eth0 10.79.0.13", check=False), "c")
    assert node.status("a", where=address) == 200
    assert "10.79.0.13" in run(f"ip -n {name} neigh show dev eth0")
    # It is the rules that do it: without them it goes to the gateway, and is answered by nobody.
    node.on_node("nft delete table bridge fairnotice_br0")
    assert node.status("a", where=address, seconds=1) == 0
    node.setup(*flags(node), "--apply")
    assert node.status("a", where=address) == 200
    run(f"ip -n {name} route replace default via 10.79.0.1")
