"""Rules 12, 14 and 20: what befell a VM without our doing, as a driver has seen it."""

from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import VmPowerChanged
from fairnotice.engine.commands import ReportVm
from fairnotice.engine.draft import Draft
from fairnotice.engine.leaving import move_vm, remove_vm, stop_vm
from fairnotice.engine.placement import why_closed
from fairnotice.engine.refusal import Code, refuse
from fairnotice.model import Vm
from fairnotice.words import Power


def report_vm(draft: Draft, command: ReportVm) -> Accepted:
    """Take the VM for what it was seen to be. Under impact, the impact says what it is."""
    vm = draft.vms.get(command.vm)
    if vm is None or vm.name in draft.impact_on_vm:
        return Accepted()
    if command.power is None:
        draft.warnings.append(f"{vm.name} is gone, and nobody here has asked for that.")
        remove_vm(draft, vm)
    elif command.power is vm.power and command.node in (None, vm.node):
        return Accepted()
    elif command.node is None or command.power is not Power.RUNNING:
        draft.warnings.append(f"{vm.name} was found {command.power}.")
        stop_vm(draft, vm, command.power, command.node)
    else:
        _arrive(draft, vm, command.node)
    return Accepted()


def _arrive(draft: Draft, vm: Vm, name: str) -> None:
    """It runs, and was stopped or elsewhere: it counts as running there from here on."""
    node = draft.nodes.get(name)
    closed = "is no node of this fleet" if node is None else why_closed(draft, node)
    if node is not None and not closed and vm.node != node.name:
        closed = "" if draft.used_slots(node.name) < node.capacity else "has no room"
    if closed:
        refuse(
            Code.CONFLICT,
            f"{vm.name} was found running on {name}, which {closed}.",
            "It is looked at again: move it, or return the node to service.",
            rule=14,
        )
    draft.warnings.append(f"{vm.name} was found running on {name}.")
    if vm.running:
        move_vm(draft, vm, name)
    else:
        found = vm._replace(power=Power.RUNNING, node=name)
        draft.record(VmPowerChanged(draft.now, found))
