"""What time brings: whatever is due is looked at, and once a day what is old is forgotten."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from fairnotice.clock import Clock
from fairnotice.conductor.orders import RETRY_SECONDS
from fairnotice.conductor.timers import Timers
from fairnotice.engine import Timing
from fairnotice.engine.commands import Tick
from fairnotice.engine.effects import Subject
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.stores.store import Store

log = logging.getLogger(__name__)

# However far off the next timer is, the wall clock may be stepped: so often it is looked at.
LOOK_AT_CLOCK_SECONDS = 1.0
FORGET_EVERY_SECONDS = 24 * 3600.0
# What could not be looked at because of a bug is looked at again then.
AFTER_BUG = timedelta(hours=1)

Tell = Callable[[Tick], Awaitable[object]]


class Waking:
    """Looks at what is due, when it is due."""

    def __init__(
        self, clock: Clock, now: Callable[[], datetime], tell: Tell, in_trouble: Callable[[], bool]
    ) -> None:
        self.timers = Timers()
        self.sleeper: asyncio.Future[None] | None = None
        self._clock = clock
        self._now = now
        self._tell = tell
        self._in_trouble = in_trouble

    def add(self, at: datetime, subject: Subject) -> None:
        """Look at this subject then."""
        if self.timers.add(at, subject) and self.sleeper is not None:
            self.sleeper.cancel()

    async def tick(self) -> None:
        """Look at all that is due, until nothing is."""
        while subjects := self.timers.due(self._now()):
            await self._look_at(subjects)

    async def _look_at(self, subjects: tuple[Subject, ...]) -> None:
        try:
            await self._tell(Tick(subjects=subjects))
        except (Unavailable, asyncio.CancelledError):
            self.timers.put_back(subjects, self._now())
            raise
        except Exception:
            # A bug, logged where it happened. The others have to be looked at all the same.
            if len(subjects) == 1:
                log.exception("%s cannot be looked at", subjects[0])
                self.timers.put_back(subjects, self._now() + AFTER_BUG)
            else:
                for subject in subjects:
                    await self._look_at((subject,))

    async def wake(self) -> None:
        """Look at everything when it is due, for as long as this process leads."""
        while True:
            try:
                await self.tick()
                if self._in_trouble():
                    await self._tell(Tick(subjects=()))
            except LeadLost:
                return
            except Unavailable:
                await self._clock.sleep(RETRY_SECONDS)
            else:
                await self._until_next()

    async def _until_next(self) -> None:
        """Sleep until the next timer is due, an earlier one comes, or the clock may have moved."""
        due_at = self.timers.next
        seconds = LOOK_AT_CLOCK_SECONDS
        if due_at is not None:
            seconds = min(seconds, (due_at - self._now()).total_seconds())
        self.sleeper = asyncio.ensure_future(self._clock.sleep(max(seconds, 0.0)))
        try:
            await asyncio.wait({self.sleeper})
        finally:
            self.sleeper.cancel()
            self.sleeper = None


def forget_some(store: Store, timing: Timing, now: datetime) -> int:
    """Delete a piece of what is kept no longer; how many lines."""
    journal_before = now - timedelta(days=timing.journal_days)
    return (
        store.forget(
            journal_before=journal_before,
            history_before=now - timedelta(days=timing.history_days),
        )
        or store.forget_audit(now - timedelta(days=timing.audit_days))
        or store.forget_dead_letters(journal_before)
    )


async def forget_daily(clock: Clock, forget: Callable[[], Awaitable[int]]) -> None:
    """Once a day, delete what is kept no longer; a piece at a time, between commits."""
    while True:
        try:
            while await forget():
                pass
        except Unavailable as error:
            log.warning("nothing can be forgotten now: %s", error)
        except Exception:
            log.exception("forgetting went wrong")
        await clock.sleep(FORGET_EVERY_SECONDS)
