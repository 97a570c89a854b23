"""Rules 15 to 20: what users ask of their VMs, and taking it back."""

from collections.abc import Iterable
from datetime import datetime

from fairnotice.engine.announce import (
    Plan,
    checked_instant,
    least_notice,
    plan,
)
from fairnotice.engine.answers import Accepted
from fairnotice.engine.approval import consider_terminates
from fairnotice.engine.changes import RequestAccepted
from fairnotice.engine.commands import (
    Asked,
    Cancel,
    Delete,
    Evict,
    OnVms,
    Redeploy,
    Restart,
    ScaleIn,
)
from fairnotice.engine.draft import Draft
from fairnotice.engine.ending import cancel_operation, scheduled_events
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.placement import find_places
from fairnotice.engine.refusal import Code, refuse
from fairnotice.model import (
    EventSource,
    Operation,
    OperationKind,
    Power,
    Priority,
    Request,
    Role,
    ScopeKind,
    Vm,
    scope_name,
)

REMOVING = (OperationKind.DELETE, OperationKind.EVICTION)


# ---- The commands ----


def restart(draft: Draft, command: Restart) -> Accepted:
    """Reboot these VMs."""
    vms = named_vms(draft, command)
    for vm in vms:
        _must_run(vm)
    return _ask(draft, command, OperationKind.RESTART, vms, command.not_before)


def redeploy(draft: Draft, command: Redeploy) -> Accepted:
    """Move these VMs to other nodes, if there is a place for each."""
    vms = named_vms(draft, command)
    for vm in vms:
        _must_run(vm)
    for name, place in find_places(draft, vms).items():
        if place is None:
            refuse(
                Code.NO_ROOM,
                f"No node may take {name}.",
                "Uncordon or add a node, or wait until an operation there is over.",
                rule=14,
            )
    return _ask(draft, command, OperationKind.REDEPLOY, vms, command.not_before)


def evict(draft: Draft, command: Evict) -> Accepted:
    """Take these Spot VMs away."""
    vms = named_vms(draft, command)
    for vm in vms:
        if vm.priority is not Priority.SPOT:
            refuse(
                Code.CONFLICT,
                f"{vm.name} is a Regular VM and is never evicted.",
                "Evict Spot VMs only, or delete it.",
                rule=20,
            )
        if vm.power is Power.DEALLOCATED:
            refuse(
                Code.CONFLICT,
                f"{vm.name} is deallocated: there is nothing to evict.",
                "Start it first, or delete it.",
                rule=20,
            )
    return _ask(draft, command, OperationKind.EVICTION, vms)


def delete(draft: Draft, command: Delete) -> Accepted:
    """Delete these VMs, with notice where their scale set gives it."""
    return _ask(draft, command, OperationKind.DELETE, named_vms(draft, command))


def scale_in(draft: Draft, command: ScaleIn) -> Accepted:
    """Delete the newest instances of a scale set that are not being removed already."""
    scale_set = draft.scale_sets.get(command.scale_set)
    if scale_set is None:
        refuse(
            Code.NOT_FOUND, f"There is no scale set {command.scale_set}.", "List the scale sets."
        )
    instances = [
        draft.vms[name]
        for group in range(scale_set.placement_groups)
        for name in draft.vms_in_scope.get(_group_name(scale_set.name, group), ())
        if _removal_of(draft, name) is None
    ]
    if not 0 < command.count <= len(instances):
        refuse(
            Code.INVALID,
            f"{scale_set.name} has {len(instances)} instances that can go.",
            f"Give a count from 1 to {len(instances)}.",
        )
    return _ask(draft, command, OperationKind.DELETE, instances[-command.count :])


def cancel(draft: Draft, command: Cancel) -> Accepted:
    """Take an operation back, with all its events, before it has started."""
    operation = _operation_named(draft, command.target)
    _must_be_allowed_to_cancel(draft, operation, command)
    if operation.started_at is not None:
        refuse(
            Code.CONFLICT,
            f"{operation.id} has started and cannot be taken back.",
            "Wait until it is over.",
            rule=15,
            event=next(iter(operation.events), None),
        )
    if operation.pending:
        waited_for = scheduled_events(draft, operation)
        cancel_operation(draft, operation, f"canceled by {command.by.name}")
        for event in waited_for:
            consider_terminates(draft, event)
    return Accepted(operations=(operation.id,), events=operation.events)


def _group_name(scale_set: str, placement_group: int) -> str:
    return scope_name(ScopeKind.PLACEMENT_GROUP, scale_set, placement_group)


# ---- What they have in common ----


def named_vms(draft: Draft, command: OnVms) -> list[Vm]:
    """The VMs a command names, each of which must be there."""
    if not command.vms:
        refuse(Code.INVALID, "No VM was named.", "Name at least one.")
    vms = []
    for name in dict.fromkeys(command.vms):
        vm = draft.vms.get(name)
        if vm is None:
            refuse(Code.NOT_FOUND, f"There is no VM {name}.", "List the VMs.")
        vms.append(vm)
    return vms


def accept(
    draft: Draft,
    command: Asked,
    kind: OperationKind,
    plans: Iterable[Plan],
    *,
    node: str | None = None,
    left: tuple[str, ...] = (),
) -> Accepted:
    """Write the request down and plan its operations; starting them is left to the end."""
    plans = list(plans)
    request = Request(
        id=command.id,
        kind=kind,
        requester=command.by,
        asked_at=draft.now,
        operations=tuple(planned.id for planned in plans),
        node=node,
        left=left,
        idempotency_key=command.idempotency_key,
    )
    draft.record(RequestAccepted(draft.now, request))
    operations = [plan(draft, planned) for planned in plans]
    return Accepted(
        request=command.id,
        operations=tuple(operation.id for operation in operations),
        events=tuple(event for operation in operations for event in operation.events),
        left=left,
    )


def operation_ids(request: str, count: int) -> list[str]:
    """Ids for the operations of a request: its own where there is only one."""
    if count == 1:
        return [request]
    return [f"{request}.{number}" for number in range(count)]


def _ask(
    draft: Draft,
    command: Asked,
    kind: OperationKind,
    vms: list[Vm],
    asked_not_before: datetime | None = None,
) -> Accepted:
    repeated = [_repeated(draft, kind, vm) for vm in vms]
    fresh = [vm for vm, first in zip(vms, repeated, strict=True) if first is None]
    firsts = [first for first in repeated if first is not None]
    for vm in fresh:
        _must_not_be_going(draft, vm)
    asked_not_before = checked_instant(draft, kind, fresh, asked_not_before)
    if not fresh:
        return _answer_again(firsts)
    if KINDS[kind].source is EventSource.USER:
        _must_not_be_too_many(draft, fresh)
    plans = [
        Plan(
            id=operation_id,
            request=command.id,
            kind=kind,
            vms=(vm,),
            notice_seconds=least_notice(draft, kind, vm),
            asked_not_before=asked_not_before,
        )
        for operation_id, vm in zip(operation_ids(command.id, len(fresh)), fresh, strict=True)
    ]
    answer = accept(draft, command, kind, plans)
    again = _answer_again(firsts)
    return Accepted(
        answer.request,
        (*again.operations, *answer.operations),
        (*again.events, *answer.events),
    )


def _answer_again(operations: list[Operation]) -> Accepted:
    """The answer to a command that only repeats what is on its way (rule 19)."""
    return Accepted(
        request=operations[0].request if operations else None,
        operations=tuple(operation.id for operation in operations),
        events=tuple(event for operation in operations for event in operation.events),
    )


def _repeated(draft: Draft, kind: OperationKind, vm: Vm) -> Operation | None:
    """The live delete or eviction that a second one would only repeat."""
    removal = _removal_of(draft, vm.name) if kind in REMOVING else None
    return removal if removal is not None and removal.kind is kind else None


def _removal_of(draft: Draft, name: str) -> Operation | None:
    """The live delete or eviction of this VM that goes furthest."""
    live = [draft.operations[other] for other in draft.operations_on_vm.get(name, ())]
    removals = [operation for operation in live if operation.kind in REMOVING]
    return max(removals, key=lambda removal: not removal.pending, default=None)


# ---- Reasons to say no ----


def _must_run(vm: Vm) -> None:
    if not vm.running:
        refuse(
            Code.CONFLICT,
            f"{vm.name} is {vm.power}, it does not run.",
            "Start it first.",
            rule=20,
        )


def _must_not_be_going(draft: Draft, vm: Vm) -> None:
    removal = _removal_of(draft, vm.name)
    if removal is not None and not removal.pending:
        refuse(
            Code.CONFLICT,
            f"{vm.name} is being removed.",
            "Nothing more can be done with it.",
            rule=19,
            event=next(iter(removal.events), None),
        )


def _must_not_be_too_many(draft: Draft, vms: list[Vm]) -> None:
    most = draft.timing.user_operations_max
    for scope in dict.fromkeys(vm.scope for vm in vms):
        waiting = draft.waiting_in_scope.get(scope, ())
        if len(waiting) < most:
            continue
        commands = {draft.operations[operation].request for operation in waiting}
        if len(commands) >= most:
            refuse(
                Code.TOO_MANY,
                f"{len(commands)} operations wait in {scope} already; at most {most} may.",
                "Approve or cancel some of them, or wait.",
                rule=17,
            )


def _operation_named(draft: Draft, target: str) -> Operation:
    event = draft.events.get(target.upper())
    operation = draft.operations.get(target if event is None else event.operation)
    if operation is None:
        refuse(
            Code.NOT_FOUND,
            f"There is no operation or event {target}.",
            "List the events.",
            rule=15,
        )
    return operation


def _must_be_allowed_to_cancel(draft: Draft, operation: Operation, command: Cancel) -> None:
    requester = draft.requests[operation.request].requester
    if command.by.role is Role.VM:
        refuse(
            Code.FORBIDDEN,
            "A VM cannot cancel what is announced to it.",
            "Ask whoever requested it, or an operator.",
            rule=15,
        )
    if command.by.role is not Role.OPERATOR and command.by != requester:
        refuse(
            Code.FORBIDDEN,
            f"{operation.id} was requested by {requester.name}.",
            "Only its requester or an operator may cancel it.",
            rule=15,
        )
