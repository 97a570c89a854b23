"""Who is about to go: deletes and evictions that are not over, and the instances that stay."""

from fairnotice.engine.ending import impact_key
from fairnotice.engine.tables import Tables
from fairnotice.model import Operation, ScaleSet, Vm, scope_name
from fairnotice.words import OperationKind, ScopeKind

REMOVING = (OperationKind.DELETE, OperationKind.EVICTION)


def removals(tables: Tables, name: str) -> list[Operation]:
    """Deletes and evictions of this VM that are still to do something to it."""
    live = [tables.operations[other] for other in tables.operations_on_vm.get(name, ())]
    return [
        operation
        for operation in live
        if operation.kind in REMOVING
        and (operation.pending or tables.impact_on_vm.get(name) == impact_key(operation.id, name))
    ]


def staying(tables: Tables, row: ScaleSet) -> list[Vm]:
    """The instances that nobody deletes or takes away: so many a scale set shall have."""
    kind = ScopeKind.PLACEMENT_GROUP
    scopes = (scope_name(kind, row.name, group) for group in range(row.placement_groups))
    names = (name for scope in scopes for name in tables.vms_in_scope.get(scope, ()))
    return [tables.vms[name] for name in names if not removals(tables, name)]
