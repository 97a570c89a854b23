"""The plan: what is done next about an event, and what holds whatever happens."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairnotice.agent import journal, records
from fairnotice.agent.plan import (
    RECOVER_SECONDS,
    SHORT_SECONDS,
    GiveGoAhead,
    Gone,
    Limits,
    Over,
    PassOver,
    Prepared,
    Run,
    Wait,
    decide,
    seconds_left,
    seconds_moved,
    seconds_to_end,
)
from fairnotice.agent.records import Outcome, Phase, Record, Step
from fairnotice.agent.rules import Acknowledge, Leader, OnFailure, WhenShort
from tests.agent.events import NOW, VM, course, event

PREPARE, RECOVER = Phase.PREPARE, Phase.RECOVER
MARGIN = 5.0


def record(of, how, *steps: tuple[Phase, str, Outcome], **more) -> Record:
    """A record with these steps."""
    made = {(phase, name): Step(phase, name, outcome) for phase, name, outcome in steps}
    return Record(of, VM, how, made, **more)


def next_of(one: Record, shown, now=NOW, others=(), **handlers: float):
    """What is decided."""
    return decide(one, shown, now, Limits(MARGIN, handlers), others)


# ---- Time ----


def test_a_handler_has_what_it_says_it_takes():
    """And no more, where there is more."""
    assert next_of(record(event(), course("a")), event(), a=8.0) == Run(PREPARE, "a", 8.0)


def test_those_who_say_nothing_share_what_the_others_leave():
    """A late first one leaves time for the second, and for the third what that says it takes."""
    of = event(seconds=105)
    assert next_of(record(of, course("a", "b", "c")), of, c=20.0) == Run(PREPARE, "a", 40.0)


@pytest.mark.parametrize(("own", "seconds"), [({}, SHORT_SECONDS), ({"a": 8.0}, 8.0)])
def test_without_notbefore_nothing_is_promised(own, seconds):
    """A handler has what it says it takes, or what is short."""
    of = event(seconds=None)
    assert next_of(record(of, course("a")), of, **own) == Run(PREPARE, "a", seconds)


@pytest.mark.parametrize(
    ("shown", "how", "own", "spent", "seconds"),
    [
        (event(seconds=105), {}, {}, 7.0, 50.0),
        (event(seconds=105), {}, {"a": 8.0}, 7.0, 1.0),
        (event(seconds=105), {}, {"a": 8.0}, 9.0, 0.0),
        (event(seconds=105), {}, {"a": 200.0}, 7.0, 100.0),
        (event(seconds=0), {}, {}, 7.0, 0.0),
        (event(seconds=0), {"when_short": WhenShort.RUN}, {}, 7.0, None),
        (event(seconds=105), {"when_short": WhenShort.RUN}, {}, 7.0, 50.0),
        (event(seconds=105), {"acknowledge": Acknowledge.AT_ONCE}, {}, 7.0, None),
        (event(seconds=None), {}, {}, 7.0, None),
    ],
)
def test_a_notbefore_that_is_moved_leaves_other_time(shown, how, own, spent, seconds):
    """Of what there is the handlers behind have their part; nobody gets more than it says."""
    one = record(event(), course("a", "b", **how), (PREPARE, "a", Outcome.BEGUN))
    came = seconds_moved(one, one.cut_off, shown, NOW, Limits(MARGIN, own), spent)
    assert came == seconds


def test_nobody_is_crowded_out_by_what_others_say():
    """Where those behind want more than there is, the first one has its even part."""
    of = event(seconds=45)
    assert next_of(record(of, course("a", "b")), of, b=100.0) == Run(PREPARE, "a", 20.0)


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (event(seconds=10), "it takes 8 s and 5.0 s were left"),
        (event(seconds=5), "no time was left"),
        (event(seconds=-60), "no time was left"),
        (event(seconds=None, status="Started"), "the event had started"),
    ],
)
def test_what_no_longer_fits_is_passed_over_and_says_why(shown, why):
    """By the rule when_short = "skip"."""
    skipped = Step(PREPARE, "a", Outcome.SKIPPED, why)
    assert next_of(record(event(), course("a")), shown, a=8.0) == PassOver(skipped)


@pytest.mark.parametrize(
    ("shown", "seconds"),
    [(event(seconds=10), 5.0), (event(seconds=None, status="Started"), 8.0)],
)
def test_or_is_run_all_the_same(shown, seconds):
    """With what is left; with its own time where nothing is."""
    one = record(event(), course("a", when_short=WhenShort.RUN))
    assert next_of(one, shown, a=8.0) == Run(PREPARE, "a", seconds)


def test_an_event_without_not_before_gives_a_short_time():
    """Scheduled, and nobody says when: nothing is promised."""
    of = event(seconds=None)
    assert seconds_left(of, NOW, MARGIN) is None
    assert next_of(record(of, course("a")), of) == Run(PREPARE, "a", SHORT_SECONDS)


# ---- The go-ahead ----

DONE_A = (PREPARE, "a", Outcome.DONE)
FAILED_A = (PREPARE, "a", Outcome.FAILED)


@pytest.mark.parametrize(
    ("how", "steps", "shown", "wanted"),
    [
        ({}, [DONE_A], event(), True),
        ({}, [FAILED_A], event(), False),
        ({}, [(PREPARE, "a", Outcome.UNKNOWN)], event(), False),
        ({}, [(PREPARE, "a", Outcome.SKIPPED)], event(), False),
        ({"on_failure": OnFailure.ACKNOWLEDGE}, [FAILED_A], event(), True),
        ({"on_failure": OnFailure.STOP}, [FAILED_A], event(), False),
        ({"acknowledge": Acknowledge.NEVER}, [DONE_A], event(), False),
        ({}, [DONE_A], event(status="Started"), False),
        ({}, [DONE_A], event(resources=("web-1",)), False),
        ({"leader": Leader.NONE}, [DONE_A], event(resources=("web-1", "WEB-0")), True),
    ],
)
def test_the_go_ahead_by_rule(how, steps, shown, wanted):
    """Prepared, Scheduled, and its own; and on failure as the rule says."""
    one = record(event(), course("a", **how), *steps, prepared=True)
    assert (next_of(one, shown) == GiveGoAhead()) == wanted


def test_at_once_comes_before_any_handler():
    """And does not hold up the handlers while it cannot be given."""
    one = record(event(), course("a", acknowledge=Acknowledge.AT_ONCE))
    assert next_of(one, event()) == GiveGoAhead()
    later = decide(one, event(), NOW, Limits(MARGIN, {"a": 8.0}), may_retry=False)
    assert later == Run(PREPARE, "a", 8.0)


def test_what_failed_stops_the_rest_by_rule():
    """on_failure = "stop": the second handler is not run; else it is."""
    stops = record(event(), course("a", "b", on_failure=OnFailure.STOP), FAILED_A)
    goes_on = record(event(), course("a", "b"), FAILED_A)
    assert next_of(stops, event()) == Prepared()
    assert next_of(goes_on, event()) == Run(PREPARE, "b", 895.0)


# ---- Recovering ----


def test_what_was_begun_is_recovered_whatever_came_of_it():
    """In the order of the rule; what was passed over or never begun is not."""
    begun = [DONE_A, (PREPARE, "b", Outcome.UNKNOWN), (PREPARE, "c", Outcome.SKIPPED)]
    one = record(event(), course("a", "b", "c", "d"), *begun)
    assert next_of(one, None) == Gone()
    gone = replace(one, gone=True)
    assert next_of(gone, None) == Run(RECOVER, "b", RECOVER_SECONDS)
    then = record(event(), one.course, *begun, (RECOVER, "b", Outcome.DONE), gone=True)
    assert next_of(then, event()) == Run(RECOVER, "a", RECOVER_SECONDS)


def test_nothing_is_recovered_while_another_event_needs_it():
    """Once that is gone, too, each recovers its own."""
    first = record(event("E1"), course("a"), DONE_A, gone=True)
    other = record(event("E2"), course("a"), DONE_A)
    assert next_of(first, None, others=[other]) == Wait()
    assert isinstance(next_of(first, None, others=[replace(other, gone=True)]), Run)


@pytest.mark.parametrize(("again", "then"), [(("a",), Run), (("b",), Over), ((), Over)])
def test_a_recover_that_was_cut_off_by_rule(again, then):
    """It is run once more where that may be, and else no handler is run twice."""
    steps = [DONE_A, (RECOVER, "a", Outcome.UNKNOWN)]
    one = record(event(), course("a", recover_again=again), *steps, gone=True)
    assert isinstance(next_of(one, None), then)


def test_a_recover_that_the_agent_ended_is_gone_on_with():
    """It was told to end and has: whatever the rule, the next life of the agent does it anew."""
    one = record(event(), course("a"), DONE_A, (RECOVER, "a", Outcome.ENDED), gone=True)
    assert one.holds("a")
    assert next_of(one, None) == Run(RECOVER, "a", RECOVER_SECONDS)


def after_tries(outcome: Outcome, tries: int, *more) -> Record:
    """A record read from the fewest lines of one whose recover of `a` came out so, so often."""
    known = {"E1": record(event(), course("a", "b", recover_tries=3), DONE_A, *more, gone=True)}
    for _ in range(tries):
        records.add(known, records.begun("E1", RECOVER, "a"))
        records.add(known, records.ended("E1", Step(RECOVER, "a", outcome)))
    again: records.Records = {}
    for line in records.lines_of(known["E1"]):
        records.add(again, line)
    assert again == known
    return again["E1"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LATE])
def test_a_recover_that_failed_is_tried_again_for_so_often(outcome):
    """Behind the others, after a while, and what it prepared counts as prepared until then."""
    done_b = [(PREPARE, "b", Outcome.DONE), (RECOVER, "b", Outcome.DONE)]
    assert next_of(after_tries(outcome, 1, done_b[0]), None) == Run(RECOVER, "b", RECOVER_SECONDS)
    one = after_tries(outcome, 2, *done_b)
    assert one.holds("a")
    assert next_of(one, None) == Run(RECOVER, "a", RECOVER_SECONDS)
    assert decide(one, None, NOW, Limits(MARGIN, {}), may_retry=False) == Wait()
    assert next_of(after_tries(outcome, 3, *done_b), None) == Over()


def test_a_preparation_that_was_never_ended_is_none():
    """Whatever went wrong with its line: nothing is acknowledged."""
    one = record(event(), course("a"), (PREPARE, "a", Outcome.BEGUN))
    assert not one.failed
    assert next_of(replace(one, prepared=True), event()) == Wait()


def test_a_handler_that_only_recovers_comes_with_the_others():
    """It is there to say that all is over; where nothing was prepared there is nothing to say."""
    how = course("a", recover=("a", "say"))
    done = record(event(), how, DONE_A, (RECOVER, "a", Outcome.DONE), gone=True)
    assert next_of(done, None) == Run(RECOVER, "say", RECOVER_SECONDS)
    assert next_of(record(event(), how, gone=True), None) == Over()


@pytest.mark.parametrize(
    ("phase", "shown", "how", "seconds"),
    [
        (PREPARE, event(), {}, 8.0),
        (PREPARE, event(seconds=10), {}, 5.0),
        (PREPARE, event(seconds=None, status="Started"), {}, 0.0),
        (PREPARE, event(seconds=None, status="Started"), {"when_short": WhenShort.RUN}, 8.0),
        (PREPARE, None, {}, 8.0),
        (RECOVER, None, {}, 8.0),
    ],
)
def test_what_outlived_the_agent_has_what_is_left(phase, shown, how, seconds):
    """No more than it says it takes, and none behind NotBefore, but where the rule lets it."""
    one = record(event(), course("a", **how), (phase, "a", Outcome.BEGUN), gone=shown is None)
    assert seconds_to_end(one, one.cut_off, shown, NOW, Limits(MARGIN, {"a": 8.0})) == seconds


# ---- Whatever happens ----

HANDLERS = ("a", "b", "c")
NAMES = ("E1", "E2")
COURSES = st.builds(
    course,
    *([st.sampled_from(HANDLERS)] * 2),
    acknowledge=st.sampled_from(Acknowledge),
    on_failure=st.sampled_from(OnFailure),
    when_short=st.sampled_from([WhenShort.SKIP, WhenShort.SKIP, WhenShort.RUN]),
    recover_again=st.sampled_from([(), HANDLERS]),
).filter(lambda one: len(set(one.prepare)) == 2)
# Around what the handlers take, with and without the margin; and as long as can be.
NOTICES = st.sampled_from([0, 5, 6, 10, 12, 14, 32, 36, 40, 60, 900])
ENDS = st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.FAILED, Outcome.LATE, Outcome.ENDED])
BECAME = st.sampled_from([Outcome.UNKNOWN, Outcome.NOT_BEGUN, Outcome.DONE, Outcome.FAILED])
LIMITS = Limits(MARGIN, {"a": 8.0, "b": 30.0})


class AnyLife(RuleBasedStateMachine):
    """Documents, crashes and clocks in any order, on a journal that is read anew after each."""

    def __init__(self):
        super().__init__()
        self.now = NOW
        self.shown = {}
        self.lines = []
        self.known = {}
        # What was really run, and what was running when the agent died.
        self.ran = []
        self.cut_off = []
        # What has ended, and not as it should: a recover may be tried anew after that.
        self.in_vain = []
        self.acknowledged = []

    def write(self, line):
        """On disk, and taken into account."""
        self.lines.append(journal.encoded({**line, "at": ""}))
        records.add(self.known, line)

    @precondition(lambda self: len(self.known) < len(NAMES))
    @rule(how=COURSES, seconds=NOTICES)
    def announce(self, how, seconds):
        name = NAMES[len(self.known)]
        if name not in self.known:
            self.shown[name] = replace(
                event(name), not_before=self.now + timedelta(seconds=seconds)
            )
            self.write(records.planned(self.shown[name], VM, how))

    @rule(name=st.sampled_from(NAMES))
    def start(self, name):
        if name in self.shown:
            self.shown[name] = replace(self.shown[name], status="Started", not_before=None)

    @rule(name=st.sampled_from(NAMES))
    def vanish(self, name):
        self.shown.pop(name, None)

    @rule(name=st.sampled_from(NAMES))
    def come_back(self, name):
        if name in self.known:
            self.shown.setdefault(name, event(name))

    @rule(seconds=st.sampled_from([1, 5, 20, 400]))
    def pass_time(self, seconds):
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.known)
    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=12), end=ENDS)
    def go_on(self, names, end):
        """So many actions, of one plan or of both."""
        for name in names:
            if name in self.known:
                self.step(name, end)

    @precondition(lambda self: self.known)
    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
        late=st.booleans(),
        became=BECAME,
    )
    def go_on_and_die(self, names, late, became):
        """The agent dies in the middle of the first of these, or while a handler runs."""
        for name in names:
            if name in self.known:
                action = self.step(name, became, dies=not late, dies_running=late)
                if not late or isinstance(action, Run):
                    return

    def step(self, name, end=Outcome.DONE, *, dies=False, dies_running=False):
        one, shown = self.known[name], self.shown.get(name)
        others = [other for other in self.known.values() if other is not one]
        action = decide(one, shown, self.now, LIMITS, others)
        match action:
            case Run(phase, handler, seconds):
                self.write(records.begun(name, phase, handler))
                self.check_run(name, action, shown, others)
                if dies or dies_running:
                    self.die_running((name, phase, handler), end)
                    return action
                self.ran.append((name, phase, handler))
                self.in_vain += [(name, phase, handler)] * (end is not Outcome.DONE)
                self.now += timedelta(seconds=seconds / 2)
                self.write(records.ended(name, Step(phase, handler, end)))
            case PassOver(step):
                self.write(records.ended(name, step))
            case Prepared():
                self.write(records.prepared(name))
            case GiveGoAhead():
                self.check_go_ahead(one, shown)
                self.acknowledged.append(name)
                if not dies:
                    self.write(records.acknowledged(name, "given"))
            case Gone():
                self.write(records.gone(name))
            case Over():
                self.write(records.over(name))
        if dies:
            self.start_anew()
        return action

    def die_running(self, what, became):
        """The next life of the agent asks what became of it."""
        name, phase, handler = what
        if became is not Outcome.NOT_BEGUN:
            self.ran.append(what)
        if became is Outcome.UNKNOWN:
            self.cut_off.append(what)
        if became is Outcome.FAILED:
            self.in_vain.append(what)
        self.start_anew()
        step = self.known[name].cut_off
        assert replace(step, tries=0) == Step(phase, handler, Outcome.BEGUN)
        self.write(records.ended(name, replace(step, outcome=became)))

    @rule()
    def start_anew(self):
        """Read the journal, as an agent does that starts."""
        self.known = {}
        for raw in self.lines:
            records.add(self.known, journal.decoded(raw.rstrip(b"\n")))

    # ---- What holds ----

    def check_run(self, name, action, shown, others):
        one = self.known[name]
        if action.phase is PREPARE:
            assert shown is not None
            assert not one.gone
            in_time = one.course.acknowledge is not Acknowledge.AT_ONCE
            if in_time and one.course.when_short is WhenShort.SKIP:
                assert shown.status == "Scheduled"
                ends = self.now + timedelta(seconds=action.seconds)
                assert ends <= shown.not_before - timedelta(seconds=MARGIN)
        else:
            assert one.gone
            assert (name, PREPARE, action.handler) in self.ran
            assert not any(other.needs(action.handler) for other in others)

    def check_go_ahead(self, one, shown):
        assert shown.status == "Scheduled"
        assert not one.acknowledgement
        assert one.course.acknowledge is not Acknowledge.NEVER
        if one.course.acknowledge is Acknowledge.WHEN_PREPARED:
            ends = {h: one.step(PREPARE, h) for h in one.course.prepare}
            forgiving = one.course.on_failure is OnFailure.ACKNOWLEDGE
            assert all(step and step.outcome is not Outcome.BEGUN for step in ends.values())
            assert forgiving or all(step.outcome is Outcome.DONE for step in ends.values())

    @invariant()
    def no_handler_runs_twice(self):
        for name, phase, handler in set(self.ran):
            what = (name, phase, handler)
            allowed = 1 + (self.in_vain.count(what) if phase is RECOVER else 0)
            if phase is RECOVER and handler in self.known[name].course.recover_again:
                allowed += self.cut_off.count(what)
            assert self.ran.count(what) <= allowed

    def teardown(self):
        """At last everything is gone, and exactly what was begun is recovered."""
        self.shown.clear()
        for name in NAMES * 20:
            if name in self.known:
                self.step(name)
        assert all(one.over for one in self.known.values())
        prepared = {(name, handler) for name, phase, handler in self.ran if phase is PREPARE}
        recovered = {(name, handler) for name, phase, handler in self.ran if phase is RECOVER}
        assert recovered == prepared
        self.no_handler_runs_twice()


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=500, stateful_step_count=25)
