"""Rules 6 and 7: the life of an event, one way only, and the incarnation that tells of it."""

import re

import pytest

from fairnotice.engine.commands import (
    ApplyFleet,
    Approve,
    Cancel,
    JoinEndpoint,
    Postpone,
    ReportOutcome,
    ReportServed,
    Restart,
    SeenBy,
    SetPolicy,
)
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.engine.transitions import EVENT, Cause, move
from fairnotice.errors import IllegalTransition
from fairnotice.words import EventStatus, EventType, EvictionPolicy, Outcome, Priority
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, USER, WEB, Story, sample

SCHEDULED, STARTED = EventStatus.SCHEDULED, EventStatus.STARTED
COMPLETED, CANCELED = EventStatus.COMPLETED, EventStatus.CANCELED


def statuses(story: Story, event: str) -> list[str]:
    """What was recorded of this event, each status once, in order."""
    told: list[str] = []
    for decision in story.decisions:
        for change in decision.changes:
            if getattr(change.row, "id", "") == event and change.row.status not in told:
                told.append(change.row.status)
    return told


# ---- Rule 6 ----


def test_rule_06_nothing_scheduled_started_gone():
    """The plain life: announced, started, completed."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.advance(minutes=15)
    story.done()
    assert statuses(story, event) == ["Scheduled", "Started", "Completed"]
    assert story.events(DB) == ()


def test_rule_06_scheduled_then_canceled():
    """Taken back before it started: gone, and it never was Started."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.cancel(event)
    assert statuses(story, event) == ["Scheduled", "Canceled"]
    assert story.shows(DB) == (3, [])
    story.advance(minutes=20)
    assert story.under_way == {}


def test_rule_06_a_hardware_failure_begins_started():
    """Nobody ever saw it Scheduled."""
    story = Story()
    story.fail("node-1")
    event = story.only(DB).id
    story.done("db")
    assert statuses(story, event) == ["Started", "Completed"]


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_rule_06_an_automatic_approval_begins_started(event_type):
    """VM db approves its own restarts and redeploys by policy: they appear Started."""
    story = Story()
    story.tell(SetPolicy(scope=DB, automatically_approve=(event_type,)))
    if event_type is EventType.REBOOT:
        story.restart_vm("db")
    else:
        story.redeploy("db")
    assert story.shows(DB) == (2, [(event_type.value, "Started")])
    event = story.only(DB).id
    story.done("db")
    assert statuses(story, event) == ["Started", "Completed"]


def test_rule_06_a_failed_impact_completes_its_event_too():
    """There is no fifth status: the event is gone, the operation says that it failed."""
    story = Story()
    answer = story.restart_vm("db")
    story.approve("db")
    story.failed("db")
    assert story.event(answer.events[0]).status is COMPLETED
    assert story.operation(answer.operations[0]).status == "Failed"


def test_rule_06_one_way_only():
    """Every row of the law, and no other: nothing returns, nothing leaves the end."""
    ways = {(before, after) for (before, _), after in EVENT.items()}
    assert ways == {
        (None, SCHEDULED),
        (None, STARTED),
        (SCHEDULED, STARTED),
        (SCHEDULED, CANCELED),
        (STARTED, COMPLETED),
    }


@pytest.mark.parametrize("status", [COMPLETED, CANCELED])
@pytest.mark.parametrize("cause", Cause)
def test_rule_06_nothing_leaves_the_end(status, cause):
    """Asked to move what is gone, the table has no row."""
    with pytest.raises(IllegalTransition, match=status.value):
        move(EVENT, status, cause)


@pytest.mark.parametrize("over", [False, True])
def test_rule_06_what_has_started_is_never_canceled(over):
    """Under way or over, it cannot be taken back."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.approve("db")
    if over:
        story.done()
    refusal = story.refused(Cancel(target=event, by=OPERATOR))
    assert (refusal.code, refusal.event) == ("conflict", event)


def test_rule_06_what_is_canceled_stays_canceled():
    """Canceled again, approved, waited for: nothing moves."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.cancel(event)
    story.unchanged(Cancel(target=event, by=OPERATOR))
    story.unchanged(Approve(events=(event,), by=OPERATOR))
    story.advance(hours=1)
    assert story.event(event).status is CANCELED


def test_rule_06_what_is_completed_stays_completed():
    """The driver says done twice, and then failed: it was done."""
    story = Story()
    answer = story.restart_vm("db")
    story.approve("db")
    (key,) = story.under_way
    story.done()
    story.unchanged(ReportOutcome(key=key, outcome=Outcome.DONE))
    story.unchanged(ReportOutcome(key=key, outcome=Outcome.FAILED))
    assert story.event(answer.events[0]).status is COMPLETED


def test_rule_06_the_event_id_never_changes():
    """Announced, postponed, left by a VM, approved, started, gone: one EventId throughout."""
    story = Story(listening=(SHOP,))
    event = story.maintain("node-3").events[0]
    ids = [story.only(SHOP).id]
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    ids.append(story.only(SHOP).id)
    story.stop("BackEnd_IN_0")
    story.done("BackEnd_IN_0")
    assert story.only(SHOP).resources == ("FrontEnd_IN_0",)
    ids.append(story.only(SHOP).id)
    story.approve("FrontEnd_IN_1")
    ids.append(story.only(SHOP).id)
    story.done()
    assert ids == [event] * 4
    assert story.event(event).status is COMPLETED


def test_rule_06_event_ids_are_guids_and_no_two_are_equal():
    """Three restarts of db, one of each web VM: six EventIds in Azure's form."""
    story = Story()
    ids = [story.restart_vm("db").events[0] for _ in range(3)]
    ids += story.restart_vm("web-0", "web-1", "web-2").events
    assert len(set(ids)) == 6
    guid = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")
    assert all(guid.fullmatch(event) for event in ids)


def test_rule_06_an_id_made_to_look_like_anothers_operation_does_not_take_its_event_id():
    """A command called like the second operation of another one leaves that one's event alone."""
    story = Story()
    _, second = story.restart_vm("FrontEnd_IN_0", "BackEnd_IN_0").operations
    before = story.events(SHOP)
    story.ask(Restart(id=second, by=USER, vms=("FrontEnd_IN_0",)))
    assert story.events(SHOP)[:2] == before


def test_rule_06_completed_and_canceled_are_in_history_and_never_in_the_document():
    """Of two restarts one is canceled and one completed; no document ever said so."""
    story = Story()
    first, second = story.restart_vm("web-0", "web-1").events
    shown = [story.shows(WEB)]
    story.cancel(first)
    shown.append(story.shows(WEB))
    story.approve("web-2", second)
    shown.append(story.shows(WEB))
    story.done()
    shown.append(story.shows(WEB))
    assert [events for _, events in shown] == [
        [("Reboot", "Scheduled"), ("Reboot", "Scheduled")],
        [("Reboot", "Scheduled")],
        [("Reboot", "Started")],
        [],
    ]
    assert (story.event(first).status, story.event(second).status) == (CANCELED, COMPLETED)
    assert story.event(first).reason == "canceled by olga"
    assert story.event(first).gone_at == story.event(second).gone_at == story.began


# ---- Rule 7 ----


def test_rule_07_one_is_the_empty_document():
    """Whoever asks first where nothing is announced reads incarnation 1."""
    story = Story()
    for scope in (WEB, BATCH, SHOP, DB):
        assert story.shows(scope) == (1, [])


def test_rule_07_it_grows_by_one_with_each_commit_that_changes_the_document():
    """Announced 2, postponed 3, started 4, gone 5."""
    story = Story()
    event = story.restart_vm("db").events[0]
    assert story.shows(DB)[0] == 2
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    assert story.shows(DB)[0] == 3
    story.approve("db")
    assert story.shows(DB)[0] == 4
    story.done()
    assert story.shows(DB) == (5, [])


def test_rule_07_it_is_per_scope():
    """The third incarnation of web is nothing to batch's first."""
    story = Story()
    story.restart_vm("web-0")
    story.approve("web-0")
    assert story.shows(WEB)[0] == 3
    assert [story.shows(scope)[0] for scope in (BATCH, SHOP, DB)] == [1, 1, 1]


def test_rule_07_two_events_announced_by_one_commit_count_once():
    """One command restarts three VMs: incarnation 2, three events."""
    story = Story()
    story.restart_vm("web-0", "web-1", "web-2")
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")] * 3)


def test_rule_07_one_that_goes_and_one_that_starts_in_one_commit_count_once():
    """The first restart is over, so the second starts: one commit, one step."""
    story = Story()
    story.restart_vm("db")
    story.restart_vm("db")
    story.approve("db")
    before = story.shows(DB)[0]
    story.done("db")
    assert story.shows(DB) == (before + 1, [("Reboot", "Started")])


def test_rule_07_both_scopes_of_one_operation_move_in_the_same_commit():
    """node-3's update moves batch and shop, once each, and nobody else."""
    story = Story()
    story.maintain("node-3")
    assert story.changes().count("DocumentChanged") == 2
    assert (story.shows(BATCH)[0], story.shows(SHOP)[0], story.shows(WEB)[0]) == (2, 2, 1)


def test_rule_07_a_vm_that_leaves_an_event_is_a_change():
    """BackEnd_IN_0 stops: the Resources are fewer, the incarnation is more."""
    story = Story()
    story.maintain("node-3")
    story.stop("BackEnd_IN_0")
    assert story.shows(SHOP)[0] == 2
    story.done("BackEnd_IN_0")
    assert story.shows(SHOP)[0] == 3
    assert story.shows(BATCH)[0] == 2


def test_rule_07_what_no_vm_can_see_moves_nothing():
    """An approval that starts nothing, a first look and an endpoint are not in the document."""
    story = Story()
    story.maintain("node-3")
    event = story.only(BATCH).id
    story.approve("batch_0")
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])
    story.tell(ReportServed(seen=(SeenBy(event, "batch_0", story.began),)))
    story.tell(JoinEndpoint(node="node-3"))
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])


def test_rule_07_a_refused_command_moves_nothing():
    """A restart that was not brought forward is a document that was not changed."""
    story = Story()
    story.restart_vm("db")
    story.refused(Postpone(event=story.only(DB).id, not_before=story.began, by=OPERATOR))
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_07_a_scope_is_known_by_the_revision_that_created_it():
    """It keeps it through policies and documents, and one of the same name has another."""
    story = Story()
    created = {scope.name: scope.declared_revision for scope in story.fleet.scopes.values()}
    recorded = [change.row for decision in story.decisions for change in decision.changes]
    assert {name: recorded[revision - 1].name for name, revision in created.items()} == {
        name: name for name in created
    }
    story.tell(SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    story.restart_vm("web-0")
    story.tell(ApplyFleet(spec=sample()))
    assert {s.name: s.declared_revision for s in story.fleet.scopes.values()} == created
    spec = sample()
    story.tell(ApplyFleet(spec=spec._replace(vms=spec.vms[:-1])))
    assert DB not in story.fleet.scopes
    story.tell(ApplyFleet(spec=spec))

    assert story.scope(DB).declared_revision > max(created.values())


def test_rule_21_a_vm_is_known_by_the_revision_that_declared_it():
    """It keeps it wherever it goes, and one of the same name has another."""
    story = Story()
    created = {vm.name: vm.declared_revision for vm in story.fleet.vms.values()}
    recorded = [change.row for decision in story.decisions for change in decision.changes]
    assert {name: recorded[revision - 1].name for name, revision in created.items()} == {
        name: name for name in created
    }
    spec = sample()
    elsewhere = spec.vms[-1]._replace(addresses=("10.9.9.9",))
    story.tell(ApplyFleet(spec=spec._replace(vms=(*spec.vms[:-1], elsewhere))))
    assert story.fleet.vms["db"].addresses == ("10.9.9.9",)
    story.tell(ApplyFleet(spec=spec))
    assert {vm.name: vm.declared_revision for vm in story.fleet.vms.values()} == created
    story.tell(ApplyFleet(spec=spec._replace(vms=spec.vms[:-1])))
    story.tell(ApplyFleet(spec=spec))

    assert story.fleet.vms["db"].declared_revision > max(created.values())


def test_rule_07_same_number_same_content():
    """Through a busy hour every incarnation of every scope has one content, and none is left out.

    NotBefore is blank once Started, and who approved is nobody's business: neither is content.
    """
    story = Story()
    read: dict[tuple[str, int], object] = {}

    def look() -> None:
        for scope in (WEB, BATCH, SHOP, DB):
            document = story.document(scope)
            content = [
                (e.id, e.status, e.resources, e.not_before if e.scheduled else None)
                for e in document.events
            ]
            assert read.setdefault((scope, document.incarnation), content) == content

    steps = [
        lambda: story.maintain("node-3"),
        lambda: story.restart_vm("FrontEnd_IN_0", "web-0", "db"),
        lambda: story.approve("batch_0"),
        lambda: story.redeploy("db"),
        lambda: story.approve("FrontEnd_IN_1"),
        lambda: story.delete("batch_3"),
        lambda: story.done("batch_2", "FrontEnd_IN_0"),
        lambda: story.fail("node-1"),
        lambda: story.advance(minutes=6),
        story.done,
        lambda: story.advance(minutes=30),
        story.done,
        story.done,
    ]
    for step in steps:
        step()
        look()
    assert all(content == [] for (_, number), content in read.items() if number == 1)
    for scope in (WEB, BATCH, SHOP, DB):
        assert not story.events(scope)


def test_rule_07_a_scope_enabled_with_events_pending_begins_at_2():
    """Two operations are pending when shop first asks: it reads both, and incarnation 2."""
    story = Story(listening=())
    story.restart_vm("FrontEnd_IN_0", not_before=story.at(hours=1))
    story.restart_vm("FrontEnd_IN_1", not_before=story.at(hours=1))
    assert story.shows(SHOP) == (1, [])
    story.listen(SHOP)
    assert story.shows(SHOP) == (2, [("Reboot", "Scheduled")] * 2)


def test_rule_07_a_scope_that_does_not_listen_has_the_empty_document():
    """Nobody asked, so there is nothing to read, whatever goes on."""
    story = Story(listening=())
    story.restart_vm("web-0")
    assert story.shows(WEB) == (1, [])
    assert len(story.under_way) == 1


def test_rule_07_a_scope_goes_with_its_last_vm():
    """A single Spot VM is evicted for good: its document ends with it, nobody is left to read."""
    spec = FleetSpec(
        nodes=(NodeSpec("node-0"),),
        vms=(
            VmSpec(
                "alone",
                "node-0",
                priority=Priority.SPOT,
                eviction_policy=EvictionPolicy.DELETE,
            ),
        ),
    )
    story = Story(spec, listening=("vm:alone",))
    event = story.evict("alone").events[0]
    story.advance(seconds=30)
    assert story.shows("vm:alone") == (3, [("Preempt", "Started")])
    story.done()
    assert story.event(event).status is COMPLETED
    assert story.fleet.scopes == {}


def test_rule_07_time_alone_moves_nothing():
    """Nine hours in which the law wakes up now and then: same number, same content."""
    story = Story()
    story.restart_vm("db", not_before=story.at(hours=10))
    story.restart_vm("web-0")
    story.approve("web-0")
    story.done()
    before = story.document(DB), story.document(WEB)
    story.advance(hours=9)
    assert (story.document(DB), story.document(WEB)) == before
