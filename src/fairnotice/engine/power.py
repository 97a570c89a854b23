"""Rule 20: stop, start and deallocate act at once and make no event."""

from fairnotice.engine.announce import Plan
from fairnotice.engine.answers import Accepted
from fairnotice.engine.commands import Deallocate, OnVms, Start, Stop
from fairnotice.engine.draft import Draft
from fairnotice.engine.placement import NAMED_MAX, must_have_places, why_closed
from fairnotice.engine.refusal import Code, refuse
from fairnotice.engine.start import start as start_operation
from fairnotice.engine.users import accept, accept_repeat, named_vms, operation_ids
from fairnotice.model import Impact, Vm
from fairnotice.words import NodeHealth, OperationKind, Power


def stop(draft: Draft, command: Stop) -> Accepted:
    """Stop these VMs where they are. A VM counts as running until the driver has stopped it."""
    running = [vm for vm in _free_vms(draft, command) if vm.running]
    return _act(draft, command, OperationKind.STOP, running)


def deallocate(draft: Draft, command: Deallocate) -> Accepted:
    """Stop these VMs and give up their places."""
    placed = [vm for vm in _free_vms(draft, command) if vm.power is not Power.DEALLOCATED]
    return _act(draft, command, OperationKind.DEALLOCATE, placed)


def start(draft: Draft, command: Start) -> Accepted:
    """Start these VMs, placing those without a node. A VM counts as running from here on."""
    resting = [vm for vm in _free_vms(draft, command) if not vm.running]
    for vm in resting:
        _must_be_open(draft, vm)
    must_have_places(draft, [vm for vm in resting if vm.node is None])
    return _act(draft, command, OperationKind.START, resting)


def _act(draft: Draft, command: OnVms, kind: OperationKind, vms: list[Vm]) -> Accepted:
    """One operation per VM that starts at once, ahead of all that waits for the VM."""
    _say_what_is_so(draft, command, vms)
    if not vms:
        return accept_repeat(draft, command, kind)
    plans = [
        Plan(id=operation_id, request=command.id, kind=kind, vms=(vm,))
        for operation_id, vm in zip(operation_ids(command.id, len(vms)), vms, strict=True)
    ]
    answer = accept(draft, command, kind, plans)
    for operation in answer.operations:
        start_operation(draft, draft.operations[operation])
    return answer


def _say_what_is_so(draft: Draft, command: OnVms, vms: list[Vm]) -> None:
    """Of the others nothing is asked, which whoever has just pulled a plug would not expect."""
    acted = {vm.name for vm in vms}
    others = [name for name in dict.fromkeys(command.vms) if name not in acted]
    for name in others[:NAMED_MAX]:
        power = draft.vms[name].power
        draft.warnings.append(f"{name} is {power} already, as far as is known: nothing is done.")
    if len(others) > NAMED_MAX:
        draft.warnings.append(f"Nor is anything done to {len(others) - NAMED_MAX} more.")


def _free_vms(draft: Draft, command: OnVms) -> list[Vm]:
    """The VMs named, none of which may be under impact or out of reach."""
    vms = named_vms(draft, command)
    for vm in vms:
        key = draft.impact_on_vm.get(vm.name)
        if key is not None:
            _refuse_busy(draft, draft.impacts[key])
        if vm.node is not None and draft.nodes[vm.node].health is NodeHealth.UNREACHABLE:
            refuse(
                Code.CONFLICT,
                f"{vm.name} is on {vm.node}, which cannot be reached.",
                "Wait until it is back, or fail the node if it is surely down.",
                rule=13,
            )
    return vms


def _refuse_busy(draft: Draft, impact: Impact) -> None:
    operation = draft.operations[impact.operation]
    refuse(
        Code.CONFLICT,
        f"{impact.vm} is under impact: {impact.kind}.",
        "Wait until it is over.",
        rule=20,
        event=next(iter(operation.events), None),
        operation=operation.id,
    )


def _must_be_open(draft: Draft, vm: Vm) -> None:
    """A VM that starts where it stopped is put there anew: the same nodes are closed to it."""
    closed = "" if vm.node is None else why_closed(draft, draft.nodes[vm.node])
    if closed:
        refuse(
            Code.CONFLICT,
            f"{vm.name} cannot be started: {vm.node} {closed}.",
            "Wait, or deallocate it first so that it is placed elsewhere.",
            rule=14,
        )
