"""Rule 9: scopes where nobody listens, and scopes that begin to listen late."""

from datetime import timedelta

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine.commands import Postpone, SetPolicy
from fairnotice.words import EventType, ImpactKind, OperationKind, Risk
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, SPOT, WEB, Story


def hit(story: Story) -> set[str]:
    """The VMs under impact."""
    return {impact.vm for impact in story.under_way.values()}


NODE_3 = {"batch_2", "FrontEnd_IN_0", "BackEnd_IN_0"}


# ---- Not told, not waited for ----


def test_rule_09_a_disabled_scope_gets_no_event():
    """Only shop listens on node-3: shop sees it, batch does not."""
    story = Story(listening=(SHOP,))
    answer = story.maintain("node-3")
    assert len(answer.events) == 1
    assert story.shows(SHOP) == (2, [("Freeze", "Scheduled")])
    assert story.shows(BATCH) == (1, [])


def test_rule_09_its_vms_are_hit_when_the_operation_starts_and_not_before():
    """batch_2 is left alone until shop's NotBefore, and frozen with the others then."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    story.advance(minutes=14, seconds=59)
    assert hit(story) == set()
    story.advance(seconds=1)
    assert hit(story) == NODE_3


def test_rule_09_nobody_waits_for_it():
    """The shop approves, and that is all the approval there is to wait for."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    story.approve("FrontEnd_IN_1")
    assert hit(story) == NODE_3


def test_rule_09_its_impacts_are_part_of_the_operation():
    """The shop's event is gone when its own VMs are done; the operation when batch_2 is too."""
    story = Story(listening=(SHOP,))
    (operation,) = story.maintain("node-3").operations
    story.approve("FrontEnd_IN_1")
    story.done("FrontEnd_IN_0", "BackEnd_IN_0")
    assert story.events(SHOP) == ()
    assert story.operation(operation).live
    story.done("batch_2")
    assert story.operation(operation).status == "Completed"


@pytest.mark.parametrize(
    "kind",
    [
        OperationKind.HOST_UPDATE,
        OperationKind.HOST_REBOOT,
        OperationKind.REPAIR,
        OperationKind.MIGRATION,
        OperationKind.EVACUATION,
    ],
)
@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_09_an_operation_without_any_enabled_scope_starts_at_once(kind, timing):
    """Nobody listens on node-3."""
    story = Story(listening=(WEB, DB), timing=timing)
    assert story.on_node(kind, "node-3").events == ()
    assert hit(story) == NODE_3


@pytest.mark.parametrize("risk", Risk)
def test_rule_09_so_does_a_predicted_failure(risk):
    """Nobody to warn: the VMs are moved at once, be the risk ever so low."""
    story = Story(listening=())
    story.predict("node-3", risk=risk)
    assert hit(story) == NODE_3


def test_rule_09_so_do_the_operations_of_users_and_evictions():
    """Restart, redeploy, delete and eviction where nobody listens."""
    story = Story(listening=())
    story.restart_vm("web-0")
    story.redeploy("db")
    story.delete("batch_0")
    story.evict("spot_1")
    assert hit(story) == {"web-0", "db", "batch_0", "spot_1"}
    for scope in (WEB, DB, BATCH, SPOT):
        assert story.shows(scope) == (1, [])


def test_rule_09_of_operations_apart_each_looks_at_its_own_scope():
    """A migration of node-3: batch, unheard, goes at once; shop has its 15 minutes."""
    story = Story(listening=(SHOP,))
    story.on_node(OperationKind.MIGRATION, "node-3")
    assert hit(story) == {"batch_2"}
    assert story.only(SHOP).not_before == story.at(minutes=15)


def test_rule_09_a_sudden_failure_hits_the_unheard_too():
    """node-3 fails: shop sees it, batch is only hit."""
    story = Story(listening=(SHOP,))
    story.fail("node-3")
    assert story.shows(SHOP) == (2, [("Redeploy", "Started")])
    assert story.shows(BATCH) == (1, [])
    assert hit(story) == NODE_3


def test_rule_09_a_scope_of_stopped_vms_is_nobody_to_wait_for():
    """The shop listens but its VMs on node-3 are stopped: nobody is told, batch_2 goes at once."""
    story = Story(listening=(SHOP,))
    story.stop("FrontEnd_IN_0", "BackEnd_IN_0")
    story.done()
    story.maintain("node-3")
    assert hit(story) == {"batch_2"}


def test_rule_09_when_the_last_listener_leaves_it_starts_at_once():
    """The shop's VMs on node-3 stop once announced; batch is unheard: nobody is waited for."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    story.advance(minutes=1)
    story.stop("FrontEnd_IN_0", "BackEnd_IN_0")
    story.done()
    assert hit(story) == {"batch_2"}
    assert story.shows(SHOP) == (4, [])


# ---- Never before the not_before its requester gave ----


@pytest.mark.parametrize("kind", [OperationKind.HOST_UPDATE, OperationKind.MIGRATION])
def test_rule_09_but_never_before_the_not_before_its_requester_gave(kind):
    """Nobody listens, and still the operator's 02:00 is 02:00."""
    story = Story(listening=())
    story.on_node(kind, "node-3", not_before=story.at(hours=2))
    story.advance(hours=1, minutes=59, seconds=59)
    assert hit(story) == set()
    story.advance(seconds=1)
    assert hit(story) == NODE_3


def test_rule_09_a_user_gave_it():
    """A restart and a redeploy for 01:00."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=1))
    story.redeploy("web-0", not_before=story.at(hours=1))
    story.advance(minutes=59)
    assert hit(story) == set()
    story.advance(minutes=1)
    assert hit(story) == {"db", "web-0"}


def test_rule_09_a_prediction_gave_it():
    """A failure foretold for 01:00."""
    story = Story(listening=())
    story.predict("node-1", not_before=story.at(hours=1))
    story.advance(minutes=59)
    assert hit(story) == set()
    story.advance(minutes=1)
    assert hit(story) == {"web-1", "batch_1", "db"}


def test_rule_09_where_nobody_listens_a_minute_is_enough():
    """No notice is promised to nobody: 00:01 is accepted and kept, to the fraction."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(seconds=60.5))
    story.advance(seconds=60)
    assert hit(story) == set()
    story.advance(seconds=0.5)
    assert hit(story) == {"db"}


def test_rule_09_when_the_last_listener_leaves_the_not_before_given_is_kept():
    """The shop leaves node-3's update of 02:00; batch_2, unheard, is not touched before 02:00."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3", not_before=story.at(hours=2))
    story.stop("FrontEnd_IN_0", "BackEnd_IN_0")
    story.done()
    story.advance(hours=1, minutes=59)
    assert hit(story) == set()
    story.advance(minutes=1)
    assert hit(story) == {"batch_2"}


# ---- Enabled later ----


def test_rule_09_a_scope_enabled_later_gets_an_event():
    """Announced for 01:00; batch listens from 00:30 on, reads 01:00, and is waited for."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3", not_before=story.at(hours=1))
    story.advance(minutes=30)
    story.listen(BATCH)
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])
    event = story.only(BATCH)
    assert (event.not_before, event.announced_at) == (story.at(hours=1), story.at(minutes=30))
    assert event.resources == ("batch_2",)
    assert event.operation == story.only(SHOP).operation
    assert story.shows(SHOP)[0] == 2
    story.approve("FrontEnd_IN_1")
    assert hit(story) == set()
    story.approve("batch_0")
    assert hit(story) == NODE_3


def test_rule_09_it_starts_at_its_not_before_like_any_other():
    """Nobody listened, then db did, and says nothing: 01:00 it is."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=1))
    story.advance(minutes=20)
    story.listen(DB)
    story.advance(minutes=40)
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_09_it_can_be_approved_like_any_other():
    """Nobody listened, then db did, and is ready: it need not wait for 01:00."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=1))
    story.listen(DB)
    story.approve("db")
    assert story.shows(DB) == (3, [("Reboot", "Started")])


def test_rule_09_an_event_for_each_pending_operation():
    """A restart, a redeploy and node-1's update are pending when db first asks."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=1))
    story.redeploy("db", not_before=story.at(hours=2))
    story.maintain("node-1", not_before=story.at(hours=3))
    story.listen(DB)
    assert story.shows(DB) == (
        2,
        [("Reboot", "Scheduled"), ("Redeploy", "Scheduled"), ("Freeze", "Scheduled")],
    )
    assert [event.not_before for event in story.events(DB)] == [
        story.at(hours=hours) for hours in (1, 2, 3)
    ]


def test_rule_09_every_update_domain_of_the_scope_gets_its_event():
    """Two web VMs wait for two operations; web listens, and sees one event of each."""
    story = Story(listening=())
    story.restart_vm("web-0", "web-1", not_before=story.at(hours=1))
    story.listen(WEB)
    assert [event.resources for event in story.events(WEB)] == [("web-0",), ("web-1",)]


@pytest.mark.parametrize(("timing", "unit"), [(AZURE, 60), (DEV, 1)], ids=["azure", "dev"])
@pytest.mark.parametrize(
    ("ask", "least"),
    [
        (lambda story, at: story.maintain("node-1", not_before=at), 15),
        (lambda story, at: story.on_node(OperationKind.MIGRATION, "node-1", not_before=at), 15),
        (lambda story, at: story.on_node(OperationKind.REPAIR, "node-1", not_before=at), 15),
        (lambda story, at: story.predict("node-1", not_before=at), 10),
        (lambda story, at: story.restart_vm("db", not_before=at), 15),
        (lambda story, at: story.redeploy("db", not_before=at), 10),
    ],
    ids=["update", "migration", "repair", "prediction", "restart", "redeploy"],
)
def test_rule_09_only_while_not_before_is_the_least_notice_away(ask, least, timing, unit):
    """Exactly the least notice before is in time; a second later is not, and nobody is told."""
    for late_seconds in (0, 1):
        story = Story(listening=(), timing=timing)
        not_before = story.at(hours=2)
        ask(story, not_before)
        story.advance_to(not_before - timedelta(seconds=least * unit - late_seconds))
        story.listen(DB)
        assert len(story.events(DB)) == 1 - late_seconds
        assert story.shows(DB)[0] == 2 - late_seconds
        story.advance_to(not_before)
        assert "db" in hit(story)


def test_rule_09_too_late_to_be_told_it_is_hit_in_silence():
    """VM db first asks five minutes before its restart: it reads nothing, and reboots."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=1))
    story.advance(minutes=55)
    story.listen(DB)
    assert story.shows(DB) == (1, [])
    story.advance(minutes=5)
    assert hit(story) == {"db"}
    assert story.shows(DB) == (1, [])


def test_rule_09_a_second_too_late_for_the_plain_notice():
    """The shop has 15 minutes; batch asks a second later, and 14:59 are too few to be told."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    story.advance(seconds=1)
    story.listen(BATCH)
    assert story.shows(BATCH) == (1, [])
    story.approve("FrontEnd_IN_1")
    assert hit(story) == NODE_3


def test_rule_09_in_the_same_second_it_is_in_time():
    """The shop has 15 minutes; batch asks at once, and gets the same."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    story.listen(BATCH)
    assert story.only(BATCH).not_before == story.at(minutes=15)


def test_rule_09_a_postponed_operation_is_far_enough_away_again():
    """node-3 is postponed to 01:00 at 00:10; batch asks at 00:20 and is told 01:00."""
    story = Story(listening=(SHOP,))
    story.maintain("node-3")
    story.advance(minutes=10)
    event = story.only(SHOP).id
    story.tell(Postpone(event=event, not_before=story.at(hours=1), by=OPERATOR))
    story.advance(minutes=10)
    story.listen(BATCH)
    assert story.only(BATCH).not_before == story.at(hours=1)


def test_rule_09_a_low_risk_is_told_until_ten_minutes_before():
    """The batch listens on the sixth day of a prediction that shop has had for seven."""
    story = Story(listening=())
    story.predict("node-3", not_before=story.at(days=7))
    story.advance(hours=6 * 24)
    story.listen(BATCH)
    assert story.only(BATCH).not_before == story.at(days=7)
    assert story.only(BATCH).type is EventType.REDEPLOY


def test_rule_09_what_has_started_is_not_announced_afterwards():
    """The restart is under way when db first asks: too late to be told of it."""
    story = Story(listening=())
    story.restart_vm("db")
    story.listen(DB)
    assert story.shows(DB) == (1, [])


def test_rule_09_a_due_operation_that_waits_in_the_queue_is_not_announced():
    """VM db's second restart waits for the first; its NotBefore is no 15 minutes away any more."""
    story = Story(listening=())
    story.restart_vm("db")
    (second,) = story.restart_vm("db").operations
    story.listen(DB)
    assert story.shows(DB) == (1, [])
    story.done("db")
    assert story.operation(second).started_at == story.began
    assert story.shows(DB) == (1, [])


def test_rule_09_a_delete_without_notice_is_not_announced_later_either():
    """VM db is being rebooted, its delete waits; db listens, and is still not told."""
    story = Story(listening=())
    story.restart_vm("db")
    story.delete("db")
    story.listen(DB)
    assert story.shows(DB) == (1, [])
    story.done("db")
    assert [impact.kind for impact in story.under_way.values()] == [ImpactKind.DELETE]


def test_rule_09_a_stopped_vm_is_not_named_to_a_scope_enabled_later():
    """BackEnd_IN_0 does not run when shop first asks."""
    story = Story(listening=(BATCH,))
    story.maintain("node-3", not_before=story.at(hours=1))
    story.stop("BackEnd_IN_0")
    story.done()
    story.listen(SHOP)
    assert story.only(SHOP).resources == ("FrontEnd_IN_0",)


def test_rule_09_a_scope_silent_and_enabled_again_is_told_again():
    """VM db fell silent, a restart was asked for with a day's notice, db listens again."""
    story = Story()
    story.advance(hours=25)
    story.restart_vm("db", not_before=story.at(hours=50))
    assert story.shows(DB) == (1, [])
    story.advance(hours=1)
    story.listen(DB)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    assert story.only(DB).not_before == story.at(hours=50)


def test_rule_09_a_later_request_does_not_tell_again():
    """Two hours on, db asks once more: the same event, the same incarnation."""
    story = Story(listening=())
    story.restart_vm("db", not_before=story.at(hours=10))
    story.listen(DB)
    story.advance(hours=2)
    story.listen(DB)
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_09_where_a_policy_approves_nothing_is_shown_before_the_start():
    """VM db approves its restarts by policy and listens late: it sees a Started Reboot at 01:00."""
    story = Story(listening=())
    story.tell(SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    story.restart_vm("db", not_before=story.at(hours=1))
    story.listen(DB)
    assert story.shows(DB) == (1, [])
    story.advance(hours=1)
    assert story.shows(DB) == (2, [("Reboot", "Started")])
