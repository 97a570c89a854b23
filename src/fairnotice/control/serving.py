"""A metadata endpoint in the conductor's own process: what it shows, and what it passes on."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.publishing import describe, publish, publish_all, shown_in
from fairnotice.engine import Decision, Fleet, Refusal, decide
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Approve, Heard, ReportServed, SeenBy
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.metadata.board import Board, FirstSeen
from fairnotice.metadata.rate import DEFAULT, Rate
from fairnotice.metadata.worker import Limits, Worker
from fairnotice.model import Moment, Requester
from fairnotice.words import Role

log = logging.getLogger(__name__)

# How often what the endpoint has gathered is handed on, and how often a scope is heard again.
REPORT_EVERY_SECONDS = 1.0
HEARD_EVERY_SECONDS = 3_600.0
# A VM is not kept waiting for longer: it is told to come back, and what it asked goes on.
ANSWER_SECONDS_MAX = 10.0


class Serving:
    """Follows the conductor's commits onto a board, and takes what its readers send.

    serving = Serving(conductor, clock)
    server = Server(serving.worker())
    """

    def __init__(self, conductor: Conductor, clock: Clock) -> None:
        self.board = Board()
        self._conductor = conductor
        self._clock = clock
        conductor.feed.follow(self)

    def worker(
        self,
        *,
        rate_limit: Rate | None = DEFAULT,
        limits: Limits | None = None,
        first_answer_delay_seconds: float = 0.0,
    ) -> Worker:
        """What the connections of an endpoint share."""
        return Worker(
            self.board,
            self._clock,
            self.approve,
            self.enable,
            lambda vm: describe(self._conductor.fleet, vm),
            documents=lambda scope: shown_in(self._conductor.fleet, scope),
            rate_limit=rate_limit,
            limits=limits,
            first_answer_delay_seconds=first_answer_delay_seconds,
        )

    # ---- What is shown ----

    def loaded(self, fleet: Fleet) -> None:
        """Put a whole fleet on the board."""
        publish_all(self.board, fleet)

    def committed(self, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:
        """Put on the board what a commit has made different."""
        publish(self.board, fleet, changes)

    # ---- What is passed on ----

    async def approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        """Approve these events for a VM, durably; those its scope never saw, and then none."""
        command = Approve(events=events, by=Requester(vm, Role.VM))
        # Whoever approves has looked: that is told first, and goes into the same commit.
        _, decision = await asyncio.gather(self.report_quietly(), self._submit(command))
        if isinstance(decision, Refusal):
            return unknown_events(self._conductor.fleet, command, self._conductor.now())
        return ()

    async def enable(self, scope: str) -> None:
        """A VM of this scope is about to be answered for the first time: durable, then shown."""
        heard = (Heard(scope, self._conductor.now().wall),)
        await self._submit(ReportServed(heard=heard))

    async def _submit(self, command: Approve | ReportServed) -> Decision | Refusal:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await self._conductor.submit(command)
        except TimeoutError as error:
            raise Unavailable("the store takes too long") from error

    async def report(self, heard_every_seconds: float = HEARD_EVERY_SECONDS) -> None:
        """Hand on what was gathered since the last time; kept for the next where it cannot be."""
        seen = self.board.take_first_seen()
        heard = self.board.take_heard(heard_every_seconds)
        if not seen and not heard:
            return
        # When it was heard is on the endpoint's clock, which a test may have taken from the law's.
        now = Moment(self._conductor.now().wall, self._clock.monotonic())
        report = served_report(seen, heard, now)
        try:
            await self._conductor.submit(report)
        except Exception:
            self.board.give_back(seen, heard)
            raise

    async def reporting(self) -> None:
        """Hand on what is gathered, every second, for as long as this process leads."""
        leads = True
        while leads:
            await self._clock.sleep(REPORT_EVERY_SECONDS)
            leads = await self.report_quietly()

    async def report_quietly(self) -> bool:
        """Report, and say so where it cannot be; False where this process leads no more."""
        try:
            await self.report()
        except LeadLost:
            return False
        except Unavailable as error:
            log.debug("what was served cannot be recorded now: %s", error)
        except Exception:
            log.exception("what was served could not be recorded")
        return True


def served_report(
    seen: Iterable[FirstSeen], heard: Iterable[tuple[str, float]], now: Moment
) -> ReportServed:
    """What a board has gathered, as the law is told: instants on the wall clock."""
    return ReportServed(
        heard=tuple(
            Heard(scope, now.wall - timedelta(seconds=now.monotonic - asked_at))
            for scope, asked_at in heard
        ),
        seen=tuple(SeenBy(*first) for first in seen),
    )


def unknown_events(fleet: Fleet, command: Approve, now: Moment) -> tuple[str, ...]:
    """Those of the events that cannot be approved by whoever asks."""
    each = {event: Approve(events=(event,), by=command.by) for event in command.events}
    return tuple(
        event for event, one in each.items() if isinstance(decide(fleet, one, now), Refusal)
    )
