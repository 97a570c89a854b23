"""The proof can fail: each violation of the law that is planted here is caught.

A plant bends one piece of the engine. The simulator then runs seeds until its witness, or the
check for what never ends, names the rule that was broken.
"""

import importlib
from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.engine import (
    announce,
    approval,
    documents,
    enabling,
    ending,
    impacts,
    leaving,
    placement,
    rollout,
    rollout_nodes,
    start,
    users,
    windows,
)
from fairnotice.engine.changes import DocumentChanged, EventStarted
from fairnotice.engine.commands import Cancel
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import BeginImpact, Matter
from fairnotice.model import LastTouched
from fairnotice.testing import simulator
from fairnotice.testing.simulator import simulate
from fairnotice.words import EventStatus
from tests.simulation.planting import SEEDS, STEPS, Patch, Plant, happens_often, must_be_caught

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The package exports the function of the same name.
law = importlib.import_module("fairnotice.engine.decide")


def start_before_not_before(patch: Patch) -> None:
    """An unapproved event is let go a minute early."""
    honest = approval._approved_at

    def early(draft, event):
        return honest(draft, event) - timedelta(minutes=1)

    patch.setattr(approval, "_approved_at", early)
    happens_often(patch, "time_passes", "operator_asks")


def two_update_domains_at_once(patch: Patch) -> None:
    """A rollout does not look at what else is live."""
    patch.setattr(rollout, "in_the_way", lambda *_: None)


def event_id_that_changes(patch: Patch) -> None:
    """The event that starts has another id than the one that was announced."""

    def started(at, event):
        return EventStarted(at, event._replace(id=event.id[::-1]))

    patch.setattr(start, "EventStarted", started)


def incarnation_that_does_not_move(patch: Patch) -> None:
    """Documents change in silence."""
    patch.setattr(law, "move_incarnations", lambda draft: None)


def incarnation_that_moves_for_nothing(patch: Patch) -> None:
    """Every commit counts one up everywhere it touches an event, seen or not."""

    def move_all(draft):
        for event in draft.touched_events:
            scope = draft.scopes[draft.events[event].scope]
            moved = scope._replace(incarnation=scope.incarnation + 1)
            draft.record(DocumentChanged(draft.now, moved))

    patch.setattr(law, "move_incarnations", move_all)


def approval_for_another_scope(patch: Patch) -> None:
    """Any VM may approve any event."""
    patch.setattr(approval, "_seen_event", lambda draft, event, by: draft.events[event])


def impact_begun_twice(patch: Patch) -> None:
    """A timed-out impact is handed to the driver once more."""
    honest = impacts.end

    def end_and_repeat(draft, impact, cause, reason):
        draft.ask(BeginImpact(impact, 0))
        honest(draft, impact, cause, reason)

    patch.setattr(impacts, "end", end_and_repeat)


def started_event_canceled(patch: Patch) -> None:
    """Whoever cancels gets his way, also when it has started."""

    def cancel(draft, command):
        event = draft.events[command.target]
        if event.status is EventStatus.STARTED:
            gone = event._replace(status=EventStatus.CANCELED, gone_at=draft.now)
            draft.record(ending.EventGone(draft.now, gone))
        return law.Accepted()

    patch.setitem(law.HANDLERS, Cancel, cancel)


def vm_beside_another_update_domain(patch: Patch) -> None:
    """Placement forgets update domains."""
    patch.setattr(placement, "_domains_meet", lambda vm, others: False)


def node_that_is_full(patch: Patch) -> None:
    """Placement forgets capacity."""
    patch.setattr(Draft, "used_slots", lambda draft, node: 0)
    patch.setattr(placement, "_candidates", lambda draft: tuple(draft.nodes))


def notice_too_short(patch: Patch) -> None:
    """NotBefore is a second away."""
    patch.setattr(announce, "earliest", lambda now, notice, asked: now + timedelta(seconds=1))


def event_brought_forward(patch: Patch) -> None:
    """Postponing goes in both directions."""

    def postpone(draft, command):
        event = draft.events[command.event]
        if event.scheduled:
            approval.put_off(draft, event._replace(not_before=command.not_before))
        return law.Accepted()

    patch.setitem(law.HANDLERS, law.commands.Postpone, postpone)


def stopped_vm_stays_in_its_event(patch: Patch) -> None:
    """A VM that leaves its node is not taken out of what was announced there."""
    patch.setattr(leaving, "leave_nodes", lambda draft, name, reason: None)


def terminate_out_of_turn(patch: Patch) -> None:
    """A Terminate does not wait for those before it."""
    patch.setattr(approval, "_terminates_before", lambda draft, event: [])


def scope_disabled_too_soon(patch: Patch) -> None:
    """Two hours of silence are enough."""
    patch.setattr(enabling, "_silent_at", lambda tables, scope: scope.heard_at + timedelta(hours=2))


def start_outside_the_window(patch: Patch) -> None:
    """Windows are always open."""
    patch.setattr(windows, "is_open", lambda allowed, at: True)


def no_time_to_recover(patch: Patch) -> None:
    """Nobody remembers which update domain had its turn."""
    patch.setattr(ending, "LastTouched", lambda domain, at: LastTouched(domain, EPOCH))


def too_many_user_operations(patch: Patch) -> None:
    """Users may queue as much as they like."""
    patch.setattr(users, "_must_not_be_too_many", lambda draft, vms: None)


def impact_on_an_unreachable_node(patch: Patch) -> None:
    """Impacts begin on nodes that nobody can reach."""
    patch.setattr(start, "_is_unreachable", lambda draft, name: False)


def two_impacts_at_once(patch: Patch) -> None:
    """A due operation does not wait for its VMs."""
    patch.setattr(start, "is_busy", start._is_unreachable)


def monotonic_clock_ignored(patch: Patch) -> None:
    """Whoever sets the wall clock takes the notice away."""
    patch.setattr(start, "unelapsed_seconds", lambda draft, event: 0.0)


def unconfirmed_event_started(patch: Patch) -> None:
    """Nobody waits for endpoints."""
    patch.setattr(start, "held_by", lambda event: ())


def vm_cancels(patch: Patch) -> None:
    """Anybody may cancel."""
    patch.setattr(users, "_must_be_allowed_to_cancel", lambda draft, operation, command: None)


def event_shown_where_nobody_listens(patch: Patch) -> None:
    """Disabled scopes get events too."""
    patch.setattr(announce, "is_told", lambda tables, kind, vm: kind not in ("stop", "start"))


def failures_without_end(patch: Patch) -> None:
    """A rollout goes on whatever fails."""
    patch.setattr(rollout_nodes, "pause", lambda draft, rollout, reason: None)


def timer_forgotten(patch: Patch) -> None:
    """The law forgets to be woken for operations."""
    honest = Draft.wake

    def wake(draft, at, matter, subject):
        if matter is not Matter.OPERATION:
            honest(draft, at, matter, subject)

    patch.setattr(Draft, "wake", wake)
    # Without rollouts there is nothing that a month would not bring to its end.
    patch.setattr(simulator, "PATIENCE_DAYS", 30)
    patch.setitem(simulator.WEIGHTS, "rollout_begins", 0)


def event_that_stays(patch: Patch) -> None:
    """What was shown is never taken back."""
    patch.setattr(documents, "shown", lambda event: event is not None)


# The rules by which each plant may be found: the one it breaks, or what that leads to.
PLANTS: dict[Plant, set[int]] = {
    start_before_not_before: {1},
    two_update_domains_at_once: {22},
    event_id_that_changes: {6},
    incarnation_that_does_not_move: {7},
    incarnation_that_moves_for_nothing: {7},
    approval_for_another_scope: {3},
    impact_begun_twice: {10},
    started_event_canceled: {6},
    vm_beside_another_update_domain: {14},
    node_that_is_full: {14},
    notice_too_short: {2},
    event_brought_forward: {2},
    stopped_vm_stays_in_its_event: {12, 20},
    terminate_out_of_turn: {16},
    scope_disabled_too_soon: {8},
    start_outside_the_window: {22},
    no_time_to_recover: {22},
    too_many_user_operations: {17},
    impact_on_an_unreachable_node: {13},
    two_impacts_at_once: {5},
    monotonic_clock_ignored: {25},
    unconfirmed_event_started: {5},
    vm_cancels: {15},
    event_shown_where_nobody_listens: {9},
    failures_without_end: {22},
    timer_forgotten: {11},
    event_that_stays: {7},
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_violation_is_caught(plant, monkeypatch):
    """Some seed finds it, and names the rule that was broken."""
    must_be_caught(plant, PLANTS[plant], monkeypatch)


def test_nothing_is_caught_where_nothing_is_planted():
    """The same seeds are clean when the law is left alone."""
    for seed in SEEDS[:5]:
        simulate(seed, STEPS)
