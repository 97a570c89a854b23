"""Ports that stay a test's own, also while nobody listens there.

The kernel gives a port that nobody has to whoever asks for any: another test, or any connection of
this machine. So a port that is found, let go and listened at afterwards may be another's by then,
and the port of a service that a test ends and starts again as well.
"""

import socket

LOOPBACK = "127.0.0.1"

_HELD: list[socket.socket] = []


def own_port() -> int:
    """A port of this machine where only who is told of it listens, until this process ends."""
    holder = socket.socket()
    # Bound, and not listening: whoever allows the same may listen there, and nobody is given it.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((LOOPBACK, 0))
    _HELD.append(holder)
    return holder.getsockname()[1]
