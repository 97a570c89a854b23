"""The plan: what is done next about an event, and what holds whatever happens."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fairnotice.agent import records
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
    how_it_ended,
    seconds_left,
    seconds_moved,
    seconds_to_end,
)
from fairnotice.agent.records import Outcome, Phase, Record, Step
from fairnotice.agent.rehearsal import rehearse
from fairnotice.agent.rules import Acknowledge, Leader, OnFailure, WhenShort
from tests.agent.events import NOW, VM, course, event

PREPARE, RECOVER = Phase.PREPARE, Phase.RECOVER
MARGIN = 5.0
LIMITS = Limits(MARGIN, {"a": 8.0, "b": 30.0})


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


@pytest.mark.parametrize(("again", "then"), [(("a",), Run), (("b",), Wait), ((), Wait)])
def test_a_recover_that_was_cut_off_by_rule(again, then):
    """It is run once more where that may be, and else somebody has to look.

    One that was told to end has ended, and the next life of the agent goes on with it.
    """
    how = course("a", recover_again=again)
    cut_off = record(event(), how, DONE_A, (RECOVER, "a", Outcome.UNKNOWN), gone=True)
    assert isinstance(next_of(cut_off, None), then)
    ended = record(event(), how, DONE_A, (RECOVER, "a", Outcome.ENDED), gone=True)
    assert isinstance(next_of(ended, None), Run)


def test_what_is_not_recovered_is_not_over_and_the_gate_stays_shut():
    """Others are recovered all the same; what only tells somebody holds up nothing."""
    how = course("gate", "app", "mail", gates=("gate",), tells=("mail",), recover_tries=0)
    done = [(PREPARE, name, Outcome.DONE) for name in how.prepare]
    told = [*done, (RECOVER, "mail", Outcome.FAILED)]
    one = record(event(), how, *told, gone=True)
    assert one.unrecovered == ()
    assert next_of(one, None) == Run(RECOVER, "app", RECOVER_SECONDS)
    stuck = record(event(), how, *told, (RECOVER, "app", Outcome.FAILED), gone=True)
    assert (stuck.unrecovered, stuck.held) == (("app",), ("app", "gate"))
    assert next_of(stuck, None) == Wait()
    mended = record(event(), how, *told, (RECOVER, "app", Outcome.DONE), gone=True)
    assert next_of(mended, None) == Run(RECOVER, "gate", RECOVER_SECONDS)
    over = record(event(), how, *told, *[(RECOVER, x, Outcome.DONE) for x in how.prepare[:2]])
    assert next_of(replace(over, gone=True), None) == Over()


def test_a_handler_that_is_missing_is_recovered_when_it_is_there_again():
    """By a later life of the agent, with another configuration."""
    one = record(event(), course("a"), DONE_A, (RECOVER, "a", Outcome.MISSING), gone=True)
    assert decide(one, None, NOW, Limits(MARGIN, {}, known={"b"})) == Wait()
    assert isinstance(decide(one, None, NOW, Limits(MARGIN, {}, known={"a"})), Run)


@pytest.mark.parametrize(
    ("of", "how", "came"),
    [
        (event(), {}, ("a b", "", "when-prepared", "")),
        (event(seconds=35), {}, ("a", "b", "never", "not done: b")),
        (event(seconds=35), {"when_short": WhenShort.RUN}, ("a b", "", "when-prepared", "")),
        (event(status="Started"), {}, ("", "a b", "never", "not done: a, b")),
        (event(), {"acknowledge": Acknowledge.AT_ONCE}, ("a b", "", "at-once", "")),
        (event(resources=("web-1",)), {}, ("a b", "", "never", "it names others only")),
    ],
)
def test_a_rehearsal_promises_what_is_done(of, how, came):
    """With 8 s for the first and 30 s for the second, each after the other."""
    said = rehearse(of, VM, course("a", "b", **how), NOW, LIMITS)
    runs, skipped = " ".join(said.runs), " ".join(said.skipped)
    assert (runs, skipped, said.acknowledges, said.withheld) == came


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
    # Nobody has undone it: somebody has to look.
    assert next_of(after_tries(outcome, 3, *done_b), None) == Wait()


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


@pytest.mark.parametrize(
    ("of", "acknowledged", "seconds", "watched", "ended"),
    [
        (event(status="Started", seconds=None), "", 0, False, "over"),
        (event(), "", 899, True, "canceled"),
        (event(), "left to web-1", 899, True, "canceled"),
        # Let begin by this VM, it may have come and gone between two looks.
        (event(), "given", 899, True, ""),
        (event(), "", 900, True, ""),
        (event(), "", 899, False, ""),
        (event(seconds=None), "", 0, True, ""),
    ],
)
def test_how_an_event_ended(of, acknowledged, seconds, watched, ended):
    """Over or canceled where that is sure; otherwise nobody says so."""
    known = records.Record(of, VM, course("a"), acknowledgement=acknowledged)
    now = NOW + timedelta(seconds=seconds)
    assert how_it_ended(known, now, watched=watched) == ended
