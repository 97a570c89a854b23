"""The plan, whatever happens: any documents, crashes and clocks."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairnotice.agent import journal, records
from fairnotice.agent.plan import (
    GiveGoAhead,
    Gone,
    Limits,
    Over,
    PassOver,
    Prepared,
    Run,
    decide,
)
from fairnotice.agent.records import Outcome, Phase, Step
from fairnotice.agent.rules import Acknowledge, OnFailure, WhenShort
from tests.agent.events import NOW, VM, course, event

PREPARE, RECOVER = Phase.PREPARE, Phase.RECOVER
MARGIN = 5.0

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
                # What was ended was told to, with the agent.
                self.cut_off += [(name, phase, handler)] if end is Outcome.ENDED else []
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
                assert not one.unrecovered
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
        for name, one in list(self.known.items()):
            for handler in one.unrecovered:
                self.write(records.ended(name, Step(RECOVER, handler, Outcome.DONE, "by hand")))
        for name in self.known:
            self.step(name)
        assert all(one.over for one in self.known.values())
        prepared = {(name, handler) for name, phase, handler in self.ran if phase is PREPARE}
        recovered = {(name, handler) for name, phase, handler in self.ran if phase is RECOVER}
        assert recovered == prepared
        self.no_handler_runs_twice()


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=500, stateful_step_count=25)
