"""Rule 25: the two clocks, and a start with the clock behind the last record."""

from datetime import timedelta

import pytest

from fairnotice.engine import DEV, decide
from fairnotice.engine.commands import Approve, Postpone, ReportServed, SeenBy, Tick
from fairnotice.engine.effects import Matter, Subject
from fairnotice.errors import ClockWentBack, LawError
from fairnotice.model import Moment, Requester
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus, Outcome, Risk, Role
from tests.engine.story import DB, OPERATOR, SPOT, WEB, Story


def look(operation: str) -> Tick:
    """The time of this operation has come, it is said."""
    return Tick(subjects=(Subject(Matter.OPERATION, operation),))


def back_at(story: Story, **passed: float):
    """The process starts anew on a machine whose clock shows this, counted from the beginning."""
    story.clock = ManualClock(story.at(**passed))
    return story.restart()


# ---- Now never decreases within a life ----


def test_rule_25_a_now_before_the_last_record_is_our_own_fault():
    """No command is decided at a time that has passed; nothing has changed."""
    story = Story()
    story.advance(minutes=10)
    story.restart_vm("db")
    before = story.snapshot()
    past = Moment(story.at(minutes=9, seconds=59), 600.0)
    command = Approve(events=(story.only(DB).id,), by=Requester("db", Role.VM))
    with pytest.raises(ClockWentBack, match="the last record is of"):
        decide(story.fleet, command, past)
    with pytest.raises(LawError):
        decide(story.fleet, command, past)
    assert story.snapshot() == before


def test_rule_25_the_same_instant_is_not_before_the_last_record():
    """Many things may happen at one instant."""
    story = Story()
    story.restart_vm("db")
    story.restart_vm("web-0")
    assert story.only(DB).announced_at == story.only(WEB).announced_at


# ---- A start without approval needs both clocks ----


def test_rule_25_a_wall_clock_that_jumps_ahead_starts_nothing():
    """At 00:05 somebody sets the clock to 02:00: the event still gets its other ten minutes."""
    story = Story()
    story.restart_vm("db")
    story.advance(minutes=5)
    story.clock.set_wall(story.at(hours=2))
    story.tick()
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance(minutes=9, seconds=59)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance(seconds=2)
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_25_in_the_dev_profile_too():
    """15 seconds on the clock that nobody can set."""
    story = Story(timing=DEV)
    story.restart_vm("db")
    story.clock.set_wall(story.at(hours=2))
    story.advance(seconds=14)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance(seconds=2)
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_25_the_monotonic_clock_alone_starts_nothing():
    """An hour has elapsed, and the wall clock shows 00:14:59: not before NotBefore."""
    story = Story()
    operation = story.restart_vm("db").operations[0]
    early = decide(story.fleet, look(operation), Moment(story.at(minutes=14.99), 3600.0))
    assert early.changes == ()
    ready = decide(story.fleet, look(operation), Moment(story.at(minutes=15), 3600.0))
    assert any(getattr(change.row, "status", "") == EventStatus.STARTED for change in ready.changes)


def test_rule_25_an_approval_needs_no_clock():
    """The clock jumped, and the VM gives its go-ahead: it starts."""
    story = Story()
    story.restart_vm("db")
    story.clock.set_wall(story.at(hours=2))
    story.approve("db")
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_25_every_event_of_the_operation_needs_its_notice():
    """Maintenance of node-1, the clock jumps: neither web nor db is hit before its notice."""
    story = Story()
    story.maintain("node-1")
    story.approve("batch_1")
    story.clock.set_wall(story.at(hours=2))
    story.tick()
    assert story.shows(WEB)[1] == story.shows(DB)[1] == [("Freeze", "Scheduled")]
    story.advance(minutes=15, seconds=1)
    assert story.shows(WEB)[1] == story.shows(DB)[1] == [("Freeze", "Started")]


def test_rule_25_a_predicted_failure_needs_its_days_on_the_monotonic_clock():
    """Medium risk, 24 hours; the clock jumps two days: the event keeps its day."""
    story = Story()
    story.predict("node-5", risk=Risk.MEDIUM)
    story.clock.set_wall(story.at(days=2))
    story.advance(hours=23, minutes=59)
    assert story.shows(SPOT)[1] == [("Redeploy", "Scheduled")]
    story.advance(minutes=2)
    assert story.shows(SPOT)[1] == [("Redeploy", "Started")]


def test_rule_25_only_within_one_life():
    """A new life has a new monotonic clock, which cannot be compared: the wall clock decides."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(ReportServed(seen=(SeenBy(event, "db", story.clock.wall()),)))
    story.advance(minutes=10)
    back_at(story, minutes=11)
    assert story.clock.monotonic() == 0
    story.advance(minutes=4)
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_25_a_renewed_notice_elapses_on_the_clock_of_the_new_life():
    """Nobody was served it: 15 minutes on the new monotonic clock, whatever the wall clock does."""
    story = Story()
    story.restart_vm("db")
    back_at(story, minutes=5)
    story.clock.set_wall(story.at(hours=3))
    story.advance(minutes=14, seconds=59)
    assert story.shows(DB) == (3, [("Reboot", "Scheduled")])
    story.advance(seconds=2)
    assert story.shows(DB) == (4, [("Reboot", "Started")])


def test_rule_25_a_postponed_event_needs_the_wall_clock_past_its_new_time():
    """Postponed to 01:00: the notice elapsed at 00:15, the wall clock is what it waits for."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    story.advance(minutes=59, seconds=59)
    assert story.shows(DB)[1] == [("Reboot", "Scheduled")]
    story.advance(seconds=1)
    assert story.shows(DB)[1] == [("Reboot", "Started")]


# ---- A start with the clock behind ----


def test_rule_25_a_start_with_the_clock_behind_says_so():
    """The last record is of 00:10, the clock shows 00:04: a warning names the difference."""
    story = Story()
    story.advance(minutes=10)
    story.restart_vm("db")
    decision = back_at(story, minutes=4)
    (warning,) = decision.warnings
    assert "360 s behind" in warning


def test_rule_25_a_start_with_the_clock_at_the_last_record_says_nothing():
    """Equal is not behind."""
    story = Story()
    story.advance(minutes=10)
    story.restart_vm("db")
    assert back_at(story, minutes=10).warnings == ()


def test_rule_25_with_the_clock_behind_everything_scheduled_has_its_notice_anew():
    """Served or not, renewed or not: 00:15 becomes 00:23 for all that is Scheduled.

    00:00 db and web-0 are announced, db is served. 00:12 the last record. The process comes back
    with its clock at 00:08.
    """
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(ReportServed(seen=(SeenBy(event, "db", story.clock.wall()),)))
    story.restart_vm("web-0")
    story.advance(minutes=12)
    story.evict("spot_0")
    back_at(story, minutes=8)
    assert story.only(DB).not_before == story.at(minutes=23)
    assert story.only(WEB).not_before == story.at(minutes=23)


def test_rule_25_with_the_clock_behind_an_event_renewed_before_is_renewed_again():
    """Renewed by a restart at 00:10 to 00:25; behind at 00:11 after a record of 00:20: 00:26."""
    story = Story()
    story.restart_vm("web-0")
    story.clock.advance(minutes=10)
    story.restart()
    story.advance(minutes=10)
    story.evict("spot_0")
    back_at(story, minutes=11)
    assert story.only(WEB).not_before == story.at(minutes=26)


def test_rule_25_with_the_clock_behind_nothing_is_brought_forward():
    """A day behind: NotBefore stays where it is, a day and a quarter of an hour away."""
    story = Story()
    story.restart_vm("db")
    back_at(story, hours=-24)
    assert story.only(DB).not_before == story.at(minutes=15)
    story.advance(hours=24, minutes=14)
    assert story.shows(DB)[1] == [("Reboot", "Scheduled")]
    story.advance(minutes=1)
    assert story.shows(DB)[1] == [("Reboot", "Started")]


def test_rule_25_a_takeover_with_the_clock_behind_says_so_too():
    """The other machine's clock is six minutes behind this one's records."""
    story = Story()
    story.advance(minutes=10)
    event = story.restart_vm("db").events[0]
    story.tell(ReportServed(seen=(SeenBy(event, "db", story.clock.wall()),)))
    story.advance(minutes=8)
    story.evict("spot_0")
    story.clock = ManualClock(story.at(minutes=12))
    decision = story.restart(takeover=True)
    assert "behind" in decision.warnings[0]
    assert story.only(DB).not_before == story.at(minutes=27)


def test_rule_25_with_the_clock_behind_what_was_approved_is_still_due():
    """Approved at 01:00 while its VM was busy; the clock comes back at 00:10; the VM gets free."""
    story = Story()
    story.advance(hours=1)
    story.restart_vm("db")
    story.approve("db")
    second = story.restart_vm("db").events[0]
    story.approve("db", second)
    back_at(story, minutes=10)
    story.report(next(iter(story.asked)), Outcome.DONE)
    assert story.event(second).status is EventStatus.STARTED


def test_rule_25_with_the_clock_behind_what_nobody_waits_for_still_starts_at_once():
    """Nobody listens, the VM is busy: free again, the second restart does not wait for 01:00."""
    story = Story(listening=())
    story.advance(hours=1)
    story.restart_vm("db")
    second = story.restart_vm("db").operations[0]
    back_at(story, minutes=10)
    story.report(next(iter(story.asked)), Outcome.DONE)
    assert story.operation(second).started_at == story.at(minutes=10)


def test_rule_25_after_a_start_behind_the_law_goes_on_from_there():
    """Commands are taken at the new, earlier time."""
    story = Story()
    story.advance(hours=1)
    story.restart_vm("db")
    back_at(story, minutes=30)
    story.restart_vm("web-0")
    assert story.only(WEB).not_before == story.at(minutes=45)


def test_rule_25_each_start_is_a_life_of_its_own():
    """They are counted, and when the last one began is known."""
    story = Story()
    story.restart()
    story.clock.advance(minutes=3)
    story.restart(takeover=True)
    assert story.fleet.life.number == 2
    assert story.fleet.life.began_at == story.began + timedelta(minutes=3)
