"""Carries connections out of a network namespace, byte for byte, in a process outside of it.

What is said is not read: kept connections, held answers, half-closed and broken ones arrive as
they were sent.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import struct
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

_CHUNK_BYTES = 64 * 1024
_OPENINGS_MAX = 16
_STANDARD_ERROR = 2
_PIDFD_OPEN = 434
READY = b"!"
# Closing throws away what was not sent, and tells the other end that the connection broke.
_BROKEN = struct.pack("ii", 1, 0)


class Opening(NamedTuple):
    """A place inside, where it leads outside, and as whom (an address of this machine)."""

    inside: tuple[str, int]
    outside: tuple[str, int]
    source: str | None = None


def start(openings: tuple[Opening, ...]) -> socket.socket:
    """Start the relay; it waits at the other end of this socket for the openings' listeners.

    It says READY when it has them, and ends when this process does, whatever program that has
    become by then. It is nobody's child: a program that waits for its own never meets it.
    """
    here, there = socket.socketpair()
    whom = _reference_to(os.getpid())
    child = os.fork()
    if child == 0:
        _become_relay(there, whom, openings)
    os.close(whom)
    there.close()
    # Whoever started us may have told the kernel that nobody waits for children.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return here


def _reference_to(process: int) -> int:
    """A descriptor that tells when a process ends; never of a later one with its number."""
    # Not every build of Python has os.pidfd_open; the kernel's number is the same everywhere.
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(_PIDFD_OPEN, process, 0))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return descriptor


def _become_relay(channel: socket.socket, whom: int, openings: tuple[Opening, ...]) -> NoReturn:
    code = 1
    # Whatever happens: nothing of whoever was forked is run to its end here.
    with contextlib.suppress(BaseException):
        if os.fork() != 0:
            os._exit(0)
        # Ctrl-C is for the command; whoever reads what that prints does not wait for us.
        os.setsid()
        os.chdir("/")
        _let_go(channel.fileno(), whom)
        _, descriptors, _, _ = socket.recv_fds(channel, 1, _OPENINGS_MAX)
        if len(descriptors) == len(openings):
            listeners = [socket.socket(fileno=number) for number in descriptors]
            asyncio.run(_serve(dict(zip(openings, listeners, strict=True)), channel, whom))
            code = 0
    os._exit(code)


def _let_go(*kept: int) -> None:
    """Close what was inherited, but for these."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(_STANDARD_ERROR + 1):
        os.dup2(nowhere, number)
    for entry in list(Path("/proc/self/fd").iterdir()):
        number = int(entry.name)
        if number > _STANDARD_ERROR and number not in kept:
            # The one by which the folder was read is closed already.
            with contextlib.suppress(OSError):
                os.close(number)


# ---- Connections ----


async def _serve(
    listeners: dict[Opening, socket.socket], channel: socket.socket, whom: int
) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(whom, over.set)
    servers = [
        await asyncio.start_server(partial(_carry, opening), sock=listener)
        for opening, listener in listeners.items()
    ]
    channel.send(READY)
    channel.close()
    await over.wait()
    for server in servers:
        server.close()


async def _carry(
    opening: Opening, from_inside: asyncio.StreamReader, to_inside: asyncio.StreamWriter
) -> None:
    """One connection, from its beginning to its end."""
    source = None if opening.source is None else (opening.source, 0)
    ends = [to_inside]
    try:
        from_outside, to_outside = await asyncio.open_connection(
            *opening.outside, local_addr=source
        )
        ends.append(to_outside)
        async with asyncio.TaskGroup() as both:
            both.create_task(_pump(from_inside, to_outside))
            both.create_task(_pump(from_outside, to_inside))
    except* OSError:
        # A connection that broke on one side, or was refused, breaks on the other.
        for end in ends:
            with contextlib.suppress(OSError):
                end.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, _BROKEN
                )
            end.transport.abort()
    finally:
        for end in ends:
            end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All bytes of one direction, and their end."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
