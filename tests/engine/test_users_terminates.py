"""Rule 16: the Terminates of one scale set wait for each other."""

from datetime import timedelta

import pytest

from fairnotice.engine import AZURE, DEV, Code
from fairnotice.engine import commands as ask
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, VmSpec
from fairnotice.words import EventStatus
from tests.engine.story import BATCH, OPERATOR, SPOT, USER, Story


def going(story: Story) -> list[str]:
    """The VMs that are being deleted."""
    return [impact.vm for impact in story.under_way.values()]


def two_sets(**more) -> Story:
    """Scale set `big` has two placement groups, `small` one; all listen."""
    spec = FleetSpec(
        nodes=(NodeSpec("a"), NodeSpec("b")),
        scale_sets=(
            ScaleSetSpec("big", terminate_notice_minutes=5, placement_groups=2),
            ScaleSetSpec("small", terminate_notice_minutes=5),
        ),
        vms=(
            VmSpec("big_0", "a", scale_set="big", placement_group=0),
            VmSpec("big_1", "b", scale_set="big", placement_group=1),
            VmSpec("small_0", "a", scale_set="small"),
        ),
    )
    listening = ("scale-set:big:0", "scale-set:big:1", "scale-set:small:0")
    return Story(spec, listening=listening, **more)


# ---- A delete with terminate notification ----


@pytest.mark.parametrize(("timing", "minute"), [(AZURE, 60), (DEV, 1)], ids=["azure", "dev"])
@pytest.mark.parametrize("minutes", [5, 15])
def test_rule_16_a_delete_gives_the_terminate_notice_of_its_scale_set(timing, minute, minutes):
    """Minutes in one profile, as many seconds in the other."""
    story = Story(timing=timing)
    story.tell(ask.SetTerminateNotice(scale_set="batch", minutes=minutes))
    story.delete("batch_0")
    event = story.only(BATCH)
    assert (event.type, event.source, event.description) == ("Terminate", "User", "")
    assert event.not_before == story.at(seconds=minutes * minute)
    story.advance(seconds=minutes * minute - 1)
    assert story.shows(BATCH) == (2, [("Terminate", "Scheduled")])
    story.advance(seconds=1)
    assert story.shows(BATCH) == (3, [("Terminate", "Started")])
    story.done("batch_0")
    assert story.shows(BATCH) == (4, [])
    assert "batch_0" not in story.fleet.vms


def test_rule_16_an_approved_terminate_that_is_alone_starts_at_once():
    """Nobody was announced before it."""
    story = Story()
    story.delete("batch_0")
    story.approve("batch_3")
    assert going(story) == ["batch_0"]


# ---- Announced before ----


def test_rule_16_one_is_due_only_when_those_announced_before_it_are_approved():
    """Batch_1 is approved and waits; when batch_0 is approved too, both go."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.advance(minutes=1)
    assert story.shows(BATCH)[1] == [("Terminate", "Scheduled")] * 2
    story.approve("batch_3", *first)
    assert going(story) == ["batch_0", "batch_1"]


def test_rule_16_the_first_does_not_wait_for_the_second():
    """Only those announced before count."""
    story = Story()
    first = story.delete("batch_0").events
    story.delete("batch_1")
    story.approve("batch_3", *first)
    assert going(story) == ["batch_0"]
    assert story.shows(BATCH)[1] == [("Terminate", "Started"), ("Terminate", "Scheduled")]


def test_rule_16_all_those_announced_before_count_not_only_the_last():
    """Batch_2 waits for batch_0 although batch_1 is approved."""
    story = Story()
    first, second, third = (story.delete(f"batch_{n}").events for n in range(3))
    story.approve("batch_3", *second, *third)
    assert going(story) == []
    story.approve("batch_3", *first)
    assert sorted(going(story)) == ["batch_0", "batch_1", "batch_2"]


def test_rule_16_one_that_timed_out_holds_nobody_up():
    """Batch_0 is never approved; at its NotBefore it goes, and approved batch_1 with it."""
    story = Story()
    story.delete("batch_0")
    story.advance(minutes=2)
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.advance(seconds=179)
    assert going(story) == []
    story.advance(seconds=1)
    assert going(story) == ["batch_0", "batch_1"]


def test_rule_16_one_that_timed_out_holds_nobody_up_although_it_cannot_start():
    """Batch_0 is due and busy with a restart; batch_1 need not wait for that."""
    story = Story()
    restart = story.restart_vm("batch_0").events
    story.advance(minutes=1)
    story.delete("batch_0")
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.advance(minutes=4)
    story.approve("batch_3", *restart)
    assert going(story) == ["batch_0"]
    story.advance(minutes=1)
    assert going(story) == ["batch_0", "batch_1"]
    assert ("Terminate", "Scheduled") in story.shows(BATCH)[1]


def test_rule_16_one_that_is_approved_holds_nobody_up_although_it_cannot_start():
    """The same, by approval."""
    story = Story()
    story.approve("batch_3", *story.restart_vm("batch_0").events)
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    assert going(story) == ["batch_0"]
    story.approve("batch_3", *first)
    assert going(story) == ["batch_0", "batch_1"]


def test_rule_16_one_that_is_canceled_holds_nobody_up():
    """Ada takes the first delete back: the second, approved, goes in that commit."""
    story = Story()
    (first,) = story.delete("batch_0").operations
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    commits = len(story.decisions)
    story.cancel(first, by=USER)
    assert going(story) == ["batch_1"]
    assert story.event(second[0]).status is EventStatus.STARTED
    assert any(
        type(change).__name__ == "EventStarted" for change in story.decisions[commits].changes
    )


def test_rule_16_one_whose_vm_was_stopped_is_gone_and_holds_nobody_up():
    """Batch_0 stops, so its Terminate is in no event; batch_1 has nobody to wait for."""
    story = Story()
    story.delete("batch_0")
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.stop("batch_0")
    story.done("batch_0")
    assert story.event(second[0]).status is EventStatus.STARTED
    assert sorted(going(story)) == ["batch_0", "batch_1"]


def test_rule_16_one_that_has_started_holds_nobody_up():
    """Batch_0 is being deleted; a later, approved delete need not wait for its end."""
    story = Story()
    story.delete("batch_0")
    story.approve("batch_3")
    story.delete("batch_1")
    story.approve("batch_3")
    assert going(story) == ["batch_0", "batch_1"]


def test_rule_16_approval_of_the_later_one_counts_from_when_it_may_go():
    """What waited in the queue does not jump ahead of what was due before on its VM."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    restart = story.restart_vm("batch_1").events
    story.advance(minutes=1)
    story.approve("batch_3", *restart)
    story.advance(minutes=1)
    assert going(story) == ["batch_1"]
    story.approve("batch_3", *first)
    assert [impact.kind for impact in story.under_way.values()] == ["reboot", "delete"]


# ---- Of one command ----


def test_rule_16_those_of_one_command_need_all_their_approvals():
    """Three are deleted together: two approvals start nothing, the third starts all."""
    story = Story()
    events = story.delete("batch_0", "batch_1", "batch_2").events
    story.approve("batch_3", events[2])
    story.approve("batch_3", events[0])
    assert going(story) == []
    story.approve("batch_3", events[1])
    assert sorted(going(story)) == ["batch_0", "batch_1", "batch_2"]


def test_rule_16_those_of_one_command_go_together_when_their_time_has_come():
    """One of two was approved: both wait for NotBefore."""
    story = Story()
    events = story.delete("batch_0", "batch_1").events
    story.approve("batch_3", events[0])
    story.advance(seconds=299)
    assert going(story) == []
    story.advance(seconds=1)
    assert sorted(going(story)) == ["batch_0", "batch_1"]


def test_rule_16_a_canceled_one_of_a_command_is_not_waited_for():
    """The second is taken back; the first, approved, goes."""
    story = Story()
    answer = story.delete("batch_0", "batch_1")
    story.approve("batch_3", answer.events[0])
    story.cancel(answer.operations[1], by=USER)
    assert going(story) == ["batch_0"]


def test_rule_16_a_scale_in_is_one_command():
    """Two instances go by one scale-in: the newest, and both need their approvals."""
    story = Story()
    answer = story.tell(ask.ScaleIn(id="in", by=USER, scale_set="batch", count=2))
    assert {story.event(event).resources for event in answer.events} == {
        ("batch_2",),
        ("batch_3",),
    }
    story.approve("batch_0", answer.events[0])
    assert going(story) == []
    story.approve("batch_0", answer.events[1])
    assert sorted(going(story)) == ["batch_2", "batch_3"]


# ---- Its own NotBefore ----


def test_rule_16_its_own_not_before_always_releases_it():
    """The first was announced with 15 minutes, the second with 5: it goes after its 5."""
    story = Story()
    story.tell(ask.SetTerminateNotice(scale_set="batch", minutes=15))
    story.delete("batch_0")
    story.tell(ask.SetTerminateNotice(scale_set="batch", minutes=5))
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.advance(seconds=299)
    assert going(story) == []
    story.advance(seconds=1)
    assert going(story) == ["batch_1"]


def test_rule_16_a_postponed_one_holds_up_only_until_the_others_not_before():
    """Batch_0 is put off for an hour; batch_1 goes at its own time."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.tell(ask.Postpone(event=first[0], not_before=story.at(hours=1), by=OPERATOR))
    story.advance(minutes=5)
    assert going(story) == ["batch_1"]


# ---- Who is in the queue ----


def test_rule_16_all_placement_groups_of_a_scale_set_are_one_queue():
    """Big_1 is in another placement group, and waits for big_0 all the same."""
    story = two_sets()
    first = story.delete("big_0").events
    second = story.delete("big_1").events
    story.approve("big_1", *second)
    assert going(story) == []
    story.approve("big_0", *first)
    assert going(story) == ["big_0", "big_1"]


def test_rule_16_another_scale_set_is_another_queue():
    """Small_0 waits for nobody of big."""
    story = two_sets()
    story.delete("big_0")
    story.delete("small_0")
    story.approve("small_0")
    assert going(story) == ["small_0"]


def test_rule_16_those_without_an_event_are_not_waited_for_and_do_not_wait():
    """Group 1 is silent: big_1 is deleted at once, and big_0 waits for nobody."""
    story = two_sets()
    quiet = two_sets()
    quiet.advance(hours=26)
    quiet.listen("scale-set:big:0")
    quiet.delete("big_0")
    quiet.delete("big_1")
    assert going(quiet) == ["big_1"]
    story.stop("big_1")
    story.done()
    story.delete("big_1")
    story.delete("big_0")
    story.approve("big_0")
    assert going(story) == ["big_1", "big_0"]


def test_rule_16_one_that_waits_without_an_event_is_not_waited_for():
    """Big_1 is busy and has no event: big_0, announced later and approved, goes."""
    story = two_sets()
    story.advance(hours=26)
    story.listen("scale-set:big:0")
    story.restart_vm("big_1")
    story.delete("big_1")
    assert going(story) == ["big_1"]
    story.delete("big_0")
    story.approve("big_0")
    assert going(story) == ["big_1", "big_0"]


def test_rule_16_a_spot_vm_gets_no_terminate():
    """Terminate notification is not for Spot: spot_0 is deleted at once, without an event."""
    story = Story()
    story.tell(ask.SetTerminateNotice(scale_set="spot", minutes=5))
    story.delete("spot_0")
    assert story.events(SPOT) == ()
    assert going(story) == ["spot_0"]


def test_rule_16_whoever_sets_a_notice_that_is_never_given_is_told():
    """Of a Spot scale set, each time, and whether or not it changes; switched off, all is well."""
    story = Story()
    for name, minutes, warns in (
        ("spot", 5, True),
        ("spot", 5, True),
        ("spot", None, False),
        ("batch", 5, False),
    ):
        story.tell(ask.SetTerminateNotice(scale_set=name, minutes=minutes))
        told = story.decisions[-1].warnings
        assert [text.startswith("spot is Spot: ") for text in told] == [True] * warns


# ---- Scale-in, asked badly ----


@pytest.mark.parametrize("count", [-1, 0, 5])
def test_rule_16_a_scale_in_of_more_or_less_than_there_is_is_refused(count):
    """Four instances: a count from 1 to 4, says the refusal."""
    refusal = Story().refused(ask.ScaleIn(id="in", by=USER, scale_set="batch", count=count))
    assert refusal.code is Code.INVALID
    assert "1 to 4" in refusal.remedy


def test_rule_16_a_scale_in_counts_only_those_that_stay():
    """Batch_3 is going already: the next scale-in takes batch_2, and three are left to ask for."""
    story = Story()
    story.delete("batch_3")
    assert story.refused(ask.ScaleIn(id="in", by=USER, scale_set="batch", count=4)).code is (
        Code.INVALID
    )
    answer = story.tell(ask.ScaleIn(id="in", by=USER, scale_set="batch", count=1))
    assert story.event(answer.events[0]).resources == ("batch_2",)


def test_rule_16_a_scale_in_of_a_set_that_is_empty_makes_sense_to_a_person():
    """Nothing is left to go: the refusal does not ask for a count from 1 to 0."""
    story = Story()
    story.tell(ask.ScaleIn(id="in", by=USER, scale_set="batch", count=4))
    refusal = story.refused(ask.ScaleIn(id="again", by=USER, scale_set="batch", count=1))
    assert refusal.code is Code.INVALID
    assert "1 to 0" not in refusal.remedy


def test_rule_16_a_scale_in_of_no_scale_set_is_refused():
    """Web is an availability set."""
    refusal = Story().refused(ask.ScaleIn(id="in", by=USER, scale_set="web", count=1))
    assert refusal.code is Code.NOT_FOUND
    assert "web" in refusal.why


def test_rule_16_the_notice_of_those_announced_does_not_change():
    """The scale set drops its notice: what was promised is kept, what comes acts at once."""
    story = Story()
    story.delete("batch_0")
    story.tell(ask.SetTerminateNotice(scale_set="batch", minutes=None))
    assert story.only(BATCH).not_before == story.began + timedelta(minutes=5)
    story.delete("batch_1")
    assert going(story) == ["batch_1"]
