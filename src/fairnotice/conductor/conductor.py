"""The one impure loop: a command is decided, made durable, applied, shown, carried out, answered.

    submit(command) ─▶ decide ─▶ store.commit ─▶ fleet.apply ─▶ followers ─▶ effects ─▶ answer

Commands that arrive together are committed together: they are decided in turn on a trial, and
nothing of it is in the fleet before it is durable. So `fleet` always shows what was committed,
and a commit that fails has changed nothing: those who asked are told so, and the next try is a
fresh one.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from fairnotice.clock import Clock
from fairnotice.conductor.feed import Feed
from fairnotice.conductor.orders import RETRY_SECONDS, Orders
from fairnotice.conductor.timers import Timers
from fairnotice.drivers.driver import Driver, Order
from fairnotice.engine import AZURE, Decision, Fleet, Refusal, Timing, decide
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Command, Restarted, Tick
from fairnotice.engine.effects import AskOutcome, BeginImpact, Effect, Subject, WakeAt
from fairnotice.engine.trial import Trial
from fairnotice.errors import JournalMoved, LeadLost, Unavailable, UsageError
from fairnotice.model import Impact, Moment
from fairnotice.stores.store import Line, Store

log = logging.getLogger(__name__)

# More commands than this are not decided in one go, so that nobody waits long for his answer.
TOGETHER_MAX = 128
# After so much deciding in a row, whoever polls gets his turn.
DECIDING_SECONDS_MAX = 0.002
# However far off the next timer is, the wall clock may be stepped: so often it is looked at.
LOOK_AT_CLOCK_SECONDS = 1.0
FORGET_EVERY_SECONDS = 24 * 3600.0
# What could not be looked at because of a bug is looked at again then.
AFTER_BUG = timedelta(hours=1)
# How often in a row the state may turn out to be another than it was thought.
CATCH_UP_MAX = 3
# Commits that failed in a row and are remembered, and changes of one that are compared.
DOUBTFUL_MAX = 100
LINES_COMPARED_MAX = 1_000_000
# From so many VMs on, the rows that were loaded are not looked at by the garbage collector.
FROZEN_FROM_VMS = 1_000

Result = TypeVar("Result")
Decide = Callable[[Fleet, Command, Moment], Decision | Refusal]


@dataclass(slots=True, eq=False)
class _Submission:
    """A command under way, and whoever waits for its answer."""

    command: Command
    answer: asyncio.Future[Decision | Refusal]
    decision: Decision | Refusal | None = None


class Conductor:
    """Keeps one fleet: the only thing that writes to its store and calls its driver.

    conductor = Conductor(store, driver, clock)
    await conductor.start()                       # loads, and makes downtime good (rule 24)
    decision = await conductor.submit(command)    # durable, in force and shown; or a Refusal
    await conductor.close()

    `submit` raises errors.Unavailable where it cannot be made durable now: nothing has changed.
    A store that is `in_memory` never waits for a disk, so it needs no thread of its own.
    """

    def __init__(
        self,
        store: Store,
        driver: Driver,
        clock: Clock,
        timing: Timing = AZURE,
        *,
        decide: Decide = decide,
        in_memory: bool = False,
    ) -> None:
        self.timing = timing
        self.fleet = Fleet(timing)
        self.feed = Feed(self.fleet, self._read_lines)
        self.timers = Timers()
        self.epoch = 0
        # Why nothing is durable at the moment; None while all is well.
        self.trouble: Unavailable | None = None
        # What could not be recorded and yet may have been: its answer was lost on the way.
        self._doubtful: list[list[Decision]] = []
        self._store = store
        self._driver = driver
        self._clock = clock
        self._decide = decide
        self._orders = Orders(driver, clock, self.submit, self._is_live)
        self._thread = None if in_memory else ThreadPoolExecutor(1, "fairnotice-store")
        self._latest = clock.wall()
        self._started = False
        self._ending = False
        # The journal holds what is not in the fleet, or it has to be made good that it did.
        self._behind = False
        self._waiting: list[_Submission] = []
        self._arrived = asyncio.Event()
        self._conducting: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._sleeper: asyncio.Future[None] | None = None

    # ---- Beginning and ending ----

    async def start(self, *, takeover: bool = False, waking: bool = True) -> Decision:
        """Take the lead, load what is remembered, and begin a new life (rules 10, 24, 25).

        Without `waking` no timer fires by itself: whoever owns the clock calls `tick`.
        """
        if self._started or self._ending:
            raise UsageError("A conductor is started once.")
        self.epoch = await self._in_store(self._store.lead)
        await self._load()
        # The clock as it is, even behind the last record: the law says so and makes it good.
        self._latest = self._clock.wall()
        decision = await self._begin_life(takeover=takeover)
        self._started = True
        self._conducting = asyncio.create_task(self._conduct())
        if waking:
            self._loops.append(asyncio.create_task(self._wake()))
            self._loops.append(asyncio.create_task(self._forget()))
        return decision

    async def _begin_life(self, *, takeover: bool) -> Decision:
        decision = self._decide(self.fleet, Restarted(takeover=takeover), self.now())
        assert isinstance(decision, Decision), decision
        await self._commit(decision.changes)
        self._take_effect([decision])
        return decision

    async def _load(self) -> None:
        """Take the state as it is remembered, and have it shown."""
        # Rows refer to nothing that refers back, so looking for cycles among them is in vain.
        # Measured with 100,000 VMs: half of the time of a start, and later 50 ms at a time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self.fleet = await self._in_store(self._load_fleet)
            self.feed.begin(self.fleet)
        finally:
            # For a few rows it is not worth it: all other garbage would be kept with them.
            if len(self.fleet.vms) >= FROZEN_FROM_VMS:
                gc.freeze()
            if collecting:
                gc.enable()

    def _load_fleet(self) -> Fleet:
        """Runs in the store's thread: a million rows take their time."""
        loaded = self._store.load()
        return Fleet.load(loaded.rows, self.timing, loaded.revision, loaded.recorded_at)

    async def close(self) -> None:
        """Take no more commands, and let go of driver and store. Nothing is lost by it."""
        if self._ending:
            return
        self._ending = True
        self._started = False
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._conducting is not None:
            # What is being committed is answered; what waits is told to come back.
            self._arrived.set()
            await self._conducting
        self._give_up(self._waiting, Unavailable("the control plane is ending"))
        await self._orders.close()
        await self._driver.close()
        await self._in_store(self._store.close)
        if self._thread is not None:
            self._thread.shutdown()

    # ---- Commands ----

    async def submit(self, command: Command) -> Decision | Refusal:
        """Have a command decided and made durable. Unavailable: nothing has changed."""
        if not self._started:
            raise Unavailable("the control plane is not ready")
        if isinstance(self.trouble, LeadLost):
            raise self.trouble
        answer: asyncio.Future[Decision | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Submission(command, answer))
        self._arrived.set()
        # Whoever asked may go away; what he asked for does not.
        return await asyncio.shield(answer)

    def keep_for(self, *, journal_days: int, history_days: int, audit_days: int) -> None:
        """Forget after so many days from now on."""
        self.timing = replace(
            self.timing,
            journal_days=journal_days,
            history_days=history_days,
            audit_days=audit_days,
        )
        self.fleet.timing = self.timing

    def foresee(self, command: Command) -> Decision | Refusal:
        """What would be decided now. Nothing changes."""
        return self._decide(self.fleet, command, self.now())

    def now(self) -> Moment:
        """This instant. Within one life it never goes back, whatever the wall clock does."""
        self._latest = max(self._latest, self._clock.wall())
        return Moment(self._latest, self._clock.monotonic())

    async def _conduct(self) -> None:
        while True:
            await self._arrived.wait()
            if self._ending:
                return
            together = self._take_waiting()
            try:
                await self._carry_out(together)
            except Exception as error:
                # A bug, and yet everybody has to be answered and the next command taken.
                log.exception("a commit went wrong")
                self._give_up(together, error)

    def _take_waiting(self) -> list[_Submission]:
        together, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        if not self._waiting:
            self._arrived.clear()
        return together

    async def _carry_out(self, together: list[_Submission]) -> None:
        try:
            decisions = await self._make_durable(together)
        except Unavailable as error:
            self._in_trouble(error)
            self._give_up(together, error)
            return
        self._out_of_trouble()
        self._take_effect(decisions)
        for one in together:
            if one.decision is not None and not one.answer.done():
                one.answer.set_result(one.decision)

    async def _make_durable(self, together: list[_Submission]) -> list[Decision]:
        """Decide and commit; again where the state turned out to be another than it was thought."""
        for _ in range(CATCH_UP_MAX):
            if self._behind:
                await self._catch_up()
            decisions = await self._decide_all(together)
            try:
                await self._commit(_changes(decisions))
            except JournalMoved:
                self._behind = True
            except LeadLost:
                raise
            except Unavailable:
                self._doubt(decisions)
                raise
            else:
                return decisions
        raise JournalMoved("the journal does not hold still: is it written by somebody else?")

    async def _decide_all(self, together: list[_Submission]) -> list[Decision]:
        """What each of them changes, seeing those before it; a bug in one fails that one alone."""
        # One command alone needs no trial: it is decided on the fleet itself.
        fleet = self.fleet if len(together) == 1 else Trial(self.fleet)
        decisions: list[Decision] = []
        began = self._clock.monotonic()
        for one in together:
            try:
                one.decision = self._decide(fleet, one.command, self.now())
            except Exception as error:
                log.exception("%s could not be decided", type(one.command).__name__)
                self._give_up([one], error)
                continue
            if isinstance(one.decision, Decision):
                decisions.append(one.decision)
                if fleet is not self.fleet:
                    for change in one.decision.changes:
                        fleet.apply(change)
            if self._clock.monotonic() - began > DECIDING_SECONDS_MAX:
                await asyncio.sleep(0)
                began = self._clock.monotonic()
        return decisions

    async def _commit(self, changes: Sequence[Change[Any]]) -> None:
        # In trouble even nothing is committed: that is how its end is found out.
        if changes or self.trouble is not None:
            after = self.fleet.revision
            await self._in_store(lambda: self._store.commit(self.epoch, after, changes))

    def _take_effect(self, decisions: list[Decision]) -> None:
        """These decisions are durable: apply them, show them, have them done."""
        changes = _changes(decisions)
        if changes:
            for change in changes:
                self.fleet.apply(change)
            self.feed.committed(changes)
        for decision in decisions:
            for warning in decision.warnings:
                log.warning("%s", warning)
            for effect in decision.effects:
                self._have_done(effect)

    def _give_up(self, together: list[_Submission], error: Exception) -> None:
        for one in together:
            if not one.answer.done():
                one.answer.set_exception(_for_one(error))
                # Whoever asked may be gone, and then nobody is there to be told.
                one.answer.exception()

    # ---- Trouble with the store ----

    def _in_trouble(self, error: Unavailable) -> None:
        if self.trouble is None:
            log.error("nothing can be recorded: %s", error)
        self.trouble = error

    def _out_of_trouble(self) -> None:
        if self.trouble is not None:
            log.warning("commands are recorded again")
        self.trouble = None
        self._doubtful.clear()

    def _doubt(self, decisions: list[Decision]) -> None:
        """This could not be recorded, and yet it may have been: its answer was lost."""
        if _changes(decisions) and len(self._doubtful) < DOUBTFUL_MAX:
            self._doubtful.append(decisions)

    async def _catch_up(self) -> None:
        """The journal goes on beyond what is known: take that over before anything else."""
        lost = await self._lost_commit()
        if lost is not None:
            self._take_effect(lost)
        else:
            # It holds what is not ours: as after another process's life.
            await self._load()
            self.timers.clear()
            await self._begin_life(takeover=True)
        self._doubtful.clear()
        self._behind = False

    async def _lost_commit(self) -> list[Decision] | None:
        """Which of the commits that failed is what the journal goes on with; None if none."""
        lines = await self._read_lines(self.fleet.revision, LINES_COMPARED_MAX)
        found = [line.change for line in lines or ()]
        return next((one for one in self._doubtful if _changes(one) == found), None)

    # ---- Effects ----

    def _is_live(self, key: str) -> bool:
        impact = self.fleet.impacts.get(key)
        return impact is not None and impact.live

    def _have_done(self, effect: Effect) -> None:
        if isinstance(effect, WakeAt):
            if self.timers.add(effect.at, effect.subject) and self._sleeper is not None:
                self._sleeper.cancel()
        elif isinstance(effect, BeginImpact):
            self._orders.begin(self._order(effect), self.epoch)
        else:
            assert isinstance(effect, AskOutcome)
            self._orders.ask(effect.impact.key, self.epoch)

    def _order(self, effect: BeginImpact) -> Order:
        impact = effect.impact
        return Order(
            key=impact.key,
            vm=impact.vm,
            kind=impact.kind,
            node=impact.source,
            target=impact.target,
            event=self._event_of(impact),
            duration_seconds=effect.duration_seconds,
            limit_seconds=(impact.limit_at - self._latest).total_seconds(),
        )

    def _event_of(self, impact: Impact) -> str | None:
        events = (
            self.fleet.events[name] for name in self.fleet.operations[impact.operation].events
        )
        return next((event.id for event in events if impact.vm in event.resources), None)

    # ---- Time ----

    async def tick(self) -> None:
        """Look at all that is due, until nothing is."""
        while subjects := self.timers.due(self.now().wall):
            await self._look_at(subjects)

    async def _look_at(self, subjects: tuple[Subject, ...]) -> None:
        try:
            await self.submit(Tick(subjects=subjects))
        except (Unavailable, asyncio.CancelledError):
            self.timers.put_back(subjects, self._latest)
            raise
        except Exception:
            # A bug, logged where it happened. The others have to be looked at all the same.
            if len(subjects) == 1:
                log.exception("%s cannot be looked at", subjects[0])
                self.timers.put_back(subjects, self._latest + AFTER_BUG)
            else:
                for subject in subjects:
                    await self._look_at((subject,))

    async def _wake(self) -> None:
        while True:
            try:
                await self.tick()
                if self.trouble is not None:
                    await self.submit(Tick(subjects=()))
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
            seconds = min(seconds, (due_at - self.now().wall).total_seconds())
        self._sleeper = asyncio.ensure_future(self._clock.sleep(max(seconds, 0.0)))
        try:
            await asyncio.wait({self._sleeper})
        finally:
            self._sleeper.cancel()
            self._sleeper = None

    async def _forget(self) -> None:
        """Once a day, delete what is kept no longer; a piece at a time, between commits."""
        while True:
            try:
                while await self._in_store(self._forget_some):
                    pass
            except Unavailable as error:
                log.warning("nothing can be forgotten now: %s", error)
            except Exception:
                log.exception("forgetting went wrong")
            await self._clock.sleep(FORGET_EVERY_SECONDS)

    def _forget_some(self) -> int:
        now = self._clock.wall()
        return self._store.forget(
            journal_before=now - timedelta(days=self.timing.journal_days),
            history_before=now - timedelta(days=self.timing.history_days),
        ) or self._store.forget_audit(now - timedelta(days=self.timing.audit_days))

    # ---- The store's thread ----

    async def history(self, about: str) -> list[Line]:
        """The story of one thing; stores.rows.about says how things are called."""
        return await self._in_store(lambda: self._store.history(about))

    def ask_store(self, question: Callable[[Store], Result]) -> "asyncio.Future[Result]":
        """What the store answers, in its own thread and between commits."""
        return self._in_store(lambda: question(self._store))

    def _read_lines(self, revision: int, limit: int) -> "asyncio.Future[list[Line] | None]":
        return self._in_store(lambda: self._store.changes_after(revision, limit))

    def _in_store(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        loop = asyncio.get_running_loop()
        if self._thread is not None:
            return loop.run_in_executor(self._thread, call)
        answer: asyncio.Future[Result] = loop.create_future()
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer meets it
            answer.set_exception(error)
        return answer


def _changes(decisions: list[Decision]) -> list[Change[Any]]:
    return [change for decision in decisions for change in decision.changes]


def _for_one(error: Exception) -> Exception:
    """The same for one of several who are told: raised twice at once it would be a muddle."""
    if not isinstance(error, Unavailable):
        return error
    told = type(error)(str(error))
    told.__cause__ = error
    return told
