"""The use cases: what a person, or a program of his, may ask of the control plane. No HTTP here.

Whatever is asked for is answered by what is shown (control/shapes.py), or by a Refusal of the law.
A name that nobody has raises errors.UnknownName with the nearest ones; what cannot be recorded
now raises errors.Unavailable.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from itertools import dropwhile, islice
from typing import NamedTuple, TypedDict, TypeVar
from uuid import uuid4

from fairnotice.conductor.conductor import Conductor
from fairnotice.control import bodies, shapes, stories, views
from fairnotice.control.admission import Auth
from fairnotice.control.endpoints import Endpoints
from fairnotice.control.misfits import nearest
from fairnotice.control.publishing import LOCATION, SUBSCRIPTION
from fairnotice.deliveries.webhooks import Webhooks
from fairnotice.engine import Code, Decision, Fleet, Forecast, Refusal, commands, document
from fairnotice.engine.commands import Command
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.specs import FleetSpec
from fairnotice.engine.tables import known_key
from fairnotice.errors import Unavailable, UnknownName
from fairnotice.metadata.faults import Fault, Faults
from fairnotice.model import Event, Requester, Window
from fairnotice.wire.document import render
from fairnotice.words import EventStatus, ImpactKind, OperationKind

Row = TypeVar("Row")
# Which rows of a table are shown to who asks, by name.
Only = Callable[[str], bool]

# How many names are compared with one that nobody has: difflib is slow.
COMPARED_MAX = 2_000

# What `impact` means on a node.
NODE_IMPACTS = {
    "freeze": OperationKind.HOST_UPDATE,
    "reboot": OperationKind.HOST_REBOOT,
    "migrate": OperationKind.MIGRATION,
    "repair": OperationKind.REPAIR,
    "evacuate": OperationKind.EVACUATION,
}
VM_OPERATIONS: Mapping[str, Callable[..., Command]] = {
    "restart": commands.Restart,
    "redeploy": commands.Redeploy,
    "evict": commands.Evict,
    "delete": commands.Delete,
    "stop": commands.Stop,
    "start": commands.Start,
    "deallocate": commands.Deallocate,
}
ROLLOUT_COMMANDS: Mapping[str, Callable[..., commands.Steering]] = {
    "pause": commands.PauseRollout,
    "resume": commands.ResumeRollout,
    "cancel": commands.CancelRollout,
}

Result = shapes.Accepted | Refusal


class Who(NamedTuple):
    """Who asks, and the key under which the same question is the same request."""

    requester: Requester
    key: str | None = None


class _Asked(TypedDict):
    id: str
    by: Requester
    idempotency_key: str | None


def named(kind: str, rows: Mapping[str, Row], name: str) -> Row:
    """The row of this name; UnknownName with the nearest ones."""
    row = rows.get(name)
    if row is None:
        alike = nearest(islice(rows, COMPARED_MAX), name)
        meant = f" Did you mean {' or '.join(alike)}?" if alike else ""
        raise UnknownName(f"There is no {kind} {name}.{meant}", alike)
    return row


def known_id(rows: Container[str], name: str) -> str | None:
    """An id as these rows have it, or None: clients write GUIDs in either case, alike."""
    return next((one for one in (name, name.lower()) if one in rows), None)


def everything(_: str) -> bool:
    """Of whoever may see all there is."""
    return True


def beyond(rows: Mapping[str, Row], name: str, only: Only = everything) -> Iterable[Row]:
    """The rows that follow the one of this name; all of them where no name is given."""
    following: Iterable[str] = rows
    if name:
        following = islice(dropwhile(lambda one: one != name, rows), 1, None)
    return (rows[one] for one in following if only(one))


def _new_guid() -> str:
    return str(uuid4())


class Service:
    """The control plane of one fleet, without a front."""

    def __init__(
        self,
        conductor: Conductor,
        new_id: Callable[[], str] | None = None,
        faults: Faults | None = None,
        auth: Auth | None = None,
    ) -> None:
        self.conductor = conductor
        self._auth = auth
        self.endpoints = Endpoints(conductor)
        self.webhooks = Webhooks(conductor, subscription=SUBSCRIPTION, location=LOCATION)
        # Those of the endpoint in this process, where there is one.
        self._faults = faults
        self._new_id = new_id or _new_guid

    @property
    def fleet(self) -> Fleet:
        """The state as it was last committed."""
        return self.conductor.fleet

    # ---- Looking ----

    def vms(self, after: str = "", only: Only = everything) -> Iterable[shapes.Vm]:
        """Every VM, in the order of their declaration."""
        return (views.vm(self.fleet, row) for row in beyond(self.fleet.vms, after, only))

    def vm(self, name: str) -> shapes.Vm:
        """One VM."""
        return views.vm(self.fleet, named("VM", self.fleet.vms, name))

    def nodes(self, after: str = "", only: Only = everything) -> Iterable[shapes.Node]:
        """Every node."""
        return (views.node(self.fleet, row) for row in beyond(self.fleet.nodes, after, only))

    def node(self, name: str) -> shapes.Node:
        """One node."""
        return views.node(self.fleet, named("node", self.fleet.nodes, name))

    def scopes(self, after: str = "", only: Only = everything) -> Iterable[shapes.Scope]:
        """Every scope."""
        return (views.scope(self.fleet, row) for row in beyond(self.fleet.scopes, after, only))

    def scope(self, name: str) -> shapes.Scope:
        """One scope."""
        return views.scope(self.fleet, named("scope", self.fleet.scopes, name))

    def scale_sets(self, after: str = "", only: Only = everything) -> Iterable[shapes.ScaleSet]:
        """Every scale set."""
        return (
            views.scale_set(self.fleet, row) for row in beyond(self.fleet.scale_sets, after, only)
        )

    def scale_set(self, name: str) -> shapes.ScaleSet:
        """One scale set."""
        return views.scale_set(self.fleet, named("scale set", self.fleet.scale_sets, name))

    def events(
        self, after: str = "", status: EventStatus | None = None, only: Only = everything
    ) -> Iterable[shapes.Event]:
        """Every event that is announced, under way, or over for less than a day."""
        rows = beyond(self.fleet.events, after, only)
        return (views.event(self.fleet, row) for row in rows if status in (None, row.status))

    async def event(self, name: str) -> shapes.Event:
        """One event, for as long as history is kept."""
        row = self.fleet.events.get(name.upper())
        if row is None:
            return (await self.history(name)).event
        return views.event(self.fleet, row)

    def operations(self, after: str = "", only: Only = everything) -> Iterable[shapes.Operation]:
        """Every operation that is pending, under way, or over for less than a day."""
        return (
            views.operation(self.fleet, row) for row in beyond(self.fleet.operations, after, only)
        )

    def operation(self, name: str) -> shapes.Operation:
        """One operation."""
        rows = self.fleet.operations
        return views.operation(self.fleet, named("operation", rows, known_id(rows, name) or name))

    def rollouts(self, after: str = "", only: Only = everything) -> Iterable[shapes.Rollout]:
        """Every rollout, without its nodes."""
        canceled = views.canceled_nodes(self.fleet)
        rows = beyond(self.fleet.rollouts, after, only)
        return (views.rollout(self.fleet, row, canceled[row.id]) for row in rows)

    def rollout(self, name: str) -> shapes.Rollout:
        """One rollout, with its nodes."""
        rows = self.fleet.rollouts
        row = named("rollout", rows, known_id(rows, name) or name)
        canceled_count = views.canceled_nodes(self.fleet)[row.id]
        return views.rollout(self.fleet, row, canceled_count, self.conductor.now())

    def document(self, vm: str, api_version: str) -> bytes:
        """What a VM reads, byte for byte."""
        scope = self.fleet.scopes[named("VM", self.fleet.vms, vm).scope]
        return render(document(self.fleet, scope.name), api_version, scope.kind)

    async def history(self, event: str) -> shapes.History:
        """The story of an event, for as long as history is kept."""
        lines = await self.conductor.history(f"event:{event.upper()}")
        row = self.fleet.events.get(event.upper()) or stories.last_known(event.upper(), lines)
        if row is None:
            row = self._event(event)
        steps = stories.steps(row, lines, self.conductor.now().wall)
        return shapes.History(event=views.event(self.fleet, row), steps=steps)

    # ---- VMs and scale sets ----

    async def on_vms(
        self,
        what: str,
        vms: tuple[str, ...],
        who: Who,
        body: shapes.Body | None = None,
        *,
        expected: str | None = None,
    ) -> Result:
        """Restart, redeploy, evict, delete, stop, start or deallocate VMs: all or none.

        What is deleted may have to be as whoever asks has read it.
        """
        for vm in vms:
            named("VM", self.fleet.vms, vm)
        not_before = getattr(body, "not_before", None)
        more = {} if not_before is None else {"not_before": not_before}
        more |= {} if expected is None else {"expected": expected}
        command = VM_OPERATIONS[what](**self._asked(who), vms=vms, **more)
        return await self._tell(command)

    async def scale_in(self, name: str, who: Who, body: bodies.ScaleIn) -> Result:
        """Delete the newest instances of a scale set."""
        named("scale set", self.fleet.scale_sets, name)
        return await self._tell(
            commands.ScaleIn(**self._asked(who), scale_set=name, count=body.count)
        )

    async def change_scale_set(self, name: str, body: bodies.ChangeScaleSet) -> Result:
        """Switch terminate notification on or off."""
        named("scale set", self.fleet.scale_sets, name)
        minutes = body.terminate_notice_minutes
        return await self._tell(commands.SetTerminateNotice(scale_set=name, minutes=minutes))

    async def change_scope(self, name: str, body: bodies.ChangeScope) -> Result:
        """Which user-initiated events of a scope are approved automatically."""
        named("scope", self.fleet.scopes, name)
        policy = tuple(body.automatically_approve)
        return await self._tell(commands.SetPolicy(scope=name, automatically_approve=policy))

    async def describe(self, command: commands.Describe, who: Who) -> Result:
        """Take what is said of a VM or a set: all of it, or nothing."""
        return await self._steer(command, who)

    async def scale_out(self, name: str, addresses: tuple[str, ...], who: Who) -> Result:
        """New instances of a scale set, where the driver's machines can be made."""
        named("scale set", self.fleet.scale_sets, name)
        if addresses and not self.conductor.driver.makes:
            why = f"The driver ({self.conductor.driver.name}) cannot make machines."
            return Refusal(Code.CONFLICT, 0, why, "Make them, and declare them in the fleet file.")
        return await self._steer(commands.ScaleOut(scale_set=name, addresses=addresses), who)

    # ---- Nodes and rollouts ----

    async def on_node(
        self, what: str, node: str, who: Who, body: bodies.Maintain | bodies.OnNode
    ) -> Result:
        """Maintain, migrate, repair or evacuate one node; `what` is a key of NODE_IMPACTS."""
        named("node", self.fleet.nodes, node)
        duration_seconds = body.duration_seconds if isinstance(body, bodies.Maintain) else None
        command = commands.NodeOperation(
            **self._asked(who),
            node=node,
            kind=NODE_IMPACTS[what],
            duration_seconds=duration_seconds,
            not_before=body.not_before,
            force=body.force,
        )
        return await self._tell(command)

    async def predict_failure(self, node: str, who: Who, body: bodies.PredictFailure) -> Result:
        """Move the VMs of a node away before it fails."""
        named("node", self.fleet.nodes, node)
        command = commands.PredictFailure(
            **self._asked(who), node=node, risk=body.risk, not_before=body.not_before
        )
        return await self._tell(command)

    async def fail_node(self, node: str, who: Who) -> Result:
        """The node has failed, and its VMs surely do not run any more."""
        named("node", self.fleet.nodes, node)
        return await self._tell(commands.FailNode(**self._asked(who), node=node))

    async def cordon(self, node: str, who: Who, *, cordoned: bool) -> Result:
        """Put no VM on this node; or return it to service."""
        named("node", self.fleet.nodes, node)
        command = commands.Cordon if cordoned else commands.Uncordon
        return await self._steer(command(node=node), who)

    async def start_rollout(
        self, who: Who, body: bodies.StartRollout
    ) -> shapes.Accepted | shapes.Forecast | Refusal:
        """The same operation on many nodes; a dry run only shows what it would do."""
        for node in body.nodes:
            named("node", self.fleet.nodes, node)
        command = commands.StartRollout(
            **self._asked(who),
            nodes=tuple(body.nodes),
            kind=NODE_IMPACTS[body.impact],
            duration_seconds=body.duration_seconds,
            windows=tuple(
                Window(tuple(one.weekdays), one.start_minute, one.length_minutes)
                for one in body.windows
            ),
            recovery_seconds=body.recovery_seconds,
            nodes_at_once_max=body.nodes_at_once_max,
            failure_budget=body.failure_budget,
            dry_run=body.dry_run,
        )
        decision = await self._decided(command)
        if isinstance(decision, Decision):
            decision = self._warned(decision, {KINDS[command.kind].impact})
        if isinstance(decision, Decision) and isinstance(decision.answer, Forecast):
            return views.forecast(decision)
        return self._shown(decision)

    async def steer_rollout(self, what: str, rollout: str, who: Who) -> Result:
        """Pause, resume or cancel a rollout."""
        rows = self.fleet.rollouts
        row = named("rollout", rows, known_id(rows, rollout) or rollout)
        return await self._steer(ROLLOUT_COMMANDS[what](rollout=row.id, by=who.requester), who)

    # ---- Operations and events ----

    async def cancel_operation(self, name: str, who: Who) -> Result:
        """Take back an operation with all its events; or what is left of a whole request."""
        target = known_id(self.fleet.requests, name)
        if target is None:
            rows = self.fleet.operations
            target = named("operation", rows, known_id(rows, name) or name).id
        return await self._steer(commands.Cancel(target=target, by=who.requester), who)

    async def approve(self, event: str, who: Who) -> Result:
        """Give the go-ahead in the control plane."""
        return await self.approve_all((event,), who)

    async def approve_all(self, events: tuple[str, ...], who: Who) -> Result:
        """The same for several events: all of them, or none."""
        events = tuple(self._event(event).id for event in events)
        return await self._steer(commands.Approve(events=events, by=who.requester), who)

    async def cancel(self, event: str, who: Who) -> Result:
        """Take back the operation of this event, with all its events."""
        event = self._event(event).id
        return await self._steer(commands.Cancel(target=event, by=who.requester), who)

    async def postpone(self, event: str, who: Who, body: bodies.Postpone) -> Result:
        """Give more notice."""
        event = self._event(event).id
        command = commands.Postpone(event=event, not_before=body.not_before, by=who.requester)
        return await self._steer(command, who)

    async def release(self, event: str, who: Who) -> Result:
        """Do not wait for endpoints that have not confirmed this event."""
        event = self._event(event).id
        return await self._steer(commands.Release(event=event, by=who.requester), who)

    # ---- The fleet ----

    async def apply_fleet(self, spec: FleetSpec) -> Result:
        """Make the fleet what the specification says: all of it, or nothing."""
        return await self._tell(commands.ApplyFleet(spec=spec))

    def refusal_of_fleet(self, spec: FleetSpec) -> Refusal | None:
        """Why this specification would not be applied now; None where it would be."""
        decision = self.conductor.foresee(commands.ApplyFleet(spec=spec))
        return decision if isinstance(decision, Refusal) else None

    # ---- Who may ask ----

    @property
    def auth(self) -> Auth:
        """Tokens and the audit; Unavailable where nobody keeps any."""
        if self._auth is None:
            raise Unavailable("there are no tokens in this process")
        return self._auth

    # ---- Faults of the endpoint, of which the law knows nothing ----

    @property
    def faults(self) -> Faults:
        """The faults of the endpoint in this process; Unavailable where there is none."""
        if self._faults is None:
            raise Unavailable("there is no metadata endpoint in this process")
        return self._faults

    def faults_on(self) -> list[shapes.FaultOn]:
        """What is on now, in the order in which it was set."""
        return [views.fault(on) for on in self.faults]

    def fault_kinds(self) -> list[shapes.FaultMeaning]:
        """What there is."""
        return views.fault_meanings(self.faults.spoiled)

    def set_fault(self, body: bodies.SetFault) -> shapes.FaultOn:
        """Let the endpoint misbehave."""
        fault = Fault(body.fault, body.vm, body.seconds, body.for_seconds)
        return views.fault(self.faults.set(fault))

    def clear_fault(self, name: str) -> shapes.Cleared:
        """Let it behave again."""
        return shapes.Cleared([self.faults.clear(name).id])

    def clear_faults(self) -> shapes.Cleared:
        """The same of all faults."""
        return shapes.Cleared([fault.id for fault in self.faults.clear_all()])

    # ---- Telling the law ----

    def has_request(self, who: Who) -> bool:
        """Whether the law knows this key already, as that of a request (rule 19)."""
        return (
            who.key is not None and known_key(who.requester, who.key) in self.fleet.request_by_key
        )

    def _event(self, name: str) -> Event:
        """Clients write GUIDs in either case, and mean the same."""
        return named("event", self.fleet.events, name.upper())

    def _asked(self, who: Who) -> _Asked:
        return {"id": self._new_id(), "by": who.requester, "idempotency_key": who.key}

    async def _steer(self, command: commands.Steering, who: Who) -> Result:
        """Tell what makes no operation; under a key, once (rule 19)."""
        if who.key is None:
            return await self._tell(command)
        return await self._tell(commands.Keyed(**self._asked(who), command=command))

    async def _tell(self, command: Command) -> Result:
        decision = await self._decided(command)
        if isinstance(decision, Decision):
            decision = self._warned(decision, views.impacts_planned(self.fleet, decision))
        return self._shown(decision)

    def _warned(self, decision: Decision, kinds: set[ImpactKind]) -> Decision:
        """With a word on what nobody can do: it is announced to VMs, and fails."""
        driver = self.conductor.driver
        cannot = sorted(kinds - driver.kinds)
        if not cannot:
            return decision
        sentence = f"The driver ({driver.name}) cannot {' or '.join(cannot)}: this will fail."
        return replace(decision, warnings=(*decision.warnings, sentence))

    async def _decided(self, command: Command) -> Decision | Refusal:
        return await self.conductor.submit(command)

    def _shown(self, decision: Decision | Refusal) -> Result:
        if isinstance(decision, Refusal):
            return decision
        return views.accepted(self.fleet, decision)
