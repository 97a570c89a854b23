"""An endpoint without sockets: bytes in, bytes out, on a clock the test owns.

`Wireless` is the law in memory behind protocol.Connection. `Line` is the transport between a VM
and the endpoint: it behaves as a real one does (no bytes are delivered after a close or while
reading is paused) and keeps what the VM would have received. The event loop's time is the stage's
clock, so a wait of 60 seconds costs nothing. Whatever is logged as a warning or worse, or ends up
in the loop's exception handler, fails the test when the endpoint is closed.
"""

import asyncio
import json
import logging
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

from fairnotice.engine.specs import FleetSpec
from fairnotice.metadata.identity import Door
from fairnotice.metadata.protocol import Connection
from fairnotice.metadata.rate import Rate
from fairnotice.metadata.worker import Limits
from fairnotice.testing.live import LiveStage
from fairnotice.testing.manual_clock import ManualClock
from tests.engine.story import BATCH, DB, SHOP, SPOT, WEB, Story, sample

PATH = "/metadata/scheduledevents"
NEWEST = "2020-07-01"
VERSIONS = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    NEWEST,
)
TARGET = f"{PATH}?api-version={NEWEST}"
EVERYBODY = (WEB, BATCH, SPOT, SHOP, DB)

# Where each VM of the sample fleet asks from; db has two network cards.
ADDRESSES = {
    "web-0": ("10.0.0.1",),
    "web-1": ("10.0.0.2",),
    "web-2": ("10.0.0.3",),
    "batch_0": ("10.0.1.1",),
    "batch_1": ("10.0.1.2",),
    "batch_2": ("10.0.1.3",),
    "batch_3": ("10.0.1.4",),
    "spot_0": ("10.0.2.1",),
    "spot_1": ("10.0.2.2",),
    "FrontEnd_IN_0": ("10.0.3.1",),
    "BackEnd_IN_0": ("10.0.3.2",),
    "FrontEnd_IN_1": ("10.0.3.3",),
    "db": ("10.0.4.1", "10.0.4.2"),
}
WEB_0, WEB_1 = "10.0.0.1", "10.0.0.2"
SPOT_0, FRONT_0, DB_0 = "10.0.2.1", "10.0.3.1", "10.0.4.1"
STRANGER = "192.0.2.7"

# A transport asks its protocol to pause when more than this is not taken.
HIGH_WATER = 64 * 1024
# After so many turns of the event loop without anything to do, only time could change anything.
QUIET_TURNS = 3


def served_sample() -> FleetSpec:
    """The sample fleet, its VMs with addresses."""
    spec = sample()
    return spec._replace(
        vms=tuple(vm._replace(addresses=ADDRESSES[vm.name]) for vm in spec.vms),
    )


class LiveStory(Story, LiveStage):
    """The sample fleet, served."""


# ---- What is sent ----


def request(
    method: str = "GET",
    target: str = TARGET,
    *headers: str,
    body: bytes = b"",
    metadata: str | None = "Metadata: true",
    http: str = "HTTP/1.1",
) -> bytes:
    """A request as bytes; `metadata` is the header line to send, if any."""
    lines = [f"{method} {target} {http}", "Host: 169.254.169.254"]
    lines += [metadata] if metadata is not None else []
    lines += headers
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def get(*headers: str, version: str = NEWEST, **more: Any) -> bytes:
    """A poll."""
    return request("GET", f"{PATH}?api-version={version}", *headers, **more)


def post(body: bytes, *headers: str, version: str = NEWEST, **more: Any) -> bytes:
    """A POST with its Content-Length."""
    target = f"{PATH}?api-version={version}"
    return request("POST", target, f"Content-Length: {len(body)}", *headers, body=body, **more)


def start_requests(*ids: str) -> bytes:
    """The body that approves these events."""
    return json.dumps({"StartRequests": [{"EventId": name} for name in ids]}).encode()


def approval(*ids: str, **more: Any) -> bytes:
    """The POST that approves these events."""
    return post(start_requests(*ids), **more)


# ---- What comes back ----


class Answer(NamedTuple):
    """One answer; the names of its headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """What an error says; it must be JSON and labelled as such."""
        assert self.headers["content-type"] == "application/json; charset=utf-8"
        return self.json["error"]

    @property
    def etag(self) -> str:
        return self.headers["etag"]

    @property
    def incarnation(self) -> int:
        return self.json["DocumentIncarnation"]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.json["Events"]


def read_answers(data: bytes) -> list[Answer]:
    """All answers in these bytes, read as strictly as HTTP allows; there may be no rest."""
    answers = []
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        assert separator, f"an answer is cut off: {head!r}"
        first, *lines = head.decode("latin-1").split("\r\n")
        http, status, phrase = first.split(" ", 2)
        assert http == "HTTP/1.1"
        assert phrase
        if status == "100":
            continue
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        assert len(headers) == len(pairs), f"a header is given twice: {head!r}"
        length = 0 if status == "304" else int(headers["content-length"])
        assert len(data) >= length, f"a body is cut off: {head!r}"
        answers.append(Answer(int(status), headers, data[:length]))
        data = data[length:]
    return answers


# ---- The wire between ----


class Line(asyncio.Transport):
    """One connection, seen from both ends."""

    def __init__(self, world: "Wireless", address: str, door: Door) -> None:
        super().__init__(extra={"peername": (address, 40_000)})
        self.world = world
        # What the VM has received and not looked at yet, and whether its connection has ended.
        self.received = bytearray()
        self.closed = False
        self.aborted = False
        # A VM that does not take what it is sent.
        self.stalled = False
        self.untaken = bytearray()
        self._told_to_pause = False
        # A VM that has gone, and one that stays although the endpoint has said its last.
        self.gone = False
        self.stays = False
        # The endpoint's side.
        self.paused = False
        self._closing = False
        self._said_all = False
        self._lost = False
        self._undelivered: list[bytes] = []
        self.protocol = Connection(world.worker, door)
        self.protocol.connection_made(self)

    # What the VM does.

    def feed(self, data: bytes) -> None:
        """Bytes arrive at the endpoint, in one piece."""
        if data and not self._closing:
            if self.paused:
                self._undelivered.append(data)
            else:
                self.protocol.data_received(data)

    def send(self, data: bytes, *more: bytes) -> list[Answer]:
        """Send pieces, let the endpoint work, and read what has come back."""
        for piece in (data, *more):
            self.world.run(lambda piece=piece: self.feed(piece))
        return self.read()

    def ask(self, data: bytes) -> Answer:
        """Send a request; its one answer."""
        (answer,) = self.send(data)
        return answer

    def read(self) -> list[Answer]:
        """What came since the last look."""
        data = bytes(self.received)
        self.received.clear()
        return read_answers(data)

    def take(self) -> None:
        """A stalled VM takes what is waiting for it."""
        self.stalled = False
        self.received += self.untaken
        self.untaken.clear()
        if self._told_to_pause:
            self._told_to_pause = False
            self.protocol.resume_writing()
        if self._closing:
            self._end()
        elif self._said_all:
            self._see_the_end()

    def hang_up(self) -> None:
        """The VM goes away: the endpoint reads the end, and may still want to answer."""
        self.gone = True
        self.world.run(self._half_close)

    def say_no_more(self) -> None:
        """The VM closes its own direction, and still reads."""
        self.world.run(self._half_close)

    def cut_off(self) -> None:
        """The connection is reset."""
        self.gone = True
        self.world.run(self.abort)

    def _half_close(self) -> None:
        if not self._closing and not self.protocol.eof_received():
            self.close()

    def _see_the_end(self) -> None:
        """The endpoint has said its last: a VM goes then."""
        self.closed = True
        if not self.stays:
            self._half_close()

    # What the endpoint does: asyncio.Transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._said_all, "written after the end"
        if self._closing:
            return
        if self.gone:
            # A VM that is gone answers with a reset.
            self.abort()
            return
        if not self.stalled:
            self.received += data
            return
        self.untaken += data
        if len(self.untaken) > HIGH_WATER and not self._told_to_pause:
            self._told_to_pause = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.untaken:
                self.world.loop.call_soon(self._end)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._said_all and not self._closing:
            self._said_all = True
            if not self.untaken:
                self.world.loop.call_soon(self._see_the_end)

    def abort(self) -> None:
        self.aborted = self._closing = True
        self.untaken.clear()
        self.world.loop.call_soon(self._end)

    def _end(self) -> None:
        self.closed = True
        if not self._lost:
            self._lost = True
            self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        if self.paused:
            self.paused = False
            self.world.loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self.paused

    def _deliver(self) -> None:
        while self._undelivered and not self.paused and not self._closing:
            self.protocol.data_received(self._undelivered.pop(0))

    def get_write_buffer_size(self) -> int:
        return len(self.untaken)


# ---- The endpoint ----


class StageLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when the stage's does."""

    def __init__(self, clock: ManualClock) -> None:
        self._stage_clock = clock
        super().__init__()

    def time(self) -> float:
        return self._stage_clock.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether anything is left to do in this turn or the next."""
        return bool(self._ready)


class Mishaps(logging.Handler):
    """What must not happen: a warning, an error, an exception that nobody caught."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # A fault that a test has set is told of by a warning.
        if record.name == "fairnotice.metadata.faults":
            return
        self.found.append(f"{record.getMessage()} {record.exc_info or ''}")

    def unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(f"{context.get('message')} {context.get('exception')!r}")


class Wireless:
    """The sample fleet behind an endpoint, all of its scopes enabled unless told otherwise."""

    def __init__(
        self,
        *,
        listening: tuple[str, ...] = EVERYBODY,
        rate_limit: Rate | None = None,
        limits: Limits | None = None,
        first_answer_delay_seconds: float = 0.0,
        stage: LiveStory | None = None,
    ) -> None:
        self.stage = stage or LiveStory(served_sample(), listening=listening)
        self.worker = self.stage.worker(
            self.stage.clock,
            rate_limit=rate_limit,
            limits=limits,
            first_answer_delay_seconds=first_answer_delay_seconds,
        )
        self.mishaps = Mishaps()
        self.loop = StageLoop(self.stage.clock)
        self.loop.set_exception_handler(self.mishaps.unhandled)
        logging.getLogger("fairnotice").addHandler(self.mishaps)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        logging.getLogger("fairnotice").removeHandler(self.mishaps)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run()
        self.loop.close()
        if error is None:
            assert self.mishaps.found == []

    @property
    def now(self) -> datetime:
        return self.stage.clock.wall()

    def connect(self, address: str = WEB_0, door: Door | None = None) -> Line:
        """A VM connects from this address."""
        return Line(self, address, door or Door())

    def ask(self, data: bytes, address: str = WEB_0, door: Door | None = None) -> Answer:
        """One request on a connection of its own; its one answer."""
        return self.connect(address, door).ask(data)

    def run(self, action: Any = None) -> None:
        """Do something inside the loop, then let it work until only time could change anything."""
        self.loop.run_until_complete(self._until_quiet(action))

    async def _until_quiet(self, action: Any) -> None:
        if action is not None:
            action()
        quiet = 0
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            quiet = 0 if self.loop.is_busy else quiet + 1

    def advance(self, seconds: float = 0, *, hours: float = 0) -> None:
        """Let time pass: timers fire, and the endpoint sweeps its connections."""
        self.run(lambda: self.stage.advance(seconds=seconds, hours=hours))
        self.run(self.worker.sweep)
