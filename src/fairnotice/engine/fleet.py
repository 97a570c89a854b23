"""The state of the law, and `apply(change)`: the only thing that changes it."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from fairnotice.engine.changes import Change, Removal, Row
from fairnotice.engine.notice import AZURE, Timing
from fairnotice.engine.tables import INDEXES, TABLES, Tables
from fairnotice.model import Life, NodeState, RolloutNode, RolloutNodeStatus, Scope


def _load_order(row: Row) -> tuple[bool, int]:
    """Scopes first, since events are indexed by them; operations and events as they came."""
    return not isinstance(row, Scope), getattr(row, "revision", 0)


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
        self.open_nodes: dict[str, None] = {}
        # Nodes of each rollout that are still to come, in its order (rule 22).
        self.pending_nodes: defaultdict[str, dict[str, None]] = defaultdict(dict)

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
        """Keep `pending_nodes`."""
        pending = self.pending_nodes[row.rollout]
        if row.status is RolloutNodeStatus.PENDING:
            pending[row.node] = None
        else:
            pending.pop(row.node, None)
            if not pending:
                del self.pending_nodes[row.rollout]
