"""Rule 24: what a restart makes good to those who could not be told."""

from dataclasses import replace

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine.commands import Postpone, ReportServed, SeenBy
from fairnotice.model import Window
from fairnotice.words import EventStatus, OperationKind, Outcome, Risk
from tests.engine.story import BATCH, DB, OPERATOR, SPOT, WEB, Story


def down_for(story: Story, **passed: float):
    """The process dies, time passes without it, and it lives again."""
    story.clock.advance(**passed)
    return story.restart()


def see(story: Story, event: str, vm: str) -> None:
    """A VM is served an event."""
    story.tell(ReportServed(seen=(SeenBy(event, vm, story.clock.wall()),)))


def test_rule_24_an_event_that_nobody_was_served_gets_its_notice_anew():
    """Announced 00:00 for 00:15, down until 00:10: NotBefore is 00:25, and that is seen."""
    story = Story()
    story.restart_vm("web-0")
    down_for(story, minutes=10)
    assert story.only(WEB).not_before == story.at(minutes=25)
    assert story.shows(WEB) == (3, [("Reboot", "Scheduled")])
    story.advance(minutes=14, seconds=59)
    assert story.shows(WEB) == (3, [("Reboot", "Scheduled")])
    story.advance(seconds=1)
    assert story.shows(WEB) == (4, [("Reboot", "Started")])


def test_rule_24_also_when_its_time_has_passed_meanwhile():
    """Down until 03:00: it does not start at once, it gets its 15 minutes."""
    story = Story()
    story.restart_vm("web-0")
    down_for(story, hours=3)
    assert story.shows(WEB) == (3, [("Reboot", "Scheduled")])
    assert story.only(WEB).not_before == story.at(hours=3, minutes=15)


def test_rule_24_not_before_stays_a_whole_second():
    """Alive again half a second past 00:10: NotBefore is 00:25:01."""
    story = Story()
    story.restart_vm("web-0")
    down_for(story, minutes=10, seconds=0.5)
    assert story.only(WEB).not_before == story.at(minutes=25, seconds=1)


@pytest.mark.parametrize("seen_by", ["web-0", "web-2"])
def test_rule_24_an_event_that_a_vm_of_its_scope_was_served_keeps_its_time(seen_by):
    """Served to the VM itself or to its neighbour: 00:15 stays 00:15."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    see(story, event, seen_by)
    down_for(story, minutes=10)
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")])
    assert story.only(WEB).not_before == story.at(minutes=15)
    story.advance(minutes=5)
    assert story.shows(WEB) == (3, [("Reboot", "Started")])


def test_rule_24_what_is_due_after_the_downtime_starts():
    """Served, and 00:15 passed while nobody was there: it starts with the new life."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    see(story, event, "web-0")
    down_for(story, minutes=20)
    assert story.shows(WEB) == (3, [("Reboot", "Started")])
    assert story.event(event).started_at == story.at(minutes=20)


def test_rule_24_an_approved_event_keeps_its_time_and_starts():
    """Approved while its VM was busy, never reported as served: no new notice."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    second = story.restart_vm("db").events[0]
    story.approve("db", second)
    down_for(story, minutes=5)
    assert story.event(second).not_before == story.at(minutes=15)
    story.report(next(iter(story.asked)), Outcome.DONE)
    assert story.event(second).status is EventStatus.STARTED


def test_rule_24_an_operation_without_events_starts_if_it_is_due():
    """Nobody listens; asked for 00:30, down until 01:00."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(minutes=30))
    down_for(story, hours=1)
    assert {impact.vm for impact in story.under_way.values()} == {"db"}


def test_rule_24_once_per_event():
    """The second restart finds it unserved again, and leaves it alone: it starts at 00:25."""
    story = Story()
    story.restart_vm("web-0")
    down_for(story, minutes=10)
    down_for(story, minutes=10)
    assert story.only(WEB).not_before == story.at(minutes=25)
    story.advance(minutes=5)
    assert story.shows(WEB) == (4, [("Reboot", "Started")])


def test_rule_24_a_second_restart_after_its_renewed_time_starts_it():
    """Renewed to 00:25, down again until 00:40: promised twice, it starts."""
    story = Story()
    story.restart_vm("web-0")
    down_for(story, minutes=10)
    down_for(story, minutes=30)
    assert story.shows(WEB) == (4, [("Reboot", "Started")])


def test_rule_24_a_later_not_before_stays():
    """Postponed to 02:00, down until 00:10: max(02:00, 00:25) is 02:00, no new document."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.tell(Postpone(event=event, not_before=story.at(hours=2), by=OPERATOR))
    down_for(story, minutes=10)
    assert story.only(WEB).not_before == story.at(hours=2)
    assert story.document(WEB).incarnation == 3


def test_rule_24_a_predicted_failure_gets_ten_minutes_not_its_days():
    """Low risk, in 7 days; down for 6 days and 23:55: ten minutes from now."""
    story = Story()
    story.predict("node-5", risk=Risk.LOW)
    down_for(story, days=6, hours=23, minutes=55)
    assert story.only(SPOT).not_before == story.at(days=7, minutes=5)


def test_rule_24_a_predicted_failure_that_is_days_away_stays():
    """Down for a day of seven: nothing changes."""
    story = Story()
    story.predict("node-5", risk=Risk.LOW)
    down_for(story, days=1)
    assert story.only(SPOT).not_before == story.at(days=7)


@pytest.mark.parametrize(
    ("timing", "freeze", "redeploy", "preempt", "terminate"),
    [(AZURE, 900, 600, 30, 300), (DEV, 15, 10, 5, 5)],
)
def test_rule_24_each_type_gets_the_notice_of_its_type(
    timing, freeze, redeploy, preempt, terminate
):
    """Freeze, Redeploy, Preempt and Terminate, in both profiles, after an hour down."""
    story = Story(timing=timing)
    story.maintain("node-5")
    evicted = story.evict("spot_0").events[0]
    redeployed = story.redeploy("db").events[0]
    deleted = story.delete("batch_0").events[0]
    (frozen,) = [event.id for event in story.events(SPOT) if event.type.value == "Freeze"]
    down_for(story, hours=1)
    for event, seconds in (
        (frozen, freeze),
        (redeployed, redeploy),
        (evicted, preempt),
        (deleted, terminate),
    ):
        assert story.event(event).not_before == story.at(hours=1, seconds=seconds)


def test_rule_24_of_two_events_of_an_operation_only_the_unserved_one_moves():
    """Web was served, batch was not: web keeps 00:15, batch gets 00:25, both start then."""
    story = Story()
    story.maintain("node-0")
    see(story, story.only(WEB).id, "web-1")
    down_for(story, minutes=10)
    assert story.only(WEB).not_before == story.at(minutes=15)
    assert story.only(BATCH).not_before == story.at(minutes=25)
    story.advance(minutes=14, seconds=59)
    assert story.shows(WEB)[1] == [("Freeze", "Scheduled")]
    story.advance(seconds=1)
    assert story.shows(WEB)[1] == story.shows(BATCH)[1] == [("Freeze", "Started")]


def test_rule_24_what_is_started_or_gone_is_left_alone():
    """A started event and a canceled one are as they were."""
    story = Story()
    started = story.restart_vm("db").events[0]
    story.approve("db")
    canceled = story.restart_vm("web-0")
    story.cancel(canceled.operations[0])
    before = (story.event(started), story.event(canceled.events[0]))
    down_for(story, minutes=5)
    assert (story.event(started), story.event(canceled.events[0])) == before


def test_rule_24_a_takeover_while_endpoints_serve_is_no_restart():
    """Another process leads now; nobody missed anything, nothing moves."""
    story = Story()
    story.restart_vm("web-0")
    story.clock.advance(minutes=10)
    story.restart(takeover=True)
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")])
    assert story.only(WEB).not_before == story.at(minutes=15)
    story.advance(minutes=5)
    assert story.shows(WEB) == (3, [("Reboot", "Started")])


def test_rule_24_a_takeover_after_the_time_starts_what_is_due():
    """The leader was gone from 00:10 to 00:20, the endpoints were not."""
    story = Story()
    story.restart_vm("web-0")
    story.clock.advance(minutes=20)
    story.restart(takeover=True)
    assert story.shows(WEB) == (3, [("Reboot", "Started")])


def test_rule_24_the_first_start_of_all_has_nothing_to_make_good():
    """A fleet without a past begins its first life."""
    story = Story()
    decision = story.restart()
    assert story.fleet.life.number == 1
    assert decision.warnings == ()


# ---- Nothing that was to come is forgotten by a restart ----


def test_rule_24_an_impact_under_way_is_asked_about_and_still_has_its_limit():
    """The driver is asked; if it never answers, its ten minutes count from then on."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.approve("db")
    down_for(story, minutes=5)
    assert [impact.vm for impact in story.asked.values()] == ["db"]
    story.advance(minutes=9, seconds=59)
    assert story.event(event).visible
    story.advance(seconds=1)
    assert not story.event(event).visible


@pytest.mark.parametrize("minutes", [1, 10])
def test_rule_11_an_event_that_settles_goes_although_the_process_died(minutes):
    """Five minutes to settle, the process dies in the first: the event goes in time, or at once."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    story.restart_vm("db")
    story.approve("db")
    story.done()
    down_for(story, minutes=minutes)
    story.advance(minutes=max(5 - minutes, 0))
    assert story.events(DB) == ()


def test_rule_22_a_rollout_goes_on_after_a_restart():
    """Recovery passed while nobody was there: the next node is announced with the new life."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1")
    story.approve("web-0")
    story.approve("batch_0")
    story.done()
    down_for(story, hours=1)
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "live"}
    story.advance(minutes=15)
    story.done()
    story.restart()
    story.advance(hours=91 * 24)
    assert story.fleet.rollouts == {}


def test_rule_08_silence_is_still_counted_after_a_restart():
    """Nobody asks any more: a day and an hour later the scopes are disabled."""
    story = Story()
    story.restart()
    story.advance(hours=26)
    assert not story.scope(WEB).enabled


def test_rule_03_what_is_over_is_forgotten_after_a_day_although_the_process_died():
    """The timer of forgetting is set anew."""
    story = Story()
    operation = story.restart_vm("db").operations[0]
    story.approve("db")
    story.done()
    down_for(story, hours=1)
    assert operation in story.fleet.operations
    story.advance(hours=23)
    assert story.fleet.operations == {}
    assert story.fleet.requests == {}


def test_rule_22_a_renewed_event_of_a_rollout_still_keeps_to_the_window():
    """Renewed to 02:25, when the window has closed: it waits for the next one."""
    story = Story()
    story.roll_out("node-5", windows=(Window((3,), 120, 15),), kind=OperationKind.HOST_UPDATE)
    down_for(story, hours=2, minutes=10)
    assert story.only(SPOT).not_before >= story.at(hours=2, minutes=25)
    story.advance(hours=24)
    assert story.shows(SPOT)[1] == [("Freeze", "Scheduled")]
    story.advance_to(story.at(days=7, hours=2))
    assert story.shows(SPOT)[1] == [("Freeze", "Started")]
