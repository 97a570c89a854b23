"""What a VM makes up goes nowhere, however it is wrapped: real frames, a real packet filter."""

from contextlib import contextmanager

import pytest

from tests.endpoint.bridging import ADDRESSES, MACS, METADATA, bridged_node, needs_a_bridge, run
from tests.endpoint.frames import (
    ARP,
    EVERYBODY,
    IP,
    OTHER_SWITCHES,
    REPLY,
    SERVICE,
    VLAN,
    arp,
    frame,
    packet,
    send,
)

pytestmark = needs_a_bridge

NODE_MAC, NODE_ADDRESS = "52:54:00:00:00:01", "10.79.0.1"
PRIORITY, LOUD = (VLAN, 0), (VLAN, 0xE000)
# Tags that a kernel takes off until it sees what is inside.
TAGS = {
    "none": (),
    "priority": (PRIORITY,),
    "loud": (LOUD,),
    "two": (PRIORITY, PRIORITY),
    "three": (PRIORITY, LOUD, PRIORITY),
    "service": ((SERVICE, 0),),
    "service and priority": ((SERVICE, 0), PRIORITY),
    "priority and service": (PRIORITY, (SERVICE, 0)),
    "VLAN": ((VLAN, 10),),
    "VLAN and priority": ((VLAN, 10), PRIORITY),
    "priority and VLAN": (PRIORITY, (VLAN, 10)),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that is set up."""
    with bridged_node(tmp_path_factory.mktemp("frames")) as node:
        record = str(node.folder / "record")
        words = ("--bridge", "br0", "--vms", str(node.vms), "--record", record, "--no-libvirt")
        # Nothing of what is claimed is put off because something else was heard a moment ago.
        believes = (
            "sh -c 'for file in /proc/sys/net/ipv4/neigh/*/locktime; do echo 0 > $file; done'"
        )
        node.on_node(believes)
        node.on("c", believes)
        node.setup(*words, "--apply")
        yield node


def neighbour(node, address):
    """Which hardware address the node has for an address; empty for none."""
    words = node.on_node(f"ip neigh show {address} dev br0").split()
    return words[words.index("lladdr") + 1] if "lladdr" in words else ""


def port(node, mac):
    """Behind which port the bridge has a hardware address."""
    for line in node.on_node("bridge fdb show br br0").splitlines():
        if line.startswith(f"{mac} ") and "permanent" not in line:
            return line.split()[2]
    return ""


@contextmanager
def let_through(node, which):
    """How many of b's frames of this kind the rules let through; call it for the number so far."""
    node.on_node("nft add table bridge seen")
    node.on_node("nft add chain bridge seen c { type filter hook prerouting priority 0 ; }")
    node.on_node(f"nft add rule bridge seen c iifname fn-b {which} counter")

    def count():
        words = node.on_node("nft list chain bridge seen c").split()
        return int(words[words.index("packets") + 1])

    try:
        yield count
    finally:
        node.on_node("nft delete table bridge seen")


def spoken(node, letter="a"):
    """A host has asked the node for something, so that its place is known."""
    node.on(letter, f"busybox ping -c 1 -W 1 {NODE_ADDRESS}")


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_nobody_answers_for_anothers_address(node, tags):
    """With the tags that are passed by rules for what is not tagged, and stripped behind them."""
    node.on_node(f"ip neigh replace {ADDRESSES['a']} lladdr {MACS['a']} dev br0 nud stale")
    lie = arp(REPLY, (MACS["b"], ADDRESSES["a"]), (NODE_MAC, NODE_ADDRESS))
    send(node, "b", frame(MACS["b"], NODE_MAC, ARP, lie, tags))

    assert neighbour(node, ADDRESSES["a"]) == MACS["a"]


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_nobody_sends_from_anothers_address(node, tags):
    """With his own hardware, and without a word of who has that address."""
    nobodys = "10.79.0.99"
    with let_through(node, f"ether saddr {MACS['b']} ether daddr {MACS['c']}") as count:
        lie = packet(ADDRESSES["a"], nobodys)
        send(node, "b", frame(MACS["b"], MACS["c"], IP, lie, tags))
        assert count() == 0
        own = packet(ADDRESSES["b"], nobodys)
        send(node, "b", frame(MACS["b"], MACS["c"], IP, own))
        assert count() == 1


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_nobody_is_the_address_at_which_vms_ask(node, tags):
    """Not for his neighbours either, who take off such tags as well."""
    run(f"ip -n {node.hosts['c']} neigh replace {METADATA} lladdr {NODE_MAC} dev eth0 nud stale")
    lie = arp(REPLY, (MACS["b"], METADATA), (MACS["c"], ADDRESSES["c"]))
    send(node, "b", frame(MACS["b"], MACS["c"], ARP, lie, tags))

    assert NODE_MAC in run(f"ip -n {node.hosts['c']} neigh show {METADATA} dev eth0")


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
@pytest.mark.parametrize("target", [EVERYBODY, NODE_MAC, OTHER_SWITCHES])
def test_nobody_draws_anothers_frames_to_himself(node, tags, target):
    """Not even by what switches say to one another, which no rule of the bridge is shown."""
    spoken(node)
    assert port(node, MACS["a"]) == "fn-a"
    said = arp(REPLY, (MACS["a"], "10.79.0.99"), (NODE_MAC, NODE_ADDRESS))
    send(node, "b", frame(MACS["a"], target, ARP, said, tags))

    assert port(node, MACS["a"]) == "fn-a"


def test_a_vlan_of_the_vms_own_is_left_alone(node):
    """Who speaks for himself in one is let through, and is still held to what is his."""
    in_vlan = TAGS["VLAN"]
    with let_through(node, "vlan id 10") as count:
        own = arp(REPLY, (MACS["b"], "10.79.10.12"), (MACS["c"], "10.79.10.13"))
        send(node, "b", frame(MACS["b"], MACS["c"], ARP, own, in_vlan))
        assert count() == 1
        lie = arp(REPLY, (MACS["b"], ADDRESSES["a"]), (MACS["c"], "10.79.10.13"))
        send(node, "b", frame(MACS["b"], MACS["c"], ARP, lie, in_vlan))
        assert count() == 1
