"""A fleet as a fleet file has it: what is taken, what is shown, and how both become the law's."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from fairnotice.control.shapes import Body
from fairnotice.engine import Fleet
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.model import Scope, Vm, scope_name
from fairnotice.words import EventType, EvictionPolicy, Network, Priority, ScopeKind

# Far above any fleet, and far below what a database or another program cannot hold.
_NUMBER_MAX = 1_000_000
Number = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_NUMBER_MAX)]


# What each key of a table says, whichever table it is in; docs/reference/fleet-file.md has them.
MEANINGS = {
    "name": "how it is called: unique among its kind, and given for good",
    "fault_domain": "what fails together has the same; a rollout touches one at a time",
    "capacity": "how many VMs it may hold",
    "resource_group": "whose it is: tokens may be limited to it, and VMs read it",
    "automatically_approve": "what appears already Started when a user asks for it: `Reboot` "
    "and `Redeploy` may be named (rule 18)",
    "priority": "`Spot` may be evicted; of a VM in a scale set, left out: as its set",
    "terminate_notice_minutes": "so long before they are deleted its instances are told, 5 to 15; "
    "left out, they are not; Spot instances never are",
    "placement_groups": "how many scopes its instances are in",
    "node": "where it is; left out, it is deallocated",
    "availability_set": "the set that it is in; of the three at most one",
    "scale_set": "the same of a scale set",
    "cloud_service": "the same of a cloud service",
    "placement_group": "which of its scale set's, from 0",
    "update_domain": "left out, by its position in the set",
    "address": "from which it asks, and by which it is known; for short, where there is one",
    "addresses": "the same where there are several",
    "network": "how it finds its endpoint: at 169.254.169.254, or by DHCP option 245",
    "zone": "the availability zone that it reads about itself",
    "eviction_policy": "what becomes of it when it is evicted",
    "tags": "what it reads about itself",
}


class NodeBody(Body):
    """A node: `[[node]]`."""

    name: str
    fault_domain: Number = 0
    capacity: Positive = 16


class SetBody(Body):
    """An availability set or a cloud service: `[[availability_set]]`, `[[cloud_service]]`."""

    name: str
    resource_group: str = "default"
    automatically_approve: list[EventType] = msgspec.field(default_factory=list)


class ScaleSetBody(Body):
    """A scale set: `[[scale_set]]`."""

    name: str
    priority: Priority = Priority.REGULAR
    terminate_notice_minutes: Number | None = None
    placement_groups: Positive = 1
    resource_group: str = "default"
    automatically_approve: list[EventType] = msgspec.field(default_factory=list)


class VmBody(Body):
    """A VM: `[[vm]]`. In none of the three sets it is standalone."""

    name: str
    node: str | None = None
    availability_set: str | None = None
    scale_set: str | None = None
    cloud_service: str | None = None
    placement_group: Number = 0
    update_domain: Number | None = None
    # One address, for short; with `addresses` it is the first of them.
    address: str | None = None
    addresses: list[str] = msgspec.field(default_factory=list)
    network: Network = Network.VNET
    zone: str | None = None
    # Left out, an instance of a scale set has the priority of its set.
    priority: Priority | None = None
    eviction_policy: EvictionPolicy = EvictionPolicy.DEALLOCATE
    resource_group: str = "default"
    automatically_approve: list[EventType] = msgspec.field(default_factory=list)
    tags: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rule 18: a policy is a scope's, so that of an instance would silently do nothing."""
        for kind in ("availability_set", "scale_set", "cloud_service"):
            name = getattr(self, kind)
            if name is not None and self.automatically_approve:
                what = "That is a whole set's"
                at = "at `$.automatically_approve`"
                raise ValueError(f"{what}; put it on the {kind} `{name}` - {at}")


class FleetBody(Body):
    """A whole fleet; each list is a kind of table of the file, by its name."""

    node: list[NodeBody] = msgspec.field(default_factory=list)
    availability_set: list[SetBody] = msgspec.field(default_factory=list)
    scale_set: list[ScaleSetBody] = msgspec.field(default_factory=list)
    cloud_service: list[SetBody] = msgspec.field(default_factory=list)
    vm: list[VmBody] = msgspec.field(default_factory=list)


# ---- From a file to the law ----


def specification(body: FleetBody) -> FleetSpec:
    """What the law is asked to make of the fleet."""
    return FleetSpec(
        nodes=tuple(NodeSpec(node.name, node.fault_domain, node.capacity) for node in body.node),
        vms=tuple(_vm_spec(vm) for vm in body.vm),
        availability_sets=tuple(_set_spec(one) for one in body.availability_set),
        scale_sets=tuple(_scale_set_spec(one) for one in body.scale_set),
        cloud_services=tuple(_set_spec(one) for one in body.cloud_service),
    )


def _set_spec(body: SetBody) -> SetSpec:
    return SetSpec(body.name, body.resource_group, tuple(body.automatically_approve))


def _scale_set_spec(body: ScaleSetBody) -> ScaleSetSpec:
    return ScaleSetSpec(
        name=body.name,
        priority=body.priority,
        terminate_notice_minutes=body.terminate_notice_minutes,
        placement_groups=body.placement_groups,
        resource_group=body.resource_group,
        automatically_approve=tuple(body.automatically_approve),
    )


def _vm_spec(body: VmBody) -> VmSpec:
    first = () if body.address is None else (body.address,)
    return VmSpec(
        name=body.name,
        node=body.node,
        availability_set=body.availability_set,
        scale_set=body.scale_set,
        cloud_service=body.cloud_service,
        placement_group=body.placement_group,
        update_domain=body.update_domain,
        addresses=(*first, *body.addresses),
        network=body.network,
        zone=body.zone,
        priority=body.priority,
        eviction_policy=body.eviction_policy,
        resource_group=body.resource_group,
        tags=tuple(body.tags.items()),
        automatically_approve=tuple(body.automatically_approve),
    )


# ---- From the fleet to a file ----


def exported(fleet: Fleet) -> FleetBody:
    """The fleet as it is now: declared again, it changes nothing."""
    return FleetBody(
        node=[
            NodeBody(node.name, node.fault_domain, node.capacity) for node in fleet.nodes.values()
        ],
        availability_set=list(_sets(fleet, ScopeKind.AVAILABILITY_SET)),
        scale_set=list(_scale_sets(fleet)),
        cloud_service=list(_sets(fleet, ScopeKind.CLOUD_SERVICE)),
        vm=[_vm_body(fleet, vm) for vm in fleet.vms.values()],
    )


def _sets(fleet: Fleet, kind: ScopeKind) -> Iterator[SetBody]:
    for scope in fleet.scopes.values():
        if scope.kind is kind:
            yield SetBody(scope.of, scope.resource_group, list(scope.automatically_approve))


def _scale_sets(fleet: Fleet) -> Iterator[ScaleSetBody]:
    for scale_set in fleet.scale_sets.values():
        # All its placement groups have the same policy (rule 18).
        group = fleet.scopes[scope_name(ScopeKind.PLACEMENT_GROUP, scale_set.name)]
        yield ScaleSetBody(
            name=scale_set.name,
            priority=scale_set.priority,
            terminate_notice_minutes=scale_set.terminate_notice_minutes,
            placement_groups=scale_set.placement_groups,
            resource_group=scale_set.resource_group,
            automatically_approve=list(group.automatically_approve),
        )


def _vm_body(fleet: Fleet, vm: Vm) -> VmBody:
    scope = fleet.scopes[vm.scope]
    inherited = Priority.REGULAR
    if scope.kind is ScopeKind.PLACEMENT_GROUP:
        inherited = fleet.scale_sets[scope.of].priority
    body = VmBody(
        name=vm.name,
        node=vm.node,
        placement_group=scope.placement_group,
        update_domain=vm.update_domain,
        addresses=list(vm.addresses),
        network=vm.network,
        zone=vm.zone,
        priority=None if vm.priority is inherited else vm.priority,
        eviction_policy=vm.eviction_policy,
        resource_group=vm.resource_group,
        tags=dict(vm.tags),
    )
    _put_in_set(body, scope)
    return body


def _put_in_set(body: VmBody, scope: Scope) -> None:
    match scope.kind:
        case ScopeKind.AVAILABILITY_SET:
            body.availability_set = scope.of
        case ScopeKind.PLACEMENT_GROUP:
            body.scale_set = scope.of
        case ScopeKind.CLOUD_SERVICE:
            body.cloud_service = scope.of
        case ScopeKind.STANDALONE:
            body.automatically_approve = list(scope.automatically_approve)
