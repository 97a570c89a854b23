"""The addresses of scale sets, their instances, and availability sets."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from fairnotice.arm import filtering, finding, paths, properties, scaling, shapes
from fairnotice.arm.doing import (
    NO_DISKS,
    act_on_one,
    delete,
    delete_one,
    evict_one,
    followed,
    maintain_one,
    must_not_hibernate,
    not_there_anyway,
    on_vms,
    perform_maintenance,
    refuse,
    repeated,
)
from fairnotice.arm.failures import Failure, NotThere, forbidden, malformed
from fairnotice.arm.paging import by_number, page
from fairnotice.arm.route import ArmRoute, Call, Done, Handler
from fairnotice.arm.routes_vms import ACTIONS, put_one, write_one
from fairnotice.control.limits import Reach
from fairnotice.engine.keeping import kept_name
from fairnotice.engine.removing import staying
from fairnotice.model import ScaleSet, Scope, Vm
from fairnotice.words import ScopeKind, TokenRole

SETS = f"{paths.GROUP}/{paths.SCALE_SETS}"
SET = f"{SETS}/{{scale_set}}"
INSTANCES = f"{SET}/virtualMachines"
INSTANCE = f"{INSTANCES}/{{instance}}"
AVAILABILITY_SETS = f"{paths.GROUP}/{paths.AVAILABILITY_SETS}"
AVAILABILITY_SET = f"{AVAILABILITY_SETS}/{{availability_set}}"
ALL = "*"
# What names instances: the body of whatever is done to some.
_SOME = "VirtualMachineScaleSetVMInstanceIDs"
REFUSED = {
    "reimage": NO_DISKS,
    "reimageall": NO_DISKS,
    "setOrchestrationServiceState": (
        "No service of a scale set is suspended or resumed here: instances are not repaired "
        "automatically."
    ),
}


def set_name(call: Call) -> str:
    """The scale set of the address, as the law calls it."""
    return finding.scale_set(call).name


def instance_name(call: Call) -> str:
    """The instance of the address, as the law calls it."""
    return finding.instance(call).name


def availability_name(call: Call) -> str:
    """The scope of the availability set of the address."""
    return finding.availability_set(call).name


# ---- Scale sets ----


def _list(call: Call) -> Done:
    only = finding.group(call) if "group" in call.names else None

    def find(name: str) -> ScaleSet | None:
        row = call.fleet.scale_sets[name]
        return row if finding.is_in(only, row) and call.shows(Reach.SCALE_SET, name) else None

    return page(call, call.fleet.scale_sets, find, partial(shapes.scale_set, call.fleet))


def _show(call: Call) -> Done:
    shown = shapes.scale_set(call.fleet, finding.scale_set(call))
    return Done(shown, etag=shown["etag"])


def _view(call: Call) -> Done:
    return Done(shapes.scale_set_view(call.fleet, finding.scale_set(call)))


def _named(call: Call, *, all_where_none: bool = True) -> list[Vm]:
    """The instances that the body names; all of them where there is none, or by `*`.

    A body that says something else meant some of them: nobody hits all by a typing mistake.
    """
    row = finding.scale_set(call)
    body = call.body or {}
    wanted = body.get("instanceIds")
    if wanted is None and all_where_none:
        if body.keys() - {"instanceIds"}:
            raise malformed("it names no instanceIds. Leave out the body to mean every instance")
        wanted = [ALL]
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in wanted):
        raise malformed("instanceIds is a list of strings")
    if ALL in wanted:
        return finding.instances(call.fleet, row)
    by_id = finding.by_instance_id(call.fleet, row)
    return [_with_id(by_id, one) for one in wanted]


def _with_id(by_id: Mapping[str, list[Vm]], wanted: str) -> Vm:
    found = finding.with_id(by_id, wanted)
    if found is None:
        message = f"The provided instanceId {wanted} is not an active Virtual Machine Scale Set"
        raise Failure(400, "InvalidParameter", f"{message} VM instanceId.", "instanceIds")
    return found


async def _act(what: str, call: Call) -> Done:
    must_not_hibernate(call)
    return repeated(call) or await on_vms(call, what, _named(call))


async def _delete_some(call: Call) -> Done:
    # The set must be there, whether or not they are.
    finding.scale_set(call)
    return await delete(call, partial(_named, all_where_none=False))


async def _maintain_some(call: Call) -> Done:
    return await perform_maintenance(call, _named)


def _upgrade_some(call: Call) -> Done:
    # `az vmss update-instances`: they are never behind their scale set.
    _named(call)
    return Done(status=200)


async def _write(call: Call) -> Done:
    if not call.expected:
        return await _write_and_scale(call, call.in_turn)
    # What If-Match names is the number of instances too: whoever has read the same is looked at
    # when there are as many as this one wants.
    async with call.in_turn:
        return await _write_and_scale(call, nullcontext())


async def _write_and_scale(call: Call, turn: AbstractAsyncContextManager[object]) -> Done:
    row = finding.to_change(call, finding.scale_set)
    addresses = () if followed(call) else scaling.addresses_for(call, row, _more(call) or 0)
    shown = shapes.scale_set(call.fleet, row)
    name = kept_name(ScopeKind.PLACEMENT_GROUP, row.name)
    await properties.describe(call, properties.Wish(name, shown, whole=False))
    async with turn:
        # How many there are now: somebody else may have asked for as many at the same time.
        more = _more(call)
        if more is not None and followed(call) is None:
            await scaling.scale(call, row, more, addresses)
    # It may be gone by now.
    after = shapes.scale_set(call.fleet, finding.scale_set(call))
    request = followed(call)
    if request is None or not call.fleet.requests[request].operations:
        # Nothing is waited for: new instances are there at once.
        return Done(after, etag=after["etag"])
    after["properties"]["provisioningState"] = "Updating"
    return Done(after, request=request, etag=after["etag"])


def _more(call: Call) -> int | None:
    """How many more instances there shall be: those that are about to go count no longer.

    None where nothing was said of it.
    """
    row = finding.scale_set(call)
    wanted = properties.capacity(call.body or {}, row)
    return None if wanted is None else wanted - len(staying(call.fleet, row))


async def _put(call: Call) -> Done:
    row = finding.to_write(call, finding.scale_set, "Scale sets")
    change = properties.as_change(call.body or {}, shapes.scale_set(call.fleet, row))
    return await _write(call._replace(body=change))


def _keep(find: Callable[[Call], object], call: Call) -> Done:
    """A set is not deleted; where there is none, nothing has to be."""
    try:
        find(call)
    except NotThere:
        return not_there_anyway(call)
    why = (
        "Sets are not deleted here: delete what is in it, and leave it out of the fleet file "
        "(fairnotice fleet apply)."
    )
    raise Failure(409, "OperationNotAllowed", why)


# ---- Instances ----


def _instances(call: Call) -> Done:
    row = _seen_set(call)
    expanded = "instanceview" in call.query.get("$expand", "").lower()
    wanted = filtering.of_instances(call)
    rows = {one.name: one for one in finding.instances(call.fleet, row)}

    def find(name: str) -> Vm | None:
        return rows[name] if wanted(rows[name]) and call.shows(Reach.VM, name) else None

    show = partial(shapes.instance, call.fleet, row, expanded=expanded)
    return page(call, rows, find, show, order=by_number)


def _seen_set(call: Call) -> ScaleSet:
    """The scale set of the address, where whoever asks may see it or something of it."""
    try:
        row = finding.scale_set(call)
    except Failure as failure:
        raise failure if call.caller.limits is None else forbidden() from failure
    instances = finding.instances(call.fleet, row)
    seen = call.shows(Reach.SCALE_SET, row.name) or any(
        call.shows(Reach.VM, one.name) for one in instances
    )
    if not seen:
        raise forbidden()
    return row


def _instance(call: Call) -> Done:
    expanded = "instanceview" in call.query.get("$expand", "").lower()
    row, one = finding.scale_set(call), finding.instance(call)
    shown = shapes.instance(call.fleet, row, one, expanded=expanded)
    return Done(shown, etag=shown["etag"])


def _instance_view(call: Call) -> Done:
    return Done(shapes.instance_view(call.fleet, finding.instance(call)))


async def _delete_instance(call: Call) -> Done:
    # As with several: the set must be there.
    finding.scale_set(call)
    return await delete_one(finding.instance, call)


# ---- Availability sets ----


def _availability_sets(call: Call) -> Done:
    only = finding.group(call) if "group" in call.names else None
    rows = finding.availability_sets(call.fleet)

    def find(name: str) -> Scope | None:
        row = rows[name]
        return row if finding.is_in(only, row) and call.shows(Reach.SCOPE, row.name) else None

    return page(call, rows, find, partial(shapes.availability_set, call.fleet))


def _availability_set(call: Call) -> Done:
    shown = shapes.availability_set(call.fleet, finding.availability_set(call))
    return Done(shown, etag=shown["etag"])


async def _write_availability_set(call: Call, *, whole: bool) -> Done:
    row = finding.to_change(call, finding.availability_set)
    shown = shapes.availability_set(call.fleet, row)
    await properties.describe(call, properties.Wish(row.name, shown, whole))
    after = shapes.availability_set(call.fleet, finding.availability_set(call))
    return Done(after, etag=after["etag"])


async def _put_availability_set(call: Call) -> Done:
    finding.to_write(call, finding.availability_set, "Availability sets")
    return await _write_availability_set(call, whole=True)


# ---- The table ----


def _set_routes() -> Iterable[ArmRoute]:
    reader, operator, reach = TokenRole.READER, TokenRole.OPERATOR, Reach.SCALE_SET
    everywhere = f"{paths.SUBSCRIPTION}/{paths.SCALE_SETS}"
    yield ArmRoute("GET", everywhere, "Every scale set.", _list, reader, None)
    yield ArmRoute("GET", SETS, "The scale sets of a resource group.", _list, reader, None)
    yield ArmRoute("GET", SET, "One scale set.", _show, reader, reach, set_name)
    summary = "How the instances of a scale set are now."
    yield ArmRoute("GET", f"{SET}/instanceView", summary, _view, reader, reach, set_name)
    deeds: tuple[tuple[str, str, Handler], ...] = (
        *(
            (azures, f"{ours.capitalize()} instances, all or none.", partial(_act, ours))
            for azures, ours in ACTIONS.items()
        ),
        ("delete", "Delete instances, all or none.", _delete_some),
        ("performMaintenance", "Approve what the platform has announced.", _maintain_some),
        ("manualupgrade", "Changes nothing: instances are as their set is.", _upgrade_some),
        *(
            (word, f"Refused. {why}", partial(refuse, finding.scale_set, why))
            for word, why in REFUSED.items()
        ),
    )
    for word, summary, handle in deeds:
        path = f"{SET}/{word}"
        yield ArmRoute("POST", path, summary, handle, operator, reach, set_name, body=_SOME)
    kind = properties.KINDS[ScopeKind.PLACEMENT_GROUP]
    for method, summary, handle in (
        ("PATCH", "Say something else of a scale set.", _write),
        ("PUT", "The same; one that is not there is not made.", _put),
    ):
        yield ArmRoute(method, SET, summary, handle, operator, reach, set_name, body=kind)
    keep = partial(_keep, finding.scale_set)
    yield ArmRoute("DELETE", SET, "Refused: sets are declared.", keep, operator, reach, set_name)


def _instance_routes() -> Iterable[ArmRoute]:
    reader, operator, reach = TokenRole.READER, TokenRole.OPERATOR, Reach.VM
    # Whoever may see only some of the instances is shown those.
    summary = "The instances of a scale set."
    yield ArmRoute("GET", INSTANCES, summary, _instances, reader, None, filters=True)
    for path, summary, handle in (
        (INSTANCE, "One instance.", _instance),
        (f"{INSTANCE}/instanceView", "How an instance is now.", _instance_view),
    ):
        yield ArmRoute("GET", path, summary, handle, reader, reach, instance_name)
    deeds: tuple[tuple[str, str, Handler], ...] = (
        *(
            (
                azures,
                f"{ours.capitalize()} an instance.",
                partial(act_on_one, finding.instance, ours),
            )
            for azures, ours in ACTIONS.items()
        ),
        ("simulateEviction", "Take a Spot instance away.", partial(evict_one, finding.instance)),
        (
            "performMaintenance",
            "Approve what the platform has announced.",
            partial(maintain_one, finding.instance),
        ),
        *(
            (word, "Refused: there are no disks.", partial(refuse, finding.instance, NO_DISKS))
            for word in ("reimage", "reimageall")
        ),
    )
    for word, summary, act in deeds:
        path = f"{INSTANCE}/{word}"
        yield ArmRoute("POST", path, summary, act, operator, reach, instance_name, body="any")
    summary = "Delete an instance."
    yield ArmRoute("DELETE", INSTANCE, summary, _delete_instance, operator, reach, instance_name)
    kind = properties.INSTANCE
    change = partial(write_one, finding.instance, _instance, whole=False)
    put = partial(put_one, finding.instance, _instance, "Instances")
    for method, summary, write in (
        ("PATCH", "Say something else of an instance.", change),
        ("PUT", "Say all of an instance; one that is not there is not made.", put),
    ):
        yield ArmRoute(method, INSTANCE, summary, write, operator, reach, instance_name, body=kind)


def _availability_routes() -> Iterable[ArmRoute]:
    reader, operator, reach = TokenRole.READER, TokenRole.OPERATOR, Reach.SCOPE
    everywhere = f"{paths.SUBSCRIPTION}/{paths.AVAILABILITY_SETS}"
    path = AVAILABILITY_SET
    summary = "Every availability set."
    yield ArmRoute("GET", everywhere, summary, _availability_sets, reader, None)
    summary = "The availability sets of a resource group."
    yield ArmRoute("GET", AVAILABILITY_SETS, summary, _availability_sets, reader, None)
    summary = "One availability set."
    yield ArmRoute("GET", path, summary, _availability_set, reader, reach, availability_name)
    change = partial(_write_availability_set, whole=False)
    kind = properties.KINDS[ScopeKind.AVAILABILITY_SET]
    for method, summary, handle in (
        ("PATCH", "Say something else of an availability set.", change),
        ("PUT", "Say all of an availability set; none is made.", _put_availability_set),
    ):
        yield ArmRoute(method, path, summary, handle, operator, reach, availability_name, body=kind)
    keep = partial(_keep, finding.availability_set)
    summary = "Refused: sets are declared."
    yield ArmRoute("DELETE", path, summary, keep, operator, reach, availability_name)


SET_ROUTES = (*_set_routes(), *_instance_routes(), *_availability_routes())
