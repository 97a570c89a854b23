"""The kernel's words about neighbours: questions and answers as bytes, without any socket.

Two tables are asked in the same words (rtnetlink(7), RTM_GETNEIGH): of an interface, which hardware
address an IP address has; of a bridge, behind which port a hardware address is. Each question is
about one entry, so it costs the same however full the tables are: a VM that floods them with
made-up addresses makes no answer slower. Two more are asked: by which interface something would be
sent to an address (RTM_GETROUTE), and in which VLAN a bridge itself is (RTM_GETVLAN).
"""

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

# linux/netlink.h and linux/rtnetlink.h
NLMSG_ERROR, NLMSG_DONE, RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 2, 3, 28, 29, 30
RTM_NEWROUTE, RTM_GETROUTE, RTM_NEWVLAN, RTM_GETVLAN = 24, 26, 112, 114
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
# Who binds a socket to it is told of every entry that comes, changes or goes (RTNLGRP_NEIGH).
RTMGRP_NEIGH = 4
RTA_DST, RTA_OIF = 1, 4
# linux/if_bridge.h: an entry of a bridge's VLANs, what is in it, and the sign of what is untagged.
BRIDGE_VLANDB_ENTRY, BRIDGE_VLANDB_ENTRY_INFO, BRIDGE_VLAN_INFO_PVID = 1, 1, 2
# linux/neighbour.h: attributes, flags and states of an entry.
NDA_DST, NDA_LLADDR, NDA_VLAN, NDA_MASTER = 1, 2, 5, 9
NTF_MASTER, NTF_PROXY = 0x04, 0x08
NUD_INCOMPLETE, NUD_FAILED, NUD_PERMANENT = 0x01, 0x20, 0x80
AF_BRIDGE = 7
# What only the number of an attribute means, of its sixteen bits.
ATTRIBUTE_NUMBER = 0x3FFF

_MESSAGE = struct.Struct("=IHHII")
_ENTRY = struct.Struct("=BxxxiHBB")
_ATTRIBUTE = struct.Struct("=HH")
_ROUTE = struct.Struct("=BBBBBBBBI")
_VLANS = struct.Struct("=BxxxI")
_VLAN = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_SHORT = struct.Struct("=H")
_ERROR = struct.Struct("=i")
MAC_BYTES = 6
# Where an entry begins to differ: its family, and what is told of it.
FAMILY_AT = _MESSAGE.size
ATTRIBUTES_AT = _MESSAGE.size + _ENTRY.size


class Entry(NamedTuple):
    """An entry of either table, as far as it was told."""

    sequence: int
    family: int
    interface: int
    state: int
    flags: int = 0
    mac: str = ""
    address: str = ""
    master: int = 0
    vlan: int = 0
    # It was there until now.
    gone: bool = False

    @property
    def leads_somewhere(self) -> bool:
        """Whether the kernel has found out whose it is, and does not only answer for another."""
        return not (self.state & (NUD_INCOMPLETE | NUD_FAILED) or self.flags & NTF_PROXY)

    @property
    def is_the_bridges_own(self) -> bool:
        """Of a bridge: whether it is the address of a port itself, behind which is nobody."""
        return bool(self.state & NUD_PERMANENT)


class Refusal(NamedTuple):
    """The kernel has no such entry, or no such interface, or does not know the question."""

    sequence: int
    error: int


class Way(NamedTuple):
    """By which interface something would be sent."""

    sequence: int
    interface: int


class Untagged(NamedTuple):
    """In which VLAN of a bridge what is not tagged is; 0: this message names none."""

    sequence: int
    vlan: int


class End(NamedTuple):
    """All has been told."""

    sequence: int


Address = IPv4Address | IPv6Address
Answer = Entry | Refusal | Way | Untagged | End


def neighbour_question(sequence: int, interface: int, address: Address) -> bytes:
    """Ask which hardware address this address has, on this interface."""
    entry = _ENTRY.pack(_family(address), interface, 0, 0, 0)
    return _question(sequence, entry + _attribute(NDA_DST, address.packed))


def way_question(sequence: int, address: Address) -> bytes:
    """Ask by which interface something would be sent to this address."""
    bits = address.max_prefixlen
    body = _ROUTE.pack(_family(address), bits, 0, 0, 0, 0, 0, 0, 0)
    return _question(sequence, body + _attribute(RTA_DST, address.packed), RTM_GETROUTE)


def untagged_question(sequence: int, bridge: int) -> bytes:
    """Ask in which VLANs this bridge itself is: several answers, and an End."""
    return _question(sequence, _VLANS.pack(AF_BRIDGE, bridge), RTM_GETVLAN, NLM_F_DUMP)


def _family(address: Address) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004


def port_question(sequence: int, bridge: int, mac: str, vlan: int = 0) -> bytes:
    """Ask behind which port of this bridge this hardware address is, in this VLAN."""
    body = _ENTRY.pack(AF_BRIDGE, 0, 0, NTF_MASTER, 0)
    body += _attribute(NDA_LLADDR, bytes.fromhex(mac.replace(":", "")))
    body += _attribute(NDA_MASTER, _NUMBER.pack(bridge))
    if vlan:
        body += _attribute(NDA_VLAN, _SHORT.pack(vlan))
    return _question(sequence, body)


def _question(sequence: int, body: bytes, kind: int = RTM_GETNEIGH, flags: int = 0) -> bytes:
    size = _MESSAGE.size + len(body)
    return _MESSAGE.pack(size, kind, NLM_F_REQUEST | flags, sequence, 0) + body


def _attribute(number: int, value: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(size, number) + value + bytes(-size % 4)


def answers(data: bytes) -> Iterator[Answer]:
    """Every answer in what was received; what is not whole, or of another kind, is passed over."""
    for kind, sequence, body in _messages(data):
        if kind == NLMSG_ERROR and len(body) >= _ERROR.size:
            yield Refusal(sequence, -_ERROR.unpack_from(body)[0])
        elif kind in {RTM_NEWNEIGH, RTM_DELNEIGH} and len(body) >= _ENTRY.size:
            yield _entry(sequence, body)._replace(gone=kind == RTM_DELNEIGH)
        elif kind == RTM_NEWROUTE and len(body) >= _ROUTE.size:
            values = dict(_attributes(body[_ROUTE.size :]))
            yield Way(sequence, _whole(_NUMBER, values.get(RTA_OIF, b"")))
        elif kind == RTM_NEWVLAN and len(body) >= _VLANS.size:
            yield Untagged(sequence, _untagged(body[_VLANS.size :]))
        elif kind == NLMSG_DONE:
            yield End(sequence)


def _untagged(data: bytes) -> int:
    for number, entry in _attributes(data):
        info = dict(_attributes(entry)).get(BRIDGE_VLANDB_ENTRY_INFO, b"")
        if number == BRIDGE_VLANDB_ENTRY and len(info) == _VLAN.size:
            flags, vlan = _VLAN.unpack(info)
            if flags & BRIDGE_VLAN_INFO_PVID:
                return int(vlan)
    return 0


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    while len(data) >= _MESSAGE.size:
        size, kind, _, sequence, _ = _MESSAGE.unpack_from(data)
        if not _MESSAGE.size <= size <= len(data):
            return
        yield kind, sequence, data[_MESSAGE.size : size]
        data = data[size + -size % 4 :]


def _entry(sequence: int, body: bytes) -> Entry:
    family, interface, state, flags, _ = _ENTRY.unpack_from(body)
    values = dict(_attributes(body[_ENTRY.size :]))
    return Entry(
        sequence,
        family,
        interface,
        state,
        flags,
        mac=_mac(values.get(NDA_LLADDR, b"")),
        address=_address(values.get(NDA_DST, b"")),
        master=_whole(_NUMBER, values.get(NDA_MASTER, b"")),
        vlan=_whole(_SHORT, values.get(NDA_VLAN, b"")),
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, number = _ATTRIBUTE.unpack_from(data)
        if not _ATTRIBUTE.size <= size <= len(data):
            return
        yield number & ATTRIBUTE_NUMBER, data[_ATTRIBUTE.size : size]
        data = data[size + -size % 4 :]


def _mac(value: bytes) -> str:
    """As everybody writes it; empty for an address of another length, which is no Ethernet's."""
    return value.hex(":") if len(value) == MAC_BYTES else ""


def _address(value: bytes) -> str:
    if len(value) == IPv4Address(0).max_prefixlen // 8:
        return str(IPv4Address(value))
    return str(IPv6Address(value)) if len(value) == IPv6Address(0).max_prefixlen // 8 else ""


def _whole(form: struct.Struct, value: bytes) -> int:
    return int(form.unpack(value)[0]) if len(value) == form.size else 0
