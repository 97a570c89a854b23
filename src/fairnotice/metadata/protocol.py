"""One connection of a VM: bytes in, answers out, in order.

`data_received` is the hot path: bytes seen before are a request understood before, and its answer
is on the board. Whatever is rarer than that goes through `_read` and `_answer`.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Coroutine
from typing import Any, cast

import httptools

from fairnotice.errors import BadBody, Unavailable
from fairnotice.metadata.board import Caller, Page, is_known
from fairnotice.metadata.identity import Door, caller_at, nearest_names
from fairnotice.metadata.rate import admit, retry_after_seconds
from fairnotice.metadata.replies import NOT_MODIFIED, OK, Reply, compose, reply
from fairnotice.metadata.request import NOT_FOUND, Raw, Request, Target, understand
from fairnotice.metadata.respond import Later, respond
from fairnotice.metadata.worker import Worker
from fairnotice.wire import faults, start_requests

log = logging.getLogger(__name__)

MALFORMED = reply(400, faults.MALFORMED)
HEADERS_TOO_LARGE = reply(431, faults.HEADERS_TOO_LARGE)
TOO_LARGE = reply(413, faults.TOO_LARGE)
TIMED_OUT = reply(408, faults.TIMED_OUT)
APPROVED = reply(200)
NO_APPROVALS_NOW = reply(503, faults.NO_APPROVALS_NOW, headers=b"Retry-After: 5\r\n")

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# How long somebody who is still sending may go on after he was answered.
LINGER_SECONDS = 2.0

_NEVER = math.inf


class Connection(asyncio.Protocol):
    """A connection and the request it is reading. One VM, or nobody we know, is at its end."""

    def __init__(self, worker: Worker, door: Door, received: bytes = b"") -> None:
        # What was received before the connection was handed over.
        self._received = received
        # Per connection
        self.worker = worker
        self.door = door
        self.transport: asyncio.Transport = None  # type: ignore[assignment] # set before any use
        self.address = ""
        self.caller: Caller | None = None
        self.identities = 0
        self.deadline = _NEVER
        self._parser: httptools.HttpRequestParser | None = None
        # Requests read and not answered yet, because one before them has to wait.
        self._queue: deque[tuple[Request, bytes, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._held: tuple[Page, Request, Caller, asyncio.TimerHandle] | None = None
        # Nothing is read any more after the last request; nothing is written after the close.
        self._final = False
        self._closing = False
        self._stalled = False
        # Per request
        self._reading = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._head_complete = False
        self._trailer_bytes = 0
        self._body = bytearray()
        self._too_large = False
        # Per chunk of bytes: the bytes, where a request began with them; whether one ended.
        self._whole = b""
        self._completed = False

    # ---- The transport's calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connects; who it is follows from where."""
        # uvloop's transports have the interface of asyncio's, but not their class.
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else str(peer or "")
        self._recognise()
        self.deadline = self.worker.monotonic() + self.worker.limits.request_seconds_max
        self.worker.connections.add(self)
        if self._received:
            # Here, before anything else can be received.
            received, self._received = self._received, b""
            self.data_received(received)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more: whatever was held for it is let go."""
        del exc
        self._closing = True
        self.worker.connections.discard(self)
        self._queue.clear()
        self._stop_holding()
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        """It has said all it has to say; what it asked for is still answered."""
        if self._held is None and self._is_waiting():
            self._final = True
            return True
        return False

    def pause_writing(self) -> None:
        """It does not read what it asked for, so it may not ask for more."""
        self._stalled = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._stalled = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """The hot path: the bytes of a whole poll that was seen before."""
        worker = self.worker
        request = worker.known.get(data)
        # _is_waiting, written out: one call less for each poll.
        waiting = self._task is not None or self._held is not None or self._stalled
        if request is None or self._reading or waiting:
            self._read(data)
            return
        if self.identities != worker.board.identities:
            self._recognise()
        caller = self.caller
        answer = worker.poll(request, caller) if request.plain and caller is not None else None
        if answer is None:
            self._answer(request, b"", too_large=False)
        elif request.close:
            self.transport.write(answer.head + worker.date + answer.tail_close)
            self._close()
        else:
            self.transport.write(answer.head + worker.date + answer.tail)
            self.deadline = worker.now + worker.limits.idle_seconds_max

    # ---- Reading ----

    def _read(self, data: bytes) -> None:
        """Feed the parser; it calls back below, once for each whole request."""
        while data and not self._final:
            if not self._reading:
                self._whole = data
                self._limit_time()
            else:
                self._whole = b""
            self._reading = True
            self._completed = False
            if self._parser is None:
                self._parser = httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # Java's client asks every server whether it speaks HTTP/2; it is answered here.
                self._parser = None
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                self._refuse(MALFORMED, f"malformed: {error}")
            else:
                self._check_unfinished(len(data))
                return

    def _limit_time(self) -> None:
        """A request has to be finished in time, but not while another one waits before it."""
        if not self._is_waiting():
            self.deadline = self.worker.monotonic() + self.worker.limits.request_seconds_max

    def _check_unfinished(self, received: int) -> None:
        """Do not wait for the end of what is too large already."""
        if not self._reading or self._final:
            return
        if self._completed:
            self._limit_time()
        if self._head_complete:
            if self._too_large:
                self._enqueue(self._understand()._replace(close=True), b"", too_large=True)
            elif self._trailer_bytes > self.worker.limits.head_bytes_max:
                self._refuse(HEADERS_TOO_LARGE, "trailers too large")
        elif not self._completed:
            self._head_bytes += received
            if self._head_bytes > self.worker.limits.head_bytes_max:
                self._refuse(HEADERS_TOO_LARGE, "headers too large")

    def on_message_begin(self) -> None:
        """The parser: a request begins."""
        self._reading = True
        self._url = b""
        self._headers = []
        self._head_bytes = 0
        self._head_complete = False
        self._trailer_bytes = 0
        self._body = bytearray()
        self._too_large = False

    def on_url(self, url: bytes) -> None:
        """The parser: a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser: a header, or behind a chunked body a trailer, which says nothing here."""
        if self._head_complete:
            self._trailer_bytes += len(name) + len(value) + 4
        else:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The parser: all headers. Some .NET clients wait to be told to send the body."""
        self._head_complete = True
        if (b"expect", b"100-continue") in self._headers and not self._is_waiting():
            self.transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        """The parser: a piece of the body. What is too long is not kept."""
        if len(self._body) + len(body) > self.worker.limits.body_bytes_max:
            self._too_large = True
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """The parser: a whole request."""
        self._reading = False
        self._completed = True
        if self._final:
            return
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self.worker.limits.head_bytes_max:
            self._refuse(HEADERS_TOO_LARGE, "headers too large")
            return
        request = self._understand()
        whole = self._whole
        if not self._body and whole.endswith(b"\r\n\r\n") and whole.count(b"\r\n\r\n") == 1:
            self.worker.remember(whole, request)
        self._enqueue(request, bytes(self._body), too_large=self._too_large)

    def _understand(self) -> Request:
        parser = self._parser
        assert parser is not None
        raw = Raw(
            method=parser.get_method().decode("latin-1"),
            target=self._url.decode("latin-1"),
            headers=tuple(self._headers),
            keeps_alive=parser.should_keep_alive(),
            old_http=parser.get_http_version() == "1.0",
        )
        return understand(raw)

    def _enqueue(self, request: Request, body: bytes, *, too_large: bool) -> None:
        self._final = request.close
        if self._is_waiting():
            self._queue.append((request, body, too_large))
            if len(self._queue) >= self.worker.limits.queued_requests_max:
                self.transport.pause_reading()
        else:
            self._answer(request, body, too_large=too_large)

    def _is_waiting(self) -> bool:
        return self._task is not None or self._held is not None or self._stalled

    # ---- Answering ----

    def _answer(self, request: Request, body: bytes, *, too_large: bool) -> None:
        """Answer, or begin to wait for what the answer needs."""
        caller = self._caller_of(request)
        if isinstance(caller, Reply):
            self._write(request, caller)
            return
        now = self.worker.monotonic()
        result = respond(request, caller, self._count(caller, now))
        if isinstance(result, Reply):
            self._serve(request, caller, result, now)
        elif result is Later.HOLD:
            self._hold(request, caller)
        elif result is Later.ENABLE:
            self._wait_for(self._enable(request, caller))
        elif too_large:
            self._write(request._replace(close=True), TOO_LARGE)
        else:
            self._wait_for(self._approve(request, caller, body))

    def _caller_of(self, request: Request) -> Caller | Reply:
        """Who asks, or the answer to somebody who is nobody we know."""
        board = self.worker.board
        if request.name is not None:
            if not self.door.prefix_allowed:
                return NOT_FOUND
            named = board.callers.get(request.name)
            return (
                named
                or request.early
                or reply(404, faults.unknown_name(request.name, nearest_names(board, request.name)))
            )
        self._recognise()
        return self.caller or request.early or self._stranger()

    def _stranger(self) -> Reply:
        unknown = faults.unknown_caller(self.address, hint=self.door.prefix_allowed)
        return reply(403, unknown)

    def _recognise(self) -> None:
        """Say who is at the other end: he may have been removed since, or have become known."""
        board = self.worker.board
        self.caller = caller_at(board, self.door, self.address)
        self.identities = board.identities

    def _count(self, caller: Caller, now: float) -> int:
        """Count a request; where it is one too many, in how many seconds to try again."""
        rate = self.worker.rate_limit
        if rate is None or admit(caller, now, rate):
            return 0
        return retry_after_seconds(caller, now, rate)

    def _serve(self, request: Request, caller: Caller, answer: Reply, now: float) -> None:
        """Write an answer, and take note where it was the document."""
        if request.wait_seconds and request.etags and answer.status == OK:
            self._write(request, _preferred(answer, request.wait_seconds))
        else:
            self._write(request, answer)
        if request.target is Target.EVENTS and answer.status in (OK, NOT_MODIFIED):
            page = caller.page
            page.asked_at = caller.asked_at = now
            if not page.enabled:
                self.worker.board.unreported.add(page.name)
            shown = page.answers[request.version]
            if caller.served is not shown and answer is shown.full:
                self.worker.board.note(caller, shown, self.worker.clock.wall())

    def _write(self, request: Request, answer: Reply) -> None:
        if self._closing:
            return
        worker = self.worker
        now = worker.monotonic()
        if now >= worker.date_until:
            worker.renew_date(now)
        self.transport.write(compose(answer, worker.date, close=request.close, kept=request.kept))
        worker.answers[answer.status, request.api_version] += 1
        self.deadline = now + worker.limits.idle_seconds_max
        if request.close:
            self._close()

    def _refuse(self, answer: Reply, why: str) -> None:
        """It cannot be read any further: one answer, one line in the log, the end."""
        log.debug("%s from %s", why, self.address)
        self._enqueue(Request(Target.NOTHING, early=answer, close=True), b"", too_large=False)

    def _close(self) -> None:
        self._final = self._closing = True
        self._queue.clear()
        patience = LINGER_SECONDS if self._reading else self.worker.limits.idle_seconds_max
        self.deadline = self.worker.monotonic() + patience
        if self._reading and self.transport.can_write_eof():
            # It is still sending. A plain close would reset the connection, and the answer with
            # it: say that nothing more comes, and let it finish for a while.
            self.transport.write_eof()
        else:
            self.transport.close()

    def timed_out(self) -> None:
        """A request that is not finished in time is answered, an idle connection just ends."""
        if self._closing:
            # It does not even take its last answer.
            self.transport.abort()
        elif self._reading and not self._final:
            self._refuse(TIMED_OUT, "not finished in time")
        else:
            self._close()

    def end(self) -> None:
        """The endpoint ends: whatever waits here is answered no more."""
        self._final = self._closing = True
        self._stop_holding()
        self.transport.abort()

    # ---- Waiting ----

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        self.deadline = _NEVER
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("an answer failed", exc_info=task.exception())
            self._close()
        self._go_on()

    def _go_on(self) -> None:
        """Answer what was read meanwhile, until something has to wait again."""
        while self._queue and not self._is_waiting() and not self._closing:
            request, body, too_large = self._queue.popleft()
            self._answer(request, body, too_large=too_large)
        if self._closing or self._is_waiting():
            return
        if self._final:
            self._close()
            return
        self.transport.resume_reading()
        if self._reading:
            self._limit_time()

    async def _enable(self, request: Request, caller: Caller) -> None:
        """The first answer waits until the scope's enabling is durable."""
        worker, page = self.worker, caller.page
        try:
            await worker.enable(page.name)
            await asyncio.sleep(worker.first_answer_delay_seconds)
        except Unavailable:
            worker.board.unreported.add(page.name)
        # Whatever the scope has become meanwhile, this is what is shown now.
        answer = caller.page.answers[request.version]
        if not is_known(request.etags, caller, answer):
            self._serve(request, caller, answer.full, worker.monotonic())
        elif request.wait_seconds:
            self._hold(request, caller)
        else:
            self._serve(request, caller, answer.unchanged, worker.monotonic())

    async def _approve(self, request: Request, caller: Caller, body: bytes) -> None:
        """The 200 is sent only when the approval is durable."""
        try:
            ids = start_requests.parse(body)
            unknown = await self.worker.approve(caller.name, ids)
        except BadBody as bad:
            self._write(request, reply(400, faults.bad_body(str(bad))))
        except Unavailable:
            self._write(request, NO_APPROVALS_NOW)
        else:
            not_found = reply(400, faults.event_not_found(unknown)) if unknown else APPROVED
            self._serve(request, caller, not_found, self.worker.monotonic())

    def _hold(self, request: Request, caller: Caller) -> None:
        """Hold the answer until the document changes or the wait is over (RFC 7240)."""
        page = caller.page
        loop = asyncio.get_running_loop()
        timer = loop.call_later(request.wait_seconds, self.page_changed)
        self._held = (page, request, caller, timer)
        self.deadline = _NEVER
        if page.waiters is None:
            page.waiters = set()
        page.waiters.add(self)
        self.worker.held_count += 1

    def page_changed(self) -> None:
        """The page changed, or the wait is over: answer with what is shown now."""
        held = self._held
        if held is None:
            return
        _, request, caller, _ = held
        self._stop_holding()
        if self._caller_of(request) is not caller:
            # The VM that began to wait is gone, or its address is another's now.
            self._write(request._replace(close=True), self._stranger())
            return
        answer = caller.page.answers[request.version]
        shown = answer.unchanged if is_known(request.etags, caller, answer) else answer.full
        self._write(request, _preferred(shown, request.wait_seconds))
        caller.page.asked_at = caller.asked_at = self.worker.monotonic()
        if shown is answer.full and caller.served is not answer:
            self.worker.board.note(caller, answer, self.worker.clock.wall())
        self._go_on()

    def waits_as(self, caller: Caller) -> bool:
        """Whether it is this VM that waits here."""
        return self._held is not None and self._held[2] is caller

    def _stop_holding(self) -> None:
        if self._held is not None:
            page, _, caller, timer = self._held
            self._held = None
            self.worker.held_count -= 1
            timer.cancel()
            for waited in (page, caller.page):
                if waited.waiters is not None:
                    waited.waiters.discard(self)


def _preferred(answer: Reply, seconds: int) -> Reply:
    """The answer to a request that was, or could have been, held (RFC 7240)."""
    applied = b"\r\nPreference-Applied: wait=%d" % seconds
    return answer._replace(
        tail=applied + answer.tail,
        tail_close=applied + answer.tail_close,
        tail_kept=applied + answer.tail_kept,
    )
