"""The addresses of subscriptions, resource groups, long-running operations, and acknowledging."""

from collections.abc import Iterable
from functools import partial

from fairnotice.arm import finding, paths, shapes
from fairnotice.arm.doing import approve, refuse
from fairnotice.arm.failures import Failure, forbidden, malformed, no_namespace
from fairnotice.arm.long_running import course
from fairnotice.arm.route import ArmRoute, Call, Done
from fairnotice.arm.signing import TENANT
from fairnotice.control.limits import Reach
from fairnotice.engine import Fleet
from fairnotice.model import Event
from fairnotice.words import TokenRole

EVENTS = f"{paths.GROUP}/{paths.COMPUTE}/{{kind}}/{{resource}}/providers/Microsoft.Maintenance"
APPROVED = {"value": "Successfully Approved"}
DECLARED = (
    "Resource groups are neither made nor deleted here: they are declared in the fleet file, by "
    "what is in them (fairnotice fleet apply)."
)


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


def _make_group(_: Call) -> Done:
    raise Failure(409, "OperationNotAllowed", DECLARED)


# ---- Providers and locations ----


def _locations(_: Call) -> Done:
    return Done({"value": [shapes.location()]})


def _providers(_: Call) -> Done:
    return Done({"value": list(map(shapes.provider, paths.PROVIDERS))})


def _provider(call: Call) -> Done:
    asked = call.names["provider"]
    found = finding.in_any_case(paths.PROVIDERS, asked)
    if found is None:
        raise no_namespace(asked)
    return Done(shapes.provider(found))


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
        finding.group(call)
        message = f"The scheduled event '{name}' was not found on this resource."
        raise Failure(404, "ResourceNotFound", message)
    return event


def _is_of(fleet: Fleet, event: Event, call: Call) -> bool:
    group = call.names["group"]
    kind, name = call.names["kind"].lower(), call.names["resource"].lower()
    if kind == "virtualmachines":
        # Whoever sees an event may approve it, though another VM of its set is hit.
        rows = (fleet.vms[one] for one in fleet.vms_in_scope.get(event.scope, ()))
        return any(one.name.lower() == name and finding.is_in(group, one) for one in rows)
    kinds = {"virtualmachinescalesets": "scale-set", "availabilitysets": "availability-set"}
    scope = fleet.scopes.get(event.scope)
    if scope is None or (str(scope.kind), scope.of.lower()) != (kinds.get(kind), name):
        return False
    return finding.is_in(group, scope)


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
        (f"{one}/locations", "The one location.", _locations),
        (f"{one}/providers", "The two resource providers.", _providers),
        (f"{one}/providers/{{provider}}", "One resource provider.", _provider),
    ):
        yield ArmRoute("GET", path, summary, handle, reader, None)
    keep = partial(refuse, finding.group, DECLARED)
    for method, handle in (("PUT", _make_group), ("PATCH", keep), ("DELETE", keep)):
        summary = "Refused: resource groups are declared."
        yield ArmRoute(method, paths.GROUP, summary, handle, operator, None)
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
        body={"value": "any"},
    )


OTHER_ROUTES = tuple(_routes())
