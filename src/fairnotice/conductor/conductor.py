"""The one impure loop: a command is decided, made durable, applied, shown, carried out, answered.

    submit(command) ─▶ decide ─▶ store.commit ─▶ fleet.apply ─▶ followers ─▶ effects ─▶ answer

Commands that arrive together are committed together: they are decided in turn on a trial, and
nothing of it is in the fleet before it is durable. So `fleet` always shows what was committed,
and a commit that fails has changed nothing: those who asked are told so, and the next try is a
fresh one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fairnotice.clock import Clock
from fairnotice.conductor.alone import Alone
from fairnotice.conductor.doubts import Doubts, changes_of
from fairnotice.conductor.feed import Feed
from fairnotice.conductor.following import RETRY_SECONDS, Following
from fairnotice.conductor.leading import Lead, not_leading
from fairnotice.conductor.log_lines import log_decision
from fairnotice.conductor.orders import Orders, failed_nodes, order_of
from fairnotice.conductor.store_thread import StoreThread
from fairnotice.conductor.submissions import Decide, Submission, answer, decide_all, give_up
from fairnotice.conductor.succession import Succession
from fairnotice.conductor.timers import Timers
from fairnotice.conductor.waking import Waking, forget_daily, forget_some
from fairnotice.drivers.driver import Capabilities, Driver
from fairnotice.engine import AZURE, Decision, Fleet, Refusal, Timing, decide
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Command, Restarted
from fairnotice.engine.effects import AskOutcome, BeginImpact, Effect, WakeAt
from fairnotice.errors import JournalMoved, LeadLost, Unavailable, UsageError
from fairnotice.model import Moment
from fairnotice.stores.lease import Lease
from fairnotice.stores.store import Line, Store

log = logging.getLogger(__name__)

# More commands than this are not decided in one go, so that nobody waits long for his answer.
TOGETHER_MAX = 128
# How often in a row the state may turn out to be another than it was thought.
CATCH_UP_MAX = 3
# Changes of a commit that failed that are compared.
LINES_COMPARED_MAX = 1_000_000

Result = TypeVar("Result")


class Conductor(Succession):
    """Keeps one fleet: the only thing that writes to its store and calls its driver.

    conductor = Conductor(store, driver, clock)
    await conductor.start()                       # loads, and makes downtime good (rule 24)
    decision = await conductor.submit(command)    # durable, in force and shown; or a Refusal
    await conductor.close()

    `submit` raises errors.Unavailable where it cannot be made durable now: nothing has changed.

    Where several processes share a store, each of them does this instead:

    await conductor.join(lease)                   # loads and follows; leads when it is its turn

    Then `submit` raises errors.NotLeading where another one leads. All else is the same: `fleet`
    and `feed` show what is committed, by whomever.
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
        super().__init__()
        self.timing = timing
        self.fleet = Fleet(timing)
        self._thread = StoreThread(store, in_memory=in_memory)
        self.feed = Feed(self.fleet, self._thread.read_lines)
        self._doubts = Doubts()
        self._store = store
        self._driver = driver
        self._clock = clock
        self._decide = decide
        self._waking = Waking(
            clock, lambda: self.now().wall, self.submit, lambda: self.trouble is not None
        )
        self._orders = Orders(
            driver, clock, self.submit, self._is_live, lambda: failed_nodes(self.fleet)
        )
        self._latest = clock.wall()
        self._ending = False
        # Where it leads alone what others may come upon: a lease all the same.
        self._alone: Alone | None = None
        self._waiting: list[Submission] = []
        self._arrived = asyncio.Event()
        self._conducting: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []

    # ---- What it is doing ----

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is recorded, or nothing heard of the journal; None while all is well."""
        return self._doubts.trouble

    @property
    def driver(self) -> Capabilities:
        """What can be done to machines."""
        return self._driver.capabilities()

    @property
    def timers(self) -> Timers:
        """What the law wants to look at again, and when."""
        return self._waking.timers

    # ---- Beginning and ending ----

    async def start(
        self, *, takeover: bool = False, waking: bool = True, lease: Lease | None = None
    ) -> Decision:
        """Take the lead, load what is remembered, and begin a new life (rules 10, 24, 25).

        Without `waking` no timer fires by itself: whoever owns the clock calls `tick`. With a
        `lease`, others that share the store see that somebody leads.
        """
        self._must_be_new()
        if lease is None:
            self.epoch = await self._in_store(self._store.lead)
        else:
            self._alone = Alone(lease, self._clock)
            self.epoch = await self._alone.take(self._deposed)
        await self._load()
        # The clock as it is, even behind the last record: the law says so and makes it good.
        self._latest = self._clock.wall()
        decision = await self._begin_life(takeover=takeover)
        self._leads = True
        self._conducting = asyncio.create_task(self._conduct())
        if waking:
            self._begin_waking()
        return decision

    async def join(self, lease: Lease) -> None:
        """Load what is remembered, follow whoever leads, and lead when it is our turn."""
        self._must_be_new()
        await self._load()
        self._following = Following(self._thread, self.feed, self._clock)
        self._lead = Lead(
            lease, self._clock, changed=self._lead_changed, lost_touch=self._store.hang_up
        )
        self._lead.start()
        self._conducting = asyncio.create_task(self._conduct())

    def _must_be_new(self) -> None:
        if self._conducting is not None or self._ending:
            raise UsageError("A conductor is started once.")

    def _begin_waking(self) -> None:
        forgetting = forget_daily(self._clock, lambda: self._in_store(self._forget_some))
        for loop in (self._waking.wake(), forgetting):
            self._loops.append(asyncio.create_task(loop))

    async def _end_waking(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops.clear()

    async def _begin_life(self, *, takeover: bool) -> Decision:
        decision = self._decide(self.fleet, Restarted(takeover=takeover), self.now())
        assert isinstance(decision, Decision), decision
        await self._commit(decision.changes)
        self._take_effect([decision])
        return decision

    async def _load(self) -> None:
        """Take the state as it is remembered, and have it shown."""
        await self._thread.load(self.timing, self._show)

    def _show(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.feed.begin(fleet)

    async def close(self) -> None:
        """Take no more commands, and let go of driver, lead and store. Nothing is lost by it."""
        if self._ending:
            return
        self._ending = True
        self._leads = False
        await self._end_waking()
        if self._conducting is not None:
            # What is being committed is answered; what waits is told to come back.
            self._lead_changed()
            await self._conducting
            # It may have begun to lead meanwhile.
            self._leads = False
            await self._end_waking()
        give_up(self._waiting, Unavailable("the control plane is ending"))
        await self._orders.drop()
        # Only now: whoever leads next asks for what we have begun.
        for held in (self._lead, self._alone):
            if held is not None:
                await held.close()
        if self._following is not None:
            await self._following.close()
        await self._driver.close()
        await self._thread.close()

    # ---- Commands ----

    async def submit(self, command: Command) -> Decision | Refusal:
        """Have a command decided and made durable. Unavailable: nothing has changed."""
        (decision,) = await self.submit_all((command,))
        return decision

    async def submit_all(self, commands: Sequence[Command]) -> list[Decision | Refusal]:
        """Have these decided in turn and made durable in one commit.

        Each sees what those before it change. One that is refused changes nothing, and nothing for
        the others.
        """
        if not self.leading:
            if isinstance(self.trouble, LeadLost):
                raise self.trouble
            if self.shares and not self._ending:
                raise not_leading(self.leader)
            raise Unavailable("the control plane is not ready")
        loop = asyncio.get_running_loop()
        asked = [Submission(command, loop.create_future()) for command in commands]
        for one in asked[:-1]:
            one.goes_on = True
        self._waiting += asked
        self._arrived.set()
        # Whoever asked may go away; what he asked for does not.
        return [await asyncio.shield(one.answer) for one in asked]

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
        """The only one who changes the fleet: by commands while it leads, after others else."""
        while not self._ending:
            try:
                if self._following is None or self._leads:
                    await self._next_commands()
                else:
                    await self._follow(self._following)
            except Exception:
                log.exception("conducting went wrong")
                await asyncio.sleep(RETRY_SECONDS)

    async def _next_commands(self) -> None:
        await self._arrived.wait()
        if not self._leads:
            return
        if self._lead is not None and not self._lead.has(self.epoch):
            await self._step_down()
            return
        together = self._take_waiting()
        try:
            await self._carry_out(together)
        except Exception as error:
            # A bug, and yet everybody has to be answered and the next command taken.
            log.exception("a commit went wrong")
            give_up(together, error)

    def _take_waiting(self) -> list[Submission]:
        count = TOGETHER_MAX
        while count < len(self._waiting) and self._waiting[count - 1].goes_on:
            count += 1
        together, self._waiting = self._waiting[:count], self._waiting[count:]
        if not self._waiting:
            self._arrived.clear()
        return together

    async def _carry_out(self, together: list[Submission]) -> None:
        try:
            decisions = await self._make_durable(together)
        except Unavailable as error:
            if self._lead is not None and isinstance(error, LeadLost):
                self._step_aside(error)
                give_up(together, not_leading(self.leader))
            elif isinstance(error, LeadLost):
                self._deposed(error)
                give_up(together, error)
            else:
                self._doubts.begin(error)
                give_up(together, error)
            return
        self._doubts.end()
        self._take_effect(decisions)
        answer(together)

    async def _make_durable(self, together: list[Submission]) -> list[Decision]:
        """Decide and commit; again where the state turned out to be another than it was thought."""
        for _ in range(CATCH_UP_MAX):
            if self._doubts.behind:
                await self._catch_up()
            decisions = await decide_all(together, self.fleet, self._decide, self.now, self._clock)
            try:
                await self._commit(changes_of(decisions))
            except JournalMoved:
                self._doubts.behind = True
            except LeadLost:
                raise
            except Unavailable:
                self._doubts.doubt(decisions)
                raise
            else:
                return decisions
        raise JournalMoved("the journal does not hold still: is it written by somebody else?")

    async def _commit(self, changes: Sequence[Change[Any]]) -> None:
        # In trouble even nothing is committed: that is how its end is found out.
        if changes or self.trouble is not None:
            after = self.fleet.revision
            await self._in_store(lambda: self._store.commit(self.epoch, after, changes))

    def _take_effect(self, decisions: list[Decision]) -> None:
        """These decisions are durable: apply them, show them, have them done."""
        changes = changes_of(decisions)
        if changes:
            for change in changes:
                self.fleet.apply(change)
            self.feed.committed(changes)
        for decision in decisions:
            log_decision(decision)
            for effect in decision.effects:
                self._have_done(effect)

    # ---- Trouble with the store ----

    async def _catch_up(self) -> None:
        """The journal goes on beyond what is known: take that over before anything else."""
        lines = await self._thread.read_lines(self.fleet.revision, LINES_COMPARED_MAX)
        # Which of the commits that failed is what the journal goes on with, if any is.
        lost = self._doubts.which([line.change for line in lines or ()])
        if lost is not None:
            self._take_effect(lost)
        else:
            # It holds what is not ours: as after another process's life.
            await self._load()
            self.timers.clear()
            await self._begin_life(takeover=True)
        self._doubts.settled()

    # ---- Effects ----

    def _is_live(self, key: str) -> bool:
        impact = self.fleet.impacts.get(key)
        return impact is not None and impact.live

    def _have_done(self, effect: Effect) -> None:
        if isinstance(effect, WakeAt):
            self._waking.add(effect.at, effect.subject)
        elif isinstance(effect, BeginImpact):
            self._orders.begin(order_of(self.fleet, effect, self._latest), self.epoch)
        else:
            assert isinstance(effect, AskOutcome)
            self._orders.ask(effect.impact.key, self.epoch)

    # ---- Time ----

    async def tick(self) -> None:
        """Look at all that is due, until nothing is."""
        await self._waking.tick()

    def _forget_some(self) -> int:
        return forget_some(self._store, self.timing, self._clock.wall())

    # ---- The store's thread ----

    async def history(self, about: str) -> list[Line]:
        """The story of one thing; stores.rows.about says how things are called."""
        return await self._in_store(lambda: self._store.history(about))

    def ask_store(self, question: Callable[[Store], Result]) -> "asyncio.Future[Result]":
        """What the store answers, in its own thread and between commits."""
        return self._in_store(lambda: question(self._store))

    def _in_store(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        return self._thread.ask(call)
