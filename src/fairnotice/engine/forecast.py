"""Rule 22: what a rollout would do, told beforehand."""

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.engine import windows
from fairnotice.engine.announce import Domain, by_domain, is_told, least_notice
from fairnotice.engine.answers import Forecast, ForecastNode, InTheWay
from fairnotice.engine.commands import StartRollout
from fairnotice.engine.domains import counts
from fairnotice.engine.draft import Draft
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.nodes import vms_hit
from fairnotice.engine.rollout import look_at_node
from fairnotice.engine.rollout_commands import rollout_of
from fairnotice.engine.transitions import Cause
from fairnotice.model import Rollout
from fairnotice.words import ImpactKind, OperationKind

# What an impact usually takes on top of its duration, for the forecast only.
USUAL_SECONDS = {
    ImpactKind.FREEZE: 0,
    ImpactKind.REBOOT: 120,
    ImpactKind.MIGRATE: 120,
    ImpactKind.REDEPLOY: 300,
}


class _Turn(NamedTuple):
    """A node whose turn it is, until then; one of another operation takes no slot of ours."""

    over_at: datetime
    node: str
    fault_domain: int | None
    touches: tuple[Domain, ...]
    ours: bool


class _Timeline:
    """Who would be under an operation when, if nobody approved anything early."""

    def __init__(self, draft: Draft, rollout: Rollout, nodes: Iterable[str]) -> None:
        self.draft = draft
        self.rollout = rollout
        self.now = draft.now
        self.recovery = timedelta(seconds=rollout.recovery_seconds)
        self.ready = deque(nodes)
        # Nodes that wait for a scope or for themselves, and when a scope has recovered.
        self.parked: dict[str, list[str]] = {}
        self.recovered: list[tuple[datetime, str]] = []
        self.turns: list[_Turn] = []
        self.slots = rollout.nodes_at_once_max
        # The turns that a scope has now, and when each of its update domains had its last.
        self.busy: dict[str, list[tuple[int | None, int | None]]] = {}
        self.last: dict[str, dict[int, datetime]] = {}
        # How many operations each node has now: a rollout takes none that has any.
        self.on_node: Counter[str] = Counter()
        self.taken: list[ForecastNode] = []
        self._begin_with_what_is_live()

    def run(self) -> list[ForecastNode]:
        """All nodes in the order in which they would be taken."""
        while self.ready or self.parked:
            while self.ready and self.slots:
                self._look_at(self.ready.popleft())
            self._go_on()
        return self.taken

    def _begin_with_what_is_live(self) -> None:
        for names in self.draft.operations_on_node.values():
            for operation in (self.draft.operations[name] for name in names):
                starts_at = max(self.now, operation.not_before)
                over_at = starts_at + self._usual(operation.kind, operation.duration_seconds)
                node, fault_domain = operation.node or "", operation.fault_domain
                touches = operation.touches if counts(operation) else ()
                self._begin(_Turn(over_at, node, fault_domain, touches, ours=False))

    def _usual(self, kind: OperationKind, duration_seconds: int) -> timedelta:
        seconds = USUAL_SECONDS[KINDS[kind].impact] + max(duration_seconds, 0)
        return timedelta(seconds=seconds + self.draft.timing.settle_seconds)

    def _look_at(self, name: str) -> None:
        touches = tuple(by_domain(vms_hit(self.draft, name)))
        fault_domain = self.draft.nodes[name].fault_domain
        if self.on_node[name]:
            self.parked.setdefault(name, []).append(name)
            return
        for scope, update_domain in touches:
            if update_domain is None:
                continue
            place = (update_domain, fault_domain)
            if any(other != place for other in self.busy.get(scope, ())):
                self.parked.setdefault(scope, []).append(name)
                return
            recovered_at = self._recovered_at(scope, update_domain)
            if recovered_at > self.now:
                self.parked.setdefault(scope, []).append(name)
                heapq.heappush(self.recovered, (recovered_at, scope))
                return
        self._take(name, fault_domain, touches)

    def _recovered_at(self, scope: str, update_domain: int) -> datetime:
        ends = [
            last.ended_at
            for last in self.draft.scopes[scope].last_touched
            if last.update_domain != update_domain
        ]
        ends += [at for domain, at in self.last.get(scope, {}).items() if domain != update_domain]
        return max((at + self.recovery for at in ends), default=self.now)

    def _take(self, name: str, fault_domain: int, touches: tuple[Domain, ...]) -> None:
        kind = self.rollout.kind
        vms = vms_hit(self.draft, name)
        told = [vm for vm in vms if is_told(self.draft, kind, vm)]
        notice = max((least_notice(self.draft, kind, vm) for vm in told), default=0)
        starts_at = windows.next_open(self.rollout.windows, self.now + timedelta(seconds=notice))
        over_at = starts_at
        if vms:
            over_at += self._usual(kind, self.rollout.duration_seconds)
        self.taken.append(ForecastNode(name, self.now, over_at))
        self.slots -= 1
        self._begin(_Turn(over_at, name, fault_domain, touches, ours=True))

    def _begin(self, turn: _Turn) -> None:
        heapq.heappush(self.turns, turn)
        self.on_node[turn.node] += 1
        for scope, update_domain in turn.touches:
            self.busy.setdefault(scope, []).append((update_domain, turn.fault_domain))

    def _go_on(self) -> None:
        """Let time pass to the next end of a turn or of a recovery, and wake who waited for it."""
        self.now = min(heap[0][0] for heap in (self.turns, self.recovered) if heap)
        while self.turns and self.turns[0].over_at <= self.now:
            self._end(heapq.heappop(self.turns))
        while self.recovered and self.recovered[0][0] <= self.now:
            self._wake(heapq.heappop(self.recovered)[1])

    def _end(self, turn: _Turn) -> None:
        self.slots += turn.ours
        self.on_node[turn.node] -= 1
        if not self.on_node[turn.node]:
            self._wake(turn.node)
        for scope, update_domain in turn.touches:
            self.busy[scope].remove((update_domain, turn.fault_domain))
            if update_domain is not None:
                self.last.setdefault(scope, {})[update_domain] = turn.over_at
            if not self.busy[scope]:
                self._wake(scope)

    def _wake(self, scope: str) -> None:
        self.ready.extend(self.parked.pop(scope, ()))


def forecast(draft: Draft, command: StartRollout) -> Forecast:
    """The order of the nodes, who is in the way, and when it would be over."""
    rollout = rollout_of(draft, command)
    obstacles: list[InTheWay] = []
    nodes: list[str] = []
    failures = 0
    unreachable = False
    for name in dict.fromkeys(command.nodes):
        verdict = look_at_node(draft, rollout, name)
        if verdict.cause is not Cause.TAKEN:
            obstacles.append(InTheWay(name, verdict.why))
        if verdict.cause in (None, Cause.TAKEN):
            nodes.append(name)
        failures += verdict.cause is Cause.NODE_FAILED
        unreachable = unreachable or verdict.unreachable
    taken = _Timeline(draft, rollout, nodes).run()
    ends_at = max((node.over_at for node in taken), default=draft.now)
    pauses = failures > rollout.failure_budget
    stuck = pauses or unreachable
    return Forecast(tuple(taken), tuple(obstacles), None if stuck else ends_at)
