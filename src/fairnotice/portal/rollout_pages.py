"""Rollouts: those that there are, one with its progress by update domain, and a new one."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from fairnotice.control import shapes, views
from fairnotice.engine import Fleet
from fairnotice.engine.changes import Row
from fairnotice.model import Operation, Rollout, RolloutNode
from fairnotice.portal.parts import Key, Page, Part, newest_first
from fairnotice.portal.site import Site, Viewer
from fairnotice.words import RolloutNodeStatus

# Of what is larger, the first so many are shown, and how many more there are.
SCOPES_SHOWN = 60
NODES_SHOWN = 500

_OVER = (
    RolloutNodeStatus.DONE,
    RolloutNodeStatus.FAILED,
    RolloutNodeStatus.SKIPPED,
    RolloutNodeStatus.CANCELED,
)


def _rollout_of(row: Row) -> str | None:
    """The rollout that a row is about."""
    if isinstance(row, Rollout):
        return row.id
    return row.rollout if isinstance(row, RolloutNode | Operation) else None


class Taken(NamedTuple):
    """The nodes that a rollout has taken: since when, and those on which work is under way."""

    at: dict[str, datetime]
    started: frozenset[str]


def _taken(fleet: Fleet, rollout: str) -> Taken:
    mine = [one for one in fleet.operations.values() if one.rollout == rollout and one.node]
    at: dict[str, datetime] = {}
    for one in mine:
        at.setdefault(str(one.node), one.asked_at)
    started = (str(one.node) for one in mine if one.live and not one.pending)
    return Taken(at, frozenset(started))


class RolloutsPage(Page):
    """Every rollout, and the form for a new one."""

    template = "rollouts.html"
    section = "rollouts"

    def keys(self) -> Iterable[Key]:
        """One part each."""
        yield Key("no-rollouts")
        yield from (Key("rollout", name) for name in self.fleet.rollouts)

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """Those that these rows are about."""
        names = dict.fromkeys(_rollout_of(row) for row in rows)
        return (Key("no-rollouts"), *(Key("rollout", name) for name in names if name))

    def part(self, key: Key) -> Part | None:
        """One of them."""
        if key.kind == "no-rollouts":
            some = bool(self.fleet.rollouts)
            return self.drawn(key, "no-rollouts-box", "part_no_rollouts.html", some=some)
        row = self.fleet.rollouts.get(key.name)
        if row is None:
            return None
        shown = views.rollout(self.fleet, row, views.canceled_nodes(self.fleet)[row.id])
        order = newest_first(row.asked_at)
        taken = _taken(self.fleet, row.id)
        return self.drawn(key, "rollouts", "part_rollout.html", order, rollout=shown, taken=taken)


class Domain(NamedTuple):
    """How far a rollout has come with one update domain of a scope."""

    update_domain: int | None
    over: int
    announced: int
    started: int
    nodes: int

    @property
    def phase(self) -> str:
        """Which mark it has."""
        if self.started:
            return "started"
        if self.announced:
            return "announced"
        return "completed" if self.over == self.nodes else "pending"


class RolloutPage(Page):
    """One rollout."""

    template = "rollout.html"
    section = "rollouts"

    def __init__(self, site: Site, viewer: Viewer, name: str) -> None:
        super().__init__(site, viewer)
        self._shown = site.service.rollout(name)
        self.id = self._shown.id

    @property
    def title(self) -> str:
        """What is rolled out."""
        row = self.fleet.rollouts.get(self.id)
        return "Rollout" if row is None else f"Rollout of {row.kind}"

    def keys(self) -> Iterable[Key]:
        """Few enough to be drawn all."""
        return (Key("rollout-head"), Key("rollout-domains"), Key("rollout-nodes"))

    def touched(self, rows: Iterable[Row]) -> Iterable[Key]:
        """All of it where it is about this rollout, of which one is made for all parts."""
        if self.id not in self.fleet.rollouts or self.id not in map(_rollout_of, rows):
            return ()
        self._shown = self.site.service.rollout(self.id)
        return self.keys()

    def part(self, key: Key) -> Part | None:
        """One of them."""
        shown = self._shown
        taken = _taken(self.fleet, self.id)
        more: dict[str, Any] = {"rollout": shown, "taken": taken}
        if key.kind == "rollout-domains":
            scopes = self._domains(shown, taken)
            more |= {"scopes": list(scopes.items())[:SCOPES_SHOWN], "scope_count": len(scopes)}
        elif key.kind == "rollout-nodes":
            # Those that were taken, in that order; then the others, as they come.
            ordered = sorted(shown.nodes, key=lambda one: taken.at.get(one.node, self.now))
            more["nodes"] = ordered[:NODES_SHOWN]
        return self.drawn(key, f"{key.kind}-box", f"part_{key.kind.replace('-', '_')}.html", **more)

    def _domains(self, shown: shapes.Rollout, taken: Taken) -> dict[str, list[Domain]]:
        """By scope, how far each of its update domains is."""
        touches = self._touches()
        found: dict[tuple[str, int | None], list[shapes.RolloutNode]] = {}
        for one in shown.nodes:
            for touched in touches.get(one.node) or self._on(one.node):
                found.setdefault(touched, []).append(one)
        scopes: dict[str, list[Domain]] = {}
        for (scope, update_domain), nodes in sorted(found.items(), key=_domain_order):
            over = sum(one.status in _OVER for one in nodes)
            live = [one.node for one in nodes if one.status is RolloutNodeStatus.LIVE]
            started = sum(name in taken.started for name in live)
            domain = Domain(update_domain, over, len(live) - started, started, len(nodes))
            scopes.setdefault(scope, []).append(domain)
        return scopes

    def _touches(self) -> dict[str, set[tuple[str, int | None]]]:
        """What the operations of this rollout touched, by node; their VMs may be elsewhere now."""
        found: dict[str, set[tuple[str, int | None]]] = {}
        for operation in self.fleet.operations.values():
            if operation.rollout == self.id and operation.node is not None:
                found.setdefault(operation.node, set()).update(operation.touches)
        return found

    def _on(self, node: str) -> set[tuple[str, int | None]]:
        vms = (self.fleet.vms[name] for name in self.fleet.vms_on_node.get(node, ()))
        return {(vm.scope, vm.update_domain) for vm in vms}


def _domain_order(found: tuple[tuple[str, int | None], Any]) -> tuple[str, int]:
    scope, update_domain = found[0]
    return scope, -1 if update_domain is None else update_domain
