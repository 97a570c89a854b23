"""A part of the cloud: the scopes and resource groups that a token may be limited to.

What is not there is outside, like everything of somebody else's: so whoever is refused cannot tell
the one from the other.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from fairnotice.control.misfits import nearest
from fairnotice.control.service import known_id, named
from fairnotice.engine import Fleet
from fairnotice.model import Requester, ScaleSet, Scope, Vm
from fairnotice.words import ScopeKind


class Reach(Enum):
    """What an address of the API is about."""

    # All of the cloud, or what is no user's (nodes, rollouts).
    CLOUD = auto()
    # Nothing of it.
    NOTHING = auto()
    VM = auto()
    SCOPE = auto()
    SCALE_SET = auto()
    EVENT = auto()
    OPERATION = auto()


class Limits(NamedTuple):
    """What is in these scopes, or in these resource groups; and what `by` has asked for there."""

    scopes: frozenset[str]
    # In small letters, since they have no case in Azure.
    resource_groups: frozenset[str]
    by: Requester

    def hold(self, fleet: Fleet, reach: Reach, name: str) -> bool:
        """Whether the thing of this name is there, and within."""
        return _HOLD[reach](self, fleet, name)

    # ---- One kind each ----

    def vm(self, fleet: Fleet, name: str) -> bool:
        """A VM."""
        vm = fleet.vms.get(name)
        return vm is not None and (self._has_group_of(vm) or self.scope(fleet, vm.scope))

    def scope(self, fleet: Fleet, name: str) -> bool:
        """A scope."""
        scope = fleet.scopes.get(name)
        return scope is not None and self._owns(scope)

    def scale_set(self, fleet: Fleet, name: str) -> bool:
        """A scale set."""
        row = fleet.scale_sets.get(name)
        return row is not None and (self._has_group_of(row) or self._all_groups(fleet, row))

    def _all_groups(self, fleet: Fleet, row: ScaleSet) -> bool:
        """Whether every placement group of a scale set is one of the scopes."""
        mine = (fleet.scopes.get(name) for name in self.scopes)
        if all(one is None or one.of != row.name for one in mine):
            # So it is with most of them, and all scopes need not be looked through.
            return False
        kind = ScopeKind.PLACEMENT_GROUP
        groups = [one for one in fleet.scopes.values() if one.kind is kind and one.of == row.name]
        return bool(groups) and all(map(self._owns, groups))

    def event(self, fleet: Fleet, name: str) -> bool:
        """An event that is not forgotten."""
        event = fleet.events.get(name.upper())
        return event is not None and (
            self.scope(fleet, event.scope)
            or self._all_vms(fleet, event.resources)
            or self._asked_for(fleet, event.operation)
        )

    def operation(self, fleet: Fleet, name: str) -> bool:
        """An operation, or a whole request, of which every operation must be within."""
        request = known_id(fleet.requests, name)
        if request is not None and fleet.requests[request].requester == self.by:
            # Also one that made no operation: an approval, or what was so already.
            return True
        if request is not None and fleet.requests[request].operations:
            return all(
                self._one_operation(fleet, one) for one in fleet.requests[request].operations
            )
        return self._one_operation(fleet, name)

    def _one_operation(self, fleet: Fleet, name: str) -> bool:
        found = known_id(fleet.operations, name)
        return found is not None and (
            self._all_vms(fleet, fleet.operations[found].vms) or self._asked_for(fleet, found)
        )

    # ---- What they share ----

    def _owns(self, scope: Scope) -> bool:
        return scope.name in self.scopes or self._has_group_of(scope)

    def _has_group_of(self, row: Vm | ScaleSet | Scope) -> bool:
        return row.resource_group.lower() in self.resource_groups

    def _all_vms(self, fleet: Fleet, names: Iterable[str]) -> bool:
        """An impact of several VMs is touched only by who may touch each of them."""
        names = tuple(names)
        return bool(names) and all(self.vm(fleet, name) for name in names)

    def _asked_for(self, fleet: Fleet, operation: str) -> bool:
        """Whether it was asked for by this very token: the VM may be gone by now."""
        row = fleet.operations.get(operation)
        request = None if row is None else fleet.requests.get(row.request)
        return request is not None and request.requester == self.by


def must_be_there(
    fleet: Fleet,
    scopes: Iterable[str],
    resource_groups: Iterable[str],
    node: str | None,
    vm: str | None = None,
) -> list[str]:
    """Whether a new token would be good for something: UnknownName where a name is nobody's.

    A resource group is there by its VMs alone, so one that has none is only said.
    """
    for scope in scopes:
        named("scope", fleet.scopes, scope)
    if node is not None:
        named("node", fleet.nodes, node)
    if vm is not None:
        named("VM", fleet.vms, vm)
    wanted = list(resource_groups)
    if not wanted:
        return []
    there = {vm.resource_group.lower(): vm.resource_group for vm in fleet.vms.values()}
    return [_without_vms(group, there.values()) for group in wanted if group.lower() not in there]


def _without_vms(group: str, there: Iterable[str]) -> str:
    alike = nearest(there, group)
    meant = f" Did you mean {' or '.join(alike)}?" if alike else ""
    return f"No VM is in the resource group {group}, so nothing is to be seen there.{meant}"


_HOLD: dict[Reach, Callable[[Limits, Fleet, str], bool]] = {
    Reach.CLOUD: lambda *_: False,
    Reach.NOTHING: lambda *_: True,
    Reach.VM: Limits.vm,
    Reach.SCOPE: Limits.scope,
    Reach.SCALE_SET: Limits.scale_set,
    Reach.EVENT: Limits.event,
    Reach.OPERATION: Limits.operation,
}
