"""Rules 4 and 9: operations, and the events by which scopes see them."""

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from fairnotice.engine.changes import EventAnnounced, OperationChanged, OperationPlanned
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.kinds import KINDS, Kind
from fairnotice.engine.notice import (
    PLANNED_DAYS_MAX,
    earliest,
    in_utc,
    least_notice_seconds,
    whole_second,
)
from fairnotice.engine.refusal import misfit
from fairnotice.engine.tables import Tables
from fairnotice.engine.transitions import EVENT, OPERATION, Cause, move
from fairnotice.model import Event, Operation, Scope, Vm
from fairnotice.words import EventSource, EventType, OperationKind, Priority, ScopeKind

Domain = tuple[str, int | None]


class Plan(NamedTuple):
    """What an operation is to be, before the law has looked at who listens."""

    id: str
    request: str
    kind: OperationKind
    vms: tuple[Vm, ...]
    notice_seconds: int = 0
    asked_not_before: datetime | None = None
    node: str | None = None
    duration_seconds: int | None = None
    forced: bool = False
    rollout: str | None = None


def by_domain(vms: Iterable[Vm]) -> dict[Domain, list[Vm]]:
    """The VMs by scope and update domain: what one event may name."""
    domains: dict[Domain, list[Vm]] = {}
    for vm in vms:
        domains.setdefault((vm.scope, vm.update_domain), []).append(vm)
    return domains


def by_event(vms: Iterable[Vm], node: str | None) -> list[list[Vm]]:
    """The VMs of an operation by the event that names them: one scope, update domain and node.

    A VM that is only on its way to the node has an event of its own: it is told in time, and no
    event ever names two nodes.
    """
    groups: dict[tuple[str, int | None, str], list[Vm]] = {}
    for vm in vms:
        arriving = "" if vm.node == node else vm.name
        groups.setdefault((vm.scope, vm.update_domain, arriving), []).append(vm)
    return list(groups.values())


def plan(draft: Draft, planned: Plan) -> Operation:
    """Write the operation down, with an event for each scope that listens."""
    kind = KINDS[planned.kind]
    automatic = planned.kind is OperationKind.FAILURE or any(
        is_automatic(draft.scopes[vm.scope], kind) for vm in planned.vms
    )
    told = [] if automatic else [vm for vm in planned.vms if is_told(draft, planned.kind, vm)]
    not_before = planned.asked_not_before or draft.now
    if told:
        not_before = earliest(draft.now, planned.notice_seconds, planned.asked_not_before)
    duration = planned.duration_seconds
    operation = Operation(
        id=planned.id,
        request=planned.request,
        kind=planned.kind,
        vms=tuple(vm.name for vm in planned.vms),
        revision=draft.revision + 1,
        asked_at=draft.now,
        not_before=not_before,
        asked_not_before=planned.asked_not_before,
        node=planned.node,
        fault_domain=None if planned.node is None else draft.nodes[planned.node].fault_domain,
        status=move(OPERATION, None, Cause.ANNOUNCED),
        duration_seconds=kind.duration_seconds if duration is None else duration,
        touches=tuple(by_domain(planned.vms)),
        automatic=automatic,
        forced=planned.forced,
        rollout=planned.rollout,
    )
    operation = announce(draft, operation, told, Cause.ANNOUNCED, change=OperationPlanned)
    draft.wake(not_before, Matter.OPERATION, operation.id)
    draft.candidates[operation.id] = None
    return operation


def announce(
    draft: Draft,
    operation: Operation,
    vms: Iterable[Vm],
    cause: Cause,
    *,
    change: type[OperationPlanned | OperationChanged] = OperationChanged,
) -> Operation:
    """Make an event of the operation for each scope and update domain among these VMs."""
    groups = by_event(vms, operation.node)
    ids = tuple(
        guid(operation.id, group[0].scope, str(group[0].update_domain), group[0].name)
        for group in groups
    )
    operation = operation._replace(events=(*operation.events, *ids))
    draft.record(change(draft.now, operation))
    for event_id, group in zip(ids, groups, strict=True):
        event = _event(draft, event_id, operation, group, cause)
        draft.record(EventAnnounced(draft.now, event))
    return operation


def _event(
    draft: Draft,
    event_id: str,
    operation: Operation,
    vms: list[Vm],
    cause: Cause,
) -> Event:
    kind = KINDS[operation.kind]
    assert kind.event_type is not None  # nobody is told of a power operation
    first = vms[0]
    struck = cause is Cause.STRUCK
    not_before = whole_second(operation.not_before)
    promised_seconds = 0.0 if struck else (not_before - draft.now).total_seconds()
    return Event(
        id=event_id,
        operation=operation.id,
        scope=first.scope,
        type=kind.event_type,
        source=kind.source,
        status=move(EVENT, None, cause),
        resources=tuple(vm.name for vm in vms),
        revision=draft.revision + 1,
        announced_at=draft.now,
        not_before=not_before,
        notice_seconds=promised_seconds,
        description=kind.description,
        duration_seconds=operation.duration_seconds,
        update_domain=first.update_domain,
        node=first.node,
        unconfirmed=() if struck else unconfirmed_nodes(draft, kind.event_type, vms),
        unconfirmed_since=draft.revision + 1,
        life=draft.life.number,
        elapsed_at=draft.moment.monotonic + promised_seconds,
        started_at=draft.now if struck else None,
    )


def unconfirmed_nodes(tables: Tables, event_type: EventType, vms: Iterable[Vm]) -> tuple[str, ...]:
    """Nodes whose own endpoint has to show the event before its time can run out (rule 5)."""
    if event_type is EventType.PREEMPT or not tables.endpoints:
        return ()
    nodes = dict.fromkeys(vm.node for vm in vms if vm.node is not None)
    return tuple(node for node in nodes if node in tables.endpoints)


def is_told(tables: Tables, kind: OperationKind, vm: Vm) -> bool:
    """Whether an operation of this kind on this VM shows as an event in its scope."""
    scope = tables.scopes[vm.scope]
    if not (scope.enabled and vm.running) or KINDS[kind].event_type is None:
        return False
    if kind is OperationKind.DELETE:
        return terminate_notice_minutes(tables, vm) is not None
    return True


def terminate_notice_minutes(tables: Tables, vm: Vm) -> int | None:
    """The terminate notice of the VM's scale set; None where a delete acts at once."""
    scope = tables.scopes[vm.scope]
    if scope.kind is not ScopeKind.PLACEMENT_GROUP or vm.priority is Priority.SPOT:
        return None
    return tables.scale_sets[scope.of].terminate_notice_minutes


def least_notice(tables: Tables, kind: OperationKind, vm: Vm) -> int:
    """The notice below which no event of this kind goes; for a predicted failure 10 minutes."""
    event_type = KINDS[kind].event_type
    assert event_type is not None  # nobody is told of a power operation
    return least_notice_seconds(tables.timing, event_type, terminate_notice_minutes(tables, vm))


def must_be_near(draft: Draft, instant: datetime) -> None:
    """Refuse to plan for an instant that is further away than anybody plans."""
    if instant - draft.now > timedelta(days=PLANNED_DAYS_MAX):
        misfit(
            "not_before",
            "not_before is more than a year away.",
            f"Give an instant within {PLANNED_DAYS_MAX} days.",
            rule=2,
        )


def checked_instant(
    draft: Draft, kind: OperationKind, vms: Iterable[Vm], asked: datetime | None
) -> datetime | None:
    """The NotBefore asked for, unless it would give less notice than promised (rule 2)."""
    if asked is None:
        return None
    asked = in_utc(asked)
    must_be_near(draft, asked)
    if asked < draft.now:
        misfit("not_before", "not_before lies in the past.", "Give a later instant.", rule=2)
    for vm in vms:
        notice_seconds = least_notice(draft, kind, vm)
        if is_told(draft, kind, vm) and asked < draft.now + timedelta(seconds=notice_seconds):
            misfit(
                "not_before",
                f"not_before gives {vm.name} less than its {notice_seconds} s of notice.",
                "Give more notice, or leave not_before out for the least.",
                rule=2,
            )
    return asked


def is_automatic(scope: Scope, kind: Kind) -> bool:
    """Rule 18: a user's Reboot or Redeploy where the scope approves such things by policy."""
    return (
        scope.enabled
        and kind.source is EventSource.USER
        and kind.event_type in (EventType.REBOOT, EventType.REDEPLOY)
        and kind.event_type in scope.automatically_approve
    )


def guid(*parts: str) -> str:
    """An upper-case GUID that follows from its parts: the same parts, the same GUID."""
    digits = hashlib.blake2b("/".join(parts).encode(), digest_size=16).hexdigest().upper()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
