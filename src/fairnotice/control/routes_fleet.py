"""The addresses of the fleet as a whole, and of the faults of its endpoint."""

from collections.abc import Iterable
from typing import Any

from fairnotice.control import bodies, shapes
from fairnotice.control.fleet_body import FleetBody, exported, specification
from fairnotice.control.fleet_differences import Difference, difference
from fairnotice.control.problems import of_refusal
from fairnotice.control.route import Call, Memory, Paging, Route, part
from fairnotice.words import TokenRole


def _faults(call: Call) -> dict[str, Any]:
    on = call.service.faults_on()
    ids = [one.id for one in on]
    after = call.query.after
    following = on[ids.index(after) + 1 :] if after in ids else on
    return {**part(call.query, ids, following, "id"), "kinds": call.service.fault_kinds()}


def _fault_routes() -> Iterable[Route]:
    path = "/v1/faults"
    summary = "What is on of the endpoint's faults, and what there is."
    yield Route("GET", path, summary, _faults, shapes.Faults, TokenRole.READER, asks=Paging)
    yield Route(
        "POST",
        path,
        "Let the endpoint misbehave, towards one VM or towards all.",
        lambda call: call.service.set_fault(call.body),
        shapes.FaultOn,
        TokenRole.OPERATOR,
        bodies.SetFault,
        memory=Memory.PROCESS,
    )
    yield Route(
        "DELETE",
        path,
        "Clear every fault.",
        lambda call: call.service.clear_faults(),
        shapes.Cleared,
        TokenRole.OPERATOR,
    )
    yield Route(
        "DELETE",
        f"{path}/{{name}}",
        "Clear one fault.",
        lambda call: call.service.clear_fault(call.name),
        shapes.Cleared,
        TokenRole.OPERATOR,
    )


async def _put_fleet(call: Call) -> object:
    return await call.service.apply_fleet(specification(call.body))


def _difference(call: Call) -> Difference:
    spec = specification(call.body)
    found = difference(call.service.fleet, spec)
    refusal = call.service.refusal_of_fleet(spec)
    found.refused = None if refusal is None else of_refusal(refusal)
    return found


FAULT_ROUTES: tuple[Route, ...] = tuple(_fault_routes())
FLEET_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/fleet",
        "The whole fleet, as a fleet file has it.",
        lambda call: exported(call.service.fleet),
        FleetBody,
        TokenRole.READER,
    ),
    Route(
        "PUT",
        "/v1/fleet",
        "Make the fleet what this says: all of it, or nothing.",
        _put_fleet,
        shapes.Accepted,
        TokenRole.OPERATOR,
        FleetBody,
    ),
    Route(
        "POST",
        "/v1/fleet/difference",
        "What applying this would add, change and remove, and whether it would be refused.",
        _difference,
        Difference,
        TokenRole.READER,
        FleetBody,
    ),
)
