"""What must hold of every fleet at every moment, stated without the code that makes it hold.

`check` looks at one fleet at rest. What can only be seen between two moments (an incarnation that
does not move, an impact begun twice) is watched by fairnotice.testing.witness.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairnotice.engine.fleet import Fleet
from fairnotice.engine.tables import INDEXES, TABLES
from fairnotice.model import Event, Operation
from fairnotice.words import (
    EventStatus,
    OperationKind,
    OperationStatus,
    Power,
    RolloutNodeStatus,
    RolloutStatus,
)


class Violation(NamedTuple):
    """A rule of the law that does not hold, and where."""

    rule: int
    what: str


def check(fleet: Fleet) -> list[Violation]:
    """Every violation of the law in this fleet: none, or there is a bug."""
    return [violation for invariant in INVARIANTS for violation in invariant(fleet)]


def check_indexes(fleet: Fleet) -> list[Violation]:
    """Every index that differs from what the rows say. Slower than all of `check`."""
    rows = [row for table in TABLES for row in getattr(fleet, table).values()]
    fresh = Fleet.load(rows, fleet.timing, fleet.revision, fleet.recorded_at)
    wrong = [
        Violation(0, f"index {name} is not what the rows say")
        for name in INDEXES
        if _unordered(getattr(fleet, name)) != _unordered(getattr(fresh, name))
    ]
    if set(fleet.open_nodes) != set(fresh.open_nodes):
        wrong.append(Violation(14, "the open nodes are not what the rows say"))
    wrong += [
        Violation(22, f"{name} is not what the rows say")
        for name in ("pending_nodes", "parked_nodes", "parked_scopes")
        if getattr(fleet, name) != getattr(fresh, name)
    ]
    return wrong


def _unordered(index: dict[str, object]) -> dict[str, object]:
    return {
        key: Counter(value) if isinstance(value, tuple) else value for key, value in index.items()
    }


def _places(fleet: Fleet) -> Iterator[Violation]:
    """Rules 14 and 20: room on every node, and a node under every VM that runs."""
    for name, node in fleet.nodes.items():
        used = len(fleet.vms_on_node.get(name, ())) + len(fleet.arriving_on_node.get(name, ()))
        if used > node.capacity:
            yield Violation(14, f"{name} has {used} VMs in {node.capacity} slots")
    for vm in fleet.vms.values():
        if vm.power is Power.RUNNING and vm.node is None:
            yield Violation(14, f"{vm.name} runs nowhere")
        if vm.power is Power.DEALLOCATED and vm.node is not None:
            yield Violation(20, f"{vm.name} is deallocated and has {vm.node}")
        if vm.node is not None and vm.node not in fleet.nodes:
            yield Violation(21, f"{vm.name} is on {vm.node}, which is gone")
        if vm.scope not in fleet.scopes:
            yield Violation(21, f"{vm.name} is in {vm.scope}, which is gone")


def _visible_events(fleet: Fleet) -> Iterator[Event]:
    return (event for event in fleet.events.values() if event.visible)


def _events(fleet: Fleet) -> Iterator[Violation]:
    """Rules 4, 6, 8 and 9: what an event may name, and who may see it."""
    for event in _visible_events(fleet):
        operation = fleet.operations[event.operation]
        scope = fleet.scopes[event.scope]
        if not scope.enabled:
            yield Violation(9, f"{event.id} is shown in {event.scope}, where nobody listens")
        if event.not_before.microsecond:
            yield Violation(1, f"{event.id} has a NotBefore within a second")
        if not event.resources or not set(event.resources) <= set(operation.vms):
            yield Violation(4, f"{event.id} names {event.resources} of {operation.vms}")
        started = operation.status is not OperationStatus.PENDING
        if started != (event.status is EventStatus.STARTED):
            yield Violation(5, f"{event.id} is {event.status}, its operation {operation.status}")
        if event.status is EventStatus.SCHEDULED:
            yield from _scheduled(fleet, event, operation)


def _scheduled(fleet: Fleet, event: Event, operation: Operation) -> Iterator[Violation]:
    nodes = {fleet.vms[name].node for name in event.resources if name in fleet.vms}
    if len(nodes) > 1:
        yield Violation(4, f"{event.id} names VMs of {nodes}")
    for name in event.resources:
        vm = fleet.vms.get(name)
        if vm is None or vm.power is not Power.RUNNING:
            yield Violation(20, f"{event.id} names {name}, which does not run")
            continue
        if (vm.scope, vm.update_domain) != (event.scope, event.update_domain):
            yield Violation(4, f"{event.id} names {name} of another scope or update domain")
        node = operation.node or ""
        if node not in ("", vm.node) and name not in fleet.arriving_on_node.get(node, ()):
            yield Violation(12, f"{event.id} names {name}, which has left {node}")


def _quiet_scopes(fleet: Fleet) -> Iterator[Violation]:
    """Rules 7 and 8: nobody listens, nothing is shown, and the count starts over."""
    for scope in fleet.scopes.values():
        if not scope.enabled and scope.incarnation != 1:
            yield Violation(7, f"{scope.name} is disabled at {scope.incarnation}")


def _operations(fleet: Fleet) -> Iterator[Violation]:
    """Rules 5, 10 and 11: intent before impact, and an end to everything."""
    for operation in fleet.operations.values():
        impacts = [fleet.impacts.get(f"{operation.id}/{vm}") for vm in operation.vms]
        if operation.status is OperationStatus.PENDING:
            if any(impact is not None for impact in impacts):
                yield Violation(10, f"{operation.id} has an impact and has not started")
        elif operation.started_at is not None and None in impacts:
            yield Violation(10, f"{operation.id} has started without all its intents")
        if operation.ended_at is None:
            continue
        if any(impact is not None and impact.live for impact in impacts):
            yield Violation(11, f"{operation.id} has ended before its impacts")
        if any(fleet.events[event].visible for event in operation.events):
            yield Violation(11, f"{operation.id} has ended before its events")


def _impacts(fleet: Fleet) -> Iterator[Violation]:
    """Rule 5: one impact on a VM at a time."""
    busy = Counter(impact.vm for impact in fleet.impacts.values() if impact.live)
    for name, number in busy.items():
        if number > 1:
            yield Violation(5, f"{name} is under {number} impacts")


# One operation for all VMs of the node: nobody there may be missing.
WHOLE_NODE = (OperationKind.HOST_UPDATE, OperationKind.HOST_REBOOT, OperationKind.REPAIR)


def _whole_nodes(fleet: Fleet) -> Iterator[Violation]:
    """Rules 4 and 14: whoever runs on a node under maintenance is told, or at least counted."""
    for node, operations in fleet.operations_on_node.items():
        running = {vm for vm in fleet.vms_on_node.get(node, ()) if fleet.vms[vm].running}
        for name in operations:
            operation = fleet.operations[name]
            whole = operation.kind in WHOLE_NODE and operation.pending
            missing = running - set(operation.vms)
            if whole and missing:
                yield Violation(4, f"{name} on {node} misses {sorted(missing)}")


CAREFUL = (
    OperationKind.HOST_UPDATE,
    OperationKind.HOST_REBOOT,
    OperationKind.MIGRATION,
    OperationKind.EVACUATION,
)


def _is_careful(operation: Operation) -> bool:
    """Whether it had to keep domains apart: failures, repairs and what is forced need not."""
    planned = operation.kind in CAREFUL and not operation.forced
    return planned or operation.rollout is not None


def _domains(fleet: Fleet) -> Iterator[Violation]:
    """Rule 22: one update domain and one fault domain of a scope at a time.

    From the rows of operations: the law's own index of them may be what is wrong.
    """
    touched: dict[str, set[tuple[int, int | None]]] = {}
    for operation in fleet.operations.values():
        if operation.live and operation.node is not None and _is_careful(operation):
            for scope, domain in operation.touches:
                if domain is not None:
                    domains = touched.setdefault(scope, set())
                    domains.add((domain, operation.fault_domain))
    for scope, domains in touched.items():
        if len(domains) > 1:
            yield Violation(22, f"{scope} has {sorted(domains)} under live operations at once")


def _rollouts(fleet: Fleet) -> Iterator[Violation]:
    """Rule 22: no more nodes at once than allowed, and every node accounted for."""
    counted = Counter((row.rollout, row.status) for row in fleet.rollout_nodes.values())
    for rollout in fleet.rollouts.values():
        live = counted[rollout.id, RolloutNodeStatus.LIVE]
        if live > rollout.nodes_at_once_max or live != rollout.live_count:
            yield Violation(22, f"{rollout.id} has {live} nodes live")
        pending = counted[rollout.id, RolloutNodeStatus.PENDING]
        over = rollout.status in (RolloutStatus.COMPLETED, RolloutStatus.CANCELED)
        if over and pending:
            yield Violation(22, f"{rollout.id} is {rollout.status} with {pending} nodes pending")
        failures = rollout.failed_count - rollout.forgiven_count
        if rollout.status is RolloutStatus.RUNNING and failures > rollout.failure_budget:
            yield Violation(22, f"{rollout.id} goes on after {failures} failures")


USERS = (OperationKind.RESTART, OperationKind.REDEPLOY, OperationKind.DELETE)


def _waiting(fleet: Fleet) -> Iterator[Violation]:
    """Rule 17: no more commands wait in a scope than allowed."""
    commands: dict[str, set[str]] = {}
    for operation in fleet.operations.values():
        if operation.kind in USERS and operation.pending:
            for scope, _ in operation.touches:
                commands.setdefault(scope, set()).add(operation.request)
    for scope, requests in commands.items():
        if len(requests) > fleet.timing.user_operations_max:
            yield Violation(17, f"{len(requests)} user commands wait in {scope}")


def _unconfirmed(fleet: Fleet) -> Iterator[Violation]:
    """Rule 5: an event waits only for endpoints that are there and serve one of its VMs."""
    for event in _visible_events(fleet):
        if event.unconfirmed and event.status is EventStatus.SCHEDULED:
            nodes = {fleet.vms[name].node for name in event.resources if name in fleet.vms}
            for node in event.unconfirmed:
                if node not in nodes or node not in fleet.endpoints:
                    yield Violation(5, f"{event.id} waits for {node}, which serves nobody")


INVARIANTS: tuple[Callable[[Fleet], Iterator[Violation]], ...] = (
    _places,
    _events,
    _quiet_scopes,
    _operations,
    _impacts,
    _whole_nodes,
    _domains,
    _rollouts,
    _waiting,
    _unconfirmed,
)
