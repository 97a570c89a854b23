"""What an answer may have to wait for: a change of the document, an enabling, an approval."""

import asyncio
import math
from collections.abc import Callable

from fairnotice.errors import BadBody, Unavailable
from fairnotice.metadata.board import Caller, Page
from fairnotice.metadata.replies import Reply, reply
from fairnotice.metadata.request import Request
from fairnotice.metadata.worker import Worker
from fairnotice.wire import error_bodies, identity_bodies, start_requests

APPROVED = reply(200)
NO_APPROVALS_NOW = reply(503, error_bodies.NO_APPROVALS_NOW, headers=b"Retry-After: 5\r\n")

NO_IDENTITY_NOW = reply(503, identity_bodies.AWAY, headers=b"Retry-After: 1\r\n")

OVER = -math.inf


class Held:
    """An answer that is held until the document changes or the wait is over (RFC 7240)."""

    def __init__(
        self,
        worker: Worker,
        request: Request,
        caller: Caller,
        ends_at: float,
        look_again: Callable[[], None],
    ) -> None:
        self.request = request
        self.caller = caller
        # In monotonic seconds.
        self.ends_at = ends_at
        self._worker = worker
        self._look_again = look_again
        self._page = caller.page
        if self._page.waiters is None:
            self._page.waiters = set()
        self._page.waiters.add(self)
        worker.held_count += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ends_at - worker.monotonic(), self._over)

    def page_changed(self) -> None:
        """The page has a new document, or the VM another page."""
        self._look_again()

    def _over(self) -> None:
        self.ends_at = OVER
        self._look_again()

    def waits_as(self, caller: Caller) -> bool:
        """Whether it is this VM that waits here."""
        return self.caller is caller

    def let_go(self) -> None:
        """Wait no more."""
        self._worker.held_count -= 1
        self._timer.cancel()
        for page in (self._page, self.caller.page):
            if page.waiters is not None:
                page.waiters.discard(self)


async def enable(worker: Worker, page: Page, *, delayed: bool) -> None:
    """Return when the scope's enabling is durable, or is to be reported later."""
    # What the enabling records need not be reported again.
    page.asked_at = worker.monotonic()
    try:
        await worker.commit(worker.enable(page.name))
    except Unavailable:
        worker.board.heard(page, worker.monotonic())
        return
    if delayed:
        await asyncio.sleep(worker.first_answer_delay_seconds)


async def approve(worker: Worker, caller: Caller, body: bytes) -> Reply:
    """The answer to an approval, which says 200 only when it is durable."""
    try:
        parsed = start_requests.parse(body)
        # Of an event that only this VM was shown, by a fault, the law knows nothing.
        twins = worker.faulted.twins(caller.name)
        ids = tuple(one for one in parsed if one.upper() not in twins)
        unknown = await worker.commit(worker.approve(caller.name, ids)) if ids else ()
    except BadBody as bad:
        return reply(400, error_bodies.bad_body(str(bad)))
    except Unavailable:
        return NO_APPROVALS_NOW
    if unknown:
        return reply(400, error_bodies.event_not_found(unknown))
    if not caller.page.enabled:
        # It counts as a request for the document does, and is the first that does.
        await enable(worker, caller.page, delayed=False)
    return APPROVED


async def identify(worker: Worker, caller: Caller, request: Request) -> Reply:
    """The token of a VM's identity, or why there is none."""
    try:
        status, body = await worker.identify(caller.name, request.resource, request.identity)
    except Unavailable:
        return NO_IDENTITY_NOW
    return reply(status, body)
