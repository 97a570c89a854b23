"""What the agent has done about each event: the lines of its journal, and what they add up to.

Pure. A line is written before a handler is begun and when it has ended, so whatever the journal
says is so, and what it does not say has not been begun. What became of one that was begun and never
ended, since the agent died, is asked by the next life of the agent (runner.py).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fairnotice.agent.rules import Course
from fairnotice.client.changes import Position
from fairnotice.client.document import Event


class Phase(StrEnum):
    """Before the impact, and after it."""

    PREPARE = "prepare"
    RECOVER = "recover"


class Outcome(StrEnum):
    """What came of a handler."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    # It outlived its time, or was told to end before it was done.
    LATE = "late"
    ENDED = "ended"
    # The agent died meanwhile: it may have been done, in part or whole, or not at all.
    UNKNOWN = "unknown"
    # The agent died before it did anything: as if its line had never been written.
    NOT_BEGUN = "not-begun"
    # It was not run: there was not time enough.
    SKIPPED = "skipped"
    # It could not be run: the configuration has no such handler any more.
    MISSING = "missing"


class Ending(StrEnum):
    """How an event ended."""

    OVER = "over"
    CANCELED = "canceled"
    UNKNOWN = ""


# It was tried, for as long as it might take, and is not done.
IN_VAIN = (Outcome.FAILED, Outcome.LATE)


class LineKind(StrEnum):
    """What a line of the journal says."""

    PLANNED = "planned"
    SHOWN = "shown"
    BEGUN = "begun"
    ENDED = "ended"
    PREPARED = "prepared"
    ACKNOWLEDGED = "acknowledged"
    GONE = "gone"
    OVER = "over"


# What the journal has of a go-ahead that the service took.
GIVEN = "given"
Line = dict[str, object]


@dataclass(frozen=True, slots=True)
class Step:
    """A handler in a phase, and what came of it."""

    phase: Phase
    handler: str
    outcome: Outcome
    why: str = ""
    # How often it was tried to the end, and in vain.
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """What was done about one event until now."""

    # As it was when the last line with an event was written.
    event: Event
    vm: str
    course: Course
    steps: Mapping[tuple[Phase, str], Step] = field(default_factory=dict)
    # The preparation is over, however it came out.
    prepared: bool = False
    # What became of the go-ahead: "given", "left to web-0", "refused: …"; empty until then.
    acknowledgement: str = ""
    gone: bool = False
    # How it ended, where that is known.
    ended: Ending = Ending.UNKNOWN
    over: bool = False
    # When the last line was written, as the journal has it.
    at: str = ""

    def step(self, phase: Phase, handler: str) -> Step | None:
        """What came of this handler in this phase; None where it was not begun nor passed over."""
        return self.steps.get((phase, handler))

    def begun(self, handler: str) -> bool:
        """Whether the preparation by this handler was begun: it may have done something."""
        step = self.step(Phase.PREPARE, handler)
        return step is not None and step.outcome not in (Outcome.SKIPPED, Outcome.MISSING)

    @property
    def any_begun(self) -> bool:
        """Whether any handler was begun."""
        return any(self.begun(handler) for phase, handler in self.steps if phase is Phase.PREPARE)

    @property
    def any_done(self) -> bool:
        """Whether any handler has prepared what it should."""
        done = (step.phase for step in self.steps.values() if step.outcome is Outcome.DONE)
        return Phase.PREPARE in done

    @property
    def cut_off(self) -> Step | None:
        """What was begun and has not ended: if nobody is at it, the agent died meanwhile."""
        begun = (step for step in self.steps.values() if step.outcome is Outcome.BEGUN)
        return next(begun, None)

    @property
    def failed(self) -> bool:
        """Whether some handler of the preparation did not do what it should."""
        return bool(self.not_done(Phase.PREPARE))

    def not_done(self, phase: Phase) -> tuple[str, ...]:
        """The handlers of this phase that have ended otherwise than they should."""
        # One that is at work may still do it; not so once the preparation is over.
        over = phase is Phase.PREPARE and self.prepared
        good = (Outcome.DONE,) if over else (Outcome.DONE, Outcome.BEGUN)
        return tuple(
            name
            for (of, name), step in self.steps.items()
            if of is phase and step.outcome not in good
        )

    @property
    def unrecovered(self) -> tuple[str, ...]:
        """The handlers that did not undo what they should have: somebody has to look."""
        tells = self.course.tells
        return tuple(name for name in self.not_done(Phase.RECOVER) if name not in tells)

    def holds(self, handler: str) -> bool:
        """Whether what this handler prepared for this event is not recovered, nor being so."""
        if self.over or handler not in self.course.recover:
            return False
        if self.step(Phase.RECOVER, handler) is None:
            return self.begun(handler)
        return handler in self.unrecovered

    @property
    def held(self) -> tuple[str, ...]:
        """The handlers of which that is so."""
        return tuple(name for name in self.course.recover if self.holds(name))

    def cut_short(self, handler: str) -> bool:
        """Whether the agent ended or died while this handler recovered, and it is to do so anew."""
        step = self.step(Phase.RECOVER, handler)
        if step is None or step.outcome is not Outcome.UNKNOWN:
            # One that was told to end has ended: the next life of the agent goes on with it.
            return step is not None and step.outcome is Outcome.ENDED
        return handler in self.course.recover_again

    def to_try_again(self, handler: str) -> bool:
        """Whether the recover was tried in vain, and not yet often enough."""
        step = self.step(Phase.RECOVER, handler)
        if step is None or step.outcome not in IN_VAIN:
            return False
        return step.tries < self.course.recover_tries

    def needs(self, handler: str) -> bool:
        """Whether what this handler prepared must stay so, since the event is still to come."""
        return not self.gone and self.holds(handler)


Records = dict[str, Record]


# ---- Lines ----


def planned(event: Event, vm: str, course: Course) -> Line:
    """A rule was chosen for an event."""
    return {**shown(event), "kind": LineKind.PLANNED, "vm": vm, "course": course.to_row()}


def shown(event: Event) -> Line:
    """The document shows the event otherwise than it was known."""
    kept = json.loads(Position((event,)).to_json())
    return {"kind": LineKind.SHOWN, "event": event.id, "shown": kept}


def begun(event: str, phase: Phase, handler: str) -> Line:
    """A handler is going to be run."""
    return {"kind": LineKind.BEGUN, "event": event, "phase": phase, "handler": handler}


def ended(event: str, step: Step) -> Line:
    """A handler has ended, or is not run at all."""
    row = {"kind": LineKind.ENDED, "event": event, "phase": step.phase, "handler": step.handler}
    tries = {"tries": step.tries} if step.tries else {}
    return {**row, "outcome": step.outcome, "why": step.why, **tries}


def prepared(event: str) -> Line:
    """The preparation is over."""
    return {"kind": LineKind.PREPARED, "event": event}


def acknowledged(event: str, how: str) -> Line:
    """The go-ahead was given, or is not going to be."""
    return {"kind": LineKind.ACKNOWLEDGED, "event": event, "how": how}


def gone(event: str, ended: Ending = Ending.UNKNOWN) -> Line:
    """The event is not shown any more."""
    return {"kind": LineKind.GONE, "event": event, "ended": ended}


def over(event: str) -> Line:
    """All that was prepared for it is recovered."""
    return {"kind": LineKind.OVER, "event": event}


def add(records: Records, line: Line) -> None:
    """Take a line into account. KeyError, ValueError or TypeError where it means nothing."""
    name, kind = str(line["event"]), LineKind(str(line["kind"]))
    at = str(line.get("at", ""))
    if kind is LineKind.PLANNED:
        event = _shown(line)
        course = Course.from_row(line["course"])  # type: ignore[arg-type]  # checked by what it raises
        known = records.get(name)
        if known is None:
            records[name] = Record(event, str(line["vm"]), course, at=at)
        else:
            # Another course: nothing of the one before was begun, or it would not be left.
            records[name] = replace(known, event=event, course=course, prepared=False, at=at)
        return
    records[name] = replace(_next(records[name], kind, line), at=at)


def _next(record: Record, kind: LineKind, line: Line) -> Record:
    match kind:
        case LineKind.BEGUN | LineKind.ENDED:
            step = _step(record, kind, line)
            steps = {**record.steps, (step.phase, step.handler): step}
            if step.outcome is Outcome.NOT_BEGUN:
                del steps[step.phase, step.handler]
                if step.tries:
                    # It is as it was after the try before.
                    steps[step.phase, step.handler] = replace(step, outcome=Outcome.FAILED)
            return replace(record, steps=steps)
        case LineKind.PREPARED:
            return replace(record, prepared=True)
        case LineKind.ACKNOWLEDGED:
            return replace(record, acknowledgement=str(line["how"]))
        case LineKind.SHOWN:
            return replace(record, event=_shown(line))
        case LineKind.GONE:
            return replace(record, gone=True, ended=Ending(str(line.get("ended", ""))))
        case _:
            return replace(record, over=True)


def _shown(line: Line) -> Event:
    [event] = Position.from_json(json.dumps(line["shown"])).events
    return event


def _step(record: Record, kind: LineKind, line: Line) -> Step:
    outcome = Outcome.BEGUN if kind is LineKind.BEGUN else Outcome(str(line["outcome"]))
    phase, handler = Phase(str(line["phase"])), str(line["handler"])
    before = record.step(phase, handler)
    tries = (before.tries if before is not None else 0) + (outcome in IN_VAIN)
    told = line.get("tries", tries)
    if not isinstance(told, int):
        raise TypeError(told)
    return Step(phase, handler, outcome, str(line.get("why", "")), told)


def lines_of(record: Record) -> Iterator[Line]:
    """The fewest lines that add up to this record."""
    name = record.event.id
    yield planned(record.event, record.vm, record.course)
    for step in record.steps.values():
        if step.outcome is Outcome.BEGUN:
            # Those before this one count, too.
            yield {**begun(name, step.phase, step.handler), "tries": step.tries}
        else:
            yield ended(name, step)
    if record.prepared:
        yield prepared(name)
    if record.acknowledgement:
        yield acknowledged(name, record.acknowledgement)
    if record.gone:
        yield gone(name, record.ended)
    if record.over:
        yield over(name)
