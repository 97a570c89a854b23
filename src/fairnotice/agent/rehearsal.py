"""What would be done about an event, if it were met now. Pure: the plan itself is asked."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fairnotice.agent.plan import (
    GiveGoAhead,
    Limits,
    PassOver,
    Prepared,
    Run,
    decide,
    seconds_left,
    withheld,
)
from fairnotice.agent.records import Outcome, Record, Step
from fairnotice.agent.rules import Acknowledge, Course
from fairnotice.client.document import Event


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What came of it, where every handler is done, and takes all the seconds that it says."""

    # To prepare, at the beginning; None where nobody says.
    seconds: float | None
    runs: tuple[str, ...]
    # Why, by the name of the handler.
    skipped: dict[str, str]
    acknowledges: Acknowledge
    # Why nothing is acknowledged that its rule would.
    withheld: str


def rehearse(event: Event, vm: str, course: Course, now: datetime, limits: Limits) -> Rehearsal:
    """Go through the plan for this event, with a record that nobody writes down."""
    record, instant = Record(event, vm, course), now
    gives = False
    # Each handler is asked about once, then it is prepared, and acknowledged: before or after.
    for _ in range(len(course.prepare) + 2):
        match decide(record, event, instant, limits, may_retry=not gives):
            case Run(phase, handler, _):
                record = _with(record, Step(phase, handler, Outcome.DONE))
                instant += timedelta(seconds=limits.handlers.get(handler, 0.0))
            case PassOver(step):
                record = _with(record, step)
            case Prepared():
                record = replace(record, prepared=True)
            case GiveGoAhead():
                gives = True
    steps = record.steps.values()
    return Rehearsal(
        seconds_left(event, now, limits.margin_seconds),
        tuple(step.handler for step in steps if step.outcome is Outcome.DONE),
        {step.handler: step.why for step in steps if step.outcome is Outcome.SKIPPED},
        course.acknowledge if gives else Acknowledge.NEVER,
        "" if gives else withheld(record, event),
    )


def _with(record: Record, step: Step) -> Record:
    return replace(record, steps={**record.steps, (step.phase, step.handler): step})
