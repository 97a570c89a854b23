"""What all connections of one endpoint process share: the board, the rate, the date, the counts."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from fairnotice.clock import Clock
from fairnotice.errors import Unavailable, UsageError
from fairnotice.metadata import rate
from fairnotice.metadata.board import Answer, Board, Caller
from fairnotice.metadata.crowd import Crowd
from fairnotice.metadata.faulted_pages import Documents, FaultedPages
from fairnotice.metadata.faults import OF_DOCUMENTS, Fault, Faults
from fairnotice.metadata.rate import ROUNDING_SECONDS, Rate
from fairnotice.metadata.replies import Reply
from fairnotice.metadata.request import Request
from fairnotice.metadata.respond import About, Describe
from fairnotice.model import Document
from fairnotice.wire import identity_bodies
from fairnotice.wire.document import rfc1123
from fairnotice.wire.versions import SCHEDULED_EVENTS

log = logging.getLogger(__name__)

# Requests whose bytes are remembered, and how long such a request may be.
KNOWN_MAX = 8_192
KNOWN_BYTES_MAX = 1_024

# Azure lets the first answer of a scope wait up to two minutes.
FIRST_ANSWER_DELAY_SECONDS_MAX = 120


Value = TypeVar("Value")


class Limits(NamedTuple):
    """What a connection may cost, and how many connections one address may have."""

    head_bytes_max: int = 16 * 1024
    body_bytes_max: int = 64 * 1024
    request_seconds_max: float = 10.0
    idle_seconds_max: float = 75.0
    queued_requests_max: int = 100
    connections_per_address_max: int = 256


# Takes a VM's name and event ids; the ids its scope never saw, none where all are approved.
# Raises errors.Unavailable where it cannot be recorded now.
Approve = Callable[[str, tuple[str, ...]], Awaitable[tuple[str, ...]]]
# Takes a scope's name; done when its enabling is durable and published. Raises Unavailable.
Enable = Callable[[str], Awaitable[None]]
# Takes a VM's name, for what and by which name it asks for the token of an identity; the status and
# the body of the answer. Raises Unavailable.
Identify = Callable[[str, str, str], Awaitable[tuple[int, bytes]]]
# Takes a VM's name, its request and the status of the answer.
Observer = Callable[[str, Request, int], None]


def _nothing_known(_: str) -> About | None:
    return None


def _nothing_shown(_: str) -> Document | None:
    return None


async def _no_identity(_: str, __: str, ___: str) -> tuple[int, bytes]:
    return 400, identity_bodies.NOT_FOUND


class Worker:
    """One endpoint process, as far as its connections are concerned."""

    def __init__(
        self,
        board: Board,
        clock: Clock,
        approve: Approve,
        enable: Enable,
        describe: Describe = _nothing_known,
        *,
        documents: Documents = _nothing_shown,
        rate_limit: Rate | None = rate.DEFAULT,
        limits: Limits | None = None,
        first_answer_delay_seconds: float = 0.0,
    ) -> None:
        if not 0 <= first_answer_delay_seconds <= FIRST_ANSWER_DELAY_SECONDS_MAX:
            raise UsageError(
                f"first_answer_delay_seconds is {first_answer_delay_seconds}; "
                f"give 0 to {FIRST_ANSWER_DELAY_SECONDS_MAX}"
            )
        self.board = board
        self.clock = clock
        self.monotonic = clock.monotonic
        self.approve = approve
        self.enable = enable
        self.describe = describe
        # Set by whoever signs tokens; without, no VM has an identity.
        self.identify: Identify = _no_identity
        self.rate_limit = rate_limit
        self.limits = limits or Limits()
        self.first_answer_delay_seconds = first_answer_delay_seconds
        # Whole requests already seen, by their bytes. Measured: it takes parsing, about 9 µs,
        # off nearly every poll.
        self.known: dict[bytes, Request] = {}
        # Polls answered 200 and 304, by position of their api-version; all other answers by
        # (status, api-version).
        self.polls = [0] * len(SCHEDULED_EVENTS)
        self.unchanged = [0] * len(SCHEDULED_EVENTS)
        self.answers: Counter[tuple[int, str]] = Counter()
        # Polls that took the long way, among the other answers.
        self._long_polls = 0
        self.crowd = Crowd(self.limits.connections_per_address_max)
        self.connections = self.crowd.guests
        self.held_count = 0
        # Commits under way, whether or not anybody still waits for them.
        self._commits: set[asyncio.Future[Any]] = set()
        self.faults = Faults(board, clock, self._fault_changed)
        self.faulted = FaultedPages(self.faults, documents, clock)
        # Told of every answer, where a test wants to know what its client asks for. It is set
        # before the first request, since then no request is remembered: all go the long way.
        self.observer: Observer | None = None
        self.date = b""
        self.date_until = 0.0
        self.now = self.monotonic()
        self.renew_date(self.now)
        # For the metrics: polls up to the last sweep, and how many a second came then.
        self._polls_swept = 0
        self.polls_per_second = 0.0
        self._swept_at = self.now

    def poll(self, request: Request, caller: Caller) -> Reply | None:
        """The answer to a plain poll, all checks made; None where it takes the long way."""
        page = caller.page
        if not page.enabled:
            return None
        now = self.now = self.monotonic()
        rate_limit = self.rate_limit
        if rate_limit is not None:
            # rate.admit, written out: measured, 0.3 of 7.7 µs a poll.
            interval_seconds, burst_seconds = rate_limit
            before = caller.busy_until
            busy_until = (before if before > now else now) + interval_seconds  # noqa: FURB136 - a call
            if busy_until - now > burst_seconds + ROUNDING_SECONDS:
                return None
            caller.busy_until = busy_until
        if now >= self.date_until:
            self.renew_date(now)
        answer = page.answers[request.version]
        page.asked_at = caller.asked_at = now
        etags = request.etags
        # is_known, written out: measured, 0.05 us.
        if etags and (answer.etag in etags or b"*" in etags):
            self.unchanged[request.version] += 1
            return answer.unchanged
        self.polls[request.version] += 1
        if caller.served is not answer:
            self.board.note(caller, answer, self.clock.wall())
        return answer.full

    def shown_to(self, caller: Caller, version: int) -> Answer:
        """The document as a VM is shown it on the long way."""
        answers = self.faulted.answers(caller) if self.faults.on else None
        return (answers or caller.page.answers)[version]

    def heard(self, caller: Caller, now: float) -> None:
        """A VM has asked for the document on the long way: its scope is enabled, or stays so."""
        caller.asked_at = now
        self.board.heard(caller.page, now)

    def served(self, request: Request, caller: Caller, shown: Reply, now: float) -> None:
        """A request for the document was answered 200 or 304 on the long way: it counts."""
        self.heard(caller, now)
        if request.post:
            return
        self._long_polls += 1
        answer = self.shown_to(caller, request.version)
        if shown is answer.full or shown is answer.unchanged:
            self.faults.spoiled.update(self.faulted.kinds(caller.name))
        if shown is answer.full and caller.served is not answer:
            self.board.note(caller, answer, self.clock.wall())

    def commit(self, work: Awaitable[Value]) -> Awaitable[Value]:
        """Something that is carried through, also when whoever waits for it goes away."""
        under_way = asyncio.ensure_future(work)
        waited_for = asyncio.shield(under_way)

        def done(commit: asyncio.Future[Value]) -> None:
            self._commits.discard(commit)
            error = None if commit.cancelled() else commit.exception()
            if waited_for.cancelled() and error is not None and not isinstance(error, Unavailable):
                log.error("a commit failed that nobody waited for", exc_info=error)

        self._commits.add(under_way)
        under_way.add_done_callback(done)
        return waited_for

    async def settled(self, seconds: float) -> None:
        """Return when no commit is under way and whoever waited is answered; at most so late."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._commits:
                    await asyncio.wait(set(self._commits))
                    # An answer is written a turn of the loop after its commit, or begins another.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)

    def renew_date(self, now: float) -> None:
        """Render the Date anew; it is good until the second is over."""
        wall = self.clock.wall()
        self.date = rfc1123(wall).encode("ascii")
        self.date_until = now + 1.0 - wall.microsecond / 1e6

    def remember(self, data: bytes, request: Request) -> None:
        """The same bytes are the same request from now on."""
        if len(data) <= KNOWN_BYTES_MAX and not self.faults.on and self.observer is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            self.known[data] = request

    def _fault_changed(self, fault: Fault) -> None:
        """A fault was set or cleared."""
        # A request that is not known takes the long way, so the others need not look.
        self.known.clear()
        self.faulted.forget(fault)
        if fault.kind in OF_DOCUMENTS:
            self.board.wake(fault.vm)

    def sweep(self) -> None:
        """End what has taken too long, and see how many polls came since last time."""
        now = self.monotonic()
        polls = sum(self.polls) + sum(self.unchanged) + self._long_polls
        passed = now - self._swept_at
        if passed > 0:
            self.polls_per_second = (polls - self._polls_swept) / passed
        self._polls_swept, self._swept_at = polls, now
        self.crowd.sweep(now)
        self.faults.sweep()
