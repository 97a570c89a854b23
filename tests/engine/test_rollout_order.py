"""Rule 22: which node is next, one update domain and one fault domain of a scope at a time."""

from collections import defaultdict

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine.commands import ReportReachable
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.words import (
    EventType,
    OperationKind,
    OperationStatus,
    Risk,
    RolloutStatus,
)
from tests.engine.story import BATCH, DB, SPOT, WEB, Story

NODES = tuple(f"node-{n}" for n in range(6))


def web_on(*places: tuple[int, int]) -> FleetSpec:
    """A set with a VM on each of these (fault domain, update domain)."""
    return FleetSpec(
        tuple(NodeSpec(f"n-{n}", fault) for n, (fault, _) in enumerate(places)),
        tuple(
            VmSpec(f"w-{n}", f"n-{n}", "web", update_domain=update)
            for n, (_, update) in enumerate(places)
        ),
        (SetSpec("web"),),
    )


def singles(count: int) -> FleetSpec:
    """Standalone VMs, each on a node and in a fault domain of its own."""
    return FleetSpec(
        tuple(NodeSpec(f"n-{n}", n) for n in range(count)),
        tuple(VmSpec(f"vm-{n}", f"n-{n}") for n in range(count)),
    )


def test_rule_22_a_rollout_is_one_operation_on_many_nodes_one_after_another():
    """Node-0 at 00:00, over at 00:15; 30 minutes to recover; node-1 at 00:45; the end."""
    story = Story()
    rollout = story.roll_out("node-0", "node-1")
    assert story.statuses(rollout) == {"node-0": "live", "node-1": "pending"}
    assert story.only(WEB).resources == ("web-0",)
    assert story.only(WEB).not_before == story.at(minutes=15)
    assert story.shows(DB) == (1, [])
    story.advance(minutes=15)
    assert story.shows(WEB) == (3, [("Freeze", "Started")])
    story.done()
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "pending"}
    story.advance(minutes=29, seconds=59)
    assert story.shows(DB) == (1, [])
    story.advance(seconds=1)
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "live"}
    assert story.only(DB).not_before == story.at(minutes=60)
    for vm in ("web-0", "batch_0", "db"):
        story.approve(vm)
    story.done()
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "done"}
    assert story.rollout(rollout).status is RolloutStatus.COMPLETED
    assert story.rollout(rollout).ended_at == story.at(minutes=45)


@pytest.mark.parametrize(
    ("kind", "event_type", "duration"),
    [
        (OperationKind.HOST_UPDATE, EventType.FREEZE, 9),
        (OperationKind.HOST_REBOOT, EventType.REBOOT, -1),
        (OperationKind.REPAIR, EventType.REBOOT, -1),
        (OperationKind.MIGRATION, EventType.FREEZE, 5),
        (OperationKind.EVACUATION, EventType.FREEZE, 5),
    ],
)
def test_rule_22_each_kind_of_node_operation_can_be_rolled_out(kind, event_type, duration):
    """The events of the rollout are those of the operation."""
    story = Story()
    rollout = story.roll_out("node-5", kind=kind)
    event = story.only(SPOT)
    assert (event.type, event.duration_seconds) == (event_type, duration)
    story.advance(minutes=15)
    story.done()
    assert story.statuses(rollout) == {"node-5": "done"}


def test_rule_22_a_rollout_freezes_for_as_long_as_it_was_told():
    """The expected pause of a host update is the same on every node; 0 is none."""
    story = Story()
    story.roll_out("node-5", duration_seconds=0)
    assert story.only(SPOT).duration_seconds == 0


@pytest.mark.parametrize(("timing", "seconds"), [(AZURE, 1800), (DEV, 5)])
def test_rule_22_recovery_between_update_domains_is_that_of_the_profile(timing, seconds):
    """30 minutes in azure, 5 seconds in dev."""
    story = Story(web_on((0, 0), (1, 1)), timing=timing)
    story.roll_out("n-0", "n-1")
    story.approve("w-0")
    story.done()
    story.advance(seconds=seconds - 1)
    assert story.events(WEB) == ()
    story.advance(seconds=1)
    assert story.only(WEB).resources == ("w-1",)


def test_rule_22_recovery_can_be_given():
    """60 seconds instead of 30 minutes; 0 is no wait at all."""
    for seconds in (60, 0):
        story = Story(web_on((0, 0), (1, 1)))
        rollout = story.roll_out("n-0", "n-1", recovery_seconds=seconds)
        story.approve("w-0")
        story.done()
        story.advance(seconds=max(seconds - 1, 0))
        assert story.statuses(rollout)["n-1"] == ("pending" if seconds else "live")
        story.advance(seconds=1)
        assert story.statuses(rollout)["n-1"] == "live"


def test_rule_22_recovery_begins_when_the_last_operation_is_over():
    """A slow impact: the half hour counts from its end, not from its start."""
    story = Story(web_on((0, 0), (1, 1)))
    rollout = story.roll_out("n-0", "n-1")
    story.approve("w-0")
    story.advance(seconds=60)
    story.done()
    story.advance(minutes=29, seconds=59)
    assert story.statuses(rollout)["n-1"] == "pending"
    story.advance(seconds=1)
    assert story.statuses(rollout)["n-1"] == "live"


def test_rule_22_nobody_recovers_between_nodes_of_one_update_domain():
    """Two nodes of domain 0 follow each other at once."""
    story = Story(web_on((0, 0), (1, 0)))
    rollout = story.roll_out("n-0", "n-1")
    story.approve("w-0")
    story.done()
    assert story.statuses(rollout) == {"n-0": "done", "n-1": "live"}


def test_rule_22_recovery_counts_every_other_update_domain_not_only_the_last():
    """Domain 1 is repaired during the rollout's domain 0; the next node of domain 0 waits for it.

    00:00 n-0 (domain 0) under way, n-2 (domain 1) repaired and over; 00:01 n-0 over. The next
    node of domain 0 comes 30 minutes after domain 1 was left, although domain 0 was left last.
    """
    story = Story(web_on((0, 0), (0, 0), (1, 1)))
    rollout = story.roll_out("n-0", "n-1")
    story.approve("w-0")
    story.on_node(OperationKind.REPAIR, "n-2")
    story.approve("w-0")
    story.done("w-2")
    story.advance(minutes=1)
    story.done("w-0")
    assert story.statuses(rollout) == {"n-0": "done", "n-1": "pending"}
    story.advance(minutes=29)
    assert story.statuses(rollout) == {"n-0": "done", "n-1": "live"}


def test_rule_22_an_operation_that_never_started_needs_no_recovery():
    """Announced and canceled: domain 0 was not touched, so domain 1 follows at once."""
    story = Story(web_on((0, 0), (1, 1)))
    rollout = story.roll_out("n-0", "n-1")
    story.cancel(story.only(WEB).id)
    assert story.statuses(rollout) == {"n-0": "skipped", "n-1": "live"}


# ---- One update domain, one fault domain ----


def test_rule_22_two_update_domains_of_a_scope_are_never_live_together():
    """Same fault domain, two update domains, two nodes at once allowed: one at a time."""
    story = Story(web_on((0, 0), (0, 1)))
    rollout = story.roll_out("n-0", "n-1", nodes_at_once_max=2)
    assert story.statuses(rollout) == {"n-0": "live", "n-1": "pending"}


def test_rule_22_two_fault_domains_of_a_scope_are_never_live_together():
    """Same update domain, two fault domains, two nodes at once allowed: one at a time."""
    story = Story(web_on((0, 0), (1, 0)))
    rollout = story.roll_out("n-0", "n-1", nodes_at_once_max=2)
    assert story.statuses(rollout) == {"n-0": "live", "n-1": "pending"}


def test_rule_22_nodes_of_one_update_and_fault_domain_may_be_live_together():
    """Same update domain, same fault domain: both at once."""
    story = Story(web_on((0, 0), (0, 0)))
    rollout = story.roll_out("n-0", "n-1", nodes_at_once_max=2)
    assert story.statuses(rollout) == {"n-0": "live", "n-1": "live"}


def test_rule_22_standalone_vms_conflict_with_nobody():
    """Three nodes of three fault domains with one standalone VM each: all at once."""
    story = Story(singles(3))
    rollout = story.roll_out("n-0", "n-1", "n-2", nodes_at_once_max=3)
    assert set(story.statuses(rollout).values()) == {"live"}


def test_rule_22_nodes_at_once_max_is_kept():
    """Two of three; the third when one of them is over. One is the default of both profiles."""
    story = Story(singles(3), listening=("vm:vm-0", "vm:vm-1", "vm:vm-2"))
    rollout = story.roll_out("n-0", "n-1", "n-2", nodes_at_once_max=2)
    assert story.statuses(rollout) == {"n-0": "live", "n-1": "live", "n-2": "pending"}
    story.approve("vm-1")
    story.done("vm-1")
    assert story.statuses(rollout) == {"n-0": "live", "n-1": "done", "n-2": "live"}
    for timing in (AZURE, DEV):
        story = Story(singles(2), timing=timing)
        rollout = story.roll_out("n-0", "n-1")
        assert story.statuses(rollout) == {"n-0": "live", "n-1": "pending"}


def test_rule_22_a_scope_that_does_not_listen_counts_too():
    """Nobody is told, and still one domain at a time is hit."""
    story = Story(listening=())
    rollout = story.roll_out("node-0", "node-1", nodes_at_once_max=2)
    assert {impact.vm for impact in story.under_way.values()} == {"web-0", "batch_0"}
    story.done()
    story.advance(minutes=30)
    assert story.statuses(rollout) == {"node-0": "done", "node-1": "live"}
    assert {impact.vm for impact in story.under_way.values()} == {"web-1", "batch_1", "db"}


def live_domains(story: Story) -> dict[str, set[tuple[int | None, int | None]]]:
    """(update domain, fault domain) of each scope that is under a live operation of a node."""
    domains = defaultdict(set)
    for operation in story.fleet.operations.values():
        if operation.live and operation.node is not None:
            for scope, update_domain in operation.touches:
                if update_domain is not None:
                    domains[scope].add((update_domain, operation.fault_domain))
    return domains


@pytest.mark.parametrize("timing", [AZURE, DEV])
@pytest.mark.parametrize("listening", [(), (WEB, BATCH)])
def test_rule_22_over_the_whole_fleet_no_scope_ever_loses_two_domains(timing, listening):
    """Six nodes, six at once allowed, half of the scopes listening or none: watched to the end."""
    story = Story(timing=timing, listening=listening)
    rollout = story.roll_out(*NODES, nodes_at_once_max=6)
    for _ in range(200):
        assert all(len(domains) == 1 for domains in live_domains(story).values())
        if story.rollout(rollout).ended_at:
            break
        story.done()
        story.advance(seconds=timing.recovery_seconds / 2)
    assert set(story.statuses(rollout).values()) == {"done"}
    assert story.rollout(rollout).done_count == 6


# ---- What counts besides its own ----


@pytest.mark.parametrize(
    "kind",
    [
        OperationKind.HOST_UPDATE,
        OperationKind.HOST_REBOOT,
        OperationKind.REPAIR,
        OperationKind.MIGRATION,
    ],
)
def test_rule_22_maintenance_migration_and_repair_of_others_count_once_announced(kind):
    """Node-1 was announced by hand: node-0 of the rollout waits for its end, and recovers."""
    story = Story()
    story.on_node(kind, "node-1")
    rollout = story.roll_out("node-0")
    assert story.statuses(rollout) == {"node-0": "pending"}
    story.advance(minutes=15)
    story.done()
    assert story.statuses(rollout) == {"node-0": "pending"}
    story.advance(minutes=30)
    assert story.statuses(rollout) == {"node-0": "live"}


def test_rule_22_a_maintenance_that_is_taken_back_frees_the_rollout_at_once():
    """Canceled by hand, it touched nobody."""
    story = Story()
    answer = story.maintain("node-1")
    rollout = story.roll_out("node-0")
    story.cancel(answer.operations[0])
    assert story.statuses(rollout) == {"node-0": "live"}


def test_rule_22_another_rollout_counts():
    """Two rollouts over the same set: the second waits for the first, and recovers."""
    story = Story()
    first = story.roll_out("node-0")
    second = story.roll_out("node-1")
    assert (story.statuses(first), story.statuses(second)) == (
        {"node-0": "live"},
        {"node-1": "pending"},
    )
    story.advance(minutes=15)
    story.done()
    assert story.statuses(second) == {"node-1": "pending"}
    story.advance(minutes=30)
    assert story.statuses(second) == {"node-1": "live"}


def test_rule_22_a_node_with_an_operation_of_its_own_is_taken_after_it():
    """The same node is under maintenance already; the rollout comes after that."""
    story = Story()
    story.maintain("node-5")
    rollout = story.roll_out("node-5")
    assert story.statuses(rollout) == {"node-5": "pending"}
    story.advance(minutes=15)
    story.done()
    assert story.statuses(rollout) == {"node-5": "live"}


def test_rule_22_a_failure_counts_from_its_start():
    """Node-1 has failed: node-0 waits until its VMs are back, and for half an hour."""
    story = Story()
    story.fail("node-1")
    rollout = story.roll_out("node-0")
    assert story.statuses(rollout) == {"node-0": "pending"}
    story.done()
    story.advance(minutes=29, seconds=59)
    assert story.statuses(rollout) == {"node-0": "pending"}
    story.advance(seconds=1)
    assert story.statuses(rollout) == {"node-0": "live"}


def test_rule_22_a_prediction_counts_once_started_not_before():
    """Announced for in 7 days it holds up nobody; approved by web it does."""
    story = Story()
    story.predict("node-1", risk=Risk.LOW)
    free = story.roll_out("node-0")
    assert story.statuses(free) == {"node-0": "live"}
    story = Story()
    story.predict("node-1", risk=Risk.LOW)
    story.approve("web-0")
    held = story.roll_out("node-0")
    assert story.statuses(held) == {"node-0": "pending"}


def test_rule_22_a_preempt_does_not_count():
    """An eviction in the spot set, announced or started, holds up no rollout there."""
    story = Story()
    story.evict("spot_1")
    rollout = story.roll_out("node-2")
    assert story.statuses(rollout) == {"node-2": "live"}
    story = Story()
    story.evict("spot_1")
    story.approve("spot_1")
    rollout = story.roll_out("node-2")
    assert story.statuses(rollout) == {"node-2": "live"}


def test_rule_22_what_a_user_asked_for_does_not_count():
    """A restart is under way on web-1; node-0 is taken."""
    story = Story()
    story.restart_vm("web-1")
    story.approve("web-1")
    rollout = story.roll_out("node-0")
    assert story.statuses(rollout) == {"node-0": "live"}


def test_rule_22_what_is_announced_waits_for_a_failure_that_came_first():
    """Node-1 fails while node-0 is announced: node-0, approved, starts when web-1 is back."""
    story = Story()
    rollout = story.roll_out("node-0")
    story.advance(minutes=5)
    story.fail("node-1")
    story.approve("batch_0")
    story.approve("web-0")
    (operation,) = [op for op in story.fleet.operations.values() if op.rollout == rollout]
    assert operation.status is OperationStatus.PENDING
    story.done()
    assert story.operation(operation.id).status is OperationStatus.STARTED


def test_rule_22_a_node_in_the_way_does_not_hold_up_the_others():
    """Node-0 has to wait for node-1; node-5 is free and comes first."""
    story = Story()
    story.maintain("node-1")
    rollout = story.roll_out("node-0", "node-5")
    assert story.statuses(rollout) == {"node-0": "pending", "node-5": "live"}


def test_rule_22_a_node_that_cannot_be_reached_is_waited_for():
    """Nothing is announced there; when it is back it is taken."""
    story = Story()
    story.tell(ReportReachable(node="node-5", reachable=False))
    rollout = story.roll_out("node-5")
    story.advance(hours=3)
    assert story.statuses(rollout) == {"node-5": "pending"}
    story.tell(ReportReachable(node="node-5", reachable=True))
    assert story.statuses(rollout) == {"node-5": "live"}


@pytest.mark.parametrize("kind", [OperationKind.HOST_UPDATE, OperationKind.MIGRATION])
def test_rule_22_an_empty_node_is_done_at_once(kind):
    """Nobody is there to be told, nothing is there to be hit."""
    story = Story(FleetSpec((NodeSpec("n-0"), NodeSpec("n-1"))))
    rollout = story.roll_out("n-0", "n-1", kind=kind)
    assert story.statuses(rollout) == {"n-0": "done", "n-1": "done"}
    assert story.rollout(rollout).status is RolloutStatus.COMPLETED


def test_rule_22_a_node_named_twice_is_taken_once():
    """The second mention says nothing new."""
    story = Story()
    rollout = story.roll_out("node-5", "node-5")
    assert story.rollout(rollout).node_count == 1
    story.approve("spot_1")
    story.done()
    assert story.rollout(rollout).status is RolloutStatus.COMPLETED
