"""Hypothesis asks the law anything in any order, and shrinks what breaks it to a short story."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairnotice.engine import AZURE, DEV
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import ApplyFleet, Heard, SeenBy
from fairnotice.engine.invariants import check_indexes
from fairnotice.engine.kinds import ROLLED_OUT
from fairnotice.model import Requester, Window
from fairnotice.testing.stage import Stage
from fairnotice.testing.witness import LawWitness
from fairnotice.words import EventType, Outcome, Risk, Role
from tests.engine.story import OPERATOR, USER, sample

SPEC = sample()
VMS = st.lists(st.sampled_from([vm.name for vm in SPEC.vms]), min_size=1, max_size=3, unique=True)
NODES = st.sampled_from([node.name for node in SPEC.nodes])
ON_VMS = (ask.Restart, ask.Redeploy, ask.Evict, ask.Delete, ask.Stop, ask.Start, ask.Deallocate)
POLICIES = ((), (EventType.REBOOT,), (EventType.REBOOT, EventType.REDEPLOY))


class Law(RuleBasedStateMachine):
    """A stage with a witness; every rule below is something that somebody may do."""

    @initialize(timing=st.sampled_from((AZURE, DEV)), listening=st.booleans())
    def begin(self, timing, listening):
        self.stage = Stage(timing, witness=LawWitness(timing))
        self.stage.keep_decisions = False
        self.ids = 0
        self.stage.tell(ApplyFleet(spec=SPEC))
        if listening:
            self.everybody_asks()

    def asked(self, by=USER):
        self.ids += 1
        return {"id": f"request-{self.ids}", "by": by}

    def do(self, command):
        self.stage.ask(command)
        self.stage.tick()

    def visible(self):
        fleet = self.stage.fleet
        return [fleet.events[name] for names in fleet.events_in_scope.values() for name in names]

    def an_event(self, data):
        return data.draw(st.sampled_from(self.visible()))

    @rule()
    def everybody_asks(self):
        now = self.stage.clock.wall()
        heard = tuple(Heard(scope, now) for scope in self.stage.fleet.scopes)
        seen = tuple(SeenBy(event.id, event.resources[0], now) for event in self.visible())
        self.do(ask.ReportServed(heard=heard, seen=seen))

    @rule(kind=st.sampled_from(ON_VMS), vms=VMS)
    def user_asks(self, kind, vms):
        self.do(kind(vms=tuple(vms), **self.asked()))

    @rule(count=st.integers(1, 3))
    def scale_in(self, count):
        self.do(ask.ScaleIn(scale_set="batch", count=count, **self.asked()))

    @rule(
        kind=st.sampled_from(ROLLED_OUT),
        node=NODES,
        hours=st.none() | st.integers(0, 48),
        force=st.booleans(),
    )
    def operator_asks(self, kind, node, hours, force):
        later = None if hours is None else self.stage.clock.wall() + timedelta(hours=hours)
        more = {"kind": kind, "not_before": later, "force": force}
        self.do(ask.NodeOperation(node=node, **more, **self.asked(OPERATOR)))

    @rule(node=NODES, risk=st.sampled_from(Risk))
    def failure_is_predicted(self, node, risk):
        self.do(ask.PredictFailure(node=node, risk=risk, **self.asked(OPERATOR)))

    @rule(node=NODES)
    def node_fails(self, node):
        self.do(ask.FailNode(node=node, **self.asked(OPERATOR)))

    @rule(
        node=NODES, what=st.sampled_from(("cordon", "uncordon", "reach", "lose", "join", "leave"))
    )
    def node_changes(self, node, what):
        command = {
            "cordon": ask.Cordon(node=node),
            "uncordon": ask.Uncordon(node=node),
            "reach": ask.ReportReachable(node=node, reachable=True),
            "lose": ask.ReportReachable(node=node, reachable=False),
            "join": ask.JoinEndpoint(node=node),
            "leave": ask.LeaveEndpoint(node=node),
        }[what]
        self.do(command)

    @rule(
        nodes=st.lists(NODES, min_size=1, max_size=6, unique=True),
        kind=st.sampled_from(ROLLED_OUT),
        at_once=st.integers(1, 3),
        recovery=st.sampled_from((0, 60, 1800)),
        window=st.none() | st.builds(Window, st.just((0, 3)), st.integers(0, 1439), st.just(120)),
    )
    def rollout_begins(self, nodes, kind, at_once, recovery, window):
        command = ask.StartRollout(
            nodes=tuple(nodes),
            kind=kind,
            nodes_at_once_max=at_once,
            recovery_seconds=recovery,
            windows=() if window is None else (window,),
            **self.asked(OPERATOR),
        )
        self.do(command)

    @precondition(lambda self: self.stage.fleet.rollouts)
    @rule(
        data=st.data(),
        kind=st.sampled_from((ask.PauseRollout, ask.ResumeRollout, ask.CancelRollout)),
    )
    def rollout_is_steered(self, data, kind):
        rollout = data.draw(st.sampled_from(sorted(self.stage.fleet.rollouts)))
        self.do(kind(rollout=rollout, by=OPERATOR))

    @precondition(lambda self: self.visible())
    @rule(data=st.data())
    def a_vm_approves(self, data):
        event = self.an_event(data)
        members = self.stage.fleet.vms_in_scope.get(event.scope)
        if members:
            by = Requester(data.draw(st.sampled_from(members)), Role.VM)
            self.do(ask.Approve(events=(event.id,), by=by))

    @precondition(lambda self: self.visible())
    @rule(data=st.data(), by=st.sampled_from((OPERATOR, USER, Requester("db", Role.VM))))
    def somebody_cancels(self, data, by):
        self.do(ask.Cancel(target=self.an_event(data).id, by=by))

    @precondition(lambda self: self.visible())
    @rule(data=st.data(), seconds=st.integers(-60, 7200))
    def operator_postpones(self, data, seconds):
        event = self.an_event(data)
        later = event.not_before + timedelta(seconds=seconds)
        self.do(ask.Postpone(event=event.id, not_before=later, by=OPERATOR))

    @precondition(lambda self: self.stage.under_way or self.stage.asked)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def driver_answers(self, data, outcome):
        keys = sorted({*self.stage.under_way, *self.stage.asked})
        key = data.draw(st.sampled_from(keys))
        if outcome is Outcome.NOT_BEGUN and key not in self.stage.asked:
            outcome = Outcome.DONE
        self.stage.asked.pop(key, None)
        if outcome is not Outcome.UNDER_WAY:
            self.stage.under_way.pop(key, None)
        self.do(ask.ReportOutcome(key=key, outcome=outcome))

    @rule(
        scope=st.sampled_from(("availability-set:web", "vm:db")), policy=st.sampled_from(POLICIES)
    )
    def policy_changes(self, scope, policy):
        self.do(ask.SetPolicy(scope=scope, automatically_approve=policy))

    @rule(minutes=st.sampled_from((None, 5, 10, 15)))
    def terminate_notice_changes(self, minutes):
        self.do(ask.SetTerminateNotice(scale_set="batch", minutes=minutes))

    @rule()
    def endpoints_confirm(self):
        for node in list(self.stage.fleet.endpoints):
            self.do(ask.Confirm(node=node, revision=self.stage.fleet.revision))

    @rule()
    def fleet_is_declared_again(self):
        vms = tuple(vm._replace(node=None) for vm in SPEC.vms)
        self.do(ApplyFleet(spec=SPEC._replace(vms=vms)))

    @rule(seconds=st.sampled_from((0.5, 10, 60, 900, 3600, 90000)))
    def time_passes(self, seconds):
        self.stage.advance(seconds=seconds)

    @rule()
    def next_timer_comes(self):
        if self.stage.timers.next is not None:
            self.stage.advance_to(max(self.stage.timers.next, self.stage.clock.wall()))

    @rule(away=st.integers(-3000, 3000), takeover=st.booleans())
    def process_restarts(self, away, takeover):
        clock = self.stage.clock
        clock.set_wall(clock.wall() + timedelta(seconds=away))
        self.stage.restart(takeover=takeover)

    @invariant()
    def indexes_are_what_the_rows_say(self):
        if hasattr(self, "stage"):
            assert check_indexes(self.stage.fleet) == []


# Pytest collects the machine under this name; the witness inside the stage does the judging.
TestLaw = Law.TestCase
