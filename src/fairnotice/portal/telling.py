"""What an event looks like to people: in which phase it is, and what it waits for, in words."""

from datetime import datetime
from typing import NamedTuple

from fairnotice.engine import Fleet
from fairnotice.model import Approval, Event, Vm
from fairnotice.words import EventStatus, EventType

# What an event does to a VM, for whoever does not know Azure's words.
MEANINGS = {
    EventType.FREEZE: "the VM pauses for a moment",
    EventType.REBOOT: "the VM restarts; its memory is lost",
    EventType.REDEPLOY: "the VM moves; its local disk is lost",
    EventType.PREEMPT: "the Spot VM is taken away",
    EventType.TERMINATE: "the VM is deleted",
}
APPROVED = "approved"
DUE = "due"
HELD = "held"


class Told(NamedTuple):
    """An event, and what a page says of it."""

    event: Event
    # scheduled, approved, due, held, started, completed, canceled: how it is marked.
    phase: str
    # The same in words.
    word: str
    waits_for: str

    @property
    def meaning(self) -> str:
        """What becomes of each of its VMs."""
        return MEANINGS[self.event.type]

    @property
    def open(self) -> bool:
        """Whether somebody may still give the go-ahead, or more notice."""
        return self.event.scheduled and self.event.approval is None

    @property
    def seen_by(self) -> frozenset[str]:
        """The VMs that were shown it."""
        return frozenset(seen.vm for seen in self.event.seen)


def told(fleet: Fleet, event: Event, now: datetime) -> Told:
    """What is said of this event at this instant."""
    if not event.scheduled:
        return Told(event, event.status.lower(), event.status, _after(event))
    if event.approval is not None:
        return Told(event, APPROVED, "Scheduled, approved", _approved(fleet, event, event.approval))
    if event.not_before > now:
        return Told(event, "scheduled", event.status, _waiting(fleet, event))
    if event.unconfirmed:
        nodes = ", ".join(event.unconfirmed)
        return Told(event, HELD, "Scheduled, held", f"held: {nodes} has not shown it to its VMs")
    return Told(event, DUE, "Scheduled, due", "waits for its turn")


# The more it matters, the later it is here.
_PHASES = ("calm", "stopped", "untold", "scheduled", APPROVED, DUE, HELD, "started")


class Touched(NamedTuple):
    """What is about to be done to a VM, or is; the next event that says so."""

    phase: str
    says: str
    event: Event | None = None


def touched(fleet: Fleet, vm: Vm, now: datetime) -> Touched:
    """What one sees at a glance of this VM."""
    found = [Touched("calm", "nothing is announced")]
    if not vm.running:
        found.append(Touched("stopped", vm.power.value))
    for name in fleet.operations_on_vm.get(vm.name, ()):
        operation = fleet.operations[name]
        found.append(Touched("untold", f"{operation.kind}, of which nobody is told"))
    for name in fleet.events_in_scope.get(vm.scope, ()):
        event = fleet.events[name]
        if vm.name in event.resources:
            found.append(
                Touched(told(fleet, event, now).phase, f"{event.type}, {event.status}", event)
            )
    if vm.name in fleet.impact_on_vm:
        kind = fleet.impacts[fleet.impact_on_vm[vm.name]].kind
        found.append(Touched("started", f"{kind} is under way"))
    return max(found, key=lambda one: _PHASES.index(one.phase))


def _waiting(fleet: Fleet, event: Event) -> str:
    seen_by = {seen.vm for seen in event.seen}
    unseen = [name for name in event.resources if name not in seen_by]
    count = len(event.resources)
    waits = f"waits for {_approver(fleet, event.scope)} to approve"
    if not unseen:
        return waits
    return f"{waits}; not seen yet" if len(unseen) == count else f"{waits}; {_unseen(unseen)}"


def _approver(fleet: Fleet, scope: str) -> str:
    """Who may give the go-ahead: any VM of the scope, also for another one."""
    names = fleet.vms_in_scope.get(scope, ())
    return next(iter(names)) if len(names) == 1 else f"any of the {len(names)} VMs of {scope}"


def _approved(fleet: Fleet, event: Event, approval: Approval) -> str:
    """By whom; and for whom its operation waits all the same, for it starts as a whole."""
    said = f"approved by {approval.by}"
    operation = fleet.operations.get(event.operation)
    events = [fleet.events[name] for name in operation.events] if operation else []
    others = {one.scope for one in events if one.scheduled and one.approval is None}
    if not others:
        return said
    whom = next(iter(others)) if len(others) == 1 else f"{len(others)} other scopes"
    return f"{said}; waits for {whom} too"


def _unseen(names: list[str]) -> str:
    return f"{names[0]} has not seen it" if len(names) == 1 else f"{len(names)} have not seen it"


def _after(event: Event) -> str:
    if event.status is EventStatus.STARTED:
        over = "its notice is over" if event.notice_seconds else "without notice"
        why = f"approved by {event.approval.by}" if event.approval else over
        return why if event.settling_since is None else f"{why}; all is done, it settles"
    return event.reason
