"""The line to one libvirtd: opened when it is needed, and again when it was lost.

libvirt's calls block: a migration for as long as it takes, one to a dead node for minutes. So each
has a thread of its own, which nobody else waits for, and while one thread still tries to reach a
node, all others who ask for it are soon told that it is away. No thread can be ended from outside:
one that never comes back is left behind, and how many of them there may be is bounded.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import libvirt

from fairnotice.clock import Clock
from fairnotice.drivers.libvirt.happenings import Happenings, begin_events
from fairnotice.errors import FairnoticeError, Unavailable

log = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 5
KEEPALIVE_COUNT = 3
CONNECT_SECONDS = 10.0
# A libvirtd that takes a connection and says nothing keeps a thread for good, even when its node
# has been switched off and on since. So each try is given up, and the next one has twice as long:
# seven threads in the first hour, and one in each that follows.
OPEN_SECONDS = 30.0
OPEN_SECONDS_MAX = 3600.0
# So many calls may be left unanswered; then nobody asks again before one of them is.
UNANSWERED_MAX = 8
CLOSE_SECONDS = 3.0

Answer = TypeVar("Answer")
Connection = Any


class Trouble(FairnoticeError):
    """libvirt has refused something; the sentence is its own."""


class Opened(NamedTuple):
    """A connection, and what it calls back."""

    connection: Connection
    callbacks: list[int]


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
        self._opened: Opened | None = None
        self._opening: asyncio.Task[Opened] | None = None
        # So long whoever asks waits for the connection that is being opened.
        self._patience_ends = 0.0
        # Threads that try to open one, or did until they were left behind.
        self._trying = 0
        # Calls that nobody waits for any more.
        self._unanswered: set[asyncio.Future[Any]] = set()

    async def ask(self, call: Callable[[Connection], Answer]) -> Answer:
        """What libvirt answers; Trouble where it refuses, Unavailable where nobody is there."""
        opened = await self._connected()
        try:
            return await self._answer(lambda: call(opened.connection))
        except libvirt.libvirtError as error:
            said = str(error)
            if not await in_thread(lambda: _is_alive(opened.connection)):
                if self._opened is opened:
                    self._opened = None
                    in_background(lambda: _close(opened))
                raise Unavailable(f"{self._name} was lost: {said}.") from error
            raise Trouble(f"{self._name}: {said}") from error

    async def close(self) -> None:
        """Let go of it."""
        if self._opening is not None:
            self._opening.cancel()
        for unanswered in self._unanswered:
            unanswered.cancel()
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(in_thread(lambda: _close(opened)), CLOSE_SECONDS)

    async def _answer(self, call: Callable[[], Answer]) -> Answer:
        """What comes back; who stops to wait for it leaves a thread behind."""
        if len(self._unanswered) >= UNANSWERED_MAX:
            raise Unavailable(f"{self._name} has not answered {UNANSWERED_MAX} calls.")
        answering = asyncio.ensure_future(in_thread(call))
        try:
            return await asyncio.shield(answering)
        except asyncio.CancelledError:
            if not answering.done():
                self._unanswered.add(answering)
                answering.add_done_callback(self._unanswered.discard)
            answering.add_done_callback(heard)
            raise

    async def _connected(self) -> Opened:
        if self._opened is not None:
            return self._opened
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect())
            # Everybody who asked may have gone by then.
            self._opening.add_done_callback(heard)
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

    async def _connect(self) -> Opened:
        begin_events()
        loop = asyncio.get_running_loop()
        seconds = min(OPEN_SECONDS * 2**self._trying, OPEN_SECONDS_MAX)
        self._trying += 1
        try:
            opening = in_thread(lambda: self._try(loop), given_up=_close)
            self._opened = await asyncio.wait_for(opening, seconds)
        except TimeoutError:
            said = f"{self._name} has taken a connection and said nothing for {seconds:g} s."
            log.warning("%s It is tried anew.", said)
            raise Unavailable(said) from None
        finally:
            self._opening = None
        return self._opened

    def _try(self, loop: asyncio.AbstractEventLoop) -> Opened:
        try:
            connection = self._open(self._uri)
            with suppress(libvirt.libvirtError):
                # The test driver is in this process, and needs none.
                connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
            try:
                return Opened(connection, self._happenings.follow(self._name, connection, loop))
            except libvirt.libvirtError:
                _close(Opened(connection, []))
                raise
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._tried)

    def _tried(self) -> None:
        self._trying -= 1


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
                # It may block as well.
                in_background(lambda: given_up(answer))  # type: ignore[arg-type] # without an error it is one
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

    in_background(run)
    return await answered


def in_background(call: Callable[[], object]) -> None:
    """In a thread that nobody waits for, at the end of the process neither."""
    threading.Thread(target=call, name="libvirt-call", daemon=True).start()


def heard(ended: "asyncio.Future[Any]") -> None:
    """An error of what nobody waits for any more is nobody's."""
    if not ended.cancelled():
        ended.exception()


def _is_alive(connection: Connection) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _close(opened: Opened) -> None:
    # Each callback holds the connection: it is closed when the last of them is gone.
    for callback in opened.callbacks:
        with suppress(libvirt.libvirtError):
            opened.connection.domainEventDeregisterAny(callback)
    with suppress(libvirt.libvirtError):
        opened.connection.close()
