"""How long a host update takes over every node of a fleet, nobody approving, without waiting.

The clock jumps from timer to timer and the driver is done at once. Outcomes that are there at the
same time are reported one command each, then the law is woken once for all that is due: so does a
conductor that empties its queue before it looks at its timers. That is the kind case: all nodes of
a wave end together, and the rollout looks for its next nodes once. Where they end one by one it
looks after each, which is measured too, on a tenth of the nodes and without a limit.
"""

import time
from collections.abc import Iterator

from bench.fleets import listening, moment_after
from bench.numbers import Number
from fairnotice.engine import Decision, Fleet
from fairnotice.engine.commands import ReportOutcome, StartRollout
from fairnotice.model import Requester
from fairnotice.testing.stage import Stage
from fairnotice.words import OperationKind, Outcome, Role, RolloutStatus

SECONDS_AT_MOST = 120
# The setting that the limit is for: one node in a hundred, one per cluster.
NODES_AT_ONCE = 100
OPERATOR = Requester("olga", Role.OPERATOR)


def measure(vms: int, settings: tuple[int, ...]) -> Iterator[Number]:
    """Seconds for the rollout and for its dry run, at each setting of nodes at once."""
    for nodes_at_once in settings:
        limit = SECONDS_AT_MOST if nodes_at_once == NODES_AT_ONCE else None
        stage = _stage(listening(vms))
        nodes = len(stage.fleet.nodes)
        size = f"{nodes:,} nodes, {vms:,} VMs, {nodes_at_once:,} at once"
        yield Number(
            name=f"rollout, {size}: dry run",
            values=[_dry_run(stage, nodes_at_once)],
            unit="s",
            at_most=limit,
        )
        yield Number(
            name=f"rollout, {size}", values=[_run(stage, nodes_at_once)], unit="s", at_most=limit
        )
        days = (stage.clock.wall() - stage.fleet.rollouts["rollout"].asked_at).total_seconds()
        yield Number(name="  commands", values=[stage.commands_count], unit="")
        yield Number(name="  simulated", values=[days / 86400], unit="days")


def measure_one_by_one(vms: int, nodes_at_once: int) -> Iterator[Number]:
    """Seconds for a rollout that looks for its next nodes after every single outcome."""
    stage = _stage(listening(vms))
    nodes = len(stage.fleet.nodes)
    yield Number(
        name=f"rollout, {nodes:,} nodes, {nodes_at_once:,} at once, ending one by one",
        values=[_run(stage, nodes_at_once, one_by_one=True)],
        unit="s",
    )


def _stage(fleet: Fleet) -> Stage:
    now = moment_after(fleet)
    stage = Stage(fleet.timing, start=now.wall)
    stage.fleet = fleet
    stage.keep_decisions = False
    return stage


def _rollout(fleet: Fleet, nodes_at_once: int, *, dry_run: bool) -> StartRollout:
    return StartRollout(
        id="rollout",
        by=OPERATOR,
        nodes=tuple(fleet.nodes),
        kind=OperationKind.HOST_UPDATE,
        nodes_at_once_max=nodes_at_once,
        dry_run=dry_run,
    )


def _dry_run(stage: Stage, nodes_at_once: int) -> float:
    began = time.perf_counter()
    decision = stage.ask(_rollout(stage.fleet, nodes_at_once, dry_run=True))
    assert isinstance(decision, Decision), f"refused: {decision}"
    return time.perf_counter() - began


def _run(stage: Stage, nodes_at_once: int, *, one_by_one: bool = False) -> float:
    began = time.perf_counter()
    stage.ask(_rollout(stage.fleet, nodes_at_once, dry_run=False))
    while stage.fleet.rollouts["rollout"].ended_at is None:
        while stage.under_way:
            key, _ = stage.under_way.popitem()
            stage.ask(ReportOutcome(key=key, outcome=Outcome.DONE))
            if one_by_one:
                stage.tick()
        timer = stage.timers.next
        assert timer is not None, "the rollout waits for nothing and has not ended"
        stage.advance_to(max(timer, stage.clock.wall()))
    rollout = stage.fleet.rollouts["rollout"]
    assert rollout.status is RolloutStatus.COMPLETED
    assert rollout.done_count == rollout.node_count, f"not every node was done: {rollout}"
    return time.perf_counter() - began
