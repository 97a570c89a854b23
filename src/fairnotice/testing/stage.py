"""The smallest conductor: a fleet, a clock the test owns, timers, and impacts ended by hand.

It keeps the conductor's promises and no others: a command is decided, its changes are applied,
then its effects are carried out. Nothing is stored.
"""

import heapq
from datetime import datetime, timedelta
from itertools import count
from typing import Protocol

from fairnotice.engine import AZURE, Accepted, Decision, Fleet, Refusal, Timing, decide, document
from fairnotice.engine.commands import Command, ReportOutcome, Restarted, Tick
from fairnotice.engine.effects import AskOutcome, BeginImpact, Subject, WakeAt
from fairnotice.model import Document, Impact, Moment
from fairnotice.testing.manual_clock import DEFAULT_START, ManualClock
from fairnotice.words import Outcome

# More ticks than this at one instant, and the law asks to be woken for ever.
TICKS_AT_ONCE_MAX = 1_000


class Witness(Protocol):
    """Somebody who looks at every commit."""

    def before(self, fleet: Fleet, command: Command, decision: Decision, now: Moment) -> None:
        """The decision is taken and not yet applied."""

    def after(self, fleet: Fleet, now: Moment) -> None:
        """The decision is applied."""


class Stage:
    """A fleet and its clock. Commands go in by `ask`; time passes by `advance`."""

    def __init__(
        self,
        timing: Timing = AZURE,
        start: datetime = DEFAULT_START,
        witness: Witness | None = None,
    ) -> None:
        self.clock = ManualClock(start)
        self.fleet = Fleet(timing)
        self.witness = witness
        # What the driver was asked to do and has not answered yet.
        self.under_way: dict[str, Impact] = {}
        # What the driver was asked about after a restart.
        self.asked: dict[str, Impact] = {}
        self.decisions: list[Decision] = []
        self.commands_count = 0
        self.keep_decisions = True
        self._timers: list[tuple[datetime, int, Subject]] = []
        self._sequence = count()

    @property
    def now(self) -> Moment:
        """This instant, on both clocks."""
        return Moment(self.clock.wall(), self.clock.monotonic())

    def ask(self, command: Command) -> Decision | Refusal:
        """Decide a command and, unless it is refused, carry it out."""
        self.commands_count += 1
        now = self.now
        decision = decide(self.fleet, command, now)
        if isinstance(decision, Refusal):
            return decision
        if self.witness is not None:
            self.witness.before(self.fleet, command, decision, now)
        for change in decision.changes:
            self.fleet.apply(change)
        for effect in decision.effects:
            self._carry_out(effect)
        if self.keep_decisions:
            self.decisions.append(decision)
        if self.witness is not None:
            self.witness.after(self.fleet, now)
        return decision

    def _carry_out(self, effect: BeginImpact | AskOutcome | WakeAt) -> None:
        if isinstance(effect, WakeAt):
            heapq.heappush(self._timers, (effect.at, next(self._sequence), effect.subject))
        elif isinstance(effect, BeginImpact):
            self.under_way[effect.impact.key] = effect.impact
            self.asked.pop(effect.impact.key, None)
        else:
            self.asked[effect.impact.key] = effect.impact

    def tell(self, command: Command) -> Accepted:
        """Carry out a command that must be accepted; its answer."""
        decision = self.ask(command)
        assert isinstance(decision, Decision), f"refused: {decision}"
        self.tick()
        assert isinstance(decision.answer, Accepted)
        return decision.answer

    def report(self, key: str, outcome: Outcome = Outcome.DONE, reason: str = "") -> None:
        """The driver says what became of an impact."""
        self.under_way.pop(key, None)
        self.asked.pop(key, None)
        self.tell(ReportOutcome(key=key, outcome=outcome, reason=reason))

    def restart(self, *, takeover: bool = False) -> Decision:
        """The process dies and lives again: timers and calls to the driver are lost."""
        self._timers.clear()
        self.under_way.clear()
        self.asked.clear()
        decision = self.ask(Restarted(takeover=takeover))
        assert isinstance(decision, Decision)
        self.tick()
        return decision

    def document(self, scope: str) -> Document:
        """What the VMs of this scope read."""
        return document(self.fleet, scope)

    # ---- Time ----

    @property
    def next_timer(self) -> datetime | None:
        """When the law wants to be woken next."""
        return self._timers[0][0] if self._timers else None

    def tick(self) -> None:
        """Wake the law for every timer that is due, until none is."""
        for _ in range(TICKS_AT_ONCE_MAX):
            subjects = self._due()
            if not subjects:
                return
            self.ask(Tick(subjects=subjects))
        raise AssertionError(f"the law asks to be woken for ever: {subjects}")

    def _due(self) -> tuple[Subject, ...]:
        due: dict[Subject, None] = {}
        while self._timers and self._timers[0][0] <= self.clock.wall():
            due[heapq.heappop(self._timers)[2]] = None
        return tuple(due)

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        """Let time pass, stopping at every timer on the way."""
        passed = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        self.advance_to(self.clock.wall() + passed)

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant, stopping at every timer on the way."""
        self.tick()
        while (timer := self.next_timer) is not None and timer <= instant:
            self._step_to(timer)
            self.tick()
        self._step_to(instant)
        self.tick()

    def _step_to(self, instant: datetime) -> None:
        missing = (instant - self.clock.wall()).total_seconds()
        if missing > 0:
            self.clock.advance(seconds=missing)
