"""Rules 12 and 20: what a VM that moves, stops or goes leaves behind."""

from collections.abc import Iterator

from fairnotice.engine.approval import ask_endpoints
from fairnotice.engine.changes import (
    EventResourcesChanged,
    OperationChanged,
    VmMoved,
    VmPowerChanged,
    VmRemoved,
)
from fairnotice.engine.draft import Draft
from fairnotice.engine.ending import (
    cancel_operation,
    end_operation,
    event_gone,
    remove_empty_scope,
    scheduled_events,
)
from fairnotice.engine.keeping import forget_kept, kept_name
from fairnotice.engine.transitions import Cause
from fairnotice.model import Operation, Vm
from fairnotice.words import OperationKind, Power, ScopeKind


def move_vm(draft: Draft, vm: Vm, node: str) -> None:
    """The VM is on another node now; operations on itself follow it."""
    draft.record(VmMoved(draft.now, vm._replace(node=node)))
    leave_nodes(draft, vm.name, f"{vm.name} has left {vm.node}")
    for operation in _pending(draft, vm.name):
        ask_endpoints(draft, operation)


def stop_vm(draft: Draft, vm: Vm, power: Power, node: str | None) -> None:
    """The VM does not run any more: it is in no event from now on."""
    draft.record(VmPowerChanged(draft.now, vm._replace(power=power, node=node)))
    reason = f"{vm.name} was {power}"
    leave_nodes(draft, vm.name, reason)
    for operation in _own_pending(draft, vm.name):
        if operation.kind in (OperationKind.DELETE, OperationKind.EVICTION):
            # Nobody is left to be told, so it need not wait: it goes on by rule 9.
            for event in scheduled_events(draft, operation):
                event_gone(draft, event, Cause.CANCELED, reason)
            draft.candidates[operation.id] = None
        else:
            cancel_operation(draft, operation, reason)


def remove_vm(draft: Draft, vm: Vm) -> None:
    """The VM is gone, and whatever was still to be done with it is canceled."""
    draft.record(VmRemoved(draft.now, vm))
    forget_kept(draft, kept_name(ScopeKind.STANDALONE, vm.name))
    reason = f"{vm.name} was removed"
    leave_nodes(draft, vm.name, reason)
    for operation in _own_pending(draft, vm.name):
        cancel_operation(draft, operation, reason)
    remove_empty_scope(draft, vm.scope)


def leave_nodes(draft: Draft, name: str, reason: str) -> None:
    """Leave every node operation that has not started and whose node the VM is no longer at."""
    for operation in _pending(draft, name):
        if operation.node is not None and not _is_at(draft, name, operation.node):
            _leave(draft, operation, name, reason)


def _is_at(draft: Draft, name: str, node: str) -> bool:
    """Whether the VM runs on the node or is on its way to it."""
    vm = draft.vms.get(name)
    if vm is None or not vm.running:
        return False
    return vm.node == node or name in draft.arriving_on_node.get(node, ())


def _leave(draft: Draft, operation: Operation, name: str, reason: str) -> None:
    rest = operation._replace(vms=tuple(vm for vm in operation.vms if vm != name))
    draft.record(OperationChanged(draft.now, rest))
    for event in scheduled_events(draft, rest):
        if name not in event.resources:
            continue
        resources = tuple(vm for vm in event.resources if vm != name)
        if resources:
            fewer = event._replace(resources=resources)
            draft.record(EventResourcesChanged(draft.now, fewer))
        else:
            event_gone(draft, event, Cause.CANCELED, reason)
    if rest.kind is OperationKind.PREDICTED_FAILURE and not rest.vms:
        end_operation(draft, rest, Cause.NOTHING_LEFT, reason)
    else:
        draft.candidates[rest.id] = None


def _pending(draft: Draft, name: str) -> Iterator[Operation]:
    for operation_id in draft.operations_on_vm.get(name, ()):
        operation = draft.operations[operation_id]
        if operation.pending:
            yield operation


def _own_pending(draft: Draft, name: str) -> Iterator[Operation]:
    """Operations on the VM itself that have not started."""
    return (operation for operation in _pending(draft, name) if operation.node is None)
