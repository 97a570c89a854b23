"""Which of several control planes leads: a thread that takes the lease, and keeps it.

A thread, because a renewal must not wait for a commit, a load, or a loop that is busy. It never
waits for anything but the lease itself; and should that not answer, the loop hangs up for it.

What is decided counts by its epoch, whoever thinks that he leads: see stores/lease.py.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from typing import NamedTuple

from fairnotice.clock import Clock
from fairnotice.errors import NotLeading, Unavailable
from fairnotice.stores.lease import Lease, Standing

log = logging.getLogger(__name__)

# How often a lease is renewed while it lasts, and looked at by those who do not have it.
RENEWALS = 5
AT_ONCE_SECONDS = 0.02
# A lease that does not answer for so long is asked by a new connection.
ANSWER_SECONDS_MAX = 2.0
# How often the loop looks at the thread, and for how long the thread keeps the lead for a loop that
# does nothing any more.
WATCH_EVERY_SECONDS = 0.25
LOOP_SECONDS_MAX = 30.0
# Whoever takes the lead so soon after another had it takes over; later, nobody was there (rule 24).
TAKEOVER_SECONDS = 60.0
# By so much the clock of whoever takes over may be behind the one before: two clocks are never the
# same. What is more than that is a clock that went back (rule 25).
SKEW_MAX = timedelta(seconds=10)


class Reign(NamedTuple):
    """A lead that was taken."""

    epoch: int
    takeover: bool

    def wall_clock(self, wall: datetime, recorded_at: datetime | None) -> datetime:
        """What time it is for whoever begins it, where it was that when last recorded."""
        if self.takeover and recorded_at is not None and wall < recorded_at <= wall + SKEW_MAX:
            return recorded_at
        return wall


class Leader(NamedTuple):
    """Who leads, as far as is known here."""

    epoch: int
    address: str


def why_nobody_leads(leader: Leader | None) -> str:
    """Why nobody can be asked for a change; nothing where somebody can."""
    if leader is None:
        return "no control plane leads at the moment"
    if not leader.address:
        return (
            "a control plane leads that has no table [cluster]. End it, and one of those leads "
            "that have"
        )
    return ""


def not_leading(leader: Leader | None) -> NotLeading:
    """What is told whoever asks one that follows."""
    if leader is None or not leader.address:
        return NotLeading(why_nobody_leads(leader))
    return NotLeading(f"the control plane at {leader.address} leads", leader.address)


class Lead:
    """This control plane's part in who leads.

    `changed` is called in the loop when the lead is won or lost, `lost_touch` when the lease does
    not answer: whatever else waits for the same database waits in vain.
    """

    def __init__(
        self,
        lease: Lease,
        clock: Clock,
        *,
        changed: Callable[[], None],
        lost_touch: Callable[[], None],
    ) -> None:
        self._lease = lease
        self._clock = clock
        self._every_seconds = lease.seconds / RENEWALS
        self._changed = changed
        self._lost_touch = lost_touch
        self._lock = Lock()
        self._reign: Reign | None = None
        self._leader: Leader | None = None
        # Until when the lead is ours by our own clock: never longer than by the lease's.
        self._until = 0.0
        # What another candidate's lease looked like, and since when.
        self._seen: tuple[Standing, float] | None = None
        # Of the last one that was seen to lead alone.
        self._alone_epoch = 0
        # Something that was ours may still be: it has to be given back.
        self._to_resign = False
        self._asked_at: float | None = None
        self._loop_at = clock.monotonic()
        self._stopping = Event()
        self._thread = Thread(target=self._live, name="fairnotice-lease", daemon=True)
        self._watching: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- The loop's side ----

    @property
    def reign(self) -> Reign | None:
        """The lead, while it is ours."""
        with self._lock:
            ours = self._reign is not None and self._clock.monotonic() < self._until
            return self._reign if ours else None

    def has(self, epoch: int) -> bool:
        """Whether the lead is ours, and of this epoch."""
        reign = self.reign
        return reign is not None and reign.epoch == epoch

    @property
    def leader(self) -> Leader | None:
        """Who leads; None where nobody does, or nobody can be asked."""
        with self._lock:
            return self._leader

    def start(self) -> None:
        """Try to lead, from now on."""
        self._loop = asyncio.get_running_loop()
        self._watching = self._loop.create_task(self._watch())
        self._thread.start()

    def give_up(self, epoch: int) -> None:
        """This epoch is over, whatever the lease says."""
        with self._lock:
            if self._reign is not None and self._reign.epoch == epoch:
                self._lose()
                self._leader = None
        self._changed()

    async def close(self) -> None:
        """Lead no more, and let another lead at once."""
        if self._watching is None or self._loop is None:
            return
        self._stopping.set()
        # It may wait for a database that is gone: the watch hangs up for it.
        await self._loop.run_in_executor(None, self._thread.join)
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                self._look_at_thread()
            except Exception:
                # Without a watch nobody would notice that the lease does not answer.
                log.exception("the watch over the lease went wrong")
            await asyncio.sleep(WATCH_EVERY_SECONDS)

    def _look_at_thread(self) -> None:
        now = self._loop_at = self._clock.monotonic()
        asked_at = self._asked_at
        silent = asked_at is not None and now - asked_at > ANSWER_SECONDS_MAX
        with self._lock:
            over = self._reign is not None and now >= self._until
            if over:
                log.error("the lease could not be renewed in time: this one leads no more")
                self._lose()
            if over or silent:
                self._leader = None
        if silent:
            self._lease.hang_up()
        if over or silent:
            self._lost_touch()
            self._changed()

    # ---- The thread's side ----

    def _live(self) -> None:
        silent = False
        while not self._stopping.is_set():
            self._asked_at = self._clock.monotonic()
            try:
                wait_seconds = self._step()
                if silent:
                    log.warning("the lease can be asked again")
                silent = False
            except Unavailable as error:
                if not silent:
                    log.warning("who leads cannot be told: %s", error)
                silent = True
                wait_seconds = self._every_seconds / 2
                self._nobody_known()
            except Exception:
                log.exception("the lease went wrong")
                wait_seconds = self._every_seconds
            self._asked_at = None
            self._stopping.wait(wait_seconds)
        self._asked_at = self._clock.monotonic()
        with contextlib.suppress(Unavailable):
            if self._reign is not None or self._to_resign:
                self._lease.resign()
        self._lease.close()
        self._asked_at = None

    def _step(self) -> float:
        """Renew or try to take; how long until the next time."""
        with self._lock:
            reign = self._reign
        if reign is not None:
            return self._renew(reign)
        if self._to_resign:
            self._lease.resign()
            self._to_resign = False
        found = self._lease.look()
        if not found.free and not self._is_stuck(found):
            self._tell(None, Leader(found.epoch, found.address))
            self._say_who_is_alone(found)
            # Whoever sleeps until the very end of it loses no time when it is not renewed.
            return min(self._every_seconds, found.left_seconds + 0.005)
        return self._take(found)

    def _say_who_is_alone(self, found: Standing) -> None:
        """Once for each: nobody can be asked for anything while that one is there."""
        if not found.address and self._alone_epoch != found.epoch:
            self._alone_epoch = found.epoch
            log.warning("%s", why_nobody_leads(Leader(found.epoch, found.address)))

    def _renew(self, reign: Reign) -> float:
        began = self._clock.monotonic()
        if began - self._loop_at > LOOP_SECONDS_MAX:
            log.error("nothing moves in this control plane: another may lead")
            self._tell(None, None)
            return self._every_seconds
        if not self._lease.renew():
            self._tell(None, None)
            return AT_ONCE_SECONDS
        with self._lock:
            if self._reign is reign:
                self._until = began + self._lease.seconds
        return self._every_seconds

    def _take(self, found: Standing) -> float:
        began = self._clock.monotonic()
        if began - self._loop_at > LOOP_SECONDS_MAX:
            return self._every_seconds
        epoch = self._lease.take(found)
        if epoch is None:
            # Another was quicker; who, is asked soon.
            return AT_ONCE_SECONDS
        takeover = found.epoch > 0 and -found.left_seconds < TAKEOVER_SECONDS
        with self._lock:
            self._until = began + self._lease.seconds
        self._tell(Reign(epoch, takeover), Leader(epoch, self._lease.address))
        return self._every_seconds

    def _is_stuck(self, found: Standing) -> bool:
        """Whether it has not been renewed for as long as it lasts, by our own clock.

        The clock of the database may be set back, and then a dead leader's lease lasts for hours.
        """
        now = self._clock.monotonic()
        if self._seen is None or self._seen[0].renewed_at != found.renewed_at:
            self._seen = found, now
        return now - self._seen[1] > found.seconds

    def _nobody_known(self) -> None:
        with self._lock:
            if self._reign is None:
                self._leader = None

    def _tell(self, reign: Reign | None, leader: Leader | None) -> None:
        with self._lock:
            moved = reign != self._reign
            if moved and reign is None:
                self._lose()
            self._reign, self._leader = reign, leader
        if moved and self._loop is not None:
            # The loop may have ended before us.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._changed)

    def _lose(self) -> None:
        self._reign = None
        self._seen = None
        self._to_resign = True
