"""Which worker a VM's connections go to: always the same one, chosen by the VM's address.

The listening sockets of all workers share an address (SO_REUSEPORT), and a small program in the
kernel (classic BPF) says which of them gets a new connection. What a worker counts of a VM, its
rate, its waits and what it has seen, is then all there is of it.
"""

import ctypes
import socket
import struct
from typing import NamedTuple

# linux/socket.h; Python has no name for it.
SO_ATTACH_REUSEPORT_CBPF = 51

# linux/filter.h: what is loaded from here on is counted from the beginning of the IP header.
NET_OFF = -0x100000 & 0xFFFFFFFF
LOAD_WORD, LOAD_BYTE = 0x20, 0x30
SHIFT_RIGHT, MODULO, XOR_X = 0x74, 0x94, 0xAC
JUMP_IF_EQUAL, ACCUMULATOR_TO_X, RETURN_ACCUMULATOR = 0x15, 0x07, 0x16
IPV4_SOURCE, IPV6_SOURCE = 12, 8
IPV6 = 6


class Step(NamedTuple):
    """One instruction: what it does, how far to jump where it holds and where not, and a number."""

    code: int
    if_true: int = 0
    if_false: int = 0
    number: int = 0

    def packed(self) -> bytes:
        """As the kernel takes it."""
        return struct.pack("=HBBI", *self)


def program(workers: int) -> bytes:
    """The number of the worker, from the source address of the packet."""
    words = [NET_OFF + IPV6_SOURCE + 4 * word for word in range(4)]
    six: list[Step] = [Step(LOAD_WORD, number=words[0])]
    for word in words[1:]:
        # XOR in the next: all of the address counts, wherever VMs of one node differ.
        six += [Step(ACCUMULATOR_TO_X), Step(LOAD_WORD, number=word), Step(XOR_X)]
    ends = [Step(MODULO, number=workers), Step(RETURN_ACCUMULATOR)]
    four = [Step(LOAD_WORD, number=NET_OFF + IPV4_SOURCE), *ends]
    steps = [
        # An IPv4 packet also where the socket takes both: the first half byte of the header says.
        Step(LOAD_BYTE, number=NET_OFF),
        Step(SHIFT_RIGHT, number=4),
        Step(JUMP_IF_EQUAL, if_true=len(four), number=IPV6),
        *four,
        *six,
        *ends,
    ]
    return b"".join(step.packed() for step in steps)


def listening(address: tuple[str, int], workers: int, backlog: int) -> list[socket.socket]:
    """A listening socket for each worker, in order; OSError where nobody can listen there."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(workers):
            sock = bound(address, shared=workers > 1)
            sockets.append(sock)
            # Port 0 is any, and the others want the same.
            address = (address[0], sock.getsockname()[1])
            # In this order they are numbered.
            sock.listen(backlog)
        if workers > 1:
            _steer(sockets[0], program(workers))
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def bound(address: tuple[str, int], *, shared: bool) -> socket.socket:
    """A socket at this address; OSError where it is taken, by somebody who does not share it."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _steer(sock: socket.socket, code: bytes) -> None:
    """Have this program choose, for all sockets that share the address."""
    steps = ctypes.create_string_buffer(code, len(code))
    count = len(code) // struct.calcsize("=HBBI")
    # struct sock_fprog: how many, and where they are.
    where = struct.pack("HP", count, ctypes.addressof(steps))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, where)
