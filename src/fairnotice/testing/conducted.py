"""A stage behind a real conductor and a real store, which may crash at any commit.

The clock is the test's and so are the machines: an impact ends when the test says so. All else is
what a service runs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from fairnotice.conductor.conductor import Conductor
from fairnotice.drivers.driver import Capabilities, Found, Order, Report
from fairnotice.engine import AZURE, Decision, Fleet, Refusal, Timing, decide
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Command
from fairnotice.engine.invariants import check, check_indexes
from fairnotice.engine.tables import TABLES
from fairnotice.model import Impact, Moment
from fairnotice.stores.store import Store
from fairnotice.testing.manual_clock import DEFAULT_START
from fairnotice.testing.stage import Stage, Witness
from fairnotice.words import ImpactKind

Result = TypeVar("Result")


class Crash(Exception):
    """The process died here."""


class CrashPoint(StrEnum):
    """Where a process dies that is about to commit."""

    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit"


class ConductedStage(Stage):
    """A stage whose commands go through a conductor and its store.

    `open_store` opens the same store again after each crash; `crash` says, at every commit,
    where the process dies, if at all. What the process knew is then held against what is
    remembered.
    """

    def __init__(
        self,
        timing: Timing = AZURE,
        start: datetime = DEFAULT_START,
        witness: Witness | None = None,
        *,
        open_store: Callable[[], Store],
        crash: Callable[[], CrashPoint | None] = lambda: None,
    ) -> None:
        super().__init__(timing, start, witness)
        self.crashes_count = 0
        self._loop = asyncio.new_event_loop()
        self._open_store = open_store
        self._crash = crash
        # What was decided last; whether it is durable; whether the witness has seen it.
        self._decided: tuple[Command, Decision | Refusal, Moment] | None = None
        self._durable = False
        self._witnessed = False
        self._dies_at: CrashPoint | None = None
        self._store, self.conductor = self._new_process()
        self._begin(takeover=False)

    def _new_process(self) -> tuple[Store, Conductor]:
        store = self._open_store()
        crashing = _CrashingStore(store, self._before_commit, self._after_commit)
        timing, hands = self.fleet.timing, _Hands(self)
        conductor = Conductor(crashing, hands, self.clock, timing, decide=self._note)
        self.timers = conductor.timers
        return store, conductor

    def close(self) -> None:
        """Let go of the conductor, its store and its loop."""
        self._run(self.conductor.close())
        self._loop.close()

    @property
    def now(self) -> Moment:
        """This instant, as the conductor has it: never back within one life."""
        return self.conductor.now()

    # ---- Commands ----

    def ask(self, command: Command) -> Decision | Refusal:
        """Have the conductor carry a command out; if it dies meanwhile, ask the next one."""
        self.last_command = command
        self.commands_count += 1
        while True:
            try:
                decision = self._run(self.conductor.submit(command))
            except Crash:
                done = self._decided[1] if self._durable and self._decided else None
                self._die()
                self._begin(takeover=False)
                # What is durable is done. What is not never was, and the client tries again.
                if done is not None:
                    return done
            else:
                self._settle()
                return decision

    def restart(self, *, takeover: bool = False) -> Decision:
        """The process dies and lives again."""
        self._durable = False
        self._die()
        decision = self._begin(takeover=takeover)
        self.tick()
        return decision

    def _begin(self, *, takeover: bool) -> Decision:
        """Begin a life; if it dies in its first commit, another one, until one does not."""
        while True:
            try:
                decision = self._run(self.conductor.start(takeover=takeover, waking=False))
            except Crash:
                self._die()
            else:
                self._settle()
                return decision

    def _die(self) -> None:
        """Hold what is remembered against what the process knew, and begin a new process."""
        self.crashes_count += 1
        known = self.conductor.fleet
        if self._durable and self._decided is not None:
            decision = self._decided[1]
            assert isinstance(decision, Decision)
            for change in decision.changes:
                known.apply(change)
            self._witness_after()
        loaded = self._store.load()
        same_fleet(
            known, Fleet.load(loaded.rows, known.timing, loaded.revision, loaded.recorded_at)
        )
        self._run(self.conductor.close())
        self.under_way.clear()
        self.asked.clear()
        self._durable, self._decided = False, None
        self._store, self.conductor = self._new_process()

    # ---- Between decision and commit ----

    def _note(self, fleet: Fleet, command: Command, now: Moment) -> Decision | Refusal:
        decision = decide(fleet, command, now)
        self._decided = command, decision, now
        self._durable = self._witnessed = False
        return decision

    def _before_commit(self) -> None:
        self._dies_at = self._crash()
        if self._dies_at is CrashPoint.BEFORE_COMMIT:
            raise Crash

    def _after_commit(self) -> None:
        self._durable = True
        self._witness_before()
        if self._dies_at is CrashPoint.AFTER_COMMIT:
            raise Crash

    def _witness_before(self) -> None:
        assert self._decided is not None
        command, decision, now = self._decided
        if self.witness is not None and isinstance(decision, Decision):
            self.witness.before(self.conductor.fleet, command, decision, now)
        self._witnessed = True

    def _witness_after(self) -> None:
        assert self._decided is not None
        if self.witness is not None and isinstance(self._decided[1], Decision):
            self.witness.after(self.conductor.fleet, self._decided[2])

    def _settle(self) -> None:
        """The command is carried out: let the driver's side begin, and the witness look."""
        self.fleet = self.conductor.fleet
        self._run(asyncio.sleep(0))
        if not self._witnessed:
            self._witness_before()
        self._witness_after()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)


def same_fleet(known: Fleet, loaded: Fleet) -> None:
    """AssertionError unless both fleets are the same, and lawful."""
    # Of the indexes only these two have an order that means something (rule 16, scale-in).
    ordered = ("terminates_in_set", "vms_in_scope")
    for name in (*TABLES, *ordered, "revision", "recorded_at", "life"):
        assert getattr(known, name) == getattr(loaded, name), f"{name} was not remembered"
    assert list(known.vms) == list(loaded.vms), "the order of VMs was not remembered"
    assert not [*check(loaded), *check_indexes(loaded)], "what was remembered breaks the law"


class _Hands:
    """A driver that does nothing by itself: the stage shows what it was asked for."""

    def __init__(self, stage: "ConductedStage") -> None:
        self._stage = stage

    def _impact(self, key: str) -> Impact:
        return self._stage.conductor.fleet.impacts[key]

    def capabilities(self) -> Capabilities:
        """It can be asked for everything."""
        return Capabilities("hands", frozenset(ImpactKind), answers=True, discovers=False)

    async def impact(self, order: Order, epoch: int) -> Report:  # noqa: ARG002
        """Show it, and wait: the test reports the outcome to the law itself."""
        self._stage.under_way[order.key] = self._impact(order.key)
        self._stage.asked.pop(order.key, None)
        return await _never()

    async def outcome(
        self,
        key: str,
        epoch: int,  # noqa: ARG002
        failed_nodes: frozenset[str] = frozenset(),  # noqa: ARG002
    ) -> Report:
        """Show the question, and wait."""
        self._stage.asked[key] = self._impact(key)
        return await _never()

    async def discover(self, epoch: int) -> tuple[Found, ...]:  # noqa: ARG002
        """It sees nothing."""
        return ()

    async def close(self) -> None:
        """Nothing to let go of."""


async def _never() -> Report:
    never: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
    return await never


class _CrashingStore:
    """A store whose process may die just before or just after a commit."""

    def __init__(self, store: Store, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._store = store
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        """Everything else is the store's."""
        return getattr(self._store, name)

    def commit(self, epoch: int, after: int, changes: Sequence[Change[Any]]) -> None:
        """Commit, unless the process dies first."""
        self._before()
        self._store.commit(epoch, after, changes)
        self._after()
