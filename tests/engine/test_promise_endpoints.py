"""Rule 5, several processes: an event waits until the endpoints that show it have said so."""

import pytest

from fairnotice.engine.commands import (
    Confirm,
    JoinEndpoint,
    LeaveEndpoint,
    PredictFailure,
    Release,
    ReportServed,
    Restart,
    SeenBy,
)
from fairnotice.model import Requester
from fairnotice.words import EventType, OperationKind, Risk, Role
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, SPOT, USER, WEB, Story


def with_endpoints(*nodes: str, **more: object) -> Story:
    """The sample fleet, where these nodes have endpoints of their own."""
    story = Story(**more)
    for node in nodes:
        story.tell(JoinEndpoint(node=node))
    return story


def confirm(story: Story, node: str) -> None:
    """The endpoint of this node shows all there is."""
    story.tell(Confirm(node=node, revision=story.fleet.revision))


def test_rule_05_an_unapproved_event_is_held_until_its_endpoint_has_confirmed_it():
    """node-1 shows db's restart only from 00:20 on: its notice is from 00:20 to 00:35."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(minutes=20)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    assert story.under_way == {}
    confirm(story, "node-1")
    assert story.shows(DB) == (3, [("Reboot", "Scheduled")])
    assert story.only(DB).not_before == story.at(minutes=35)
    story.advance(minutes=15)
    assert story.shows(DB) == (4, [("Reboot", "Started")])


def test_rule_05_shown_at_last_with_some_of_its_notice_left_it_has_all_of_it():
    """Confirmed at 00:14, a minute before its time: NotBefore becomes 00:29."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(minutes=14)
    confirm(story, "node-1")
    assert story.only(DB).not_before == story.at(minutes=29)


def test_rule_05_shown_a_little_late_it_keeps_its_time():
    """Confirmed after 90 s, a tenth of the notice: not worth a document that changes again."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(seconds=90)
    confirm(story, "node-1")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    assert story.only(DB).not_before == story.at(minutes=15)


def test_rule_05_what_was_seen_all_the_same_keeps_its_time():
    """The endpoint has shown db its restart, and only its confirmation was lost on the way."""
    story = with_endpoints("node-1")
    event = story.restart_vm("db").events[0]
    seen = SeenBy(event, "db", story.at(minutes=1))
    story.advance(minutes=20)
    story.tell(ReportServed(seen=(seen,)))
    confirm(story, "node-1")
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_05_notice_begins_anew_once():
    """Late once, the event waits again for an endpoint that joins; then it starts at once."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(minutes=20)
    confirm(story, "node-1")
    story.tell(LeaveEndpoint(node="node-1"))
    story.tell(JoinEndpoint(node="node-1"))
    story.advance(minutes=20)
    assert story.only(DB).scheduled
    confirm(story, "node-1")
    assert not story.only(DB).scheduled


def test_rule_05_notice_that_was_long_is_not_made_longer():
    """Asked for in two hours and shown after one: there is notice enough."""
    story = with_endpoints("node-1")
    later = story.at(hours=2)
    story.tell(Restart(id="later", by=USER, vms=("db",), not_before=later))
    story.advance(hours=1)
    confirm(story, "node-1")
    assert story.only(DB).not_before == later


def test_rule_05_of_two_endpoints_the_last_one_counts():
    """node-3 shows it at once, and has two scopes on it; neither is late."""
    story = with_endpoints("node-3")
    story.maintain("node-3")
    confirm(story, "node-3")
    story.advance(minutes=15)
    assert len(story.under_way) == 3


def test_rule_05_confirmed_in_time_it_starts_in_time():
    """node-1 confirms after a second; NotBefore stays what it was, and so does the document."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(seconds=1)
    confirm(story, "node-1")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance_to(story.at(minutes=15))
    assert story.shows(DB) == (3, [("Reboot", "Started")])


@pytest.mark.parametrize(
    "kind", [OperationKind.HOST_UPDATE, OperationKind.HOST_REBOOT, OperationKind.REPAIR]
)
def test_rule_05_a_node_operation_is_held_by_the_endpoint_of_its_node(kind):
    """node-3's endpoint is slow: neither batch nor shop starts."""
    story = with_endpoints("node-3")
    story.on_node(kind, "node-3")
    story.advance(minutes=30)
    assert story.under_way == {}
    confirm(story, "node-3")
    story.notice_passes()
    assert len(story.under_way) == 3


@pytest.mark.parametrize("risk", Risk)
def test_rule_05_a_predicted_failure_is_held_too(risk):
    """A prediction is no failure yet."""
    story = with_endpoints("node-1")
    story.predict("node-1", risk=risk)
    story.advance_to(story.only(DB).not_before)
    assert story.only(DB).scheduled
    confirm(story, "node-1")
    story.notice_passes()
    assert not story.only(DB).scheduled


def test_rule_05_a_terminate_is_held_too():
    """batch_0's delete waits for node-0's endpoint."""
    story = with_endpoints("node-0")
    story.delete("batch_0")
    story.advance(minutes=6)
    assert story.only(BATCH).scheduled
    confirm(story, "node-0")
    story.notice_passes()
    assert not story.only(BATCH).scheduled


def test_rule_05_an_approved_event_is_not_held():
    """VM db has approved, so somebody has shown it."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.approve("db")
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_05_held_at_its_time_an_approval_lets_it_go():
    """Held since 00:15, approved at 00:18, started at 00:18."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(minutes=18)
    story.approve("db")
    assert story.only(DB).started_at == story.at(minutes=18)


def test_rule_05_an_approval_by_one_scope_does_not_let_the_other_go():
    """The batch has approved node-3; shop's event is still unconfirmed."""
    story = with_endpoints("node-3")
    story.maintain("node-3")
    story.approve("batch_0")
    story.advance(minutes=20)
    assert story.under_way == {}
    confirm(story, "node-3")
    story.notice_passes()
    assert len(story.under_way) == 3


def test_rule_05_only_endpoints_that_serve_its_resources_hold_it():
    """web-0 is on node-0; the endpoints of web-1 and web-2 are not waited for."""
    story = with_endpoints("node-1", "node-2")
    story.restart_vm("web-0")
    story.advance(minutes=15)
    assert story.shows(WEB) == (3, [("Reboot", "Started")])


def test_rule_05_one_process_alone_holds_nothing():
    """Without endpoints of their own, nodes confirm nothing and nobody waits."""
    story = Story()
    story.restart_vm("db")
    assert story.only(DB).unconfirmed == ()
    story.advance(minutes=15)
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_05_only_a_confirmation_of_this_event_counts():
    """The revision before the event was announced says nothing of it; its own one does."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    announced = story.only(DB).revision
    story.advance(minutes=15)
    story.tell(Confirm(node="node-1", revision=announced - 1))
    assert story.only(DB).scheduled
    story.tell(Confirm(node="node-1", revision=announced))
    story.notice_passes()
    assert not story.only(DB).scheduled


def test_rule_05_the_endpoint_of_another_node_confirms_nothing_here():
    """node-0 shows everything; db is on node-1."""
    story = with_endpoints("node-0", "node-1")
    story.restart_vm("db")
    story.advance(minutes=15)
    confirm(story, "node-0")
    assert story.only(DB).scheduled


def test_rule_05_an_endpoint_that_is_slow_now_was_not_slow_then():
    """The first restart was confirmed; the second one needs a confirmation of its own."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    confirm(story, "node-1")
    second = story.restart_vm("db").events[0]
    story.advance(minutes=15)
    story.done("db")
    assert story.event(second).scheduled
    confirm(story, "node-1")
    story.notice_passes()
    assert not story.event(second).scheduled


def test_rule_05_a_revision_that_is_not_there_yet_confirms_nothing_to_come():
    """An endpoint says it shows the far future; the next event still waits, but not for ever."""
    story = with_endpoints("node-1")
    story.ask(Confirm(node="node-1", revision=story.fleet.revision + 1_000))
    story.restart_vm("db")
    story.advance(minutes=15)
    assert story.only(DB).scheduled
    confirm(story, "node-1")
    story.notice_passes()
    assert not story.only(DB).scheduled


def test_rule_05_an_endpoint_that_joins_after_the_announcement_holds_it_too():
    """From 00:05 on db is served by node-1's own endpoint, which has not confirmed the restart."""
    story = Story()
    story.restart_vm("db")
    story.advance(minutes=5)
    story.tell(JoinEndpoint(node="node-1"))
    story.advance(minutes=10)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    confirm(story, "node-1")
    story.notice_passes()
    assert story.shows(DB) == (4, [("Reboot", "Started")])


def test_rule_05_the_event_of_a_vm_that_has_moved_waits_for_its_new_endpoint():
    """VM db is redeployed under a pending restart: the new node's endpoint has to show it."""
    story = with_endpoints(*(f"node-{n}" for n in range(6)))
    restart = story.restart_vm("db").events[0]
    confirm(story, "node-1")
    redeploy = story.redeploy("db").events[0]
    story.approve("db", redeploy)
    for n in range(6):
        confirm(story, f"node-{n}")
    story.done("db")
    node = story.vm("db").node
    assert node != "node-1"
    story.advance(minutes=15)
    assert story.event(restart).scheduled
    confirm(story, "node-1")
    assert story.event(restart).scheduled
    confirm(story, node)
    story.notice_passes()
    assert not story.event(restart).scheduled


def test_rule_05_a_vm_that_has_moved_away_from_endpoints_waits_for_none():
    """Only node-1 has an endpoint and never confirmed; db is elsewhere now."""
    story = with_endpoints("node-1")
    restart = story.restart_vm("db").events[0]
    story.approve("db", *story.redeploy("db").events)
    story.done("db")
    story.advance(minutes=15)
    assert not story.event(restart).scheduled


# ---- Never held ----


def test_rule_05_preempt_is_never_held():
    """spot_1 is evicted after 30 seconds, whatever node-5's endpoint says."""
    story = with_endpoints("node-5")
    story.evict("spot_1")
    assert story.only(SPOT).type is EventType.PREEMPT
    story.advance(seconds=30)
    assert story.shows(SPOT) == (3, [("Preempt", "Started")])


def test_rule_05_a_failure_is_never_held():
    """node-1 fails, and its endpoint confirms nothing any more: the Redeploy is Started."""
    story = with_endpoints("node-1")
    story.fail("node-1")
    assert story.shows(DB) == (2, [("Redeploy", "Started")])
    assert story.only(DB).unconfirmed == ()


# ---- Released ----


def test_rule_05_an_operator_may_release_it():
    """At 00:20 the operator has seen enough, and db's restart starts."""
    story = with_endpoints("node-1")
    event = story.restart_vm("db").events[0]
    story.advance(minutes=20)
    story.tell(Release(event=event.lower(), by=OPERATOR))
    assert story.only(DB).started_at == story.at(minutes=20)


def test_rule_05_released_before_its_time_it_still_waits_for_not_before():
    """A release is no approval."""
    story = with_endpoints("node-1")
    event = story.restart_vm("db").events[0]
    story.tell(Release(event=event, by=OPERATOR))
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    story.advance(minutes=14, seconds=59)
    assert story.only(DB).scheduled
    story.advance(seconds=1)
    assert not story.only(DB).scheduled


def test_rule_05_each_event_is_released_for_itself():
    """The shop's event is released, batch's is not: the operation is one, and waits."""
    story = with_endpoints("node-3")
    story.maintain("node-3")
    story.advance(minutes=15)
    story.tell(Release(event=story.only(SHOP).id, by=OPERATOR))
    assert story.under_way == {}
    story.tell(Release(event=story.only(BATCH).id, by=OPERATOR))
    assert len(story.under_way) == 3


def test_rule_05_releasing_again_or_what_is_not_held_changes_nothing():
    """Twice is as good as once, and web-0's event was never held."""
    story = with_endpoints("node-1")
    held = story.restart_vm("db").events[0]
    free = story.restart_vm("web-0").events[0]
    story.tell(Release(event=held, by=OPERATOR))
    story.unchanged(Release(event=held, by=OPERATOR))
    story.unchanged(Release(event=free, by=OPERATOR))


@pytest.mark.parametrize("by", [USER, Requester("db", Role.VM)])
def test_rule_05_only_an_operator_releases(by):
    """Neither its requester nor its VM may; the VM can approve."""
    story = with_endpoints("node-1")
    event = story.restart_vm("db").events[0]
    refusal = story.refused(Release(event=event, by=by))
    assert (refusal.code, refusal.rule) == ("forbidden", 5)
    assert "operator" in refusal.why


@pytest.mark.parametrize("over", [False, True])
def test_rule_05_what_has_started_or_is_gone_cannot_be_released(over):
    """Too late to matter, and the refusal says where it is."""
    story = with_endpoints("node-1")
    event = story.restart_vm("db").events[0]
    story.approve("db")
    if over:
        story.done()
    refusal = story.refused(Release(event=event, by=OPERATOR))
    assert refusal.code == "conflict"
    assert ("Completed" if over else "Started") in refusal.why


def test_rule_05_releasing_an_event_nobody_knows():
    """A made-up EventId is not found."""
    refusal = Story().refused(Release(event="F020BA2E", by=OPERATOR))
    assert (refusal.code, refusal.rule) == ("not-found", 5)


# ---- Endpoints come and go ----


def test_rule_05_an_endpoint_that_is_taken_away_holds_nothing_any_more():
    """node-1's endpoint goes for good at 00:20, and db's restart starts."""
    story = with_endpoints("node-1")
    story.restart_vm("db")
    story.advance(minutes=20)
    story.tell(LeaveEndpoint(node="node-1"))
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    assert story.fleet.endpoints == {}


def test_rule_05_joining_confirming_or_leaving_again_changes_nothing():
    """Repeats of endpoints are harmless, and so is an old confirmation."""
    story = with_endpoints("node-1")
    story.unchanged(JoinEndpoint(node="node-1"))
    revision = story.fleet.revision
    confirm(story, "node-1")
    story.unchanged(Confirm(node="node-1", revision=revision))
    story.unchanged(Confirm(node="node-1", revision=revision - 1))
    story.tell(LeaveEndpoint(node="node-1"))
    story.unchanged(LeaveEndpoint(node="node-1"))


def test_rule_05_an_endpoint_of_a_node_that_is_not_there():
    """node-9 cannot join, and node-1, which has not joined, cannot confirm."""
    story = Story()
    refusal = story.refused(JoinEndpoint(node="node-9"))
    assert (refusal.code, refusal.rule) == ("not-found", 5)
    refusal = story.refused(Confirm(node="node-1", revision=1))
    assert (refusal.code, refusal.rule) == ("not-found", 5)
    assert "join" in refusal.remedy


def test_rule_05_what_is_held_holds_back_nobody():
    """VM db's first restart is held; the second, approved, is due and goes first."""
    story = with_endpoints("node-1")
    held = story.restart_vm("db").events[0]
    story.advance(minutes=16)
    second = story.restart_vm("db").events[0]
    story.approve("db", second)
    assert (story.event(held).scheduled, story.event(second).scheduled) == (True, False)


def test_rule_05_a_disabled_scope_has_nothing_to_confirm():
    """Nobody listens on node-1, so its silent endpoint holds nobody."""
    story = with_endpoints("node-1", listening=())
    story.tell(Restart(id="unheard", by=USER, vms=("db",)))
    assert len(story.under_way) == 1
    story.tell(PredictFailure(id="foretold", by=OPERATOR, node="node-1", risk=Risk.LOW))
    assert len(story.under_way) == 3
