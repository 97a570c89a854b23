"""What an address names: rows of the fleet, found without regard to case, as Azure finds them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from fairnotice.arm.failures import Failure, NotThere, ambiguous, no_group, not_there
from fairnotice.arm.paths import SUBSCRIPTION_ID
from fairnotice.arm.route import Call
from fairnotice.control.limits import Reach
from fairnotice.engine import Fleet
from fairnotice.model import ScaleSet, Scope, Vm, scope_name
from fairnotice.wire.instance import instance_number
from fairnotice.words import ScopeKind

Row = TypeVar("Row")
Resource = TypeVar("Resource", Vm, ScaleSet, Scope)
# Cloud services have an API of their own on Azure, which is not here.
_SHOWN = (ScopeKind.STANDALONE, ScopeKind.AVAILABILITY_SET)


def must_be_ours(call: Call) -> None:
    """There is one subscription here."""
    subscription = call.names.get("subscription", SUBSCRIPTION_ID)
    if subscription.lower() != SUBSCRIPTION_ID:
        message = f"The subscription '{subscription}' could not be found."
        raise Failure(404, "SubscriptionNotFound", message)


def groups(fleet: Fleet) -> dict[str, None]:
    """Every resource group: it is there by what is in it."""
    rows: list[Iterable[Vm | ScaleSet | Scope]] = [
        fleet.vms.values(),
        fleet.scale_sets.values(),
        (one for one in fleet.scopes.values() if one.kind is ScopeKind.AVAILABILITY_SET),
    ]
    names = (row.resource_group for table in rows for row in table)
    return dict.fromkeys(first_spellings(names))


def first_spellings(names: Iterable[str]) -> Iterable[str]:
    """Each name once, whatever its case: as it was written first."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return found.values()


def is_in(group: str | None, row: Vm | ScaleSet | Scope) -> bool:
    """Whether it is in this resource group, or in any where None is given."""
    return group is None or row.resource_group.lower() == group.lower()


def seen_groups(call: Call) -> list[str]:
    """The resource groups in which whoever asks may see something."""
    fleet = call.fleet
    if call.caller.limits is None:
        return list(groups(fleet))
    seen = [row.resource_group for row in fleet.vms.values() if call.shows(Reach.VM, row.name)]
    sets = (row for row in fleet.scale_sets.values() if call.shows(Reach.SCALE_SET, row.name))
    seen += [row.resource_group for row in sets]
    scopes = (row for row in availability_sets(fleet).values() if call.shows(Reach.SCOPE, row.name))
    seen += [row.resource_group for row in scopes]
    return list(first_spellings(seen))


def group(call: Call) -> str:
    """The resource group of the address, as the fleet writes it: one that may be seen."""
    asked = call.names["group"]
    found = in_any_case(seen_groups(call), asked)
    if found is None:
        raise no_group(asked)
    return found


def to_write(call: Call, find: Callable[[Call], Row], what: str) -> Row:
    """What a PUT is about, which is not made here."""
    try:
        return find(call)
    except NotThere as failure:
        message = (
            f"{what} are not made here: declare them in the fleet file (fairnotice fleet apply)."
        )
        raise Failure(409, "OperationNotAllowed", message) from failure


def to_change(call: Call, find: Callable[[Call], Row]) -> Row:
    """What a PUT or PATCH is about, unless it shall only be made (If-None-Match: *)."""
    row = find(call)
    if call.new_only:
        raise Failure(412, "PreconditionFailed", "It is there already.", "If-None-Match")
    return row


def in_any_case(rows: Iterable[str], asked: str) -> str | None:
    """The name as these rows have it."""
    if isinstance(rows, Mapping) and asked in rows:
        return asked
    low = asked.lower()
    return next((name for name in rows if name.lower() == low), None)


def _in_group(
    call: Call,
    what: str,
    rows: Mapping[str, Resource],
    name: str,
    fits: Callable[[Resource], bool] = lambda _: True,
) -> Resource:
    """The one of this name in the resource group of the address, where alone Azure looks for it."""

    def is_meant(row: Resource) -> bool:
        return is_in(call.names["group"], row) and fits(row)

    if name in rows and is_meant(rows[name]):
        return rows[name]
    low = name.lower()
    found = {one: row for one, row in rows.items() if one.lower() == low and is_meant(row)}
    if not found:
        raise not_there(what, name, group(call))
    if len(found) > 1:
        raise ambiguous(name, found, "Name one exactly as it is. ")
    return next(iter(found.values()))


# ---- VMs ----


def is_vm(fleet: Fleet, vm: Vm) -> bool:
    """Whether it is a VM of its own: instances of scale sets are their set's."""
    return fleet.scopes[vm.scope].kind in _SHOWN


def vm(call: Call) -> Vm:
    """The VM of the address."""
    name = call.names["vm"]
    what = "Microsoft.Compute/virtualMachines"
    return _in_group(call, what, call.fleet.vms, name, partial(is_vm, call.fleet))


# ---- Sets ----


def scale_set(call: Call) -> ScaleSet:
    """The scale set of the address."""
    what = "Microsoft.Compute/virtualMachineScaleSets"
    return _in_group(call, what, call.fleet.scale_sets, call.names["scale_set"])


def instances(fleet: Fleet, row: ScaleSet) -> list[Vm]:
    """The instances of a scale set, the oldest first."""
    kind = ScopeKind.PLACEMENT_GROUP
    scopes = (scope_name(kind, row.name, number) for number in range(row.placement_groups))
    return [fleet.vms[name] for scope in scopes for name in fleet.vms_in_scope.get(scope, ())]


def instance_id(fleet: Fleet, vm: Vm) -> str:
    """The `47` of `batch_47`; all of a name that is otherwise."""
    return instance_number(vm, fleet.scopes[vm.scope]) or vm.name


def by_instance_id(fleet: Fleet, row: ScaleSet) -> dict[str, list[Vm]]:
    """The instances of a scale set by what its tools call them: `0` is also `batch_0`."""
    found: dict[str, list[Vm]] = {}
    for one in instances(fleet, row):
        found.setdefault(instance_id(fleet, one), []).append(one)
    return found


def with_id(by_id: Mapping[str, list[Vm]], asked: str) -> Vm | None:
    """The one instance that tools call so; None where there is none."""
    low = asked.lower()
    found = by_id.get(asked) or [vm for one in by_id if one.lower() == low for vm in by_id[one]]
    if len(found) > 1:
        raise ambiguous(asked, (vm.name for vm in found))
    return found[0] if found else None


def instance(call: Call) -> Vm:
    """The instance of the address."""
    row = scale_set(call)
    found = with_id(by_instance_id(call.fleet, row), call.names["instance"])
    if found is None:
        what = f"Microsoft.Compute/virtualMachineScaleSets/{row.name}/virtualMachines"
        raise not_there(what, call.names["instance"], call.names["group"])
    return found


def availability_sets(fleet: Fleet) -> dict[str, Scope]:
    """Every availability set by its name."""
    kind = ScopeKind.AVAILABILITY_SET
    return {one.of: one for one in fleet.scopes.values() if one.kind is kind}


def availability_set(call: Call) -> Scope:
    """The availability set of the address."""
    what = "Microsoft.Compute/availabilitySets"
    rows = availability_sets(call.fleet)
    return _in_group(call, what, rows, call.names["availability_set"])
