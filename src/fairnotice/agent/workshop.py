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
from fairnotice.agent.plan import Limits
from fairnotice.agent.records import Line, LineKind, Phase, Record
from fairnotice.agent.rendezvous import Rendezvous
from fairnotice.agent.rules import Rule, choose
from fairnotice.client.document import Document, Event
from fairnotice.clock import Clock

log = logging.getLogger("fairnotice.agent")


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
        # What an earlier life of the agent began is for the plan that began it.
        self._busy = {step.handler for one in self.live() if (step := one.cut_off) is not None}
        self._marks = Marks(journal.folder) if can_be_left() else None
        self._passed_by: set[str] = set()

    # All below is called with `changed` held, unless it says otherwise.

    def write(self, line: Line) -> None:
        """Write a line down, and tell everybody."""
        self.journal.append(line)
        try:
            self._told(line)
        except Exception:
            # It is on disk, and so is done: what is told of it stops no plan half way.
            log.exception("event %s: a fault of the agent", line["event"])
        self.wake()

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
        rule = choose(self._rules, event, vm)
        if rule is None:
            self._once(event, f"names {', '.join(event.resources) or 'nobody'}; no rule is for it")
            return
        # Another course may be taken while nothing was begun: a Freeze may turn into a Reboot.
        if known is None or (not known.steps and known.course != rule.course):
            self.write(law.planned(event, vm, rule.course))
            log.info("%s: rule %s is for it", described(event), rule.course.rule)

    def _once(self, event: Event, why: str) -> None:
        if event.id not in self._passed_by:
            self._passed_by.add(event.id)
            log.info("%s %s", described(event), why)

    def forget_others(self) -> None:
        """Keep no names of events that were passed by and are gone."""
        shown = {event.id for event in self.document.events} if self.document else set()
        self._passed_by &= shown


def described(event: Event) -> str:
    """An event in a log line."""
    when = f", not before {event.not_before:%Y-%m-%dT%H:%M:%SZ}" if event.not_before else ""
    return f"event {event.id} ({event.type}, {event.status}{when})"


def said(line: Line) -> str:
    """A line of the journal as the log tells it; empty where there is no need."""
    about = f"event {line['event']}"
    match line["kind"]:
        case LineKind.BEGUN:
            return f"{about}: {line['phase']} {line['handler']}"
        case LineKind.ENDED:
            why = f" ({line['why']})" if line["why"] else ""
            return f"{about}: {line['phase']} {line['handler']}: {line['outcome']}{why}"
        case LineKind.PREPARED:
            return f"{about}: the preparation is over"
        case LineKind.ACKNOWLEDGED:
            return f"{about}: the go-ahead is {line['how']}"
        case LineKind.GONE:
            return f"{about}: gone"
        case LineKind.OVER:
            return f"{about}: all is recovered"
    return ""
