"""What tests of stores tell: small commits, and what a database holds afterwards."""

import os

import pytest

from fairnotice.engine.changes import NodeDeclared, ScopeHeard
from fairnotice.model import Node
from fairnotice.testing.sample_rows import SCOPE, START

# Where CI is set nothing is skipped: what needs root fails there without it.
needs_root = pytest.mark.skipif(
    not os.environ.get("CI") and os.geteuid() != 0, reason="needs root to mount file systems"
)


class Leading:
    """Leads on a store and declares nodes, one per commit."""

    def __init__(self, store):
        self.store = store
        self.epoch = store.lead()
        self.revision = store.load().revision

    def declare(self, name):
        """Commit one node."""
        self.commit(NodeDeclared(START, Node(name)))

    def commit(self, *changes):
        """Commit these changes after what is known."""
        self.store.commit(self.epoch, self.revision, changes)
        self.revision += len(changes)


def nodes(store):
    """The names of the nodes that the store remembers."""
    return [row.name for row in store.load().rows if isinstance(row, Node)]


def bulk(count):
    """So many changes with some text."""
    return [ScopeHeard(START, SCOPE._replace(name=f"vm:bulk-{number}")) for number in range(count)]
