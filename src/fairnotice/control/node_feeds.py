"""What each node's endpoint is told: only what its own VMs need, as it changes.

A feed holds names, not lines. A commit marks the scopes and VMs that it made different in the few
feeds concerned, found by index; when the reader takes more, they are written as they are then. So
a reader that is slow misses steps in between and never the last, what is kept for it is bounded by
its node, and 500 feeds cost a commit nothing that does not concern them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from fairnotice.conductor.feed import Feed
from fairnotice.control.node_lines import (
    PROTOCOL,
    At,
    Hello,
    NoScope,
    NoVm,
    SnapshotBegins,
    encode,
    scope_line,
    vm_line,
)
from fairnotice.control.publishing import LOCATION, SUBSCRIPTION
from fairnotice.engine import Fleet, document
from fairnotice.engine.changes import Change, Removal
from fairnotice.model import Endpoint, Event, Node, Scope, Vm

# How often somebody who has nothing to hear hears that.
BEAT_SECONDS = 10
# Whose turn it is, and whether somebody's time is over, is looked at so often.
TICK_SECONDS = 1.0
# So many feeds a node may have: one is enough, and half-open ones may be left beside it.
FEEDS_PER_NODE_MAX = 3
# So much is written in one go before others get their turn.
AT_ONCE = 500


class NodeFeed:
    """One endpoint that follows: what it was sent, and what is different since."""

    def __init__(self, node: str, endings: Sequence[asyncio.Event], fleet: Fleet) -> None:
        self.node = node
        self._fleet = fleet
        # Set when it is to be sent no more.
        self.endings = endings
        self.woken = asyncio.Event()
        self.ended = False
        # Of the newest state it was asked to take; what it took is in its reports.
        self.revision = 0
        self.fault_domain = 0
        self._fresh = True
        self._asked = False
        self._beat = False
        # What it was sent: the scope of each VM, and how many VMs are in each.
        self._sent: dict[str, str] = {}
        self._scopes: Counter[str] = Counter()
        # What is to be sent, in order and once.
        self._dirty_scopes: dict[str, None] = {}
        self._dirty_vms: dict[str, None] = {}
        self.begin(fleet)

    def begin(self, fleet: Fleet) -> None:
        """Tell it everything anew, from now on of this fleet."""
        self._fleet = fleet
        self._fresh = True
        self._sent.clear()
        self._scopes.clear()
        self._dirty_scopes.clear()
        self._dirty_vms = dict.fromkeys(fleet.vms_on_node.get(self.node, ()))
        self.fault_domain = _fault_domain(fleet, self.node)
        self.ask()

    def ask(self) -> None:
        """Something waits until its endpoint shows what is there."""
        self._asked = True
        self.woken.set()

    def mark_scope(self, name: str) -> None:
        """This scope is different."""
        self._dirty_scopes[name] = None
        self.ask()

    def mark_vm(self, name: str) -> None:
        """This VM is different, or has come or gone."""
        self._dirty_vms[name] = None
        self.ask()

    def beat(self) -> None:
        """Say that there is nothing to say."""
        self._beat = True
        self.woken.set()

    def end(self) -> None:
        """Send it no more."""
        self.ended = True
        self.woken.set()

    def lines(self) -> Iterator[bytes]:
        """What it is to be sent, in pieces; between two of them the fleet may go on, or begin."""
        self.woken.clear()
        if not (self._asked or self._beat):
            return
        while self._fresh or self._dirty_vms or self._dirty_scopes:
            if self._fresh:
                # At whichever piece it was: told later, it would take back what followed it.
                self._fresh = False
                yield encode(SnapshotBegins())
            else:
                yield b"".join(self._some(self._fleet))
        revision, confirm = self._fleet.revision, self._asked
        # What was lost on the way is asked for again with the next beat.
        confirm = confirm or bool(self._fleet.unconfirmed_on_node.get(self.node))
        self._asked = self._beat = False
        self.revision = revision
        yield encode(At(revision, confirm))

    def _some(self, fleet: Fleet) -> Iterator[bytes]:
        vms = _taken(self._dirty_vms)
        for name in vms:
            self._move(fleet, name)
        for name in _taken(self._dirty_scopes):
            if self._scopes[name] > 0 and name in fleet.scopes:
                yield encode(scope_line(fleet.scopes[name], document(fleet, name)))
        for name in vms:
            if name in self._sent:
                yield encode(vm_line(fleet.vms[name], fleet.nodes[self.node]))
            else:
                yield encode(NoVm(name))
        for name in [name for name, count in self._scopes.items() if count <= 0]:
            del self._scopes[name]
            yield encode(NoScope(name))

    def _move(self, fleet: Fleet, name: str) -> None:
        """Count a VM where it is now; a scope that is new here is sent before it."""
        before = self._sent.pop(name, None)
        if before is not None:
            self._scopes[before] -= 1
        vm = fleet.vms.get(name)
        if vm is not None and vm.node == self.node:
            self._sent[name] = vm.scope
            if vm.scope not in self._scopes:
                self._dirty_scopes[vm.scope] = None
            self._scopes[vm.scope] += 1


class NodeFeeds:
    """All feeds of one control plane; it follows the commits while there is one."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._fleet: Fleet | None = None
        # In the order in which they were opened.
        self._of: dict[str, dict[NodeFeed, None]] = {}
        # Where each VM of a node with a feed was last.
        self._where: dict[str, str] = {}
        self._ticking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def is_connected(self, node: str) -> bool:
        """Whether the endpoint of this node follows here."""
        return node in self._of

    async def follow(self, node: str, *endings: asyncio.Event) -> AsyncIterator[bytes]:
        """The lines for this node, until nobody reads, one of these is set, or newer ones come."""
        fleet = self._following()
        feed = NodeFeed(node, endings, fleet)
        beside = self._of.setdefault(node, {})
        beside[feed] = None
        for oldest in list(beside)[:-FEEDS_PER_NODE_MAX]:
            oldest.end()
            self._leave(oldest)
        self._where.update(dict.fromkeys(fleet.vms_on_node.get(node, ()), node))
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())
        try:
            hello = Hello(PROTOCOL, node, SUBSCRIPTION, LOCATION)
            yield encode(hello)
            while not feed.ended:
                for piece in feed.lines():
                    yield piece
                    # A piece is some milliseconds of work, and others wait.
                    await asyncio.sleep(0)
                await feed.woken.wait()
        finally:
            self._leave(feed)

    def _following(self) -> Fleet:
        if self._fleet is None:
            self._feed.follow(self)
        assert self._fleet is not None
        return self._fleet

    def _leave(self, feed: NodeFeed) -> None:
        beside = self._of.get(feed.node, {})
        if feed not in beside:
            # A newer one had its place already.
            return
        del beside[feed]
        if not beside:
            del self._of[feed.node]
            for name in [vm for vm, node in self._where.items() if node == feed.node]:
                del self._where[name]

    # ---- What the conductor's feed calls ----

    def loaded(self, fleet: Fleet) -> None:
        """This is the whole state: everybody is told everything."""
        self._fleet = fleet
        self._where.clear()
        for node, feeds in self._of.items():
            self._where.update(dict.fromkeys(fleet.vms_on_node.get(node, ()), node))
            for feed in feeds:
                if node in fleet.nodes:
                    feed.begin(fleet)
                else:
                    feed.end()

    def committed(self, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:
        """Mark what these changes have made different for whom."""
        if not self._of:
            return
        for change in changes:
            row = change.row
            if isinstance(change, Removal) and isinstance(row, Node | Endpoint):
                self._end(row.name if isinstance(row, Node) else row.node)
            elif isinstance(row, Scope):
                self._scope_changed(fleet, row)
            elif isinstance(row, Vm):
                self._vm_changed(row, gone=isinstance(change, Removal))
            elif isinstance(row, Node):
                self._node_changed(fleet, row)
            elif isinstance(row, Event):
                for node in row.unconfirmed:
                    for feed in self._of.get(node, ()):
                        feed.ask()

    def _end(self, node: str) -> None:
        """The node or its endpoint is removed: whoever is still there has to join again."""
        for feed in self._of.get(node, ()):
            feed.end()

    def _scope_changed(self, fleet: Fleet, scope: Scope) -> None:
        nodes = {fleet.vms[name].node for name in fleet.vms_in_scope.get(scope.name, ())}
        for node in nodes:
            for feed in self._of.get(node or "", ()):
                feed.mark_scope(scope.name)

    def _vm_changed(self, vm: Vm, *, gone: bool) -> None:
        before = self._where.pop(vm.name, None)
        now = None if gone else vm.node
        if now in self._of:
            self._where[vm.name] = now or ""
        for node in {before, now} & self._of.keys():
            for feed in self._of[node or ""]:
                feed.mark_vm(vm.name)

    def _node_changed(self, fleet: Fleet, node: Node) -> None:
        for feed in self._of.get(node.name, ()):
            if _fault_domain(fleet, node.name) != feed.fault_domain:
                feed.begin(fleet)

    # ---- Time ----

    async def _tick(self) -> None:
        """Let each feed beat in its turn, and end those whose time has come."""
        turn = 0
        while self._of:
            # Where the journal is lost, what is told may be old: they go to another control plane.
            over = self._feed.ended or self._feed.cut_off
            turn = (turn + 1) % BEAT_SECONDS
            for number, feed in enumerate(f for feeds in self._of.values() for f in feeds):
                if over or any(ending.is_set() for ending in feed.endings):
                    feed.end()
                elif number % BEAT_SECONDS == turn:
                    feed.beat()
            await asyncio.sleep(TICK_SECONDS)


def _taken(names: dict[str, None]) -> list[str]:
    """Take some of these out, the oldest first."""
    some = [name for name, _ in zip(names, range(AT_ONCE), strict=False)]
    for name in some:
        del names[name]
    return some


def _fault_domain(fleet: Fleet, node: str) -> int:
    return fleet.nodes[node].fault_domain if node in fleet.nodes else 0
