"""The table of operations: what each kind shows to a VM and does to it (SPECIFICATION.md)."""

from collections.abc import Mapping
from typing import NamedTuple

from fairnotice.words import EventSource, EventType, ImpactKind, OperationKind

UNKNOWN_SECONDS = -1

# Clients tell events apart by these sentences, so they are exact.
MAINTENANCE = "Host server is undergoing maintenance."
LIVE_MIGRATION = (
    "Virtual machine is being paused because of a memory-preserving Live Migration operation."
)
EMERGENCY = "Host server is undergoing an emergency repair."
FAILURE = "Virtual machine has encountered a failure."
RESTART = "Virtual machine is going to be restarted as requested by authorized user."
REDEPLOY = "Virtual machine is going to be redeployed as requested by authorized user."


class Kind(NamedTuple):
    """What follows from the kind of an operation."""

    impact: ImpactKind
    # None: it is never shown as an event.
    event_type: EventType | None = None
    source: EventSource = EventSource.USER
    description: str = ""
    duration_seconds: int = UNKNOWN_SECONDS
    # On a node: it names the node's VMs. Apart: each of its events is an operation of its own.
    on_node: bool = False
    apart: bool = False
    # Counts against the one-domain-at-a-time rule from its announcement, not only its start.
    counts_announced: bool = False
    moves: bool = False
    power: bool = False


# An evacuation moves VMs as any live migration does; it only asks for a whole node.
_MIGRATION = Kind(
    impact=ImpactKind.MIGRATE,
    event_type=EventType.FREEZE,
    source=EventSource.PLATFORM,
    description=LIVE_MIGRATION,
    duration_seconds=5,
    on_node=True,
    apart=True,
    counts_announced=True,
    moves=True,
)

KINDS: Mapping[OperationKind, Kind] = {
    OperationKind.HOST_UPDATE: Kind(
        impact=ImpactKind.FREEZE,
        event_type=EventType.FREEZE,
        source=EventSource.PLATFORM,
        description=MAINTENANCE,
        on_node=True,
        counts_announced=True,
    ),
    OperationKind.HOST_REBOOT: Kind(
        impact=ImpactKind.REBOOT,
        event_type=EventType.REBOOT,
        source=EventSource.PLATFORM,
        description=MAINTENANCE,
        on_node=True,
        counts_announced=True,
    ),
    OperationKind.REPAIR: Kind(
        impact=ImpactKind.REBOOT,
        event_type=EventType.REBOOT,
        source=EventSource.PLATFORM,
        description=EMERGENCY,
        on_node=True,
        counts_announced=True,
    ),
    OperationKind.MIGRATION: _MIGRATION,
    OperationKind.EVACUATION: _MIGRATION,
    OperationKind.PREDICTED_FAILURE: Kind(
        impact=ImpactKind.REDEPLOY,
        event_type=EventType.REDEPLOY,
        source=EventSource.PLATFORM,
        description=MAINTENANCE,
        on_node=True,
        apart=True,
        moves=True,
    ),
    OperationKind.FAILURE: Kind(
        impact=ImpactKind.REDEPLOY,
        event_type=EventType.REDEPLOY,
        source=EventSource.PLATFORM,
        description=FAILURE,
        on_node=True,
        moves=True,
    ),
    OperationKind.RESTART: Kind(
        impact=ImpactKind.REBOOT, event_type=EventType.REBOOT, description=RESTART
    ),
    OperationKind.REDEPLOY: Kind(
        impact=ImpactKind.REDEPLOY,
        event_type=EventType.REDEPLOY,
        description=REDEPLOY,
        moves=True,
    ),
    OperationKind.EVICTION: Kind(
        impact=ImpactKind.DELETE, event_type=EventType.PREEMPT, source=EventSource.PLATFORM
    ),
    OperationKind.DELETE: Kind(impact=ImpactKind.DELETE, event_type=EventType.TERMINATE),
    OperationKind.STOP: Kind(impact=ImpactKind.STOP, power=True),
    OperationKind.START: Kind(impact=ImpactKind.START, power=True),
    OperationKind.DEALLOCATE: Kind(impact=ImpactKind.DEALLOCATE, power=True),
}

# What may be rolled out over many nodes.
ROLLED_OUT = (
    OperationKind.HOST_UPDATE,
    OperationKind.HOST_REBOOT,
    OperationKind.REPAIR,
    OperationKind.MIGRATION,
    OperationKind.EVACUATION,
)
