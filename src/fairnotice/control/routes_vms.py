"""The addresses of VMs, scopes and scale sets."""

from collections.abc import Iterable
from functools import partial

import msgspec

from fairnotice.control import bodies, shapes
from fairnotice.control.limits import Reach
from fairnotice.control.route import Call, Memory, Route, Version, lists
from fairnotice.control.service import VM_OPERATIONS
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import TokenRole


async def _on_vm(what: str, call: Call) -> object:
    return await call.service.on_vms(what, (call.name,), call.who, call.body)


async def _on_vms(what: str, call: Call) -> object:
    return await call.service.on_vms(what, tuple(call.body.vms), call.who, call.body)


def _document(call: Call) -> bytes:
    if call.query.api_version not in SCHEDULED_EVENTS:
        known = ", ".join(SCHEDULED_EVENTS)
        raise msgspec.ValidationError(f"Expected one of {known} - at `$.api-version`")
    return call.service.document(call.name, call.query.api_version)


def _operations() -> Iterable[Route]:
    for what in VM_OPERATIONS:
        planned = what in ("restart", "redeploy")
        # A colon, since /v1/vms/restart is the address of a VM that is called so.
        for path, whom, handle, takes in (
            ("/v1/vms/{name}/", "a VM", _on_vm, bodies.OnVm if planned else bodies.Nothing),
            (
                "/v1/vms:",
                "several VMs, all or none",
                _on_vms,
                bodies.PlannedOnVms if planned else bodies.OnVms,
            ),
        ):
            yield Route(
                "POST",
                f"{path}{what}",
                f"{what.capitalize()} {whom}.",
                partial(handle, what),
                shapes.Accepted,
                TokenRole.OPERATOR,
                takes,
                status=202,
                memory=Memory.LAW,
                reach=Reach.VM,
            )


def _changes() -> Iterable[Route]:
    yield Route(
        "POST",
        "/v1/scale-sets/{name}/scale-in",
        "Delete the newest instances of a scale set.",
        lambda call: call.service.scale_in(call.name, call.who, call.body),
        shapes.Accepted,
        TokenRole.OPERATOR,
        bodies.ScaleIn,
        status=202,
        memory=Memory.LAW,
        reach=Reach.SCALE_SET,
    )
    yield Route(
        "PATCH",
        "/v1/scale-sets/{name}",
        "Switch terminate notification on or off.",
        lambda call: call.service.change_scale_set(call.name, call.body),
        shapes.Accepted,
        TokenRole.OPERATOR,
        bodies.ChangeScaleSet,
        reach=Reach.SCALE_SET,
    )
    yield Route(
        "PATCH",
        "/v1/scopes/{name}",
        "What of a scope is approved automatically.",
        lambda call: call.service.change_scope(call.name, call.body),
        shapes.Accepted,
        TokenRole.OPERATOR,
        bodies.ChangeScope,
        reach=Reach.SCOPE,
    )


VM_ROUTES: tuple[Route, ...] = (
    *lists("vms", "vm", shapes.Vm, "name", what="VM", reach=Reach.VM),
    *_operations(),
    Route(
        "GET",
        "/v1/vms/{name}/document",
        "What a VM reads, byte for byte.",
        _document,
        bytes,
        TokenRole.READER,
        asks=Version,
        reach=Reach.VM,
    ),
)
SET_ROUTES: tuple[Route, ...] = (
    *lists("scopes", "scope", shapes.Scope, "name", what="scope", reach=Reach.SCOPE),
    *lists(
        "scale_sets", "scale_set", shapes.ScaleSet, "name", what="scale set", reach=Reach.SCALE_SET
    ),
    *_changes(),
)
