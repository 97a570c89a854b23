"""Fleets to measure with: clusters of 100 nodes with 10 VMs each, of all four kinds of scope.

A cluster has three racks, which are its fault domains. Of the ten VMs of a node four stand alone,
two are in availability sets of 10, three in scale sets of 25 or 50, one in a cloud service of 20.
The members of a set are on nodes of their own, all in one cluster: some sets on neighbors, some
far apart, so that in a rollout nearly every node of a cluster is in the way of nearly every other.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from fairnotice.engine import AZURE, Decision, Fleet, decide
from fairnotice.engine.commands import ApplyFleet, Command, Heard, ReportServed
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.model import Moment
from fairnotice.testing.manual_clock import DEFAULT_START
from fairnotice.words import Priority

NODES_PER_CLUSTER = 100
VMS_PER_NODE = 10
STANDALONE_PER_NODE = 4
FAULT_DOMAINS = 3
UPDATE_DOMAINS = 5
SPOT_EVERY = 10
TAGGED_EVERY = 10
START = Moment(DEFAULT_START, 0.0)

# Everybody listens for the whole run, as if their VMs went on asking.
LISTENING = replace(AZURE, disabled_after_seconds=int(timedelta(days=3650).total_seconds()))


class Member(NamedTuple):
    """A VM's set within its cluster, and its position there."""

    kind: str
    number: int
    position: int


def member(slot: int, node: int) -> Member:
    """To which set of its cluster the VM in this slot of this node belongs."""
    return (
        Member("near", node // 10, node % 10),
        Member("far", node % 10, node // 10),
        Member("notice", node % 4, node // 4),
        Member("plain", node // 25, node % 25),
        Member("large", node % 2, node // 2),
        Member("cloud", node // 20, node % 20),
    )[slot - STANDALONE_PER_NODE]


# Which sets there are in a cluster, how many of each, and in which field a VM names them.
SETS = {
    "near": (10, "availability_set"),
    "far": (10, "availability_set"),
    "notice": (4, "scale_set"),
    "plain": (4, "scale_set"),
    "large": (2, "scale_set"),
    "cloud": (5, "cloud_service"),
}


def specification(vms: int) -> FleetSpec:
    """A fleet of so many VMs, in whole clusters."""
    clusters = vms // (NODES_PER_CLUSTER * VMS_PER_NODE)
    return FleetSpec(
        nodes=tuple(
            NodeSpec(_node_name(cluster, node), node % FAULT_DOMAINS)
            for cluster in range(clusters)
            for node in range(NODES_PER_CLUSTER)
        ),
        vms=tuple(_vms(clusters)),
        availability_sets=tuple(SetSpec(name) for name in _sets(clusters, "availability_set")),
        scale_sets=tuple(
            ScaleSetSpec(name, terminate_notice_minutes=10 if "notice" in name else None)
            for name in _sets(clusters, "scale_set")
        ),
        cloud_services=tuple(SetSpec(name) for name in _sets(clusters, "cloud_service")),
    )


def _node_name(cluster: int, node: int) -> str:
    return f"node-{cluster:03}-{node:02}"


def _set_name(cluster: int, kind: str, number: int) -> str:
    return f"{kind}-{cluster:03}-{number:02}"


def _sets(clusters: int, wanted: str) -> Iterator[str]:
    for cluster in range(clusters):
        for kind, (sets, field) in SETS.items():
            if field == wanted:
                yield from (_set_name(cluster, kind, number) for number in range(sets))


def _vms(clusters: int) -> Iterator[VmSpec]:
    """The VMs, each with an address of its own, one in ten with a tag."""
    number = 0
    for cluster in range(clusters):
        for node in range(NODES_PER_CLUSTER):
            for slot in range(VMS_PER_NODE):
                vm = VmSpec(
                    name=f"vm-{number:06}",
                    node=_node_name(cluster, node),
                    addresses=(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",),
                    tags=(("team", f"team-{number % 7}"),) if number % TAGGED_EVERY == 0 else (),
                )
                yield (
                    _alone(vm, number)
                    if slot < STANDALONE_PER_NODE
                    else _in_set(vm, cluster, member(slot, node))
                )
                number += 1


def _alone(vm: VmSpec, number: int) -> VmSpec:
    return vm._replace(priority=Priority.SPOT) if number % SPOT_EVERY == 0 else vm


def _in_set(vm: VmSpec, cluster: int, place: Member) -> VmSpec:
    name = _set_name(cluster, place.kind, place.number)
    vm = vm._replace(update_domain=place.position % UPDATE_DOMAINS)
    field = SETS[place.kind][1]
    if field == "availability_set":
        return vm._replace(availability_set=name)
    if field == "scale_set":
        return vm._replace(scale_set=name)
    return vm._replace(cloud_service=name)


def carry_out(fleet: Fleet, command: Command, now: Moment) -> Decision:
    """Decide a command that must be accepted, and apply its changes."""
    decision = decide(fleet, command, now)
    assert isinstance(decision, Decision), f"refused: {decision}"
    for change in decision.changes:
        fleet.apply(change)
    return decision


def declared(vms: int) -> Fleet:
    """A fleet of so many VMs, nobody listening yet."""
    fleet = Fleet(LISTENING)
    carry_out(fleet, ApplyFleet(spec=specification(vms)), START)
    return fleet


def listen(fleet: Fleet) -> None:
    """Enable every scope, each at an instant of its own, as VMs that ask on their own do."""
    for number, scope in enumerate(tuple(fleet.scopes)):
        passed = timedelta(milliseconds=number)
        now = Moment(START.wall + passed, passed.total_seconds())
        carry_out(fleet, ReportServed(heard=(Heard(scope, now.wall),)), now)


def listening(vms: int) -> Fleet:
    """A fleet of so many VMs, all scopes enabled."""
    fleet = declared(vms)
    listen(fleet)
    return fleet


def moment_after(fleet: Fleet) -> Moment:
    """The first whole minute, on both clocks, after all that was done to this fleet so far."""
    assert fleet.recorded_at is not None
    passed = fleet.recorded_at - START.wall
    minutes = timedelta(minutes=passed // timedelta(minutes=1) + 1)
    return Moment(START.wall + minutes, minutes.total_seconds())
