"""Rule 26: every step leaves a record, with its time, by whom, and the notice given."""

from datetime import datetime

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine import commands as ask
from fairnotice.engine.changes import (
    Change,
    EventAnnounced,
    EventApproved,
    EventGone,
    EventPostponed,
    EventSeen,
    EventStarted,
    ImpactBegun,
    ImpactEnded,
    OperationEnded,
    RequestAccepted,
    RolloutChanged,
)
from fairnotice.engine.commands import Postpone, ReportServed, SeenBy, Tick
from fairnotice.engine.effects import Matter, Subject
from fairnotice.model import Approval, Requester, Seen
from fairnotice.words import (
    EventStatus,
    ImpactStatus,
    OperationStatus,
    Outcome,
    Risk,
    Role,
)
from tests.engine.story import BATCH, DB, OPERATOR, SPOT, USER, WEB, Story


def records(story: Story, *kinds: type) -> list[Change]:
    """The records of these kinds, in the order they were made."""
    made = (change for decision in story.decisions for change in decision.changes)
    return [change for change in made if type(change) in kinds]


def steps(story: Story, *kinds: type) -> list[tuple[str, datetime]]:
    """What happened and when, by name."""
    return [(type(change).__name__, change.at) for change in records(story, *kinds)]


def see(story: Story, event: str, *vms: str) -> None:
    """These VMs are served the event now."""
    now = story.clock.wall()
    story.tell(ReportServed(seen=tuple(SeenBy(event, vm, now) for vm in vms)))


def test_rule_26_the_life_of_an_event_is_on_record():
    """Announced, seen by each, approved, started, begun, ended, gone: each at its minute."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.advance(minutes=1)
    see(story, event, "web-0")
    story.advance(minutes=1)
    see(story, event, "web-1")
    story.advance(minutes=2)
    story.approve("web-1")
    story.advance(minutes=3)
    story.done()
    kinds = (
        EventAnnounced,
        EventSeen,
        EventApproved,
        EventStarted,
        ImpactBegun,
        ImpactEnded,
        EventGone,
    )
    assert steps(story, *kinds) == [
        ("EventAnnounced", story.at()),
        ("EventSeen", story.at(minutes=1)),
        ("EventSeen", story.at(minutes=2)),
        ("EventApproved", story.at(minutes=4)),
        ("EventStarted", story.at(minutes=4)),
        ("ImpactBegun", story.at(minutes=4)),
        ("ImpactEnded", story.at(minutes=7)),
        ("EventGone", story.at(minutes=7)),
    ]


def test_rule_26_who_asked_is_on_record():
    """The request names its requester, what was asked for and when."""
    story = Story()
    answer = story.restart_vm("web-0", "web-1")
    (record,) = records(story, RequestAccepted)
    assert record.row.requester == USER
    assert record.row.operations == answer.operations
    assert record.row.asked_at == story.at()


def test_rule_26_first_seen_by_each_vm_once():
    """A second sight by the same VM is no step; an unknown event is none either."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    see(story, event, "web-0", "web-1")
    first = story.event(event).seen
    assert first == (Seen("web-0", story.at()), Seen("web-1", story.at()))
    story.advance(minutes=1)
    again = SeenBy(event, "web-0", story.clock.wall())
    story.unchanged(ReportServed(seen=(again, SeenBy("NOTHING", "web-0", story.clock.wall()))))
    assert story.event(event).seen == first


@pytest.mark.parametrize("hours", [-1, 1, 700_000])
def test_rule_26_first_seen_is_between_announced_and_now(hours):
    """An endpoint whose clock is wrong says when; what is on record could have been."""
    story = Story()
    story.advance(minutes=1)
    event = story.restart_vm("web-0").events[0]
    story.advance(minutes=1)
    story.tell(ReportServed(seen=(SeenBy(event, "web-0", story.at(hours=hours)),)))
    (seen,) = story.event(event).seen
    assert seen.at == story.at(minutes=1 if hours < 0 else 2)


def test_rule_26_what_a_vm_saw_is_recorded_after_it_is_deleted():
    """Its sighting comes late; that of another one that never was there is not believed."""
    story = Story()
    event = story.delete("batch_0").events[0]
    story.advance(minutes=1)
    story.approve("batch_0", event)
    story.done("batch_0")
    assert "batch_0" not in story.fleet.vms
    seen = (SeenBy(event, "batch_0", story.at()), SeenBy(event, "nobody", story.at()))
    story.tell(ReportServed(seen=seen))
    assert story.event(event).seen == (Seen("batch_0", story.at()),)


@pytest.mark.parametrize(
    ("by", "name"), [(Requester("web-2", Role.VM), "web-2"), (OPERATOR, "olga"), (USER, "ada")]
)
def test_rule_26_who_approved_is_on_record(by, name):
    """A VM or a person in the control plane, and when; the first one counts."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.advance(minutes=4)
    story.tell(ask.Approve(events=(event,), by=by))
    assert story.event(event).approval == Approval(name, story.at(minutes=4))
    story.unchanged(ask.Approve(events=(event,), by=Requester("web-0", Role.VM)))


@pytest.mark.parametrize(("timing", "promised"), [(AZURE, 900), (DEV, 15)])
def test_rule_26_notice_promised_and_notice_given(timing, promised):
    """Nobody approves: what was promised is given."""
    story = Story(timing=timing)
    event = story.restart_vm("db").events[0]
    assert story.event(event).notice_given_seconds is None
    story.advance(seconds=promised)
    assert story.event(event).notice_seconds == promised
    assert story.event(event).notice_given_seconds == promised


def test_rule_26_less_notice_is_given_where_it_was_approved():
    """Approved after 4 minutes of 15: 240 seconds given."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.advance(minutes=4)
    story.approve("db")
    assert (story.event(event).notice_seconds, story.event(event).notice_given_seconds) == (
        900,
        240,
    )


def test_rule_26_more_notice_is_given_where_it_was_postponed():
    """Postponed to 01:00: the step is on record, and 3600 seconds given."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.advance(minutes=5)
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    assert steps(story, EventPostponed) == [("EventPostponed", story.at(minutes=5))]
    story.advance(minutes=55)
    assert story.event(event).notice_given_seconds == 3600


def test_rule_26_a_prediction_promises_its_days():
    """Low risk promises 7 days, and gives them."""
    story = Story()
    event = story.predict("node-5", risk=Risk.LOW).events[0]
    assert story.event(event).notice_seconds == 7 * 24 * 3600
    story.advance(hours=7 * 24)
    assert story.event(event).notice_given_seconds == 7 * 24 * 3600


def test_rule_26_a_failure_gives_no_notice_and_says_so():
    """It appears already Started: 0 promised, 0 given."""
    story = Story()
    event = story.fail("node-5").events[0]
    assert (story.event(event).notice_seconds, story.event(event).notice_given_seconds) == (0, 0)
    (announced,) = records(story, EventAnnounced)
    assert announced.row.status is EventStatus.STARTED


def test_rule_26_a_canceled_event_is_gone_with_the_reason():
    """By whom it was canceled is in the record, and no notice was given."""
    story = Story()
    answer = story.restart_vm("db")
    story.cancel(answer.operations[0], by=USER)
    (gone,) = records(story, EventGone)
    assert (gone.row.status, gone.row.reason) == (EventStatus.CANCELED, "canceled by ada")
    assert gone.row.notice_given_seconds is None
    (ended,) = records(story, OperationEnded)
    assert ended.row.status is OperationStatus.CANCELED


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Outcome.DONE, ImpactStatus.DONE, ""),
        (Outcome.FAILED, ImpactStatus.FAILED, "disk full"),
        (Outcome.UNKNOWN, ImpactStatus.FAILED, "outcome unknown"),
    ],
)
def test_rule_26_how_an_impact_ended_is_on_record(outcome, status, reason):
    """Done, failed with the driver's words, or unknown."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    (key,) = story.under_way
    words = "disk full" if outcome is Outcome.FAILED else ""
    story.report(key, outcome, words)
    (ended,) = records(story, ImpactEnded)
    assert (ended.row.status, ended.row.reason) == (status, reason)


def test_rule_26_an_impact_that_timed_out_is_on_record():
    """Ten minutes for a reboot, and no word from the driver."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    story.advance(minutes=10)
    (ended,) = records(story, ImpactEnded)
    assert (ended.row.status, ended.at) == (ImpactStatus.TIMED_OUT, story.at(minutes=10))
    assert ended.row.reason


def test_rule_26_one_record_for_each_event_of_an_operation():
    """Maintenance of node-0: two scopes, two events, two of each step."""
    story = Story()
    story.maintain("node-0")
    story.advance(minutes=15)
    story.done()
    scopes = [change.row.scope for change in records(story, EventAnnounced)]
    assert scopes == [WEB, BATCH]
    assert len(records(story, EventStarted)) == len(records(story, EventGone)) == 2
    assert len(records(story, ImpactBegun)) == len(records(story, ImpactEnded)) == 2


def test_rule_26_a_rollout_is_on_record():
    """Begun, taken, done, over."""
    story = Story()
    rollout = story.roll_out("node-5")
    story.approve("spot_0")
    story.done()
    rows = [change.row for change in records(story, RolloutChanged)]
    assert {row.id for row in rows} == {rollout}
    assert (rows[0].asked_at, rows[-1].ended_at) == (story.at(), story.at())
    assert rows[-1].done_count == 1
    assert story.shows(SPOT) == (4, [])


def test_rule_26_records_are_in_the_order_of_time():
    """No record is older than the one before it, and each row is as it was then."""
    story = Story()
    story.roll_out("node-0", "node-5", "node-1")
    for _ in range(12):
        story.advance(minutes=10)
        story.done()
    times = [change.at for decision in story.decisions for change in decision.changes]
    assert times == sorted(times)
    assert story.fleet.recorded_at == times[-1]
    assert story.fleet.revision == len(times)


def test_rule_26_applying_a_record_twice_does_no_harm():
    """A follower that reads the journal again from the middle ends up with the same rows."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    story.done()
    before = dict(story.fleet.events), dict(story.fleet.operations), dict(story.fleet.impacts)
    for change in story.decisions[-1].changes:
        story.fleet.put(change.row)
    after = dict(story.fleet.events), dict(story.fleet.operations), dict(story.fleet.impacts)
    assert after == before
    assert story.shows(DB) == (4, [])


@pytest.mark.parametrize("matter", list(Matter))
def test_rule_26_a_wake_up_for_what_is_no_more_is_no_step(matter):
    """Woken for something unknown, or too early, the law does nothing."""
    story = Story()
    story.unchanged(Tick(subjects=(Subject(matter, "nothing"),)))


def test_rule_26_a_wake_up_before_its_time_is_no_step():
    """Too often does no harm: an operation, its event, its impact, its scope, its rollout."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1")
    answer = story.restart_vm("db")
    story.approve("db")
    (key,) = story.under_way
    subjects = (
        Subject(Matter.OPERATION, answer.operations[0]),
        Subject(Matter.EVENT, answer.events[0]),
        Subject(Matter.IMPACT, key),
        Subject(Matter.SCOPE, DB),
        Subject(Matter.ROLLOUT, rollout),
    )
    story.unchanged(Tick(subjects=subjects * 2))
