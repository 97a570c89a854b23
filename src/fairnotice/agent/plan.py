"""What to do next about an event. Pure: what is known comes in, one action goes out.

Whoever carries it out writes a line for it in the journal and asks again, until there is nothing to
do but to wait. So a plan that was cut off anywhere goes on from its journal.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.agent.records import GIVEN, Ending, Outcome, Phase, Record, Step
from fairnotice.agent.rules import Acknowledge, Course, OnFailure, WhenShort
from fairnotice.client.document import Event
from fairnotice.words import EventStatus

# For a handler that says nothing of its own: to recover, and where time is short and it is run all
# the same.
RECOVER_SECONDS = 300.0
SHORT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Run:
    """Run this handler, for at most so long."""

    phase: Phase
    handler: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PassOver:
    """Do not run this handler; the step says why."""

    step: Step


@dataclass(frozen=True, slots=True)
class Prepared:
    """Note that the preparation is over."""


@dataclass(frozen=True, slots=True)
class GiveGoAhead:
    """See to it that the event is acknowledged."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Note that the event is not shown any more."""


@dataclass(frozen=True, slots=True)
class Over:
    """Note that nothing is left to do, ever."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something changes."""


Action = Run | PassOver | Prepared | GiveGoAhead | Gone | Over | Wait


class Limits(NamedTuple):
    """How much time there is."""

    # All is over so long before NotBefore.
    margin_seconds: float
    # The most that a handler takes, where it says so.
    handlers: Mapping[str, float]
    # The handlers that there are; None: whichever are asked for.
    known: Container[str] | None = None

    def has(self, handler: str) -> bool:
        """Whether there is such a handler."""
        return self.known is None or handler in self.known


def decide(
    record: Record,
    shown: Event | None,
    now: datetime,
    limits: Limits,
    others: Iterable[Record] = (),
    *,
    may_retry: bool = True,
) -> Action:
    """The next thing to do about an event, as the document shows it now (None: it is gone).

    `others` are the records of other events. `may_retry` is not so for a while after the go-ahead
    or a recover was tried and came to nothing.
    """
    if record.over:
        return Wait()
    if shown is None and not record.gone:
        return Gone()
    if shown is None or record.gone:
        return _recover(record, limits, others, may_retry=may_retry)
    if may_retry and wants_go_ahead(record, shown):
        return GiveGoAhead()
    return Wait() if record.prepared else _prepare(record, shown, now, limits)


# ---- Preparing ----


def seconds_left(shown: Event, now: datetime, margin_seconds: float) -> float | None:
    """How long there is to prepare, 0 where it is too late; None where nobody says."""
    if shown.status != EventStatus.SCHEDULED:
        return 0.0
    if shown.not_before is None:
        return None
    left = shown.not_before - now - timedelta(seconds=margin_seconds)
    return max(0.0, left.total_seconds())


def _prepare(record: Record, shown: Event, now: datetime, limits: Limits) -> Action:
    course = record.course
    left = [name for name in course.prepare if record.step(Phase.PREPARE, name) is None]
    if not left or (record.failed and course.on_failure is OnFailure.STOP):
        return Prepared()
    handler, *later = left
    seconds = _time_for(course, handler, later, shown, now, limits)
    if seconds is not None:
        return Run(Phase.PREPARE, handler, seconds)
    there_is = seconds_left(shown, now, limits.margin_seconds) or 0.0
    own = limits.handlers.get(handler)
    why = _too_short(own, there_is, started=shown.status != EventStatus.SCHEDULED)
    return PassOver(Step(Phase.PREPARE, handler, Outcome.SKIPPED, why))


def _time_for(  # noqa: PLR0917 - all that the time depends on
    course: Course, handler: str, later: list[str], shown: Event, now: datetime, limits: Limits
) -> float | None:
    """How long a handler has to prepare; None where it does not fit into what is left."""
    there_is = seconds_left(shown, now, limits.margin_seconds)
    own = limits.handlers.get(handler)
    if there_is is None:
        # An event without NotBefore that is not Started: nothing is promised.
        return own or SHORT_SECONDS
    if there_is > 0 and (own is None or own <= there_is):
        return own or _share(there_is, later, limits.handlers)
    # Whoever lets an event begin at once has handlers that need not be over before it does.
    if course.when_short is WhenShort.RUN or course.acknowledge is Acknowledge.AT_ONCE:
        return there_is or own or SHORT_SECONDS
    return None


def _share(seconds: float, later: list[str], limits: Mapping[str, float]) -> float:
    """For a handler that does not say how long it takes, so that a late one leaves some for others.

    What later ones say that they need is kept for them, and the rest is shared by those who say
    nothing; but each has its even part at least.
    """
    kept = sum(limits.get(name, 0.0) for name in later)
    silent = 1 + sum(name not in limits for name in later)
    return max((seconds - kept) / silent, seconds / (1 + len(later)))


def _too_short(own: float | None, there_is: float, *, started: bool) -> str:
    if started:
        return "the event had started"
    needs = f"it takes {own:g} s and " if own is not None and there_is else ""
    return f"{needs}{there_is:.1f} s were left" if there_is else "no time was left"


# ---- Acknowledging ----


def wants_go_ahead(record: Record, shown: Event) -> bool:
    """Whether this VM would have the event go ahead now, as far as it is concerned."""
    course = record.course
    if (
        record.acknowledgement
        or course.acknowledge is Acknowledge.NEVER
        or shown.status != EventStatus.SCHEDULED
        or not shown.names(record.vm)
    ):
        return False
    if course.acknowledge is Acknowledge.AT_ONCE:
        return True
    return record.prepared and (not record.failed or course.on_failure is OnFailure.ACKNOWLEDGE)


def withheld(record: Record, shown: Event) -> str:
    """Why no go-ahead is going to be given, as it is now; empty where it may be, or is settled."""
    course = record.course
    if record.acknowledgement:
        return ""
    if course.acknowledge is Acknowledge.NEVER:
        return "its rule acknowledges nothing"
    if not shown.names(record.vm):
        return "it names others only"
    if course.acknowledge is Acknowledge.WHEN_PREPARED and course.on_failure is not (
        OnFailure.ACKNOWLEDGE
    ):
        lacking = record.not_done(Phase.PREPARE)
        if lacking:
            return f"not done: {', '.join(lacking)}"
    return "" if shown.status == EventStatus.SCHEDULED else "it has started"


# ---- Recovering ----


def how_it_ended(record: Record, now: datetime, *, watched: bool) -> Ending:
    """What an event came to that is not shown any more; `watched`: nobody was away meanwhile.

    The document never says so. One that was Started is over. One that is gone before it was due,
    and before anybody heard a go-ahead from here, was canceled.
    """
    event = record.event
    if event.is_started:
        return Ending.OVER
    early = event.not_before is not None and now < event.not_before
    asked = record.acknowledgement == GIVEN
    return Ending.CANCELED if watched and early and not asked else Ending.UNKNOWN


def _recover(
    record: Record, limits: Limits, others: Iterable[Record], *, may_retry: bool
) -> Action:
    owed = [name for name in record.course.recover if _owed(record, name, limits)]
    again = [name for name in record.course.recover if record.to_try_again(name)]
    stuck = [name for name in record.unrecovered if name not in owed]
    # Nobody is let in to what is still drained.
    owed = [name for name in owed if not (stuck and name in record.course.gates)]
    if not owed and not (again and may_retry):
        return Wait() if again or stuck else Over()
    # What failed comes behind the others: whoever fails for ever keeps nobody else drained.
    [handler, *_] = owed or sorted(again, key=lambda name: _tries(record, name))
    if any(one.needs(handler) for one in others):
        # What is drained stays so while another event is going to come.
        return Wait()
    return Run(Phase.RECOVER, handler, limits.handlers.get(handler, RECOVER_SECONDS))


def _owed(record: Record, handler: str, limits: Limits) -> bool:
    """Whether this handler is still to be recovered.

    One that was never to prepare comes with the others: it is there to say that all is over.
    """
    step = record.step(Phase.RECOVER, handler)
    if step is not None:
        return limits.has(handler) if step.outcome is Outcome.MISSING else record.cut_short(handler)
    return record.begun(handler) or (handler not in record.course.prepare and record.any_begun)


def _tries(record: Record, handler: str) -> int:
    step = record.step(Phase.RECOVER, handler)
    return 0 if step is None else step.tries


# ---- After a crash ----


def seconds_to_end(
    record: Record, step: Step, shown: Event | None, now: datetime, limits: Limits
) -> float:
    """How long a handler still has that an earlier life of the agent has begun."""
    own = limits.handlers.get(step.handler)
    if step.phase is Phase.RECOVER:
        return own or RECOVER_SECONDS
    if shown is None:
        # It is told to end at once.
        return own or SHORT_SECONDS
    later = [name for name in record.course.prepare if record.step(step.phase, name) is None]
    seconds = _time_for(record.course, step.handler, later, shown, now, limits)
    if seconds is None:
        return seconds_left(shown, now, limits.margin_seconds) or 0.0
    return seconds


# ---- When NotBefore is moved ----


def seconds_moved(  # noqa: PLR0917 - all that the time depends on
    record: Record, step: Step, shown: Event, now: datetime, limits: Limits, spent_seconds: float
) -> float | None:
    """How long a handler has from now that prepares for so long already; None: as it was."""
    there_is = seconds_left(shown, now, limits.margin_seconds)
    course = record.course
    late = not there_is and course.when_short is WhenShort.RUN
    if there_is is None or late or course.acknowledge is Acknowledge.AT_ONCE:
        return None
    own = limits.handlers.get(step.handler)
    if own is not None:
        return min(max(0.0, own - spent_seconds), there_is)
    later = [name for name in course.prepare if record.step(step.phase, name) is None]
    return _share(there_is, later, limits.handlers)
