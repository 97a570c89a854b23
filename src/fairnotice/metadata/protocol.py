"""One connection of a VM: bytes in, answers out, in order.

`data_received` is the hot path: bytes seen before are a request understood before, and its answer
is on the board. Whatever is rarer than that is read by reading.py, answered by `_answer`, and
waits, if it has to, by waits.py.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Coroutine, Hashable
from typing import Any, cast

from fairnotice.metadata.board import Caller, is_known
from fairnotice.metadata.faults import SPOILING, STAND_INS, Fault, FaultKind
from fairnotice.metadata.identity import (
    Door,
    address_of,
    caller_at,
    is_doubted,
    nearest_names,
)
from fairnotice.metadata.rate import admit, retry_after_seconds
from fairnotice.metadata.reading import Read, Reader, refusal
from fairnotice.metadata.replies import NOT_MODIFIED, OK, Reply, compose, reply
from fairnotice.metadata.request import NOT_FOUND, Request, Target
from fairnotice.metadata.respond import Later, refuse, respond
from fairnotice.metadata.spoiled import spoiled, stand_in
from fairnotice.metadata.waits import OVER, Held, approve, enable, identify
from fairnotice.metadata.worker import Worker
from fairnotice.wire import error_bodies

log = logging.getLogger(__name__)

TOO_LARGE = reply(413, error_bodies.TOO_LARGE)
TIMED_OUT = reply(408, error_bodies.TIMED_OUT)
FAILED = reply(500, error_bodies.FAILED)

# What an observer is told of a request that was dropped.
NO_ANSWER = 0

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# How long somebody who is still sending may go on after he was answered.
LINGER_SECONDS = 2.0

_NEVER = math.inf


class Connection(asyncio.Protocol):
    """A connection and the request it is reading. One VM, or nobody we know, is at its end."""

    def __init__(self, worker: Worker, door: Door, received: bytes = b"") -> None:
        # What was received before the connection was handed over.
        self._received = received
        self.worker = worker
        self.door = door
        self.transport: asyncio.Transport = None  # type: ignore[assignment] # set before any use
        self.address = ""
        self.peer: Hashable | None = None
        self.caller: Caller | None = None
        self.identities = 0
        # It came from a VM's address and was not that VM: nothing makes this connection good.
        self._doubted = False
        self._began_at = 0.0
        self.deadline = _NEVER
        self._reader = Reader(worker.limits, worker.remember)
        # Requests read and not answered yet, because one before them has to wait.
        self._queue: deque[Read] = deque()
        # What the answer that is due waits for: a commit, or a change of the document.
        self._waits: asyncio.Task[None] | Held | None = None
        # Nothing is read any more after the last request; nothing is written after the close.
        self._final = False
        self._closing = False
        self._stalled = False
        # It has said that it says no more, so it may have gone: nothing is held for it.
        self._ended = False

    # ---- The transport's calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connects; who it is follows from where."""
        # uvloop's transports have the interface of asyncio's, but not their class.
        self.transport = cast("asyncio.Transport", transport)
        self.address = address_of(transport.get_extra_info("peername"))
        # On a laptop everybody comes from one address.
        self.peer = None if self.door.prefix_allowed else (self.door, self.address)
        self._recognise()
        self._began_at = self.worker.monotonic()
        self.deadline = self._began_at + self.worker.limits.request_seconds_max
        self.worker.crowd.let_in(self)
        if self._received and not self._closing:
            # Here, before anything else can be received.
            received, self._received = self._received, b""
            self.data_received(received)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more: whatever was held for it is let go, a commit goes on."""
        del exc
        self._closing = True
        self.worker.crowd.let_go(self)
        self._queue.clear()
        self._stop_waiting()

    def eof_received(self) -> bool:
        """It has said all it has to say; what it asked for is still answered, and not held."""
        self._final = self._ended = True
        if isinstance(self._waits, Held):
            self._look_again()
        return self._is_waiting() and not self._closing

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
        try:
            worker = self.worker
            request = worker.known.get(data)
            # _is_waiting, written out: one call less for each poll.
            busy = self._waits is not None or self._stalled or self._reader.reading
            if request is None or busy:
                self._read(data)
                return
            if self.identities != worker.board.identities:
                self._recognise()
            caller = self.caller
            answer = worker.poll(request, caller) if request.plain and caller is not None else None
            if answer is None:
                self._answer(Read(request))
            elif request.close:
                self.transport.write(answer.head + worker.date + answer.tail_close)
                self._close()
            else:
                self.transport.write(answer.head + worker.date + answer.tail)
                self.deadline = worker.now + worker.limits.idle_seconds_max
        except Exception as error:  # noqa: BLE001 - ours, whatever it is: the VM is told 500
            self._fail(error)

    # ---- Reading ----

    def _read(self, data: bytes) -> None:
        """Read what is new, and answer each request that ends with it."""
        began = not self._reader.reading
        for read in self._reader.feed(data) if not self._final else ():
            began = True
            self._enqueue(read)
            if self._final:
                return
        if began and self._reader.reading:
            self._limit_time()
        self._tell_to_go_on()

    def _limit_time(self) -> None:
        """A request has to be finished in time, but not while another one waits before it."""
        if not self._is_waiting():
            self.deadline = self.worker.monotonic() + self.worker.limits.request_seconds_max

    def _tell_to_go_on(self) -> None:
        """Whoever waits to be told so may send his body, when it is his turn."""
        if self._reader.expects and not self._is_waiting() and not self._closing:
            self._reader.expects = False
            self.transport.write(CONTINUE)

    def _enqueue(self, read: Read) -> None:
        if read.why:
            log.debug("%s from %s", read.why, self.address)
        self._final = read.request.close
        if self._is_waiting():
            self._queue.append(read)
            if len(self._queue) >= self.worker.limits.queued_requests_max:
                self.transport.pause_reading()
        else:
            self._answer(read)

    def _is_waiting(self) -> bool:
        return self._waits is not None or self._stalled

    # ---- Answering ----

    def _answer(self, read: Read) -> None:
        """Answer, or begin to wait for what the answer needs."""
        try:
            self._answer_or_wait(read)
        except Exception as error:  # noqa: BLE001 - ours, whatever it is: the VM is told 500
            self._fail(error)

    def _answer_or_wait(self, read: Read) -> None:
        request, worker = read.request, self.worker
        caller = self._caller_of(request)
        if isinstance(caller, Reply):
            self._write(request._replace(close=True) if self._doubted else request, caller)
            return
        refused = refuse(request, self._count(caller, worker.monotonic()))
        if refused is not None:
            self._write(request, refused)
        elif worker.faults.on:
            self._meet_faults(read, caller)
        else:
            self._take(read, caller)

    def _take(self, read: Read, caller: Caller) -> None:
        """Answer a request with which nothing is wrong, or begin to wait."""
        request, worker = read.request, self.worker
        now = worker.monotonic()
        answer = worker.shown_to(caller, request.version)
        result = respond(request, caller, answer, worker.describe)
        if isinstance(result, Reply):
            self._serve(request, caller, result, now)
        elif result is Later.HOLD:
            self._show(request, caller, now + request.wait_seconds)
        elif not self._has_stayed(caller):
            self._turn_away(request)
        elif result is Later.ENABLE:
            self._wait_for(self._enable(request, caller, now + request.wait_seconds))
        elif result is Later.IDENTIFY:
            self._wait_for(self._identify(request, caller))
        elif read.too_large:
            self._write(request._replace(close=True), TOO_LARGE)
        else:
            self._wait_for(self._approve(request, caller, read.body))

    def _meet_faults(self, read: Read, caller: Caller) -> None:
        """A fault is on, for this VM or for another."""
        delay_seconds = self.worker.faults.delay_seconds(caller.name)
        if delay_seconds:
            self._wait_for(self._come_late(read, caller, delay_seconds))
        else:
            self._stand_in(read, caller)

    async def _come_late(self, read: Read, caller: Caller, delay_seconds: float) -> None:
        """Nothing is said, nor done for the request, until then."""
        await asyncio.sleep(delay_seconds)
        if self._caller_of(read.request) is caller:
            self._stand_in(read, caller)
        else:
            self._turn_away(read.request)

    def _stand_in(self, read: Read, caller: Caller) -> None:
        """Answer in the service's place, or let it answer."""
        faults, request = self.worker.faults, read.request
        fault = faults.first_of(STAND_INS, caller.name)
        if fault is None:
            if faults.of_document(caller.name):
                # What it is shown may change with time alone: nothing is held.
                read = read._replace(request=request._replace(wait_seconds=0))
            self._take(read, caller)
            return
        faults.spoiled[fault.kind] += 1
        if request.target is Target.EVENTS:
            # A fault is none of the law's: as far as it knows this VM listens.
            self.worker.heard(caller, self.worker.monotonic())
        answer = stand_in(fault)
        if answer is None:
            self._observe(request, NO_ANSWER)
            self._close()
        else:
            self._write(request, answer)

    def _fail(self, error: BaseException) -> None:
        """A fault of ours: it is logged, said, and the end of this connection."""
        log.error("an answer failed", exc_info=error)
        failed = refusal(FAILED, "")
        self._final = True
        if self._is_waiting():
            self._queue.append(failed)
        else:
            self._write(failed.request, FAILED)

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
                or reply(
                    404, error_bodies.unknown_name(request.name, nearest_names(board, request.name))
                )
            )
        self._recognise()
        return self.caller or request.early or self._stranger()

    def _stranger(self) -> Reply:
        if self.door.vm is not None:
            return reply(403, error_bodies.unknown_owner(self.door.vm))
        unknown = error_bodies.unknown_caller(self.address, hint=self.door.prefix_allowed)
        return reply(403, unknown)

    def _turn_away(self, request: Request) -> None:
        """The VM that asked is gone, or its address is another's now."""
        self._write(request._replace(close=True), self._stranger())

    def _recognise(self) -> None:
        """Say who is at the other end: he may have been removed since, or have become known."""
        board = self.worker.board
        self.identities = board.identities
        self.caller = None if self._doubted else caller_at(board, self.door, self.address)
        if self.caller is None:
            self._doubted = self._doubted or is_doubted(board, self.door, self.address)

    def _has_stayed(self, caller: Caller) -> bool:
        """Whether nobody else can have sent what is to be done for this VM."""
        stayed = self.door.stayed
        if stayed is None or stayed(self.address, caller.name, self._began_at):
            return True
        self._doubted = True
        return False

    def _count(self, caller: Caller, now: float) -> int:
        """Count a request; where it is one too many, in how many seconds to try again."""
        rate = self.worker.rate_limit
        if rate is None or admit(caller, now, rate):
            return 0
        return retry_after_seconds(caller, now, rate)

    def _serve(self, request: Request, caller: Caller, answer: Reply, now: float) -> None:
        """Write an answer, and take note where it is to a request for the document."""
        fault = None
        if self.worker.faults.on:
            fault = self.worker.faults.first_of(SPOILING, caller.name)
        if fault is not None:
            request, answer = self._spoil(fault, request, answer)
        if request.target is Target.EVENTS and answer.status in (OK, NOT_MODIFIED):
            # First: where this fails, another answer is written.
            self.worker.served(request, caller, answer, now)
            if request.wait_seconds and not self._ended:
                answer = _preferred(answer, request.wait_seconds)
        self._write(request, answer)

    def _spoil(self, fault: Fault, request: Request, answer: Reply) -> tuple[Request, Reply]:
        """What is written in place of an answer, and whether it is the last."""
        found = spoiled(fault, request, answer)
        if found is not answer:
            self.worker.faults.spoiled[fault.kind] += 1
        cut = fault.kind is FaultKind.CUT_OFF
        return request._replace(close=True) if cut else request, found

    def _write(self, request: Request, answer: Reply) -> None:
        if self._closing:
            return
        worker = self.worker
        now = worker.monotonic()
        if now >= worker.date_until:
            worker.renew_date(now)
        data = compose(answer, worker.date, close=request.close, kept=request.kept)
        if request.head:
            data = data[: data.index(b"\r\n\r\n") + 4]
        # Before it is written: whoever reads the answer may look at once.
        self._observe(request, answer.status)
        self.transport.write(data)
        worker.answers[answer.status, request.api_version] += 1
        self.deadline = now + worker.limits.idle_seconds_max
        if request.close:
            self._close()

    def _observe(self, request: Request, status: int) -> None:
        if self.worker.observer is not None and self.caller is not None:
            self.worker.observer(self.caller.name, request, status)

    def _close(self) -> None:
        self._final = self._closing = True
        self._queue.clear()
        reading = self._reader.reading
        patience = LINGER_SECONDS if reading else self.worker.limits.idle_seconds_max
        self.deadline = self.worker.monotonic() + patience
        if reading and self.transport.can_write_eof():
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
        elif self._reader.reading and not self._final:
            self._enqueue(refusal(TIMED_OUT, "not finished in time"))
        else:
            self._close()

    def end(self) -> None:
        """It ends now: whatever waits here is answered no more."""
        self._final = self._closing = True
        self._stop_waiting()
        self.transport.abort()

    # ---- Waiting ----

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        self.deadline = _NEVER
        self._waits = asyncio.get_running_loop().create_task(work)
        self._waits.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[None]) -> None:
        if self._waits is task:
            self._waits = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._go_on()

    def _stop_waiting(self) -> None:
        waits, self._waits = self._waits, None
        if isinstance(waits, Held):
            waits.let_go()
        elif waits is not None:
            waits.cancel()

    def _go_on(self) -> None:
        """Answer what was read meanwhile, until something has to wait again."""
        while self._queue and not self._is_waiting() and not self._closing:
            self._answer(self._queue.popleft())
        if self._closing or self._is_waiting():
            return
        if self._final:
            self._close()
            return
        self.transport.resume_reading()
        if self._reader.reading:
            self._limit_time()
            self._tell_to_go_on()

    async def _enable(self, request: Request, caller: Caller, ends_at: float) -> None:
        """The first answer waits until the scope's enabling is durable."""
        await enable(self.worker, caller.page, delayed=True)
        self._show(request, caller, ends_at)

    async def _approve(self, request: Request, caller: Caller, body: bytes) -> None:
        """The 200 is sent only when the approval is durable."""
        answer = await approve(self.worker, caller, body)
        self._serve(request, caller, answer, self.worker.monotonic())

    async def _identify(self, request: Request, caller: Caller) -> None:
        """The token is for the VM that asked: where that is gone meanwhile, nobody has it."""
        answer = await identify(self.worker, caller, request)
        if self._caller_of(request) is caller:
            self._serve(request, caller, answer, self.worker.monotonic())
        else:
            self._turn_away(request)

    def _show(self, request: Request, caller: Caller, ends_at: float) -> None:
        """Answer with what is shown now; where that is known already, hold until then."""
        if self._caller_of(request) is not caller:
            self._turn_away(request)
            return
        if self.worker.faults.of_document(caller.name):
            request, ends_at = request._replace(wait_seconds=0), OVER
        now = self.worker.monotonic()
        answer = self.worker.shown_to(caller, request.version)
        known = is_known(request.etags, answer)
        if known and ends_at > now and not self._ended:
            self._waits = Held(self.worker, request, caller, ends_at, self._look_again)
            self.deadline = _NEVER
        else:
            self._serve(request, caller, answer.unchanged if known else answer.full, now)

    def _look_again(self) -> None:
        """The page changed, or the wait is over: show what is there now."""
        held = self._waits
        if not isinstance(held, Held):
            return
        self._stop_waiting()
        request, caller = held.request, held.caller
        try:
            if caller.page.enabled or not self._has_stayed(caller):
                self._show(request, caller, held.ends_at)
            else:
                self._wait_for(self._enable(request, caller, held.ends_at))
        except Exception as error:  # noqa: BLE001 - ours; whoever published must not meet it
            self._fail(error)
        self._go_on()


def _preferred(answer: Reply, seconds: int) -> Reply:
    """The answer to a request that was, or could have been, held (RFC 7240)."""
    applied = b"\r\nPreference-Applied: wait=%d" % seconds
    return answer._replace(
        tail=applied + answer.tail,
        tail_close=applied + answer.tail_close,
        tail_kept=applied + answer.tail_kept,
    )
