"""Rules 4 and 21: declaring the fleet, all of it or nothing, and its policies."""

from collections.abc import Iterator, Mapping

from fairnotice.engine.answers import Accepted
from fairnotice.engine.approval import remove_endpoint
from fairnotice.engine.changes import (
    NodeDeclared,
    NodeRemoved,
    ScaleSetDeclared,
    ScaleSetRemoved,
    ScopeDeclared,
    ScopeRemoved,
    VmDeclared,
)
from fairnotice.engine.commands import ApplyFleet, SetPolicy, SetTerminateNotice
from fairnotice.engine.draft import Draft
from fairnotice.engine.ending import remove_empty_scope, wake_rollouts
from fairnotice.engine.fleet_checks import check_notice, check_policy, check_spec
from fairnotice.engine.keeping import forget_kept, kept_name
from fairnotice.engine.leaving import remove_vm
from fairnotice.engine.placement import find_place, must_have_places, why_closed
from fairnotice.engine.refusal import Code, refuse
from fairnotice.engine.specs import FleetSpec, ScaleSetSpec, VmSpec
from fairnotice.model import Node, ScaleSet, Scope, Vm, scope_name
from fairnotice.words import EventType, Power, Priority, ScopeKind

UPDATE_DOMAINS = 5


def apply_fleet(draft: Draft, command: ApplyFleet) -> Accepted:
    """Make the fleet what the specification says."""
    spec = command.spec
    check_spec(spec)
    _declare_nodes(draft, spec)
    _declare_sets(draft, spec)
    _remove_vms(draft, spec)
    _declare_vms(draft, spec)
    _remove_sets(draft, spec)
    _remove_nodes(draft, spec)
    _check_room(draft, spec)
    return Accepted()


# ---- Nodes ----


def _declare_nodes(draft: Draft, spec: FleetSpec) -> None:
    for wanted in spec.nodes:
        before = draft.nodes.get(wanted.name, Node(wanted.name))
        node = before._replace(fault_domain=wanted.fault_domain, capacity=wanted.capacity)
        if draft.nodes.get(wanted.name) == node:
            continue
        if before.fault_domain != node.fault_domain:
            for name in draft.vms_on_node.get(node.name, ()):
                _must_not_be_live(draft, name, f"the fault domain of {node.name} cannot change")
        draft.record(NodeDeclared(draft.now, node))


def _remove_nodes(draft: Draft, spec: FleetSpec) -> None:
    wanted = {node.name for node in spec.nodes}
    for name in [name for name in draft.nodes if name not in wanted]:
        left = (*draft.vms_on_node.get(name, ()), *draft.arriving_on_node.get(name, ()))
        if left:
            _must_not_be_live(draft, left[0], f"{name} cannot be removed")
            refuse(
                Code.CONFLICT,
                f"{name} cannot be removed: {left[0]} is on it.",
                "Move or remove its VMs in the same file.",
                rule=21,
            )
        live = draft.operations_on_node.get(name)
        if live:
            refuse(
                Code.CONFLICT,
                f"{name} cannot be removed: {draft.operations[live[0]].kind} is live there.",
                "Wait until it is over, or cancel it.",
                rule=21,
                operation=live[0],
            )
        draft.record(NodeRemoved(draft.now, draft.nodes[name]))
        wake_rollouts(draft, name)
        remove_endpoint(draft, name)


def _check_room(draft: Draft, spec: FleetSpec) -> None:
    for wanted in spec.nodes:
        used = draft.used_slots(wanted.name)
        if used > wanted.capacity:
            refuse(
                Code.NO_ROOM,
                f"{wanted.name} has {wanted.capacity} slots and {used} VMs.",
                "Give it more capacity, or move VMs.",
                rule=14,
            )


# ---- Sets and their scopes ----


def _declare_sets(draft: Draft, spec: FleetSpec) -> None:
    for kind, sets in (
        (ScopeKind.AVAILABILITY_SET, spec.availability_sets),
        (ScopeKind.CLOUD_SERVICE, spec.cloud_services),
    ):
        for wanted in sets:
            scope = Scope(
                scope_name(kind, wanted.name), kind, wanted.name, 0, wanted.resource_group
            )
            _declare_scope(draft, scope, wanted.automatically_approve)
    for scale_set in spec.scale_sets:
        _declare_scale_set(draft, scale_set)


def _declare_scale_set(draft: Draft, wanted: ScaleSetSpec) -> None:
    scale_set = ScaleSet(
        name=wanted.name,
        priority=wanted.priority,
        terminate_notice_minutes=wanted.terminate_notice_minutes,
        placement_groups=wanted.placement_groups,
        resource_group=wanted.resource_group,
    )
    if draft.scale_sets.get(wanted.name) != scale_set:
        draft.record(ScaleSetDeclared(draft.now, scale_set))
    kind = ScopeKind.PLACEMENT_GROUP
    for group in range(wanted.placement_groups):
        name = scope_name(kind, wanted.name, group)
        scope = Scope(name, kind, wanted.name, group, wanted.resource_group)
        _declare_scope(draft, scope, wanted.automatically_approve)


def _declare_scope(draft: Draft, wanted: Scope, policy: tuple[EventType, ...]) -> None:
    before = draft.scopes.get(wanted.name)
    known = before or wanted._replace(declared_revision=draft.revision + 1)
    scope = known._replace(resource_group=wanted.resource_group, automatically_approve=policy)
    if before != scope:
        draft.record(ScopeDeclared(draft.now, scope))


def _remove_sets(draft: Draft, spec: FleetSpec) -> None:
    kept = {
        *(scope_name(ScopeKind.AVAILABILITY_SET, wanted.name) for wanted in spec.availability_sets),
        *(scope_name(ScopeKind.CLOUD_SERVICE, wanted.name) for wanted in spec.cloud_services),
        *(
            scope_name(ScopeKind.PLACEMENT_GROUP, wanted.name, group)
            for wanted in spec.scale_sets
            for group in range(wanted.placement_groups)
        ),
    }
    for name in list(draft.scopes):
        scope = draft.scopes[name]
        if scope.kind is ScopeKind.STANDALONE or name in kept:
            continue
        _must_be_empty(draft, name)
        draft.record(ScopeRemoved(draft.now, scope))
        if scope.kind is ScopeKind.AVAILABILITY_SET:
            forget_kept(draft, kept_name(scope.kind, scope.of))
    names = {wanted.name for wanted in spec.scale_sets}
    for name in [name for name in draft.scale_sets if name not in names]:
        draft.record(ScaleSetRemoved(draft.now, draft.scale_sets[name]))
        forget_kept(draft, kept_name(ScopeKind.PLACEMENT_GROUP, name))


def _must_be_empty(draft: Draft, name: str) -> None:
    """A set goes only when no event of it can be seen; its VMs are gone or elsewhere by now."""
    live = draft.events_in_scope.get(name)
    if live:
        refuse(
            Code.CONFLICT,
            f"{name} cannot be removed under event {live[0]}.",
            "Wait until the event is gone, or cancel it.",
            rule=21,
            event=live[0],
        )


# ---- VMs ----


def _remove_vms(draft: Draft, spec: FleetSpec) -> None:
    wanted = {vm.name for vm in spec.vms}
    for name in [name for name in draft.vms if name not in wanted]:
        _must_not_be_live(draft, name, f"{name} cannot be removed")
        remove_vm(draft, draft.vms[name])


def _declare_vms(draft: Draft, spec: FleetSpec) -> None:
    for wanted, vm in declared_vms(draft.vms, spec):
        before = draft.vms.get(vm.name)
        if vm.scope == scope_name(ScopeKind.STANDALONE, vm.name):
            standalone = Scope(
                vm.scope, ScopeKind.STANDALONE, vm.name, resource_group=vm.resource_group
            )
            _declare_scope(draft, standalone, wanted.automatically_approve)
        if before != vm:
            declare_vm(draft, before, vm)


def declared_vms(vms: Mapping[str, Vm], spec: FleetSpec) -> Iterator[tuple[VmSpec, Vm]]:
    """Each VM of the specification as it shall be, on no node where one has yet to be found."""
    priorities = {scale_set.name: scale_set.priority for scale_set in spec.scale_sets}
    positions: dict[str, int] = {}
    for wanted in spec.vms:
        kind, of = _set_of(wanted)
        position = positions.get(f"{kind}:{of}", 0)
        positions[f"{kind}:{of}"] = position + 1
        scope = scope_name(kind, of, wanted.placement_group)
        of_set = priorities.get(wanted.scale_set or "")
        yield wanted, _vm(wanted, scope, of_set, vms.get(wanted.name), position)


def _set_of(wanted: VmSpec) -> tuple[ScopeKind, str]:
    if wanted.availability_set is not None:
        return ScopeKind.AVAILABILITY_SET, wanted.availability_set
    if wanted.scale_set is not None:
        return ScopeKind.PLACEMENT_GROUP, wanted.scale_set
    if wanted.cloud_service is not None:
        return ScopeKind.CLOUD_SERVICE, wanted.cloud_service
    return ScopeKind.STANDALONE, wanted.name


def _vm(
    wanted: VmSpec, scope: str, of_set: Priority | None, before: Vm | None, position: int
) -> Vm:
    """The VM as it shall be; what the specification leaves out it keeps."""
    update_domain = wanted.update_domain
    if update_domain is None and not scope.startswith(ScopeKind.STANDALONE):
        known = before.update_domain if before is not None and before.scope == scope else None
        update_domain = position % UPDATE_DOMAINS if known is None else known
    node = wanted.node
    power = Power.RUNNING
    if before is not None:
        power = before.power
        # Where it is now counts if nothing else is asked for, and a VM without a node has none.
        node = before.node if node is None or before.node is None else node
    return Vm(
        name=wanted.name,
        scope=scope,
        node=node,
        update_domain=update_domain,
        power=power,
        priority=wanted.priority or of_set or Priority.REGULAR,
        eviction_policy=wanted.eviction_policy,
        addresses=wanted.addresses,
        network=wanted.network,
        resource_group=wanted.resource_group,
        zone=wanted.zone,
        tags=wanted.tags,
        declared_revision=0 if before is None else before.declared_revision,
    )


def declare_vm(draft: Draft, before: Vm | None, vm: Vm) -> None:
    """Add a VM, finding a place for one that has none; or describe one anew."""
    if before is None:
        if vm.node is None:
            must_have_places(draft, [vm])
            vm = vm._replace(node=find_place(draft, vm))
        vm = vm._replace(declared_revision=draft.revision + 1)
    else:
        for what in ("scope", "node", "addresses", "update_domain"):
            if getattr(before, what) != getattr(vm, what):
                _must_not_be_live(draft, vm.name, f"the {what} of {vm.name} cannot change")
    _must_be_open(draft, before, vm)
    draft.record(VmDeclared(draft.now, vm))
    if before is not None and before.scope != vm.scope:
        remove_empty_scope(draft, before.scope)


def _must_be_open(draft: Draft, before: Vm | None, vm: Vm) -> None:
    """Nobody is declared where nobody may be put (rule 14); who is there already may stay."""
    if vm.node is None or (before is not None and before.node == vm.node):
        return
    closed = why_closed(draft, draft.nodes[vm.node])
    if closed:
        live = draft.operations_on_node.get(vm.node, ())
        events = [event for name in live for event in draft.operations[name].events]
        refuse(
            Code.CONFLICT,
            f"{vm.name} cannot be put on {vm.node}: it {closed}.",
            "Name another node, or wait until this one is back in service.",
            rule=14,
            event=next(iter(events), None),
        )


def _must_not_be_live(draft: Draft, name: str, what: str) -> None:
    """Rule 21: nothing is pulled out from under what was announced or is under way."""
    live = draft.operations_on_vm.get(name)
    if live:
        event = draft.event_naming(name)
        refuse(
            Code.CONFLICT,
            f"While {event or live[0]} of {name} is live, {what}.",
            "Wait until it is over, or cancel it.",
            rule=21,
            event=event,
            operation=live[0],
        )


# ---- Policies ----


def set_policy(draft: Draft, command: SetPolicy) -> Accepted:
    """Which user-initiated events of a scope are approved automatically from now on."""
    scope = draft.scopes.get(command.scope)
    if scope is None:
        refuse(Code.NOT_FOUND, f"There is no scope {command.scope}.", "List the scopes.")
    check_policy(command.automatically_approve, "automatically_approve")
    # Azure has one policy for a whole scale set, and so has a fleet file.
    groups = 1
    if scope.kind is ScopeKind.PLACEMENT_GROUP:
        groups = draft.scale_sets[scope.of].placement_groups
    for group in range(groups):
        one = draft.scopes[scope_name(scope.kind, scope.of, group)]
        _declare_scope(draft, one, command.automatically_approve)
    return Accepted()


def set_terminate_notice(draft: Draft, command: SetTerminateNotice) -> Accepted:
    """How much notice the deletes of a scale set give from now on."""
    scale_set = draft.scale_sets.get(command.scale_set)
    if scale_set is None:
        refuse(
            Code.NOT_FOUND, f"There is no scale set {command.scale_set}.", "List the scale sets."
        )
    check_notice(command.minutes, "terminate_notice_minutes")
    if command.minutes is not None and scale_set.priority is Priority.SPOT:
        # Taken all the same: Azure's tools send back what they have read.
        draft.warnings.append(
            f"{scale_set.name} is Spot: its Spot instances are deleted without notice, "
            "whatever is set."
        )
    if scale_set.terminate_notice_minutes != command.minutes:
        noticed = scale_set._replace(terminate_notice_minutes=command.minutes)
        draft.record(ScaleSetDeclared(draft.now, noticed))
    return Accepted()
