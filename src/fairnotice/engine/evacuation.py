"""Rule 23: empty a node, as far as there is room elsewhere."""

from fairnotice.engine.announce import Plan, checked_instant
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import EvacuationEnded
from fairnotice.engine.commands import Asked, NodeOperation
from fairnotice.engine.draft import Draft
from fairnotice.engine.nodes import (
    announce_on_node,
    check_duration,
    cordon_node,
    going_operations,
    is_under,
    must_keep_domains_apart,
    reachable_node,
    vms_hit,
)
from fairnotice.engine.placement import without_place
from fairnotice.engine.tables import Tables
from fairnotice.model import Node, Request, Vm
from fairnotice.words import OperationKind, OperationStatus


def evacuate(draft: Draft, command: NodeOperation) -> Accepted:
    """Cordon the node, and live-migrate what has a place elsewhere."""
    node = reachable_node(draft, command.node)
    check_duration(command.kind, command.duration_seconds)
    vms = vms_hit(draft, node.name)
    if not command.force:
        must_keep_domains_apart(draft, node, vms)
    pattern = Plan(
        id="",
        request=command.id,
        kind=command.kind,
        vms=(),
        asked_not_before=checked_instant(draft, command.kind, vms, command.not_before),
        forced=command.force,
    )
    return evacuate_node(draft, command, node, vms, pattern)


def evacuate_node(
    draft: Draft, command: Asked, node: Node, vms: list[Vm], pattern: Plan
) -> Accepted:
    """Cordon, then announce the move of those that have a place; the others are named."""
    cordon_node(draft, node)
    on_its_way = set(_already_leaving(draft, node.name))
    vms = [vm for vm in vms if vm.name not in on_its_way]
    lacking = {vm.name for vm in without_place(draft, vms)}
    moving = [vm for vm in vms if vm.name not in lacking]
    resting = [name for name in draft.vms_on_node.get(node.name, ()) if not draft.vms[name].running]
    left = (*(vm.name for vm in vms if vm.name in lacking), *resting)
    answer = announce_on_node(draft, command, node, moving, pattern, left=left)
    if not answer.operations:
        _conclude(draft, draft.requests[pattern.request])
    return answer


def _already_leaving(draft: Draft, node: str) -> list[str]:
    """VMs that an earlier evacuation of the node moves: a repeat takes only the others."""
    return [
        vm
        for operation in going_operations(draft, node, OperationKind.EVACUATION)
        for vm in operation.vms
        if operation.pending or is_under(draft, operation, vm)
    ]


def follow(draft: Draft) -> None:
    """Note the evacuations whose last operation this decision has brought to its end."""
    for name in draft.ended_operations:
        operation = draft.operations[name]
        if operation.kind is OperationKind.EVACUATION:
            _conclude(draft, draft.requests[operation.request])


def _conclude(draft: Draft, request: Request) -> None:
    if request.ended_at is None and is_over(draft, request):
        operations = [draft.operations[name] for name in request.operations]
        failed = any(operation.status is not OperationStatus.COMPLETED for operation in operations)
        ended = request._replace(ended_at=draft.now, incomplete=bool(request.left) or failed)
        draft.record(EvacuationEnded(draft.now, ended))


def is_over(tables: Tables, request: Request) -> bool:
    """Whether every operation of a request has ended."""
    return all(not tables.operations[operation].live for operation in request.operations)
