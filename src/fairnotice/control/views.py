"""From the fleet's rows to what the control plane shows."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from fairnotice.control import shapes
from fairnotice.engine import Fleet
from fairnotice.engine.answers import Accepted, Decision, Forecast
from fairnotice.engine.approval import held_by
from fairnotice.engine.changes import OperationPlanned
from fairnotice.engine.draft import Draft
from fairnotice.engine.ending import impact_key
from fairnotice.engine.impacts import impact_kind
from fairnotice.engine.notice import least_notice_seconds
from fairnotice.engine.rollout import look_at_node
from fairnotice.metadata.faults import MEANINGS, FaultKind, On
from fairnotice.model import (
    Event,
    Impact,
    Moment,
    Node,
    Operation,
    Rollout,
    RolloutNode,
    ScaleSet,
    Scope,
    Vm,
)
from fairnotice.wire.instance import computer_name
from fairnotice.words import (
    EventType,
    ImpactKind,
    ImpactStatus,
    RolloutNodeStatus,
    RolloutStatus,
    ScopeKind,
)

# Of a rollout, so many nodes are told why they wait; the others wait for those.
WAITING_TOLD_MAX = 1_000


def vm(fleet: Fleet, row: Vm) -> shapes.Vm:
    """A VM as it is now."""
    node = None if row.node is None else fleet.nodes[row.node]
    impact = fleet.impact_on_vm.get(row.name)
    events = fleet.events_in_scope.get(row.scope, ())
    return shapes.Vm(
        name=row.name,
        computer_name=computer_name(row, fleet.scopes[row.scope]),
        scope=row.scope,
        node=row.node,
        fault_domain=None if node is None else node.fault_domain,
        update_domain=row.update_domain,
        power=row.power,
        priority=row.priority,
        eviction_policy=row.eviction_policy,
        addresses=list(row.addresses),
        network=row.network,
        resource_group=row.resource_group,
        zone=row.zone,
        tags=dict(row.tags),
        impact=None if impact is None else fleet.impacts[impact].kind,
        events=[name for name in events if row.name in fleet.events[name].resources],
    )


def node(fleet: Fleet, row: Node) -> shapes.Node:
    """A node as it is now."""
    vms = list(fleet.vms_on_node.get(row.name, ()))
    return shapes.Node(
        name=row.name,
        state=row.state,
        cordoned=row.cordoned,
        fault_domain=row.fault_domain,
        capacity=row.capacity,
        used=fleet.used_slots(row.name),
        vms=vms,
        stopped=[name for name in vms if not fleet.vms[name].running],
        operations=list(fleet.operations_on_node.get(row.name, ())),
        endpoint=row.name in fleet.endpoints,
    )


def scope(fleet: Fleet, row: Scope) -> shapes.Scope:
    """A scope as it is now."""
    return shapes.Scope(
        name=row.name,
        kind=row.kind,
        resource_group=row.resource_group,
        vms=list(fleet.vms_in_scope.get(row.name, ())),
        enabled=row.enabled,
        heard_at=row.heard_at,
        incarnation=row.incarnation,
        automatically_approve=list(row.automatically_approve),
        events=list(fleet.events_in_scope.get(row.name, ())),
    )


def scale_set(fleet: Fleet, row: ScaleSet) -> shapes.ScaleSet:
    """A scale set and its instances."""
    scopes = (
        one.name
        for one in fleet.scopes.values()
        if one.kind is ScopeKind.PLACEMENT_GROUP and one.of == row.name
    )
    minutes = row.terminate_notice_minutes
    return shapes.ScaleSet(
        name=row.name,
        priority=row.priority,
        terminate_notice_minutes=minutes,
        terminate_notice_seconds=(
            None
            if minutes is None
            else least_notice_seconds(fleet.timing, EventType.TERMINATE, minutes)
        ),
        placement_groups=row.placement_groups,
        resource_group=row.resource_group,
        vms=[name for one in scopes for name in fleet.vms_in_scope.get(one, ())],
    )


def event(fleet: Fleet, row: Event) -> shapes.Event:
    """An event, in whatever state."""
    approvals = [] if row.approval is None else [shapes.Approval(**row.approval._asdict())]
    seen_by = {seen.vm for seen in row.seen}
    return shapes.Event(
        id=row.id,
        type=row.type,
        status=row.status,
        source=row.source,
        resources=list(row.resources),
        not_before=row.not_before,
        description=row.description,
        duration_seconds=row.duration_seconds,
        scope=row.scope,
        operation=row.operation,
        node=row.node,
        update_domain=row.update_domain,
        announced_at=row.announced_at,
        started_at=row.started_at,
        gone_at=row.gone_at,
        # What appeared Started was promised none; NotBefore is what everybody else was.
        notice_seconds=(
            (row.not_before - row.announced_at).total_seconds() if row.notice_seconds else 0.0
        ),
        notice_given_seconds=row.notice_given_seconds,
        approvals=approvals,
        seen=[shapes.Seen(vm=seen.vm, at=seen.at) for seen in row.seen],
        never_seen=[name for name in row.resources if name not in seen_by],
        reason=row.reason,
        unconfirmed=list(held_by(row)) if row.scheduled else [],
        failed=[name for name in row.resources if _has_failed(fleet, row.operation, name)],
    )


def _has_failed(fleet: Fleet, operation: str, vm: str) -> bool:
    impact = fleet.impacts.get(impact_key(operation, vm))
    return impact is not None and impact.status in (ImpactStatus.FAILED, ImpactStatus.TIMED_OUT)


def operation(fleet: Fleet, row: Operation) -> shapes.Operation:
    """An operation, and what it does to each VM."""
    keys = (impact_key(row.id, name) for name in row.vms)
    return shapes.Operation(
        id=row.id,
        request=row.request,
        kind=row.kind,
        status=row.status,
        requested_by=_requested_by(fleet, row),
        vms=list(row.vms),
        node=row.node,
        asked_at=row.asked_at,
        not_before=row.not_before,
        started_at=row.started_at,
        ended_at=row.ended_at,
        events=list(row.events),
        impacts=[_impact(fleet.impacts[key]) for key in keys if key in fleet.impacts],
        rollout=row.rollout,
        reason=row.reason,
        unconfirmed=_unconfirmed(fleet, row),
    )


def _unconfirmed(fleet: Fleet, row: Operation) -> list[str]:
    events = (fleet.events.get(name) for name in row.events)
    scheduled = (one for one in events if one is not None and one.scheduled)
    return list(dict.fromkeys(node for one in scheduled for node in held_by(one)))


def _requested_by(fleet: Fleet, row: Operation) -> str:
    request = fleet.requests.get(row.request)
    return "" if request is None else request.requester.name


def _impact(row: Impact) -> shapes.Impact:
    return shapes.Impact(
        vm=row.vm,
        kind=row.kind,
        status=row.status,
        source=row.source,
        target=row.target,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        reason=row.reason,
    )


def canceled_nodes(fleet: Fleet) -> Counter[str]:
    """How many nodes of each rollout are canceled; the law counts them with those skipped."""
    canceled = RolloutNodeStatus.CANCELED
    return Counter(one.rollout for one in fleet.rollout_nodes.values() if one.status is canceled)


def rollout(
    fleet: Fleet, row: Rollout, canceled_count: int, now: Moment | None = None
) -> shapes.Rollout:
    """A rollout; where it is asked for as it is now, with each of its nodes."""
    return shapes.Rollout(
        id=row.id,
        kind=row.kind,
        status=row.status,
        requested_by=row.requester.name,
        asked_at=row.asked_at,
        ended_at=row.ended_at,
        node_count=row.node_count,
        live_count=row.live_count,
        done_count=row.done_count,
        failed_count=row.failed_count,
        skipped_count=row.skipped_count - canceled_count,
        canceled_count=canceled_count,
        nodes_at_once_max=row.nodes_at_once_max,
        failure_budget=row.failure_budget,
        recovery_seconds=row.recovery_seconds,
        windows=[shapes.WindowBody(list(one[0]), *one[1:]) for one in row.windows],
        reason=row.reason,
        nodes=[] if now is None else _rollout_nodes(fleet, row, now),
    )


def _rollout_nodes(fleet: Fleet, row: Rollout, now: Moment) -> list[shapes.RolloutNode]:
    mine = (one for one in fleet.rollout_nodes.values() if one.rollout == row.id)
    nodes = sorted(mine, key=lambda one: one.position)
    # Only read, and thrown away: the law says why a node waits, and it reads drafts.
    draft = Draft(fleet, now)
    told = 0
    shown: list[shapes.RolloutNode] = []
    for one in nodes:
        reason = one.reason
        if one.status is RolloutNodeStatus.PENDING:
            reason = _why_pending(draft, row, one) if told < WAITING_TOLD_MAX else ""
            told += 1
        shown.append(
            shapes.RolloutNode(
                node=one.node, status=one.status, waits_for=one.waits_for, reason=reason
            )
        )
    return shown


def _why_pending(draft: Draft, row: Rollout, node: RolloutNode) -> str:
    """Why a rollout has not taken this node yet."""
    if row.status is not RolloutStatus.RUNNING:
        return f"the rollout is {row.status}"
    why = look_at_node(draft, row, node.node).why
    return why or f"waits for its turn: {row.nodes_at_once_max} at once"


def accepted(fleet: Fleet, decision: Decision) -> shapes.Accepted:
    """What came of a command."""
    answer = decision.answer
    assert isinstance(answer, Accepted)
    return shapes.Accepted(
        id=answer.request,
        operations=list(answer.operations),
        events=[event(fleet, fleet.events[name]) for name in answer.events if name in fleet.events],
        left=list(answer.left),
        warnings=list(decision.warnings),
    )


def impacts_planned(fleet: Fleet, decision: Decision) -> set[ImpactKind]:
    """What is going to be done to VMs by the operations that this decision plans."""
    return {
        impact_kind(change.row, vm)
        for change in decision.changes
        if isinstance(change, OperationPlanned)
        for name in change.row.vms
        if (vm := fleet.vms.get(name)) is not None
    }


def forecast(decision: Decision) -> shapes.Forecast:
    """What a rollout would do."""
    answer = decision.answer
    assert isinstance(answer, Forecast)
    return shapes.Forecast(
        order=[
            shapes.ForecastNode(node=one.node, announced_at=one.announced_at, over_at=one.over_at)
            for one in answer.order
        ],
        in_the_way=[shapes.InTheWay(node=one.node, why=one.why) for one in answer.in_the_way],
        ends_at=answer.ends_at,
        warnings=list(decision.warnings),
    )


def fault(on: On) -> shapes.FaultOn:
    """A fault that is on."""
    found, lasts = on.fault, on.fault.for_seconds
    return shapes.FaultOn(
        id=found.id,
        fault=found.kind,
        vm=found.vm,
        seconds=found.seconds,
        since=on.since,
        ends_at=None if lasts is None else on.since + timedelta(seconds=lasts),
    )


def fault_meanings(spoiled: Mapping[FaultKind, int]) -> list[shapes.FaultMeaning]:
    """Every kind of fault, and how many answers it has spoiled."""
    return [
        shapes.FaultMeaning(
            fault=kind,
            sentence=meaning.sentence,
            seconds=meaning.seconds,
            seconds_mean=meaning.seconds_mean,
            spoiled=spoiled.get(kind, 0),
        )
        for kind, meaning in MEANINGS.items()
    ]
