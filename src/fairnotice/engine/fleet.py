"""The state of the law, and `apply(change)`: the only thing that changes it."""

from collections.abc import Iterable, MutableMapping
from datetime import datetime
from typing import Any, TypeVar

from fairnotice.engine.changes import Change, Removal, Row
from fairnotice.engine.notice import AZURE, Timing
from fairnotice.engine.tables import INDEXES, TABLES, RolloutNodeKey, Tables
from fairnotice.model import Life, RolloutNode, Scope
from fairnotice.words import NodeState, RolloutNodeStatus

Key = TypeVar("Key")
Value = TypeVar("Value")
Nested = MutableMapping[str, MutableMapping[Key, Value]]


def _load_order(row: Row) -> tuple[bool, int]:
    """Scopes first, since events are indexed by them; what has an order in its order."""
    order = row.position if isinstance(row, RolloutNode) else getattr(row, "revision", 0)
    return not isinstance(row, Scope), order


class Fleet(Tables):
    """A whole fleet: nodes, VMs, scopes, and all that is announced, under way or just over."""

    def __init__(self, timing: Timing = AZURE) -> None:
        self.timing = timing
        self.revision = 0
        self.recorded_at: datetime | None = None
        self.life = Life()
        for name in (*TABLES, *INDEXES):
            setattr(self, name, {})
        # Nodes that a VM may be put on, as far as the node itself is concerned (rule 14).
        self.open_nodes: MutableMapping[str, None] = {}
        # Nodes of each rollout that may be next, in its order, and those that wait for a scope:
        # by that scope, and by node (rule 22).
        self.pending_nodes: Nested[str, None] = {}
        self.parked_nodes: Nested[RolloutNodeKey, None] = {}
        self.parked_scopes: Nested[str, str] = {}

    @classmethod
    def load(
        cls, rows: Iterable[Row], timing: Timing, revision: int, recorded_at: datetime | None
    ) -> "Fleet":
        """A fleet from its stored rows, in any order; VMs in the one they were declared in."""
        fleet = cls(timing)
        for row in sorted(rows, key=_load_order):
            fleet.put(row)
        fleet.revision = revision
        fleet.recorded_at = recorded_at
        return fleet

    def apply(self, change: Change[Any]) -> None:
        """Make the change happen. Changes are applied in the order `decide` gave them."""
        self.revision += 1
        self.recorded_at = change.at
        if isinstance(change, Removal):
            self.drop(change.row)
        else:
            self.put(change.row)

    def node_touched(self, name: str) -> None:
        """Keep `open_nodes`."""
        node = self.nodes.get(name)
        if (
            node is not None
            and node.state is NodeState.IN_SERVICE
            and self.used_slots(name) < node.capacity
            and name not in self.operations_on_node
        ):
            self.open_nodes[name] = None
        else:
            self.open_nodes.pop(name, None)

    def rollout_node_touched(self, row: RolloutNode) -> None:
        """Keep `pending_nodes`, `parked_nodes` and `parked_scopes`."""
        before = self.rollout_nodes.get((row.rollout, row.node))
        if before is not None and before.status is RolloutNodeStatus.PENDING:
            if before.waits_for:
                _take_out(self.parked_nodes, before.waits_for, (before.rollout, before.node))
                _take_out(self.parked_scopes, before.node, before.rollout)
            else:
                _take_out(self.pending_nodes, before.rollout, before.node)
        if row.status is RolloutNodeStatus.PENDING:
            if row.waits_for:
                parked = self.parked_nodes.setdefault(row.waits_for, {})
                parked[row.rollout, row.node] = None
                self.parked_scopes.setdefault(row.node, {})[row.rollout] = row.waits_for
            else:
                self.pending_nodes.setdefault(row.rollout, {})[row.node] = None


def _take_out(index: Nested[Key, Value], key: str, member: Key) -> None:
    del index[key][member]
    if not index[key]:
        del index[key]
