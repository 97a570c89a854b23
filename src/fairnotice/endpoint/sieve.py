"""Of all that the kernel says of neighbours, what a socket takes in: only of known addresses.

A filter of the kernel's (bpf(4)), attached to the socket. Without it any VM could fill the socket
with addresses that it makes up; with it, whoever wants to must lie about a VM that is known.
"""

import ctypes
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from itertools import groupby

from fairnotice.endpoint.netlink import AF_BRIDGE, ATTRIBUTES_AT, FAMILY_AT, NDA_DST, NDA_LLADDR

# linux/filter.h: what an instruction does, and how many a program may have.
LOAD_BYTE, LOAD_CONSTANT, LOAD_X, FIND_ATTRIBUTE = 0x30, 0x00, 0x01, 0x20
LOAD_HALF_FROM_X, LOAD_WORD_FROM_X, COPY_TO_X = 0x48, 0x40, 0x07
JUMP, JUMP_IF, RETURN = 0x05, 0x15, 0x06
INSTRUCTIONS_MAX = 4_096
# Where a load finds the attribute whose number is in X (SKF_AD_OFF + SKF_AD_NLATTR).
ATTRIBUTE = 0xFFFFF00C
ALL, NOTHING = 0xFFFFFFFF, 0
# asm-generic/socket.h
SO_ATTACH_FILTER = 26
# What stands before the value of an attribute.
HEADER_BYTES = 4

# What is done, where to go if so and if not, and with which number.
Instruction = tuple[int, int, int, int]
EVERYTHING: list[Instruction] = [(RETURN, 0, 0, ALL)]
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")


def attach(to: socket.socket, instructions: list[Instruction]) -> None:
    """Let the socket take in only this from now on; everything, where that is too long to say."""
    fits = len(instructions) <= INSTRUCTIONS_MAX
    code = b"".join(_INSTRUCTION.pack(*one) for one in (instructions if fits else EVERYTHING))
    # The kernel copies it meanwhile.
    kept = ctypes.create_string_buffer(code, len(code))
    fprog = _PROGRAM.pack(len(code) // _INSTRUCTION.size, ctypes.addressof(kept))
    to.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)


def program(macs: Iterable[str], addresses: Iterable[str]) -> list[Instruction]:
    """Take in entries of bridges about this hardware, and of neighbours with these addresses.

    What does not look like either is taken in, and looked at by whoever reads it.
    """
    known = sorted(bytes.fromhex(mac.replace(":", "")) for mac in set(macs))
    parsed = sorted({ip_address(one).packed for one in addresses}, key=lambda it: (len(it), it))
    bridges = [*_value_of(NDA_LLADDR), *_any_mac(known), _return(NOTHING)]
    neighbours = [*_value_of(NDA_DST), *_any_address(parsed), _return(NOTHING)]
    return [
        (LOAD_BYTE, 0, 0, FAMILY_AT),
        (JUMP_IF, 0, 1, AF_BRIDGE),
        (JUMP, 0, 0, 1),
        (JUMP, 0, 0, len(bridges)),
        *bridges,
        *neighbours,
    ]


def _return(how_much: int) -> Instruction:
    return (RETURN, 0, 0, how_much)


def _value_of(attribute: int) -> Iterator[Instruction]:
    """X is where the attribute is; all is taken in that does not have it."""
    yield (LOAD_CONSTANT, 0, 0, ATTRIBUTES_AT)
    yield (LOAD_X, 0, 0, attribute)
    yield (FIND_ATTRIBUTE, 0, 0, ATTRIBUTE)
    yield (JUMP_IF, 0, 1, 0)
    yield _return(ALL)
    yield (COPY_TO_X, 0, 0, 0)


def _any_mac(macs: list[bytes]) -> Iterator[Instruction]:
    """By the first two bytes, which VMs mostly share, and then one step for each."""
    for start, group in groupby(macs, key=lambda mac: mac[:2]):
        steps = [step for mac in group for step in _taken_if(mac[2:])]
        yield (LOAD_HALF_FROM_X, 0, 0, HEADER_BYTES)
        yield (JUMP_IF, 1, 0, int.from_bytes(start))
        yield (JUMP, 0, 0, 1 + len(steps))
        yield (LOAD_WORD_FROM_X, 0, 0, HEADER_BYTES + 2)
        yield from steps


def _taken_if(last: bytes) -> Iterator[Instruction]:
    yield (JUMP_IF, 0, 1, int.from_bytes(last))
    yield _return(ALL)


def _any_address(addresses: list[bytes]) -> Iterator[Instruction]:
    """By their words. One of another version that begins alike is taken in as well."""
    for address in addresses:
        words = struct.unpack(f"!{len(address) // 4}I", address)
        for number, word in enumerate(words):
            left = len(words) - 1 - number
            yield (LOAD_WORD_FROM_X, 0, 0, HEADER_BYTES + 4 * number)
            yield (JUMP_IF, 0, 2 * left + 1, word)
        yield _return(ALL)
