"""Rule 22: what a rollout would do, told beforehand."""

import heapq
from datetime import datetime, timedelta

from fairnotice.engine import windows
from fairnotice.engine.announce import is_told, least_notice
from fairnotice.engine.answers import Forecast, ForecastNode, InTheWay
from fairnotice.engine.commands import StartRollout
from fairnotice.engine.draft import Draft
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.nodes import vms_hit
from fairnotice.engine.rollout import look_at_node, rollout_of
from fairnotice.engine.transitions import Cause
from fairnotice.model import ImpactKind, Rollout, Vm

# What an impact usually takes, for the forecast only.
USUAL_SECONDS = {ImpactKind.FREEZE: 0, ImpactKind.REBOOT: 120, ImpactKind.MIGRATE: 120}

# (update domain, fault domain) of a scope.
Place = tuple[int | None, int]


class _Timeline:
    """Who would be under an operation when, if nobody approved anything early."""

    def __init__(self, draft: Draft, rollout: Rollout) -> None:
        self.draft = draft
        self.rollout = rollout
        self.now = draft.now
        # When each node that is taken is over; which domain of each scope is taken by how many.
        self.running: list[tuple[datetime, str]] = []
        self.busy: dict[str, dict[Place, int]] = {}
        self.last: dict[str, tuple[int | None, datetime]] = {}
        self.taken: list[ForecastNode] = []

    def free_at(self, name: str) -> datetime | None:
        """When this node can be taken: now, later, or None while another has to end first."""
        fault_domain = self.draft.nodes[name].fault_domain
        free_at = self.now
        for vm in self._vms(name):
            if vm.update_domain is None:
                continue
            place = (vm.update_domain, fault_domain)
            if any(other != place for other in self.busy.get(vm.scope, ())):
                return None
            domain, ended_at = self.last.get(vm.scope, (vm.update_domain, self.now))
            if domain != vm.update_domain:
                recovery = timedelta(seconds=self.rollout.recovery_seconds)
                free_at = max(free_at, ended_at + recovery)
        return free_at

    def take(self, name: str) -> None:
        """Announce on this node now, and remember when it is over."""
        vms = self._vms(name)
        told = [vm for vm in vms if is_told(self.draft, self.rollout.kind, vm)]
        notice = max((least_notice(self.draft, self.rollout.kind, vm) for vm in told), default=0)
        starts_at = windows.next_open(self.rollout.windows, self.now + timedelta(seconds=notice))
        usual = USUAL_SECONDS[KINDS[self.rollout.kind].impact] if vms else 0
        usual += max(self.rollout.duration_seconds, 0) + self.draft.timing.settle_seconds
        over_at = starts_at + timedelta(seconds=usual)
        heapq.heappush(self.running, (over_at, name))
        self.taken.append(ForecastNode(name, self.now, over_at))
        self._count(name, +1)

    def go_on(self, until: datetime | None) -> None:
        """Let time pass to the next end, or to `until` if that is sooner."""
        if self.running and (until is None or self.running[0][0] <= until):
            self.now, name = heapq.heappop(self.running)
            self._count(name, -1)
            for vm in self._vms(name):
                self.last[vm.scope] = (vm.update_domain, self.now)
        elif until is not None:
            self.now = until

    def _count(self, name: str, by: int) -> None:
        fault_domain = self.draft.nodes[name].fault_domain
        for vm in self._vms(name):
            taken = self.busy.setdefault(vm.scope, {})
            place = (vm.update_domain, fault_domain)
            taken[place] = taken.get(place, 0) + by
            if not taken[place]:
                del taken[place]

    def _vms(self, name: str) -> list[Vm]:
        return vms_hit(self.draft, name)


def forecast(draft: Draft, command: StartRollout) -> Forecast:
    """The order of the nodes, who is in the way, and when it would be over."""
    rollout = rollout_of(draft, command)
    obstacles: list[InTheWay] = []
    pending: dict[str, None] = {}
    failures = 0
    for name in dict.fromkeys(command.nodes):
        verdict = look_at_node(draft, rollout, name)
        if verdict.cause is not Cause.STARTED:
            obstacles.append(InTheWay(name, verdict.why))
        if verdict.cause in (None, Cause.STARTED):
            pending[name] = None
        failures += verdict.cause is Cause.FAILED
    timeline = _Timeline(draft, rollout)
    while pending:
        _take_what_may(timeline, pending)
    ends_at = max((node.over_at for node in timeline.taken), default=draft.now)
    pauses = failures > rollout.failure_budget
    return Forecast(tuple(timeline.taken), tuple(obstacles), None if pauses else ends_at)


def _take_what_may(timeline: _Timeline, pending: dict[str, None]) -> None:
    """Take the nodes that may be taken at this time, then let time pass."""
    soonest: datetime | None = None
    for name in tuple(pending):
        if len(timeline.running) >= timeline.rollout.nodes_at_once_max:
            soonest = None
            break
        free_at = timeline.free_at(name)
        if free_at == timeline.now:
            timeline.take(name)
            del pending[name]
        elif free_at is not None:
            soonest = free_at if soonest is None else min(soonest, free_at)
    timeline.go_on(soonest)
