"""The line to one libvirtd: opened when it is needed, and again when it was lost.

libvirt's calls block: a migration for as long as it takes, one to a dead node for minutes. So each
has a thread of its own, which nobody else waits for, and while one thread still tries to reach a
node, all others who ask for it are soon told that it is away.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import libvirt

from fairnotice.clock import Clock
from fairnotice.drivers.libvirt.happenings import Happenings, begin_events
from fairnotice.errors import FairnoticeError, Unavailable

log = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 5
KEEPALIVE_COUNT = 3
CONNECT_SECONDS = 10.0

Answer = TypeVar("Answer")
Connection = Any


class Trouble(FairnoticeError):
    """libvirt has refused something; the sentence is its own."""


class Line:
    """Where the calls of one node go through."""

    def __init__(
        self,
        name: str,
        uri: str,
        clock: Clock,
        happenings: Happenings,
        open_connection: Callable[[str], Connection],
    ) -> None:
        self._name = name
        self._uri = uri
        self._clock = clock
        self._happenings = happenings
        self._open = open_connection
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        # So long whoever asks waits for the connection that is being opened.
        self._patience_ends = 0.0

    async def ask(self, call: Callable[[Connection], Answer]) -> Answer:
        """What libvirt answers; Trouble where it refuses, Unavailable where nobody is there."""
        connection = await self._connected()
        try:
            return await in_thread(lambda: call(connection))
        except libvirt.libvirtError as error:
            said = str(error)
            if not await in_thread(lambda: _is_alive(connection)):
                if self._connection is connection:
                    self._connection = None
                raise Unavailable(f"{self._name} was lost: {said}.") from error
            raise Trouble(f"{self._name}: {said}") from error

    async def close(self) -> None:
        """Let go of it."""
        if self._opening is not None:
            self._opening.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await in_thread(lambda: _close(connection))

    async def _connected(self) -> Connection:
        if self._connection is not None:
            return self._connection
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect())
            self._patience_ends = self._clock.monotonic() + CONNECT_SECONDS
        opening = self._opening
        patience = max(0.0, self._patience_ends - self._clock.monotonic())
        await asyncio.wait({opening}, timeout=patience)
        if not opening.done():
            raise Unavailable(
                f"{self._name} cannot be reached: no answer in {CONNECT_SECONDS:g} s."
            )
        try:
            return opening.result()
        except libvirt.libvirtError as error:
            raise Unavailable(f"{self._name} cannot be reached: {error}.") from error
        except asyncio.CancelledError:
            raise Unavailable(f"{self._name} is not asked any more.") from None

    async def _connect(self) -> Connection:
        begin_events()
        loop = asyncio.get_running_loop()
        try:
            self._connection = await in_thread(lambda: self._opened(loop), given_up=_close)
        finally:
            self._opening = None
        return self._connection

    def _opened(self, loop: asyncio.AbstractEventLoop) -> Connection:
        connection = self._open(self._uri)
        with suppress(libvirt.libvirtError):
            # The test driver is in this process, and needs none.
            connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
        self._happenings.follow(self._name, connection, loop)
        return connection


async def in_thread(
    call: Callable[[], Answer], given_up: Callable[[Answer], None] = lambda _: None
) -> Answer:
    """What a call that blocks comes to; what it comes to after nobody waits any more is given up.

    In a daemon's thread of its own: those of a pool would run out where a node is dead, and each
    would have to end before the process may.
    """
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Answer] = loop.create_future()

    def settle(answer: Answer | None, error: BaseException | None) -> None:
        if answered.cancelled():
            if error is None:
                given_up(answer)  # type: ignore[arg-type] # it is one where there is no error
        elif error is not None:
            answered.set_exception(error)
        else:
            answered.set_result(answer)  # type: ignore[arg-type]

    def run() -> None:
        answer, failed = None, None
        try:
            answer = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(settle, answer, failed)

    threading.Thread(target=run, name="libvirt-call", daemon=True).start()
    return await answered


def _is_alive(connection: Connection) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _close(connection: Connection) -> None:
    with suppress(libvirt.libvirtError):
        connection.close()
