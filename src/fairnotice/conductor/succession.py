"""One of several control planes: it follows whoever leads, leads in its turn, and steps down."""

import asyncio
import logging
from abc import abstractmethod
from datetime import datetime

from fairnotice.clock import Clock
from fairnotice.conductor.doubts import Doubts
from fairnotice.conductor.feed import Feed
from fairnotice.conductor.following import RETRY_SECONDS, Following
from fairnotice.conductor.leading import Lead, Leader, Reign, not_leading
from fairnotice.conductor.orders import Orders
from fairnotice.conductor.submissions import Submission, give_up
from fairnotice.conductor.waking import Waking
from fairnotice.engine import Decision, Fleet
from fairnotice.errors import LeadLost, Unavailable

log = logging.getLogger(__name__)


class Succession:
    """That part of the conductor; the rest of it decides, and has the store and the driver."""

    # The rest has them.
    fleet: Fleet
    feed: Feed
    _clock: Clock
    _latest: datetime
    _doubts: Doubts
    _orders: Orders
    _waking: Waking
    _waiting: list[Submission]
    _arrived: asyncio.Event

    def __init__(self) -> None:
        self.epoch = 0
        # The life that takes commands has begun here.
        self._leads = False
        # Where several share a store: our part in who leads, and our reading after the others.
        self._lead: Lead | None = None
        self._following: Following | None = None

    @abstractmethod
    async def _load(self) -> None: ...

    @abstractmethod
    async def _begin_life(self, *, takeover: bool) -> Decision: ...

    @abstractmethod
    def _begin_waking(self) -> None: ...

    @abstractmethod
    async def _end_waking(self) -> None: ...

    # ---- What it is ----

    @property
    def leading(self) -> bool:
        """Whether commands are taken here."""
        return self._leads and (self._lead is None or self._lead.has(self.epoch))

    @property
    def leader(self) -> Leader | None:
        """Who leads, where several share a store; None where nobody does or it is not known."""
        return None if self._lead is None else self._lead.leader

    @property
    def shares(self) -> bool:
        """Whether this is one of several that share a store."""
        return self._lead is not None

    @property
    def lag_seconds(self) -> float:
        """For how long a process that follows has not known that it is where the journal ends."""
        behind = self._following is not None and not self.leading
        return self._following.lag_seconds if behind and self._following is not None else 0.0

    # ---- What it does ----

    def _lead_changed(self) -> None:
        """Who leads may be another: whoever waits for something looks."""
        self._arrived.set()
        if self._following is not None:
            self._following.interrupt()

    async def _follow(self, following: Following) -> None:
        """Take in what others have committed; lead, where the lead was won."""
        reign = None if self._lead is None else self._lead.reign
        try:
            if reign is not None:
                await self._take_over(following, reign)
            else:
                until = await following.beyond(self.fleet.revision)
                if until is not None:
                    await following.read_to(until, self.fleet, self._load)
        except LeadLost as error:
            self._step_aside(error)
        except Unavailable as error:
            if following.lost or reign is not None:
                self._doubts.begin(error)
            if following.lost:
                self.feed.cut()
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self._doubts.end()
            self.feed.mend()

    async def _take_over(self, following: Following, reign: Reign) -> None:
        """Lead: from here on nobody else's commit is made, so the journal holds still."""
        self.epoch = reign.epoch
        await following.read_to(await following.end(), self.fleet, self._load)
        self._latest = reign.wall_clock(self._clock.wall(), self.fleet.recorded_at)
        await self._begin_life(takeover=reign.takeover)
        self._doubts.settled()
        self._leads = True
        self._begin_waking()
        log.warning("leads now, in epoch %d from revision %d on", self.epoch, self.fleet.revision)

    async def _step_down(self) -> None:
        """Lead no more, and have no part in what was begun: whoever leads now asks for it."""
        self._leads = False
        log.warning("leads no more: epoch %d is over here", self.epoch)
        await self._end_waking()
        await self._orders.drop()
        self._waking.timers.clear()
        self._doubts.settled()
        if self._following is not None:
            self._following.begin()
        waiting, self._waiting = self._waiting, []
        give_up(waiting, not_leading(self.leader))

    def _step_aside(self, error: LeadLost) -> None:
        """The store says that another epoch has begun, before the lease did."""
        log.warning("%s", error)
        if self._lead is not None:
            self._lead.give_up(self.epoch)

    def _deposed(self, error: LeadLost) -> None:
        """It was alone, and another leads: nothing is done or shown here any more."""
        self._leads = False
        self._doubts.begin(error)
        self.feed.cut()
        waiting, self._waiting = self._waiting, []
        self._arrived.clear()
        give_up(waiting, error)
