"""Rules 1 and 2: nothing before NotBefore, and NotBefore never too soon."""

from datetime import timedelta

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import (
    ApplyFleet,
    Postpone,
    PredictFailure,
    SetTerminateNotice,
    Tick,
)
from fairnotice.engine.effects import Matter, Subject
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, VmSpec
from fairnotice.model import Requester
from fairnotice.words import OperationKind, Risk, Role
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, USER, WEB, Story

NODE_KINDS = [
    OperationKind.HOST_UPDATE,
    OperationKind.HOST_REBOOT,
    OperationKind.REPAIR,
    OperationKind.MIGRATION,
    OperationKind.EVACUATION,
]


def put_off(story: Story, event: str, by: Requester = OPERATOR, **passed: float) -> Postpone:
    """Somebody postpones this event until so long after the story began."""
    return Postpone(event=event, not_before=story.at(**passed), by=by)


# ---- Rule 1 ----


def test_rule_01_no_impact_begins_before_not_before():
    """The restart of db is asked for at 00:00 and touches nothing until 15:00."""
    story = Story()
    story.restart_vm("db")
    story.advance(minutes=14, seconds=59)
    assert story.under_way == {}
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance(seconds=1)
    assert [impact.vm for impact in story.under_way.values()] == ["db"]
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_01_a_look_too_soon_starts_nothing():
    """Whoever ticks a second early is told to wait."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    story.advance(minutes=14, seconds=59)
    story.unchanged(Tick(subjects=(Subject(Matter.OPERATION, operation),)))
    story.unchanged(Tick(subjects=(Subject(Matter.EVENT, story.only(DB).id),)))


def test_rule_01_an_approved_event_need_not_wait():
    """VM db gives its go-ahead after a minute, and goes."""
    story = Story()
    story.restart_vm("db")
    story.advance(minutes=1)
    story.approve("db")
    assert [impact.begun_at for impact in story.under_way.values()] == [story.at(minutes=1)]


def test_rule_01_approval_by_one_scope_is_none_by_the_other():
    """The batch approves the update of node-3, shop does not: nobody is hit before NotBefore."""
    story = Story()
    story.maintain("node-3")
    story.approve("batch_2")
    story.advance(minutes=14, seconds=59)
    assert story.under_way == {}
    story.advance(seconds=1)
    assert len(story.under_way) == 3


def test_rule_01_a_clock_that_is_set_forward_does_not_bring_the_impact_forward():
    """The wall clock jumps an hour at 00:05; ten more minutes have to pass all the same."""
    story = Story()
    story.restart_vm("db")
    story.advance(minutes=5)
    story.clock.set_wall(story.at(minutes=65))
    story.advance(minutes=9, seconds=59)
    assert story.under_way == {}
    story.advance(seconds=2)
    assert len(story.under_way) == 1


@pytest.mark.parametrize("asked_after_seconds", [0.000001, 0.4, 0.999999])
def test_rule_01_not_before_is_a_whole_second_rounded_up(asked_after_seconds):
    """Asked within the first second, it is promised for 15:01, and kept to the second."""
    story = Story()
    story.advance(seconds=asked_after_seconds)
    story.restart_vm("db")
    assert story.only(DB).not_before == story.at(minutes=15, seconds=1)
    story.advance_to(story.at(minutes=15, seconds=0.999999))
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance_to(story.at(minutes=15, seconds=1))
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_01_a_whole_second_stays_itself():
    """Asked on the second, it is promised on the second."""
    story = Story()
    story.restart_vm("db")
    assert story.only(DB).not_before == story.at(minutes=15)


def test_rule_01_a_not_before_that_was_asked_for_is_rounded_up_too():
    """The operator says 1:00:00.25 and the document says 1:00:01."""
    story = Story()
    story.maintain("node-3", not_before=story.at(hours=1, seconds=0.25))
    assert story.only(SHOP).not_before == story.at(hours=1, seconds=1)


def test_rule_01_a_postponed_not_before_is_rounded_up_too():
    """The operator postpones to 20:00.25 and the document says 20:01."""
    story = Story()
    story.restart_vm("db")
    story.tell(put_off(story, story.only(DB).id, minutes=20, seconds=0.25))
    assert story.only(DB).not_before == story.at(minutes=20, seconds=1)
    story.advance_to(story.at(minutes=20, seconds=0.5))
    assert story.under_way == {}


def test_rule_01_a_scope_that_listens_later_reads_a_whole_second_too():
    """Nobody listened when 1:00:00.25 was asked for; who listens later reads 1:00:01."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=1, seconds=0.25))
    story.listen(DB)
    assert story.only(DB).not_before == story.at(hours=1, seconds=1)
    story.advance_to(story.at(hours=1, seconds=0.5))
    assert story.under_way == {}
    story.advance(seconds=0.5)
    assert story.shows(DB) == (3, [("Reboot", "Started")])


# ---- Rule 2: more, never less ----


@pytest.mark.parametrize("kind", NODE_KINDS)
def test_rule_02_an_operator_may_give_more_notice(kind):
    """Two hours instead of a quarter of one."""
    story = Story()
    story.on_node(kind, "node-1", not_before=story.at(hours=2))
    for scope in (WEB, BATCH, DB):
        assert story.only(scope).not_before == story.at(hours=2)
    story.advance(hours=1, minutes=59)
    assert story.under_way == {}
    story.advance(minutes=1)
    assert len(story.under_way) == 3


@pytest.mark.parametrize("kind", NODE_KINDS)
@pytest.mark.parametrize(("timing", "least"), [(AZURE, 15 * 60), (DEV, 15)])
def test_rule_02_an_operator_never_gives_less(kind, timing, least):
    """A second less than the least is refused, the least itself is fine."""
    story = Story(timing=timing)
    short = story.node_command(kind, "node-1", not_before=story.at(seconds=least - 1))
    refusal = story.refused(short)
    assert (refusal.code, refusal.rule) == ("invalid", 2)
    assert "less than" in refusal.why
    assert "notice" in refusal.remedy
    story.on_node(kind, "node-1", not_before=story.at(seconds=least))
    assert story.only(DB).not_before == story.at(seconds=least)


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_02_a_user_never_gives_less(timing):
    """A restart needs its 15, a redeploy its 10; a second less is refused."""
    story = Story(timing=timing)
    unit = 60 if timing is AZURE else 1
    restart = {"by": USER, "vms": ("db",), "not_before": story.at(seconds=15 * unit - 1)}
    redeploy = {"by": USER, "vms": ("db",), "not_before": story.at(seconds=10 * unit - 1)}
    assert story.refused(ask.Restart(id="short", **restart)).rule == 2
    assert story.refused(ask.Redeploy(id="short", **redeploy)).rule == 2
    story.restart_vm("db", not_before=story.at(seconds=15 * unit))
    story.redeploy("db", not_before=story.at(seconds=10 * unit))
    assert [event.not_before for event in story.events(DB)] == [
        story.at(seconds=15 * unit),
        story.at(seconds=10 * unit),
    ]


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_02_a_prediction_gives_ten_at_least(timing):
    """A failure foretold for sooner than ten minutes is refused, and the node stays open."""
    story = Story(timing=timing)
    least = 600 if timing is AZURE else 10
    short = {"node": "node-1", "not_before": story.at(seconds=least - 1)}
    refusal = story.refused(PredictFailure(id="short", by=OPERATOR, **short))
    assert (refusal.code, refusal.rule) == ("invalid", 2)
    assert not story.node("node-1").cordoned
    story.predict("node-1", not_before=story.at(seconds=least))
    assert story.only(DB).not_before == story.at(seconds=least)


def test_rule_02_a_prediction_has_a_risk_or_an_instant():
    """Neither, or both, is refused."""
    story = Story()
    neither = PredictFailure(id="a", by=OPERATOR, node="node-1")
    both = PredictFailure(
        id="b", by=OPERATOR, node="node-1", risk=Risk.LOW, not_before=story.at(hours=1)
    )
    for command in (neither, both):
        refusal = story.refused(command)
        assert refusal.code == "invalid"
        assert "risk" in refusal.why


def test_rule_02_one_listener_is_enough_to_refuse_short_notice():
    """Only shop listens on node-3; its 15 minutes bind the whole operation."""
    story = Story(listening=(SHOP,))
    minutes_5 = story.at(minutes=5)
    short = story.node_command(OperationKind.HOST_UPDATE, "node-3", not_before=minutes_5)
    assert story.refused(short).rule == 2


@pytest.mark.parametrize("listening", [(), (DB,)])
def test_rule_02_not_before_does_not_lie_in_the_past(listening):
    """Whether somebody listens or not, yesterday is refused."""
    story = Story(listening=listening)
    past = story.at(seconds=-1)
    refusal = story.refused(ask.Restart(id="late", by=USER, vms=("db",), not_before=past))
    assert (refusal.code, refusal.rule) == ("invalid", 2)
    assert "past" in refusal.why


def test_rule_02_all_or_none_where_one_of_several_gets_too_little():
    """web-0 listens, db does not: five minutes are too few for web-0, so for both."""
    story = Story(listening=(WEB,))
    minutes_5 = story.at(minutes=5)
    command = ask.Restart(id="both", by=USER, vms=("db", "web-0"), not_before=minutes_5)
    assert "web-0" in story.refused(command).why


def test_rule_02_notice_counts_from_when_the_event_becomes_visible():
    """Asked at 00:00 for 60:00, seen from 30:00 on: 30 minutes are more than 15."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(minutes=60))
    story.advance(minutes=30)
    story.listen(DB)
    assert story.only(DB).announced_at == story.at(minutes=30)
    assert story.only(DB).not_before == story.at(minutes=60)


# ---- Rule 2: postponing ----


def test_rule_02_postponing_is_a_visible_change():
    """At 00:05 the restart of 00:15 is postponed to 00:30, and that is when it starts."""
    story = Story()
    story.restart_vm("db")
    event = story.only(DB)
    story.advance(minutes=5)
    story.tell(put_off(story, event.id, minutes=30))
    assert story.shows(DB) == (3, [("Reboot", "Scheduled")])
    assert story.only(DB).id == event.id
    assert story.only(DB).not_before == story.at(minutes=30)
    story.advance(minutes=24, seconds=59)
    assert story.under_way == {}
    story.advance(seconds=1)
    assert story.shows(DB) == (4, [("Reboot", "Started")])


def test_rule_02_postponed_twice():
    """00:15 becomes 00:30 becomes 00:45."""
    story = Story()
    story.restart_vm("db")
    story.tell(put_off(story, story.only(DB).id, minutes=30))
    story.tell(put_off(story, story.only(DB).id, minutes=45))
    assert story.shows(DB) == (4, [("Reboot", "Scheduled")])
    story.advance(minutes=44)
    assert story.under_way == {}
    story.advance(minutes=1)
    assert story.shows(DB) == (5, [("Reboot", "Started")])


def test_rule_02_an_event_that_waits_past_its_time_can_still_be_postponed():
    """The second restart waits for the first one; meanwhile it is put off, and waits for that."""
    story = Story()
    story.restart_vm("db")
    second = story.restart_vm("db").events[0]
    story.advance(minutes=16)
    assert story.shows(DB) == (4, [("Reboot", "Started"), ("Reboot", "Scheduled")])
    story.tell(put_off(story, second, minutes=30))
    story.done("db")
    assert story.event(second).scheduled
    story.advance_to(story.at(minutes=30))
    assert story.event(second).started_at == story.at(minutes=30)


def test_rule_02_the_postponed_event_of_one_scope_keeps_the_whole_operation():
    """The shop's event of node-3 is postponed; batch keeps its own NotBefore and is not touched."""
    story = Story()
    story.maintain("node-3")
    story.tell(put_off(story, story.only(SHOP).id, minutes=40))
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])
    assert story.only(BATCH).not_before == story.at(minutes=15)
    story.advance(minutes=39)
    assert story.under_way == {}
    story.advance(minutes=1)
    assert len(story.under_way) == 3


def test_rule_02_each_event_is_postponed_for_itself():
    """The shop is put off to 00:40, batch to 00:20: the operation starts at the later one."""
    story = Story()
    story.maintain("node-3")
    story.tell(put_off(story, story.only(SHOP).id, minutes=40))
    story.tell(put_off(story, story.only(BATCH).id, minutes=20))
    assert story.only(BATCH).not_before == story.at(minutes=20)
    story.advance(minutes=39)
    assert story.under_way == {}
    story.advance(minutes=1)
    assert len(story.under_way) == 3


def test_rule_02_a_postponed_event_can_be_approved():
    """Postponed to 00:40, approved at once, started at once."""
    story = Story()
    story.restart_vm("db")
    story.tell(put_off(story, story.only(DB).id, minutes=40))
    story.approve("db")
    assert story.shows(DB) == (4, [("Reboot", "Started")])


def test_rule_02_postponing_to_the_same_instant_changes_nothing():
    """00:15 is 00:15, and 14:59.5 rounds up to it."""
    story = Story()
    story.restart_vm("db")
    story.unchanged(put_off(story, story.only(DB).id, minutes=15))
    story.unchanged(put_off(story, story.only(DB).id, minutes=14, seconds=59.5))


def test_rule_02_an_event_is_never_brought_forward():
    """00:14:59 instead of 00:15:00 is refused, and the refusal says from when on."""
    story = Story()
    story.restart_vm("db")
    event = story.only(DB)
    refusal = story.refused(put_off(story, event.id, minutes=14, seconds=59))
    assert (refusal.code, refusal.rule, refusal.event) == ("invalid", 2, event.id)
    assert "brought forward" in refusal.why
    assert "2026-01-01 00:15:00" in refusal.remedy


def test_rule_02_a_postponed_event_is_not_brought_back_to_its_first_instant():
    """00:15, then 00:30: 00:20 would be forward again."""
    story = Story()
    story.restart_vm("db")
    story.tell(put_off(story, story.only(DB).id, minutes=30))
    assert story.refused(put_off(story, story.only(DB).id, minutes=20)).rule == 2


def test_rule_02_an_approved_event_cannot_be_postponed():
    """The batch has approved and waits for shop; its event is a promise now."""
    story = Story()
    story.maintain("node-3")
    story.approve("batch_0")
    event = story.only(BATCH)
    refusal = story.refused(put_off(story, event.id, hours=1))
    assert (refusal.code, refusal.rule, refusal.event) == ("conflict", 2, event.id)
    assert "batch_0" in refusal.why
    assert "Cancel" in refusal.remedy


@pytest.mark.parametrize("over", [False, True])
def test_rule_02_what_has_started_or_is_gone_cannot_be_postponed(over):
    """The restart is under way, then over: too late."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.approve("db")
    if over:
        story.done()
    refusal = story.refused(put_off(story, event, hours=1))
    assert (refusal.code, refusal.rule) == ("conflict", 6)
    assert ("Completed" if over else "Started") in refusal.why


@pytest.mark.parametrize("by", [USER, Requester("db", Role.VM)])
def test_rule_02_only_an_operator_postpones(by):
    """Neither the user who asked for it nor the VM itself may."""
    story = Story()
    event = story.restart_vm("db").events[0]
    refusal = story.refused(put_off(story, event, by=by, hours=1))
    assert (refusal.code, refusal.rule) == ("forbidden", 2)
    assert "operator" in refusal.why


def test_rule_02_postponing_an_event_nobody_knows():
    """A made-up EventId is not found."""
    story = Story()
    refusal = story.refused(put_off(story, "602D9444-0000", hours=1))
    assert (refusal.code, refusal.rule) == ("not-found", 2)
    assert "602D9444-0000" in refusal.why


def test_rule_02_an_event_id_may_be_written_in_small_letters():
    """EventIds are GUIDs, and a GUID is the same in either case."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(put_off(story, event.lower(), minutes=30))
    assert story.only(DB).not_before == story.at(minutes=30)


# ---- Rule 2: terminate notice ----


@pytest.mark.parametrize("minutes", [-5, 0, 1, 4, 16, 60])
def test_rule_02_terminate_notice_outside_5_to_15_minutes_is_refused(minutes):
    """Neither as a setting nor in a fleet file, in either profile."""
    for timing in (AZURE, DEV):
        story = Story(timing=timing)
        setting = SetTerminateNotice(scale_set="batch", minutes=minutes)
        file = FleetSpec(scale_sets=(ScaleSetSpec("new", terminate_notice_minutes=minutes),))
        for command in (setting, ApplyFleet(spec=file)):
            refusal = story.refused(command)
            assert (refusal.code, refusal.rule) == ("invalid", 2)
            assert str(minutes) in refusal.why
            assert "5 to 15" in refusal.remedy


@pytest.mark.parametrize("minutes", [5, 9, 15])
@pytest.mark.parametrize(("timing", "unit"), [(AZURE, 60), (DEV, 1)])
def test_rule_02_terminate_notice_is_what_the_scale_set_says(minutes, timing, unit):
    """5 to 15 minutes, and as many seconds in dev."""
    story = Story(timing=timing)
    story.tell(SetTerminateNotice(scale_set="batch", minutes=minutes))
    story.delete("batch_3")
    assert story.only(BATCH).not_before == story.at(seconds=minutes * unit)


def test_rule_02_another_terminate_notice_leaves_what_is_announced_alone():
    """batch_3 was promised five minutes; fifteen are for those that come after."""
    story = Story()
    story.delete("batch_3")
    story.tell(SetTerminateNotice(scale_set="batch", minutes=15))
    story.delete("batch_2")
    assert [event.not_before for event in story.events(BATCH)] == [
        story.at(minutes=5),
        story.at(minutes=15),
    ]


def test_rule_02_terminate_notice_can_be_taken_away():
    """Without it a delete acts at once."""
    story = Story()
    story.tell(SetTerminateNotice(scale_set="batch", minutes=None))
    story.delete("batch_3")
    assert story.shows(BATCH) == (1, [])
    assert len(story.under_way) == 1


def test_rule_02_the_same_terminate_notice_again_changes_nothing():
    """The batch has five minutes already."""
    Story().unchanged(SetTerminateNotice(scale_set="batch", minutes=5))


def test_rule_02_terminate_notice_of_a_scale_set_nobody_knows():
    """It is not found."""
    refusal = Story().refused(SetTerminateNotice(scale_set="none", minutes=5))
    assert refusal.code == "not-found"


def test_rule_02_each_scale_set_has_its_own_terminate_notice():
    """One command deletes from two sets: five minutes here, twelve there."""
    spec = FleetSpec(
        nodes=(NodeSpec("node-0"),),
        scale_sets=(
            ScaleSetSpec("short", terminate_notice_minutes=5),
            ScaleSetSpec("long", terminate_notice_minutes=12),
        ),
        vms=(
            VmSpec("short_0", "node-0", scale_set="short"),
            VmSpec("long_0", "node-0", scale_set="long"),
        ),
    )
    story = Story(spec, listening=("scale-set:short:0", "scale-set:long:0"))
    story.delete("short_0", "long_0")
    short, long = story.only("scale-set:short:0"), story.only("scale-set:long:0")
    assert long.not_before - short.not_before == timedelta(minutes=7)
