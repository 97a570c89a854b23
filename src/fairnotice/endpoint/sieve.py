"""Of all that the kernel says of neighbours, what a socket takes in: only of known addresses.

A filter of the kernel's (bpf(4)), attached to the socket. Without it any VM could fill the socket
with addresses that it makes up; with it, whoever wants to must lie about a VM that is known.
"""

import ctypes
import logging
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from itertools import groupby

from fairnotice.endpoint.netlink import AF_BRIDGE, ATTRIBUTES_AT, FAMILY_AT, NDA_DST, NDA_LLADDR

log = logging.getLogger(__name__)

# linux/filter.h: what an instruction does, and how many a program may have.
LOAD_BYTE, LOAD_CONSTANT, LOAD_X, FIND_ATTRIBUTE = 0x30, 0x00, 0x01, 0x20
LOAD_HALF_FROM_X, LOAD_WORD_FROM_X, COPY_TO_X = 0x48, 0x40, 0x07
JUMP, JUMP_IF, RETURN = 0x05, 0x15, 0x06
INSTRUCTIONS_MAX = 4_096
# As far as a jump goes that depends on something.
JUMP_MAX = 255
# Where a load finds the attribute whose number is in X (SKF_AD_OFF + SKF_AD_NLATTR).
ATTRIBUTE = 0xFFFFF00C
ALL, NOTHING = 0xFFFFFFFF, 0
# asm-generic/socket.h
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
# What stands before the value of an attribute.
HEADER_BYTES = 4
WORD_BYTES = 4

# What is done, where to go if so and if not, and with which number.
Instruction = tuple[int, int, int, int]
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")


def attach(to: socket.socket, instructions: list[Instruction]) -> None:
    """Let the socket take in only this from now on; everything, where that is too long to say."""
    if _is_attached(to, instructions):
        return
    # The filter before may have the room that the kernel gives a socket (net.core.optmem_max).
    with suppress(OSError):  # there is none
        to.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    _is_attached(to, instructions)


def _is_attached(to: socket.socket, instructions: list[Instruction]) -> bool:
    if len(instructions) > INSTRUCTIONS_MAX:
        return False
    code = b"".join(_INSTRUCTION.pack(*one) for one in instructions)
    # The kernel copies it meanwhile.
    kept = ctypes.create_string_buffer(code, len(code))
    fprog = _PROGRAM.pack(len(instructions), ctypes.addressof(kept))
    try:
        to.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)
    except OSError as error:
        log.debug("a filter of %d instructions: %s", len(instructions), error)
        return False
    return True


def program(macs: Iterable[str], addresses: Iterable[str]) -> list[Instruction]:
    """Take in entries of bridges about this hardware, and of neighbours with these addresses.

    What does not look like either is taken in, and looked at by whoever reads it.
    """
    known = sorted(bytes.fromhex(mac.replace(":", "")) for mac in set(macs))
    parsed = sorted({ip_address(one).packed for one in addresses}, key=lambda it: (len(it), it))
    bridges = [*_value_of(NDA_LLADDR), *_any_of(known), _return(NOTHING)]
    neighbours = [*_value_of(NDA_DST), *_any_of(parsed), _return(NOTHING)]
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


def _any_of(values: list[bytes]) -> Iterator[Instruction]:
    """By what they begin with, which VMs mostly share, and then one step for each.

    A load is ten steps of the kernel's own. An address of another version that begins alike is
    taken in as well.
    """
    for start, group in groupby(values, key=lambda value: value[:-WORD_BYTES]):
        load_end = (LOAD_WORD_FROM_X, 0, 0, HEADER_BYTES + len(start))
        steps = [load_end, *_among([int.from_bytes(value[-WORD_BYTES:]) for value in group])]
        for at in reversed(range(0, len(start), WORD_BYTES)):
            piece = start[at : at + WORD_BYTES]
            load = LOAD_WORD_FROM_X if len(piece) == WORD_BYTES else LOAD_HALF_FROM_X
            steps = [
                (load, 0, 0, HEADER_BYTES + at),
                (JUMP_IF, 1, 0, int.from_bytes(piece)),
                (JUMP, 0, 0, len(steps)),
                *steps,
            ]
        yield from steps


def _among(words: list[int]) -> Iterator[Instruction]:
    """Taken in if what was loaded is one of these."""
    for first in range(0, len(words), JUMP_MAX):
        chunk = words[first : first + JUMP_MAX]
        for number, word in enumerate(chunk):
            yield (JUMP_IF, len(chunk) - number, 0, word)
        yield (JUMP, 0, 0, 1)
        yield _return(ALL)
