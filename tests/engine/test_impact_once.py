"""Rules 10 and 11: an impact is intended first, happens once, and ends."""

from dataclasses import replace

import pytest

from fairnotice.engine import AZURE, DEV, Code
from fairnotice.engine.changes import ImpactBegun
from fairnotice.engine.commands import ReportOutcome, Tick
from fairnotice.engine.effects import BeginImpact, WakeAt
from fairnotice.words import ImpactStatus, OperationKind, OperationStatus, Outcome
from tests.engine.story import BATCH, DB, SHOP, SPOT, Story

SETTLING = replace(AZURE, settle_seconds=300)


def begun(story: Story) -> list[str]:
    """Every impact that the driver was ever asked to begin, in order."""
    effects = (effect for decision in story.decisions for effect in decision.effects)
    return [effect.impact.key for effect in effects if isinstance(effect, BeginImpact)]


def warnings(story: Story) -> list[str]:
    """Everything a person was told although it was accepted."""
    return [warning for decision in story.decisions for warning in decision.warnings]


def under_restart(**more) -> tuple[Story, str, str]:
    """Db is being restarted: the story, the operation, the key of the impact."""
    story = Story(**more)
    (operation,) = story.restart_vm("db").operations
    story.approve("db")
    (key,) = story.under_way
    return story, operation, key


# ---- Rule 10 ----


def test_rule_10_the_intent_is_in_the_commit_that_asks_the_driver():
    """No effect begins an impact whose intent its own commit does not hold."""
    story, _, key = under_restart()
    (decision,) = (
        decision
        for decision in story.decisions
        if any(isinstance(effect, BeginImpact) for effect in decision.effects)
    )
    intents = [change.row for change in decision.changes if isinstance(change, ImpactBegun)]
    assert [impact.key for impact in intents] == [key]
    assert intents[0].status is ImpactStatus.BEGUN
    assert intents[0].vm == "db"


def test_rule_10_an_impact_is_keyed_by_operation_and_vm():
    """Two operations on one VM, and one operation on three VMs, are five keys."""
    story = Story()
    first, second = story.restart_vm("db").operations + story.restart_vm("db").operations
    (third,) = story.maintain("node-3").operations
    story.advance(minutes=15)
    story.done("db")
    keys = begun(story)
    assert len(set(keys)) == len(keys) == 5
    pairs = {(story.fleet.impacts[key].operation, story.fleet.impacts[key].vm) for key in keys}
    assert pairs == {
        (first, "db"),
        (second, "db"),
        (third, "batch_2"),
        (third, "FrontEnd_IN_0"),
        (third, "BackEnd_IN_0"),
    }


def test_rule_10_time_and_late_approvals_begin_nothing_twice():
    """NotBefore passes and db approves again while it is rebooted: one impact, begun once."""
    story, _, key = under_restart()
    story.approve("db")
    story.advance(minutes=9)
    story.approve("db")
    story.done()
    story.advance(minutes=30)
    assert begun(story) == [key]


@pytest.mark.parametrize("takeover", [False, True])
def test_rule_10_after_a_crash_the_driver_is_asked_and_not_begun_is_begun(takeover):
    """We die after the commit and before the call: the same key is begun, by the same intent."""
    story, _, key = under_restart()
    story.restart(takeover=takeover)
    assert list(story.asked) == [key]
    assert not story.under_way
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    story.report(key, Outcome.NOT_BEGUN)
    assert list(story.under_way) == [key]
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    story.done("db")
    assert story.shows(DB) == (4, [])


@pytest.mark.parametrize("takeover", [False, True])
def test_rule_10_after_a_crash_what_is_under_way_is_left_alone(takeover):
    """The driver goes on without us: nothing is begun, and its end is taken as it comes."""
    story, operation, key = under_restart()
    story.restart(takeover=takeover)
    story.tell(ReportOutcome(key=key, outcome=Outcome.UNDER_WAY))
    story.unchanged(ReportOutcome(key=key, outcome=Outcome.UNDER_WAY))
    assert begun(story) == [key]
    story.report(key, Outcome.DONE)
    assert story.shows(DB) == (4, [])
    assert story.operation(operation).status is OperationStatus.COMPLETED


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.DONE, OperationStatus.COMPLETED), (Outcome.FAILED, OperationStatus.FAILED)],
)
def test_rule_10_after_a_crash_what_ended_meanwhile_is_not_begun_again(outcome, status):
    """The driver says how it ended, and that is that."""
    story, operation, key = under_restart()
    story.restart()
    story.report(key, outcome)
    assert story.shows(DB) == (4, [])
    assert story.operation(operation).status is status
    assert begun(story) == [key]


def test_rule_10_unknown_ends_as_failed_is_shown_and_is_never_repeated():
    """Nobody knows whether db was rebooted: a person is told, and db is left in peace."""
    story, operation, key = under_restart()
    story.restart()
    story.report(key, Outcome.UNKNOWN)
    impact = story.fleet.impacts[key]
    assert impact.status is ImpactStatus.FAILED
    assert "outcome unknown" in impact.reason
    assert any("db" in warning and "unknown" in warning for warning in warnings(story))
    assert story.operation(operation).status is OperationStatus.FAILED
    assert story.shows(DB) == (4, [])
    story.restart()
    assert not story.asked
    story.advance(hours=2)
    assert begun(story) == [key]


def test_rule_10_every_life_asks_again_about_what_is_still_open_and_only_that():
    """Of two impacts one is over before the crash: the driver is asked about the other."""
    story = Story()
    story.restart_vm("web-0", "web-1")
    story.approve("web-0")
    story.done("web-0")
    story.restart()
    assert [impact.vm for impact in story.asked.values()] == ["web-1"]
    story.restart(takeover=True)
    assert [impact.vm for impact in story.asked.values()] == ["web-1"]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_rule_10_what_is_said_after_the_end_changes_nothing(outcome):
    """A driver that repeats itself, or changes its mind, is heard and not believed."""
    story, operation, key = under_restart()
    story.done("db")
    decision = story.unchanged(ReportOutcome(key=key, outcome=outcome))
    assert decision.effects == ()
    assert decision.answer.operations == (operation,)


def test_rule_10_an_outcome_of_no_impact_is_refused():
    """A driver that reports what nobody intended is told so."""
    story = Story()
    refusal = story.refused(ReportOutcome(key="nothing/db", outcome=Outcome.DONE))
    assert (refusal.code, refusal.rule) == (Code.NOT_FOUND, 10)
    assert "nothing/db" in refusal.why


# ---- Rule 11 ----

LIMITS = {
    "a freeze of 9 s": (lambda s: s.maintain("node-5"), "spot_1", SPOT, 69),
    "a freeze of 30 s": (
        lambda s: s.maintain("node-5", duration_seconds=30),
        "spot_1",
        SPOT,
        90,
    ),
    "a freeze without pause": (
        lambda s: s.maintain("node-5", duration_seconds=0),
        "spot_1",
        SPOT,
        60,
    ),
    "a restart": (lambda s: s.restart_vm("db"), "db", DB, 600),
    "a host reboot": (
        lambda s: s.on_node(OperationKind.HOST_REBOOT, "node-5"),
        "spot_1",
        SPOT,
        600,
    ),
    "a repair": (lambda s: s.on_node(OperationKind.REPAIR, "node-5"), "spot_1", SPOT, 600),
    "a redeploy": (lambda s: s.redeploy("db"), "db", DB, 1200),
    "a predicted failure": (lambda s: s.predict("node-5", risk="low"), "spot_1", SPOT, 1200),
    "an eviction that deletes": (lambda s: s.evict("spot_0"), "spot_0", SPOT, 1200),
    "a terminate": (lambda s: s.delete("batch_3"), "batch_3", BATCH, 1200),
    "a migration": (lambda s: s.on_node(OperationKind.MIGRATION, "node-5"), "spot_1", SPOT, 1800),
}


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
@pytest.mark.parametrize("what", list(LIMITS))
def test_rule_11_an_impact_times_out_at_the_limit_of_its_kind(what, timing):
    """A second before its limit it is still under way; then it is timed out, and all is over."""
    announce, vm, scope, limit_seconds = LIMITS[what]
    story = Story(timing=timing)
    (operation,) = announce(story).operations
    story.approve(vm)
    (key,) = story.under_way
    story.advance(seconds=limit_seconds - 1)
    assert [event.status.value for event in story.events(scope)] == ["Started"]
    assert story.fleet.impacts[key].live
    story.advance(seconds=1)
    assert story.events(scope) == ()
    assert story.fleet.impacts[key].status is ImpactStatus.TIMED_OUT
    assert story.operation(operation).status is OperationStatus.FAILED
    assert vm not in story.fleet.impact_on_vm


def test_rule_11_the_limit_of_a_failure_is_a_redeploys():
    """Hardware fails, and the move of its VM is given up after 20 minutes."""
    story = Story()
    story.fail("node-5")
    story.advance(seconds=1199)
    assert story.shows(SPOT) == (2, [("Redeploy", "Started")])
    story.advance(seconds=1)
    assert story.shows(SPOT) == (3, [])


@pytest.mark.parametrize("ending", ["done", "failed", "timed out"])
def test_rule_11_each_end_frees_the_vm(ending):
    """A second restart waits for the first, and starts in the commit that ends it."""
    story, _, key = under_restart()
    story.restart_vm("db")
    story.approve("db")
    assert story.shows(DB) == (4, [("Reboot", "Started"), ("Reboot", "Scheduled")])
    if ending == "timed out":
        story.advance(minutes=10)
    else:
        story.report(key, Outcome(ending))
    assert story.shows(DB) == (5, [("Reboot", "Started")])
    assert len(story.fleet.impact_on_vm) == 1


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Outcome.DONE, ImpactStatus.DONE, ""),
        (Outcome.FAILED, ImpactStatus.FAILED, "virsh said no"),
    ],
)
def test_rule_11_the_end_is_on_record_with_its_reason(outcome, status, reason):
    """Who looks later finds when it ended, how, and why."""
    story, operation, key = under_restart()
    story.advance(seconds=42)
    story.report(key, outcome, reason)
    impact = story.fleet.impacts[key]
    assert (impact.status, impact.ended_at, impact.reason) == (status, story.at(seconds=42), reason)
    assert story.operation(operation).ended_at == story.at(seconds=42)


def test_rule_11_an_event_is_gone_when_all_its_impacts_have_ended():
    """Front end and back end freeze together: the event names both until the last is over."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=15)
    story.done("BackEnd_IN_0")
    assert story.shows(SHOP) == (3, [("Freeze", "Started")])
    assert story.only(SHOP).resources == ("FrontEnd_IN_0", "BackEnd_IN_0")
    story.failed("FrontEnd_IN_0")
    assert story.shows(SHOP) == (4, [])


def test_rule_11_each_event_of_an_operation_goes_when_its_own_impacts_have_ended():
    """The batch VM of the node is done: its scope sees no event while the shop still does."""
    story = Story()
    (operation,) = story.maintain("node-3").operations
    story.advance(minutes=15)
    story.done("batch_2")
    assert story.shows(BATCH) == (4, [])
    assert story.shows(SHOP) == (3, [("Freeze", "Started")])
    assert story.operation(operation).status is OperationStatus.STARTED
    story.done()
    assert story.operation(operation).status is OperationStatus.COMPLETED


def test_rule_11_the_event_stays_for_settle_seconds_and_its_vm_is_free():
    """Settled after 5 minutes, as Azure shows it; a second restart need not wait for that."""
    story, operation, _ = under_restart(timing=SETTLING)
    story.done("db")
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    assert "db" not in story.fleet.impact_on_vm
    story.advance(seconds=299)
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    story.advance(seconds=1)
    assert story.shows(DB) == (4, [])
    assert story.operation(operation).status is OperationStatus.COMPLETED


def test_rule_11_another_operation_starts_while_the_first_event_settles():
    """The impact is over, so the VM is free, although the event is still shown."""
    story, _, _ = under_restart(timing=SETTLING)
    story.restart_vm("db")
    story.approve("db")
    story.done("db")
    assert story.shows(DB)[1] == [("Reboot", "Started"), ("Reboot", "Started")]
    assert len(story.under_way) == 1


def test_rule_11_settling_is_counted_from_the_last_impact():
    """The back end ends a minute after the front end: 5 minutes from then on."""
    story = Story(timing=SETTLING)
    story.maintain("node-3")
    story.advance(minutes=15)
    story.done("FrontEnd_IN_0", "batch_2")
    story.advance(minutes=1)
    story.done("BackEnd_IN_0")
    story.advance(seconds=299)
    assert story.shows(SHOP) == (3, [("Freeze", "Started")])
    story.advance(seconds=1)
    assert story.shows(SHOP) == (4, [])


def test_rule_11_settling_outlives_a_restart_of_the_process():
    """We die while an event settles, and it still goes at the end of its 5 minutes."""
    story, _, _ = under_restart(timing=SETTLING)
    story.done("db")
    story.advance(seconds=100)
    story.restart()
    story.advance(seconds=199)
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    story.advance(seconds=1)
    assert story.shows(DB) == (4, [])


def test_rule_11_a_tick_too_early_ends_nothing():
    """Time limits and settling are looked at, found not to be over, and left as they are."""
    story, _, key = under_restart(timing=SETTLING)
    before = story.snapshot()
    for decision in list(story.decisions):
        for effect in decision.effects:
            if isinstance(effect, WakeAt):
                story.unchanged(Tick(subjects=(effect.subject,)))
    assert story.snapshot() == before
    assert story.fleet.impacts[key].live


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_11_with_settle_0_the_event_goes_at_once_in_both_profiles(timing):
    """Neither profile settles: done, and it is gone at the same instant."""
    story, _, _ = under_restart(timing=timing)
    story.done("db")
    assert story.shows(DB) == (4, [])
    assert story.clock.wall() == story.began


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNKNOWN])
def test_rule_11_nothing_is_retried_by_itself(outcome):
    """The reboot failed: a day later db has no event, no impact, and nobody was asked again."""
    story, _, key = under_restart()
    story.report(key, outcome)
    story.advance(hours=23)
    assert story.events(DB) == ()
    assert not story.under_way
    assert begun(story) == [key]


def test_rule_11_a_timed_out_impact_is_not_retried_either():
    """The driver never answers: one impact, timed out, and no second."""
    story, _, key = under_restart()
    story.advance(hours=23)
    assert begun(story) == [key]
    assert story.fleet.impacts[key].status is ImpactStatus.TIMED_OUT
