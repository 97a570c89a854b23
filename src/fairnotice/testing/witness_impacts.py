"""Rules 10, 11, 13 and 14: each impact once, in reach, where its VM may be, and with an end."""

from collections.abc import Iterator
from typing import Any

from fairnotice.engine.changes import Change, ImpactBegun, OperationEnded
from fairnotice.engine.commands import ReportOutcome
from fairnotice.engine.effects import AskOutcome, BeginImpact
from fairnotice.engine.invariants import Violation
from fairnotice.model import Impact, Operation
from fairnotice.testing.witness_commit import Commit, Memory
from fairnotice.words import (
    ImpactKind,
    ImpactStatus,
    NodeState,
    OperationKind,
    OperationStatus,
    Outcome,
)

FAILURES = (ImpactStatus.FAILED, ImpactStatus.TIMED_OUT)


class Impacts:
    """What drivers were told to do, and what is said to have come of it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.handed_out: set[str] = set()
        # Keys whose outcome a driver was asked for and has not told.
        self.asked: set[str] = set()

    def look(self, commit: Commit, change: Change[Any]) -> Iterator[Violation]:
        """One impact begins, or one operation ends."""
        if isinstance(change, ImpactBegun):
            yield from self._look_at_impact(commit, change.row)
        elif isinstance(change, OperationEnded):
            yield from _look_at_end(commit, change.row)

    def conclude(self, commit: Commit) -> Iterator[Violation]:
        """Rule 10: a driver is handed each key once, unless it answers that it did not begin."""
        again = self._not_begun(commit)
        for effect in commit.decision.effects:
            if isinstance(effect, AskOutcome):
                self.asked.add(effect.impact.key)
            elif isinstance(effect, BeginImpact):
                key = effect.impact.key
                if key in self.handed_out and key != again:
                    yield Violation(10, f"{key} was handed to the driver twice")
                if key not in self.memory.begun:
                    yield Violation(10, f"{key} was handed to the driver without intent")
                self.handed_out.add(key)
                again = None if key == again else again

    def _not_begun(self, commit: Commit) -> str | None:
        """The key of which a driver, asked, answers for the first time: not begun."""
        command = commit.command
        if not isinstance(command, ReportOutcome) or command.key not in self.asked:
            return None
        self.asked.discard(command.key)
        return command.key if command.outcome is Outcome.NOT_BEGUN else None

    def _look_at_impact(self, commit: Commit, impact: Impact) -> Iterator[Violation]:
        """Once, in reach, and only where the VM may be put."""
        if impact.key in self.memory.begun:
            yield Violation(10, f"{impact.key} was begun twice")
        self.memory.begun.add(impact.key)
        source = commit.node(impact.source)
        if source is not None and source.state is NodeState.UNREACHABLE:
            yield Violation(13, f"{impact.key} was begun on unreachable {impact.source}")
        target = commit.node(impact.target)
        if impact.kind not in (ImpactKind.REDEPLOY, ImpactKind.MIGRATE) or target is None:
            return
        if target.state is not NodeState.IN_SERVICE:
            yield Violation(14, f"{impact.vm} goes to {target.name}, which is {target.state}")
        if commit.operation(impact.operation).kind is not OperationKind.FAILURE:
            yield from _look_at_neighbours(commit, impact, target.name)


def _look_at_neighbours(commit: Commit, impact: Impact, target: str) -> Iterator[Violation]:
    vm = commit.fleet.vms[impact.vm]
    for name in commit.fleet.vms_on_node.get(target, ()):
        other = commit.vm(name)
        beside = other is not None and other.node == target and other.scope == vm.scope
        if other is not None and beside and other.update_domain != vm.update_domain:
            yield Violation(14, f"{vm.name} goes beside {name}, of another update domain")


def _look_at_end(commit: Commit, operation: Operation) -> Iterator[Violation]:
    """Rule 11: what failed is called failed, and nothing else is."""
    if operation.started_at is None:
        if operation.status not in (OperationStatus.CANCELED, OperationStatus.RESOLVED):
            yield Violation(11, f"{operation.id} is {operation.status} and never started")
        return
    impacts = [commit.impact(operation.id, name) for name in operation.vms]
    failed = any(impact is not None and impact.status in FAILURES for impact in impacts)
    expected = OperationStatus.FAILED if failed else OperationStatus.COMPLETED
    if operation.status is not expected:
        yield Violation(11, f"{operation.id} is {operation.status} where {expected} is true")
