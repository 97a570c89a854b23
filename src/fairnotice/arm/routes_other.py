"""The addresses of subscriptions, resource groups, long-running operations, and acknowledging."""

from collections.abc import Iterable

from fairnotice.arm import finding, paths, shapes
from fairnotice.arm.doing import approve
from fairnotice.arm.failures import Failure, forbidden, malformed
from fairnotice.arm.long_running import course
from fairnotice.arm.route import ArmRoute, Call, Done
from fairnotice.arm.signing import TENANT
from fairnotice.control.limits import Reach
from fairnotice.engine import Fleet
from fairnotice.model import Event
from fairnotice.words import TokenRole

EVENTS = f"{paths.GROUP}/{paths.COMPUTE}/{{kind}}/{{resource}}/providers/Microsoft.Maintenance"
APPROVED = {"value": "Successfully Approved"}


# ---- Subscriptions and resource groups ----


def _subscriptions(_: Call) -> Done:
    return Done({"value": [shapes.subscription()]})


def _subscription(_: Call) -> Done:
    return Done(shapes.subscription())


def _tenants(_: Call) -> Done:
    own = {"id": f"/tenants/{TENANT}", "tenantId": TENANT}
    return Done({"value": [{**own, "displayName": "fairnotice"}]})


def _groups(call: Call) -> Done:
    return Done({"value": [shapes.group(name) for name in finding.seen_groups(call)]})


def _group(call: Call) -> Done:
    return Done(shapes.group(finding.group(call)))


def _has_group(call: Call) -> Done:
    _group(call)
    return Done(status=204)


# ---- Long-running operations ----


async def _operation(call: Call) -> Done:
    found = await course(call.service, call.names["operation"])
    if call.query.get("monitor", "").lower() != "true":
        return Done(found.body)
    # What Location shows: nothing but whether it is over.
    if found.failure is not None:
        raise found.failure
    return Done(status=202, request=found.id) if found.ended_at is None else Done()


# ---- Scheduled events, outside of the VM ----


def _event(call: Call, name: str) -> Event:
    """The event of this id, if it is one of the resource in the address."""
    event = call.fleet.events.get(name.upper())
    if event is None or not _is_of(call.fleet, event, call):
        if call.caller.limits is not None:
            # Neither what is not there, nor what is somebody else's.
            raise forbidden()
        message = f"The scheduled event '{name}' was not found on this resource."
        raise Failure(404, "ResourceNotFound", message)
    return event


def _is_of(fleet: Fleet, event: Event, call: Call) -> bool:
    kind, name = call.names["kind"].lower(), call.names["resource"].lower()
    scope = fleet.scopes.get(event.scope)
    group = "" if scope is None else scope.resource_group
    if kind == "virtualmachines":
        # Whoever sees an event may approve it, though another VM of its set is hit.
        rows = [vm for one, vm in fleet.vms.items() if one.lower() == name]
        group = rows[0].resource_group if rows else ""
        fits = bool(rows) and rows[0].scope == event.scope
    else:
        kinds = {"virtualmachinescalesets": "scale-set", "availabilitysets": "availability-set"}
        of = None if scope is None else (str(scope.kind), scope.of.lower())
        fits = of == (kinds.get(kind), name)
    return fits and group.lower() == call.names["group"].lower()


def _event_name(call: Call) -> str:
    return _event(call, call.names["event"]).id


async def _acknowledge(call: Call) -> Done:
    await approve(call, [_event(call, call.names["event"])])
    return Done(APPROVED)


async def _acknowledge_all(call: Call) -> Done:
    names = (call.body or {}).get("value")
    if not (names and isinstance(names, list) and all(isinstance(one, str) for one in names)):
        raise malformed("value is a list of EventIds")
    await approve(call, [_event(call, name) for name in names])
    return Done(APPROVED)


# ---- The table ----


def _routes() -> Iterable[ArmRoute]:
    reader, operator = TokenRole.READER, TokenRole.OPERATOR
    one, groups = paths.SUBSCRIPTION, f"{paths.SUBSCRIPTION}/resourceGroups"
    # Before the GET, which answers every other HEAD.
    summary = "Whether there is such a resource group."
    yield ArmRoute("HEAD", paths.GROUP, summary, _has_group, reader, None)
    for path, summary, handle in (
        ("/subscriptions", "The one subscription.", _subscriptions),
        (one, "The one subscription.", _subscription),
        ("/tenants", "The one tenant.", _tenants),
        (groups, "The resource groups in which there is something to see.", _groups),
        (paths.GROUP, "One resource group.", _group),
    ):
        yield ArmRoute("GET", path, summary, handle, reader, None)
    yield ArmRoute(
        "GET",
        f"{one}/{paths.OPERATIONS}",
        "How far a long-running operation has come.",
        _operation,
        reader,
        Reach.OPERATION,
        lambda call: call.names["operation"],
    )
    yield ArmRoute(
        "POST",
        f"{EVENTS}/scheduledevents/{{event}}/acknowledge",
        "Approve an event.",
        _acknowledge,
        operator,
        Reach.EVENT,
        _event_name,
    )
    # Each event that the body names is looked at in turn (arm/doing.py).
    yield ArmRoute(
        "POST",
        f"{EVENTS}/scheduledevents",
        "Approve several events, all or none.",
        _acknowledge_all,
        operator,
        None,
        takes_body=True,
    )


OTHER_ROUTES = tuple(_routes())
