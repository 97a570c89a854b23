"""Frames as a VM may make them up, down to the last byte; and how a host sends them."""

import socket
import struct
import sys

ARP, IP, VLAN, SERVICE = 0x0806, 0x0800, 0x8100, 0x88A8
REQUEST, REPLY = 1, 2
EVERYBODY = "ff:ff:ff:ff:ff:ff"
# What switches say to one another, and no switch passes on.
OTHER_SWITCHES = "01:80:c2:00:00:0e"
SEND = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("eth0", 0))
for frame in sys.argv[1:]:
    wire.send(bytes.fromhex(frame))
"""


def frame(source, target, kind, body, tags=()):
    """One frame; a tag is its type and its number."""
    header = _mac(target) + _mac(source)
    header += b"".join(struct.pack("!HH", *tag) for tag in tags)
    return header + struct.pack("!H", kind) + body


def arp(operation, sender, target):
    """What is asked or answered; of both there is a hardware address and an address."""
    words = struct.pack("!HHBBH", 1, IP, 6, 4, operation)
    for mac, address in (sender, target):
        words += _mac(mac) + socket.inet_aton(address)
    return words


def send(node, letter, *frames):
    """Let a host send them, one after the other."""
    node.on(letter, [sys.executable, "-c", SEND, *(one.hex() for one in frames)])


def _mac(text):
    return bytes.fromhex(text.replace(":", ""))
