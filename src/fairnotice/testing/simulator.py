"""Drives a random fleet through the law, with a witness at every step.

Everything random comes from the seed, so a seed that fails fails again, at the same step.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import NamedTuple

from fairnotice.engine import AZURE, DEV, Decision, Refusal, Timing
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import Command, Heard, SeenBy
from fairnotice.engine.invariants import Violation, check_indexes
from fairnotice.engine.kinds import ROLLED_OUT
from fairnotice.model import Event, Impact, Requester, Window
from fairnotice.testing.random_fleet import POLICIES, random_fleet
from fairnotice.testing.stage import Stage
from fairnotice.testing.witness import LawBroken, LawWitness
from fairnotice.words import (
    NodeHealth,
    OperationKind,
    Outcome,
    Risk,
    Role,
    RolloutStatus,
)

STEPS = 500
INDEXES_EVERY_STEPS = 50
# How long everything may take to end: a rollout may have one short window a week.
PATIENCE_DAYS = 365

USERS = (Requester("ada", Role.USER), Requester("bob", Role.USER))
OPERATOR = Requester("olga", Role.OPERATOR)

# How often each thing happens, against the others.
WEIGHTS: dict[str, int] = {
    "time_passes": 22,
    "driver_answers": 22,
    "vms_ask": 8,
    "vm_approves": 14,
    "user_asks": 14,
    "power_changes": 7,
    "operator_asks": 7,
    "somebody_cancels": 4,
    "operator_postpones": 2,
    "node_changes": 6,
    "node_fails": 1,
    "rollout_begins": 2,
    "rollout_is_steered": 2,
    "endpoint_reports": 4,
    "fleet_changes": 2,
    "process_restarts": 1,
}


class Run(NamedTuple):
    """What one seed did, to its end or until it failed."""

    seed: int
    # Those that were completed.
    steps: int
    commands: int
    refused: int
    events: int
    impacts: int
    simulated_days: float


class Simulation:
    """One fleet, one seed, some hundred steps; raises LawBroken where the law is broken."""

    def __init__(
        self, seed: int, steps: int = STEPS, make_stage: Callable[..., Stage] = Stage
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.chance = Random(seed)
        timing = self._timing()
        self.witness = LawWitness(timing)
        self.stage = make_stage(timing, witness=self.witness)
        self.stage.keep_decisions = False
        self.step = 0
        self.refused = 0
        self.ids = 0
        self.began = self.stage.clock.wall()
        self.spec = random_fleet(self.chance)

    def _timing(self) -> Timing:
        profile = self.chance.choice((AZURE, DEV))
        return replace(
            profile,
            settle_seconds=self.chance.choice((0, 0, 5, 300)),
            user_operations_max=self.chance.choice((2, 10, 100)),
        )

    def run(self) -> Run:
        """All steps, then everything to its end."""
        self._submit(ask.ApplyFleet(spec=self.spec))
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        for step in range(self.steps):
            self.step = step
            (name,) = self.chance.choices(names, weights)
            ACTIONS[name](self)
            self.stage.tick()
            if self.step % INDEXES_EVERY_STEPS == 0:
                self._check_indexes()
        self.step = self.steps
        self._bring_to_end()
        self._check_indexes()
        return self.so_far()

    def so_far(self) -> Run:
        """What it has done until now."""
        passed = self.stage.clock.wall() - self.began
        return Run(
            self.seed,
            self.step,
            self.stage.commands_count,
            self.refused,
            len(self.witness.events),
            len(self.witness.begun),
            passed / timedelta(days=1),
        )

    # ---- The pieces of a step ----

    def _submit(self, command: Command) -> Decision | None:
        decision = self.stage.ask(command)
        if isinstance(decision, Refusal):
            self.refused += 1
            return None
        return decision

    def _new_id(self) -> str:
        self.ids += 1
        return f"{self.seed}-{self.ids}"

    def _asked(self, by: Requester) -> dict[str, object]:
        key = f"key-{self.chance.randrange(200)}" if self.chance.random() < 0.1 else None
        return {"id": self._new_id(), "by": by, "idempotency_key": key}

    def _some_vms(self) -> tuple[str, ...]:
        count = self.chance.choice((1, 1, 1, 1, 2, 5))
        vms = list(self.stage.fleet.vms)
        return tuple(self.chance.choices(vms, k=count)) if vms else ()

    def _a_node(self) -> str:
        return self.chance.choice(list(self.stage.fleet.nodes))

    def _visible_events(self) -> list[Event]:
        fleet = self.stage.fleet
        return [fleet.events[name] for names in fleet.events_in_scope.values() for name in names]

    def _check_indexes(self) -> None:
        found = check_indexes(self.stage.fleet)
        if found:
            raise LawBroken(found)

    # ---- What may happen ----

    def time_passes(self) -> None:
        """Seconds, minutes, or the long way to where nobody has asked for a day."""
        seconds = self.chance.choice((0.5, 3, 20, 60, 300, 900, 3600, 4 * 3600))
        if self.chance.random() < 0.03:
            seconds = 26 * 3600.0
        if self.chance.random() < 0.05:
            # Somebody sets the wall clock; the other one does not notice (rule 25).
            clock = self.stage.clock
            clock.set_wall(clock.wall() + timedelta(seconds=seconds))
        if self.chance.random() < 0.5 and self.stage.timers.next is not None:
            self.stage.advance_to(max(self.stage.timers.next, self.stage.clock.wall()))
        else:
            self.stage.advance(seconds=seconds)

    def driver_answers(self) -> None:
        """Some of what is under way ends, mostly well."""
        waiting: dict[str, Impact] = {**self.stage.under_way, **self.stage.asked}
        for key in list(waiting)[: self.chance.randint(1, 8)]:
            outcomes = [Outcome.DONE] * 12 + [Outcome.FAILED, Outcome.UNDER_WAY]
            if key in self.stage.asked:
                outcomes += [Outcome.NOT_BEGUN, Outcome.UNKNOWN]
            outcome = self.chance.choice(outcomes)
            self.stage.asked.pop(key, None)
            if outcome is not Outcome.UNDER_WAY:
                self.stage.under_way.pop(key, None)
            # Messages may come twice; the impact must not (rule 10).
            for _ in range(2 if self.chance.random() < 0.1 else 1):
                self._submit(ask.ReportOutcome(key=key, outcome=outcome))

    def vms_ask(self) -> None:
        """VMs read their documents."""
        fleet, now = self.stage.fleet, self.stage.clock.wall()
        scopes = list(fleet.scopes)
        asking = self.chance.sample(scopes, self.chance.randint(0, len(scopes)))
        seen = [
            SeenBy(event.id, self.chance.choice(event.resources), now)
            for event in self._visible_events()
            if self.chance.random() < 0.4
        ]
        heard = tuple(Heard(scope, now) for scope in asking)
        self._submit(ask.ReportServed(heard=heard, seen=tuple(seen)))

    def vm_approves(self) -> None:
        """A VM approves what it sees, or tries what it does not."""
        events = self._visible_events()
        if not events:
            return
        event = self.chance.choice(events)
        scope = event.scope if self.chance.random() < 0.9 else self.chance.choice(events).scope
        members = self.stage.fleet.vms_in_scope.get(scope)
        if members:
            by = Requester(self.chance.choice(members), Role.VM)
            self._submit(ask.Approve(events=(event.id,), by=by))

    def user_asks(self) -> None:
        """Restart, redeploy, evict, delete, scale in."""
        vms, asked = self._some_vms(), self._asked(self.chance.choice(USERS))
        kind = self.chance.choice(
            (ask.Restart, ask.Restart, ask.Redeploy, ask.Redeploy, ask.Evict, ask.Delete, None)
        )
        scale_sets = list(self.stage.fleet.scale_sets)
        if kind is None and scale_sets:
            scale_set, count = self.chance.choice(scale_sets), self.chance.randint(1, 3)
            self._submit(ask.ScaleIn(scale_set=scale_set, count=count, **asked))  # type: ignore[arg-type]
        elif kind is not None:
            more: dict[str, object] = {}
            if kind in (ask.Restart, ask.Redeploy) and self.chance.random() < 0.2:
                later = timedelta(seconds=self.chance.choice((5, 1000, 5000.5)))
                more["not_before"] = self.stage.clock.wall() + later
            self._submit(kind(vms=vms, **asked, **more))  # type: ignore[arg-type]

    def power_changes(self) -> None:
        """Stop, start, deallocate."""
        kind = self.chance.choice((ask.Stop, ask.Start, ask.Start, ask.Deallocate))
        self._submit(kind(vms=self._some_vms(), **self._asked(USERS[0])))  # type: ignore[arg-type]

    def operator_asks(self) -> None:
        """Maintain, migrate, repair or evacuate a node, now or later, with or without force."""
        kind = self.chance.choice(ROLLED_OUT)
        later = None
        if self.chance.random() < 0.3:
            later = self.stage.clock.wall() + timedelta(hours=self.chance.choice((1, 30.3)))
        command = ask.NodeOperation(
            id=self._new_id(),
            by=OPERATOR,
            node=self._a_node(),
            kind=kind,
            duration_seconds=9 if kind is OperationKind.HOST_UPDATE else None,
            not_before=later,
            force=self.chance.random() < 0.2,
        )
        self._submit(command)

    def somebody_cancels(self) -> None:
        """An operator, a user, or a VM that may not."""
        events = self._visible_events()
        if events:
            event = self.chance.choice(events)
            vm = Requester(event.resources[0], Role.VM)
            by = self.chance.choice((OPERATOR, OPERATOR, *USERS, vm))
            self._submit(ask.Cancel(target=event.id, by=by))

    def operator_postpones(self) -> None:
        """To later, and sometimes to earlier."""
        events = self._visible_events()
        if events:
            event = self.chance.choice(events)
            by = timedelta(seconds=self.chance.choice((-60, 0.5, 600)))
            postpone = ask.Postpone(event=event.id, not_before=event.not_before + by, by=OPERATOR)
            self._submit(postpone)

    def node_changes(self) -> None:
        """Cordon, uncordon, out of reach, in reach again, about to fail."""
        node = self._a_node()
        choice = self.chance.randrange(6)
        if choice == 0:
            self._submit(ask.Cordon(node=node))
        elif choice == 1:
            self._submit(ask.Uncordon(node=node))
        elif choice == 2:
            self._submit(ask.ReportReachable(node=node, reachable=False))
        elif choice < 5:
            self._submit(ask.ReportReachable(node=node, reachable=True))
        else:
            risk = self.chance.choice(tuple(Risk))
            predict = ask.PredictFailure(id=self._new_id(), by=OPERATOR, node=node, risk=risk)
            self._submit(predict)

    def node_fails(self) -> None:
        """Without warning; and an old failure is repaired."""
        self._submit(ask.FailNode(id=self._new_id(), by=OPERATOR, node=self._a_node()))
        for name, node in self.stage.fleet.nodes.items():
            if node.health is NodeHealth.FAILED and self.chance.random() < 0.5:
                self._submit(ask.Uncordon(node=name))
                return

    def rollout_begins(self) -> None:
        """Over some nodes, with any limits."""
        nodes = list(self.stage.fleet.nodes)
        windows: tuple[Window, ...] = ()
        if self.chance.random() < 0.3:
            days = tuple(self.chance.sample(range(7), 3))
            windows = (Window(days, self.chance.randrange(1440), self.chance.randint(30, 2000)),)
        command = ask.StartRollout(
            id=self._new_id(),
            by=OPERATOR,
            nodes=tuple(self.chance.sample(nodes, self.chance.randint(1, len(nodes)))),
            kind=self.chance.choice(ROLLED_OUT),
            windows=windows,
            recovery_seconds=self.chance.choice((None, 0, 60)),
            nodes_at_once_max=self.chance.choice((None, 2, 5)),
            failure_budget=self.chance.choice((None, 1, 10)),
            dry_run=self.chance.random() < 0.2,
        )
        self._submit(command)

    def rollout_is_steered(self) -> None:
        """Pause, resume, cancel."""
        rollouts = list(self.stage.fleet.rollouts)
        if rollouts:
            rollout = self.chance.choice(rollouts)
            kind = self.chance.choice(
                (ask.PauseRollout, ask.ResumeRollout, ask.ResumeRollout, ask.CancelRollout)
            )
            self._submit(kind(rollout=rollout, by=OPERATOR))

    def endpoint_reports(self) -> None:
        """Endpoints join, confirm, leave; an operator releases; nobody was served for a while."""
        fleet, choice = self.stage.fleet, self.chance.randrange(8)
        node = self._a_node()
        if choice == 0:
            self._submit(ask.JoinEndpoint(node=node))
        elif choice == 1:
            self._submit(ask.LeaveEndpoint(node=node))
        elif choice == 2:
            scopes = tuple(self.chance.sample(list(fleet.scopes), 1))
            self._submit(ask.ReportUnserved(scopes=scopes, seconds=self.chance.uniform(1, 5000)))
        elif choice == 3:
            for event in self._visible_events()[:1]:
                self._submit(ask.Release(event=event.id, by=OPERATOR))
        else:
            behind = self.chance.choice((0, 0, 20))
            for name in list(fleet.endpoints):
                self._submit(ask.HearEndpoint(node=name))
                self._submit(ask.Confirm(node=name, revision=max(0, fleet.revision - behind)))

    def fleet_changes(self) -> None:
        """New policies and notices; the whole fleet described anew as it is."""
        fleet, choice = self.stage.fleet, self.chance.randrange(3)
        scope = self.chance.choice(list(fleet.scopes))
        scale_set = self.chance.choice(list(fleet.scale_sets))
        if choice == 0:
            policy = self.chance.choice(POLICIES)
            self._submit(ask.SetPolicy(scope=scope, automatically_approve=policy))
        elif choice == 1:
            minutes = self.chance.choice((None, 4, 5, 15, 16))
            self._submit(ask.SetTerminateNotice(scale_set=scale_set, minutes=minutes))
        else:
            kept = [vm for vm in self.spec.vms if self.chance.random() < 0.99]
            vms = tuple(
                vm._replace(node=None) if vm.name in fleet.vms or self.chance.random() < 0.5 else vm
                for vm in kept
            )
            self._submit(ask.ApplyFleet(spec=self.spec._replace(vms=vms)))

    def process_restarts(self) -> None:
        """It dies and lives again, after a while, sometimes with its clock behind."""
        clock = self.stage.clock
        if self.chance.random() < 0.2:
            clock.set_wall(clock.wall() - timedelta(seconds=self.chance.uniform(1, 3000)))
        else:
            clock.advance(seconds=self.chance.choice((0, 30, 2000)))
        self.stage.restart(takeover=self.chance.random() < 0.3)

    # ---- The end ----

    def _bring_to_end(self) -> None:
        """Let everything become due. Whatever does not end then is stuck for ever."""
        fleet = self.stage.fleet
        for name in list(fleet.endpoints):
            self._submit(ask.LeaveEndpoint(node=name))
        for name in list(fleet.nodes):
            self._submit(ask.ReportReachable(node=name, reachable=True))
        deadline = self.stage.clock.wall() + timedelta(days=PATIENCE_DAYS)
        while self.stage.clock.wall() < deadline:
            self._answer_all()
            if not self._live():
                break
            timer = self.stage.timers.next
            if timer is None:
                break
            self.stage.advance_to(max(timer, self.stage.clock.wall()))
        stuck = self._live()
        if stuck:
            raise LawBroken([Violation(11, f"{what} never ends") for what in stuck])

    def _answer_all(self) -> None:
        for key in [*self.stage.under_way, *self.stage.asked]:
            self.stage.under_way.pop(key, None)
            self.stage.asked.pop(key, None)
            self._submit(ask.ReportOutcome(key=key, outcome=Outcome.DONE))
        for rollout in list(self.stage.fleet.rollouts.values()):
            if rollout.status is RolloutStatus.PAUSED:
                self._submit(ask.ResumeRollout(rollout=rollout.id, by=OPERATOR))
        self.stage.tick()

    def _live(self) -> list[str]:
        fleet = self.stage.fleet
        operations = [operation.id for operation in fleet.operations.values() if operation.live]
        rollouts = [rollout.id for rollout in fleet.rollouts.values() if rollout.ended_at is None]
        return [*operations, *rollouts, *(event.id for event in self._visible_events())]


ACTIONS: dict[str, Callable[[Simulation], None]] = {
    name: getattr(Simulation, name) for name in WEIGHTS
}


def simulate(seed: int, steps: int = STEPS) -> Run:
    """Run one seed to its end; LawBroken where the law is broken. What is raised names the step."""
    simulation = Simulation(seed, steps)
    try:
        return simulation.run()
    except Exception as error:
        error.add_note(f"seed {seed}, step {simulation.step}")
        raise
