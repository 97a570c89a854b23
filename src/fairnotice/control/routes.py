"""Every address of the native API, in one table: what it takes, what it shows, what it does."""

from collections.abc import Callable, Container, Iterable
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec

from fairnotice.control import shapes
from fairnotice.control.fleet_body import FleetBody, exported, specification
from fairnotice.control.fleet_differences import Difference, difference
from fairnotice.control.problems import of_refusal
from fairnotice.control.service import (
    ROLLOUT_COMMANDS,
    VM_OPERATIONS,
    Service,
    Who,
)
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import EventStatus

LIMIT_MAX = 1_000
REVISION_MAX = 2**63 - 1
# Which events and operations are listed.
KEPT = " of the last day, and all that are not over"


class Paging(shapes.Body):
    """Which part of a list: at most so many, after the one of this name."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = 100
    after: str = ""


class EventPaging(Paging):
    """Which part of the list of events, and only of those in one status."""

    status: EventStatus | None = None


class After(shapes.Body):
    """From which revision of the feed on."""

    after: Annotated[int, msgspec.Meta(ge=0, le=REVISION_MAX)] = 0


class Version(shapes.Body, rename={"api_version": "api-version"}):
    """Which api-version of the document."""

    api_version: str = "2020-07-01"


class Call(NamedTuple):
    """One request, understood."""

    service: Service
    who: Who
    # What stands for {name} in the path.
    name: str
    body: Any
    query: Any


Handler = Callable[[Call], Any]


class Memory(Enum):
    """Who remembers the idempotency keys of an address."""

    # The law, durably (rule 19).
    LAW = auto()
    # The process, for as long as it lives (control/keys.py).
    PROCESS = auto()
    # Nothing is changed there, or declared as a whole: it may be asked again as it is.
    NOBODY = auto()


class Route(NamedTuple):
    """One address and method."""

    method: str
    path: str
    summary: str
    handle: Handler
    shows: Any
    takes: type | None = None
    asks: type = shapes.Nothing
    status: int = 200
    memory: Memory = Memory.NOBODY
    # What is answered instead, with 200, where it was only asked what would happen.
    foresees: type | None = None


def page(call: Call, table: str, key: str, **more: object) -> dict[str, Any]:
    """One part of a list of rows, and where the next begins."""
    query: Paging = call.query
    known = getattr(call.service.fleet, table)
    return part(query, known, getattr(call.service, table)(query.after, **more), key)


def part(query: Paging, known: Container[str], items: Iterable[Any], key: str) -> dict[str, Any]:
    """So many of the items after the one that was asked for, if that is still known."""
    if query.after and query.after not in known:
        # It was there a page ago: saying nothing would look like the end of the list.
        raise msgspec.ValidationError(f"{query.after} is not there; begin anew - at `$.after`")
    shown = list(islice(items, query.limit + 1))
    more_to_come = len(shown) > query.limit
    shown = shown[: query.limit]
    return {"items": shown, "next": getattr(shown[-1], key) if more_to_come else None}


def page_of(shape: type) -> type:
    """The type of one part of a list of these."""
    fields = [("items", list[shape]), ("next", str | None)]  # type: ignore[valid-type]
    return msgspec.defstruct(f"{shape.__name__}Page", fields)


def _lists(
    plural: str, singular: str, shape: type, key: str, *, what: str, which: str = ""
) -> tuple[Route, Route]:
    """The list of a kind of thing, and one of them."""

    def many(call: Call) -> dict[str, Any]:
        return page(call, plural, key)

    def one(call: Call) -> object:
        return getattr(call.service, singular)(call.name)

    path = f"/v1/{plural.replace('_', '-')}"
    return (
        Route("GET", path, f"Every {what}{which}.", many, page_of(shape), asks=Paging),
        Route("GET", f"{path}/{{name}}", f"One {what}.", one, shape),
    )


# ---- What is done ----


async def _on_vm(what: str, call: Call) -> object:
    return await call.service.on_vms(what, (call.name,), call.who, call.body)


async def _on_vms(what: str, call: Call) -> object:
    return await call.service.on_vms(what, tuple(call.body.vms), call.who, call.body)


async def _on_node(what: str, call: Call) -> object:
    return await call.service.on_node(what, call.name, call.who, call.body)


async def _maintain(call: Call) -> object:
    return await call.service.on_node(call.body.impact, call.name, call.who, call.body)


async def _start_rollout(call: Call) -> object:
    return await call.service.start_rollout(call.who, call.body)


def _document(call: Call) -> bytes:
    if call.query.api_version not in SCHEDULED_EVENTS:
        known = ", ".join(SCHEDULED_EVENTS)
        raise msgspec.ValidationError(f"Expected one of {known} - at `$.api-version`")
    return call.service.document(call.name, call.query.api_version)


def _vm_routes() -> Iterable[Route]:
    for what in VM_OPERATIONS:
        planned = what in ("restart", "redeploy")
        # A colon, since /v1/vms/restart is the address of a VM that is called so.
        for path, whom, handle, takes in (
            ("/v1/vms/{name}/", "a VM", _on_vm, shapes.OnVm if planned else shapes.Nothing),
            (
                "/v1/vms:",
                "several VMs, all or none",
                _on_vms,
                shapes.PlannedOnVms if planned else shapes.OnVms,
            ),
        ):
            yield Route(
                "POST",
                f"{path}{what}",
                f"{what.capitalize()} {whom}.",
                partial(handle, what),
                shapes.Accepted,
                takes,
                status=202,
                memory=Memory.LAW,
            )


def _node_routes() -> Iterable[Route]:
    path = "/v1/nodes/{name}"
    deeds: tuple[tuple[str, str, Handler, type], ...] = (
        ("maintain", "Freeze the VMs of a node, or reboot it.", _maintain, shapes.Maintain),
        ("migrate", "Live-migrate the VMs of a node.", partial(_on_node, "migrate"), shapes.OnNode),
        ("repair", "Repair a node at once.", partial(_on_node, "repair"), shapes.OnNode),
        (
            "evacuate",
            "Cordon a node and move its VMs away.",
            partial(_on_node, "evacuate"),
            shapes.OnNode,
        ),
        (
            "predict-failure",
            "A node is going to fail.",
            lambda call: call.service.predict_failure(call.name, call.who, call.body),
            shapes.PredictFailure,
        ),
        (
            "fail",
            "A node has failed.",
            lambda call: call.service.fail_node(call.name, call.who),
            shapes.Nothing,
        ),
        (
            "cordon",
            "Put no VM on a node.",
            lambda call: call.service.cordon(call.name, cordoned=True),
            shapes.Nothing,
        ),
        (
            "uncordon",
            "Return a node to service.",
            lambda call: call.service.cordon(call.name, cordoned=False),
            shapes.Nothing,
        ),
    )
    for what, summary, handle, takes in deeds:
        yield Route(
            "POST",
            f"{path}/{what}",
            summary,
            handle,
            shapes.Accepted,
            takes,
            status=202,
            memory=Memory.PROCESS if what in ("cordon", "uncordon") else Memory.LAW,
        )


def _event_routes() -> Iterable[Route]:
    path = "/v1/events/{name}"
    yield Route(
        "GET",
        "/v1/events",
        f"Every event{KEPT}.",
        lambda call: page(call, "events", "id", status=call.query.status),
        page_of(shapes.Event),
        asks=EventPaging,
    )
    yield Route("GET", path, "One event.", lambda call: call.service.event(call.name), shapes.Event)
    yield Route(
        "GET",
        f"{path}/history",
        "The story of an event.",
        lambda call: call.service.history(call.name),
        shapes.History,
    )
    for what, summary in (
        ("approve", "Give the go-ahead."),
        ("cancel", "Take an operation back, with all its events."),
        ("release", "Do not wait for endpoints that have not confirmed it."),
    ):
        yield Route(
            "POST",
            f"{path}/{what}",
            summary,
            partial(_on_event, what),
            shapes.Accepted,
            shapes.Nothing,
            status=202,
            memory=Memory.PROCESS,
        )
    yield Route(
        "POST",
        f"{path}/postpone",
        "Give more notice.",
        lambda call: call.service.postpone(call.name, call.who, call.body),
        shapes.Accepted,
        shapes.Postpone,
        status=202,
        memory=Memory.PROCESS,
    )


async def _on_event(what: str, call: Call) -> object:
    return await getattr(call.service, what)(call.name, call.who)


def _rollout_routes() -> Iterable[Route]:
    yield Route(
        "POST",
        "/v1/rollouts",
        "The same operation on many nodes; a dry run is answered by a forecast.",
        _start_rollout,
        shapes.Accepted,
        shapes.StartRollout,
        status=202,
        memory=Memory.LAW,
        foresees=shapes.Forecast,
    )
    for what in ROLLOUT_COMMANDS:
        yield Route(
            "POST",
            f"/v1/rollouts/{{name}}/{what}",
            f"{what.capitalize()} a rollout.",
            partial(_steer, what),
            shapes.Accepted,
            shapes.Nothing,
            status=202,
            memory=Memory.PROCESS,
        )


async def _steer(what: str, call: Call) -> object:
    return await call.service.steer_rollout(what, call.name, call.who)


def _set_routes() -> Iterable[Route]:
    yield Route(
        "POST",
        "/v1/scale-sets/{name}/scale-in",
        "Delete the newest instances of a scale set.",
        lambda call: call.service.scale_in(call.name, call.who, call.body),
        shapes.Accepted,
        shapes.ScaleIn,
        status=202,
        memory=Memory.LAW,
    )
    yield Route(
        "PATCH",
        "/v1/scale-sets/{name}",
        "Switch terminate notification on or off.",
        lambda call: call.service.change_scale_set(call.name, call.body),
        shapes.Accepted,
        shapes.ChangeScaleSet,
    )
    yield Route(
        "PATCH",
        "/v1/scopes/{name}",
        "What of a scope is approved automatically.",
        lambda call: call.service.change_scope(call.name, call.body),
        shapes.Accepted,
        shapes.ChangeScope,
    )


def _faults(call: Call) -> dict[str, Any]:
    on = call.service.faults_on()
    ids = [one.id for one in on]
    after = call.query.after
    following = on[ids.index(after) + 1 :] if after in ids else on
    return {**part(call.query, ids, following, "id"), "kinds": call.service.fault_kinds()}


def _fault_routes() -> Iterable[Route]:
    path = "/v1/faults"
    summary = "What is on of the endpoint's faults, and what there is."
    yield Route("GET", path, summary, _faults, shapes.Faults, asks=Paging)
    yield Route(
        "POST",
        path,
        "Let the endpoint misbehave, towards one VM or towards all.",
        lambda call: call.service.set_fault(call.body),
        shapes.FaultOn,
        shapes.SetFault,
        memory=Memory.PROCESS,
    )
    yield Route(
        "DELETE",
        path,
        "Clear every fault.",
        lambda call: call.service.clear_faults(),
        shapes.Cleared,
    )
    yield Route(
        "DELETE",
        f"{path}/{{name}}",
        "Clear one fault.",
        lambda call: call.service.clear_fault(call.name),
        shapes.Cleared,
    )


async def _put_fleet(call: Call) -> object:
    return await call.service.apply_fleet(specification(call.body))


def _difference(call: Call) -> Difference:
    spec = specification(call.body)
    found = difference(call.service.fleet, spec)
    refusal = call.service.refusal_of_fleet(spec)
    found.refused = None if refusal is None else of_refusal(refusal)
    return found


# Here, because it needs the types above.
from fairnotice.control.routes_endpoints import ENDPOINT_ROUTES  # noqa: E402

ROUTES: tuple[Route, ...] = (
    *_lists("vms", "vm", shapes.Vm, "name", what="VM"),
    *_vm_routes(),
    Route(
        "GET",
        "/v1/vms/{name}/document",
        "What a VM reads, byte for byte.",
        _document,
        bytes,
        asks=Version,
    ),
    *_lists("nodes", "node", shapes.Node, "name", what="node"),
    *_node_routes(),
    *ENDPOINT_ROUTES,
    *_lists("scopes", "scope", shapes.Scope, "name", what="scope"),
    *_lists("scale_sets", "scale_set", shapes.ScaleSet, "name", what="scale set"),
    *_set_routes(),
    *_event_routes(),
    *_lists("operations", "operation", shapes.Operation, "id", what="operation", which=KEPT),
    Route(
        "POST",
        "/v1/operations/{name}/cancel",
        "Take an operation back, or what is left of a request, with all its events.",
        lambda call: call.service.cancel_operation(call.name, call.who),
        shapes.Accepted,
        shapes.Nothing,
        status=202,
        memory=Memory.PROCESS,
    ),
    *_lists("rollouts", "rollout", shapes.Rollout, "id", what="rollout"),
    *_rollout_routes(),
    *_fault_routes(),
    Route(
        "GET",
        "/v1/fleet",
        "The whole fleet, as a fleet file has it.",
        lambda call: exported(call.service.fleet),
        FleetBody,
    ),
    Route(
        "PUT",
        "/v1/fleet",
        "Make the fleet what this says: all of it, or nothing.",
        _put_fleet,
        shapes.Accepted,
        FleetBody,
    ),
    Route(
        "POST",
        "/v1/fleet/difference",
        "What applying this would add, change and remove, and whether it would be refused.",
        _difference,
        Difference,
        FleetBody,
    ),
)
