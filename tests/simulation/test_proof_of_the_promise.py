"""The proof can fail, continued: who is told, who goes first, what is called done.

These bend the law where a fleet at rest looks sound: only somebody who reckons for himself who
had to be told, and when, can see them.
"""

import pytest

from fairnotice.engine import (
    announce,
    approval,
    downtime,
    enabling,
    ending,
    impacts,
    leaving,
    nodes,
    start,
    tables,
)
from fairnotice.engine.effects import BeginImpact
from fairnotice.engine.transitions import Cause
from fairnotice.words import EventType
from tests.simulation.planting import Patch, Plant, happens_often, must_be_caught

# ---- Who is told (rules 1, 2, 4, 9, 13, 18) ----


def nobody_is_told(patch: Patch) -> None:
    """No scope ever gets an event."""
    for module in (announce, enabling, start):
        patch.setattr(module, "is_told", lambda tables, kind, vm: False)


def freezes_appear_started(patch: Patch) -> None:
    """The platform's own Freezes begin as if somebody had approved them."""
    honest = announce.is_automatic

    def is_automatic(scope, kind):
        return honest(scope, kind) or (scope.enabled and kind.event_type is EventType.FREEZE)

    patch.setattr(announce, "is_automatic", is_automatic)


def only_the_first_vm_is_named(patch: Patch) -> None:
    """The others of its update domain are hit without a word."""
    honest = announce.by_event
    patch.setattr(
        announce, "by_event", lambda vms, node: [group[:1] for group in honest(vms, node)]
    )


def enabled_later_and_not_told(patch: Patch) -> None:
    """What was pending before a scope listened stays a secret."""
    patch.setattr(enabling, "_tell", lambda draft, operation, scope: None)


def delete_without_terminate_notice(patch: Patch) -> None:
    """Scale sets that ask for notice get none."""
    patch.setattr(announce, "terminate_notice_minutes", lambda tables, vm: None)


def seven_days_are_ten_minutes(patch: Patch) -> None:
    """A predicted failure gives the least notice, whatever its risk."""
    honest = nodes.announce_on_node

    def announce_on_node(draft, command, node, vms, pattern):
        return honest(draft, command, node, vms, pattern._replace(notice_seconds=0))

    patch.setattr(nodes, "announce_on_node", announce_on_node)


def prediction_that_cordons_nothing(patch: Patch) -> None:
    """A node that is about to fail takes VMs as before."""
    patch.setattr(nodes, "cordon_node", lambda draft, node: None)


def struck_without_an_event(patch: Patch) -> None:
    """Failures, and what is approved automatically, never show."""
    patch.setattr(start, "strike", lambda draft, operation: None)


def started_without_its_events(patch: Patch) -> None:
    """An operation that starts withdraws its events instead of starting them."""
    honest = start.start

    def start_in_silence(draft, operation):
        for event in ending.scheduled_events(draft, operation):
            ending.event_gone(draft, event, Cause.CANCELED, "")
        honest(draft, operation)

    patch.setattr(start, "start", start_in_silence)


# ---- Who goes first (rules 5, 16, 22, 24, 25) ----


def queue_ignored(patch: Patch) -> None:
    """Whoever is looked at first goes first."""
    patch.setattr(start, "queue", lambda draft, name, besides="": iter(()))


def terminates_of_one_command_apart(patch: Patch) -> None:
    """Only earlier Terminates are waited for, not those of the same command."""
    honest = approval._terminates_before

    def before(draft, event):
        return [other for other in honest(draft, event) if other.revision < event.revision]

    patch.setattr(approval, "_terminates_before", before)


def notice_never_renewed(patch: Patch) -> None:
    """What nobody was served starts right after a restart."""
    patch.setattr(downtime, "renew", lambda draft, event: None)
    happens_often(patch, "process_restarts")


def shown_at_last_without_notice(patch: Patch) -> None:
    """An endpoint that was away shows an event, which starts the same moment."""
    patch.setattr(approval, "make_good", lambda draft, event: None)


def rollout_beside_a_failure(patch: Patch) -> None:
    """A rollout strikes the second domain while a failure has the first."""
    patch.setattr(start, "is_held_by_another", lambda draft, operation: False)
    happens_often(patch, "rollout_begins", "node_fails")


def postponed_on_one_clock_only(patch: Patch) -> None:
    """More notice is more notice only as long as nobody sets the clock."""
    honest = approval.put_off

    def put_off(draft, event):
        honest(draft, event._replace(elapsed_at=draft.events[event.id].elapsed_at))

    patch.setattr(approval, "put_off", put_off)
    happens_often(patch, "operator_postpones", "time_passes")


def endpoints_of_the_old_node(patch: Patch) -> None:
    """A VM moves, and its events still wait for the endpoint it has left."""
    patch.setattr(leaving, "ask_endpoints", lambda draft, operation: None)


def silence_of_endpoints_counts(patch: Patch) -> None:
    """A scope behind an endpoint that is cut off is disabled like any other."""
    patch.setattr(enabling, "_is_unknown", lambda draft, scope: False)
    happens_often(patch, "endpoint_reports", "time_passes")


# ---- What is called done (rules 10, 11) ----


def no_time_to_settle(patch: Patch) -> None:
    """An event goes the moment its last impact ends."""
    honest = ending._settle

    def settle(draft, event):
        shown = draft.fleet.events.get(event.id)
        if shown is not None and not shown.scheduled:
            ending.event_gone(draft, event, Cause.OVER)
        else:
            honest(draft, event)

    patch.setattr(ending, "_settle", settle)


def failures_called_completed(patch: Patch) -> None:
    """Nobody counts the impacts that failed."""
    patch.setattr(ending, "_has_failed", lambda draft, operation, vm: False)


def begun_again_at_every_word(patch: Patch) -> None:
    """A driver that says "not begun" twice is handed the impact twice."""

    def answered(draft, impact, *, begin):
        if begin:
            draft.ask(BeginImpact(impact, 0))

    patch.setattr(impacts, "_answered", answered)
    happens_often(patch, "process_restarts", "driver_answers")


# ---- Blind indexes: the law and whoever trusts its indexes see nothing (rules 17, 22) ----


def blind_to_platform_operations(patch: Patch) -> None:
    """The index of platform operations in a scope is always empty."""
    patch.setattr(tables, "_platform_scopes", lambda operation: ())


def blind_to_waiting_users(patch: Patch) -> None:
    """The index of user operations that wait in a scope is always empty."""
    patch.setattr(tables, "_waiting_scopes", lambda operation: ())


PLANTS: dict[Plant, set[int]] = {
    nobody_is_told: {2},
    freezes_appear_started: {2, 6},
    only_the_first_vm_is_named: {4},
    enabled_later_and_not_told: {2},
    delete_without_terminate_notice: {2},
    seven_days_are_ten_minutes: {2},
    prediction_that_cordons_nothing: {13},
    struck_without_an_event: {18},
    started_without_its_events: {5},
    queue_ignored: {5},
    terminates_of_one_command_apart: {16},
    notice_never_renewed: {24},
    shown_at_last_without_notice: {5},
    rollout_beside_a_failure: {22},
    postponed_on_one_clock_only: {25},
    endpoints_of_the_old_node: {5},
    silence_of_endpoints_counts: {8},
    no_time_to_settle: {11},
    failures_called_completed: {11},
    begun_again_at_every_word: {10},
    blind_to_platform_operations: {22},
    blind_to_waiting_users: {17},
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_violation_of_the_promise_is_caught(plant, monkeypatch):
    """Some seed finds it, and names the rule that was broken."""
    must_be_caught(plant, PLANTS[plant], monkeypatch)
