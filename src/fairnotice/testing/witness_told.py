"""Rules 2, 4, 9, 13 and 18: whoever is going to be hit, and listens, is told, and told in time.

Who has to be told is reckoned from the rows of the VM, its scope and its scale set at the moment
the operation is planned, or its scope enabled; then the same commit must hold the event.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from fairnotice.engine.changes import (
    Change,
    EventAnnounced,
    EventGone,
    EventResourcesChanged,
    EventStarted,
    ImpactBegun,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    RequestAccepted,
    ScopeEnabled,
)
from fairnotice.engine.commands import PredictFailure
from fairnotice.engine.invariants import Violation
from fairnotice.engine.kinds import KINDS
from fairnotice.model import Event, Impact, Operation, Scope, Vm
from fairnotice.testing.witness_commit import Commit, Memory
from fairnotice.words import EventSource, EventStatus, EventType, OperationKind


class Told:
    """Who was told of what, and who should have been."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        # By operation: VMs that were told and not taken out, and those named by a Started event.
        self.told: dict[str, set[str]] = {}
        self.hit: dict[str, set[str]] = {}
        # Operations that the policy of their scope lets appear already Started (rule 18).
        self.automatic: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        """What only this commit owes: events, Started ones, and names for its impacts."""
        self.owed: list[tuple[Operation, str]] = []
        self.owed_started: list[tuple[Operation, str]] = []
        self.announced: dict[str, set[str]] = {}
        self.struck: dict[str, set[str]] = {}
        self.begun: list[Impact] = []
        self.ended: list[str] = []
        self.predicted: list[str | None] = []

    def look(self, commit: Commit, change: Change[Any]) -> Iterator[Violation]:
        """One change: note who has to be told, who is, and what may not be."""
        row = change.row
        if isinstance(change, OperationPlanned):
            self._planned(commit, row)
        elif isinstance(change, ScopeEnabled):
            self._enabled(commit, row)
        elif isinstance(change, OperationStarted):
            self._started(commit, row)
        elif isinstance(change, EventAnnounced):
            yield from self._announced(commit, row)
        elif isinstance(change, EventStarted):
            self.hit.setdefault(row.operation, set()).update(row.resources)
        elif isinstance(change, EventResourcesChanged | EventGone):
            self._taken_out(commit, row)
        elif isinstance(change, ImpactBegun):
            self._begins(commit, row)
        elif isinstance(change, OperationEnded):
            self.ended.append(row.id)
        elif isinstance(change, RequestAccepted) and row.kind is OperationKind.PREDICTED_FAILURE:
            self.predicted.append(row.node)

    def conclude(self, commit: Commit) -> Iterator[Violation]:
        """The commit is complete: whatever it still owes is broken."""
        for node in self.predicted:
            yield from _must_be_cordoned(commit, node)
        for operation, vm in self.owed:
            told = self.announced.get(operation.id, set())
            if vm not in told:
                yield Violation(4 if told else 2, f"{vm} was not told of {operation.id}")
        for operation, vm in self.owed_started:
            if vm not in self.struck.get(operation.id, ()):
                yield Violation(18, f"{vm} is not shown that {operation.id} has started")
        for impact in self.begun:
            if impact.vm not in self.hit.get(impact.operation, ()):
                yield Violation(5, f"{impact.key} is begun, and no Started event names its VM")
        for name in self.ended:
            self.told.pop(name, None)
            self.hit.pop(name, None)
            self.automatic.discard(name)
        self._begin()

    # ---- Who has to be told ----

    def _planned(self, commit: Commit, operation: Operation) -> None:
        if operation.kind is OperationKind.FAILURE:
            return
        for vm in _listeners(commit, operation):
            if _is_automatic(commit.scope(vm.scope), operation):
                self.automatic.add(operation.id)
            else:
                self.owed.append((operation, vm.name))

    def _enabled(self, commit: Commit, scope: Scope) -> None:
        """Rule 9: a scope enabled later is told of all that is still far enough away."""
        for operation in self.memory.pending.values():
            vms = [vm for vm in _listeners(commit, operation) if vm.scope == scope.name]
            event_type = KINDS[operation.kind].event_type
            if not vms or event_type is None:
                continue
            if _is_automatic(scope, operation):
                self.automatic.add(operation.id)
                continue
            least = max(self.memory.least_notice(commit, event_type, vm) for vm in vms)
            if operation.not_before >= commit.now.wall + least:
                self.owed += [(operation, vm.name) for vm in vms]

    def _started(self, commit: Commit, operation: Operation) -> None:
        """Rules 13 and 18: what nobody was asked about is at least shown when it starts."""
        if operation.kind is OperationKind.FAILURE or operation.id in self.automatic:
            vms = _listeners(commit, operation)
            self.owed_started += [(operation, vm.name) for vm in vms]

    # ---- Who is told ----

    def _announced(self, commit: Commit, event: Event) -> Iterator[Violation]:
        self.announced.setdefault(event.operation, set()).update(event.resources)
        self.told.setdefault(event.operation, set()).update(event.resources)
        operation = commit.operation(event.operation)
        if event.type is not KINDS[operation.kind].event_type:
            yield Violation(4, f"{event.id} is a {event.type} of a {operation.kind}")
        if event.status is EventStatus.STARTED:
            self.struck.setdefault(event.operation, set()).update(event.resources)
            self.hit.setdefault(event.operation, set()).update(event.resources)
            failure = operation.kind is OperationKind.FAILURE
            if not (failure or operation.id in self.automatic):
                yield Violation(6, f"{event.id} of a {operation.kind} appears already Started")
        elif isinstance(commit.command, PredictFailure) and commit.command.risk is not None:
            seconds = self.memory.timing.risk_seconds[commit.command.risk]
            if event.not_before < commit.now.wall + timedelta(seconds=seconds):
                yield Violation(2, f"{event.id} gives less than the {seconds} s of its risk")

    def _taken_out(self, commit: Commit, event: Event) -> None:
        """A VM that does not run, or that its operation does not name any more, was taken out."""
        operation = commit.operation(event.operation)
        staying = event.resources if event.visible else ()
        for name in self.memory.events[event.id].resources:
            vm = commit.vm(name)
            gone = vm is None or not vm.running or name not in operation.vms
            if name not in staying and gone:
                self.told.get(operation.id, set()).discard(name)

    def _begins(self, commit: Commit, impact: Impact) -> None:
        vm = commit.vm(impact.vm)
        if vm is not None and vm.running and vm.name in self.told.get(impact.operation, ()):
            self.begun.append(impact)


def _listeners(commit: Commit, operation: Operation) -> list[Vm]:
    """The VMs of an operation that run, in scopes that listen, where its kind makes an event."""
    if KINDS[operation.kind].event_type is None:
        return []
    vms = [commit.vm(name) for name in operation.vms]
    return [vm for vm in vms if vm is not None and _listens(commit, operation, vm)]


def _listens(commit: Commit, operation: Operation, vm: Vm) -> bool:
    scope = commit.scope(vm.scope)
    if not vm.running or scope is None or not scope.enabled:
        return False
    deleted = operation.kind is OperationKind.DELETE
    return not deleted or commit.terminate_minutes(vm) is not None


def _is_automatic(scope: Scope | None, operation: Operation) -> bool:
    """Whether the scope's policy approves a user's operation of this kind."""
    kind = KINDS[operation.kind]
    by_user = kind.source is EventSource.USER
    approvable = kind.event_type in (EventType.REBOOT, EventType.REDEPLOY)
    policy = () if scope is None else scope.automatically_approve
    return by_user and approvable and kind.event_type in policy


def _must_be_cordoned(commit: Commit, name: str | None) -> Iterator[Violation]:
    """Rule 13: a predicted failure takes its node out of service; a repeat names no node."""
    node = commit.node(name)
    if node is not None and not node.cordoned:
        yield Violation(13, f"{name} is about to fail, and still in service")
