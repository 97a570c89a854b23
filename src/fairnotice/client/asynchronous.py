"""The client for programs with an event loop. What it does is in steps.py, as for the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from fairnotice.client import steps
from fairnotice.client.changes import Change, Position
from fairnotice.client.discovery import Surroundings
from fairnotice.client.document import Document, Event
from fairnotice.client.exchange import Answer, Place, Reading
from fairnotice.client.steps import (
    APPROVAL_PATIENCE_SECONDS,
    Ask,
    Call,
    Failed,
    Missed,
    Outcome,
    Pause,
    Session,
    Watching,
)
from fairnotice.clock import Clock, SystemClock
from fairnotice.errors import ClientError

Result = TypeVar("Result")

_RECEIVE_BYTES = 64 * 1024


class AsyncScheduledEvents:
    """The metadata service of this VM, for a loop.

    events = AsyncScheduledEvents()
    async for change in events.watch():
        print(change.kind, change.event.type, events.seconds_until(change.event))

    All as with ScheduledEvents, but that a watch also ends when its task is canceled.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_version: str = steps.API_VERSION,
        timeout_seconds: float | None = None,
        clock: Clock = SystemClock(),  # noqa: B008 - immutable
        proxies: bool = False,
        surroundings: Surroundings = Surroundings(),  # noqa: B008 - immutable
    ) -> None:
        self._session = Session(
            url, api_version, timeout_seconds, clock, surroundings, proxies=proxies
        )
        self._clock = clock
        self._lines: set[_Line] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every watch: at once where it waits for an answer, else after its pause."""
        self._closed = True
        for line in self._lines:
            line.close()

    async def url(self) -> str:
        """Where the service is. Raises NoEndpoint where none is found."""
        await self._run(self._session.find())
        assert self._session.url is not None
        return self._session.url

    async def get(self, *, patience_seconds: float = 0.0) -> Document:
        """The document as it is now. Raises ClientError; for so long it is tried again."""
        return await self._run(self._session.get(patience_seconds))

    async def approve(
        self, *events: Event | str, patience_seconds: float = APPROVAL_PATIENCE_SECONDS
    ) -> None:
        """Let these begin, each an event or its id. Raises ClientError."""
        await self._run(self._session.approve(events, patience_seconds))

    async def instance(self, *, patience_seconds: float = 0.0) -> dict[str, Any]:
        """What this VM is."""
        return await self._run(self._session.instance(patience_seconds))

    def now(self) -> datetime:
        """The instant on the service's clock, by its answers; the VM's own until it answered."""
        return self._session.now()

    def seconds_until(self, event: Event) -> float | None:
        """Seconds to NotBefore on the service's clock, negative when past; None without one."""
        return self._session.seconds_until(event)

    async def documents(
        self, heartbeat_seconds: float | None = None
    ) -> AsyncIterator[Document | Missed]:
        """Each document that differs from the one before, and each try that failed, for ever."""
        stream = self._session.documents(heartbeat_seconds)
        line = _Line()
        self._lines.add(line)
        try:
            outcome: Outcome = None
            while not self._closed:
                step = stream.send(outcome)
                outcome = None
                if isinstance(step, Ask):
                    outcome = await line.exchange(step)
                elif isinstance(step, Pause):
                    await self._clock.sleep(step.seconds)
                else:
                    yield step
        finally:
            self._lines.discard(line)
            line.close()

    async def watch(self, since: Position | None = None) -> AsyncIterator[Change]:
        """Whatever becomes of events, each once and in order, for ever."""
        watching = Watching(since)
        async with aclosing(self.documents()) as documents:  # type: ignore[type-var]
            async for item in documents:
                for change in watching.take(item):
                    yield change

    async def _run(self, call: Call[Result]) -> Result:
        """Carry out a call on a connection of its own: a watch may be waiting on another."""
        line = _Line()
        try:
            outcome: Outcome = None
            while True:
                step = call.send(outcome)
                outcome = None
                if isinstance(step, Ask):
                    outcome = await line.exchange(step)
                else:
                    await self._clock.sleep(step.seconds)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        finally:
            line.close()


class _Line:
    """A connection, which may be kept from one request to the next."""

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._place: Place | None = None

    async def exchange(self, ask: Ask) -> Answer | Failed:
        """Send a request, and take the answer."""
        kept = self._streams is not None and self._place == ask.place
        try:
            reader, writer = await self._connected(ask)
        except (OSError, UnicodeError) as error:
            return steps.unreachable(ask, error)
        reading = Reading()
        keep = False
        try:
            async with asyncio.timeout(ask.answer_seconds):
                writer.write(ask.request.to_bytes(ask.place, keep=ask.keep))
                await writer.drain()
                answer = await _received(reader, reading)
            keep = answer.keep and ask.keep
        except (ClientError, OSError) as error:
            return steps.failed(ask, error, reading, kept=kept)
        else:
            return answer
        finally:
            if not keep:
                self.close()

    async def _connected(self, ask: Ask) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._place != ask.place:
            self.close()
            async with asyncio.timeout(ask.connect_seconds):
                self._streams = await asyncio.open_connection(ask.place.host, ask.place.port)
            self._place = ask.place
        return self._streams

    def close(self) -> None:
        """Let it go."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _received(reader: asyncio.StreamReader, reading: Reading) -> Answer:
    answer = None
    while answer is None:
        answer = reading.feed(await reader.read(_RECEIVE_BYTES))
    return answer
