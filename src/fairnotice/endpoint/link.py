"""The endpoint's side of the control plane: it follows, confirms, reports and passes on.

While no control plane can be reached, what was told last goes on being shown; what was served is
kept, approvals are not taken, and the metrics say since when.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from fairnotice.clock import Clock
from fairnotice.control.loops import Loops
from fairnotice.endpoint.enabling import Enabling
from fairnotice.endpoint.front import Served
from fairnotice.endpoint.holding import Holding, Told
from fairnotice.endpoint.passing import SENSELESS, Passing, Refused
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.unreported import Unreported
from fairnotice.errors import Unavailable

log = logging.getLogger(__name__)

# Between two tries: doubled each time, and somewhere in the upper half of it, so that 500 endpoints
# do not come back at the same instant.
RETRY_SECONDS = 0.25
RETRY_SECONDS_MAX = 10.0
# Somebody who has nothing to report is heard of so often all the same.
REPORT_SECONDS_MAX = 30.0
# What was served is reported together with what is served in the next moment.
TOGETHER_SECONDS = 0.5
# Cut off for so long, nobody is asked any more before the answer is no.
PATIENCE_SECONDS = 5.0
FOLLOWING, REPORTING = "following", "reporting"


class Shown(Protocol):
    """Somebody who shows what was told: in this process, or a worker's."""

    @property
    def revision(self) -> int:
        """What it shows by now."""

    def show(self, told: Told) -> None:
        """Show what these lines, which belong together, say."""


class Link:
    """One node's endpoint, as the control planes know it."""

    def __init__(
        self, passing: Passing, clock: Clock, unreported: Unreported, saved: Saved
    ) -> None:
        self.holding = Holding()
        self.unreported = unreported
        self.saved = saved
        self.loops = Loops(clock)
        # Whether what is held is shown: what is from an earlier life, not at once.
        self.showing = False
        # Set when every control plane was asked for its feed in vain.
        self.asked_all = asyncio.Event()
        self._asked_in_vain = 0
        self._passing = passing
        self._enabling = Enabling(self._enable)
        self._clock = clock
        self._fronts: list[Shown] = []
        self._chance = random.Random()  # noqa: S311 - when to try again is no secret
        # Monotonic; None while a feed is read and its snapshot has come.
        self.cut_off_since: float | None = clock.monotonic()
        self.connections_count = 0
        # Up to where the control plane wants a word, and has it.
        self._wanted = 0
        self.confirmed = 0
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.TimerHandle | None = None

    # ---- Who shows it ----

    def add(self, front: Shown) -> None:
        """Have what was told shown by this one too, from now on."""
        self._fronts.append(front)
        if self.showing:
            self._show_all(front)

    def show_saved(self) -> None:
        """Show what an earlier life was told, where nobody has told anything since."""
        if not self.showing:
            self.showing = True
            for front in self._fronts:
                self._show_all(front)

    def _show_all(self, front: Shown) -> None:
        told = self.holding.all()
        if told is not None:
            front.show(told)

    def remove(self, front: Shown) -> None:
        """Let this one go."""
        self._fronts.remove(front)

    def showed(self) -> None:
        """Somebody shows more than before."""
        self._news.set()

    @property
    def shown(self) -> int:
        """The revision that all of them show; 0 while there is nobody."""
        return min((front.revision for front in self._fronts), default=0)

    @property
    def connected(self) -> bool:
        """Whether a control plane tells what there is."""
        return self.cut_off_since is None

    @property
    def cut_off_seconds(self) -> float:
        """For how long nobody has told anything."""
        since = self.cut_off_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def tell(self, told: Told) -> None:
        """Have this shown by all."""
        self.showing = True
        self.saved.keep(told)
        for front in self._fronts:
            front.show(told)
        if told.at.confirm:
            self._wanted = told.at.revision
        self._news.set()

    # ---- Following ----

    async def following(self, first_told: Callable[[], None]) -> None:
        """Follow one control plane after another, for ever."""
        pause_seconds, said = RETRY_SECONDS, ""
        while True:
            self.loops.turned(FOLLOWING)
            try:
                await self._passing.say("join", {})
                await self._follow(first_told)
                why = "the control plane has ended the feed"
            except Unavailable as error:
                why = str(error)
            except Exception:
                # Nobody would be told anything any more, while all seems well.
                self.loops.faults_count += 1
                log.exception("what was told could not be shown")
                why = "a fault of the endpoint itself"
            if self.connected:
                pause_seconds = RETRY_SECONDS
                self.cut_off_since = self._clock.monotonic()
                log.warning("cut off: what was told last is served. %s", why)
            elif why != said:
                log.warning("no control plane tells anything: %s", why)
            said = why
            self._asked_in_vain += 1
            if self._asked_in_vain >= len(self._passing):
                self.asked_all.set()
            self._passing.turn()
            await self._clock.sleep(pause_seconds * self._chance.uniform(0.5, 1.0))
            pause_seconds = min(pause_seconds * 2, RETRY_SECONDS_MAX)

    async def _follow(self, first_told: Callable[[], None]) -> None:
        self.holding.begin()
        async with contextlib.aclosing(  # type: ignore[type-var]
            self._passing.feed(self.holding.revision)
        ) as feed:
            async for line in feed:
                self.loops.turned(FOLLOWING)
                told = self.holding.take(line)
                if told is None:
                    continue
                self.tell(told)
                if not self.connected:
                    self.cut_off_since = None
                    # Later it is the end of a trouble, and as loud as its beginning was.
                    level = logging.WARNING if self.connections_count else logging.INFO
                    self.connections_count += 1
                    # Another control plane may not have the word that this one's feed asks for.
                    self.confirmed = 0
                    log.log(level, "following %s", self._passing.first.url)
                    first_told()

    # ---- Reporting ----

    def gathered(self, served: Served) -> None:
        """Keep what was served, until it is reported."""
        self.unreported.add(served)
        if self._soon is None or self._soon.when() < self._loop.time():
            self._soon = self._loop.call_later(TOGETHER_SECONDS, self._news.set)

    def collect(self, path: Path) -> None:
        """Take up what a worker that is gone has written and perhaps not said."""
        if self.unreported.collect(path):
            self._news.set()

    def was_away(self, scopes: Iterable[str], seconds: float) -> None:
        """For so long this endpoint served nobody, until now."""
        self.unreported.add_unserved(scopes, seconds, self._clock.wall())
        self._news.set()

    async def reporting(self) -> None:
        """Report whatever there is, at once; and every now and then that there is nothing."""
        pause_seconds = RETRY_SECONDS
        while True:
            await self._until_news()
            try:
                await self.report()
                pause_seconds = RETRY_SECONDS
            except Unavailable as error:
                log.info("what was served cannot be reported now: %s", error)
                self._news.set()
                await self._clock.sleep(pause_seconds * self._chance.uniform(0.5, 1.0))
                pause_seconds = min(pause_seconds * 2, RETRY_SECONDS_MAX)

    async def _until_news(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPORT_SECONDS_MAX):
                await self._news.wait()

    async def report(self) -> None:
        """Say what is shown and what was served, until there is nothing left to say."""
        self._news.clear()
        while True:
            self.loops.turned(REPORTING)
            batch = self.unreported.batch()
            # What is not on disk would not be shown by a next life that is cut off.
            kept = min(self.shown, self.saved.revision)
            confirms = kept if self._wanted > self.confirmed < kept else 0
            connection = self.connections_count
            said = {**batch, "confirmed": confirms} if confirms else batch
            try:
                if await self._must_join(await self._passing.say("report", said)):
                    confirms = 0
            except Refused as error:
                if error.status not in SENSELESS:
                    raise
                # Said again it would be refused again, and all that follows would wait for it.
                log.error("a part of what was served is dropped: %s", error)  # noqa: TRY400
                self.unreported.dropped_count += 1
                confirms = 0
            self.unreported.reported(batch)
            if connection == self.connections_count:
                # Else another feed asks anew, and it may be another that has this word.
                self.confirmed = max(self.confirmed, confirms)
            if not len(self.unreported):
                return

    async def _must_join(self, answer: dict[str, Any]) -> bool:
        """Whether no endpoint of this node is known there: then it has joined again."""
        if answer.get("joined") is not False:
            return False
        log.warning("no endpoint of this node is known any more: it joins again")
        await self._passing.say("join", {})
        # What was confirmed before counts for nothing.
        self.confirmed = 0
        return True

    # ---- What VMs ask for ----

    async def approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        """Pass an approval on; the events that the VM's scope never saw."""
        self._must_be_near()
        # Whoever approves has looked: that goes with it, since the approval may be his end.
        seen = self.unreported.seen_by(vm)
        asked = {"vm": vm, "events": list(events), "seen": seen}
        answer = await self._passing.say("approve", asked)
        self.unreported.reported({"seen": [{**one, "vm": vm} for one in seen]})
        return tuple(map(str, answer.get("unknown", ())))

    async def enable(self, scope: str) -> None:
        """Pass on that somebody asks for the first time."""
        self._must_be_near()
        await self._enabling.enable(scope)

    async def _enable(self, scopes: list[str]) -> list[str]:
        answer = await self._passing.say("enable", {"scopes": scopes})
        return list(map(str, answer.get("elsewhere", ())))

    async def identify(self, vm: str, resource: str, identity: str) -> tuple[int, bytes]:
        """Pass on that a VM asks for the token of its identity; what it is to be answered."""
        self._must_be_near()
        asked = {"vm": vm, "resource": resource, "identity": identity}
        answer = await self._passing.say("identity", asked)
        return int(answer["status"]), str(answer["body"]).encode()

    async def renew(self, trust: ssl.SSLContext | None) -> None:
        """Say the token that is there now, and believe whom this vouches for."""
        await self._passing.renew(trust)

    async def close(self) -> None:
        """Keep no connection."""
        await self._passing.close()

    def _must_be_near(self) -> None:
        if self.cut_off_seconds > PATIENCE_SECONDS:
            raise Unavailable("no control plane can be reached")
