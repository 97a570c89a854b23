"""Rules 4, 13 and 22: what operators do to a node, and what befalls it."""

from collections.abc import Sequence

from fairnotice.engine import impacts
from fairnotice.engine.announce import Plan, by_domain, by_event, checked_instant, least_notice
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import (
    NodeCordoned,
    NodeFailed,
    NodeReached,
    NodeReturned,
    VmMoved,
)
from fairnotice.engine.commands import (
    Asked,
    Cordon,
    FailNode,
    NodeOperation,
    PredictFailure,
    ReportReachable,
    Uncordon,
)
from fairnotice.engine.domains import in_the_way, two_domains
from fairnotice.engine.draft import Draft
from fairnotice.engine.ending import cancel_operation, impact_key, wake_rollouts
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.placement import warn_of_no_place
from fairnotice.engine.refusal import Code, misfit, refuse
from fairnotice.engine.start import start
from fairnotice.engine.transitions import Cause
from fairnotice.engine.users import accept, accept_repeat, operation_ids
from fairnotice.model import Node, Operation, Vm
from fairnotice.words import EventType, NodeHealth, OperationKind

DEFAULT_FREEZE_SECONDS = 9
FREEZE_SECONDS_MAX = 3600


def named_node(draft: Draft, name: str) -> Node:
    """The node of this name."""
    node = draft.nodes.get(name)
    if node is None:
        refuse(Code.NOT_FOUND, f"There is no node {name}.", "List the nodes.")
    return node


def node_operation(draft: Draft, command: NodeOperation) -> Accepted:
    """Maintain, migrate or repair one node."""
    node = reachable_node(draft, command.node)
    vms = vms_hit(draft, node.name)
    check_duration(command.kind, command.duration_seconds)
    if not command.force and command.kind is not OperationKind.REPAIR:
        must_keep_domains_apart(draft, node, vms)
    return announce_on_node(
        draft,
        command,
        node,
        vms,
        Plan(
            id="",
            request=command.id,
            kind=command.kind,
            vms=(),
            asked_not_before=checked_instant(draft, command.kind, vms, command.not_before),
            duration_seconds=expected_seconds(command.kind, command.duration_seconds),
            forced=command.force,
        ),
    )


def predict_failure(draft: Draft, command: PredictFailure) -> Accepted:
    """Cordon the node and move its VMs away in time; each event by its own approval."""
    node = reachable_node(draft, command.node)
    predicted = going_operations(draft, node.name, OperationKind.PREDICTED_FAILURE)
    if predicted:
        repeats = draft.requests[predicted[0].request].operations
        return accept_repeat(draft, command, OperationKind.PREDICTED_FAILURE, repeats)
    if (command.risk is None) == (command.not_before is None):
        misfit("not_before", "A prediction has either a risk or a not_before.", "Give one of them.")
    vms = vms_hit(draft, node.name)
    kind = OperationKind.PREDICTED_FAILURE
    asked = checked_instant(draft, kind, vms, command.not_before)
    notice_seconds = draft.timing.notice_seconds[EventType.REDEPLOY]
    if command.risk is not None:
        notice_seconds = max(notice_seconds, draft.timing.risk_seconds[command.risk])
    cordon_node(draft, node)
    plan = Plan(
        id="",
        request=command.id,
        kind=kind,
        vms=(),
        notice_seconds=notice_seconds,
        asked_not_before=asked,
    )
    return announce_on_node(draft, command, node, vms, plan)


def announce_on_node(
    draft: Draft,
    command: Asked,
    node: Node,
    vms: Sequence[Vm],
    pattern: Plan,
    *,
    left: tuple[str, ...] = (),
) -> Accepted:
    """One operation for all VMs, or one for each event where the kind wants them apart."""
    groups: list[list[Vm]] = [list(vms)]
    if KINDS[pattern.kind].apart:
        groups = by_event(vms, node.name)
    ids = operation_ids(pattern.request, len(groups))
    plans = []
    for operation_id, group in zip(ids, groups, strict=True):
        least = max((least_notice(draft, pattern.kind, vm) for vm in group), default=0)
        plans.append(
            pattern._replace(
                id=operation_id,
                vms=tuple(group),
                node=node.name,
                notice_seconds=max(pattern.notice_seconds, least),
            )
        )
    answer = accept(draft, command, pattern.kind, plans, node=node.name, left=left)
    # An evacuation announces nothing for those that it leaves.
    if KINDS[pattern.kind].moves and pattern.kind is not OperationKind.EVACUATION:
        warn_of_no_place(draft, vms)
    return answer


def fail_node(draft: Draft, command: FailNode) -> Accepted:
    """The node is gone: that overrides all that was announced or under way there."""
    node = named_node(draft, command.node)
    if node.health is NodeHealth.FAILED:
        return accept_repeat(draft, command, OperationKind.FAILURE)
    reason = f"{node.name} failed"
    draft.record(NodeFailed(draft.now, node._replace(health=NodeHealth.FAILED)))
    _end_what_is_there(draft, node.name, reason)
    hit = [vm for vm in _vms_on(draft, node.name) if vm.running]
    for vm in _vms_on(draft, node.name):
        if not vm.running:
            draft.record(VmMoved(draft.now, vm._replace(node=None)))
            draft.consider(draft.operations_on_vm.get(vm.name, ()))
    wake_rollouts(draft, node.name)
    planned = Plan(command.id, command.id, OperationKind.FAILURE, tuple(hit), node=node.name)
    answer = accept(draft, command, OperationKind.FAILURE, [planned], node=node.name)
    # Unannounced, and ahead of all that waits: its events appear already Started.
    start(draft, draft.operations[command.id])
    return Accepted(answer.request, answer.operations, draft.operations[command.id].events)


def _end_what_is_there(draft: Draft, node: str, reason: str) -> None:
    """Cancel what is Scheduled for the node, fail what is under way on it or on its way to it."""
    for operation_id in draft.operations_on_node.get(node, ()):
        operation = draft.operations[operation_id]
        if operation.pending:
            cancel_operation(draft, operation, reason)
    there = (*draft.vms_on_node.get(node, ()), *draft.arriving_on_node.get(node, ()))
    for name in there:
        key = draft.impact_on_vm.get(name)
        if key is not None:
            impacts.end(draft, draft.impacts[key], Cause.FAILED, reason)


def cordon(draft: Draft, command: Cordon) -> Accepted:
    """Put nothing on this node any more."""
    cordon_node(draft, named_node(draft, command.node))
    return Accepted()


def cordon_node(draft: Draft, node: Node) -> None:
    """Put nothing on this node any more; twice is as good as once."""
    if not node.cordoned:
        draft.record(NodeCordoned(draft.now, node._replace(cordoned=True)))


def uncordon(draft: Draft, command: Uncordon) -> Accepted:
    """Return a cordoned or failed node to service."""
    node = reachable_node(draft, command.node, although_failed=True)
    if node.cordoned or node.health is NodeHealth.FAILED:
        back = node._replace(cordoned=False, health=NodeHealth.REACHABLE)
        draft.record(NodeReturned(draft.now, back))
        wake_rollouts(draft, node.name)
    return Accepted()


def report_reachable(draft: Draft, command: ReportReachable) -> Accepted:
    """A node came or went out of reach. That alone never makes it failed."""
    node = named_node(draft, command.node)
    health = NodeHealth.REACHABLE if command.reachable else NodeHealth.UNREACHABLE
    if node.health is not NodeHealth.FAILED and node.health is not health:
        draft.record(NodeReached(draft.now, node._replace(health=health)))
        for name in draft.vms_on_node.get(node.name, ()):
            draft.consider(draft.operations_on_vm.get(name, ()))
        wake_rollouts(draft, node.name)
    return Accepted()


# ---- What they have in common ----


def vms_hit(draft: Draft, node: str) -> list[Vm]:
    """The running VMs of a node, and those on their way to it: what befalls it hits them too."""
    names = (*draft.vms_on_node.get(node, ()), *draft.arriving_on_node.get(node, ()))
    vms = [draft.vms[name] for name in names]
    return [vm for vm in vms if vm.running]


def going_operations(draft: Draft, node: str, kind: OperationKind) -> list[Operation]:
    """Operations of this kind on a node that are still to do something, not only to settle."""
    live = [draft.operations[name] for name in draft.operations_on_node.get(node, ())]
    return [
        operation
        for operation in live
        if operation.kind is kind
        and (operation.pending or any(is_under(draft, operation, vm) for vm in operation.vms))
    ]


def is_under(draft: Draft, operation: Operation, vm: str) -> bool:
    """Whether this operation is doing something to this VM now."""
    return draft.impact_on_vm.get(vm) == impact_key(operation.id, vm)


def _vms_on(draft: Draft, node: str) -> list[Vm]:
    return [draft.vms[name] for name in draft.vms_on_node.get(node, ())]


def reachable_node(draft: Draft, name: str, *, although_failed: bool = False) -> Node:
    """The node of this name, if something can be done there."""
    node = named_node(draft, name)
    failed = node.health is NodeHealth.FAILED
    if node.health is NodeHealth.UNREACHABLE or (failed and not although_failed):
        remedy = "Uncordon it once it is repaired." if failed else "Wait until it is back."
        refuse(Code.CONFLICT, f"{name} is {node.state}.", remedy, rule=13)
    return node


def must_keep_domains_apart(draft: Draft, node: Node, vms: Sequence[Vm]) -> None:
    """Rule 22 for a single node: no second domain of a scope, unless forced."""
    meeting = two_domains(vms)
    if meeting is not None:
        refuse(
            Code.CONFLICT,
            f"{node.name} holds two update domains of {meeting.scope}.",
            f"Redeploy {meeting.name} first, which moves it elsewhere, or force it.",
            rule=22,
        )
    obstacle = in_the_way(draft, node, by_domain(vms))
    if obstacle is not None:
        scope, other = obstacle
        events = [event for event in other.events if draft.events[event].scope == scope]
        event = next(iter(events), None)
        refuse(
            Code.CONFLICT,
            f"{other.kind} on {other.node} has another domain of {scope}.",
            f"Wait for {event or other.id}, or force it.",
            rule=22,
            event=event,
            operation=other.id,
        )


def check_duration(kind: OperationKind, duration_seconds: int | None) -> None:
    """Only a host update says how long it pauses the VMs."""
    if duration_seconds is None:
        return
    if kind is not OperationKind.HOST_UPDATE or not 0 <= duration_seconds <= FREEZE_SECONDS_MAX:
        misfit(
            "duration_seconds",
            "duration_seconds is the expected pause of a freeze, 0 for none.",
            f"Leave it out, or give 0 to {FREEZE_SECONDS_MAX} with a freeze.",
        )


def expected_seconds(kind: OperationKind, asked: int | None) -> int | None:
    """The expected pause to announce; None for what the table of kinds says."""
    if kind is OperationKind.HOST_UPDATE:
        return DEFAULT_FREEZE_SECONDS if asked is None else asked
    return None
