"""Rules 17 and 18: how much users may ask for at once, and what nobody needs to approve."""

from dataclasses import replace

import pytest

from fairnotice.engine import AZURE, DEV, Code
from fairnotice.engine import commands as ask
from fairnotice.words import EventType, OperationKind, OperationStatus
from tests.engine.story import BATCH, DB, OPERATOR, SPOT, USER, WEB, Story

TWO = replace(AZURE, user_operations_max=2)


def restart_of(*vms: str) -> ask.Restart:
    """A user asks for it."""
    return ask.Restart(id="one-more", by=USER, vms=vms)


def full(scope_vm: str = "web-0") -> Story:
    """A scope in which as many commands wait as may."""
    story = Story(timing=TWO)
    story.restart_vm(scope_vm)
    story.restart_vm(scope_vm)
    return story


# ---- Rule 17 ----


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_17_a_hundred_commands_may_wait_in_a_scope(timing):
    """The hundredth is accepted, the next is refused, and nothing is scheduled by it."""
    story = Story(timing=timing)
    for _ in range(100):
        story.restart_vm("db")
    assert len(story.events(DB)) == 100
    refusal = story.refused(restart_of("db"))
    assert (refusal.code, refusal.rule) == (Code.TOO_MANY, 17)
    assert "100" in refusal.why
    assert DB in refusal.why


@pytest.mark.parametrize(
    "command",
    [
        restart_of("web-1"),
        ask.Redeploy(id="one-more", by=USER, vms=("web-1",)),
        restart_of("db", "web-2"),
    ],
    ids=["restart", "redeploy", "a command that reaches into the scope"],
)
def test_rule_17_past_the_limit_every_user_operation_of_the_scope_is_refused(command):
    """Whatever VM of the scope it names, and whatever else it names."""
    story = full()
    refusal = story.refused(command)
    assert (refusal.code, refusal.rule) == (Code.TOO_MANY, 17)
    assert story.events(DB) == ()


def test_rule_17_a_delete_with_notice_counts_and_is_refused_like_the_rest():
    """Two deletes wait in batch: neither a third nor a restart nor a scale-in is accepted."""
    story = Story(timing=TWO)
    story.delete("batch_0")
    story.delete("batch_1")
    for command in (
        ask.Delete(id="one-more", by=USER, vms=("batch_2",)),
        restart_of("batch_2"),
        ask.ScaleIn(id="one-more", by=USER, scale_set="batch", count=1),
    ):
        assert story.refused(command).rule == 17


def test_rule_17_each_scope_has_its_own_limit():
    """Web is full; db is not."""
    story = full()
    story.restart_vm("db")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_17_what_has_started_does_not_wait():
    """One of two is approved and starts: there is room for one more."""
    story = full("db")
    first = story.events(DB)[0]
    story.approve("db", first.id)
    story.restart_vm("db")
    assert story.refused(restart_of("db")).rule == 17


def test_rule_17_what_was_canceled_does_not_wait():
    """Ada takes one back and asks for another."""
    story = full("db")
    story.cancel(story.events(DB)[0].id, by=USER)
    story.restart_vm("db")


def test_rule_17_approved_but_not_started_still_waits():
    """The VM is busy: what is approved waits behind it, and counts."""
    story = Story(timing=TWO)
    for _ in range(3):
        story.restart_vm("db")
        story.approve("db")
    assert [status for _, status in story.shows(DB)[1]] == ["Started", "Scheduled", "Scheduled"]
    assert story.refused(restart_of("db")).rule == 17


def test_rule_17_platform_operations_do_not_count():
    """A maintenance, a prediction and evictions are not the user's."""
    story = Story(timing=TWO)
    story.maintain("node-5")
    story.predict("node-5", risk="low")
    story.evict("spot_0", "spot_1")
    story.restart_vm("spot_1")
    story.restart_vm("spot_1")
    assert story.refused(restart_of("spot_1")).rule == 17
    # And the platform is not held up by them either.
    story.on_node(OperationKind.HOST_REBOOT, "node-5")


def test_rule_17_power_commands_do_not_count_and_are_not_limited():
    """They act at once: stopping a VM of a full scope is how to get out of it."""
    story = full("db")
    story.stop("db")
    story.done()
    assert story.events(DB) == ()


def test_rule_17_a_delete_that_acts_at_once_does_not_wait_and_so_is_not_past_the_limit():
    """Db has no terminate notification: deleting it adds nothing to what waits."""
    story = full("db")
    story.delete("db")
    assert [impact.kind for impact in story.under_way.values()] == ["delete"]


def test_rule_17_a_command_that_names_several_vms_makes_one_operation_per_vm():
    """Three restarts by one command: three operations, three events, one VM each."""
    story = Story()
    answer = story.restart_vm("web-0", "web-1", "web-2")
    assert len(set(answer.operations)) == 3
    assert [event.resources for event in story.events(WEB)] == [
        ("web-0",),
        ("web-1",),
        ("web-2",),
    ]
    story.approve("web-0", story.events(WEB)[1].id)
    assert [impact.vm for impact in story.under_way.values()] == ["web-1"]


def test_rule_17_a_command_that_names_several_vms_counts_once():
    """Two commands with six operations fill a limit of two; one with three does not."""
    story = Story(timing=TWO)
    story.restart_vm("web-0", "web-1", "web-2")
    story.restart_vm("web-0", "web-1", "web-2")
    assert len(story.events(WEB)) == 6
    refusal = story.refused(restart_of("web-0"))
    assert (refusal.rule, refusal.why) == (17, f"2 requests wait in {WEB} already; at most 2 may.")


def test_rule_17_a_command_counts_until_its_last_operation_has_started():
    """Two of its three restarts have started; it is still one command that waits."""
    story = Story(timing=TWO)
    answer = story.restart_vm("web-0", "web-1", "web-2")
    story.restart_vm("web-2")
    story.approve("web-0", *answer.events[:2])
    assert story.refused(restart_of("web-0")).rule == 17
    story.approve("web-0", answer.events[2])
    story.restart_vm("web-0")


def test_rule_17_a_command_over_several_scopes_counts_once_in_each():
    """Web-0 and db by one command, twice: both scopes are full."""
    story = Story(timing=TWO)
    story.restart_vm("web-0", "db")
    story.restart_vm("web-0", "db")
    assert story.refused(restart_of("web-1")).rule == 17
    assert story.refused(restart_of("db")).rule == 17


def test_rule_17_a_vm_named_twice_is_restarted_once():
    """A name too much is no second operation."""
    story = Story()
    assert len(story.restart_vm("db", "db").operations) == 1
    assert len(story.events(DB)) == 1


@pytest.mark.parametrize("command", [ask.Restart, ask.Redeploy, ask.Evict, ask.Delete, ask.Stop])
def test_rule_17_all_or_none(command):
    """One of the VMs is not there: nothing happens to the other."""
    story = Story()
    refusal = story.refused(command(id="c", by=USER, vms=("spot_0", "nobody")))
    assert refusal.code is Code.NOT_FOUND
    assert "nobody" in refusal.why


@pytest.mark.parametrize(
    "command",
    [ask.Restart, ask.Redeploy, ask.Evict, ask.Delete, ask.Stop, ask.Start, ask.Deallocate],
)
def test_rule_17_a_command_without_vms_is_refused(command):
    """Nothing is not everything."""
    refusal = Story().refused(command(id="c", by=USER, vms=()))
    assert refusal.code is Code.INVALID


# ---- Rule 18 ----


def automatic(*types: EventType, scope: str = DB, **more) -> Story:
    """A scope that approves these by policy."""
    story = Story(**more)
    story.tell(ask.SetPolicy(scope=scope, automatically_approve=types))
    return story


@pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)
def test_rule_18_a_users_reboot_appears_already_started(timing):
    """No notice, no approval: one step of the document to Started, one to gone."""
    story = automatic(EventType.REBOOT, timing=timing)
    story.restart_vm("db")
    assert story.shows(DB) == (2, [("Reboot", "Started")])
    event = story.only(DB)
    assert (event.source, event.resources) == ("User", ("db",))
    assert event.started_at == event.announced_at == story.began
    story.done("db")
    assert story.shows(DB) == (3, [])


def test_rule_18_a_users_redeploy_appears_already_started():
    """The same, and db moves."""
    story = automatic(EventType.REDEPLOY)
    story.redeploy("db")
    assert story.shows(DB) == (2, [("Redeploy", "Started")])
    story.done("db")
    assert story.vm("db").node != "node-1"


def test_rule_18_the_policy_says_which_of_the_two():
    """Redeploy by policy; a restart is announced as ever."""
    story = automatic(EventType.REDEPLOY)
    story.restart_vm("db")
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])
    assert story.only(DB).not_before == story.at(minutes=15)


def test_rule_18_the_policy_is_per_scope():
    """Web has none."""
    story = automatic(EventType.REBOOT, EventType.REDEPLOY)
    story.restart_vm("web-0", "db")
    assert story.shows(DB) == (2, [("Reboot", "Started")])
    assert story.shows(WEB) == (2, [("Reboot", "Scheduled")])


def test_rule_18_what_the_platform_plans_is_never_approved_by_policy():
    """A host reboot, a repair and a prediction are announced with their notice."""
    story = automatic(EventType.REBOOT, EventType.REDEPLOY, scope=SPOT)
    story.on_node(OperationKind.HOST_REBOOT, "node-5")
    story.on_node(OperationKind.REPAIR, "node-5")
    story.predict("node-5", risk="high")
    assert story.shows(SPOT)[1] == [
        ("Reboot", "Scheduled"),
        ("Reboot", "Scheduled"),
        ("Redeploy", "Scheduled"),
    ]


def test_rule_18_a_preempt_is_never_approved_by_policy():
    """Thirty seconds are thirty seconds."""
    story = automatic(EventType.REBOOT, EventType.REDEPLOY, scope=SPOT)
    story.evict("spot_1")
    assert story.shows(SPOT) == (2, [("Preempt", "Scheduled")])


def test_rule_18_a_terminate_is_never_approved_by_policy():
    """Neither is the delete of a scale set's instance."""
    story = automatic(EventType.REBOOT, EventType.REDEPLOY, scope=BATCH)
    story.delete("batch_0")
    assert story.shows(BATCH) == (2, [("Terminate", "Scheduled")])


@pytest.mark.parametrize("kind", [EventType.FREEZE, EventType.PREEMPT, EventType.TERMINATE])
def test_rule_18_no_policy_for_anything_else(kind):
    """A policy for Freeze, Preempt or Terminate is refused."""
    story = Story()
    command = ask.SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT, kind))
    refusal = story.refused(command)
    assert (refusal.code, refusal.rule) == (Code.INVALID, 18)
    assert kind in refusal.why


def test_rule_18_no_policy_for_no_scope():
    """A scope that is not there is named."""
    refusal = Story().refused(ask.SetPolicy(scope="vm:nobody", automatically_approve=()))
    assert refusal.code is Code.NOT_FOUND
    assert "vm:nobody" in refusal.why


def test_rule_18_the_same_policy_again_changes_nothing():
    """And no document moves by a policy."""
    story = automatic(EventType.REBOOT)
    story.unchanged(ask.SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    assert story.shows(DB) == (1, [])


def test_rule_18_while_its_vm_is_busy_it_waits_unseen():
    """Db is being redeployed: its restart shows only when it begins, already Started."""
    story = automatic(EventType.REBOOT)
    story.redeploy("db")
    story.approve("db")
    (restart,) = story.restart_vm("db").operations
    assert story.shows(DB) == (3, [("Redeploy", "Started")])
    story.advance(minutes=5)
    assert story.shows(DB) == (3, [("Redeploy", "Started")])
    assert story.operation(restart).status is OperationStatus.PENDING
    story.done("db")
    assert story.shows(DB) == (4, [("Reboot", "Started")])
    assert story.only(DB).announced_at == story.at(minutes=5)


def test_rule_18_two_by_policy_happen_one_after_another():
    """Two restarts are two events, the second unseen until the first is gone."""
    story = automatic(EventType.REBOOT)
    story.restart_vm("db")
    story.restart_vm("db")
    assert story.shows(DB) == (2, [("Reboot", "Started")])
    first = story.only(DB).id
    story.done("db")
    assert story.shows(DB) == (3, [("Reboot", "Started")])
    assert story.only(DB).id != first
    story.done("db")
    assert story.shows(DB) == (4, [])


def test_rule_18_what_waits_unseen_can_be_taken_back():
    """It has not started, so it is its requester's to cancel."""
    story = automatic(EventType.REBOOT)
    story.restart_vm("db")
    (second,) = story.restart_vm("db").operations
    story.cancel(second, by=USER)
    story.done("db")
    assert story.shows(DB) == (3, [])


def test_rule_18_a_policy_does_not_approve_what_was_announced_before():
    """Db was promised 15 minutes for this one; the policy counts for what comes."""
    story = Story()
    story.restart_vm("db")
    story.tell(ask.SetPolicy(scope=DB, automatically_approve=(EventType.REBOOT,)))
    assert story.shows(DB) == (2, [("Reboot", "Scheduled")])


def test_rule_18_a_silent_scope_has_no_event_with_or_without_a_policy():
    """Nobody listens: db is restarted at once, unseen."""
    story = automatic(EventType.REBOOT, listening=())
    story.restart_vm("db")
    assert story.shows(DB) == (1, [])
    assert len(story.under_way) == 1


def test_rule_18_a_scope_that_begins_to_listen_sees_a_waiting_one_only_when_it_starts():
    """The restart waits for a redeploy, asked for in silence; then somebody listens."""
    story = automatic(EventType.REBOOT, listening=())
    story.redeploy("db")
    story.restart_vm("db")
    story.listen(DB)
    assert story.shows(DB) == (1, [])
    story.done("db")
    assert story.shows(DB) == (2, [("Reboot", "Started")])


def test_rule_18_an_operators_restart_of_a_vm_is_a_users_operation_too():
    """Restart is always shown as asked for by an authorized user, so the policy holds."""
    story = automatic(EventType.REBOOT)
    story.restart_vm("db", by=OPERATOR)
    assert story.shows(DB) == (2, [("Reboot", "Started")])
