"""One plan, carried out by itself: what its handler is told while it runs, and the go-ahead."""

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Event as Signal

import pytest

from fairnotice.agent.handlers.handler import Handler
from fairnotice.agent.journal import Journal
from fairnotice.agent.plan import Limits
from fairnotice.agent.records import Outcome, Phase
from fairnotice.agent.rules import Match, Rule
from fairnotice.agent.runner import Runner
from fairnotice.agent.workshop import Workshop
from fairnotice.client.document import Document
from fairnotice.clock import SystemClock
from fairnotice.errors import Away, RequestRefused
from tests.agent.events import VM, course, event

SECONDS = 30.0
CLOCK = SystemClock()


class Service:
    """What approves: with these answers, and then well."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def now(self):
        return CLOCK.wall()

    def approve(self, *events, patience_seconds):  # noqa: ARG002 - it answers at once
        self.asked.append(CLOCK.monotonic())
        if self.answers:
            raise self.answers.pop(0)


class Hurries(SystemClock):
    """A clock that has gone on by so much more each time that somebody looks at it."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.looks = 0

    def monotonic(self):
        self.looks += 1
        return super().monotonic() + self.looks * self.seconds


class Ready(Handler):
    """Has nothing to do."""


class Waits(Handler):
    """Waits to be let go, in either phase, and tells how it came out."""

    def __init__(self):
        self.calls = []
        self.may_end = Signal()
        self.began = Signal()

    def prepare(self, call):
        self.calls.append(call)
        self.began.set()
        while not self.may_end.wait(0.01) and call.going_on():
            pass

    recover = prepare


def due(seconds, **more):
    """The event, so many seconds ahead of the real clock."""
    return replace(event(**more), not_before=CLOCK.wall() + timedelta(seconds=seconds))


class Plan:
    """A plan and all that it needs, and the document that the test shows it."""

    def __init__(self, folder, service, handler, how, limits, *, clock=CLOCK):
        self.journal = Journal(folder, CLOCK)
        rule = Rule(Match(), how)
        self.shop = Workshop(self.journal, [rule], {"a": handler}, limits, clock=clock)
        self.service = service
        self.runner = None

    def show(self, *events):
        """Another document."""
        with self.shop.changed:
            self.shop.document = Document(1, events)
            for one in events:
                self.shop.meet(one, VM)
            if self.runner is None:
                self.runner = Runner(self.shop, self.service, "E1")
                self.runner.start()
            self.runner.look()
            self.shop.wake()

    @property
    def record(self):
        return self.journal.records["E1"]

    def wait(self, condition):
        """Until that is so."""
        with self.shop.changed:
            assert self.shop.changed.wait_for(condition, SECONDS)


@pytest.fixture
def plan(tmp_path):
    """Makes plans."""

    @contextmanager
    def made(service=None, handler=None, how=None, clock=CLOCK, **limits):
        how = how or course("a", acknowledge="never")
        parts = (service or Service(), handler or Ready(), how, Limits(1, limits))
        one = Plan(tmp_path, *parts, clock=clock)
        try:
            yield one
        finally:
            with one.shop.changed:
                one.shop.ending.set()
                one.runner.stop()
                one.shop.wake()
            one.runner.join(SECONDS)
            one.journal.close()

    return made


# ---- NotBefore is moved ----


@pytest.mark.parametrize(
    ("before", "after", "own", "expected"),
    [
        (900, 60, None, 59),
        (60, 900, None, 899),
        (900, 60, 30, 30),
        (60, 900, 30, 30),
        (900, 0, 30, 0),
    ],
)
def test_a_handler_at_work_has_what_notbefore_leaves(plan, before, after, own, expected):
    """Brought forward or postponed; but never more than it says it takes, since it was begun."""
    handler = Waits()
    with plan(handler=handler, **({"a": own} if own else {})) as one:
        one.show(due(before))
        assert handler.began.wait(SECONDS)
        [call] = handler.calls
        begun_at = call.clock.monotonic()
        one.show(due(after))
        assert call.deadline - begun_at == pytest.approx(expected, abs=10)
        handler.may_end.set()
        one.wait(lambda: one.record.prepared)


def test_the_same_notbefore_moves_nothing(plan):
    """Nor does the start of the event, which leaves NotBefore empty."""
    handler = Waits()
    with plan(handler=handler) as one:
        shown = due(900)
        one.show(shown)
        assert handler.began.wait(SECONDS)
        deadline = handler.calls[0].deadline
        one.show(replace(shown, description="Another one."))
        one.show(replace(shown, status="Started", not_before=None))
        assert handler.calls[0].deadline == deadline
        assert not handler.calls[0].stopping.is_set()


def test_another_document_ends_no_recover(plan):
    """Nor does it matter that the event is not in it: that is why it recovers."""
    handler = Waits()
    with plan(handler=handler) as one:
        handler.may_end.set()
        one.show(due(900))
        one.wait(lambda: one.record.prepared)
        handler.may_end.clear()
        handler.began.clear()
        one.show()
        assert handler.began.wait(SECONDS)
        one.show(event("E2", resources=("other",)))
        assert not handler.calls[1].stopping.is_set()
        handler.may_end.set()
        one.wait(lambda: one.record.over)
        assert one.record.step(Phase.RECOVER, "a").outcome is Outcome.DONE


# ---- What cannot be written down ----


def test_what_could_not_be_written_down_is_begun_later(plan, caplog):
    """Nothing was run meanwhile, and nobody else is kept from the handler."""
    handler = Waits()
    handler.may_end.set()
    with plan(handler=handler) as one:
        shown = due(900)
        with one.shop.changed:
            one.shop.meet(shown, VM)
            good, one.journal._out = one.journal._out, open("/dev/full", "ab", buffering=0)  # noqa: SIM115, PTH123
        one.show(shown)
        one.wait(lambda: "No space left" in caplog.text)
        assert not handler.began.is_set()
        with one.shop.changed:
            one.journal._out.close()
            one.journal._out = good
        one.wait(lambda: one.record.prepared)
    assert not one.record.failed
    assert len(handler.calls) == 1


def test_whatever_is_told_of_a_line_the_handler_is_run(plan):
    """The line is on disk: nothing may come between it and what it says."""
    handler = Waits()
    handler.may_end.set()
    with plan(handler=handler) as one:

        def told(line):
            raise RuntimeError(line["kind"])

        one.shop._told = told
        one.show(due(900))
        one.wait(lambda: one.record.prepared)
    assert len(handler.calls) == 1
    assert not one.record.failed


# ---- The go-ahead ----


def test_a_go_ahead_that_came_to_nothing_is_not_hammered(plan):
    """There is a pause, as the service asks for, and then it is given."""
    service = Service(Away("It is away.", retry_after_seconds=0.0), Away("Again."))
    with plan(service=service, how=course("a")) as one:
        one.show(due(900))
        one.wait(lambda: one.record.acknowledgement)
    assert one.record.acknowledgement == "given"
    first, second, third = service.asked
    assert second - first >= 1
    assert third - second >= 2


@pytest.mark.parametrize("seconds", [0.3, 0.6, 0.9, 1.1])
def test_a_go_ahead_whose_time_comes_while_it_is_decided_is_given(plan, seconds):
    """It was too early when that was decided, and is not any more: nothing else would wake it."""
    service = Service(Away("It is away."), Away("Again."))
    with plan(service=service, how=course("a"), clock=Hurries(seconds)) as one:
        one.show(due(900))
        one.wait(lambda: one.record.acknowledgement)
    assert one.record.acknowledgement == "given"


@pytest.mark.parametrize(("status", "how"), [(400, "refused"), (404, "given")])
def test_400_alone_settles_it(plan, status, how):
    """Any other refusal may be mended while the event is still there."""
    service = Service(RequestRefused("No.", status))
    with plan(service=service, how=course("a")) as one:
        one.show(due(900))
        one.wait(lambda: one.record.acknowledgement)
    assert one.record.acknowledgement.startswith(how)
