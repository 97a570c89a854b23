"""The events that a VM is shown while faults change its document. It decides, and keeps nothing."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid5

from fairnotice.metadata.faults import Fault, FaultKind
from fairnotice.model import Event
from fairnotice.words import EventSource, EventStatus, EventType

# Twins have GUIDs of their own, the same each time they are shown.
_TWINS = UUID("b5b0a1de-6a1c-5d57-9a5e-9d5f6f0c7a11")
# In a Description these stand for bytes that JSON forbids there, until it is rendered: Unicode
# keeps them for such a use, and nobody else writes them.
_RAW = {"\ufdd0": b"\x01", "\ufdd1": b"\x0b"}
_FIRST_MARK, _LAST_MARK = _RAW


class Faulted(NamedTuple):
    """What is left of a document's events, and what came of which fault."""

    events: tuple[Event, ...]
    # Those that are canceled as far as this VM is told, and the ids that only it knows.
    canceled: frozenset[str]
    twins: frozenset[str]
    # The kinds that changed anything.
    kinds: tuple[FaultKind, ...]


def faulted(
    events: tuple[Event, ...],
    vm: str,
    faults: Mapping[FaultKind, Fault],
    now: datetime,
    canceled: frozenset[str],
) -> Faulted:
    """The events as these faults show them to a VM that was told that some are canceled."""
    kinds: list[FaultKind] = []
    late = faults.get(FaultKind.CANCELED_LATE)
    if late is not None:
        canceled |= {event.id for event in events if _is_canceled(event, _seconds(late), now)}
    shown = events
    for kind, step in _STEPS.items():
        fault = faults.get(kind)
        if fault is None:
            continue
        before, shown = shown, step(shown, vm, fault, now, canceled)
        if shown != before:
            kinds.append(kind)
    own = {event.id for event in events}
    twins = frozenset(event.id for event in shown if event.id not in own)
    return Faulted(shown, canceled, twins, tuple(kinds))


def with_raw_bytes(body: bytes) -> bytes:
    """A rendered document with the bytes that JSON forbids."""
    for mark, raw in _RAW.items():
        body = body.replace(mark.encode(), raw)
    return body


# ---- Each fault ----


def _is_canceled(event: Event, seconds: timedelta, now: datetime) -> bool:
    """Whether its time to be canceled has come while it could still be."""
    if event.started_at == event.announced_at:
        return False
    return (event.started_at or now) >= event.not_before - seconds


def _without_canceled(
    events: tuple[Event, ...], vm: str, fault: Fault, now: datetime, canceled: frozenset[str]
) -> tuple[Event, ...]:
    del vm, fault, now
    return tuple(event for event in events if event.id not in canceled)


def _at_short_notice(
    events: tuple[Event, ...], vm: str, fault: Fault, now: datetime, canceled: frozenset[str]
) -> tuple[Event, ...]:
    del vm, canceled
    return tuple(
        event
        for event in events
        if not event.scheduled or now >= event.not_before - _seconds(fault)
    )


def _only_started(
    events: tuple[Event, ...], vm: str, fault: Fault, now: datetime, canceled: frozenset[str]
) -> tuple[Event, ...]:
    del vm, fault, now, canceled
    return tuple(event for event in events if not event.scheduled)


def _frozen(
    events: tuple[Event, ...], vm: str, fault: Fault, now: datetime, canceled: frozenset[str]
) -> tuple[Event, ...]:
    del vm, fault, now, canceled
    return tuple(
        event._replace(type=EventType.FREEZE) if event.type is EventType.REBOOT else event
        for event in events
    )


def _with_twins(
    events: tuple[Event, ...], vm: str, fault: Fault, now: datetime, canceled: frozenset[str]
) -> tuple[Event, ...]:
    del canceled
    twins = (_twin(event, vm, _seconds(fault), now) for event in events if vm in event.resources)
    return (*events, *twins)


def _twin(event: Event, vm: str, later: timedelta, now: datetime) -> Event:
    """A second event for the VM, which ends when the first one does."""
    freezes = event.type is not EventType.FREEZE
    not_before = event.not_before + later
    return event._replace(
        id=str(uuid5(_TWINS, f"{event.id} {vm}")).upper(),
        type=EventType.FREEZE if freezes else EventType.REBOOT,
        source=EventSource.PLATFORM,
        status=EventStatus.SCHEDULED if now < not_before else EventStatus.STARTED,
        resources=(vm,),
        not_before=not_before,
        description="Host server is undergoing maintenance.",
        duration_seconds=9 if freezes else -1,
    )


def _with_marks(
    events: tuple[Event, ...], vm: str, fault: Fault, now: datetime, canceled: frozenset[str]
) -> tuple[Event, ...]:
    del vm, fault, now, canceled
    return tuple(event._replace(description=_marked(event.description)) for event in events)


def _marked(description: str) -> str:
    first, space, rest = description.partition(" ")
    return f"{first}{_FIRST_MARK}{space}{rest}{_LAST_MARK}"


def _seconds(fault: Fault) -> timedelta:
    return timedelta(seconds=fault.seconds or 0.0)


_STEPS = {
    FaultKind.CANCELED_LATE: _without_canceled,
    FaultKind.SHORT_NOTICE: _at_short_notice,
    FaultKind.STRAIGHT_TO_STARTED: _only_started,
    FaultKind.FREEZE_FOR_REBOOT: _frozen,
    FaultKind.TWO_EVENTS: _with_twins,
    FaultKind.CONTROL_CHARACTERS: _with_marks,
}
