"""Rules 15 to 20: what users ask of their VMs, and taking it back."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from fairnotice.engine.announce import (
    Plan,
    checked_instant,
    guid,
    is_automatic,
    is_told,
    least_notice,
    plan,
)
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import RequestAccepted
from fairnotice.engine.commands import (
    Asked,
    Cancel,
    Delete,
    Evict,
    Keyed,
    OnVms,
    Redeploy,
    Restart,
    ScaleIn,
)
from fairnotice.engine.describing import must_be_as_read
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.ending import cancel_operation
from fairnotice.engine.keeping import kept_name
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.placement import must_have_places
from fairnotice.engine.refusal import Code, misfit, refuse
from fairnotice.engine.removing import removals, staying
from fairnotice.engine.start import is_busy, queue
from fairnotice.model import Operation, Request, Vm
from fairnotice.words import (
    EventSource,
    OperationKind,
    Power,
    Priority,
    Role,
    ScopeKind,
)

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
    must_have_places(draft, vms)
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
    vms = named_vms(draft, command)
    for vm in vms:
        must_be_as_read(draft, kept_name(ScopeKind.STANDALONE, vm.name), command.expected)
    return _ask(draft, command, OperationKind.DELETE, vms)


def scale_in(draft: Draft, command: ScaleIn) -> Accepted:
    """Delete the last declared instances of a scale set that are not being removed already."""
    scale_set = draft.scale_sets.get(command.scale_set)
    if scale_set is None:
        refuse(
            Code.NOT_FOUND, f"There is no scale set {command.scale_set}.", "List the scale sets."
        )
    instances = staying(draft, scale_set)
    if not 0 < command.count <= len(instances):
        remedy = f"Give a count from 1 to {len(instances)}." if instances else "Leave it as it is."
        misfit("count", f"{scale_set.name} has {len(instances)} instances that can go.", remedy)
    return _ask(draft, command, OperationKind.DELETE, instances[-command.count :])


def cancel(draft: Draft, command: Cancel) -> Accepted:
    """Take back what has not started: an operation, or what is left of a whole request."""
    operations = _operations_named(draft, command.target)
    _must_be_allowed_to_cancel(draft, operations[0], command)
    pending = [operation for operation in operations if operation.pending]
    started = [operation for operation in operations if operation.started_at is not None]
    if started and not pending:
        over = started[0].ended_at is not None
        refuse(
            Code.CONFLICT,
            f"{started[0].id} has started and cannot be taken back.",
            "It is over already." if over else "Wait until it is over.",
            rule=15,
            event=next(iter(started[0].events), None),
            operation=started[0].id,
        )
    for operation in pending:
        cancel_operation(draft, operation, f"canceled by {command.by.name}")
    for operation in started:
        what = "has started and goes on" if operation.ended_at is None else "is over already"
        draft.warnings.append(f"{operation.id} {what}: it is not taken back.")
    return Accepted(
        operations=tuple(operation.id for operation in operations),
        events=tuple(event for operation in operations for event in operation.events),
    )


# ---- What they have in common ----


def named_vms(draft: Draft, command: OnVms) -> list[Vm]:
    """The VMs a command names, each of which must be there."""
    if not command.vms:
        misfit("vms", "No VM was named.", "Name at least one.")
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
    repeats: tuple[str, ...] = (),
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
        repeats=repeats,
        idempotency_key=command.idempotency_key,
        fingerprint=fingerprint(command),
    )
    _write_down(draft, request)
    for planned in plans:
        plan(draft, planned)
    return answer_again(draft, request)


def _write_down(draft: Draft, request: Request) -> None:
    draft.record(RequestAccepted(draft.now, request))
    if not request.operations:
        forgotten_at = draft.now + timedelta(seconds=draft.timing.remembered_seconds)
        draft.wake(forgotten_at, Matter.REQUEST, request.id)


def accept_repeat(
    draft: Draft, command: Asked, kind: OperationKind, repeats: tuple[str, ...] = ()
) -> Accepted:
    """Accept what changes nothing. Only an idempotency key has to be remembered (rule 19)."""
    if command.idempotency_key is not None:
        return accept(draft, command, kind, [], repeats=repeats)
    operations = [draft.operations[name] for name in repeats]
    events = tuple(event for operation in operations for event in operation.events)
    return Accepted(operations[0].request if operations else None, repeats, events)


def remember(draft: Draft, command: Keyed, answer: Accepted) -> Accepted:
    """Keep the key of what made no operation, and what was answered (rule 19)."""
    request = Request(
        id=command.id,
        kind=None,
        requester=command.by,
        asked_at=draft.now,
        operations=(),
        repeats=answer.operations,
        idempotency_key=command.idempotency_key,
        fingerprint=fingerprint(command),
        events=answer.events,
        rollout=answer.request,
    )
    _write_down(draft, request)
    return answer


def fingerprint(command: Asked) -> str:
    """What an idempotency key stands for: all of the command but its id."""
    if command.idempotency_key is None:
        return ""
    return guid(repr(replace(command, id="")))


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
    repeats = tuple(first.id for first in firsts)
    if not fresh:
        return accept_repeat(draft, command, kind, repeats)
    if KINDS[kind].source is EventSource.USER:
        waiting = [vm for vm in fresh if asked_not_before or not _acts_at_once(draft, kind, vm)]
        _must_not_be_too_many(draft, waiting)
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
    return accept(draft, command, kind, plans, repeats=repeats)


def answer_again(draft: Draft, request: Request) -> Accepted:
    """The answer to a request, given again (rule 19). What is long over is left out."""
    if request.kind is None:
        return Accepted(request.rollout, request.repeats, request.events)
    names = (*request.repeats, *request.operations)
    operations = [draft.operations[name] for name in names if name in draft.operations]
    events = tuple(event for operation in operations for event in operation.events)
    return Accepted(request.id, names, events, request.left)


def _repeated(draft: Draft, kind: OperationKind, vm: Vm) -> Operation | None:
    """The live delete or eviction that a second one would only repeat."""
    same = (removal for removal in removals(draft, vm.name) if removal.kind is kind)
    return next(same, None)


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
    for removal in removals(draft, vm.name):
        if not removal.pending:
            refuse(
                Code.CONFLICT,
                f"{vm.name} is being removed.",
                "Nothing more can be done with it.",
                rule=19,
                event=next(iter(removal.events), None),
                operation=removal.id,
            )


def _acts_at_once(draft: Draft, kind: OperationKind, vm: Vm) -> bool:
    """Nobody is told, the VM is free and nobody is first: it need not wait."""
    free = not is_busy(draft, vm.name) and not any(queue(draft, vm.name))
    automatic = is_automatic(draft.scopes[vm.scope], KINDS[kind])
    return free and (automatic or not is_told(draft, kind, vm))


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
                f"{len(commands)} requests wait in {scope} already; at most {most} may.",
                "Approve or cancel some of them, or wait.",
                rule=17,
            )


def _operations_named(draft: Draft, target: str) -> list[Operation]:
    """The operation of this id or of this event, or all those of this request."""
    event = draft.events.get(target.upper())
    request = draft.requests.get(target)
    names: tuple[str, ...] = (target,) if event is None else (event.operation,)
    names = names if request is None else request.operations
    operations = [draft.operations[name] for name in names if name in draft.operations]
    if not operations:
        refuse(
            Code.NOT_FOUND,
            f"There is no operation or event {target}.",
            "List the events.",
            rule=15,
        )
    return operations


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
            operation=operation.id,
        )
