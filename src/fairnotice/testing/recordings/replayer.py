"""Serves a recording again: at its own pace, faster, or an answer a request."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from fairnotice.clock import Clock, SystemClock
from fairnotice.errors import BadBody, UsageError
from fairnotice.metadata.replies import Reply, compose, reply
from fairnotice.metadata.request import (
    DUPLICATE_PARAMETER,
    METADATA_HEADER,
    Request,
    Target,
    understand,
)
from fairnotice.testing.recordings.answering import AnsweringServer, Call, Said, said
from fairnotice.testing.recordings.recording import Answer, Exchange, Key, Recording, key_of
from fairnotice.wire import error_bodies, start_requests
from fairnotice.wire.document import rfc1123

ANYWHERE = ("127.0.0.1", 0)
# Not by the clock: every request is answered with the next answer of the recording.
STEP = "step"
_RFC_1123 = rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"
_INSTANT = re.compile(_RFC_1123)
_NOT_BEFORE = re.compile(rb'("NotBefore"\s*:\s*")(' + _RFC_1123 + rb')(?=")')
_OK = 200
# Wrong whatever was recorded.
_WRONG_FOR_ALL = (METADATA_HEADER, DUPLICATE_PARAMETER)


class Told(NamedTuple):
    """A request that was answered: when in the recording, who asked what, and what came of it."""

    at: float
    peer: str
    method: str
    target: str
    # 0 where no answer was given.
    status: int
    # "refused", "timed-out" …: how the recorded answer had failed.
    failure: str = ""
    approved: tuple[str, ...] = ()
    wrong: str = ""


# ---- Where in the recording it is ----


class _Tape:
    """The recording, read forwards: the last answer to every request so far."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.current: dict[Key, Exchange] = {}
        # Every event that was shown so far: those a client may approve.
        self.seen: set[str] = set()
        self.over = False
        self._coming: Iterator[Exchange] = iter(())
        self._next: Exchange | None = None
        self.rewind()

    def rewind(self) -> None:
        """Go back to the beginning."""
        self.current.clear()
        self.seen.clear()
        self._coming = self._reads()
        self._take()

    def play_to(self, at: float) -> None:
        """Go on to this second; what was first asked for later is known from the beginning."""
        while self._next is not None and self._next.at <= at:
            self._pass(self._next)

    def step(self, key: Key) -> None:
        """Go on to the next answer to this request; the last one stays."""
        while (one := self._next) is not None:
            self._pass(one)
            if key_of(one.asked.target) == key:
                return

    def first(self, key: Key) -> Exchange | None:
        """The answer to this request; before it was first asked for, the first there will be."""
        known = self.current.get(key)
        if known is None and key in self.recording.asked:
            known = next(one for one in self._reads() if key_of(one.asked.target) == key)
            self.current[key] = known
        return known

    def _reads(self) -> Iterator[Exchange]:
        return (one for one in self.recording.exchanges() if one.asked.is_read)

    def _pass(self, exchange: Exchange) -> None:
        self.current[key_of(exchange.asked.target)] = exchange
        self.seen.update(_event_ids(exchange.answer.body))
        self._take()

    def _take(self) -> None:
        self._next = next(self._coming, None)
        self.over = self._next is None


def _event_ids(body: bytes) -> Iterator[str]:
    """The ids of the events of a document, in upper case; none of what is no document."""
    if b'"EventId"' not in body:
        return
    try:
        document = json.loads(body, strict=False)
    except (ValueError, RecursionError):
        return
    events = document.get("Events") if isinstance(document, dict) else None
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and isinstance(event.get("EventId"), str):
            yield event["EventId"].upper()


# ---- The replay ----


class Replay:
    """A recording behind a URL: `with Replay("outage.jsonl", speed=60) as url: …`.

    Its clock begins with the first request and goes `speed` times as fast as the machine's; with
    "step" every request gets the next answer. `approvals` are the events that were approved.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        speed: float | str = 1.0,
        listen: tuple[str, int] = ANYWHERE,
        begin_seconds: float = 0.0,
        loop: bool = False,
        shift: bool = False,
        tell: Callable[[Told], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.recording = Recording(path)
        self.approvals: list[str] = []
        self.pace = 0.0 if speed == STEP else _pace(speed)
        if begin_seconds > self.recording.seconds:
            length = f"{self.recording.seconds:.0f} s"
            raise UsageError(f"The recording is {length} long; it cannot begin later than that.")
        self._begin_seconds = begin_seconds
        self._loop = loop
        self._shift = shift
        self._tell = tell
        self._clock = clock or SystemClock()
        self._tape = _Tape(self.recording)
        self._lock = threading.Lock()
        self._began: float | None = None
        # Where the recording's clock and the machine's met last: second and instant.
        self._met = (begin_seconds, self.recording.opening.started)
        self._server = AnsweringServer(listen, self._respond, self._clock)
        if begin_seconds:
            self._tape.play_to(begin_seconds)

    @property
    def url(self) -> str:
        """Where it is served."""
        return self._server.url

    @property
    def over(self) -> bool:
        """Whether all of the recording has been played: its last answers stay."""
        with self._lock:
            where = self._where()
            played = where >= self.recording.seconds if self.pace else True
            return played and self._tape.over and not self._loop

    def __enter__(self) -> str:
        self._server.begin()
        return self.url

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._server.end()

    begin = __enter__

    def end(self) -> None:
        """Stop serving."""
        self._server.end()

    # ---- Time ----

    def _where(self) -> float:
        """At which second of the recording it is now; the tape is played to there."""
        if self._began is None or not self.pace:
            return self._met[0]
        seconds = self._begin_seconds + (self._clock.monotonic() - self._began) * self.pace
        if self._loop and seconds > self.recording.seconds:
            self._start(0.0)
            seconds = 0.0
        self._tape.play_to(seconds)
        return seconds

    def _start(self, at: float) -> None:
        """The recording begins at this second, and now."""
        if self._began is not None:
            self._tape.rewind()
        self._began = self._clock.monotonic()
        self._begin_seconds = at
        self._met = (at, self._clock.wall())

    def _shown(self, instant: datetime) -> datetime:
        """An instant of the recording as it is shown: shifted, when that is in the replay."""
        second, met = self._met
        passed = (instant - self.recording.opening.started).total_seconds() - second
        return met + timedelta(seconds=passed / (self.pace or 1.0))

    def _date(self, at: float) -> bytes:
        """The Date of an answer that was not recorded."""
        instant = self.recording.opening.started + timedelta(seconds=at)
        return rfc1123(self._shown(instant) if self._shift else instant).encode()

    def _shifted(self, answer: Answer) -> Answer:
        """Date and NotBefore in the time of the replay; they are as long as they were."""
        if not self._shift:
            return answer
        head = tuple(_INSTANT.sub(lambda found: self._moved(found[0]), h) for h in answer.head)
        body = _NOT_BEFORE.sub(lambda found: found[1] + self._moved(found[2]), answer.body)
        return answer._replace(head=head, body=body)

    def _moved(self, text: bytes) -> bytes:
        try:
            return rfc1123(self._shown(parsedate_to_datetime(text.decode()))).encode()
        except (ValueError, OverflowError):
            return text

    # ---- Answers ----

    def _respond(self, call: Call) -> Said:
        request = understand(call.raw)
        refused = request.early or (request.late if request.late in _WRONG_FOR_ALL else None)
        with self._lock:
            if self._began is None:
                self._start(self._begin_seconds)
            at = self._where()
            told = Told(at, call.peer, call.raw.method, call.raw.target, 0)
            if refused is not None:
                return self._composed(refused, call, told)
            if request.post:
                return self._composed(*self._approve(call, request, told))
            return self._recorded(call, request, told)

    def _composed(self, answer: Reply, call: Call, told: Told) -> Said:
        """An answer that was not recorded."""
        self._tell(told._replace(status=answer.status))
        close = not call.raw.keeps_alive
        data = compose(answer, self._date(told.at), close=close)
        if call.raw.method == "HEAD":
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        return Said(data, close=close)

    def _recorded(self, call: Call, request: Request, told: Told) -> Said:
        key = key_of(call.raw.target)
        if not self.pace and request.target is Target.EVENTS and key in self.recording.asked:
            self._step(key)
        found = self._tape.first(key)
        if found is None:
            return self._composed(self._unknown(request, key), call, told)
        answer = self._shifted(found.answer)
        at = told.at if self.pace else found.at
        self._tell(told._replace(at=at, status=answer.status, failure=str(answer.failure)))
        # It came so late in the recording, and comes so late in the replay.
        late = (found.at + found.took - max(at, found.at)) / (self.pace or 1.0)
        return said(answer, call.raw, late)

    def _step(self, key: Key) -> None:
        if self._loop and self._tape.over:
            self._tape.rewind()
        self._tape.step(key)
        found = self._tape.first(key)
        if found is not None:
            self._met = (found.at, self._clock.wall())

    def _unknown(self, request: Request, key: Key) -> Reply:
        """What was not recorded: another api-version than those, or another document."""
        if request.late is not None:
            return request.late
        known = sorted(
            {one.version for one in self.recording.asked if one.path == key.path}, reverse=True
        )
        if known and key.version not in known:
            return reply(400, error_bodies.invalid_version(known))
        absent = (
            error_bodies.NO_SUCH_ELEMENT
            if request.target is Target.INSTANCE
            else error_bodies.NOT_FOUND
        )
        return reply(404, absent)

    def _approve(self, call: Call, request: Request, told: Told) -> tuple[Reply, Call, Told]:
        """200 for events that were shown so far; the recording goes on as it was."""
        if request.late is not None:
            return request.late, call, told
        try:
            ids = start_requests.parse(call.body)
        except BadBody as error:
            return (
                reply(400, error_bodies.bad_body(str(error))),
                call,
                told._replace(wrong=str(error)),
            )
        unknown = [one for one in ids if one.upper() not in self._tape.seen]
        if unknown:
            wrong = f"EventId not found: {', '.join(unknown)}"
            return (
                reply(400, error_bodies.event_not_found(unknown)),
                call,
                told._replace(wrong=wrong),
            )
        self.approvals += ids
        return reply(_OK), call, told._replace(approved=ids)


def _pace(speed: float | str) -> float:
    try:
        pace = float(speed)
    except ValueError:
        pace = 0.0
    if not 0 < pace <= 1_000_000:
        raise UsageError(f"A speed of {speed!r} is none: give 1, 60 or 0.5, or {STEP}.")
    return pace
