"""The kernel's words about neighbours: whole ones are read, broken ones are passed over."""

import errno
import socket
import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.endpoint import netlink
from fairnotice.endpoint.netlink import AF_BRIDGE, Entry, Refusal, answers
from fairnotice.endpoint.vouching import Network, Tables

MACS = st.binary(min_size=6, max_size=6)
NUMBERS = st.integers(1, 2**31 - 1)


def attribute(number, value):
    """An attribute as the kernel writes it."""
    size = 4 + len(value)
    return struct.pack("=HH", size, number) + value + bytes(-size % 4)


def message(kind, sequence, body):
    """A message as the kernel writes it."""
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body


@given(NUMBERS, st.integers(0, 255), MACS, NUMBERS, st.integers(1, 4094))
def test_an_entry_of_the_bridge_is_read(sequence, state, mac, master, vlan):
    """Whatever stands between what we know."""
    interface = 11
    body = struct.pack("=BxxxiHBB", AF_BRIDGE, interface, state, 0, 0)
    body += attribute(netlink.NDA_LLADDR, mac) + attribute(3, b"x" * 16)
    body += attribute(netlink.NDA_MASTER, struct.pack("=I", master))
    body += attribute(netlink.NDA_VLAN, struct.pack("=H", vlan))

    (entry,) = answers(message(netlink.RTM_NEWNEIGH, sequence, body))

    assert entry == Entry(sequence, AF_BRIDGE, interface, state, 0, mac.hex(":"), "", master, vlan)
    assert entry.is_the_bridges_own == bool(state & 0x80)


@given(NUMBERS, st.ip_addresses(), MACS)
def test_a_neighbour_is_read(sequence, address, mac):
    """Of either version."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = struct.pack("=BxxxiHBB", family, 7, 2, 0, 0)
    body += attribute(netlink.NDA_DST, address.packed) + attribute(netlink.NDA_LLADDR, mac)

    (entry,) = answers(message(netlink.RTM_NEWNEIGH, sequence, body) + b"\0" * 3)

    assert (entry.address, entry.mac, entry.interface) == (str(address), mac.hex(":"), 7)
    assert entry.leads_somewhere


@pytest.mark.parametrize(("state", "flags"), [(0x01, 0), (0x20, 0), (2, 0x08)])
def test_who_is_looked_for_is_not_found(state, flags):
    """Incomplete, failed, or answered for by somebody else."""
    assert not Entry(1, 2, 3, state, flags).leads_somewhere


@given(st.binary(max_size=200))
def test_nothing_breaks_it(data):
    """Whatever comes is read to its end or passed over."""
    list(answers(data))


@given(st.binary(max_size=60), st.integers(0, 60))
def test_a_message_that_is_cut_off_says_nothing_wrong(body, cut):
    """What is missing is not made up."""
    whole = message(netlink.RTM_NEWNEIGH, 5, struct.pack("=BxxxiHBB", 2, 1, 2, 0, 0) + body)
    part = whole[: max(0, len(whole) - cut - 1)]

    assert list(answers(part)) == []


@given(NUMBERS, st.integers(1, 130))
def test_a_refusal_is_read(sequence, error):
    """With the number of its error."""
    data = message(netlink.NLMSG_ERROR, sequence, struct.pack("=i", -error) + bytes(16))

    assert list(answers(data)) == [Refusal(sequence, error)]


def test_the_kernel_understands_the_questions():
    """It has no such neighbour, and no such bridge: and says that, not that we asked wrongly."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        loopback = socket.if_nametoindex("lo")
        for question, wrong in (
            (netlink.neighbour_question(1, loopback, ip_address("192.0.2.1")), errno.ENOENT),
            (netlink.neighbour_question(2, loopback, ip_address("2001:db8::1")), errno.ENOENT),
        ):
            kernel.send(question)
            (answer,) = answers(kernel.recv(4096))
            assert (type(answer), answer.error) == (Refusal, wrong)
        kernel.send(netlink.port_question(3, loopback, "52:54:00:00:00:01", 7))
        (answer,) = answers(kernel.recv(4096))
        assert isinstance(answer, Refusal)


@given(NUMBERS, st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4094)), max_size=5))
def test_a_bridges_own_vlan_is_the_first_of_what_is_not_tagged(sequence, vlans):
    """Of all that it is in; none, where all is tagged."""
    infos = (attribute(1, struct.pack("=HH", *one)) + attribute(3, b"\x03") for one in vlans)
    body = struct.pack("=BxxxI", AF_BRIDGE, 3) + b"".join(attribute(1, info) for info in infos)

    (told,) = answers(message(netlink.RTM_NEWVLAN, sequence, body))

    expected = next((vlan for flags, vlan in vlans if flags & 2), 0)
    assert told == netlink.Untagged(sequence, expected)


@pytest.mark.parametrize(
    ("network", "filters", "vlan"),
    [
        (Network("lo"), "0", 0),
        (Network("lo", vlan=7), "0", 0),
        (Network("lo", vlan=7), "1", 7),
        (Network("lo", "lo.10"), "1", 10),
        (Network("lo", "macvlan0"), "1", None),
        # No bridge: the kernel does not tell.
        (Network("lo"), "1", None),
        (Network("lo"), "", 0),
    ],
)
def test_in_which_vlan_vms_are(tmp_path, network, filters, vlan):
    """As it is said, or as the interface is; where nothing says so, nobody is behind any port."""
    (tmp_path / "lo" / "bridge").mkdir(parents=True)
    if filters:
        (tmp_path / "lo" / "bridge" / "vlan_filtering").write_text(f"{filters}\n")
    (tmp_path / "lo.10").write_text("lo.10  VID: 10\t REORDER_HDR: 1  dev->priv_flags: 1\n")
    tables = Tables(network, tmp_path, tmp_path)
    try:
        assert tables.vlan == vlan
        if vlan is None:
            with pytest.raises(OSError, match="in which VLAN"):
                tables.port_of("52:54:00:00:00:01")
    finally:
        tables.close()
