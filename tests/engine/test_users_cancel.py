"""Rule 15: taking an operation back."""

import pytest

from fairnotice.engine import Code
from fairnotice.engine import commands as ask
from fairnotice.model import Requester
from fairnotice.words import EventStatus, OperationStatus, Role
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, USER, WEB, Story

ANOTHER = Requester("bob", Role.USER)
NAMESAKE = Requester("ada", Role.PLATFORM)


def test_rule_15_a_requester_takes_his_operation_back():
    """Ada changes her mind: the event is gone, and its time passes without a restart."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    event = story.only(DB)
    story.advance(minutes=5)
    story.cancel(operation, by=USER)
    assert story.shows(DB) == (3, [])
    gone = story.event(event.id)
    assert gone.status is EventStatus.CANCELED
    assert gone.gone_at == story.at(minutes=5)
    assert "ada" in gone.reason
    assert story.operation(operation).status is OperationStatus.CANCELED
    story.advance(minutes=15)
    assert not story.under_way


def test_rule_15_cancel_takes_back_all_events_in_one_commit():
    """The maintenance of node-3 is two events in two scopes: both go at once."""
    story = Story()
    (operation,) = story.maintain("node-3").operations
    assert len(story.operation(operation).events) == 2
    commits = len(story.decisions)
    answer = story.cancel(operation)
    assert story.shows(SHOP) == (3, [])
    assert story.shows(BATCH) == (3, [])
    withdrawn = [
        change.row.id
        for change in story.decisions[commits].changes
        if type(change).__name__ == "EventGone"
    ]
    assert sorted(withdrawn) == sorted(story.operation(operation).events) == sorted(answer.events)


@pytest.mark.parametrize("spelling", [str, str.lower, str.upper])
def test_rule_15_an_operation_may_be_named_by_one_of_its_events(spelling):
    """Who knows only the EventId names that, in either case; the whole operation goes."""
    story = Story()
    story.maintain("node-3")
    story.cancel(spelling(story.only(SHOP).id))
    assert story.events(SHOP) == story.events(BATCH) == ()


def test_rule_15_cancel_also_after_approval():
    """Web-1 has approved, batch_1 and db have not: all of it can still be taken back."""
    story = Story()
    (operation,) = story.maintain("node-1").operations
    story.approve("web-1")
    assert story.only(WEB).approval is not None
    story.cancel(operation)
    for scope in (WEB, BATCH, DB):
        assert story.events(scope) == ()
    story.advance(minutes=30)
    assert not story.under_way


def test_rule_15_cancel_of_what_is_approved_and_waits_for_its_vm():
    """The second restart is approved and due; it has not started, so it can be taken back."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    (second,) = story.restart_vm("db").operations
    story.approve("db")
    story.cancel(second, by=USER)
    assert story.shows(DB)[1] == [("Reboot", "Started")]
    story.done("db")
    assert not story.under_way


@pytest.mark.parametrize("by", [USER, OPERATOR], ids=lambda by: by.name)
def test_rule_15_never_once_started(by):
    """Neither its requester nor an operator takes back what has begun."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    event = story.only(DB)
    story.approve("db")
    for target in (operation, event.id):
        refusal = story.refused(ask.Cancel(target=target, by=by))
        assert (refusal.code, refusal.rule) == (Code.CONFLICT, 15)
        assert "started" in refusal.why
        assert refusal.event == event.id


def test_rule_15_what_is_over_cannot_be_taken_back_either():
    """Done is done, and the refusal does not tell anybody to wait for it."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    story.approve("db")
    story.done("db")
    refusal = story.refused(ask.Cancel(target=operation, by=USER))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 15)
    assert "Wait until it is over" not in refusal.remedy


def test_rule_15_of_a_request_what_has_not_started_is_taken_back_and_the_rest_said():
    """One of three is done, one is under way: only the third goes, and nobody is misled."""
    story = Story()
    answer = story.restart_vm("web-0", "web-1", "web-2")
    done, started, pending = answer.operations
    story.approve("web-0", answer.events[0])
    story.done("web-0")
    story.approve("web-1", answer.events[1])
    assert answer.request is not None
    story.cancel(answer.request, by=USER)
    assert story.operation(started).status is OperationStatus.STARTED
    assert story.operation(pending).status is OperationStatus.CANCELED
    assert story.decisions[-1].warnings == (
        f"{done} is over already: it is not taken back.",
        f"{started} has started and goes on: it is not taken back.",
    )


def test_rule_15_a_refusal_names_the_operation_of_which_nobody_was_told():
    """There is no event to look at."""
    story = Story(listening=())
    (operation,) = story.restart_vm("db").operations
    refusal = story.refused(ask.Cancel(target=operation, by=USER))
    assert (refusal.event, refusal.operation) == (None, operation)


def test_rule_15_a_failure_is_never_taken_back():
    """It appears already Started."""
    story = Story()
    (operation,) = story.fail("node-5").operations
    refusal = story.refused(ask.Cancel(target=operation, by=OPERATOR))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 15)


def test_rule_15_an_operator_takes_back_what_a_user_asked_for():
    """And what another operator, or the health feed, asked for."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    story.cancel(operation, by=Requester("otto", Role.OPERATOR))
    assert story.events(DB) == ()


@pytest.mark.parametrize("by", [ANOTHER, NAMESAKE], ids=["another user", "a namesake"])
def test_rule_15_nobody_else_takes_it_back(by):
    """Bob did not ask for the restart, neither did a platform called ada."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    refusal = story.refused(ask.Cancel(target=operation, by=by))
    assert (refusal.code, refusal.rule) == (Code.FORBIDDEN, 15)
    assert "ada" in refusal.why


def test_rule_15_a_user_does_not_take_back_what_an_operator_planned():
    """The maintenance is not ada's, although her VM is under it."""
    story = Story()
    (operation,) = story.maintain("node-5").operations
    refusal = story.refused(ask.Cancel(target=operation, by=USER))
    assert (refusal.code, refusal.rule) == (Code.FORBIDDEN, 15)


@pytest.mark.parametrize("vm", ["db", "web-0"])
def test_rule_15_never_by_a_vm(vm):
    """Neither the VM itself nor a stranger."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    refusal = story.refused(ask.Cancel(target=operation, by=Requester(vm, Role.VM)))
    assert (refusal.code, refusal.rule) == (Code.FORBIDDEN, 15)


def test_rule_15_never_by_a_vm_that_has_its_requesters_name():
    """A VM called ada is not ada."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    refusal = story.refused(ask.Cancel(target=operation, by=Requester("ada", Role.VM)))
    assert (refusal.code, refusal.rule) == (Code.FORBIDDEN, 15)


def test_rule_15_a_second_cancel_changes_nothing():
    """It is taken back already."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    event = story.only(DB)
    story.cancel(operation)
    story.unchanged(ask.Cancel(target=operation, by=OPERATOR))
    story.unchanged(ask.Cancel(target=event.id, by=USER))


def test_rule_15_who_may_not_cancel_is_told_so_after_the_end_too():
    """A refusal does not depend on how far the operation is."""
    story = Story()
    (operation,) = story.restart_vm("db").operations
    story.cancel(operation)
    assert story.refused(ask.Cancel(target=operation, by=ANOTHER)).code is Code.FORBIDDEN


@pytest.mark.parametrize("target", ["", "nothing", "A3B89100-0D85-44AA-9FCD-5304745806A2"])
def test_rule_15_what_is_not_there_cannot_be_taken_back(target):
    """Bad input says what was not found."""
    refusal = Story().refused(ask.Cancel(target=target, by=OPERATOR))
    assert (refusal.code, refusal.rule) == (Code.NOT_FOUND, 15)
    assert target in refusal.why


def test_rule_15_cancel_of_one_operation_of_a_command_leaves_the_others():
    """Three restarts were asked for; web-1's is taken back, the others stay promised."""
    story = Story()
    operations = story.restart_vm("web-0", "web-1", "web-2").operations
    story.cancel(operations[1], by=USER)
    assert [event.resources for event in story.events(WEB)] == [("web-0",), ("web-2",)]
    story.advance(minutes=15)
    assert {impact.vm for impact in story.under_way.values()} == {"web-0", "web-2"}


def test_rule_15_a_canceled_operation_frees_what_it_held_back():
    """A due maintenance waits for web-1 and holds back db; taken back, db's restart starts."""
    story = Story()
    (maintenance,) = story.maintain("node-1").operations
    story.restart_vm("db", not_before=story.at(minutes=16))
    restart_of_web = story.restart_vm("web-1").events
    story.advance(minutes=14)
    story.approve("web-1", *restart_of_web)
    story.advance(minutes=2)
    assert [impact.vm for impact in story.under_way.values()] == ["web-1"]
    assert story.shows(DB)[1] == [("Freeze", "Scheduled"), ("Reboot", "Scheduled")]
    story.cancel(maintenance)
    assert story.shows(DB)[1] == [("Reboot", "Started")]
