"""One endpoint in a state directory, and one at an address, until its process is gone.

Two would write the same files. And where several sockets may share an address, the kernel goes on
to send VMs to the first of them: the second would confirm what it shows to nobody.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from fairnotice.clock import Clock
from fairnotice.control.holders import cannot_listen
from fairnotice.endpoint.config import Config
from fairnotice.endpoint.steering import bound, listening
from fairnotice.errors import CannotListen, UsageError
from fairnotice.metadata.server import BACKLOG

LOCK = "lock"
# Workers of a life that was killed end by themselves, a moment after it.
TAKEN_SECONDS_MAX = 3.0
AGAIN_SECONDS = 0.1


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Have the state directory to oneself; UsageError where another endpoint has it."""
    try:
        held = os.open(directory / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror}.") from error
    try:
        _lock(held, directory)
        yield
    finally:
        os.close(held)


def _lock(held: int, directory: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(
            f"Another endpoint runs with the state_directory {directory}. End that one, or give "
            "this one a directory of its own."
        ) from error


async def sockets_at(config: Config, clock: Clock) -> list[list[socket.socket]]:
    """The listening sockets of each worker; CannotListen where somebody listens there already."""
    addresses = [config.metadata, *([config.classic] if config.classic else [])]
    found: list[list[socket.socket]] = []
    try:
        for address in addresses:
            found.append(await _sockets(address, config.workers, clock))  # noqa: PERF401 - closed below
    except CannotListen:
        for sock in itertools.chain.from_iterable(found):
            sock.close()
        raise
    return [list(of_one) for of_one in zip(*found, strict=True)]


async def _sockets(address: tuple[str, int], workers: int, clock: Clock) -> list[socket.socket]:
    tries = int(TAKEN_SECONDS_MAX / AGAIN_SECONDS)
    while True:
        try:
            # Alone first: sockets that may share an address share it with anybody who does.
            bound(address, shared=False).close()
            return listening(address, workers, BACKLOG)
        except OSError as error:
            tries -= 1
            if error.errno != errno.EADDRINUSE or not tries:
                raise cannot_listen("metadata", address, error) from error
        await clock.sleep(AGAIN_SECONDS)
