"""What the stories about the law have in common: a small fleet, its people, its clock."""

from datetime import datetime, timedelta

from fairnotice.engine import AZURE, Accepted, Code, Decision, Refusal, Timing
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import ApplyFleet, Approve
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.engine.tables import INDEXES, TABLES
from fairnotice.model import Event, Node, Operation, Requester, Rollout, Scope, Vm
from fairnotice.testing.stage import Stage
from fairnotice.words import EvictionPolicy, OperationKind, Outcome, Priority, Role

USER = Requester("ada", Role.USER)
OPERATOR = Requester("olga", Role.OPERATOR)

WEB = "availability-set:web"
BATCH = "scale-set:batch:0"
SPOT = "scale-set:spot:0"
SHOP = "cloud-service:shop"
DB = "vm:db"


def sample() -> FleetSpec:
    """The sample fleet: four kinds of scope on six nodes and three fault domains."""
    return FleetSpec(
        nodes=tuple(NodeSpec(f"node-{n}", n % 3) for n in range(6)),
        availability_sets=(SetSpec("web"),),
        scale_sets=(
            ScaleSetSpec("batch", terminate_notice_minutes=5),
            ScaleSetSpec("spot", priority=Priority.SPOT),
        ),
        cloud_services=(SetSpec("shop"),),
        vms=(
            *(VmSpec(f"web-{n}", f"node-{n}", availability_set="web") for n in range(3)),
            *(
                VmSpec(f"batch_{n}", f"node-{node}", scale_set="batch")
                for n, node in enumerate((0, 1, 3, 4))
            ),
            VmSpec("spot_0", "node-2", scale_set="spot", eviction_policy=EvictionPolicy.DELETE),
            VmSpec("spot_1", "node-5", scale_set="spot"),
            VmSpec("FrontEnd_IN_0", "node-3", cloud_service="shop", update_domain=0),
            VmSpec("BackEnd_IN_0", "node-3", cloud_service="shop", update_domain=0),
            VmSpec("FrontEnd_IN_1", "node-4", cloud_service="shop", update_domain=1),
            VmSpec("db", "node-1"),
        ),
    )


class Story(Stage):
    """A stage with the sample fleet on it, and short words for what people do there."""

    def __init__(
        self,
        spec: FleetSpec | None = None,
        *,
        listening: tuple[str, ...] = (WEB, BATCH, SPOT, SHOP, DB),
        timing: Timing = AZURE,
    ) -> None:
        super().__init__(timing)
        self.began = self.clock.wall()
        self._ids = 0
        self.tell(ApplyFleet(spec=spec or sample()))
        self.listen(*(scope for scope in listening if scope in self.fleet.scopes))

    # ---- Asking ----

    def new_id(self) -> str:
        self._ids += 1
        return f"request-{self._ids}"

    def restart_vm(self, *vms: str, by: Requester = USER, **more) -> Accepted:
        return self.tell(ask.Restart(id=self.new_id(), by=by, vms=vms, **more))

    def redeploy(self, *vms: str, by: Requester = USER, **more) -> Accepted:
        return self.tell(ask.Redeploy(id=self.new_id(), by=by, vms=vms, **more))

    def evict(self, *vms: str, by: Requester = OPERATOR) -> Accepted:
        return self.tell(ask.Evict(id=self.new_id(), by=by, vms=vms))

    def delete(self, *vms: str, by: Requester = USER) -> Accepted:
        return self.tell(ask.Delete(id=self.new_id(), by=by, vms=vms))

    def stop(self, *vms: str) -> Accepted:
        return self.tell(ask.Stop(id=self.new_id(), by=USER, vms=vms))

    def start(self, *vms: str) -> Accepted:
        return self.tell(ask.Start(id=self.new_id(), by=USER, vms=vms))

    def deallocate(self, *vms: str) -> Accepted:
        return self.tell(ask.Deallocate(id=self.new_id(), by=USER, vms=vms))

    def on_node(self, kind: OperationKind, node: str, **more) -> Accepted:
        return self.tell(self.node_command(kind, node, **more))

    def node_command(self, kind: OperationKind, node: str, **more) -> ask.NodeOperation:
        return ask.NodeOperation(id=self.new_id(), by=OPERATOR, node=node, kind=kind, **more)

    def maintain(self, node: str, **more) -> Accepted:
        """A host update that freezes the VMs for 9 seconds."""
        return self.on_node(OperationKind.HOST_UPDATE, node, **more)

    def predict(self, node: str, **more) -> Accepted:
        return self.tell(ask.PredictFailure(id=self.new_id(), by=OPERATOR, node=node, **more))

    def fail(self, node: str) -> Accepted:
        return self.tell(ask.FailNode(id=self.new_id(), by=OPERATOR, node=node))

    def roll_out(self, *nodes: str, kind: OperationKind = OperationKind.HOST_UPDATE, **more) -> str:
        """Start a rollout; its id."""
        command = ask.StartRollout(id=self.new_id(), by=OPERATOR, nodes=nodes, kind=kind, **more)
        answer = self.tell(command)
        assert answer.request is not None
        return answer.request

    def approve(self, vm: str, *events: str) -> Accepted:
        """A VM approves these events, or all that it sees."""
        seen = events or tuple(event.id for event in self.events(self.vm(vm).scope))
        return self.tell(Approve(events=seen, by=Requester(vm, Role.VM)))

    def cancel(self, target: str, by: Requester = OPERATOR) -> Accepted:
        return self.tell(ask.Cancel(target=target, by=by))

    def done(self, *vms: str) -> None:
        """The driver is done with these VMs, or with all it was asked for."""
        self._report(Outcome.DONE, vms)

    def failed(self, *vms: str) -> None:
        """The driver failed on these VMs, or on all it was asked for."""
        self._report(Outcome.FAILED, vms)

    def _report(self, outcome: Outcome, vms: tuple[str, ...]) -> None:
        for key, impact in list(self.under_way.items()):
            if not vms or impact.vm in vms:
                self.report(key, outcome)

    def refused(self, command: ask.Command) -> Refusal:
        """The law refuses this, says what to do, and nothing has changed."""
        before = self.snapshot()
        refusal = self.ask(command)
        assert isinstance(refusal, Refusal), f"accepted: {refusal}"
        assert refusal.why
        assert refusal.remedy
        # Whoever sent what can never be right is told which field of it is wrong.
        assert (refusal.field is not None) == (refusal.code is Code.INVALID), refusal
        assert self.snapshot() == before
        return refusal

    def unchanged(self, command: ask.Command) -> Decision:
        """The law accepts this, and nothing has changed."""
        decision = self.ask(command)
        assert isinstance(decision, Decision), f"refused: {decision}"
        assert decision.changes == ()
        return decision

    # ---- Looking ----

    def snapshot(self) -> dict[str, object]:
        """Everything the fleet holds."""
        tables = {name: dict(getattr(self.fleet, name)) for name in (*TABLES, *INDEXES)}
        return {**tables, "life": self.fleet.life, "revision": self.fleet.revision}

    def vm(self, name: str) -> Vm:
        return self.fleet.vms[name]

    def node(self, name: str) -> Node:
        return self.fleet.nodes[name]

    def scope(self, name: str) -> Scope:
        return self.fleet.scopes[name]

    def operation(self, name: str) -> Operation:
        return self.fleet.operations[name]

    def event(self, name: str) -> Event:
        return self.fleet.events[name]

    def events(self, scope: str) -> tuple[Event, ...]:
        """What the scope's document shows."""
        return self.document(scope).events

    def only(self, scope: str) -> Event:
        """The one event of the scope's document."""
        (event,) = self.events(scope)
        return event

    def shows(self, scope: str) -> tuple[int, list[tuple[str, str]]]:
        """The scope's incarnation, and (type, status) of each event."""
        document = self.document(scope)
        return document.incarnation, [
            (event.type.value, event.status.value) for event in document.events
        ]

    def notice_passes(self) -> None:
        """Advance until the notice of all that is Scheduled is over."""
        scheduled = [event for event in self.fleet.events.values() if event.scheduled]
        self.advance_to(max(event.not_before for event in scheduled))

    def at(self, **passed: float) -> datetime:
        """The instant so long after the story began."""
        return self.began + timedelta(**passed)

    def changes(self) -> list[str]:
        """What the last accepted command changed, by name."""
        return [type(change).__name__ for change in self.decisions[-1].changes]

    def rollout(self, name: str) -> Rollout:
        return self.fleet.rollouts[name]

    def statuses(self, rollout: str) -> dict[str, str]:
        """Where each node of a rollout is, in words."""
        rows = (row for row in self.fleet.rollout_nodes.values() if row.rollout == rollout)
        return {row.node: row.status.value for row in rows}
