"""The client for programs with threads, or with none."""

import socket
import threading
from collections.abc import Callable, Iterator
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
# How soon a watch ends that somebody wants to end.
_LOOK_UP_SECONDS = 0.25


class ScheduledEvents:
    """The metadata service of this VM, as far as Scheduled Events go.

    events = ScheduledEvents()
    for change in events.watch():
        print(change.kind, change.event.type, events.seconds_until(change.event))

    Without a url it is looked for when it is first needed: FAIRNOTICE_METADATA_URL,
    169.254.169.254, then DHCP option 245. `timeout_seconds` is for one answer; left out it is long
    for the first one, which Azure may delay for two minutes, and short afterwards. Proxies of the
    environment are used only where `proxies` is true. Its methods may be called from several
    threads at once.
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
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every watch, in whatever thread it is."""
        self._closed.set()

    @property
    def url(self) -> str:
        """Where the service is. Raises NoEndpoint where none is found."""
        if self._session.url is None:
            self._run(self._session.find())
        assert self._session.url is not None
        return self._session.url

    def get(self, *, patience_seconds: float = 0.0) -> Document:
        """The document as it is now. Raises ClientError; for so long it is tried again."""
        return self._run(self._session.get(patience_seconds))

    def approve(
        self, *events: Event | str, patience_seconds: float = APPROVAL_PATIENCE_SECONDS
    ) -> None:
        """Let these begin, each an event or its id. Raises ClientError.

        Once more is harmless, also when they have begun or are over.
        """
        self._run(self._session.approve(events, patience_seconds))

    def instance(self, *, patience_seconds: float = 0.0) -> dict[str, Any]:
        """What this VM is: `instance()["compute"]["name"]` is its name in Resources."""
        return self._run(self._session.instance(patience_seconds))

    def now(self) -> datetime:
        """The instant on the service's clock, by its answers; the VM's own until it answered."""
        return self._session.now()

    def seconds_until(self, event: Event) -> float | None:
        """Seconds to NotBefore on the service's clock, negative when past; None without one."""
        return self._session.seconds_until(event)

    def documents(
        self, stop: threading.Event | None = None, heartbeat_seconds: float | None = None
    ) -> Iterator[Document | Missed]:
        """Each document that differs from the one before, and each try that failed, for ever.

        It ends when `stop` is set, or the client is closed. With `heartbeat_seconds` the document
        comes again when none was new for so long, so that the caller gets a turn.
        """

        def stopped() -> bool:
            return self._closed.is_set() or (stop is not None and stop.is_set())

        stream = self._session.documents(heartbeat_seconds)
        line = _Line(self._clock, stopped)
        try:
            outcome: Outcome = None
            while not stopped():
                step = stream.send(outcome)
                outcome = None
                if isinstance(step, Ask):
                    outcome = line.exchange(step)
                elif isinstance(step, Pause):
                    self._pause(step.seconds, stopped)
                else:
                    yield step
        except _Stopped:
            return
        finally:
            line.close()

    def watch(
        self, since: Position | None = None, stop: threading.Event | None = None
    ) -> Iterator[Change]:
        """Whatever becomes of events, each once and in order, for ever.

        `since` is the position of the last change that was dealt with, saved by an earlier life of
        the program. A failure is waited out; a request that is wrong in itself is raised.
        """
        watching = Watching(since)
        for item in self.documents(stop):
            yield from watching.take(item)

    def _run(self, call: Call[Result]) -> Result:
        """Carry out a call on a connection of its own: another thread may be waiting on one."""
        line = _Line(self._clock)
        try:
            outcome: Outcome = None
            while True:
                step = call.send(outcome)
                outcome = None
                if isinstance(step, Ask):
                    outcome = line.exchange(step)
                else:
                    # An approval that is under way is finished, also when the client is closed.
                    self._pause(step.seconds, lambda: False)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        finally:
            line.close()

    def _pause(self, seconds: float, stopped: Callable[[], bool]) -> None:
        until = self._clock.monotonic() + seconds
        while not stopped() and (left := until - self._clock.monotonic()) > 0:
            threading.Event().wait(min(left, _LOOK_UP_SECONDS))


class _Stopped(Exception):
    """Somebody wants the watch to end; caught where the watch is."""


class _Line:
    """A connection, which may be kept from one request to the next."""

    def __init__(self, clock: Clock, stopped: Callable[[], bool] | None = None) -> None:
        self._clock = clock
        self._stopped = stopped
        self._socket: socket.socket | None = None
        self._place: Place | None = None

    def exchange(self, ask: Ask) -> Answer | Failed:
        """Send a request, and take the answer."""
        kept = self._socket is not None and self._place == ask.place
        try:
            connection = self._connected(ask)
        except (OSError, UnicodeError) as error:
            return steps.unreachable(ask, error)
        reading = Reading()
        keep = False
        try:
            connection.sendall(ask.request.to_bytes(ask.place, keep=ask.keep))
            answer = self._received(connection, reading, ask.answer_seconds)
            keep = answer.keep and ask.keep
        except (ClientError, OSError) as error:
            return steps.failed(ask, error, reading, kept=kept)
        else:
            return answer
        finally:
            if not keep:
                self.close()

    def _connected(self, ask: Ask) -> socket.socket:
        if self._socket is None or self._place != ask.place:
            self.close()
            address = (ask.place.host, ask.place.port)
            self._socket = socket.create_connection(address, ask.connect_seconds)
            self._place = ask.place
        self._socket.settimeout(ask.answer_seconds)
        return self._socket

    def _received(self, connection: socket.socket, reading: Reading, seconds: float) -> Answer:
        until = self._clock.monotonic() + seconds
        while True:
            left = until - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError
            if self._stopped is not None and self._stopped():
                raise _Stopped
            connection.settimeout(left if self._stopped is None else min(left, _LOOK_UP_SECONDS))
            try:
                data = connection.recv(_RECEIVE_BYTES)
            except TimeoutError:
                continue
            answer = reading.feed(data)
            if answer is not None:
                return answer

    def close(self) -> None:
        """Let it go."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
