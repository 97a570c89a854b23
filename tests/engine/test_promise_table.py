"""The table of operations, row by row: what each shows in each kind of scope, and what it does."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from fairnotice.engine import AZURE, DEV
from fairnotice.engine.commands import ScaleIn
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.words import (
    EventSource,
    EventType,
    EvictionPolicy,
    ImpactKind,
    OperationKind,
    Power,
    Priority,
    Risk,
    ScopeKind,
)
from tests.engine.story import BATCH, DB, SPOT, USER, WEB, Story

MINUTE, DAY = 60, 86400

MAINTENANCE = "Host server is undergoing maintenance."
MIGRATION = (
    "Virtual machine is being paused because of a memory-preserving Live Migration operation."
)
EMERGENCY = "Host server is undergoing an emergency repair."
FAILURE = "Virtual machine has encountered a failure."
RESTART = "Virtual machine is going to be restarted as requested by authorized user."
REDEPLOY = "Virtual machine is going to be redeployed as requested by authorized user."

# The one VM of each kind of scope, and the scope.
PLACES = {
    ScopeKind.STANDALONE: ("alone", "vm:alone"),
    ScopeKind.AVAILABILITY_SET: ("avail-0", "availability-set:avail"),
    ScopeKind.PLACEMENT_GROUP: ("scale_0", "scale-set:scale:0"),
    ScopeKind.CLOUD_SERVICE: ("cloud_0", "cloud-service:cloud"),
}
PROFILES = pytest.mark.parametrize("timing", [AZURE, DEV], ids=lambda timing: timing.name)


def one_of_each(priority: Priority = Priority.REGULAR) -> FleetSpec:
    """A VM in each kind of scope, each on a node of its own, and two empty nodes."""
    sets = ({}, {"availability_set": "avail"}, {"scale_set": "scale"}, {"cloud_service": "cloud"})
    return FleetSpec(
        nodes=tuple(NodeSpec(f"node-{n}", n % 3) for n in range(6)),
        availability_sets=(SetSpec("avail"),),
        scale_sets=(ScaleSetSpec("scale", priority=priority, terminate_notice_minutes=5),),
        cloud_services=(SetSpec("cloud"),),
        vms=tuple(
            VmSpec(name, f"node-{n}", priority=priority, **sets[n])
            for n, (name, _) in enumerate(PLACES.values())
        ),
    )


class Row(NamedTuple):
    """One row of the table, and the impact that the driver is asked for."""

    name: str
    ask: Callable[[Story, str], object]
    type: EventType
    source: EventSource
    azure_seconds: int
    dev_seconds: int
    description: str
    duration_seconds: int
    impact: ImpactKind
    priority: Priority = Priority.REGULAR


def on_node(kind: OperationKind, **more: int) -> Callable[[Story, str], object]:
    """An operator does this to the VM's node."""
    return lambda story, vm: story.on_node(kind, story.vm(vm).node, **more)


def predicted(risk: Risk) -> Callable[[Story, str], object]:
    """The failure of the VM's node is foretold with this risk."""
    return lambda story, vm: story.predict(story.vm(vm).node, risk=risk)


FREEZE, REBOOT = EventType.FREEZE, EventType.REBOOT
PLATFORM, BY_USER = EventSource.PLATFORM, EventSource.USER
QUARTER = (15 * MINUTE, 15)
PREDICTED = (EventType.REDEPLOY, PLATFORM)
MOVED = (MAINTENANCE, -1, ImpactKind.REDEPLOY)

ROWS = [
    Row(
        "host update, memory preserving",
        on_node(OperationKind.HOST_UPDATE, duration_seconds=9),
        *(FREEZE, PLATFORM, *QUARTER, MAINTENANCE, 9, ImpactKind.FREEZE),
    ),
    Row(
        "host update without a pause",
        on_node(OperationKind.HOST_UPDATE, duration_seconds=0),
        *(FREEZE, PLATFORM, *QUARTER, MAINTENANCE, 0, ImpactKind.FREEZE),
    ),
    Row(
        "live migration",
        on_node(OperationKind.MIGRATION),
        *(FREEZE, PLATFORM, *QUARTER, MIGRATION, 5, ImpactKind.MIGRATE),
    ),
    Row(
        "live migration by evacuation",
        on_node(OperationKind.EVACUATION),
        *(FREEZE, PLATFORM, *QUARTER, MIGRATION, 5, ImpactKind.MIGRATE),
    ),
    Row(
        "host update with reboot",
        on_node(OperationKind.HOST_REBOOT),
        *(REBOOT, PLATFORM, *QUARTER, MAINTENANCE, -1, ImpactKind.REBOOT),
    ),
    Row(
        "emergency repair",
        on_node(OperationKind.REPAIR),
        *(REBOOT, PLATFORM, *QUARTER, EMERGENCY, -1, ImpactKind.REBOOT),
    ),
    Row("predicted failure, low", predicted(Risk.LOW), *PREDICTED, 7 * DAY, 60, *MOVED),
    Row("predicted failure, medium", predicted(Risk.MEDIUM), *PREDICTED, DAY, 30, *MOVED),
    Row("predicted failure, high", predicted(Risk.HIGH), *PREDICTED, 10 * MINUTE, 10, *MOVED),
    Row(
        "restart",
        Story.restart_vm,
        *(REBOOT, BY_USER, *QUARTER, RESTART, -1, ImpactKind.REBOOT),
    ),
    Row(
        "redeploy",
        Story.redeploy,
        *(EventType.REDEPLOY, BY_USER, 10 * MINUTE, 10, REDEPLOY, -1, ImpactKind.REDEPLOY),
    ),
    Row(
        "eviction of a Spot VM",
        Story.evict,
        *(EventType.PREEMPT, PLATFORM, 30, 5, "", -1, ImpactKind.DEALLOCATE, Priority.SPOT),
    ),
    Row(
        "eviction, simulated by its user",
        lambda story, vm: story.evict(vm, by=USER),
        *(EventType.PREEMPT, PLATFORM, 30, 5, "", -1, ImpactKind.DEALLOCATE, Priority.SPOT),
    ),
]
TERMINATE = (EventType.TERMINATE, BY_USER, 5 * MINUTE, 5, "", -1, ImpactKind.DELETE)
SCALE_SET_ROWS = [
    Row("delete with terminate notification", Story.delete, *TERMINATE),
    Row(
        "scale-in with terminate notification",
        lambda story, _: story.tell(ScaleIn(id="in", by=USER, scale_set="scale", count=1)),
        *TERMINATE,
    ),
]
CASES = [
    *((row, kind) for row in ROWS for kind in ScopeKind),
    *((row, ScopeKind.PLACEMENT_GROUP) for row in SCALE_SET_ROWS),
]


@PROFILES
@pytest.mark.parametrize(
    ("row", "kind"), CASES, ids=[f"{row.name} in {kind}" for row, kind in CASES]
)
def test_table_each_row_as_each_kind_of_scope_sees_it(row, kind, timing):
    """It is asked for, shown with its own words and notice, and starts at its NotBefore."""
    vm, scope = PLACES[kind]
    story = Story(one_of_each(row.priority), listening=(scope,), timing=timing)
    assert story.scope(scope).kind is kind
    row.ask(story, vm)

    event = story.only(scope)
    notice_seconds = row.azure_seconds if timing is AZURE else row.dev_seconds
    assert (event.type, event.source, event.description) == (row.type, row.source, row.description)
    assert event.duration_seconds == row.duration_seconds
    assert event.resources == (vm,)
    assert story.shows(scope) == (2, [(row.type.value, "Scheduled")])
    assert event.announced_at == story.began
    assert event.not_before == story.at(seconds=notice_seconds)
    assert event.notice_seconds == notice_seconds

    story.advance_to(event.not_before - timedelta(seconds=1))
    assert story.under_way == {}
    story.advance(seconds=1)
    assert story.shows(scope) == (3, [(row.type.value, "Started")])
    (impact,) = story.under_way.values()
    assert (impact.vm, impact.kind) == (vm, row.impact)
    story.done()
    assert story.shows(scope) == (4, [])


@PROFILES
@pytest.mark.parametrize("kind", ScopeKind)
def test_table_hardware_failure_gives_no_notice_and_appears_started(kind, timing):
    """The node fails, and the first that anybody sees of it is a Started Redeploy."""
    vm, scope = PLACES[kind]
    story = Story(one_of_each(), listening=(scope,), timing=timing)
    story.fail(story.vm(vm).node)
    event = story.only(scope)
    assert story.shows(scope) == (2, [("Redeploy", "Started")])
    assert (event.source, event.description) == (EventSource.PLATFORM, FAILURE)
    assert event.duration_seconds == -1
    assert event.resources == (vm,)
    assert [impact.kind for impact in story.under_way.values()] == [ImpactKind.REDEPLOY]


@pytest.mark.parametrize(
    "kind", [kind for kind in ScopeKind if kind is not ScopeKind.PLACEMENT_GROUP]
)
def test_table_terminate_is_for_scale_sets_only(kind):
    """Deleting a VM of any other scope is not announced: it is done."""
    vm, scope = PLACES[kind]
    story = Story(one_of_each(), listening=(scope,))
    story.delete(vm)
    assert story.shows(scope) == (1, [])
    assert [impact.kind for impact in story.under_way.values()] == [ImpactKind.DELETE]


def test_table_terminate_is_not_for_spot():
    """A Spot instance is deleted at once, even where its scale set has terminate notification."""
    vm, scope = PLACES[ScopeKind.PLACEMENT_GROUP]
    story = Story(one_of_each(Priority.SPOT), listening=(scope,))
    story.delete(vm)
    assert story.shows(scope) == (1, [])
    assert [impact.kind for impact in story.under_way.values()] == [ImpactKind.DELETE]


def test_table_a_host_update_expects_nine_seconds_unless_told_otherwise():
    """Without a duration the announcement says 9; with one, that."""
    story = Story()
    story.maintain("node-0")
    assert story.only(WEB).duration_seconds == 9
    story.maintain("node-5", duration_seconds=30)
    assert story.only(SPOT).duration_seconds == 30


@pytest.mark.parametrize(
    "kind",
    [
        OperationKind.HOST_REBOOT,
        OperationKind.REPAIR,
        OperationKind.MIGRATION,
        OperationKind.EVACUATION,
    ],
)
def test_table_only_a_host_update_takes_a_duration(kind):
    """Nobody knows how long a reboot takes, and a migration takes 5 seconds."""
    story = Story()
    refusal = story.refused(story.node_command(kind, "node-0", duration_seconds=9))
    assert (refusal.code, refusal.rule) == ("invalid", 0)
    assert "duration_seconds" in refusal.why


def test_table_a_pause_is_never_negative():
    """-1 means unknown, and a host update knows."""
    story = Story()
    command = story.node_command(OperationKind.HOST_UPDATE, "node-0", duration_seconds=-1)
    assert story.refused(command).code == "invalid"


@pytest.mark.parametrize(
    "kind",
    [
        OperationKind.PREDICTED_FAILURE,
        OperationKind.FAILURE,
        OperationKind.RESTART,
        OperationKind.EVICTION,
        OperationKind.STOP,
    ],
)
def test_table_what_operators_do_to_a_node_is_a_short_list(kind):
    """A restart of a node is no row of the table, and the refusal names the rows there are."""
    story = Story()
    refusal = story.refused(story.node_command(kind, "node-0"))
    assert refusal.code == "invalid"
    assert "host-update" in refusal.remedy


def test_table_a_node_that_is_not_there():
    """Nothing is announced on a node nobody knows."""
    story = Story()
    refusal = story.refused(story.node_command(OperationKind.HOST_UPDATE, "node-9"))
    assert refusal.code == "not-found"
    assert "node-9" in refusal.why


# ---- What each impact does ----


def test_table_freeze_and_reboot_leave_the_vm_where_it_is():
    """VM db is paused, then restarted, and runs on node-1 before and after."""
    story = Story()
    before = story.vm("db")
    story.maintain("node-1")
    story.advance(minutes=15)
    story.done()
    story.restart_vm("db")
    story.advance(minutes=15)
    story.done()
    assert story.shows(DB) == (7, [])
    assert story.vm("db") == before


@pytest.mark.parametrize("kind", [OperationKind.MIGRATION, OperationKind.EVACUATION])
def test_table_live_migration_moves_the_vm_to_another_node(kind):
    """VM db runs on node-1 until the migration is done, then elsewhere."""
    story = Story()
    story.on_node(kind, "node-1")
    story.approve("db")
    assert story.vm("db").node == "node-1"
    story.done("db")
    assert story.vm("db").node not in ("node-1", None)
    assert story.vm("db").running


def test_table_redeploy_moves_the_vm_to_another_node():
    """VM db is redeployed off node-1."""
    story = Story()
    story.redeploy("db")
    story.approve("db")
    (impact,) = story.under_way.values()
    story.done("db")
    assert story.vm("db").node == impact.target != "node-1"


@pytest.mark.parametrize(
    ("vm", "policy", "impact"),
    [
        ("spot_0", EvictionPolicy.DELETE, ImpactKind.DELETE),
        ("spot_1", EvictionPolicy.DEALLOCATE, ImpactKind.DEALLOCATE),
    ],
)
def test_table_preempt_removes_or_deallocates_by_policy(vm, policy, impact):
    """spot_0 is deleted by its eviction, spot_1 is only deallocated."""
    story = Story()
    assert story.vm(vm).eviction_policy is policy
    story.evict(vm)
    story.advance(seconds=30)
    assert [begun.kind for begun in story.under_way.values()] == [impact]
    story.done(vm)
    assert (vm in story.fleet.vms) is (policy is EvictionPolicy.DEALLOCATE)
    if policy is EvictionPolicy.DEALLOCATE:
        assert (story.vm(vm).power, story.vm(vm).node) == (Power.DEALLOCATED, None)


def test_table_terminate_deletes_the_vm():
    """batch_0 is announced, approved, and gone."""
    story = Story()
    story.delete("batch_0")
    story.approve("batch_1")
    story.done("batch_0")
    assert "batch_0" not in story.fleet.vms
    assert story.shows(BATCH) == (4, [])
