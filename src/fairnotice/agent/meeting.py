"""One plan at its rendezvous. Whoever is slow there holds up neither the plan nor its recovery.

A shared directory may hang for as long as it likes (a hard NFS mount does), so it is asked by a
thread that is left to itself when the time is over; by one at a time, so that what was asked last
is also what is done last.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fairnotice.agent import leader
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.handlers.patience import Work
from fairnotice.agent.leader import Say, Verdict
from fairnotice.agent.records import Record
from fairnotice.agent.rendezvous import COMMAND_SECONDS
from fairnotice.agent.rules import Leader
from fairnotice.agent.workshop import Workshop, log
from fairnotice.client.document import Event
from fairnotice.errors import HandlerFailed, RendezvousFailed

Answer = TypeVar("Answer")
# A command has its own end before this.
ASK_SECONDS = COMMAND_SECONDS + 1.0
# For so long a recovery waits until this VM counts as ready no longer.
LEAVE_SECONDS = 5.0


class Meeting:
    """What one plan says to the others, and hears of them."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        # Set when nobody needs to know any more: the event is gone, or the agent ends.
        self.stopping = threading.Event()
        # Whether this VM does not count as ready, or not any more.
        self.left = False
        self._all_ready_at: float | None = None
        self._said_ready = False
        self._trouble = ""
        self._asked: Work[Any] | None = None

    def verdict(self, record: Record, event: Event) -> Verdict:
        """What to do about the go-ahead."""
        shop = self._shop
        alone = len(event.resources) <= 1
        if record.course.leader is not Leader.RENDEZVOUS or alone:
            return leader.verdict(record.course.leader, event, record.vm)
        if shop.rendezvous is None:
            return Verdict(Say.WAIT, "the configuration has no [rendezvous] any more")
        place = shop.rendezvous
        call = self._call(record, event, ASK_SECONDS, self.stopping)
        try:
            if not self._said_ready:
                self._ask(call, lambda: place.ready(event, record.vm))
                self._said_ready = True
            ready = self._ask(call, lambda: place.who(event))
        except RendezvousFailed as error:
            return Verdict(Say.WAIT, str(error))
        now = shop.clock.monotonic()
        lacking = leader.missing(event, ready)
        # What somebody swept away is said again.
        self._said_ready = not any(name.casefold() == record.vm.casefold() for name in lacking)
        if lacking:
            self._all_ready_at = None
        elif self._all_ready_at is None:
            self._all_ready_at = now
        since = 0.0 if self._all_ready_at is None else now - self._all_ready_at
        return leader.verdict_at_rendezvous(event, record.vm, ready, since, shop.takeover_seconds)

    def leave(self, record: Record) -> bool:
        """Take back that this VM is ready: it is going to recover. Whether that was done."""
        place = self._shop.rendezvous
        if not self.left and place is not None and record.course.leader is Leader.RENDEZVOUS:
            call = self._call(record, record.event, LEAVE_SECONDS, self._shop.ending)
            try:
                self._ask(call, lambda: place.leave(record.event, record.vm))
            except RendezvousFailed as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("event %s: it still counts as ready: %s", record.event.id, error)
                return False
        self.left = True
        return True

    def _call(
        self, record: Record, event: Event, seconds: float, stopping: threading.Event
    ) -> Call:
        clock = self._shop.clock
        return Call(event, record.vm, "", clock.monotonic() + seconds, clock, stopping)

    def _ask(self, call: Call, work: Callable[[], Answer]) -> Answer:
        """What the place answers; RendezvousFailed where it does not, whatever the reason."""
        if self._asked is not None and not self._asked.ended.is_set():
            raise RendezvousFailed("The rendezvous hangs.")
        self._asked = asked = Work(work, "The rendezvous")
        try:
            return asked.answer(call)
        except RendezvousFailed:
            raise
        except HandlerFailed as error:
            raise RendezvousFailed(str(error)) from error
        except Exception as error:
            log.exception("the rendezvous: a fault of its own")
            raise RendezvousFailed(f"The rendezvous failed: {error!r}.") from error
