"""Rule 3: who may approve, for whom it holds, and approvals that come too late to matter."""

import pytest

from fairnotice.engine.commands import Approve
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, VmSpec
from fairnotice.model import Requester
from fairnotice.words import Role
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, USER, WEB, Story


def by_vm(vm: str, *events: str) -> Approve:
    """This VM approves these events."""
    return Approve(events=events, by=Requester(vm, Role.VM))


def test_rule_03_any_vm_that_sees_the_event_approves_for_all_its_resources():
    """web-1 approves the restart of web-0, and it starts at once."""
    story = Story()
    story.restart_vm("web-0")
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")])
    story.advance(minutes=4)
    story.approve("web-1")
    assert story.shows(WEB) == (3, [("Reboot", "Started")])
    story.done("web-0")
    assert story.shows(WEB) == (4, [])


def test_rule_03_one_approval_holds_for_every_resource():
    """FrontEnd_IN_1 approves, and both shop VMs of node-3 are hit; no second word is needed."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    assert story.only(SHOP).resources == ("FrontEnd_IN_0", "BackEnd_IN_0")
    story.approve("FrontEnd_IN_1")
    hit = {impact.vm for impact in story.under_way.values()}
    assert hit == {"FrontEnd_IN_0", "BackEnd_IN_0", "batch_2"}


def test_rule_03_the_approval_is_written_down_with_who_and_when():
    """The record says web-2, at 00:04."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.advance(minutes=4)
    story.approve("web-2")
    assert story.event(event).approval == ("web-2", story.at(minutes=4))


@pytest.mark.parametrize("by", [OPERATOR, USER])
def test_rule_03_somebody_in_the_control_plane_approves_too(by):
    """An acknowledge from outside counts like a VM's own."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.tell(Approve(events=(event,), by=by))
    assert story.shows(WEB) == (3, [("Reboot", "Started")])


def test_rule_03_an_event_id_in_small_letters_is_the_same_event():
    """Clients lower GUIDs; the approval counts."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(by_vm("db", event.lower()))
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_03_several_events_are_approved_at_once():
    """One request names both restarts, and both start in one commit."""
    story = Story()
    story.restart_vm("web-0", "web-1")
    story.approve("web-2")
    assert story.shows(WEB) == (3, [("Reboot", "Started"), ("Reboot", "Started")])
    assert story.changes().count("EventStarted") == 2


def test_rule_03_approving_one_event_says_nothing_of_the_next():
    """web-0's restart is approved, web-1's is not."""
    story = Story()
    first, _ = story.restart_vm("web-0", "web-1").events
    story.approve("web-0", first)
    assert story.shows(WEB) == (3, [("Reboot", "Started"), ("Reboot", "Scheduled")])


# ---- Approvals that change nothing ----


def test_rule_03_approving_twice_changes_nothing():
    """The batch approves, another of its VMs approves again while shop is still waited for."""
    story = Story()
    story.maintain("node-3")
    story.approve("batch_0")
    event = story.only(BATCH)
    story.advance(minutes=1)
    story.unchanged(by_vm("batch_0", event.id))
    story.unchanged(by_vm("batch_1", event.id))
    assert story.only(BATCH).approval == ("batch_0", story.began)


def test_rule_03_the_same_event_twice_in_one_request_is_approved_once():
    """A client stutters."""
    story = Story()
    story.maintain("node-3")
    event = story.only(BATCH).id
    story.tell(by_vm("batch_0", event, event.lower()))
    assert story.changes() == ["EventApproved"]


def test_rule_03_approving_nothing_is_fine():
    """An empty StartRequests list changes nothing."""
    Story().unchanged(by_vm("db"))


def test_rule_03_approving_after_the_start_changes_nothing():
    """It started by itself; the go-ahead comes a minute late."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.advance(minutes=16)
    story.unchanged(by_vm("db", event))
    assert story.event(event).approval is None


def test_rule_03_approving_what_was_never_scheduled_changes_nothing():
    """node-1 failed; a client approves the Started event it reads."""
    story = Story()
    story.fail("node-1")
    story.unchanged(by_vm("db", story.only(DB).id))


@pytest.mark.parametrize("hours", [0, 1, 23.99])
def test_rule_03_approving_within_a_day_after_it_is_gone_changes_nothing(hours):
    """The restart is over; a slow client approves it up to a day later."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.approve("web-0")
    story.done()
    story.advance(hours=hours)
    story.unchanged(by_vm("web-1", event))


def test_rule_03_approving_within_a_day_after_it_was_canceled_changes_nothing():
    """The restart was taken back; approving it does not bring it about."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.cancel(event)
    story.advance(hours=23)
    story.unchanged(by_vm("web-1", event))
    assert story.under_way == {}


def test_rule_03_a_day_later_nobody_knows_it_any_more():
    """A day and a second after it was gone, the EventId is not found."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    story.approve("web-0")
    story.done()
    story.advance(hours=24, seconds=1)
    refusal = story.refused(by_vm("web-1", event))
    assert (refusal.code, refusal.rule) == ("not-found", 3)


def test_rule_03_a_day_counts_for_each_event_of_a_long_operation():
    """The shop's VMs left the operation on day one; on day three their event is not found."""
    story = Story()
    story.maintain("node-3", not_before=story.at(hours=72))
    event = story.only(SHOP).id
    story.stop("FrontEnd_IN_0", "BackEnd_IN_0")
    story.done()
    assert story.events(SHOP) == ()
    story.advance(hours=23)
    story.unchanged(by_vm("FrontEnd_IN_1", event))
    story.advance(hours=2)
    assert story.refused(by_vm("FrontEnd_IN_1", event)).rule == 3
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])


# ---- Approvals that are refused ----


@pytest.mark.parametrize("stranger", ["db", "batch_0", "nobody"])
def test_rule_03_a_vm_that_does_not_see_the_event_cannot_approve_it(stranger):
    """VM db has learned web's EventId, and it does not help: to db there is no such event."""
    story = Story()
    event = story.restart_vm("web-0").events[0]
    refusal = story.refused(by_vm(stranger, event))
    assert (refusal.code, refusal.rule) == ("not-found", 3)
    assert event in refusal.why
    assert "document" in refusal.remedy


def test_rule_03_a_neighbour_on_the_node_does_not_approve_for_the_others():
    """batch_0 and web-0 share node-0, not a scope."""
    story = Story()
    story.maintain("node-0")
    assert story.refused(by_vm("batch_0", story.only(WEB).id)).code == "not-found"


def test_rule_03_an_event_nobody_knows():
    """A made-up EventId is not found, whoever approves it."""
    story = Story()
    for by in (OPERATOR, USER, Requester("db", Role.VM)):
        assert story.refused(Approve(events=("F020BA2E",), by=by)).code == "not-found"


def test_rule_03_all_of_a_request_or_nothing():
    """One of two EventIds is wrong, so the right one is not approved either."""
    story = Story()
    event = story.restart_vm("db").events[0]
    refusal = story.refused(by_vm("db", event, "F020BA2E"))
    assert "F020BA2E" in refusal.why
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_03_two_placement_groups_do_not_approve_for_each_other():
    """Instances of one scale set in two placement groups are two scopes."""
    spec = FleetSpec(
        nodes=(NodeSpec("node-0"),),
        scale_sets=(ScaleSetSpec("big", placement_groups=2),),
        vms=tuple(
            VmSpec(f"big_{group}", "node-0", scale_set="big", placement_group=group)
            for group in range(2)
        ),
    )
    story = Story(spec, listening=("scale-set:big:0", "scale-set:big:1"))
    event = story.restart_vm("big_0").events[0]
    assert story.shows("scale-set:big:1") == (1, [])
    assert story.refused(by_vm("big_1", event)).code == "not-found"
    story.approve("big_0")
    assert story.shows("scale-set:big:0") == (3, [("Reboot", "Started")])
