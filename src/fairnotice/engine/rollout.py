"""Rule 22: which node is next.

A rollout of ten thousand nodes looks for its next ones ten thousand times. So a node that has to
wait for a scope is parked with it, and looked at again only when that scope is left in peace.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.engine import windows
from fairnotice.engine.announce import Domain, Plan, by_domain, guid, is_told, least_notice
from fairnotice.engine.changes import RolloutNodeChanged
from fairnotice.engine.commands import Asked
from fairnotice.engine.domains import in_the_way, two_domains
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.evacuation import evacuate_node
from fairnotice.engine.nodes import announce_on_node, vms_hit
from fairnotice.engine.rollout_nodes import move_node, node_over
from fairnotice.engine.transitions import Cause
from fairnotice.model import Node, Rollout, RolloutNode, Vm
from fairnotice.words import NodeHealth, OperationKind, RolloutStatus


class Verdict(NamedTuple):
    """Whether a node can be taken now; else why not, for which scope it waits, until when."""

    cause: Cause | None = None
    why: str = ""
    scope: str = ""
    until: datetime | None = None
    unreachable: bool = False


GO = Verdict(Cause.TAKEN)


def look_at_rollout(draft: Draft, rollout_id: str) -> None:
    """Take as many nodes as may be taken now, of those that wait for no scope."""
    if rollout_id not in draft.rollouts:
        return
    for name in draft.fleet.pending_nodes.get(rollout_id, ()):
        if not _has_room(draft, rollout_id):
            return
        _look_at_row(draft, draft.rollout_nodes[rollout_id, name])


def look_at_parked(draft: Draft, rollout_id: str, scope: str) -> None:
    """Look again at the nodes of a rollout that waited for this scope."""
    for rollout, name in draft.fleet.parked_nodes.get(scope, ()):
        if rollout == rollout_id:
            _look_at_row(draft, draft.rollout_nodes[rollout_id, name])


def _has_room(draft: Draft, rollout_id: str) -> bool:
    rollout = draft.rollouts[rollout_id]
    running = rollout.status is RolloutStatus.RUNNING
    return running and rollout.live_count < rollout.nodes_at_once_max


def _look_at_row(draft: Draft, row: RolloutNode) -> None:
    """Take the node, park it, or have done with it."""
    rollout = draft.rollouts[row.rollout]
    verdict = look_at_node(draft, rollout, row.node)
    if verdict.cause is Cause.TAKEN and _has_room(draft, rollout.id):
        _take(draft, rollout, row)
    elif verdict.cause in (Cause.NODE_FAILED, Cause.SKIPPED):
        move_node(draft, row, verdict.cause, verdict.why)
    elif row.waits_for != verdict.scope:
        draft.record(RolloutNodeChanged(draft.now, row._replace(waits_for=verdict.scope)))
    if verdict.until is not None:
        draft.wake(verdict.until, Matter.PARKED, f"{rollout.id}/{verdict.scope}")


def look_at_node(draft: Draft, rollout: Rollout, name: str) -> Verdict:
    """Whether a rollout may take this node now."""
    node = draft.nodes.get(name)
    if node is None or node.health is NodeHealth.FAILED:
        return Verdict(Cause.NODE_FAILED, f"{name} {'vanished' if node is None else 'failed'}")
    if node.health is NodeHealth.UNREACHABLE:
        return Verdict(why=f"{name} cannot be reached", unreachable=True)
    if name in draft.operations_on_node:
        return Verdict(why=f"{name} has an operation announced or under way")
    vms = vms_hit(draft, name)
    meeting = two_domains(vms)
    if meeting is not None:
        why = f"{name} holds two update domains of {meeting.scope}"
        remedy = f"redeploy {meeting.name}, which moves it elsewhere"
        return Verdict(Cause.SKIPPED, f"{why}: {remedy}")
    return _look_at_scopes(draft, rollout, node, by_domain(vms))


def _look_at_scopes(
    draft: Draft, rollout: Rollout, node: Node, touches: dict[Domain, list[Vm]]
) -> Verdict:
    obstacle = in_the_way(draft, node, touches)
    if obstacle is not None:
        scope, other = obstacle
        return Verdict(None, f"{other.kind} on {other.node} has another domain of {scope}", scope)
    recovery = timedelta(seconds=rollout.recovery_seconds)
    for scope, update_domain in touches:
        for last in draft.scopes[scope].last_touched:
            until = last.ended_at + recovery
            if last.update_domain != update_domain and until > draft.now:
                why = f"{scope} recovers from its last update domain until {until:%H:%M:%S} UTC"
                return Verdict(None, why, scope, until)
    return GO


def _take(draft: Draft, rollout: Rollout, row: RolloutNode) -> None:
    """Announce the rollout's operation on this node, its NotBefore inside a window."""
    node = draft.nodes[row.node]
    vms = vms_hit(draft, node.name)
    request = guid(rollout.id, node.name)
    move_node(draft, row._replace(request=request), Cause.TAKEN, "")
    pattern = Plan(
        id="",
        request=request,
        kind=rollout.kind,
        vms=(),
        asked_not_before=_not_before(draft, rollout, vms),
        duration_seconds=rollout.duration_seconds,
        rollout=rollout.id,
    )
    asked = Asked(id=request, by=rollout.requester)
    if rollout.kind is OperationKind.EVACUATION:
        answer = evacuate_node(draft, asked, node, vms, pattern)
    else:
        answer = announce_on_node(draft, asked, node, vms, pattern)
    if not answer.operations:
        node_over(draft, draft.rollout_nodes[rollout.id, node.name])


def _not_before(draft: Draft, rollout: Rollout, vms: list[Vm]) -> datetime | None:
    if not rollout.windows:
        return None
    told = [vm for vm in vms if is_told(draft, rollout.kind, vm)]
    notice = max((least_notice(draft, rollout.kind, vm) for vm in told), default=0)
    return windows.next_open(rollout.windows, draft.now + timedelta(seconds=notice))


def wake_touched(draft: Draft) -> None:
    """A VM came to or left a node that waits for a scope: perhaps it need not any more."""
    for node in draft.touched_nodes:
        for rollout, scope in draft.fleet.parked_scopes.get(node, {}).items():
            draft.wake(draft.now, Matter.PARKED, f"{rollout}/{scope}")
