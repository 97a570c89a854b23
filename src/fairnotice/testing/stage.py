"""The smallest conductor: a fleet, a clock the test owns, timers, and impacts ended by hand.

It keeps the conductor's promises and no others: a command is decided, its changes are applied,
then its effects are carried out. Nothing is stored.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Protocol

from fairnotice.conductor.timers import Timers
from fairnotice.engine import (
    AZURE,
    PROFILES,
    Accepted,
    Decision,
    Fleet,
    Forecast,
    Refusal,
    Timing,
    decide,
    document,
)
from fairnotice.engine.commands import (
    Command,
    Heard,
    ReportOutcome,
    ReportServed,
    Restarted,
    StartRollout,
    Tick,
)
from fairnotice.engine.effects import AskOutcome, BeginImpact, WakeAt
from fairnotice.errors import UnknownName, UsageError
from fairnotice.model import Document, Impact, Moment
from fairnotice.testing.manual_clock import DEFAULT_START, ManualClock, must_not_pass_backwards
from fairnotice.words import Outcome

# More ticks than this at one instant, and the law asks to be woken for ever.
TICKS_AT_ONCE_MAX = 1_000
# How many scopes are offered to whoever named one that is not there.
NAMES_OFFERED_MAX = 3


class Witness(Protocol):
    """Somebody who looks at every commit."""

    def before(self, fleet: Fleet, command: Command, decision: Decision, now: Moment) -> None:
        """The decision is taken and not yet applied."""

    def after(self, fleet: Fleet, now: Moment) -> None:
        """The decision is applied."""


class Stage:
    """A fleet, a clock that you own, and you in the place of everybody else.

    stage = Stage()                                     # or Stage("dev"), with short times
    stage.tell(ApplyFleet(spec=FleetSpec(...)))         # nodes and VMs
    stage.listen("vm:db")                               # db reads its document, so it is told
    stage.tell(Restart(id="1", by=user, vms=("db",)))   # a command that must be accepted
    (event,) = stage.document("vm:db").events
    stage.advance(minutes=4)                            # or past NotBefore, to start unapproved
    stage.tell(Approve(events=(event.id,), by=vm))      # now the impact is under way
    (key,) = stage.under_way
    stage.report(key)                                   # the driver is done; the event is gone

    To look at: `fleet` (every row: fleet.vms["db"], fleet.events[id]), `clock` (set_wall steps
    it), `under_way` (impacts to end with `report`, by key), `asked` (impacts whose outcome is
    asked for after `restart`; `report` answers too), `decisions` (all that was accepted, in
    order), `last_command`. `ask` takes what may be refused, `forecast` takes dry runs.
    """

    def __init__(
        self,
        timing: Timing | str = AZURE,
        start: datetime = DEFAULT_START,
        witness: Witness | None = None,
    ) -> None:
        self.clock = ManualClock(start)
        self.fleet = Fleet(profile(timing))
        self.witness = witness
        # What the driver was asked to do and has not answered yet.
        self.under_way: dict[str, Impact] = {}
        # What the driver was asked about after a restart.
        self.asked: dict[str, Impact] = {}
        self.decisions: list[Decision] = []
        self.last_command: Command | None = None
        self.commands_count = 0
        self.keep_decisions = True
        self.timers = Timers()

    @property
    def now(self) -> Moment:
        """This instant, on both clocks."""
        return Moment(self.clock.wall(), self.clock.monotonic())

    def ask(self, command: Command) -> Decision | Refusal:
        """Decide a command and, unless it is refused, carry it out.

        It does not tick: what the law wants to be woken for at this very instant waits until
        `tick`, `tell` or `advance`.
        """
        self.last_command = command
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
            self.timers.add(effect.at, effect.subject)
        elif isinstance(effect, BeginImpact):
            self.under_way[effect.impact.key] = effect.impact
            self.asked.pop(effect.impact.key, None)
        else:
            self.asked[effect.impact.key] = effect.impact

    def tell(self, command: Command) -> Accepted:
        """Carry out a command that must be accepted, then tick; its answer."""
        decision = self.ask(command)
        assert isinstance(decision, Decision), f"refused: {decision}"
        assert isinstance(decision.answer, Accepted), (
            "a dry run is answered by a Forecast: use stage.forecast(command)"
        )
        self.tick()
        return decision.answer

    def forecast(self, command: StartRollout) -> Forecast:
        """What this rollout would do. It is asked as a dry run: nothing has changed."""
        decision = self.ask(replace(command, dry_run=True))
        assert isinstance(decision, Decision), f"refused: {decision}"
        assert isinstance(decision.answer, Forecast)
        return decision.answer

    def listen(self, *scopes: str) -> None:
        """A VM of each of these scopes asks for its document now: they are enabled (rule 8)."""
        for scope in scopes:
            self._must_be_a_scope(scope)
        self.tell(ReportServed(heard=tuple(Heard(scope, self.clock.wall()) for scope in scopes)))

    def report(self, key: str, outcome: Outcome = Outcome.DONE, reason: str = "") -> None:
        """The driver says what became of an impact, by its key in `under_way` or `asked`."""
        self.under_way.pop(key, None)
        self.asked.pop(key, None)
        self.tell(ReportOutcome(key=key, outcome=outcome, reason=reason))

    def restart(self, *, takeover: bool = False) -> Decision:
        """The process dies and lives again: timers and calls to the driver are lost."""
        self.timers.clear()
        self.under_way.clear()
        self.asked.clear()
        decision = self.ask(Restarted(takeover=takeover))
        assert isinstance(decision, Decision)
        self.tick()
        return decision

    def document(self, scope: str) -> Document:
        """What the VMs of this scope read.

        A scope is called `vm:NAME`, `availability-set:NAME`, `scale-set:NAME:GROUP` (GROUP is
        the placement group, from 0) or `cloud-service:NAME`.
        """
        self._must_be_a_scope(scope)
        return document(self.fleet, scope)

    def _must_be_a_scope(self, name: str) -> None:
        scopes = self.fleet.scopes
        if name in scopes:
            return
        if not scopes:
            raise UnknownName(f"There is no scope {name}; there is none yet: apply a fleet.")
        offered = ", ".join(islice(self._nearest_scopes(name), NAMES_OFFERED_MAX))
        more = ", ..." if len(scopes) > NAMES_OFFERED_MAX else ""
        verb = "is" if len(scopes) == 1 else "are"
        raise UnknownName(f"There is no scope {name}; there {verb} {offered}{more}")

    def _nearest_scopes(self, name: str) -> Iterator[str]:
        """Every scope once: that of the VM or the set of this name first, then those alike."""
        known = sorted(self.fleet.scopes)
        vm = self.fleet.vms.get(name)
        own = [] if vm is None else [vm.scope]
        of = [scope for scope in known if self.fleet.scopes[scope].of == name]
        alike = get_close_matches(name, known, n=NAMES_OFFERED_MAX)
        yield from dict.fromkeys((*own, *of, *alike, *known))

    # ---- Time ----

    def tick(self) -> None:
        """Wake the law for every timer that is due, until none is."""
        for _ in range(TICKS_AT_ONCE_MAX):
            subjects = self.timers.due(self.clock.wall())
            if not subjects:
                return
            self.ask(Tick(subjects=subjects))
        raise AssertionError(f"the law asks to be woken for ever: {subjects}")

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        """Let time pass, stopping at every timer on the way."""
        passed = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        self.advance_to(self.clock.wall() + passed)

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant, stopping at every timer on the way."""
        must_not_pass_backwards(instant - self.clock.wall())
        self.tick()
        while (timer := self.timers.next) is not None and timer <= instant:
            self._step_to(timer)
            self.tick()
        self._step_to(instant)
        self.tick()

    def _step_to(self, instant: datetime) -> None:
        missing = (instant - self.clock.wall()).total_seconds()
        if missing > 0:
            self.clock.advance(seconds=missing)


def profile(timing: Timing | str) -> Timing:
    """The timing itself, or the profile of this name."""
    if isinstance(timing, Timing):
        return timing
    if timing not in PROFILES:
        names = ", ".join(PROFILES)
        raise UsageError(f"There is no timing profile {timing!r}; there are {names}")
    return PROFILES[timing]
