"""The rows of a fleet and the indexes over them: what Fleet and Draft have in common.

Rows are frozen and so is what indexes hold, so a Draft can lay its own values over a Fleet's
without touching them. Every index is kept by the `put` and `drop` of its table, here and nowhere
else.
"""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, TypeVar

from fairnotice.engine.changes import Row
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.members import Members, joined, parted
from fairnotice.engine.notice import Timing
from fairnotice.model import (
    Endpoint,
    Event,
    Impact,
    Kept,
    Life,
    Node,
    Operation,
    Request,
    Requester,
    Rollout,
    RolloutNode,
    ScaleSet,
    Scope,
    Vm,
)
from fairnotice.words import EventSource, EventType, ImpactKind

Key = TypeVar("Key")
Names = tuple[str, ...]
RolloutNodeKey = tuple[str, str]

MOVING = (ImpactKind.REDEPLOY, ImpactKind.MIGRATE)


class Tables:
    """The state of a fleet. Only `put` and `drop` write to it."""

    timing: Timing
    revision: int
    life: Life

    # Rows, by name or id.
    nodes: MutableMapping[str, Node]
    vms: MutableMapping[str, Vm]
    scopes: MutableMapping[str, Scope]
    scale_sets: MutableMapping[str, ScaleSet]
    requests: MutableMapping[str, Request]
    operations: MutableMapping[str, Operation]
    events: MutableMapping[str, Event]
    impacts: MutableMapping[str, Impact]
    rollouts: MutableMapping[str, Rollout]
    rollout_nodes: MutableMapping[RolloutNodeKey, RolloutNode]
    endpoints: MutableMapping[str, Endpoint]
    kept: MutableMapping[str, Kept]

    # Indexes. All but the first three hold only what is live.
    vms_on_node: MutableMapping[str, Members]
    vms_in_scope: MutableMapping[str, Members]
    request_by_key: MutableMapping[str, str]
    arriving_on_node: MutableMapping[str, Members]
    impact_on_vm: MutableMapping[str, str]
    operations_on_vm: MutableMapping[str, Members]
    operations_on_node: MutableMapping[str, Members]
    # Operations on nodes that name a VM of the scope (rule 22).
    platform_in_scope: MutableMapping[str, Members]
    # User operations of the scope that have not started (rule 17).
    waiting_in_scope: MutableMapping[str, Members]
    events_in_scope: MutableMapping[str, Members]
    # Scheduled Terminates of a scale set, in the order they were announced (rule 16).
    terminates_in_set: MutableMapping[str, Members]
    # Scheduled events that a node's endpoint has not confirmed (rule 5).
    unconfirmed_on_node: MutableMapping[str, Members]

    def put(self, row: Row) -> None:
        """Take this row as it is now, in place of the one with its name."""
        _PUT[type(row)](self, row)

    def drop(self, row: Row) -> None:
        """Forget the row with this row's name."""
        _DROP[type(row)](self, row)

    def node_touched(self, name: str) -> None:
        """Something that decides whether a VM may be put on this node may have changed."""
        raise NotImplementedError

    def rollout_node_touched(self, row: RolloutNode) -> None:
        """A node's place in a rollout is about to change to this."""
        raise NotImplementedError

    def event_naming(self, vm: str) -> str | None:
        """A visible event that names this VM: the one a person is told of when refused."""
        for operation in self.operations_on_vm.get(vm, ()):
            for event in self.operations[operation].events:
                if self.events[event].visible and vm in self.events[event].resources:
                    return event
        return None

    def used_slots(self, node: str) -> int:
        """How many VMs are on a node or on their way to it."""
        return len(self.vms_on_node.get(node, ())) + len(self.arriving_on_node.get(node, ()))


TABLES: Names = (
    "nodes",
    "vms",
    "scopes",
    "scale_sets",
    "requests",
    "operations",
    "events",
    "impacts",
    "rollouts",
    "rollout_nodes",
    "endpoints",
    "kept",
)
INDEXES: Names = (
    "vms_on_node",
    "vms_in_scope",
    "request_by_key",
    "arriving_on_node",
    "impact_on_vm",
    "operations_on_vm",
    "operations_on_node",
    "platform_in_scope",
    "waiting_in_scope",
    "events_in_scope",
    "terminates_in_set",
    "unconfirmed_on_node",
)


def known_key(requester: Requester, idempotency_key: str) -> str:
    """Under what a key is known: keys of different people have nothing to do with each other."""
    return f"{requester.role}:{requester.name}:{idempotency_key}"


def _join(index: MutableMapping[str, Members], key: str, member: str) -> None:
    index[key] = joined(index.get(key, ()), member)


def _part(index: MutableMapping[str, Members], key: str, member: str) -> None:
    left = parted(index[key], member)
    if left:
        index[key] = left
    else:
        del index[key]


def _follow(
    index: MutableMapping[str, Members], member: str, before: Iterable[str], after: Iterable[str]
) -> None:
    """Move a member from the keys it stood under to those it stands under now."""
    if before == after:
        return
    for key in before:
        if key not in after:
            _part(index, key, member)
    for key in after:
        if key not in before:
            _join(index, key, member)


# ---- Under which keys of an index a row stands: nothing for a row that is not there ----


def _node_of_vm(vm: Vm | None) -> Names:
    return () if vm is None or vm.node is None else (vm.node,)


def _scope_of_vm(vm: Vm | None) -> Names:
    return () if vm is None else (vm.scope,)


def _vms_of_operation(operation: Operation | None) -> Names:
    return () if operation is None or not operation.live else operation.vms


def _node_of_operation(operation: Operation | None) -> Names:
    if operation is None or not operation.live or operation.node is None:
        return ()
    return (operation.node,)


def _platform_scopes(operation: Operation | None) -> Names:
    if operation is None or not operation.live or operation.node is None:
        return ()
    return tuple(dict.fromkeys(scope for scope, _ in operation.touches))


def _waiting_scopes(operation: Operation | None) -> Names:
    if operation is None or not operation.pending or operation.node is not None:
        return ()
    kind = KINDS[operation.kind]
    if kind.power or kind.source is not EventSource.USER:
        return ()
    return tuple(scope for scope, _ in operation.touches)


def _scope_of_event(event: Event | None) -> Names:
    return () if event is None or not event.visible else (event.scope,)


def _unconfirmed_of_event(event: Event | None) -> Names:
    return () if event is None or not event.scheduled else event.unconfirmed


def _target_of_impact(impact: Impact | None) -> Names:
    if impact is None or not impact.live or impact.target is None:
        return ()
    return (impact.target,)


# ---- Writing rows ----


def _index_vm(tables: Tables, name: str, before: Vm | None, after: Vm | None) -> None:
    nodes_before, nodes_after = _node_of_vm(before), _node_of_vm(after)
    _follow(tables.vms_on_node, name, nodes_before, nodes_after)
    _follow(tables.vms_in_scope, name, _scope_of_vm(before), _scope_of_vm(after))
    for node in {*nodes_before, *nodes_after}:
        tables.node_touched(node)


def _put_vm(tables: Tables, vm: Vm) -> None:
    _index_vm(tables, vm.name, tables.vms.get(vm.name), vm)
    tables.vms[vm.name] = vm


def _drop_vm(tables: Tables, vm: Vm) -> None:
    _index_vm(tables, vm.name, tables.vms[vm.name], None)
    del tables.vms[vm.name]


def _index_operation(tables: Tables, before: Operation | None, after: Operation) -> None:
    name = after.id
    _follow(tables.operations_on_vm, name, _vms_of_operation(before), _vms_of_operation(after))
    if after.node is None:
        _follow(tables.waiting_in_scope, name, _waiting_scopes(before), _waiting_scopes(after))
        return
    nodes_before, nodes_after = _node_of_operation(before), _node_of_operation(after)
    _follow(tables.operations_on_node, name, nodes_before, nodes_after)
    _follow(tables.platform_in_scope, name, _platform_scopes(before), _platform_scopes(after))
    tables.node_touched(after.node)


def _put_operation(tables: Tables, operation: Operation) -> None:
    _index_operation(tables, tables.operations.get(operation.id), operation)
    tables.operations[operation.id] = operation


def _put_event(tables: Tables, event: Event) -> None:
    before = tables.events.get(event.id)
    tables.events[event.id] = event
    if before is None or before.visible != event.visible:
        _follow(tables.events_in_scope, event.id, _scope_of_event(before), _scope_of_event(event))
    nodes_before, nodes_after = _unconfirmed_of_event(before), _unconfirmed_of_event(event)
    if nodes_before != nodes_after:
        _follow(tables.unconfirmed_on_node, event.id, nodes_before, nodes_after)
    waited = before is not None and before.scheduled
    if event.type is EventType.TERMINATE and waited != event.scheduled:
        change = _join if event.scheduled else _part
        change(tables.terminates_in_set, tables.scopes[event.scope].of, event.id)


def _put_impact(tables: Tables, impact: Impact) -> None:
    before = tables.impacts.get(impact.key)
    tables.impacts[impact.key] = impact
    if impact.live:
        tables.impact_on_vm[impact.vm] = impact.key
    elif tables.impact_on_vm.get(impact.vm) == impact.key:
        del tables.impact_on_vm[impact.vm]
    if impact.kind not in MOVING:
        return
    targets_before, targets_after = _target_of_impact(before), _target_of_impact(impact)
    _follow(tables.arriving_on_node, impact.vm, targets_before, targets_after)
    for node in {*targets_before, *targets_after}:
        tables.node_touched(node)


def _put_node(tables: Tables, node: Node) -> None:
    tables.nodes[node.name] = node
    tables.node_touched(node.name)


def _drop_node(tables: Tables, node: Node) -> None:
    del tables.nodes[node.name]
    tables.node_touched(node.name)


def _put_request(tables: Tables, request: Request) -> None:
    tables.requests[request.id] = request
    if request.idempotency_key is not None:
        tables.request_by_key[known_key(request.requester, request.idempotency_key)] = request.id


def _drop_request(tables: Tables, request: Request) -> None:
    del tables.requests[request.id]
    if request.idempotency_key is not None:
        del tables.request_by_key[known_key(request.requester, request.idempotency_key)]


def _put_rollout(tables: Tables, rollout: Rollout) -> None:
    tables.rollouts[rollout.id] = rollout
    if rollout.idempotency_key is not None:
        tables.request_by_key[known_key(rollout.requester, rollout.idempotency_key)] = rollout.id


def _drop_rollout(tables: Tables, rollout: Rollout) -> None:
    del tables.rollouts[rollout.id]
    if rollout.idempotency_key is not None:
        del tables.request_by_key[known_key(rollout.requester, rollout.idempotency_key)]


def _put_rollout_node(tables: Tables, row: RolloutNode) -> None:
    tables.rollout_node_touched(row)
    tables.rollout_nodes[row.rollout, row.node] = row


def _drop_rollout_node(tables: Tables, row: RolloutNode) -> None:
    del tables.rollout_nodes[row.rollout, row.node]


def _put_life(tables: Tables, life: Life) -> None:
    tables.life = life


def _plain_put(table: str, key: str) -> Callable[[Tables, Any], None]:
    def put(tables: Tables, row: Row) -> None:
        getattr(tables, table)[getattr(row, key)] = row

    return put


def _plain_drop(table: str, key: str) -> Callable[[Tables, Any], None]:
    def drop(tables: Tables, row: Row) -> None:
        del getattr(tables, table)[getattr(row, key)]

    return drop


_PUT: dict[type, Callable[[Tables, Any], None]] = {
    Node: _put_node,
    Vm: _put_vm,
    Scope: _plain_put("scopes", "name"),
    ScaleSet: _plain_put("scale_sets", "name"),
    Request: _put_request,
    Operation: _put_operation,
    Event: _put_event,
    Impact: _put_impact,
    Rollout: _put_rollout,
    RolloutNode: _put_rollout_node,
    Endpoint: _plain_put("endpoints", "node"),
    Kept: _plain_put("kept", "resource"),
    Life: _put_life,
}

# What is dropped of operations, events and impacts is over, and so in no index.
_DROP: dict[type, Callable[[Tables, Any], None]] = {
    Node: _drop_node,
    Vm: _drop_vm,
    Scope: _plain_drop("scopes", "name"),
    ScaleSet: _plain_drop("scale_sets", "name"),
    Request: _drop_request,
    Operation: _plain_drop("operations", "id"),
    Event: _plain_drop("events", "id"),
    Impact: _plain_drop("impacts", "key"),
    Rollout: _drop_rollout,
    RolloutNode: _drop_rollout_node,
    Endpoint: _plain_drop("endpoints", "node"),
    Kept: _plain_drop("kept", "resource"),
}
