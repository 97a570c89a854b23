"""Small pieces of the law that nothing else would miss: each story fails without its piece."""

from fairnotice.engine import commands as ask
from fairnotice.engine.commands import Postpone, Tick
from fairnotice.engine.effects import Matter, Subject
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus
from tests.engine.story import DB, OPERATOR, USER, WEB, Story


def test_rule_25_more_notice_has_to_elapse_on_the_monotonic_clock_too():
    """Postponed to 01:00, then the clock is set to 02:00: it still gets the whole hour."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    story.clock.set_wall(story.at(hours=2))
    story.advance(minutes=59, seconds=59)
    assert story.shows(DB)[1] == [("Reboot", "Scheduled")]
    story.advance(seconds=2)
    assert story.shows(DB)[1] == [("Reboot", "Started")]


def test_rules_5_13_22_a_failure_lets_pass_whoever_queued_behind_a_rollout():
    """The rollout's operation is due and waits for busy; web-0's restart queues behind it.

    Then web-1's node fails: the rollout must not strike web-0 now, so nothing is before the
    restart any more, and it starts in the same commit.
    """
    spec = FleetSpec(
        nodes=(NodeSpec("a", 0), NodeSpec("b", 1), NodeSpec("c", 2)),
        availability_sets=(SetSpec("web"),),
        vms=(
            VmSpec("web-0", "a", availability_set="web"),
            VmSpec("busy", "a"),
            VmSpec("web-1", "b", availability_set="web"),
        ),
    )
    story = Story(spec)
    story.restart_vm("busy")
    story.roll_out("a")
    maintenance = story.only(WEB).id
    story.approve("web-0", maintenance)
    story.advance(seconds=1)
    restart = story.restart_vm("web-0").events[0]
    story.approve("web-0", restart)
    assert story.event(maintenance).scheduled
    assert story.event(restart).scheduled
    story.ask(ask.FailNode(id="failure", by=OPERATOR, node="b"))
    assert story.event(maintenance).scheduled
    assert story.event(restart).status is EventStatus.STARTED


def test_rule_19_a_request_without_operations_is_known_for_a_day():
    """Stopping what is stopped makes no operation; its key is remembered from when it was asked."""
    story = Story()
    story.stop("db")
    story.done()
    again = {"by": USER, "vms": ("db",), "idempotency_key": "k"}
    story.tell(ask.Stop(id="again", **again))
    look = Tick(subjects=(Subject(Matter.REQUEST, "again"),))
    story.clock.advance(hours=23)
    story.unchanged(look)
    assert "again" in story.fleet.requests
    story.clock.advance(hours=1)
    story.tell(look)
    assert "again" not in story.fleet.requests


def test_rules_12_25_an_event_gone_before_the_clock_went_back_holds_up_nobody():
    """At 01:00 db leaves a maintenance that waits for web-1; the clock comes back at 00:10.

    All others have approved, so it starts as soon as web-1 is free, not at 01:00.
    """
    story = Story()
    story.advance(hours=1)
    story.restart_vm("web-1")
    story.approve("web-1")
    (maintenance,) = story.maintain("node-1").operations
    story.approve("web-1")
    story.approve("batch_1")
    story.stop("db")
    story.done("db")
    assert story.shows(DB)[1] == []
    assert story.operation(maintenance).pending
    story.clock = ManualClock(story.at(minutes=10))
    story.restart()
    story.report(next(iter(story.asked)))
    assert story.operation(maintenance).started_at == story.at(minutes=10)
