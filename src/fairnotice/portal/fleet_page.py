"""Fleet: nodes by fault domain, scopes by update domain, and which VMs are about to be touched."""

from collections.abc import Iterable
from functools import cached_property
from itertools import islice

from fairnotice.engine.changes import Row
from fairnotice.model import Event, Impact, Node, Operation, Scope, Vm
from fairnotice.portal.parts import Key, Page, Part
from fairnotice.portal.site import Site, Viewer
from fairnotice.portal.telling import Touched, touched
from fairnotice.words import NodeState, ScopeKind

# From so many VMs on they are squares without their names; from so many more on, those are left out
# of which there is nothing to say.
DENSE_FROM_VMS = 300
LARGE_FROM_VMS = 5_000
FOUND_MAX = 100
SUMMARY = Key("fleet-summary")
NOWHERE = Key("nowhere")
FOUND = Key("found-vms")


class FleetPage(Page):
    """The whole fleet as a picture."""

    template = "fleet.html"
    section = "fleet"

    def __init__(self, site: Site, viewer: Viewer, find: str = "") -> None:
        super().__init__(site, viewer)
        self.find = find
        # Where each VM was when it was last drawn: when it moves, both nodes are drawn anew.
        self._node_of = {vm.name: vm.node for vm in self.fleet.vms.values()}

    @cached_property
    def _position(self) -> dict[str, int]:
        """Nodes are in the order in which they were declared."""
        return {name: position for position, name in enumerate(self.fleet.nodes)}

    @property
    def dense(self) -> bool:
        """Whether there are too many VMs to write their names."""
        return len(self.fleet.vms) >= DENSE_FROM_VMS

    @property
    def large(self) -> bool:
        """Whether only nodes and scopes are shown of which there is something to say."""
        return len(self.fleet.vms) >= LARGE_FROM_VMS

    @property
    def domains(self) -> list[int]:
        """The fault domains that there are."""
        return sorted({node.fault_domain for node in self.fleet.nodes.values()})

    def keys(self) -> Iterable[Key]:
        """All of it."""
        yield from (SUMMARY, NOWHERE, FOUND)
        yield from (Key("node", node.name) for node in self.fleet.nodes.values())
        yield from (_scope_key(scope) for scope in self.fleet.scopes.values())

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """The nodes and scopes of the VMs that these rows are about."""
        found: dict[Key, None] = dict.fromkeys((SUMMARY, FOUND) if self.find else (SUMMARY,))
        for row in rows:
            if isinstance(row, Node):
                found[Key("node", row.name)] = None
            elif isinstance(row, Scope):
                found[_scope_key(row)] = None
            for name in _vms_of(row):
                found |= dict.fromkeys(self._around(name))
            if isinstance(row, Vm):
                found |= dict.fromkeys((NOWHERE, *self._removed(row)))
        return found

    def _around(self, name: str) -> Iterable[Key]:
        """The node that a VM is on, the one it was on, and its scope."""
        before = self._node_of.get(name)
        vm = self.fleet.vms.get(name)
        self._node_of[name] = None if vm is None else vm.node
        for node in {before, self._node_of[name]} - {None}:
            yield Key("node", str(node))
        if vm is not None:
            yield _scope_key(self.fleet.scopes[vm.scope])

    def _removed(self, row: Vm) -> Iterable[Key]:
        scope = self.fleet.scopes.get(row.scope)
        if row.name not in self.fleet.vms and scope is not None:
            yield _scope_key(scope)

    def part(self, key: Key) -> Part | None:
        """One of them."""
        if key.kind == "node":
            return self._node(key)
        if key.kind in ("scope", "alone"):
            return self._scope(key)
        if key == NOWHERE:
            homeless = (vm for vm in self.fleet.vms.values() if vm.node is None)
            return self.drawn(
                key, "nowhere-box", "part_nowhere.html", chips=self._chips(homeless), page=self
            )
        if key == FOUND:
            text = self.find.lower()
            alike = (vm for vm in self.fleet.vms.values() if text and text in vm.name.lower())
            return self.drawn(
                key, "found-vms-box", "part_found_vms.html", chips=self._chips(alike), page=self
            )
        counts = (len(self.fleet.nodes), len(self.fleet.vms), len(self.fleet.scopes))
        return self.drawn(key, "fleet-summary-box", "part_fleet_summary.html", counts=counts)

    def _chips(self, vms: Iterable[Vm]) -> list[tuple[Vm, Touched]]:
        some = islice(vms, FOUND_MAX)
        return [(vm, touched(self.fleet, vm, self.now)) for vm in some]

    def _node(self, key: Key) -> Part | None:
        node = self.fleet.nodes.get(key.name)
        if node is None or (self.large and not self._is_told_of(node)):
            return None
        if node.name not in self._position:
            # It was declared since.
            del self._position
        vms = [self.fleet.vms[name] for name in self.fleet.vms_on_node.get(node.name, ())]
        return self.drawn(
            key,
            f"domain-{node.fault_domain}",
            "part_node.html",
            self._order(f"{self._position[node.name]:06}", is_told_of=self._is_told_of(node)),
            node=node,
            used=self.fleet.used_slots(node.name),
            chips=[(vm, touched(self.fleet, vm, self.now)) for vm in vms],
            operations=[
                self.fleet.operations[name]
                for name in self.fleet.operations_on_node.get(node.name, ())
            ],
            page=self,
        )

    def _order(self, place: str, *, is_told_of: bool) -> str:
        """Of very many, those come first of which there is something to say."""
        return f"{not is_told_of:d}{place}" if self.dense else place

    def _is_told_of(self, node: Node) -> bool:
        """Whether there is something to say of a node, or of a VM on it."""
        names = self.fleet.vms_on_node.get(node.name, ())
        busy = any(name in self.fleet.operations_on_vm for name in names)
        return busy or node.state is not NodeState.IN_SERVICE

    def _scope(self, key: Key) -> Part | None:
        scope = self.fleet.scopes.get(key.name)
        if scope is None or (self.large and not self.fleet.events_in_scope.get(scope.name)):
            return None
        domains: dict[int | None, list[tuple[Vm, Touched]]] = {}
        for name in self.fleet.vms_in_scope.get(scope.name, ()):
            vm = self.fleet.vms[name]
            chip = (vm, touched(self.fleet, vm, self.now))
            domains.setdefault(vm.update_domain, []).append(chip)
        ordered = sorted(domains.items(), key=lambda one: -1 if one[0] is None else one[0])
        box = "scopes" if key.kind == "scope" else "alone"
        template = f"part_{key.kind}.html"
        chips = (chip for vms in domains.values() for chip in vms)
        busy = any(chip.phase not in ("calm", "stopped") for _, chip in chips)
        more = {"scope": scope, "domains": ordered, "folded": self.dense and not busy}
        order = self._order(scope.name, is_told_of=busy)
        return self.drawn(key, box, template, order, **more, page=self)


def _scope_key(scope: Scope) -> Key:
    return Key("alone" if scope.kind is ScopeKind.STANDALONE else "scope", scope.name)


def _vms_of(row: Row) -> tuple[str, ...]:
    if isinstance(row, Event):
        return row.resources
    if isinstance(row, Operation):
        return row.vms
    if isinstance(row, Impact):
        return (row.vm,)
    return (row.name,) if isinstance(row, Vm) else ()
