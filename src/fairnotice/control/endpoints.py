"""What the endpoints of nodes may ask of the control plane: each for the VMs of its own node.

Whoever has stolen an endpoint's token can say what he likes about that node's VMs, and nothing of
any other's: what a report says of others is passed over, and an approval for them is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime

from fairnotice.conductor.conductor import Conductor
from fairnotice.control import endpoint_shapes as shapes
from fairnotice.control.node_feeds import NodeFeeds
from fairnotice.control.serving import unknown_events
from fairnotice.engine import Fleet, Refusal
from fairnotice.engine.commands import (
    Approve,
    Command,
    Confirm,
    Heard,
    HearEndpoint,
    JoinEndpoint,
    LeaveEndpoint,
    ReportServed,
    ReportUnserved,
    SeenBy,
)
from fairnotice.engine.refusal import Code
from fairnotice.model import Endpoint, Requester
from fairnotice.wire import identity_bodies
from fairnotice.words import Role

ASK_THERE = "Ask the endpoint of the node where it is."


class Endpoints:
    """The endpoints of one control plane."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self.feeds = NodeFeeds(conductor.feed)
        # Set by whoever signs tokens: the status and body for a VM that asks for an identity.
        self.identify_vm: Callable[[str, str, str], Awaitable[tuple[int, bytes]]] | None = None
        # When each last reported here.
        self.heard_at: dict[str, datetime] = {}

    # ---- Looking ----

    def all(self, rows: Iterable[Endpoint]) -> Iterable[shapes.Endpoint]:
        """These endpoints, as they are shown."""
        return map(self.shown, rows)

    def shown(self, row: Endpoint) -> shapes.Endpoint:
        """One endpoint."""
        fleet = self._conductor.fleet
        connected = self.feeds.is_connected(row.node)
        return shapes.Endpoint(
            node=row.node,
            confirmed_revision=row.confirmed_revision,
            unconfirmed=list(fleet.unconfirmed_on_node.get(row.node, ())),
            connected=connected,
            heard_at=self.heard_at.get(row.node),
            followed=None if self._conductor.shares and not connected else connected,
        )

    def follow(self, node: str, *endings: asyncio.Event) -> AsyncIterator[bytes]:
        """The feed of this node, until one of these is set."""
        return self.feeds.follow(node, *endings)

    # ---- What they say ----

    async def join(self, node: str) -> shapes.Heeded | Refusal:
        """From now on events for VMs of this node wait until its endpoint shows them."""
        self._hear(node)
        return await self._told(node, JoinEndpoint(node=node))

    async def leave(self, node: str) -> shapes.Heeded | Refusal:
        """The endpoint is taken away for good; nobody waits for it any more."""
        self.heard_at.pop(node, None)
        return await self._told(node, LeaveEndpoint(node=node))

    async def enable(self, node: str, body: shapes.EnableHere) -> shapes.EnabledHere | Refusal:
        """VMs of the node are about to be answered for the first time: durable, then shown."""
        self._hear(node)
        asked = sorted({*body.scopes, body.scope} - {""})
        where = _Here(self._conductor.fleet, node)
        here = [scope for scope in asked if where.has_scope(scope)]
        if not here:
            return _elsewhere(f"No VM of {asked[0]}" if len(asked) == 1 else "None of them", node)
        now = self._conductor.now().wall
        answer = await self._told(node, ReportServed(heard=tuple(Heard(one, now) for one in here)))
        if isinstance(answer, Refusal):
            return answer
        elsewhere = [scope for scope in asked if scope not in set(here)]
        return shapes.EnabledHere(answer.revision, len(elsewhere), answer.joined, elsewhere)

    async def approve(self, node: str, body: shapes.ApproveHere) -> shapes.ApprovedHere | Refusal:
        """Approve these events for a VM of the node, durably; all of them, or none.

        What it saw goes into the same commit: once it has approved, it may be gone.
        """
        self._hear(node)
        conductor = self._conductor
        vm = conductor.fleet.vms.get(body.vm)
        if vm is None or vm.node != node:
            return _elsewhere(f"No VM {body.vm}", node)
        command = Approve(events=tuple(body.events), by=Requester(body.vm, Role.VM))
        commands: list[Command] = [command]
        if body.seen:
            seen = tuple(SeenBy(one.event.upper(), body.vm, one.at) for one in body.seen)
            commands.insert(0, ReportServed(seen=seen))
        decision = (await conductor.submit_all(commands))[-1]
        unknown: tuple[str, ...] = ()
        if isinstance(decision, Refusal):
            unknown = unknown_events(conductor.fleet, command, conductor.now())
        return shapes.ApprovedHere(revision=conductor.fleet.revision, unknown=list(unknown))

    async def identify(
        self, node: str, body: shapes.IdentifyHere
    ) -> shapes.IdentifiedHere | Refusal:
        """The token of the identity of a VM of the node, or why there is none."""
        self._hear(node)
        vm = self._conductor.fleet.vms.get(body.vm)
        if vm is None or vm.node != node:
            return _elsewhere(f"No VM {body.vm}", node)
        status, answer = 400, identity_bodies.NOT_FOUND
        if self.identify_vm is not None:
            status, answer = await self.identify_vm(body.vm, body.resource, body.identity)
        return shapes.IdentifiedHere(status=status, body=answer.decode("utf-8"))

    async def report(self, node: str, body: shapes.Report) -> shapes.Heeded | Refusal:
        """Take note of what an endpoint shows, and of what it served."""
        self._hear(node)
        here = _Here(self._conductor.fleet, node)
        heard = [one for one in body.heard if here.had_scope(one.scope)]
        seen = [one for one in body.seen if here.had_vm(one.vm)]
        told: list[Command] = []
        if heard or seen:
            told.append(
                ReportServed(
                    heard=tuple(Heard(one.scope, one.at) for one in heard),
                    seen=tuple(SeenBy(one.event.upper(), one.vm, one.at) for one in seen),
                )
            )
        silent: tuple[str, ...] = ()
        if body.unserved is not None:
            away = body.unserved
            silent = tuple(scope for scope in away.scopes if here.has_scope(scope))
            told.append(ReportUnserved(scopes=silent, seconds=away.seconds, until=away.until))
        # Last, so that it is known what was seen: then its notice does not begin anew (rule 5).
        # One that was taken away is not waited for, until it joins again.
        if body.confirmed is not None and node in self._conductor.fleet.endpoints:
            told.append(Confirm(node=node, revision=body.confirmed))
        told.append(HearEndpoint(node=node))
        given = len(body.heard) + len(body.seen)
        given += 0 if body.unserved is None else len(body.unserved.scopes)
        answer = await self._told(node, *told)
        if isinstance(answer, shapes.Heeded):
            answer.passed_over = given - len(heard) - len(seen) - len(silent)
        return answer

    def _hear(self, node: str) -> None:
        self.heard_at[node] = self._conductor.now().wall

    async def _told(self, node: str, *commands: Command) -> shapes.Heeded | Refusal:
        """Tell the law, all in one commit; the first refusal, if there is one.

        What one of them is refused for does not undo the others: all of it may be said again.
        """
        for decision in await self._conductor.submit_all(commands) if commands else ():
            if isinstance(decision, Refusal):
                return decision
        fleet = self._conductor.fleet
        return shapes.Heeded(revision=fleet.revision, joined=node in fleet.endpoints)


class _Here:
    """Which VMs and scopes a node's endpoint may speak of.

    Whatever is asked here is looked up once: whoever has stolen a token may ask the same 5,000
    times in one report, of the largest scope there is.
    """

    def __init__(self, fleet: Fleet, node: str) -> None:
        self._fleet = fleet
        self._node = node
        self._known: dict[str, bool] = {}
        self._left: frozenset[str] | None = None
        self._left_scopes: frozenset[str] | None = None

    def has_scope(self, name: str) -> bool:
        """Whether a VM of the scope is on the node."""
        known = self._known.get(name)
        if known is None:
            vms = self._fleet.vms_in_scope.get(name, ())
            known = any(self._fleet.vms[vm].node == self._node for vm in vms)
            self._known[name] = known
        return known

    def had_vm(self, name: str) -> bool:
        """Whether the VM is on the node; or has left it lately, if only by being deleted."""
        vm = self._fleet.vms.get(name)
        return (vm is not None and vm.node == self._node) or name in self._lately()

    def had_scope(self, name: str) -> bool:
        """Whether a VM of the scope is on the node, or has left it lately."""
        if self.has_scope(name):
            return True
        if self._left_scopes is None:
            vms = (self._fleet.vms.get(vm) for vm in self._lately())
            self._left_scopes = frozenset(vm.scope for vm in vms if vm is not None)
        return name in self._left_scopes

    def _lately(self) -> frozenset[str]:
        # An impact remembers where the VM was, and is itself remembered for a day.
        if self._left is None:
            impacts = self._fleet.impacts.values()
            self._left = frozenset(one.vm for one in impacts if one.source == self._node)
        return self._left


def _elsewhere(what: str, node: str) -> Refusal:
    # The same whether there is such a VM or not: it is nobody's business there.
    return Refusal(Code.FORBIDDEN, 3, f"{what} is on {node}.", ASK_THERE)
