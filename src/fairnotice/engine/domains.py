"""Rule 22, its heart: one update domain and one fault domain of a scope at a time."""

from collections.abc import Iterable, Iterator

from fairnotice.engine.announce import Domain
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.tables import Tables
from fairnotice.model import Node, Operation, Vm


def two_domains(vms: Iterable[Vm]) -> Vm | None:
    """A VM whose scope has another update domain among these VMs; None where none meet."""
    domains: dict[str, int | None] = {}
    for vm in vms:
        if domains.setdefault(vm.scope, vm.update_domain) != vm.update_domain:
            return vm
    return None


def in_the_way(
    tables: Tables, node: Node, touches: Iterable[Domain]
) -> tuple[str, Operation] | None:
    """A scope, and an operation there because of which none may be announced on this node."""
    for scope, operation in _conflicting(tables, node.name, node.fault_domain, touches):
        if counts(operation):
            return scope, operation
    return None


def is_held_by_another(tables: Tables, operation: Operation) -> bool:
    """Whether something already strikes another domain of a scope that a rollout is to touch.

    A rollout announces only where nothing else is live. What came after that and started first,
    a failure above all, is waited for: two domains are never down by the rollout's doing.
    """
    conflicting = _conflicting(tables, operation.node, operation.fault_domain, operation.touches)
    return any(not other.pending for _, other in conflicting)


def counts(operation: Operation) -> bool:
    """Failures and predictions count once started, everything else once announced."""
    return KINDS[operation.kind].counts_announced or not operation.pending


def _conflicting(
    tables: Tables, node: str | None, fault_domain: int | None, touches: Iterable[Domain]
) -> Iterator[tuple[str, Operation]]:
    """Live operations on other nodes that have another domain of one of these scopes."""
    for scope, update_domain in touches:
        if update_domain is None:  # a standalone VM conflicts with nobody
            continue
        for other_id in tables.platform_in_scope.get(scope, ()):
            other = tables.operations[other_id]
            if other.node != node and (
                other.fault_domain != fault_domain
                or any(name == scope and one != update_domain for name, one in other.touches)
            ):
                yield scope, other
