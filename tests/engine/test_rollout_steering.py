"""Rule 22: pausing, resuming and canceling a rollout, and what is no rollout."""

import pytest

from fairnotice.engine.commands import (
    CancelRollout,
    PauseRollout,
    ResumeRollout,
    StartRollout,
)
from fairnotice.engine.refusal import Code
from fairnotice.model import Requester, Window
from fairnotice.words import EventStatus, OperationKind, Role, RolloutStatus
from tests.engine.story import BATCH, OPERATOR, SPOT, USER, WEB, Story

STEERING = (PauseRollout, ResumeRollout, CancelRollout)


def rollout_command(**more: object) -> StartRollout:
    """A rollout over node-5, or whatever is asked for."""
    asked = {
        "id": "rollout",
        "by": OPERATOR,
        "nodes": ("node-5",),
        "kind": OperationKind.HOST_UPDATE,
        **more,
    }
    return StartRollout(**asked)


def paused(story: Story, *nodes: str) -> str:
    """A rollout that was paused at once."""
    rollout = story.roll_out(*nodes)
    story.tell(PauseRollout(rollout=rollout, by=OPERATOR))
    return rollout


def test_rule_22_pause_keeps_what_was_promised_and_announces_nothing_new():
    """Node-0 starts at its NotBefore and ends; node-1 does not follow."""
    story = Story()
    rollout = paused(story, "node-0", "node-1")
    assert story.rollout(rollout).status is RolloutStatus.PAUSED
    assert story.rollout(rollout).reason == "paused by olga"
    assert story.shows(WEB) == (2, [("Freeze", "Scheduled")])
    story.advance(minutes=15)
    assert story.shows(WEB) == (3, [("Freeze", "Started")])
    story.done()
    story.advance(hours=5)
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "pending"}


def test_rule_22_a_paused_rollout_can_still_be_approved():
    """What was promised can be had early."""
    story = Story()
    paused(story, "node-5")
    story.approve("spot_0")
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])


def test_rule_22_resume_goes_on_where_it_stood():
    """Node-1 is announced at once when recovery is long over."""
    story = Story()
    rollout = paused(story, "node-0", "node-1")
    story.advance(minutes=15)
    story.done()
    story.advance(hours=5)
    story.tell(ResumeRollout(rollout=rollout, by=OPERATOR))
    assert story.rollout(rollout).status is RolloutStatus.RUNNING
    assert story.rollout(rollout).reason == ""
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "live"}


def test_rule_22_a_paused_rollout_ends_with_its_last_node():
    """Nothing was left to announce."""
    story = Story()
    rollout = paused(story, "node-5")
    story.approve("spot_1")
    story.done()
    assert story.rollout(rollout).status is RolloutStatus.COMPLETED


def test_rule_22_cancel_withdraws_what_is_scheduled():
    """The events of node-0 are canceled with the reason, node-1 is never announced."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1")
    events = [story.only(WEB), story.only(BATCH)]
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    assert story.shows(WEB) == (3, [])
    for event in events:
        assert story.event(event.id).status is EventStatus.CANCELED
        assert story.event(event.id).reason == "canceled by olga"
    assert story.rollout(rollout).status is RolloutStatus.CANCELED
    assert story.rollout(rollout).reason == "canceled by olga"
    story.advance(hours=5)
    assert set(story.statuses(rollout).values()) == {"canceled"}


def test_rule_22_cancel_lets_what_has_started_end():
    """The freeze is under way: it is done as if nothing had been said."""
    story = Story()
    rollout = story.roll_out("node-5", "node-0")
    story.approve("spot_1")
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    assert story.shows(SPOT) == (3, [("Freeze", "Started")])
    assert story.statuses(rollout) == {"node-5": "live", "node-0": "canceled"}
    story.done()
    assert story.shows(SPOT) == (4, [])
    assert story.statuses(rollout) == {"node-5": "done", "node-0": "canceled"}
    assert story.rollout(rollout).status is RolloutStatus.CANCELED


def test_rule_22_cancel_leaves_what_is_done_as_it_is():
    """Node-5 is over, node-0 is announced: only node-0 is taken back."""
    story = Story()
    rollout = story.roll_out("node-5", "node-0")
    story.approve("spot_1")
    story.done()
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    assert story.statuses(rollout)["node-5"] == "done"
    assert story.rollout(rollout).done_count == 1
    assert story.events(WEB) == ()


def test_rule_22_cancel_of_a_migration_takes_back_only_what_has_not_started():
    """Two events of node-0 are two operations: web has started, batch is withdrawn."""
    story = Story()
    rollout = story.roll_out("node-0", kind=OperationKind.MIGRATION)
    story.approve("web-0")
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    assert story.shows(WEB) == (3, [("Freeze", "Started")])
    assert story.shows(BATCH) == (3, [])
    story.done()
    assert story.statuses(rollout)["node-0"] != "live"
    assert story.rollout(rollout).live_count == 0


def test_rule_22_a_paused_rollout_can_be_canceled():
    """Pause first, think, then cancel."""
    story = Story()
    rollout = paused(story, "node-0", "node-1")
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    assert story.rollout(rollout).status is RolloutStatus.CANCELED
    assert story.shows(WEB) == (3, [])


def test_rule_22_steering_twice_changes_nothing():
    """A second pause, a resume of what runs, a second cancel."""
    story = Story()
    rollout = story.roll_out("node-0")
    story.unchanged(ResumeRollout(rollout=rollout, by=OPERATOR))
    story.tell(PauseRollout(rollout=rollout, by=OPERATOR))
    story.unchanged(PauseRollout(rollout=rollout, by=OPERATOR))
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    story.unchanged(CancelRollout(rollout=rollout, by=OPERATOR))


@pytest.mark.parametrize("command", STEERING)
def test_rule_22_only_an_operator_steers_a_rollout(command):
    """Neither a user nor a VM may."""
    story = Story()
    rollout = story.roll_out("node-0")
    for by in (USER, Requester("web-0", Role.VM)):
        refusal = story.refused(command(rollout=rollout, by=by))
        assert (refusal.code, refusal.rule) == (Code.FORBIDDEN, 22)
        assert "operator" in refusal.why


@pytest.mark.parametrize("by", [USER, Requester("web-0", Role.VM)])
def test_rule_22_only_an_operator_begins_a_rollout(by):
    """Host updates are asked for by operators: a user or a VM cannot roll one out, even dryly."""
    story = Story()
    for dry_run in (False, True):
        refusal = story.refused(rollout_command(by=by, dry_run=dry_run))
        assert refusal.code is Code.FORBIDDEN


@pytest.mark.parametrize("command", STEERING)
def test_rule_22_an_unknown_rollout_cannot_be_steered(command):
    """The name is told."""
    refusal = Story().refused(command(rollout="nothing", by=OPERATOR))
    assert (refusal.code, refusal.rule) == (Code.NOT_FOUND, 22)
    assert "nothing" in refusal.why


@pytest.mark.parametrize("command", STEERING)
def test_rule_22_a_completed_rollout_cannot_be_steered(command):
    """It is over; a new one can be begun."""
    story = Story(listening=())
    rollout = story.roll_out("node-5")
    story.done()
    refusal = story.refused(command(rollout=rollout, by=OPERATOR))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 22)
    assert "new one" in refusal.remedy


@pytest.mark.parametrize("command", [PauseRollout, ResumeRollout])
def test_rule_22_a_canceled_rollout_cannot_be_paused_or_resumed(command):
    """Whoever resumes a canceled rollout is told that it will not go on."""
    story = Story()
    rollout = story.roll_out("node-5")
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    refusal = story.refused(command(rollout=rollout, by=OPERATOR))
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 22)


# ---- What is no rollout ----


BAD = {
    "no nodes": ({"nodes": ()}, "needs nodes"),
    "a failure": ({"kind": OperationKind.FAILURE}, "cannot be rolled out"),
    "a prediction": ({"kind": OperationKind.PREDICTED_FAILURE}, "cannot be rolled out"),
    "a restart": ({"kind": OperationKind.RESTART}, "cannot be rolled out"),
    "a pause of -1 seconds": ({"duration_seconds": -1}, "expected pause"),
    "a reboot with a pause": (
        {"kind": OperationKind.HOST_REBOOT, "duration_seconds": 9},
        "expected pause",
    ),
    "a window on no day": ({"windows": (Window((), 0, 60),)}, "no window"),
    "a window on an eighth day": ({"windows": (Window((7,), 0, 60),)}, "no window"),
    "a window after midnight": ({"windows": (Window((0,), 1440, 60),)}, "no window"),
    "a window of no time": ({"windows": (Window((0,), 0, 0),)}, "no window"),
    "negative recovery": ({"recovery_seconds": -1}, "-1 is no recovery_seconds"),
    "a negative budget": ({"failure_budget": -1}, "-1 is no failure_budget"),
    "no node at once": ({"nodes_at_once_max": 0}, "0 is no nodes_at_once_max"),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_rule_22_what_is_no_rollout_is_refused(name, dry_run):
    """Run or only forecast, bad input is told in words."""
    wrong, why = BAD[name]
    refusal = Story().refused(rollout_command(dry_run=dry_run, **wrong))
    assert refusal.code is Code.INVALID
    assert why in refusal.why


def test_rule_22_a_rollout_over_an_unknown_node_is_refused_whole():
    """One name is wrong: nothing is announced on the others."""
    refusal = Story().refused(rollout_command(nodes=("node-0", "node-9")))
    assert refusal.code is Code.NOT_FOUND
    assert "node-9" in refusal.why


def test_rule_19_an_equal_idempotency_key_is_the_same_rollout():
    """Asked twice, there is one; with an id that is taken and no key it is refused."""
    story = Story()
    story.tell(rollout_command(idempotency_key="monday"))
    again = story.unchanged(rollout_command(id="other", idempotency_key="monday"))
    assert again.answer.request == "rollout"
    assert list(story.fleet.rollouts) == ["rollout"]
    refusal = story.refused(rollout_command())
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 19)


def test_rule_26_a_rollout_is_known_for_90_days_after_its_end():
    """Then it is history, with all its nodes, and its key is free again."""
    story = Story(listening=())
    story.tell(rollout_command(idempotency_key="monday", nodes=("node-5", "node-2")))
    story.done()
    story.advance(minutes=30)
    story.done()
    ended_at = story.rollout("rollout").ended_at
    story.advance_to(ended_at)
    story.advance(hours=90 * 24 - 1)
    assert "rollout" in story.fleet.rollouts
    story.advance(hours=1)
    assert story.fleet.rollouts == {}
    assert story.fleet.rollout_nodes == {}
    assert "monday" not in story.fleet.request_by_key


def test_rule_26_a_canceled_rollout_is_known_for_90_days_too():
    """The same for one that was taken back."""
    story = Story()
    rollout = story.roll_out("node-5")
    story.tell(CancelRollout(rollout=rollout, by=OPERATOR))
    story.advance(hours=90 * 24 - 1)
    assert rollout in story.fleet.rollouts
    story.advance(hours=1)
    assert story.fleet.rollouts == {}
