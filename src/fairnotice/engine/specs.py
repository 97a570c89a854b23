"""The fleet as an operator declares it."""

from typing import NamedTuple

from fairnotice.words import EventType, EvictionPolicy, Network, Priority


class NodeSpec(NamedTuple):
    """A node as the operator declares it."""

    name: str
    fault_domain: int = 0
    capacity: int = 16


class SetSpec(NamedTuple):
    """An availability set or a cloud service as the operator declares it."""

    name: str
    resource_group: str = "default"
    automatically_approve: tuple[EventType, ...] = ()


class ScaleSetSpec(NamedTuple):
    """A scale set as the operator declares it."""

    name: str
    priority: Priority = Priority.REGULAR
    terminate_notice_minutes: int | None = None
    placement_groups: int = 1
    resource_group: str = "default"
    automatically_approve: tuple[EventType, ...] = ()


class VmSpec(NamedTuple):
    """A VM as the operator declares it. In none of the three sets it is standalone."""

    name: str
    node: str | None = None
    availability_set: str | None = None
    scale_set: str | None = None
    cloud_service: str | None = None
    placement_group: int = 0
    update_domain: int | None = None
    addresses: tuple[str, ...] = ()
    network: Network = Network.VNET
    zone: str | None = None
    # Left out, an instance of a scale set has the priority of its set.
    priority: Priority | None = None
    eviction_policy: EvictionPolicy = EvictionPolicy.DEALLOCATE
    resource_group: str = "default"
    tags: tuple[tuple[str, str], ...] = ()
    automatically_approve: tuple[EventType, ...] = ()


class FleetSpec(NamedTuple):
    """The whole fleet as it shall be."""

    nodes: tuple[NodeSpec, ...] = ()
    vms: tuple[VmSpec, ...] = ()
    availability_sets: tuple[SetSpec, ...] = ()
    scale_sets: tuple[ScaleSetSpec, ...] = ()
    cloud_services: tuple[SetSpec, ...] = ()
