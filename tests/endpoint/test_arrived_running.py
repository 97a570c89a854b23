"""A VM that arrives running asks by the hardware of the node that it left, and is answered."""

import pytest

from tests.endpoint.bridging import (
    ADDRESSES,
    CLASSIC,
    FLEET_NODE,
    FLEET_VM,
    MACS,
    METADATA,
    bridged_node,
    needs_a_bridge,
    run,
)
from tests.endpoint.frames import ARP, IP, REPLY, arp, frame, send
from tests.waiting import until

pytestmark = needs_a_bridge

NODE_MAC, LEFT_MAC, GATEWAY = "52:54:00:00:00:01", "52:54:00:00:00:99", "10.79.0.1"
# Off the node by its uplink: where the node is that the VM has left.
UPLINK = "fn-c"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that is set up and answers; what is plugged in at c is none of its VMs."""
    with bridged_node(tmp_path_factory.mktemp("arrived")) as node:
        node.place(c="")
        record = str(node.folder / "record")
        words = ("--bridge", "br0", "--vms", str(node.vms), "--record", record, "--no-libvirt")
        node.setup(*words, "--apply")
        node.control_plane()
        node.endpoint()
        node.answered("a")
        for letter in "ab":
            for address in (METADATA, CLASSIC):
                run(f"ip -n {node.hosts[letter]} route add {address} dev eth0")
        node.on_node("nft add table bridge seen")
        node.on_node("nft add chain bridge seen out { type filter hook postrouting priority 0 ; }")
        ours = f"{{ {METADATA}, {CLASSIC} }}"
        node.on_node(f"nft add rule bridge seen out oifname {UPLINK} ip daddr {ours} counter")
        yield node


def remembers(node, letter, address, mac=LEFT_MAC, state="permanent"):
    """Let a host have this in its table of neighbours."""
    name = node.hosts[letter]
    run(f"ip -n {name} neigh replace {address} lladdr {mac} dev eth0 nud {state}")


def sent_on(node):
    """How many frames for the endpoint have left the node."""
    words = node.on_node("nft list chain bridge seen out").split()
    return int(words[words.index("packets") + 1])


@pytest.mark.parametrize("address", [METADATA, CLASSIC])
def test_who_remembers_another_nodes_hardware_is_answered(node, address):
    """At once, and not when his table has forgotten it; and nothing goes where he sends it."""
    for mac in (LEFT_MAC, MACS["b"], MACS["c"]):
        remembers(node, "a", address, mac)
        assert node.status("a", where=address) == 200
    assert sent_on(node) == 0


def test_who_remembers_another_gateways_hardware_is_answered(node):
    """Where the node is the VMs' gateway, it is that one's hardware which they have."""
    name = node.hosts["b"]
    run(f"ip -n {name} route del {METADATA} dev eth0")
    remembers(node, "b", GATEWAY)
    assert node.status("b") == 200
    run(f"ip -n {name} route add {METADATA} dev eth0")
    remembers(node, "b", GATEWAY, NODE_MAC)


def test_he_is_told_the_hardware_here_when_he_asks_there(node):
    """The table of a VM asks who it remembers before it asks everybody: it is answered as well."""
    remembers(node, "a", METADATA, state="probe")

    def known():
        shown = run(f"ip -n {node.hosts['a']} neigh show {METADATA} dev eth0")
        assert "FAILED" not in shown
        return NODE_MAC in shown

    until(known, "the hardware of this node")
    assert node.status("a") == 200


def test_whoever_is_not_who_he_says_is_not_taken_in_by_that(node):
    """What is refused is refused before; and who is none of the node's VMs is left alone."""
    remembers(node, "b", METADATA)
    before = node.refused("vouched")
    node.take("b", address=ADDRESSES["a"])
    assert node.status("b", ADDRESSES["a"], seconds=1) == 0
    run(f"ip -n {node.hosts['b']} addr del {ADDRESSES['a']}/24 dev eth0")
    lie = arp(REPLY, (MACS["b"], ADDRESSES["a"]), (LEFT_MAC, METADATA))
    send(node, "b", frame(MACS["b"], LEFT_MAC, ARP, lie))
    assert MACS["b"] not in node.on_node(f"ip neigh show {ADDRESSES['a']} dev br0")
    send(node, "b", frame(MACS["a"], LEFT_MAC, IP, bytes(40)))
    assert f"{MACS['a']} dev fn-b" not in node.on_node("bridge fdb show br br0")

    run(f"ip -n {node.hosts['c']} route add {METADATA} dev eth0")
    remembers(node, "c", METADATA)
    assert node.status("c", seconds=1) == 0
    assert node.refused("vouched") == before


def test_who_is_here_before_the_control_plane_knows_it_is_in_the_fleet(tmp_path):
    """On the node that it left, until its move is over: it is said that it is not here yet."""
    fleet = tmp_path / "fleet.toml"
    nodes = FLEET_NODE + FLEET_NODE.replace("node-0", "node-1")
    on_another = FLEET_VM.format("b", ADDRESSES["b"]).replace("node-0", "node-1")
    fleet.write_text(nodes + FLEET_VM.format("a", ADDRESSES["a"]) + on_another)
    with bridged_node(tmp_path) as early:
        early.on_node(f"ip addr add {METADATA}/32 dev br0")
        early.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        early.start("up", "--store", "memory:", "--fleet", str(fleet), ready="8600")
        early.endpoint()
        early.answered("a")
        assert early.status("b") == 403
        log = (early.folder / "log-1").read_text()
    assert (
        f"that port is b's, whose address it is in {early.vms}, but the control plane has no VM "
        "with it on this node (yet)"
    ) in log


def test_with_several_addresses_of_hardware_the_bridges_own_is_right(node):
    """It takes another when nobody chose it: with the next refresh that is known."""
    other = "52:54:00:00:00:02"
    node.on_node(f"ip link set br0 address {other}")
    remembers(node, "a", METADATA, other)
    # Who has the right one needs nobody's help.
    assert node.status("a") == 200
    record = str(node.folder / "record")
    words = ("--bridge", "br0", "--vms", str(node.vms), "--record", record, "--no-libvirt")
    node.setup(*words, "--refresh")
    remembers(node, "a", METADATA)
    assert node.status("a") == 200
    node.on_node(f"ip link set br0 address {NODE_MAC}")
    node.setup(*words, "--refresh")


def test_rules_of_an_earlier_version_are_still_told_who_is_where(node):
    """They have no such map, until the next --apply; a VM that starts before then is held."""
    record = str(node.folder / "record")
    words = ("--bridge", "br0", "--vms", str(node.vms), "--record", record, "--no-libvirt")
    earlier = node.on_node("nft --stateless list table bridge fairnotice_br0")
    earlier = "\n".join(one for one in earlier.splitlines() if "@here" not in one)
    before, _, rest = earlier.partition("map here {")
    earlier = before + rest.partition("}\n\t}")[2]
    node.on_node("nft delete table bridge fairnotice_br0")
    node.on_node("nft -f -", input=earlier)
    assert "here" not in node.on_node("nft list table bridge fairnotice_br0")
    node.place(b="fn-z", c="")
    node.setup(*words, "--refresh")
    assert "fn-z" in node.on_node("nft list set bridge fairnotice_br0 ports")

    node.place(c="")
    assert node.setup(*words, "--check", check=False).returncode == 1
    node.setup(*words, "--apply")
    assert "@here" in node.on_node("nft list table bridge fairnotice_br0")
