"""Rule 22: a rollout's operations are not due outside its maintenance windows.

Every story begins on Thursday, the 1st of January 2026, at 00:00 UTC.
"""

from fairnotice.engine import DEV
from fairnotice.engine.commands import Confirm, JoinEndpoint
from fairnotice.model import Window
from tests.engine.story import DB, SPOT, Story

THURSDAY, FRIDAY = 3, 4
# 02:00 to 02:05 on Thursdays.
SHORT = Window((THURSDAY,), 120, 5)
# 00:00 to 04:00 on Thursdays.
OPEN_NOW = Window((THURSDAY,), 0, 240)


def test_rule_22_not_before_lies_inside_a_window():
    """Announced at once, it starts when the window opens, not when its notice has passed."""
    story = Story()
    story.roll_out("node-5", windows=(SHORT,))
    assert story.only(SPOT).not_before == story.at(hours=2)
    story.advance(hours=1, minutes=59, seconds=59)
    assert story.shows(SPOT) == (2, [("Freeze", "Scheduled")])
    story.advance(seconds=1)
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])


def test_rule_22_inside_a_window_the_notice_is_enough():
    """The window is open and still is in 15 minutes: NotBefore is 00:15."""
    story = Story()
    story.roll_out("node-5", windows=(OPEN_NOW,))
    assert story.only(SPOT).not_before == story.at(minutes=15)


def test_rule_22_a_window_that_closes_before_the_notice_has_passed_is_missed():
    """Open until 00:10, notice until 00:15: NotBefore is a week from now."""
    story = Story()
    story.roll_out("node-5", windows=(Window((THURSDAY,), 0, 10),))
    assert story.only(SPOT).not_before == story.at(days=7)


def test_rule_22_of_several_windows_the_first_that_gives_notice_is_taken():
    """Thursday 00:10 comes too soon, Friday 03:00 before next Thursday."""
    story = Story()
    story.roll_out("node-5", windows=(Window((THURSDAY,), 10, 5), Window((FRIDAY,), 180, 60)))
    assert story.only(SPOT).not_before == story.at(days=1, hours=3)


def test_rule_22_an_approved_operation_waits_for_its_window():
    """Approved at 00:30, it starts at 02:00 and not before."""
    story = Story()
    story.roll_out("node-5", windows=(SHORT,))
    story.advance(minutes=30)
    story.approve("spot_1")
    story.advance(hours=1, minutes=29, seconds=59)
    assert story.shows(SPOT) == (2, [("Freeze", "Scheduled")])
    story.advance(seconds=1)
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])


def test_rule_22_inside_the_window_an_approval_starts_it_at_once():
    """The window is open: approved is due."""
    story = Story()
    story.roll_out("node-5", windows=(OPEN_NOW,))
    story.approve("spot_1")
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])


def test_rule_22_nobody_listens_and_still_the_window_is_kept():
    """An operation without any event is not due before the window either."""
    story = Story(listening=())
    story.roll_out("node-5", windows=(SHORT,))
    story.advance(hours=1, minutes=59, seconds=59)
    assert not story.under_way
    story.advance(seconds=1)
    assert {impact.vm for impact in story.under_way.values()} == {"spot_1"}


def test_rule_22_a_window_that_closed_while_the_vm_was_busy_is_waited_for_again():
    """The db reboots from 01:58 to 02:06: node-1 waits for the next Thursday."""
    story = Story()
    story.roll_out("node-1", windows=(SHORT,))
    story.advance(hours=1, minutes=58)
    restart = story.restart_vm("db").events[0]
    story.approve("db", restart)
    story.advance(minutes=8)
    story.done("db")
    assert story.shows(DB)[1] == [("Freeze", "Scheduled")]
    story.advance_to(story.at(days=7, hours=1, minutes=59, seconds=59))
    assert story.shows(DB)[1] == [("Freeze", "Scheduled")]
    story.advance(seconds=1)
    assert story.shows(DB)[1] == [("Freeze", "Started")]


def test_rule_05_when_its_window_closes_a_rollout_lets_others_pass():
    """Node-1, due at 02:00 and held up by db, holds back a restart of web-1 until 02:05."""
    story = Story()
    story.roll_out("node-1", windows=(SHORT,))
    story.advance(hours=1, minutes=58)
    story.approve("db", *story.restart_vm("db").events)
    story.advance(minutes=3)
    restart = story.restart_vm("web-1").events[0]
    story.approve("web-1", restart)
    story.advance(minutes=3, seconds=59)
    assert story.event(restart).started_at is None
    story.advance(seconds=1)
    assert story.event(restart).started_at == story.at(hours=2, minutes=5)


def test_rule_22_an_endpoint_that_confirms_after_the_window_does_not_open_it():
    """Confirmed at 02:05, when the window has just closed: a week more."""
    story = Story()
    story.tell(JoinEndpoint(node="node-5"))
    story.roll_out("node-5", windows=(SHORT,))
    story.advance(hours=2, minutes=5)
    story.tell(Confirm(node="node-5", revision=story.fleet.revision))
    story.notice_passes()
    assert story.shows(SPOT) == (3, [("Freeze", "Scheduled")])
    story.advance_to(story.at(days=7, hours=2))
    assert story.shows(SPOT) == (4, [("Freeze", "Started")])


def test_rule_22_what_started_inside_the_window_may_end_outside():
    """Started at 02:00, done at 02:10: nothing is taken back."""
    story = Story()
    rollout = story.roll_out("node-5", windows=(SHORT,), duration_seconds=600)
    story.advance(hours=2, minutes=10)
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])
    story.done()
    assert story.statuses(rollout) == {"node-5": "done"}


def test_rule_22_the_next_node_gets_the_next_window():
    """One node in each window where recovery leaves no time for two."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1", windows=(SHORT,))
    story.advance(hours=2)
    story.done()
    story.advance(minutes=30)
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "live"}
    assert story.only(DB).not_before == story.at(days=7, hours=2)


def test_rule_22_windows_and_notice_of_the_dev_profile():
    """15 seconds of notice fit into the window that is open."""
    story = Story(timing=DEV)
    story.roll_out("node-5", windows=(Window((THURSDAY,), 0, 1),))
    assert story.only(SPOT).not_before == story.at(seconds=15)
