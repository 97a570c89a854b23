"""What both clients do, as steps that somebody carries out. No I/O here, and no logic there.

Each of these is a generator. It yields what is to be done (`Ask`, `Pause`) and is sent what came of
it; what it yields besides is for the caller. sync.py carries the steps out with sockets and
threads, asynchronous.py with asyncio.
"""

import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from fairnotice.client import pace
from fairnotice.client.changes import Change, Position
from fairnotice.client.discovery import VARIABLE, Surroundings, proxy_for
from fairnotice.client.document import (
    Document,
    Event,
    one_line,
    read_document,
    read_object,
    shown,
)
from fairnotice.client.exchange import Answer, Place, Reading, Request
from fairnotice.client.instants import read_instant
from fairnotice.client.server_clock import ServerClock
from fairnotice.clock import Clock
from fairnotice.errors import (
    Away,
    BadAnswer,
    ClientError,
    NoEndpoint,
    RequestRefused,
    UsageError,
)

API_VERSION = "2020-07-01"
# In the newest version that every endpoint has had for years.
_INSTANCE = "/metadata/instance?api-version=2021-02-01"
# In one request.
APPROVALS_MAX = 100
# While an approval does not get through it is sent again: twice is harmless, not at all is late.
APPROVAL_PATIENCE_SECONDS = 10.0
_SENTENCE_MAX = 300
_TWO_BYTES = 65_536
_OK, _NOT_MODIFIED, _BAD_REQUEST = 200, 304, 400
# Too slow, being updated, too many: none of these says that the request is wrong.
_AWAY = frozenset({408, 410, 429})
_REFUSALS = range(400, 500)
_FAILURES = range(500, 600)
# How long one that may be the service is given to answer while it is looked for.
_LOOK_SECONDS = 5.0


class Ask(NamedTuple):
    """Send this, and return the Answer or what failed."""

    place: Place
    request: Request
    # For the whole answer, from the first byte sent.
    answer_seconds: float
    connect_seconds: float
    # Whether the connection is kept for the next one.
    keep: bool


class Failed(NamedTuple):
    """No answer came of an Ask."""

    error: ClientError
    # The connection was one that had been kept, and the service had closed it meanwhile.
    stale: bool = False
    connected: bool = True


class Pause(NamedTuple):
    """Wait so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Missed:
    """A try that gave no document. What was known stays known."""

    error: ClientError
    # How many in a row, this one too.
    failures: int
    # Until it is tried again.
    again_seconds: float


Outcome = Answer | Failed | None
Result = TypeVar("Result")
# A call: steps, then its result. A stream: steps, and in between what the caller gets.
Call = Generator[Ask | Pause, Outcome, Result]
Stream = Generator[Ask | Pause | Document | Missed, Outcome, None]


class Session:
    """What one client knows of its service."""

    def __init__(
        self,
        url: str | None,
        api_version: str,
        timeout_seconds: float | None,
        clock: Clock,
        surroundings: Surroundings,
        *,
        proxies: bool,
    ) -> None:
        self.url = url or surroundings.told()
        self.server_clock = ServerClock()
        self._clock = clock
        self._target = f"/metadata/scheduledevents?api-version={quote(api_version)}"
        self._timeout_seconds = timeout_seconds
        self._surroundings = surroundings
        self._proxies = proxies
        # Whether the service has ever given a document: it may be slow until then.
        self._settled = False
        self._place = None if self.url is None else self._place_of(self.url)

    # ---- Time ----

    def now(self) -> datetime:
        """The instant at the service; the VM's own until it has answered."""
        return self.server_clock.now(self._clock.monotonic()) or self._clock.wall()

    def seconds_until(self, event: Event) -> float | None:
        """How long until NotBefore, at the service; None where the event has none."""
        if event.not_before is None:
            return None
        return (event.not_before - self.now()).total_seconds()

    # ---- Calls ----

    def find(self) -> Call[Place]:
        """Where the service is; looked for once. Raises NoEndpoint."""
        if self._place is None:
            self.url = yield from self._look_round()
            self._place = self._place_of(self.url)
        return self._place

    def get(self, patience_seconds: float) -> Call[Document]:
        """Ask for the document."""
        return (yield from self._patiently(self._get, patience_seconds))

    def _get(self) -> Call[Document]:
        answer = yield from self._ask(Request(self._target))
        document = read_document(answer.body)
        self._settled = True
        return document

    def approve(self, events: Iterable[Event | str], patience_seconds: float) -> Call[None]:
        """Approve these, as many in one request as it takes."""
        names = [event.id if isinstance(event, Event) else event for event in events]
        for start in range(0, len(names), APPROVALS_MAX):
            wanted = [{"EventId": name} for name in names[start : start + APPROVALS_MAX]]
            body = json.dumps({"StartRequests": wanted}).encode()
            ask = partial(self._ask, Request(self._target, body=body))
            yield from self._patiently(ask, patience_seconds)

    def instance(self, patience_seconds: float) -> Call[dict[str, Any]]:
        """Ask what this VM is."""
        return (yield from self._patiently(self._instance, patience_seconds))

    def _instance(self) -> Call[dict[str, Any]]:
        answer = yield from self._ask(Request(_INSTANCE))
        return read_object(answer.body)

    def _patiently(self, call: Callable[[], Call[Result]], patience_seconds: float) -> Call[Result]:
        """Try until it works, for so long; then what was wrong last is raised."""
        until = self._clock.monotonic() + patience_seconds
        pacing = pace.Pace(_chance)
        while True:
            try:
                return (yield from call())
            except ClientError as error:
                pause = Pause(pacing.failed(_retry_after_seconds(error)))
                late = self._clock.monotonic() + pause.seconds > until
                if late or not _may_pass(error):
                    raise
            yield pause

    # ---- The stream ----

    def documents(self, heartbeat_seconds: float | None) -> Stream:
        """Each new document, and each try that gave none. It never ends."""
        pacing = pace.Pace(_chance)
        reader = _Reader()
        known: Document | None = None
        etag = ""
        told_at = 0.0
        while True:
            asked_at = self._clock.monotonic()
            try:
                answer = yield from self._ask_for_news(etag, heartbeat_seconds)
                now = self._clock.monotonic()
                # A 304 is only taken where an ETag was sent, and so a document is known.
                unchanged = answer.status == _NOT_MODIFIED
                document = known if unchanged else reader.read(answer.body, now)
            except ClientError as error:
                seconds = pacing.failed(_retry_after_seconds(error))
                yield Missed(error, pacing.failures, seconds)
                yield Pause(seconds)
                continue
            applied = "wait" in answer.headers.get("preference-applied", "").lower()
            pacing.heard(applied=applied, could_wait=bool(etag))
            etag = _etag(answer)
            self._settled = True
            due = heartbeat_seconds is not None and now - told_at >= heartbeat_seconds
            if document is not None and (document != known or due):
                known, told_at = document, now
                yield document
            yield Pause(pacing.pause_seconds(asked_at, now, can_wait=bool(etag)))

    def _ask_for_news(self, etag: str, heartbeat_seconds: float | None) -> Call[Answer]:
        """Ask for a document other than the one with this ETag, and wait for it where one can."""
        if not etag:
            return (yield from self._ask(Request(self._target), keep=True))
        wait = max(1, int(min(pace.WAIT_SECONDS, heartbeat_seconds or pace.WAIT_SECONDS)))
        headers = {"If-None-Match": etag, "Prefer": f"wait={wait}"}
        request = Request(self._target, headers)
        return (yield from self._ask(request, keep=True, wait_seconds=wait))

    # ---- One request ----

    def _ask(self, request: Request, *, keep: bool = False, wait_seconds: int = 0) -> Call[Answer]:
        place = yield from self.find()
        seconds = self._answer_seconds() + wait_seconds
        ask = Ask(place, request, seconds, self._connect_seconds(), keep)
        asked_at = self._clock.monotonic()
        outcome = yield ask
        if isinstance(outcome, Failed) and outcome.stale:
            # Nothing was lost but a connection that had been idle for too long.
            outcome = yield ask
        if isinstance(outcome, Failed):
            raise outcome.error
        assert isinstance(outcome, Answer)
        date = read_instant(outcome.headers.get("date", ""))
        if date is not None:
            self.server_clock.heard(date, asked_at, self._clock.monotonic())
        if outcome.status == _NOT_MODIFIED and "If-None-Match" in request.headers:
            return outcome
        if outcome.status != _OK:
            raise _error(outcome, date)
        return outcome

    def _answer_seconds(self) -> float:
        usual = pace.ANSWER_SECONDS if self._settled else pace.FIRST_ANSWER_SECONDS
        return usual if self._timeout_seconds is None else self._timeout_seconds

    def _connect_seconds(self) -> float:
        return min(pace.CONNECT_SECONDS, self._timeout_seconds or pace.CONNECT_SECONDS)

    # ---- Finding it ----

    def _look_round(self) -> Call[str]:
        """The first address that answers as the service does; else the first that one can reach.

        What can be reached and answers something else says itself what is wrong.
        """
        candidates = self._surroundings.candidates()
        reached = []
        for url in candidates:
            ask = Ask(
                self._place_of(url),
                Request(self._target),
                min(_LOOK_SECONDS, self._answer_seconds()),
                self._connect_seconds(),
                keep=False,
            )
            outcome = yield ask
            if isinstance(outcome, Answer):
                if outcome.status in _AWAY or outcome.status not in _REFUSALS:
                    return url
                reached.append(url)
            elif isinstance(outcome, Failed) and outcome.connected:
                reached.append(url)
        if not reached:
            raise NoEndpoint(
                f"No metadata service can be reached at {', '.join(candidates)}. "
                f"Set {VARIABLE} where it is elsewhere."
            )
        return reached[0]

    def _place_of(self, url: str) -> Place:
        return Place.of(url, proxy_for(url) if self._proxies else None)


def _chance() -> float:
    """From 0 up to 1, of the system: the module `random` would cost memory for one number."""
    return int.from_bytes(os.urandom(2), "big") / _TWO_BYTES


class _Reader:
    """Reads the bodies of one stream.

    Some of Azure's nodes answered with an empty body, for months, wherever there was no event; and
    any service may do so by mistake while there is one. So an empty body says nothing, until there
    has been nothing else for a long time.
    """

    def __init__(self) -> None:
        self._empty_since: float | None = None

    def read(self, body: bytes, now: float) -> Document:
        """The document. Raises BadAnswer."""
        if body:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since >= pace.EMPTY_MEANS_NONE_SECONDS:
            return Document(0)
        return read_document(body)


class Watching:
    """Makes changes of what a stream gives, beginning at a position."""

    def __init__(self, since: Position | None) -> None:
        if not isinstance(since, Position | None):
            raise UsageError(
                f"A watch begins at a Position, not at {shown(since)}. One that was saved is read "
                "with Position.from_json(…)."
            )
        self._position = since or Position()
        self._heard = False

    def take(self, item: Document | Missed) -> Iterator[Change]:
        """The changes that this brings.

        A request that is wrong from the very first is the caller's mistake, and raised; whatever
        else is wrong may pass, so it is only logged.
        """
        if isinstance(item, Document):
            self._heard = True
            for change in self._position.after(item):
                self._position = change.position
                yield change
        elif not self._heard and not _may_pass(item.error):
            raise item.error
        else:
            # Imported only where there is something to say.
            import logging  # noqa: PLC0415

            said = "%s (tried again in %.1f s)"
            logging.getLogger(__name__).warning(said, item.error, item.again_seconds)


def _may_pass(error: ClientError) -> bool:
    """Whether the same request may be answered later. Hosts that lack a version yet say 404."""
    return not isinstance(error, RequestRefused) or error.status != _BAD_REQUEST


def _retry_after_seconds(error: ClientError) -> float | None:
    return error.retry_after_seconds if isinstance(error, Away) else None


def _etag(answer: Answer) -> str:
    """What can be sent back to be told only of news; empty where nothing can."""
    etag = answer.headers.get("etag", "")
    return etag if etag.isprintable() else ""


def _error(answer: Answer, date: datetime | None) -> ClientError:
    """What an answer that is no 200 means."""
    status = answer.status
    sentence = f"The metadata service answered {status}{_said(answer.body)}"
    if status in _AWAY or status in _FAILURES:
        return Away(sentence, status, _told_seconds(answer.headers.get("retry-after", ""), date))
    if status in _REFUSALS:
        return RequestRefused(sentence, status)
    return BadAnswer(sentence)


def _told_seconds(retry_after: str, date: datetime | None) -> float | None:
    """Retry-After, in either of its forms: seconds, or an instant."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    instant = read_instant(retry_after)
    if instant is None or date is None:
        return None
    return max(0.0, (instant - date).total_seconds())


def _said(body: bytes) -> str:
    """What an error's body says, as the end of a sentence."""
    try:
        said = read_object(body).get("error")
    except BadAnswer:
        said = one_line(body.decode("utf-8", "replace"))
    if said == "":
        return "."
    return f": {said[:_SENTENCE_MAX]}" if isinstance(said, str) else f": {shown(body)}"


# ---- What a connection does ----


def unreachable(ask: Ask, error: Exception) -> Failed:
    """No connection came about."""
    at = f"{ask.place.host}:{ask.place.port}"
    return Failed(Away(f"{at} cannot be reached: {_reason(error)}."), connected=False)


def failed(ask: Ask, error: Exception, reading: Reading, *, kept: bool) -> Failed:
    """A connection that there was gave no whole answer. `kept`: from an earlier request."""
    if isinstance(error, TimeoutError):
        return Failed(Away(f"No answer came within {ask.answer_seconds:g} s."))
    stale = kept and not reading.begun
    if isinstance(error, ClientError):
        return Failed(error, stale=stale)
    return Failed(Away(f"The connection failed: {_reason(error)}."), stale=stale)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
