"""Rule 7 from the inside: what is shown of an event, and when a document counts up."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fairnotice.engine import AZURE, document
from fairnotice.engine.commands import ApplyFleet, Postpone, ReportServed, SeenBy
from fairnotice.engine.documents import EMPTY, shown
from fairnotice.model import Document
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, WEB, Story, sample


def test_rule_07_a_scope_that_does_not_listen_has_the_empty_document():
    """Incarnation 1, no events, whatever happens to its VMs."""
    story = Story(listening=())
    story.restart_vm("web-0")
    assert story.document(WEB) == EMPTY == Document(1, ())


def test_rule_07_events_are_in_the_order_they_were_announced():
    """Three restarts show in the order they were asked for."""
    story = Story()
    asked = [story.restart_vm(vm).events[0] for vm in ("web-2", "web-0", "web-1")]
    assert [event.id for event in story.events(WEB)] == asked


def test_rule_07_one_commit_counts_one_up_however_much_it_changes():
    """A command that restarts three VMs makes three events and one new incarnation."""
    story = Story()
    story.restart_vm("web-0", "web-1", "web-2")
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")] * 3)


def test_rule_07_a_scope_that_sees_nothing_of_it_does_not_count():
    """A restart in web leaves all other documents alone."""
    story = Story()
    story.restart_vm("web-0")
    assert [story.document(scope).incarnation for scope in (BATCH, SHOP, DB)] == [1, 1, 1]


def test_rule_07_what_a_vm_cannot_see_does_not_count():
    """An approval while the VM is busy, and a first sight, are recorded and not shown."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    second = story.restart_vm("db").events[0]
    before = story.document(DB).incarnation
    story.approve("db", second)
    story.tell(ReportServed(seen=(SeenBy(second, "db", story.clock.wall()),)))
    assert story.event(second).approval is not None
    assert story.event(second).seen
    assert story.document(DB).incarnation == before


def test_rule_07_a_later_not_before_counts():
    """A postponed event is another document."""
    story = Story()
    event = story.restart_vm("db").events[0]
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    assert story.document(DB).incarnation == 3


def test_rule_07_settling_is_not_seen():
    """All impacts over, five minutes to settle: no new document until it is gone."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    story.restart_vm("db")
    story.approve("db")
    story.done()
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    story.advance(minutes=5)
    assert story.shows(DB) == (4, [])


def test_rule_11_each_event_settles_by_itself():
    """Web is over at 00:15, batch a minute later: web is gone at 00:20, batch at 00:21."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    story.maintain("node-0")
    story.advance(minutes=15)
    story.done("web-0")
    story.advance(minutes=1)
    story.done("batch_0")
    story.advance(minutes=3, seconds=59)
    assert story.shows(WEB)[1] == [("Freeze", "Started")]
    story.advance(seconds=1)
    assert story.shows(WEB)[1] == []
    assert story.shows(BATCH)[1] == [("Freeze", "Started")]
    story.advance(minutes=1)
    assert story.shows(BATCH)[1] == []


def test_rule_07_a_scope_that_goes_with_its_last_event_has_no_document():
    """The VM is deleted while its reboot is announced: event, VM and scope go in one commit."""
    story = Story()
    story.restart_vm("db")
    story.delete("db")
    story.done()
    assert DB not in story.fleet.scopes
    with pytest.raises(KeyError):
        document(story.fleet, DB)


def test_rule_07_a_fleet_applied_again_is_no_new_document():
    """Tags are not in the document."""
    story = Story()
    story.restart_vm("db")
    spec = sample()
    vms = tuple(vm._replace(tags=(("team", "blue"),)) for vm in spec.vms)
    story.tell(ApplyFleet(spec=spec._replace(vms=vms)))
    assert story.vm("db").tags == (("team", "blue"),)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_07_not_before_is_shown_until_the_start_only():
    """Started, an event shows no time: two that differ in it alone look the same."""
    story = Story()
    story.restart_vm("db")
    event = story.only(DB)
    later = event._replace(not_before=event.not_before + timedelta(hours=1))
    assert shown(event) != shown(later)
    story.approve("db")
    event = story.only(DB)
    later = event._replace(not_before=event.not_before + timedelta(hours=1))
    assert shown(event) == shown(later)
    story.done()
    assert shown(story.event(event.id)) is None
    assert shown(None) is None
