"""Rule 19: what a second request means."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fairnotice.engine import AZURE, Code
from fairnotice.engine import commands as ask
from fairnotice.words import ImpactStatus, OperationKind, OperationStatus
from tests.engine.story import BATCH, DB, OPERATOR, SPOT, USER, WEB, Story

# ---- A second delete or eviction ----


@pytest.mark.parametrize("started", [False, True])
def test_rule_19_a_second_delete_returns_the_first(started):
    """Announced or under way, the second answer is the first operation, and nothing changes."""
    story = Story()
    first = story.delete("batch_0")
    if started:
        story.approve("batch_3")
    decision = story.unchanged(ask.Delete(id="again", by=OPERATOR, vms=("batch_0",)))
    assert decision.answer.request == first.request
    assert decision.answer.operations == first.operations
    assert decision.answer.events == first.events


@pytest.mark.parametrize("started", [False, True])
def test_rule_19_a_second_eviction_returns_the_first(started):
    """The same for Preempt."""
    story = Story()
    first = story.evict("spot_0")
    if started:
        story.advance(seconds=30)
    decision = story.unchanged(ask.Evict(id="again", by=USER, vms=("spot_0",)))
    assert decision.answer.operations == first.operations
    assert decision.answer.events == first.events


def test_rule_19_a_second_delete_that_acts_at_once_returns_the_first():
    """Db goes without notice; while it goes, another delete is the same one."""
    story = Story()
    first = story.delete("db")
    decision = story.unchanged(ask.Delete(id="again", by=USER, vms=("db",)))
    assert decision.answer.operations == first.operations


def test_rule_19_a_delete_of_some_that_are_going_makes_operations_for_the_others():
    """Batch_0 is going already: one new operation, and both in the answer."""
    story = Story()
    first = story.delete("batch_0")
    both = story.delete("batch_0", "batch_1")
    assert set(first.operations) < set(both.operations)
    assert len(both.operations) == len(both.events) == 2
    assert [event.resources for event in story.events(BATCH)] == [("batch_0",), ("batch_1",)]


def test_rule_19_a_canceled_delete_is_no_first_one():
    """Taken back, the next delete is a new one with notice of its own."""
    story = Story()
    first = story.delete("batch_0")
    story.cancel(first.operations[0], by=USER)
    story.advance(minutes=1)
    second = story.delete("batch_0")
    assert second.operations != first.operations
    assert story.only(BATCH).not_before == story.at(minutes=6)


def test_rule_19_a_failed_delete_is_no_first_one():
    """The driver failed, nothing is retried by itself, and the user asks anew."""
    story = Story()
    first = story.delete("db")
    story.failed("db")
    second = story.delete("db")
    assert second.operations != first.operations
    assert len(story.under_way) == 1


def test_rule_19_a_vm_that_was_evicted_and_started_can_be_evicted_again():
    """Spot_1 was deallocated, came back, and goes again: a new event."""
    story = Story()
    first = story.evict("spot_1").events
    story.advance(seconds=30)
    story.done()
    story.start("spot_1")
    story.done()
    second = story.evict("spot_1").events
    assert first != second
    assert story.shows(SPOT)[1] == [("Preempt", "Scheduled")]


def test_rule_19_an_eviction_that_is_over_but_settles_is_no_first_one():
    """Spot_1 was deallocated and is back while its Preempt is still shown: it can go again."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    first = story.evict("spot_1")
    story.advance(seconds=30)
    story.done()
    story.start("spot_1")
    story.done()
    second = story.evict("spot_1")
    assert second.operations != first.operations
    story.advance(seconds=30)
    assert [impact.kind.value for impact in story.under_way.values()] == ["deallocate"]


def test_rule_19_a_second_delete_returns_the_first_although_an_eviction_was_faster():
    """A delete waits behind a started Preempt; asked for again it is still the first one."""
    story = Story()
    story.restart_vm("spot_0")
    story.approve("spot_0")
    story.evict("spot_0")
    story.advance(seconds=40)
    first = story.delete("spot_0")
    story.done("spot_0")
    assert ("Preempt", "Started") in story.shows(SPOT)[1]
    decision = story.unchanged(ask.Delete(id="again", by=USER, vms=("spot_0",)))
    assert decision.answer.operations == first.operations


# ---- Under a started removal ----

NEW = {
    "restart": ask.Restart,
    "redeploy": ask.Redeploy,
    "stop": ask.Stop,
    "deallocate": ask.Deallocate,
}


@pytest.mark.parametrize("command", NEW.values(), ids=NEW)
def test_rule_19_a_new_operation_under_a_started_terminate_is_refused(command):
    """Batch_0 is being deleted: nothing else can be asked of it."""
    story = Story()
    (event,) = story.delete("batch_0").events
    story.approve("batch_3")
    refusal = story.refused(command(id="c", by=USER, vms=("batch_0",)))
    assert refusal.code is Code.CONFLICT
    assert refusal.rule in (19, 20)
    assert "batch_0" in refusal.why
    assert refusal.event == event


@pytest.mark.parametrize("command", [*NEW.values(), ask.Delete], ids=[*NEW, "delete"])
def test_rule_19_a_new_operation_under_a_started_preempt_is_refused(command):
    """Spot_0 is being evicted."""
    story = Story()
    (event,) = story.evict("spot_0").events
    story.advance(seconds=30)
    refusal = story.refused(command(id="c", by=USER, vms=("spot_0",)))
    assert refusal.code is Code.CONFLICT
    assert refusal.rule in (19, 20)
    assert refusal.event == event


@pytest.mark.parametrize("command", [ask.Restart, ask.Redeploy])
def test_rule_19_until_it_starts_a_removal_forbids_nothing(command):
    """The Preempt is Scheduled: a restart may be asked for, whatever becomes of it."""
    story = Story()
    story.evict("spot_0")
    story.tell(command(id="c", by=USER, vms=("spot_0",)))
    assert len(story.events(SPOT)) == 2


def test_rule_19_all_or_none_under_a_started_removal():
    """Restart both: spot_0 is going, so nothing is scheduled for spot_1."""
    story = Story()
    story.evict("spot_0")
    story.advance(seconds=30)
    refusal = story.refused(ask.Restart(id="c", by=USER, vms=("spot_1", "spot_0")))
    assert refusal.rule == 19


# ---- Restarts ----


def test_rule_19_two_restarts_are_two_events():
    """Nobody asked for the same thing twice: both happen, in their order."""
    story = Story()
    first = story.restart_vm("db")
    second = story.restart_vm("db")
    assert first.events != second.events
    assert story.shows(DB) == (3, [("Reboot", "Scheduled"), ("Reboot", "Scheduled")])
    story.advance(minutes=15)
    assert story.operation(first.operations[0]).status is OperationStatus.STARTED
    assert story.operation(second.operations[0]).status is OperationStatus.PENDING
    story.done("db")
    assert story.operation(second.operations[0]).status is OperationStatus.STARTED


def test_rule_19_two_redeploys_are_two_events_too():
    """Only deletes and evictions repeat."""
    story = Story()
    assert story.redeploy("db").events != story.redeploy("db").events


def test_rule_19_a_restart_under_a_started_reboot_is_accepted_and_queued():
    """It has its own notice, and approved it still waits until the first is over."""
    story = Story()
    story.restart_vm("db")
    story.approve("db")
    story.advance(minutes=1)
    (second,) = story.restart_vm("db").operations
    assert story.shows(DB) == (4, [("Reboot", "Started"), ("Reboot", "Scheduled")])
    assert story.events(DB)[1].not_before == story.at(minutes=16)
    story.approve("db")
    assert story.operation(second).pending
    story.done("db")
    assert story.shows(DB) == (5, [("Reboot", "Started")])


def test_rule_19_a_restart_under_a_started_host_reboot_is_queued_too():
    """The platform's Reboot is a started Reboot like any other."""
    story = Story()
    story.on_node(OperationKind.HOST_REBOOT, "node-5")
    story.approve("spot_1")
    story.restart_vm("spot_1")
    assert story.shows(SPOT)[1] == [("Reboot", "Started"), ("Reboot", "Scheduled")]


# ---- Idempotency keys ----


@pytest.mark.parametrize("later", ["announced", "started", "over"])
def test_rule_19_an_equal_idempotency_key_means_the_same_operation(later):
    """The answer was lost and the request repeated: same operation, nothing changed."""
    story = Story()
    first = story.restart_vm("db", idempotency_key="k1")
    if later != "announced":
        story.approve("db")
    if later == "over":
        story.done("db")
    again = ask.Restart(id="again", by=USER, vms=("db",), idempotency_key="k1")
    assert story.unchanged(again).answer == first


def test_rule_19_another_idempotency_key_is_another_operation():
    """Equal in all else."""
    story = Story()
    first = story.restart_vm("db", idempotency_key="k1")
    second = story.restart_vm("db", idempotency_key="k2")
    assert first.operations != second.operations
    assert len(story.events(DB)) == 2


def test_rule_19_no_key_is_no_equal_key():
    """Two without a key are two."""
    story = Story()
    story.restart_vm("db", idempotency_key="k1")
    story.restart_vm("db")
    story.restart_vm("db")
    assert len(story.events(DB)) == 3


def test_rule_19_a_repeated_command_over_many_vms_answers_with_all_of_them():
    """Three restarts by one key are the same three."""
    story = Story()
    first = story.restart_vm("web-0", "web-1", "web-2", idempotency_key="k")
    again = ask.Restart(id="x", by=USER, vms=("web-0", "web-1", "web-2"), idempotency_key="k")
    assert story.unchanged(again).answer == first
    assert len(story.events(WEB)) == 3


def test_rule_19_a_repeat_by_key_gives_the_answer_of_the_first_time():
    """Batch_0 was going already when both were deleted: the repeat names both, as before."""
    story = Story()
    story.delete("batch_0")
    both = {"by": USER, "vms": ("batch_0", "batch_1"), "idempotency_key": "k"}
    first = story.tell(ask.Delete(id="both", **both))
    again = story.unchanged(ask.Delete(id="again", **both)).answer
    assert set(again.operations) == set(first.operations)
    assert set(again.events) == set(first.events)


@pytest.mark.parametrize("on_node", [True, False])
def test_rule_19_keys_hold_for_operators_and_for_nodes_too(on_node):
    """A repeated maintenance, and a repeated failure, are the same."""
    story = Story()
    if on_node:
        first = story.maintain("node-5", idempotency_key="k")
        again = ask.NodeOperation(
            id="x",
            by=OPERATOR,
            node="node-5",
            kind=OperationKind.HOST_UPDATE,
            idempotency_key="k",
        )
    else:
        command = {"by": OPERATOR, "node": "node-5", "idempotency_key": "k"}
        first = story.tell(ask.FailNode(id="f", **command))
        again = ask.FailNode(id="x", **command)
    assert story.unchanged(again).answer == first


def test_rule_19_a_key_of_a_refused_command_is_free():
    """Refused, then possible: the same key may be used for the second try."""
    story = Story()
    story.stop("db")
    story.done()
    command = ask.Restart(id="r", by=USER, vms=("db",), idempotency_key="k")
    story.refused(command)
    story.start("db")
    story.done()
    story.tell(command)
    assert story.shows(DB)[1] == [("Reboot", "Scheduled")]


def test_rule_19_an_id_is_nobody_elses():
    """Two commands with one id and no key: the second is refused, and told about keys."""
    story = Story()
    story.tell(ask.Restart(id="mine", by=USER, vms=("db",)))
    refusal = story.refused(ask.Restart(id="mine", by=USER, vms=("web-0",)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 19)
    assert "mine" in refusal.why
    assert "idempotency key" in refusal.remedy


def test_rule_19_the_id_of_a_rollout_is_nobody_elses_either():
    """Requests and rollouts share their ids."""
    story = Story()
    rollout = story.roll_out("node-5")
    refusal = story.refused(ask.Restart(id=rollout, by=USER, vms=("db",)))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 19)


def test_rule_19_a_queued_restart_outlives_the_failure_of_the_first():
    """The first reboot failed: the second was asked for, and happens."""
    story = Story()
    story.restart_vm("db")
    story.restart_vm("db")
    story.approve("db")
    story.failed("db")
    statuses = [impact.status for impact in story.fleet.impacts.values()]
    assert statuses == [ImpactStatus.FAILED, ImpactStatus.BEGUN]


# ---- A key of what makes no operation ----


def keyed(command, name="one", key="k"):
    """An operator asks for this under a key."""
    return ask.Keyed(id=name, by=OPERATOR, idempotency_key=key, command=command)


def test_rule_19_a_late_repeat_under_a_key_undoes_nothing():
    """Cordoned, returned to service, and the first asked for again: it stays in service."""
    story = Story()
    story.tell(keyed(ask.Cordon(node="node-0")))
    story.tell(ask.Uncordon(node="node-0"))
    story.unchanged(keyed(ask.Cordon(node="node-0"), "two"))
    refusal = story.refused(keyed(ask.Cordon(node="node-1"), "two"))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 19)
    assert not story.fleet.nodes["node-1"].cordoned
    story.restart()
    story.unchanged(keyed(ask.Cordon(node="node-0"), "two"))
    story.advance(seconds=AZURE.remembered_seconds)
    story.tell(keyed(ask.Cordon(node="node-0"), "two"))
    assert story.fleet.nodes["node-0"].cordoned


def test_rule_19_a_repeat_under_a_key_is_answered_as_the_first_was():
    """With the same operations and events, or the same rollout; and a refusal keeps no key."""
    story = Story()
    (event,) = story.restart_vm("web-0").events
    for number, command in enumerate(
        (
            ask.Approve(events=(event,), by=OPERATOR),
            ask.Cancel(target=story.restart_vm("db").events[0], by=OPERATOR),
        )
    ):
        first = story.tell(keyed(command, f"first-{number}", f"key-{number}"))
        again = story.unchanged(keyed(command, f"again-{number}", f"key-{number}"))
        assert again.answer == first
        assert again.answer.events
    wrong = keyed(ask.Approve(events=("NONE",), by=OPERATOR), "third", "free")
    assert story.refused(wrong).code is Code.NOT_FOUND
    rollout = story.roll_out("node-4")
    pause = ask.PauseRollout(rollout=rollout, by=OPERATOR)
    first = story.tell(keyed(pause, "fourth", "free"))
    again = story.unchanged(keyed(pause, "fifth", "free"))
    assert again.answer.request == first.request == rollout


@pytest.mark.parametrize("restarted", [False, True])
def test_rule_19_what_was_approved_is_known_until_it_is_over_for_a_day(restarted):
    """On Monday db's part of node-1 is approved, which waits until Thursday: known until Friday."""
    story = Story()
    not_before = story.at(hours=72)
    (operation,) = story.maintain("node-1", not_before=not_before).operations
    approval = ask.Approve(events=(story.only(DB).id,), by=OPERATOR)
    story.tell(keyed(approval, "first"))
    story.advance(hours=50)
    if restarted:
        story.restart()
    story.advance(hours=20)
    assert story.operation(operation).pending
    assert "first" in story.fleet.requests
    story.advance(hours=3)
    story.done()
    story.advance(hours=1)
    ended_at = story.operation(operation).ended_at
    story.advance_to(ended_at + timedelta(hours=23))
    assert story.unchanged(keyed(approval, "again")).answer.events == approval.events
    story.advance_to(ended_at + timedelta(hours=24))
    assert "first" not in story.fleet.requests
    assert operation not in story.fleet.operations


def test_rule_19_only_who_let_it_go_is_known_for_longer():
    """Nor is whoever approves what was approved, under a new key each time: they go after a day."""
    story = Story()
    story.maintain("node-1", not_before=story.at(hours=72))
    approval = ask.Approve(events=(story.only(DB).id,), by=OPERATOR)
    story.tell(keyed(approval, "first"))
    story.advance(minutes=1)
    for number in range(3):
        story.tell(keyed(approval, f"late-{number}", f"key-{number}"))
    story.advance(hours=25)
    assert [one for one in story.fleet.requests if one == "first" or "late" in one] == ["first"]
