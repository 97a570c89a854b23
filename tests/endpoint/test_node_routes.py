"""By which way VMs ask and are answered: a bridge without a route to them, and other gateways."""

import json
import signal
import sys

import pytest

from tests.endpoint.bridging import CLASSIC, METADATA, bridged_node, needs_a_bridge, run
from tests.endpoint.test_node_setup import KILLED
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


# ---- Routes of others, on a bridge that has no address but ours ----

# One that only the route before it makes possible, of two ways, and in a table of its own.
OTHERS = (
    f"{HOSTS} dev br0",
    "default via 10.79.0.13 dev br0 metric 7",
    "10.80.0.0/16 nexthop via 10.79.0.11 dev br0 nexthop via 10.79.0.12 dev br0",
    "10.81.0.0/16 via 10.79.0.13 dev br0 proto static table 100 mtu lock 1400",
)
# Of this one the kernel keeps the other way, and calls ours dead.
TWO_WAYS = "10.83.0.0/16 nexthop dev br0 nexthop dev other0"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A node whose bridge has no address."""
    with bridged_node(tmp_path_factory.mktemp("bare")) as bare:
        bare.on_node(f"ip addr del {NODE_ADDRESS} dev br0")
        bare.on_node("ip link add on0 type bridge")
        bare.on_node("ip link set on0 up")
        bare.on_node("ip link add other0 type bridge")
        bare.on_node("ip link set other0 up")
        bare.on_node("ip addr add 192.0.2.1/24 dev other0")
        yield bare


def routes(node):
    """All of a node's."""
    return node.on_node("ip -4 route show table all")


def test_routes_of_others_are_there_as_before(bare):
    """Made while it is set up: the kernel takes them with the last address, and they are back."""
    bare.setup(*flags(bare), "--apply")
    for one in OTHERS:
        bare.on_node(f"ip route add {one}")
    # This one cannot be without our address.
    bare.on_node(f"ip route add 10.82.0.0/16 dev br0 src {METADATA}")
    bare.setup(*flags(bare), "--undo")
    before = routes(bare)
    assert before.count("10.79.0.13") == 2
    assert before.count("nexthop") == 2
    assert METADATA not in before
    # As a restart of the unit does it, and with other flags.
    bare.setup(*flags(bare), "--apply")
    bare.setup(*flags(bare), "--interface", "on0", "--apply")
    assert [line for line in before.splitlines() if line not in routes(bare)] == []
    bare.setup(*flags(bare), "--undo")
    assert routes(bare) == before
    assert not (bare.folder / "record").exists()

    # Typed by hand: what is said to take it away does not take them, either.
    bare.on_node(["sh", "-ec", bare.setup(*flags(bare))])
    found = json.loads(bare.setup(*flags(bare), "--undo", "--json"))
    bare.on_node(["sh", "-ec", "\n".join(found["still_there"])])
    assert routes(bare) == before


def test_the_way_over_the_bridge_of_a_route_with_others_is_there_as_before(bare):
    """Of two ways one would go with the last address."""
    bare.setup(*flags(bare), "--apply")
    bare.on_node(f"ip route add {TWO_WAYS}")
    assert "dead" not in bare.on_node("ip route show 10.83.0.0/16")
    bare.setup(*flags(bare), "--undo")
    shown = bare.on_node("ip route show 10.83.0.0/16")
    bare.on_node(f"ip route del {TWO_WAYS}")
    assert (shown.count("nexthop"), shown.count("dead")) == (2, 0)


@pytest.mark.parametrize("moment", ["before 2", "after 2", "before 4", "after 4"])
@pytest.mark.parametrize("then", ["--undo", "--apply"])
def test_routes_of_others_outlive_a_kill(bare, moment, then):
    """Of the undo, between the address and the last of them: whatever is done next has them."""
    for one in OTHERS:
        bare.on_node(f"ip route replace {one}")
    before = routes(bare)
    bare.setup(*flags(bare), "--apply")
    line = [sys.executable, "-c", KILLED, moment, *flags(bare), "--undo"]
    killed = bare.on_node(line, check=False)
    assert killed.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}, killed
    bare.setup(*flags(bare), then)
    assert [line for line in before.splitlines() if line not in routes(bare)] == []
    bare.setup(*flags(bare), "--undo")
    assert routes(bare) == before


def test_a_route_that_cannot_come_back_holds_up_nothing(bare):
    """Somebody has put another one there since the kill: it stays, and the rest is undone."""
    bare.on_node(f"ip route replace {HOSTS} dev br0")
    bare.setup(*flags(bare), "--apply")
    line = [sys.executable, "-c", KILLED, "after 2", *flags(bare), "--undo"]
    bare.on_node(line, check=False)
    bare.on_node(f"ip route add {HOSTS} dev br0 proto static")
    said = bare.setup(*flags(bare), "--undo")
    assert f"# ip route add {HOSTS} dev br0 scope link failed: RTNETLINK" in said
    assert f"{HOSTS} dev br0 proto static scope link" in routes(bare)
    assert "fairnotice" not in bare.on_node("nft list ruleset")
    assert not (bare.folder / "record").exists()
