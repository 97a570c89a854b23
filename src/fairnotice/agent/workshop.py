"""What the plans of all events share: the document, the journal, the handlers, and one lock.

Whatever is decided is decided and written down under the lock, so that two plans that need the same
handler see each other.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from fairnotice.agent import records as law
from fairnotice.agent.handlers.handler import Handler
from fairnotice.agent.handlers.marks import Mark, Marks, can_be_left
from fairnotice.agent.journal import Journal
from fairnotice.agent.plan import Limits, withheld
from fairnotice.agent.records import Line, LineKind, Outcome, Phase, Record, Step
from fairnotice.agent.rendezvous import Rendezvous
from fairnotice.agent.rules import Rule, choose
from fairnotice.client.document import Document, Event
from fairnotice.clock import Clock
from fairnotice.words import EventStatus

log = logging.getLogger("fairnotice.agent")

# In the place of a journal's line: it is another thing that the go-ahead waits for.
WAITS = "waits"


class Workshop:
    """See above. `told` is called with each line that was written down."""

    def __init__(
        self,
        journal: Journal,
        rules: Iterable[Rule],
        handlers: Mapping[str, Handler],
        limits: Limits,
        *,
        clock: Clock,
        told: Callable[[Line], None] = lambda _: None,
    ) -> None:
        self.journal = journal
        self.handlers = handlers
        self.limits = limits
        self.clock = clock
        self.rendezvous: Rendezvous | None = None
        self.takeover_seconds = 0.0
        # Set when the agent ends.
        self.ending = threading.Event()
        self.changed = threading.Condition()
        # Grows with everything that may be of interest to a plan.
        self.news = 0
        self.document: Document | None = None
        self._rules = tuple(rules)
        self._told = told
        # Why the go-ahead for an event waits.
        self.waits: dict[str, str] = {}
        self._started: set[str] = set()
        # What an earlier life of the agent began is for the plan that began it.
        self._busy = {step.handler for one in self.live() if (step := one.cut_off) is not None}
        self._marks = Marks(journal.folder) if can_be_left() else None
        self._passed_by: set[str] = set()

    # All below is called with `changed` held, unless it says otherwise.

    def write(self, line: Line) -> None:
        """Write a line down, and tell everybody."""
        self._append(line)
        if line["kind"] == LineKind.ENDED:
            self._recover_with(line)
        self.wake()

    def _append(self, line: Line) -> None:
        self.journal.append(line)
        self._tell(line)

    def _tell(self, line: Line) -> None:
        try:
            self._told(line)
        except Exception:
            # It is on disk, and so is done: what is told of it stops no plan half way.
            log.exception("event %s: a fault of the agent", line["event"])

    def _recover_with(self, line: Line) -> None:
        """What was recovered for one event is so for those for which it had failed before."""
        if line["phase"] != Phase.RECOVER or line["outcome"] != Outcome.DONE:
            return
        name, handler = str(line["event"]), str(line["handler"])
        done = Step(Phase.RECOVER, handler, Outcome.DONE, f"with event {name}")
        for other in self.others(name):
            if not other.over and handler in other.unrecovered:
                self._append(law.ended(other.event.id, done))

    def recovered_by_hand(self, name: str) -> None:
        """Somebody has seen to what could not be recovered after this event."""
        record = self.journal.records.get(name)
        for handler in record.unrecovered if record is not None and not record.over else ():
            self.write(law.ended(name, Step(Phase.RECOVER, handler, Outcome.DONE, "by hand")))

    def hold_up(self, name: str, why: str, level: int = logging.INFO) -> None:
        """Say once why the go-ahead for an event waits; nothing: it waits no longer."""
        if why == self.waits.get(name, ""):
            return
        if why:
            self.waits[name] = why
            log.log(level, "event %s: the go-ahead waits (%s)", name, why)
        else:
            del self.waits[name]
        self._tell({"kind": WAITS, "event": name})

    def wake(self) -> None:
        """Let every plan look again."""
        self.news += 1
        self.changed.notify_all()

    def shown(self, name: str) -> Event | None:
        """An event as the document has it; None where it is gone."""
        return self.document.event(name) if self.document else None

    def others(self, name: str) -> list[Record]:
        """The records of all other events."""
        return [one for one in self.journal.records.values() if one.event.id != name]

    def live(self) -> list[Record]:
        """The records of events that are not over."""
        return [one for one in self.journal.records.values() if not one.over]

    def is_prepared(self, handler: str) -> bool:
        """Whether what this handler does has been done, for some event."""
        return any(one.holds(handler) for one in self.live())

    # ---- Handlers, one at a time each ----

    def take(self, handler: str) -> bool:
        """Have this handler for oneself, if nobody else has it."""
        if handler in self._busy:
            return False
        self._busy.add(handler)
        return True

    def give_back(self, handler: str) -> None:
        """Let others have it."""
        self._busy.discard(handler)
        self.wake()

    # ---- Marks ----

    def promised(self, event: str, phase: Phase, handler: str) -> Mark | None:
        """Marks for a handler that is going to be run; None where there can be none."""
        mark = self.left(event, phase, handler)
        try:
            if mark is not None:
                mark.promise()
        except OSError as error:
            log.warning(
                "event %s: %s %s leaves no marks (%s): if the agent dies, nobody knows its end",
                *(event, phase, handler, error),
            )
            return None
        return mark

    def left(self, event: str, phase: Phase, handler: str) -> Mark | None:
        """The marks that a handler may have left in an earlier life of the agent."""
        return None if self._marks is None else self._marks.of(event, phase, handler)

    # ---- Events ----

    def meet(self, event: Event, vm: str) -> None:
        """See to it that there is a plan for an event that is shown, if a rule is for it."""
        known = self.journal.records.get(event.id)
        if known is not None and (known.over or known.gone):
            self._once(event, "is shown again, after it was gone; nothing is done about it twice")
            return
        if known is not None and known.event != event:
            self.write(law.shown(event))
        rule = choose(self._rules, event, vm)
        if rule is None:
            self._once(event, f"names {', '.join(event.resources) or 'nobody'}; no rule is for it")
            return
        # Another course may be taken while nothing was begun: a Freeze may turn into a Reboot.
        if known is None or (not known.steps and known.course != rule.course):
            self.write(law.planned(event, vm, rule.course))
            log.info("%s: %s is for it", described(event), rule.course.called)
        if event.status != EventStatus.SCHEDULED and event.id not in self._started:
            self._started.add(event.id)
            log.info("event %s: it has started", event.id)

    def _once(self, event: Event, why: str) -> None:
        if event.id not in self._passed_by:
            self._passed_by.add(event.id)
            log.info("%s %s", described(event), why)

    def forget_others(self) -> None:
        """Keep no names of events that were passed by and are gone."""
        shown = {event.id for event in self.document.events} if self.document else set()
        self._passed_by &= shown
        self._started &= shown


def described(event: Event) -> str:
    """An event in a log line."""
    return f"event {event.id} ({event})"


def said(line: Line, record: Record) -> tuple[int, str]:
    """A line of the journal as the log tells it, and how bad it is; empty where there is no need.

    `record` is what all lines of the event add up to, this one among them.
    """
    about = f"event {line['event']}"
    match line["kind"]:
        case LineKind.BEGUN:
            return logging.INFO, f"{about}: {line['phase']} {line['handler']}"
        case LineKind.ENDED:
            why = f" ({line['why']})" if line["why"] else ""
            sentence = f"{about}: {line['phase']} {line['handler']}: {line['outcome']}{why}"
            return _said_of_end(line, record, sentence)
        case LineKind.PREPARED:
            over = "the preparation is over" if record.steps else "nothing is to be prepared"
            none = withheld(record, record.event)
            level = logging.WARNING if record.failed else logging.INFO
            return level, f"{about}: {over}{f'; no go-ahead ({none})' if none else ''}"
        case LineKind.ACKNOWLEDGED:
            refused = str(line["how"]).startswith("refused")
            level = logging.WARNING if refused else logging.INFO
            return level, f"{about}: the go-ahead is {line['how']}"
        case LineKind.GONE:
            return logging.INFO, f"{about}: gone"
        case LineKind.OVER:
            end = "all is recovered" if record.any_begun else "over; nothing had been prepared"
            return logging.INFO, f"{about}: {end}"
    return logging.INFO, ""


def _said_of_end(line: Line, record: Record, sentence: str) -> tuple[int, str]:
    handler, outcome = str(line["handler"]), line["outcome"]
    if line["phase"] == Phase.RECOVER and record.to_try_again(handler):
        return logging.WARNING, f"{sentence}; it is tried again"
    if line["phase"] == Phase.RECOVER and handler in record.unrecovered:
        what = f"fairnotice agent recovered {record.event.id}"
        return logging.ERROR, f"{sentence}; it is NOT recovered: see to it, then say so: {what}"
    # One that was told to end did what it was told: its event is gone, or the agent ends.
    good = outcome in (Outcome.DONE, Outcome.ENDED, Outcome.NOT_BEGUN)
    return (logging.INFO if good else logging.WARNING), sentence
