"""What a fleet file would change, shown before it is applied. The law says whether it may."""

from collections.abc import Iterable, Iterator
from typing import Any

from fairnotice.control.fleet_body import exported, specification
from fairnotice.control.shapes import Problem, Shape
from fairnotice.engine import Fleet
from fairnotice.engine.fleet_changes import declared_vms
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.model import Scope, Vm
from fairnotice.words import ScopeKind

# What a field can hold, as JSON has it.
Value = str | int | list[str] | dict[str, str] | None

# The kinds of table, in the order of a file, and where a specification has them.
_TABLES = {
    "node": "nodes",
    "availability_set": "availability_sets",
    "scale_set": "scale_sets",
    "cloud_service": "cloud_services",
}
# What a file does not say of a VM.
_NOT_IN_FILES = ("name", "power", "declared_revision")


class FieldChange(Shape):
    """One field, as it is and as it would be."""

    field: str
    before: Value
    after: Value


class Added(Shape):
    """What is not there yet. `kind` is the table of the file: `node`, `scale_set`, `vm`."""

    kind: str
    name: str


class Changed(Shape):
    """What is there and would be different."""

    kind: str
    name: str
    changes: list[FieldChange]


class Removed(Shape):
    """What is there and not in the file."""

    kind: str
    name: str


class Difference(Shape):
    """All that a file would change; `warnings` say what one may expect of it in vain."""

    added: list[Added]
    changed: list[Changed]
    removed: list[Removed]
    warnings: list[str]
    # Why the law would not have it now; null where it would.
    refused: Problem | None = None

    @property
    def nothing(self) -> bool:
        """Whether the fleet is already as the file says."""
        return not (self.added or self.changed or self.removed)


def difference(fleet: Fleet, spec: FleetSpec) -> Difference:
    """What applying this specification would change; it need not be one that the law accepts."""
    found = Difference([], [], [], [])
    now = specification(exported(fleet))
    for kind, table in _TABLES.items():
        _compare_tables(found, kind, getattr(now, table), getattr(spec, table))
    _compare_vms(found, fleet, spec)
    return found


def _compare_tables(
    found: Difference,
    kind: str,
    now: Iterable[NodeSpec | SetSpec | ScaleSetSpec],
    wanted: Iterable[NodeSpec | SetSpec | ScaleSetSpec],
) -> None:
    before = {row.name: row for row in now}
    after = {row.name: row for row in wanted}
    for name, row in after.items():
        if name in before:
            changes = list(_changes(before[name]._asdict(), row._asdict()))
            _note_changes(found, kind, name, changes)
        else:
            found.added.append(Added(kind, name))
    found.removed.extend(Removed(kind, name) for name in before if name not in after)


def _compare_vms(found: Difference, fleet: Fleet, spec: FleetSpec) -> None:
    after = {vm.name: (wanted, vm) for wanted, vm in declared_vms(fleet.vms, spec)}
    for name, (wanted, vm) in after.items():
        before = fleet.vms.get(name)
        if before is None:
            found.added.append(Added("vm", name))
            continue
        changes = [
            *_changes(_told(before), _told(vm)),
            *_policy_change(fleet.scopes[before.scope], wanted, vm),
        ]
        _note_changes(found, "vm", name, changes)
        if before.node != vm.node:
            found.warnings.append(
                f"{name} is on {before.node} and the file names {vm.node}: applying it only "
                f"records that {name} is there, it moves nothing."
            )
    found.removed.extend(Removed("vm", name) for name in fleet.vms if name not in after)


def _told(vm: Vm) -> dict[str, Any]:
    return {field: value for field, value in vm._asdict().items() if field not in _NOT_IN_FILES}


def _policy_change(scope: Scope, wanted: VmSpec, vm: Vm) -> Iterator[FieldChange]:
    """A standalone VM has its policy to itself; that of a set is a change of the set."""
    if vm.scope == scope.name and scope.kind is ScopeKind.STANDALONE:
        field = "automatically_approve"
        yield from _changes(
            {field: scope.automatically_approve}, {field: wanted.automatically_approve}
        )


def _note_changes(found: Difference, kind: str, name: str, changes: list[FieldChange]) -> None:
    if changes:
        found.changed.append(Changed(kind, name, changes))


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[FieldChange]:
    for field, value in before.items():
        if value != after[field]:
            yield FieldChange(field, _shown(field, value), _shown(field, after[field]))


def _shown(field: str, value: Any) -> Value:  # noqa: ANN401, whatever a row holds
    if field == "tags":
        return dict(value)
    if isinstance(value, tuple):
        return [str(one) for one in value]
    return str(value) if isinstance(value, str) else value
