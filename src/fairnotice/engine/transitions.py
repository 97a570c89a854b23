"""The law's table of statuses.

Rule 1: every change of status is a row here.
Rule 2: this file knows no clock, no store, no transport.

The diagrams in docs/reference/states.md are made from these tables (`make diagram`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from fairnotice.errors import IllegalTransition
from fairnotice.words import (
    EventStatus,
    ImpactStatus,
    OperationStatus,
    RolloutNodeStatus,
    RolloutStatus,
)

Status = TypeVar("Status", bound=StrEnum)


class Cause(StrEnum):
    """Why a status changes."""

    ANNOUNCED = "announced"
    STRUCK = "hardware failed, or approved automatically"
    STARTED = "approved by all it waits for, or past NotBefore"
    CANCELED = "canceled, or no VM left"
    OVER = "all impacts ended, settled"
    OVER_WITH_FAILURE = "an impact failed"
    NOTHING_LEFT = "no VM left on the node"
    BEGUN = "intent committed"
    NO_PLACE = "no node has room"
    DONE = "driver: done"
    FAILED = "driver: failed, or outcome unknown"
    LIMIT_PASSED = "time limit passed"
    PAUSED = "paused, or past the failure budget"
    RESUMED = "resumed"
    ALL_NODES_OVER = "no node left"
    TAKEN = "its operation is announced"
    NODE_FAILED = "an impact failed, or the node failed or vanished"
    SKIPPED = "holds two update domains of a scope, or its operation was withdrawn"


# Rule 6. Nothing is None: an event that is not there yet.
EVENT: Mapping[tuple[EventStatus | None, Cause], EventStatus] = {
    (None, Cause.ANNOUNCED): EventStatus.SCHEDULED,
    (None, Cause.STRUCK): EventStatus.STARTED,
    (EventStatus.SCHEDULED, Cause.STARTED): EventStatus.STARTED,
    (EventStatus.SCHEDULED, Cause.CANCELED): EventStatus.CANCELED,
    (EventStatus.STARTED, Cause.OVER): EventStatus.COMPLETED,
}

OPERATION: Mapping[tuple[OperationStatus | None, Cause], OperationStatus] = {
    (None, Cause.ANNOUNCED): OperationStatus.PENDING,
    (OperationStatus.PENDING, Cause.STARTED): OperationStatus.STARTED,
    (OperationStatus.PENDING, Cause.CANCELED): OperationStatus.CANCELED,
    (OperationStatus.PENDING, Cause.NOTHING_LEFT): OperationStatus.RESOLVED,
    (OperationStatus.STARTED, Cause.OVER): OperationStatus.COMPLETED,
    (OperationStatus.STARTED, Cause.OVER_WITH_FAILURE): OperationStatus.FAILED,
}

# Rules 10 and 11.
IMPACT: Mapping[tuple[ImpactStatus | None, Cause], ImpactStatus] = {
    (None, Cause.BEGUN): ImpactStatus.BEGUN,
    (None, Cause.NO_PLACE): ImpactStatus.FAILED,
    (ImpactStatus.BEGUN, Cause.DONE): ImpactStatus.DONE,
    (ImpactStatus.BEGUN, Cause.FAILED): ImpactStatus.FAILED,
    (ImpactStatus.BEGUN, Cause.LIMIT_PASSED): ImpactStatus.TIMED_OUT,
}

# Rule 22.
ROLLOUT: Mapping[tuple[RolloutStatus | None, Cause], RolloutStatus] = {
    (None, Cause.ANNOUNCED): RolloutStatus.RUNNING,
    (RolloutStatus.RUNNING, Cause.PAUSED): RolloutStatus.PAUSED,
    (RolloutStatus.PAUSED, Cause.RESUMED): RolloutStatus.RUNNING,
    (RolloutStatus.RUNNING, Cause.CANCELED): RolloutStatus.CANCELED,
    (RolloutStatus.PAUSED, Cause.CANCELED): RolloutStatus.CANCELED,
    (RolloutStatus.RUNNING, Cause.ALL_NODES_OVER): RolloutStatus.COMPLETED,
    (RolloutStatus.PAUSED, Cause.ALL_NODES_OVER): RolloutStatus.COMPLETED,
}

ROLLOUT_NODE: Mapping[tuple[RolloutNodeStatus | None, Cause], RolloutNodeStatus] = {
    (None, Cause.ANNOUNCED): RolloutNodeStatus.PENDING,
    (RolloutNodeStatus.PENDING, Cause.TAKEN): RolloutNodeStatus.LIVE,
    (RolloutNodeStatus.PENDING, Cause.NODE_FAILED): RolloutNodeStatus.FAILED,
    (RolloutNodeStatus.PENDING, Cause.SKIPPED): RolloutNodeStatus.SKIPPED,
    (RolloutNodeStatus.PENDING, Cause.CANCELED): RolloutNodeStatus.CANCELED,
    (RolloutNodeStatus.LIVE, Cause.OVER): RolloutNodeStatus.DONE,
    (RolloutNodeStatus.LIVE, Cause.NODE_FAILED): RolloutNodeStatus.FAILED,
    (RolloutNodeStatus.LIVE, Cause.SKIPPED): RolloutNodeStatus.SKIPPED,
    (RolloutNodeStatus.LIVE, Cause.CANCELED): RolloutNodeStatus.CANCELED,
}


def move(
    table: Mapping[tuple[Status | None, Cause], Status], status: Status | None, cause: Cause
) -> Status:
    """The status after `cause`; IllegalTransition where the table has no such row."""
    try:
        return table[status, cause]
    except KeyError:
        message = f"no row for {status or 'nothing'} when {cause.name.lower()}"
        raise IllegalTransition(message) from None
