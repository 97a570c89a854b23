"""Long-running operations: what became of a request, told from the law's own rows and history.

So it is known after a restart too, and to each of several control planes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from fairnotice.arm.failures import Failure
from fairnotice.control.service import Service, known_id
from fairnotice.engine.ending import impact_key
from fairnotice.model import Event, Impact, Operation, Request
from fairnotice.words import EventStatus, ImpactStatus, OperationStatus

Row = TypeVar("Row", bound=NamedTuple)

IN_PROGRESS, SUCCEEDED, FAILED, CANCELED = "InProgress", "Succeeded", "Failed", "Canceled"
# A whole number from 1 on: with any other, tools wait for half a minute.
POLL_AGAIN_SECONDS = 1
_ENDED = {
    OperationStatus.COMPLETED: SUCCEEDED,
    OperationStatus.RESOLVED: SUCCEEDED,
    OperationStatus.FAILED: FAILED,
    OperationStatus.CANCELED: CANCELED,
}


class Course(NamedTuple):
    """How far a request has come."""

    id: str
    status: str
    began_at: datetime
    ended_at: datetime | None = None
    failure: Failure | None = None

    @property
    def body(self) -> dict[str, object]:
        """As Azure-AsyncOperation shows it."""
        shown: dict[str, object] = {
            "name": self.id,
            "startTime": self.began_at,
            "status": self.status,
        }
        if self.ended_at is not None:
            shown["endTime"] = self.ended_at
        if self.failure is not None:
            shown["error"] = self.failure.error
        return shown


class _Part(NamedTuple):
    """What a request has asked for or approved: how far that has come, and why it ended so."""

    status: str
    ended_at: datetime | None = None
    reason: str = ""


async def course(service: Service, name: str) -> Course:
    """How far the request of this id has come, for as long as history is kept."""
    rows = service.fleet.requests
    known = known_id(rows, name) or name.lower()
    request = await _row(service, rows, Request, "request", known)
    if request is None:
        raise Failure(404, "NotFound", f"The operation '{name}' was not found.")
    asked = [await _of_operation(service, one) for one in (*request.repeats, *request.operations)]
    approved = [await _of_event(service, one) for one in request.events]
    parts = [one for one in (*asked, *approved) if one is not None]
    unlike = (
        one for word in (IN_PROGRESS, FAILED, CANCELED) for one in parts if one.status == word
    )
    worst = next(unlike, _Part(SUCCEEDED))
    if worst.status == IN_PROGRESS:
        return Course(request.id, IN_PROGRESS, request.asked_at)
    ends = [one.ended_at for one in parts if one.ended_at is not None]
    ended_at = max(ends, default=request.asked_at)
    return Course(request.id, worst.status, request.asked_at, ended_at, _failure(worst))


async def _row(
    service: Service, rows: Mapping[str, Row], kind: type[Row], what: str, name: str
) -> Row | None:
    """The row as it is; as it was last, where the law has forgotten it."""
    if name in rows:
        return rows[name]
    for line in reversed(await service.conductor.history(f"{what}:{name}")):
        if isinstance(line.change.row, kind):
            return line.change.row
    return None


async def _of_operation(service: Service, name: str) -> _Part | None:
    """What was asked for: all of it."""
    row = await _row(service, service.fleet.operations, Operation, "operation", name)
    if row is None:
        return None
    # The impact may be over while its event is shown for a while longer.
    part = await _of_impacts(service, row.id, row.vms)
    if row.ended_at is None:
        return part
    ended_at = part.ended_at or row.ended_at
    return _Part(_ENDED[row.status], ended_at, part.reason or row.reason)


async def _of_event(service: Service, name: str) -> _Part | None:
    """What was approved: nothing but what is done to those whom the event names.

    Its operation may be of others too, of whom whoever approved may know nothing.
    """
    row = await _row(service, service.fleet.events, Event, "event", name)
    if row is None:
        return None
    if row.status is EventStatus.CANCELED:
        return _Part(CANCELED, row.gone_at, row.reason)
    return await _of_impacts(service, row.operation, row.resources)


async def _of_impacts(service: Service, operation: str, vms: Sequence[str]) -> _Part:
    """What is done to these: over when it is for each, with what the driver said of a failure."""
    impacts = await _impacts(service, operation, vms)
    ends = [one.ended_at for one in impacts if one.ended_at is not None]
    if not vms or len(ends) < len(vms):
        return _Part(IN_PROGRESS)
    failed = [one for one in impacts if one.status is not ImpactStatus.DONE]
    reason = next((one.reason for one in failed if one.reason), "")
    return _Part(FAILED if failed else SUCCEEDED, max(ends), reason)


async def _impacts(service: Service, operation: str, vms: Sequence[str]) -> list[Impact]:
    """As they are; as they were last, where the law has forgotten them."""
    rows: Mapping[str, Impact] = service.fleet.impacts
    if operation not in service.fleet.operations:
        lines = await service.conductor.history(f"operation:{operation}")
        told = [line.change.row for line in lines]
        rows = {row.key: row for row in told if isinstance(row, Impact)}
    keys = (impact_key(operation, vm) for vm in vms)
    return [rows[key] for key in keys if key in rows]


def _failure(part: _Part) -> Failure | None:
    if part.status == SUCCEEDED:
        return None
    why = part.reason or "nobody said why"
    if part.status == CANCELED:
        return Failure(409, "OperationPreempted", f"The operation was canceled: {why}.")
    # Not 500: that is what tools ask again for, and it stays so.
    return Failure(409, "VMOperationFailed", f"The operation has failed: {why}.")
