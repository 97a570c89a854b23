"""Rules 10 and 11: an impact is intended first, happens once, and ends."""

from datetime import datetime, timedelta

from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import ImpactAsked, ImpactBegun, ImpactEnded, VmPowerChanged
from fairnotice.engine.commands import ReportOutcome
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import AskOutcome, BeginImpact, Matter
from fairnotice.engine.ending import finish, impact_key
from fairnotice.engine.kinds import KINDS
from fairnotice.engine.leaving import leave_nodes, move_vm, remove_vm, stop_vm
from fairnotice.engine.notice import limit_seconds
from fairnotice.engine.placement import find_place, why_no_place
from fairnotice.engine.refusal import Code, refuse
from fairnotice.engine.transitions import IMPACT, Cause, move
from fairnotice.model import Impact, Operation, Vm
from fairnotice.words import (
    EvictionPolicy,
    ImpactKind,
    ImpactStatus,
    OperationKind,
    Outcome,
    Power,
)

OUTCOME_UNKNOWN = "outcome unknown"
NO_PLACE = "no node may take it"


def begin(draft: Draft, operation: Operation, name: str) -> None:
    """Write the intent down, and ask the driver to carry it out once that is durable."""
    vm = draft.vms[name]
    kind = impact_kind(operation, vm)
    impact = Impact(
        key=impact_key(operation.id, name),
        operation=operation.id,
        vm=name,
        kind=kind,
        begun_at=draft.now,
        limit_at=_limit_at(draft, operation.id, kind),
        source=vm.node,
        target=_target(draft, operation, vm),
    )
    if KINDS[operation.kind].moves and impact.target is None:
        status = move(IMPACT, None, Cause.NO_PLACE)
        reason = f"{NO_PLACE}: {why_no_place(draft, vm)}"
        failed = impact._replace(status=status, ended_at=draft.now, reason=reason)
        draft.record(ImpactEnded(draft.now, failed))
        draft.failed_operations.append(operation.id)
        _after_failure(draft, operation, failed)
        return
    impact = impact._replace(status=move(IMPACT, None, Cause.BEGUN))
    draft.record(ImpactBegun(draft.now, impact))
    if operation.kind is OperationKind.START:
        # It counts as running from here on, so that nothing befalls its node untold.
        started = vm._replace(power=Power.RUNNING, node=impact.target)
        draft.record(VmPowerChanged(draft.now, started))
    draft.ask(BeginImpact(impact, operation.duration_seconds))
    draft.wake(impact.limit_at, Matter.IMPACT, impact.key)


def impact_kind(operation: Operation, vm: Vm) -> ImpactKind:
    """What an operation does to this VM; of an eviction, what the VM's policy says."""
    kind = KINDS[operation.kind].impact
    if operation.kind is OperationKind.EVICTION:
        kept = vm.eviction_policy is EvictionPolicy.DEALLOCATE
        return ImpactKind.DEALLOCATE if kept else ImpactKind.DELETE
    return kind


def _target(draft: Draft, operation: Operation, vm: Vm) -> str | None:
    """Where the VM goes: chosen here, and reserved by the impact that names it (rule 14)."""
    if operation.kind is OperationKind.START:
        return vm.node or find_place(draft, vm)
    if not KINDS[operation.kind].moves:
        return None
    target = find_place(draft, vm)
    if target is None and operation.kind is OperationKind.FAILURE:
        target = find_place(draft, vm, domains_may_meet=True)
        if target is not None:
            draft.warnings.append(
                f"{vm.name} had to be put on {target}, beside another update domain of its scope."
            )
    return target


def report_outcome(draft: Draft, command: ReportOutcome) -> Accepted:
    """What a driver says: that an impact ended, or, when asked, what became of it."""
    impact = draft.impacts.get(command.key)
    if impact is None:
        refuse(
            Code.NOT_FOUND,
            f"There is no impact {command.key}.",
            "It is over for longer than a day, or never was.",
            rule=10,
        )
    if impact.live:
        if command.outcome in (Outcome.NOT_BEGUN, Outcome.UNDER_WAY):
            _answered(draft, impact, begin=command.outcome is Outcome.NOT_BEGUN)
        elif command.outcome is Outcome.DONE:
            end(draft, impact, Cause.DONE, command.reason)
        elif command.outcome is Outcome.FAILED:
            end(draft, impact, Cause.FAILED, command.reason or "the driver failed")
        else:
            end(draft, impact, Cause.FAILED, OUTCOME_UNKNOWN)
            draft.warnings.append(f"What became of {impact.key} is unknown; look at {impact.vm}.")
    elif command.outcome is Outcome.DONE and impact.status is not ImpactStatus.DONE:
        draft.warnings.append(f"{impact.key} was done after it had {impact.status}: look there.")
    return Accepted(operations=(impact.operation,))


def _answered(draft: Draft, impact: Impact, *, begin: bool) -> None:
    """What was not begun is begun: once, and only in answer to our own question."""
    if impact.asked:
        answered = impact._replace(asked=False)
        draft.record(ImpactAsked(draft.now, answered))
        if begin:
            duration_seconds = draft.operations[impact.operation].duration_seconds
            draft.ask(BeginImpact(answered, duration_seconds))


def ask_again(draft: Draft, impact: Impact) -> None:
    """After a restart: ask the driver, and give it as much time for its answer as for the deed."""
    limit_at = _limit_at(draft, impact.operation, impact.kind)
    asked = impact._replace(limit_at=limit_at, asked=True)
    draft.record(ImpactAsked(draft.now, asked))
    draft.ask(AskOutcome(asked))
    draft.wake(asked.limit_at, Matter.IMPACT, asked.key)


def _limit_at(draft: Draft, operation: str, kind: ImpactKind) -> datetime:
    duration_seconds = draft.operations[operation].duration_seconds
    return draft.now + timedelta(seconds=limit_seconds(draft.timing, kind, duration_seconds))


def limit_passed(draft: Draft, key: str) -> None:
    """An impact's time may be over."""
    impact = draft.impacts.get(key)
    if impact is not None and impact.live and draft.now >= impact.limit_at:
        end(draft, impact, Cause.LIMIT_PASSED, "its time limit passed")


def end(draft: Draft, impact: Impact, cause: Cause, reason: str) -> None:
    """The impact is over; its VM is free, and is now what the impact made of it."""
    status = move(IMPACT, impact.status, cause)
    ended = impact._replace(status=status, ended_at=draft.now, reason=reason)
    draft.record(ImpactEnded(draft.now, ended))
    operation = draft.operations[impact.operation]
    if cause is Cause.DONE:
        _after_success(draft, ended)
    else:
        _after_failure(draft, operation, ended)
        draft.failed_operations.append(operation.id)
    draft.consider(draft.operations_on_vm.get(impact.vm, ()))
    finish(draft, impact.operation)


def _after_success(draft: Draft, impact: Impact) -> None:
    vm = draft.vms[impact.vm]
    if impact.kind in (ImpactKind.MIGRATE, ImpactKind.REDEPLOY) and impact.target is not None:
        move_vm(draft, vm, impact.target)
    elif impact.kind is ImpactKind.DELETE:
        remove_vm(draft, vm)
    elif impact.kind is ImpactKind.STOP:
        stop_vm(draft, vm, Power.STOPPED, vm.node)
    elif impact.kind is ImpactKind.DEALLOCATE:
        stop_vm(draft, vm, Power.DEALLOCATED, None)


def _after_failure(draft: Draft, operation: Operation, impact: Impact) -> None:
    vm = draft.vms[impact.vm]
    if operation.kind is OperationKind.FAILURE:
        # Its node is gone and it found no other: it does not run until somebody starts it.
        draft.warnings.append(f"{vm.name} has no place any more and was stopped.")
        stop_vm(draft, vm, Power.STOPPED, None)
    elif operation.kind is OperationKind.START:
        power = Power.DEALLOCATED if impact.source is None else Power.STOPPED
        stop_vm(draft, vm, power, impact.source)
    else:
        # One that was on its way to another node does not get there.
        leave_nodes(draft, vm.name, f"{vm.name} did not arrive")
