"""Where two rules meet on one VM: one story each. Those of nodes are in test_meetings_nodes.py."""

from dataclasses import replace

import pytest

from fairnotice.engine import AZURE
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import Heard, ReportServed, SeenBy
from fairnotice.engine.effects import BeginImpact
from fairnotice.words import (
    EventStatus,
    EventType,
    ImpactStatus,
    OperationStatus,
    Outcome,
    Power,
)
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, SPOT, USER, WEB, Story


def doing(story: Story) -> list[tuple[str, str]]:
    """What the driver is doing to whom."""
    live = [impact for key, impact in story.under_way.items() if story.fleet.impacts[key].live]
    return [(impact.vm, impact.kind.value) for impact in live]


def begun(story: Story) -> list[str]:
    """Every impact that the driver was ever asked to begin, in order."""
    effects = (effect for decision in story.decisions for effect in decision.effects)
    return [effect.impact.key for effect in effects if isinstance(effect, BeginImpact)]


# ---- Evictions and deletes ----


@pytest.mark.parametrize("vm", ["spot_0", "spot_1"], ids=["deleted", "deallocated"])
def test_rules_12_19_20_an_eviction_under_a_pending_reboot(vm):
    """The Preempt overtakes the restart, which then has nothing left to restart."""
    story = Story()
    (restart,) = story.restart_vm(vm).operations
    story.advance(minutes=1)
    story.evict(vm)
    assert story.shows(SPOT)[1] == [("Reboot", "Scheduled"), ("Preempt", "Scheduled")]
    story.advance(seconds=30)
    assert story.shows(SPOT)[1] == [("Reboot", "Scheduled"), ("Preempt", "Started")]
    story.done(vm)
    assert story.events(SPOT) == ()
    assert story.operation(restart).status is OperationStatus.CANCELED
    assert vm in story.operation(restart).reason
    story.advance(minutes=20)
    assert doing(story) == []


def test_rules_5_19_an_eviction_due_under_a_started_reboot_waits_for_it():
    """Thirty seconds have passed, and the reboot has not: one impact at a time."""
    story = Story()
    story.restart_vm("spot_0")
    story.approve("spot_0")
    story.evict("spot_0")
    story.advance(minutes=2)
    assert story.shows(SPOT)[1] == [("Reboot", "Started"), ("Preempt", "Scheduled")]
    story.done("spot_0")
    assert story.shows(SPOT)[1] == [("Preempt", "Started")]


def test_rules_12_19_20_a_delete_of_a_vm_whose_preempt_is_pending():
    """A Spot VM has no terminate notification: it goes at once, and its Preempt with it."""
    story = Story()
    (eviction,) = story.evict("spot_0").operations
    story.advance(seconds=10)
    story.delete("spot_0")
    assert doing(story) == [("spot_0", "delete")]
    assert story.shows(SPOT)[1] == [("Preempt", "Scheduled")]
    story.advance(seconds=60)
    assert story.shows(SPOT)[1] == [("Preempt", "Scheduled")]
    story.done("spot_0")
    assert story.events(SPOT) == ()
    assert story.operation(eviction).status is OperationStatus.CANCELED
    assert "spot_0" not in story.fleet.vms
    assert len(begun(story)) == 1


def test_rules_11_19_a_failed_delete_lets_the_pending_preempt_go_on():
    """The delete failed and is not retried; the eviction, due by now, is another operation."""
    story = Story()
    story.evict("spot_0")
    story.delete("spot_0")
    story.advance(seconds=60)
    story.failed("spot_0")
    assert story.shows(SPOT)[1] == [("Preempt", "Started")]


def test_rules_12_16_a_terminate_in_the_queue_whose_vm_is_redeployed():
    """Batch_0 moves; its Terminate follows it, keeps its place, and batch_1 still waits."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.approve("batch_3", *story.redeploy("batch_0").events)
    assert doing(story) == [("batch_0", "redeploy")]
    story.done("batch_0")
    moved_to = story.vm("batch_0").node
    assert moved_to != "node-0"
    terminate = story.event(first[0])
    assert (terminate.status, terminate.not_before) == ("Scheduled", story.at(minutes=5))
    assert story.event(second[0]).scheduled
    story.approve("batch_3", *first)
    assert doing(story) == [("batch_0", "delete"), ("batch_1", "delete")]
    assert next(iter(story.under_way.values())).source == moved_to


def test_rules_5_16_a_terminate_approved_while_its_vm_is_redeployed():
    """It waits for the move and holds up nobody; then it goes, in the commit of the arrival."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *story.redeploy("batch_0").events)
    story.approve("batch_3", *first, *second)
    assert doing(story) == [("batch_0", "redeploy"), ("batch_1", "delete")]
    story.done("batch_0")
    assert ("batch_0", "delete") in doing(story)


def served(story: Story) -> None:
    """A VM of batch reads its document."""
    now = story.clock.wall()
    seen = tuple(SeenBy(event.id, "batch_3", now) for event in story.events(BATCH))
    story.tell(ReportServed(heard=(Heard(BATCH, now),), seen=seen))


def test_rules_16_24_a_restart_of_the_process_in_the_middle_of_a_terminate_queue():
    """What was served keeps its time and its place; what was approved still waits."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    served(story)
    story.approve("batch_3", *second)
    story.advance(minutes=2)
    story.restart()
    assert doing(story) == []
    assert [event.not_before for event in story.events(BATCH)] == [story.at(minutes=5)] * 2
    story.advance(minutes=1)
    story.approve("batch_3", *first)
    assert doing(story) == [("batch_0", "delete"), ("batch_1", "delete")]


def test_rules_16_24_a_terminate_queue_whose_time_came_while_nobody_was_there():
    """We were away past NotBefore: the whole queue is due at our return."""
    story = Story()
    story.delete("batch_0")
    second = story.delete("batch_1").events
    served(story)
    story.approve("batch_3", *second)
    story.clock.advance(seconds=600)
    assert doing(story) == []
    story.restart()
    assert doing(story) == [("batch_0", "delete"), ("batch_1", "delete")]


def test_rules_16_24_a_terminate_nobody_was_served_gets_its_notice_anew_and_keeps_its_place():
    """Batch_0's is renewed at our return; batch_1 is approved, waits, and goes at its own time."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    story.clock.advance(seconds=240)
    story.restart()
    assert story.event(first[0]).not_before == story.at(minutes=9)
    assert doing(story) == []
    story.advance(minutes=1)
    assert doing(story) == [("batch_1", "delete")]


def test_rules_14_16_20_a_failure_without_a_place_carries_out_a_terminate_and_frees_its_queue():
    """Batch_0 is stopped by the failure, so it is deleted at once, and batch_1 waits no more."""
    story = Story()
    story.delete("batch_0")
    second = story.delete("batch_1").events
    story.approve("batch_3", *second)
    for number in (1, 2, 3, 4, 5):
        story.tell(ask.Cordon(node=f"node-{number}"))
    story.fail("node-0")
    assert ("batch_0", "delete") in doing(story)
    assert story.event(second[0]).status is EventStatus.STARTED


def test_rules_13_16_a_terminate_on_a_node_out_of_reach_holds_up_nobody_once_approved():
    """Batch_0 cannot be deleted now; batch_1 need not wait for its node to come back."""
    story = Story()
    first = story.delete("batch_0").events
    second = story.delete("batch_1").events
    story.tell(ask.ReportReachable(node="node-0", reachable=False))
    story.approve("batch_3", *first, *second)
    assert doing(story) == [("batch_1", "delete")]


def test_rules_13_19_a_node_that_fails_under_a_started_terminate():
    """The delete has failed with the node; the VM is moved, and may be deleted anew."""
    story = Story()
    (first,) = story.delete("batch_3").operations
    story.approve("batch_0")
    story.fail("node-4")
    assert story.operation(first).status is OperationStatus.FAILED
    story.done("batch_3")
    assert story.vm("batch_3").running
    (second,) = story.delete("batch_3").operations
    assert second != first
    assert story.shows(BATCH)[1] == [("Terminate", "Scheduled")]


# ---- Stopping under what others wait for ----


def test_rules_5_12_20_a_stop_of_a_vm_under_maintenance_that_others_wait_for():
    """Web has approved, batch has not; batch_0 stops, and nothing holds the maintenance."""
    story = Story()
    (operation,) = story.maintain("node-0").operations
    story.approve("web-1")
    assert story.shows(WEB) == (2, [("Freeze", "Scheduled")])
    story.advance(minutes=1)
    story.stop("batch_0")
    assert story.operation(operation).pending
    commits = len(story.decisions)
    story.done("batch_0")
    assert story.shows(WEB) == (3, [("Freeze", "Started")])
    assert story.shows(BATCH) == (3, [])
    assert any(
        type(change).__name__ == "OperationStarted" for change in story.decisions[commits].changes
    )
    assert doing(story) == [("web-0", "freeze")]


def test_rules_12_18_a_stop_cancels_what_waits_unseen():
    """The policy approves restarts; db is being stopped, so there will be nothing to restart."""
    story = Story()
    story.tell(ask.SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    story.stop("db")
    (restart,) = story.restart_vm("db").operations
    assert story.shows(DB) == (1, [])
    story.done("db")
    assert story.shows(DB) == (1, [])
    assert story.operation(restart).status is OperationStatus.CANCELED


def test_rules_4_20_a_vm_that_could_not_start_leaves_what_was_announced_meanwhile():
    """Db counts as running from its start on, and is told; when that fails it is in no event."""
    story = Story()
    story.stop("db")
    story.done("db")
    story.start("db")
    story.maintain("node-1")
    assert story.only(DB).resources == ("db",)
    story.failed("db")
    assert not story.vm("db").running
    assert story.events(DB) == ()


# ---- Two due at once ----


def test_rules_5_19_a_maintenance_and_a_restart_due_at_once_on_one_vm():
    """Both are due at 15:00; the maintenance was asked for first, and goes first."""
    story = Story()
    (maintenance,) = story.maintain("node-1").operations
    (restart,) = story.restart_vm("db").operations
    story.advance(minutes=15)
    assert story.operation(maintenance).status is OperationStatus.STARTED
    assert story.operation(restart).status is OperationStatus.PENDING
    assert story.shows(DB) == (4, [("Freeze", "Started"), ("Reboot", "Scheduled")])
    story.done("db")
    # Its own impact is over, so db is free, whatever the others of the node still do.
    assert story.shows(DB) == (5, [("Reboot", "Started")])


def test_rules_5_19_a_restart_and_a_maintenance_due_at_once_on_one_vm():
    """The other way round: the whole maintenance, all its events, waits for db."""
    story = Story()
    story.restart_vm("db")
    (maintenance,) = story.maintain("node-1").operations
    story.advance(minutes=15)
    assert doing(story) == [("db", "reboot")]
    assert story.shows(WEB) == (2, [("Freeze", "Scheduled")])
    story.done("db")
    assert story.operation(maintenance).status is OperationStatus.STARTED
    assert {vm for vm, _ in doing(story)} == {"web-1", "batch_1", "db"}


def test_rules_2_5_a_due_maintenance_that_is_postponed_holds_back_nobody():
    """It waited for web-1 and held back db; put off, it is not due, and db's restart starts."""
    story = Story()
    story.maintain("node-1")
    story.restart_vm("db", not_before=story.at(minutes=16))
    restart_of_web = story.restart_vm("web-1").events
    story.advance(minutes=14)
    story.approve("web-1", *restart_of_web)
    story.advance(minutes=2)
    assert doing(story) == [("web-1", "reboot")]
    (freeze,) = (event for event in story.events(BATCH) if event.scheduled)
    story.tell(ask.Postpone(event=freeze.id, not_before=story.at(hours=3), by=OPERATOR))
    assert ("db", "reboot") in doing(story)


def test_rules_5_12_a_due_maintenance_goes_on_when_the_vm_it_waited_for_has_moved_away():
    """Db is redeployed from under it; in the commit of its arrival the others are frozen."""
    story = Story()
    story.maintain("node-1")
    story.advance(minutes=14)
    story.approve("db", *story.redeploy("db").events)
    story.advance(minutes=2)
    assert story.shows(WEB) == (2, [("Freeze", "Scheduled")])
    story.done("db")
    assert story.events(DB) == ()
    assert {vm for vm, _ in doing(story)} == {"web-1", "batch_1"}


@pytest.mark.parametrize("leaves", ["redeploy", "failure"])
def test_rules_12_13_a_users_redeploy_follows_its_vm(leaves):
    """Whatever moved db first, its own second redeploy is still promised, and moves it again."""
    story = Story()
    second = story.redeploy("db", not_before=story.at(hours=1)).events[0]
    if leaves == "redeploy":
        story.approve("db", *story.redeploy("db").events)
    else:
        story.fail("node-1")
    story.done()
    between = story.vm("db").node
    story.advance(hours=1)
    assert story.event(second).status is EventStatus.STARTED
    story.done()
    assert story.vm("db").node not in (between, None)


# ---- Policies ----


def test_rules_13_18_a_policy_of_automatic_approval_with_a_busy_vm():
    """Db is frozen with its node when ada restarts it; then its node fails; then it restarts."""
    story = Story()
    story.tell(ask.SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    story.maintain("node-1")
    story.advance(minutes=15)
    story.restart_vm("db")
    assert story.shows(DB) == (3, [("Freeze", "Started")])
    story.fail("node-1")
    assert story.shows(DB) == (4, [("Redeploy", "Started")])
    story.done()
    assert story.shows(DB) == (5, [("Reboot", "Started")])
    story.done()
    assert story.shows(DB) == (6, [])


def test_rules_5_18_what_is_approved_by_policy_waits_its_turn():
    """A maintenance is due before it and waits for web-1: the restart does not jump ahead."""
    story = Story()
    story.tell(ask.SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    story.maintain("node-1")
    story.advance(minutes=14)
    story.approve("web-1", *story.restart_vm("web-1").events)
    story.advance(minutes=2)
    story.restart_vm("db")
    assert story.shows(DB) == (2, [("Freeze", "Scheduled")])
    story.done("web-1")
    assert story.shows(DB) == (3, [("Freeze", "Started")])
    story.done("db")
    assert story.shows(DB) == (4, [("Reboot", "Started")])


# ---- Listening late ----


@pytest.mark.parametrize("minutes", [10, 45])
def test_rules_2_9_a_scope_enabled_between_announcement_and_not_before(minutes):
    """Batch begins to listen 15 minutes before it or sooner: it is told, and waited for."""
    story = Story(listening=(WEB,))
    (operation,) = story.maintain("node-0", not_before=story.at(hours=1)).operations
    story.advance(minutes=minutes)
    story.listen(BATCH)
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])
    event = story.only(BATCH)
    assert (event.not_before, event.resources) == (story.at(hours=1), ("batch_0",))
    story.approve("web-0")
    assert story.operation(operation).pending
    story.approve("batch_1")
    assert story.operation(operation).status is OperationStatus.STARTED
    assert story.shows(BATCH) == (3, [("Freeze", "Started")])


def test_rules_2_9_a_scope_enabled_too_late_gets_no_event_and_nobody_waits_for_it():
    """A second less than the notice: batch_0 is frozen with web-0, unseen."""
    story = Story(listening=(WEB,))
    story.maintain("node-0", not_before=story.at(hours=1))
    story.advance(seconds=45 * 60 + 1)
    story.listen(BATCH)
    assert story.shows(BATCH) == (1, [])
    story.approve("web-0")
    assert {vm for vm, _ in doing(story)} == {"web-0", "batch_0"}


def test_rules_9_12_a_scope_enabled_late_keeps_the_operation_waiting_after_the_first_has_left():
    """Web-0 stops; batch, told in the meantime, is waited for all the same."""
    story = Story(listening=(WEB,))
    (operation,) = story.maintain("node-0", not_before=story.at(hours=1)).operations
    story.listen(BATCH)
    story.stop("web-0")
    story.done("web-0")
    story.advance(minutes=59)
    assert story.operation(operation).pending
    story.advance(minutes=1)
    assert doing(story) == [("batch_0", "freeze")]


# ---- Crashes ----


@pytest.mark.parametrize("outcome", [Outcome.NOT_BEGUN, Outcome.DONE])
def test_rules_10_11_the_driver_is_asked_before_a_limit_that_passed_while_we_were_away(outcome):
    """We were away for an hour; only the driver knows whether db was moved meanwhile."""
    story = Story()
    story.redeploy("db")
    story.approve("db")
    (key,) = story.under_way
    target = story.under_way[key].target
    story.clock.advance(seconds=3600)
    story.restart()
    assert list(story.asked) == [key]
    story.report(key, outcome)
    if outcome is Outcome.NOT_BEGUN:
        assert list(story.under_way) == [key]
        story.done("db")
    assert story.vm("db").node == target
    assert story.fleet.impacts[key].status is ImpactStatus.DONE


def test_rules_10_13_a_late_answer_about_a_node_that_failed_begins_nothing():
    """The driver says "not begun" of an impact that the failure has ended: so it stays."""
    story = Story()
    story.restart_vm("spot_1")
    story.approve("spot_1")
    (key,) = story.under_way
    story.restart()
    story.fail("node-5")
    before = begun(story)
    story.report(key, Outcome.NOT_BEGUN)
    assert begun(story) == before
    assert story.fleet.impacts[key].status is ImpactStatus.FAILED


@pytest.mark.parametrize("takeover", [False, True])
def test_rules_10_14_a_crash_does_not_lose_a_reserved_place(takeover):
    """Db is on its way to the place; after a crash nobody else is put there."""
    story = Story()
    story.redeploy("db")
    story.approve("db")
    (impact,) = story.under_way.values()
    used = story.fleet.used_slots(impact.target)
    story.restart(takeover=takeover)
    story.report(impact.key, Outcome.NOT_BEGUN)
    (again,) = story.under_way.values()
    assert again == impact
    assert story.fleet.used_slots(impact.target) == used


def test_rules_11_19_an_evicted_vm_may_be_started_and_restarted_while_its_preempt_settles():
    """Its impact is over and freed it; that the document still shows the end is no reason."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    story.evict("spot_1")
    story.advance(seconds=30)
    story.done("spot_1")
    assert story.vm("spot_1").power is Power.DEALLOCATED
    assert story.shows(SPOT)[1] == [("Preempt", "Started")]
    story.start("spot_1")
    story.done("spot_1")
    story.restart_vm("spot_1", by=USER)
    assert ("Reboot", "Scheduled") in story.shows(SPOT)[1]


def test_rules_11_12_a_vm_deleted_after_its_freeze_is_not_missed_by_the_others():
    """The front end is done and deleted; the back end's freeze ends the event as ever."""
    story = Story()
    (operation,) = story.maintain("node-3").operations
    story.advance(minutes=15)
    story.done("FrontEnd_IN_0", "batch_2")
    story.delete("FrontEnd_IN_0")
    story.done("FrontEnd_IN_0")
    assert "FrontEnd_IN_0" not in story.fleet.vms
    story.done("BackEnd_IN_0")
    assert story.events(SHOP) == ()
    assert story.operation(operation).status is OperationStatus.COMPLETED
