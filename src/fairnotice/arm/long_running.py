"""Long-running operations: what became of a request, told from the law's own rows and history.

So it is known after a restart too, and to each of several control planes.
"""

from datetime import datetime
from typing import NamedTuple

from fairnotice.arm.failures import Failure
from fairnotice.control.service import Service, known_id
from fairnotice.engine.ending import impact_key
from fairnotice.model import Event, Impact, Operation, Request
from fairnotice.words import ImpactStatus, OperationStatus

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


async def course(service: Service, name: str) -> Course:
    """How far the request of this id has come, for as long as history is kept."""
    request = await _request(service, name)
    if request is None:
        raise Failure(404, "NotFound", f"The operation '{name}' was not found.")
    names = (*request.repeats, *request.operations, *await _approved(service, request))
    operations = [await _operation(service, one) for one in names]
    known = [one for one in operations if one is not None]
    words = [_word(service, one) for one in known]
    worst = next((word for word in (IN_PROGRESS, FAILED, CANCELED) if word in words), SUCCEEDED)
    if worst == IN_PROGRESS:
        return Course(request.id, worst, request.asked_at)
    ends = [one.ended_at for one in known if one.ended_at is not None]
    ended_at = max(ends, default=request.asked_at)
    failure = None
    if worst != SUCCEEDED:
        failure = await _failure(service, worst, known[words.index(worst)])
    return Course(request.id, worst, request.asked_at, ended_at, failure)


async def _approved(service: Service, request: Request) -> list[str]:
    """The operations whose events a request has approved: also of those that are forgotten."""
    found: dict[str, None] = {}
    for name in request.events:
        row = service.fleet.events.get(name)
        lines = [] if row is not None else await service.conductor.history(f"event:{name}")
        told = [line.change.row for line in lines]
        rows = [row, *(one for one in told if isinstance(one, Event))]
        found |= dict.fromkeys(one.operation for one in rows if one is not None)
    return list(found)


async def _request(service: Service, name: str) -> Request | None:
    rows = service.fleet.requests
    found = known_id(rows, name)
    if found is not None:
        return rows[found]
    for line in reversed(await service.conductor.history(f"request:{name.lower()}")):
        if isinstance(line.change.row, Request):
            return line.change.row
    return None


async def _operation(service: Service, name: str) -> Operation | None:
    found = service.fleet.operations.get(name)
    if found is not None:
        return found
    for line in reversed(await service.conductor.history(f"operation:{name}")):
        if isinstance(line.change.row, Operation):
            return line.change.row
    return None


def _word(service: Service, operation: Operation) -> str:
    if operation.ended_at is not None:
        return _ENDED[operation.status]
    # The impact may be over while its event is shown for a while longer.
    impacts = [service.fleet.impacts.get(impact_key(operation.id, vm)) for vm in operation.vms]
    over = [one for one in impacts if one is not None and not one.live]
    if len(over) < len(operation.vms) or not over:
        return IN_PROGRESS
    return FAILED if any(one.status is not ImpactStatus.DONE for one in over) else SUCCEEDED


async def _failure(service: Service, word: str, operation: Operation) -> Failure:
    why = await _reason(service, operation) or operation.reason or "nobody said why"
    if word == CANCELED:
        return Failure(409, "OperationPreempted", f"The operation was canceled: {why}.")
    # Not 500: that is what tools ask again for, and it stays so.
    return Failure(409, "VMOperationFailed", f"The operation has failed: {why}.")


async def _reason(service: Service, operation: Operation) -> str:
    """What the driver said of an impact; from history where the law has forgotten it."""
    keys = (impact_key(operation.id, vm) for vm in operation.vms)
    found = [service.fleet.impacts.get(key) for key in keys]
    if operation.id not in service.fleet.operations:
        lines = await service.conductor.history(f"operation:{operation.id}")
        rows = [line.change.row for line in lines]
        found = [row for row in rows if isinstance(row, Impact)]
    return next((one.reason for one in found if one is not None and one.reason), "")
