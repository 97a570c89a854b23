"""One plan, carried out: a thread that decides, writes down, does, and waits for what is next."""

import logging
import threading
from datetime import datetime
from typing import Protocol

from fairnotice.agent import plan
from fairnotice.agent import records as law
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.handlers.marks import Mark, Trace
from fairnotice.agent.leader import Say
from fairnotice.agent.meeting import Meeting
from fairnotice.agent.plan import GiveGoAhead, Gone, Over, PassOver, Prepared, Run, Wait
from fairnotice.agent.records import Ending, Outcome, Phase, Record, Step
from fairnotice.agent.workshop import Workshop, log
from fairnotice.client.document import Event
from fairnotice.errors import (
    Away,
    ClientError,
    HandlerFailed,
    RequestRefused,
    Unavailable,
    UsageError,
)
from fairnotice.words import EventStatus

# A handler that was told to end has so long for it; then the plan goes on without it.
ENDING_SECONDS = 3.0
# A handler whose time is over ought to have ended by itself.
LATE_SECONDS = 0.3
LOOK_SECONDS = 0.1
# Between two tries to give the go-ahead, and between two looks who else is ready.
AGAIN_SECONDS = 1.0
AGAIN_SECONDS_MAX = 10.0
# Between two tries of a recover: so many times longer after each, up to the most.
RECOVER_FACTOR = 5
RECOVER_SECONDS_MAX = 300.0
# For so long nobody else has a handler that did not end when it had to.
STUCK_SECONDS = 60.0
BAD_REQUEST = 400


class Service(Protocol):
    """What a plan needs of a client; ScheduledEvents is one."""

    def now(self) -> datetime:
        """The instant at the service."""
        ...

    def approve(self, *events: Event | str, patience_seconds: float) -> None:
        """Give the go-ahead, and try again for so long."""
        ...


class Runner(threading.Thread):
    """The plan for one event."""

    def __init__(self, shop: Workshop, service: Service, name: str) -> None:
        super().__init__(name=f"plan {name}", daemon=True)
        self._shop = shop
        self._service = service
        self._event = name
        # What the handler that is running was told, since when, and for which NotBefore.
        self._call: Call | None = None
        self._begun_at = 0.0
        self._not_before: datetime | None = None
        self._finished: threading.Event | None = None
        # On the monotonic clock: when the go-ahead may be tried again.
        self._again_at = 0.0
        self._tries = 0
        self._meeting = Meeting(shop)
        # On the same clock: when it may be tried again to take back that this VM is ready.
        self._leave_at = 0.0
        # Whether the event was shown in this life of the agent.
        self._was_shown = False

    # ---- For the thread that watches; with shop.changed held ----

    def look(self) -> None:
        """The document is another one: a handler that prepares for what is gone must end."""
        shown = self._shop.shown(self._event)
        if shown is None:
            self._meeting.stopping.set()
        elif not self._shop.ending.is_set():
            self._meeting.stopping.clear()
        if self._call is None or self._call.phase != Phase.PREPARE:
            return
        if shown is None:
            self._call.stopping.set()
        elif shown.status == EventStatus.SCHEDULED and shown.not_before != self._not_before:
            self._not_before = shown.not_before
            self._move(self._call, shown)

    def _move(self, call: Call, shown: Event) -> None:
        """NotBefore was moved: the handler that prepares has more time, or less."""
        record = self._shop.journal.records[self._event]
        step, now = record.cut_off, call.clock.monotonic()
        if step is None:
            return
        seconds = plan.seconds_moved(
            *(record, step, shown, self._service.now(), self._shop.limits), now - self._begun_at
        )
        if seconds is not None:
            call.deadline = now + seconds
            told = (self._event, step.handler, seconds)
            log.info("event %s: NotBefore was moved, and %s has %.0f s from now", *told)

    def stop(self) -> None:
        """The agent ends, and whatever runs with it."""
        self._meeting.stopping.set()
        if self._call is not None:
            self._call.stopping.set()

    # ---- The thread itself ----

    def run(self) -> None:
        """Go on until the event is over, or the agent ends."""
        while not self._shop.ending.is_set():
            try:
                if not self._next():
                    return
            except Unavailable as error:
                log.error("event %s: %s", self._event, error)
                self._shop.ending.wait(AGAIN_SECONDS)
            except Exception:  # noqa: BLE001 - see below
                # The other plans go on, and this one tries again: nobody else would.
                log.exception("event %s: a fault of the agent", self._event)
                self._shop.ending.wait(AGAIN_SECONDS)

    def _next(self) -> bool:
        """Do the next thing; whether there may be more."""
        shop = self._shop
        # One instant for all of it: what was too early to be done at it is waited for, and what
        # came due meanwhile is not taken for done.
        now = shop.clock.monotonic()
        self._leave(now)
        with shop.changed:
            record = shop.journal.records[self._event]
            if record.over or shop.ending.is_set():
                return False
            seen, shown = shop.news, shop.shown(self._event)
            self._was_shown |= shown is not None
            lost = record.cut_off
            if lost is None:
                action = self._decide(record, shown, now)
                if self._has_to_wait(action):
                    self._wait(seen, now)
                    return True
                call = self._note(action, record, shown)
            else:
                call = self._find_again(lost, record, shown)
        if lost is not None and call is not None:
            self._take_up(lost, call)
            return True
        match action:
            case Run() if call is not None:
                self._run(action, call)
            case GiveGoAhead():
                assert shown is not None, "only what is shown can be acknowledged"
                self._go_ahead(record, shown)
        return True

    def _leave(self, now: float) -> None:
        """Before anything is recovered: be none of those who are ready, if that can be."""
        with self._shop.changed:
            record = self._shop.journal.records[self._event]
        if not record.gone or self._meeting.left:
            return
        if now >= self._leave_at and not self._meeting.leave(record):
            self._leave_at = self._shop.clock.monotonic() + AGAIN_SECONDS

    def _has_to_wait(self, action: plan.Action) -> bool:
        match action:
            case Wait():
                return True
            case Run():
                return not self._shop.take(action.handler)
            case Over():
                # While it counts as ready somebody has to take that back.
                return not self._meeting.left
        return False

    def _decide(self, record: Record, shown: Event | None, now: float) -> plan.Action:
        return plan.decide(
            record,
            shown,
            self._service.now(),
            self._shop.limits,
            self._shop.others(self._event),
            may_retry=now >= self._again_at,
        )

    def _note(self, action: plan.Action, record: Record, shown: Event | None) -> Call | None:
        """Write down what is going to be done, or what there is to know."""
        match action:
            case Run():
                return self._begin(action, record, shown)
            case PassOver(step):
                self._shop.write(law.ended(self._event, step))
            case Prepared():
                self._shop.write(law.prepared(self._event))
            case Gone():
                self._shop.write(law.gone(self._event, self._ending()))
            case Over():
                self._shop.write(law.over(self._event))
        return None

    def _ending(self) -> Ending:
        record = self._shop.journal.records[self._event]
        return plan.how_it_ended(record, self._service.now(), watched=self._was_shown)

    def _wait(self, seen: int, decided_at: float) -> None:
        """Until something is new, or what it was too early for may be tried again."""
        shop = self._shop
        later = [at for at in (self._again_at, self._leave_at) if at > decided_at]
        seconds = max(0.0, min(later) - shop.clock.monotonic()) if later else None
        shop.changed.wait_for(lambda: shop.news != seen or shop.ending.is_set(), seconds)

    # ---- Handlers ----

    def _begin(self, action: Run, record: Record, shown: Event | None) -> Call:
        shop = self._shop
        mark = shop.promised(self._event, action.phase, action.handler)
        call = self._called(action.phase, action.seconds, record, shown, mark)
        try:
            shop.write(law.begun(self._event, action.phase, action.handler))
        except BaseException:
            # What cannot be written down is not begun.
            self._let_go(action.handler)
            raise
        return call

    def _called(
        self, phase: Phase, seconds: float, record: Record, shown: Event | None, mark: Mark | None
    ) -> Call:
        clock = self._shop.clock
        self._begun_at = clock.monotonic()
        self._not_before = shown.not_before if shown is not None else None
        told = (shown or record.event, record.vm, phase, self._begun_at + seconds)
        self._call = call = Call(*told, clock, threading.Event(), mark, record.ended)
        return call

    def _run(self, action: Run, call: Call) -> None:
        outcome, why = self._carried_out(action.handler, call)
        self._note_end(Step(action.phase, action.handler, outcome, why))

    def _note_end(self, step: Step) -> None:
        """Write down what came of a handler, for as long as it takes, and let others have it."""
        shop = self._shop
        while True:
            with shop.changed:
                try:
                    shop.write(law.ended(self._event, step))
                except Unavailable as error:
                    log.error("event %s: %s", self._event, error)
                else:
                    self._retry_later(step)
                    self._let_go(step.handler)
                    return
            if shop.ending.wait(AGAIN_SECONDS):
                return

    def _retry_later(self, step: Step) -> None:
        """Leave a recover that failed some time before it is tried again."""
        if self._shop.journal.records[self._event].to_try_again(step.handler):
            tries = self._shop.journal.records[self._event].steps[step.phase, step.handler].tries
            self._later(min(AGAIN_SECONDS * RECOVER_FACTOR ** (tries - 1), RECOVER_SECONDS_MAX))

    def _let_go(self, handler: str) -> None:
        """Let others have the handler, when it has ended in truth."""
        if self._call is not None and self._call.mark is not None:
            self._call.mark.close()
        finished, self._finished = self._finished, None
        self._call = None
        if finished is None or finished.is_set():
            self._shop.give_back(handler)
            return
        late = threading.Thread(
            target=self._give_back_late, args=(handler, finished), name=f"late {handler}"
        )
        late.daemon = True
        late.start()

    def _give_back_late(self, handler: str, finished: threading.Event) -> None:
        if not finished.wait(STUCK_SECONDS):
            log.error("handler %s: it does not end, and is used all the same", handler)
        with self._shop.changed:
            self._shop.give_back(handler)

    # ---- What an earlier life of the agent has begun ----

    def _find_again(self, lost: Step, record: Record, shown: Event | None) -> Call:
        """Be where the agent was when it died; with shop.changed held."""
        shop = self._shop
        seconds = plan.seconds_to_end(record, lost, shown, self._service.now(), shop.limits)
        mark = shop.left(self._event, lost.phase, lost.handler)
        call = self._called(lost.phase, seconds, record, shown, mark)
        if shown is None and lost.phase is Phase.PREPARE:
            call.stopping.set()
        return call

    def _take_up(self, lost: Step, call: Call) -> None:
        """Go on with it, if the handler knows how; write down that nobody knows, if not."""
        match self._trace(lost.handler, call):
            case Trace.KNOWN:
                log.info(
                    "event %s: %s %s was begun before the agent died",
                    self._event,
                    lost.phase,
                    lost.handler,
                )
                outcome, why = self._carried_out(lost.handler, call)
            case Trace.NOT_BEGUN:
                outcome, why = Outcome.NOT_BEGUN, "the agent had died before"
            case _:
                outcome, why = Outcome.UNKNOWN, "the agent had died meanwhile"
        self._note_end(Step(lost.phase, lost.handler, outcome, why))

    def _trace(self, name: str, call: Call) -> Trace:
        # One of another package need not have it, and the configuration need not have the handler.
        ask = getattr(self._shop.handlers.get(name), "outcome", None)
        try:
            return Trace.UNKNOWN if ask is None else Trace(ask(call))
        except Exception:  # noqa: BLE001 - whatever another package's handler raises
            log.exception("handler %s: a fault of its own", name)
            return Trace.UNKNOWN

    # ---- A handler at work ----

    def _carried_out(self, name: str, call: Call) -> tuple[Outcome, str]:
        """What came of a handler, by its deadline or soon after."""
        if name not in self._shop.handlers:
            return Outcome.MISSING, "the configuration has no such handler any more"
        came: list[tuple[Outcome, str]] = []
        self._finished = finished = threading.Event()
        work = threading.Thread(
            target=self._do,
            args=(name, call, came, finished),
            name=f"handler {name}",
            daemon=True,
        )
        work.start()
        late = False
        while not finished.wait(min(LOOK_SECONDS, call.remaining_seconds() + LATE_SECONDS)):
            if call.stopping.is_set():
                finished.wait(ENDING_SECONDS)
                break
            if call.clock.monotonic() > call.deadline + LATE_SECONDS:
                call.stopping.set()
                late = True
                break
        if not came:
            return Outcome.LATE, "it did not end, and the plan went on without it"
        outcome, why = came[0]
        stopped = outcome is Outcome.FAILED and call.stopping.is_set() and not late
        return (Outcome.ENDED if stopped else outcome), why

    def _do(
        self, name: str, call: Call, came: list[tuple[Outcome, str]], finished: threading.Event
    ) -> None:
        handler = self._shop.handlers[name]
        try:
            (handler.prepare if call.phase == Phase.PREPARE else handler.recover)(call)
            came.append((Outcome.DONE, ""))
        except (HandlerFailed, UsageError, Unavailable) as error:
            came.append((Outcome.FAILED, str(error)))
        except Exception as error:  # noqa: BLE001 - whatever another package's handler raises
            log.exception("handler %s: a fault of its own", name)
            # Not its repr: that of a file that is missing does not say which.
            came.append((Outcome.FAILED, f"{type(error).__name__}: {error}"))
        finished.set()

    # ---- The go-ahead ----

    def _go_ahead(self, record: Record, event: Event) -> None:
        verdict = self._meeting.verdict(record, event)
        if verdict.say is Say.WAIT:
            with self._shop.changed:
                self._shop.hold_up(self._event, verdict.why)
            self._later(min(verdict.seconds or AGAIN_SECONDS, AGAIN_SECONDS))
        elif verdict.say is Say.LEAVE:
            self._settle(verdict.why)
        else:
            self._give(event)

    def _give(self, event: Event) -> None:
        try:
            # It is tried again here, where it is known whether the event is still there.
            self._service.approve(event, patience_seconds=0.0)
        except ClientError as error:
            # Of all answers 400 alone says that this request will never be right.
            if isinstance(error, RequestRefused) and error.status == BAD_REQUEST:
                self._settle(f"refused: {error}")
                return
            told = error.retry_after_seconds if isinstance(error, Away) else None
            self._tries += 1
            doubled = AGAIN_SECONDS * 2 ** min(self._tries - 1, 4)
            pause = min(max(told or 0.0, doubled), AGAIN_SECONDS_MAX)
            with self._shop.changed:
                self._shop.hold_up(self._event, str(error), logging.WARNING)
            self._later(pause)
        else:
            self._settle(law.GIVEN)

    def _later(self, seconds: float) -> None:
        self._again_at = self._shop.clock.monotonic() + seconds

    def _settle(self, how: str) -> None:
        with self._shop.changed:
            self._shop.write(law.acknowledged(self._event, how))
            self._shop.hold_up(self._event, "")
