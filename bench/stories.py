"""What happens to single VMs, as stories told one command at a time.

A story yields a labeled command and is sent the decision; it yields None to let five minutes
pass in silence. Every story leaves its VM running, so the fleet stays what it was.
"""

import random
import uuid
from collections.abc import Callable, Generator
from datetime import timedelta

from fairnotice.engine import Accepted, Decision, Fleet
from fairnotice.engine.commands import (
    Approve,
    Cancel,
    Command,
    Delete,
    Evict,
    Heard,
    Postpone,
    Redeploy,
    ReportOutcome,
    ReportServed,
    Restart,
    SeenBy,
    Start,
    Stop,
    Tick,
)
from fairnotice.engine.effects import Matter, Subject
from fairnotice.model import Requester, Vm
from fairnotice.words import Outcome, Priority, Role, ScopeKind

Step = tuple[str, Command] | None
Story = Generator[Step, Decision | None, None]

USER = Requester("alice", Role.USER)
OPERATOR = Requester("olga", Role.OPERATOR)
PLATFORM = Requester("capacity", Role.PLATFORM)


class Tale:
    """One VM of a fleet, and the commands of its story."""

    def __init__(self, fleet: Fleet, vm: Vm, chance: random.Random) -> None:
        self.fleet = fleet
        self.vm = vm
        self.id = str(uuid.UUID(int=chance.getrandbits(128)))
        self.event = ""

    def announced(self, decision: Decision | None) -> None:
        """Remember the event that the command has made."""
        assert decision is not None
        assert isinstance(decision.answer, Accepted)
        (self.event,) = decision.answer.events

    def seen(self) -> Step:
        """The VM asks, and is shown its event for the first time."""
        at = self.fleet.events[self.event].announced_at
        served = ReportServed(
            heard=(Heard(self.vm.scope, at),), seen=(SeenBy(self.event, self.vm.name, at),)
        )
        return "ReportServed", served

    def approved(self) -> Step:
        """The VM approves, which starts the operation."""
        by = Requester(self.vm.name, Role.VM)
        return "Approve, starts it", Approve(events=(self.event,), by=by)

    def due(self) -> Step:
        """NotBefore has come."""
        return "Tick, starts it", Tick(subjects=(Subject(Matter.OPERATION, self.id),))

    def done(self, operation: str = "") -> Step:
        """The driver is done."""
        key = f"{operation or self.id}/{self.vm.name}"
        return "ReportOutcome, done", ReportOutcome(key=key, outcome=Outcome.DONE)

    def canceled(self) -> Step:
        """The user takes it back."""
        return "Cancel", Cancel(target=self.id, by=USER)


def restarted(tale: Tale) -> Story:
    """A user restarts a VM, which approves."""
    tale.announced((yield "Restart", Restart(id=tale.id, by=USER, vms=(tale.vm.name,))))
    yield tale.seen()
    yield tale.approved()
    yield tale.done()


def restarted_in_silence(tale: Tale) -> Story:
    """A user restarts a VM, which says nothing until NotBefore."""
    tale.announced((yield "Restart", Restart(id=tale.id, by=USER, vms=(tale.vm.name,))))
    yield tale.seen()
    yield None
    yield tale.due()
    yield tale.done()


def restart_taken_back(tale: Tale) -> Story:
    """A user restarts a VM and thinks better of it."""
    tale.announced((yield "Restart", Restart(id=tale.id, by=USER, vms=(tale.vm.name,))))
    yield tale.canceled()


def restart_postponed(tale: Tale) -> Story:
    """An operator gives a restart more time; then the VM approves."""
    tale.announced((yield "Restart", Restart(id=tale.id, by=USER, vms=(tale.vm.name,))))
    later = tale.fleet.events[tale.event].not_before + timedelta(minutes=15)
    yield "Postpone", Postpone(event=tale.event, not_before=later, by=OPERATOR)
    yield tale.approved()
    yield tale.done()


def redeployed(tale: Tale) -> Story:
    """A user moves a VM to another node."""
    tale.announced((yield "Redeploy", Redeploy(id=tale.id, by=USER, vms=(tale.vm.name,))))
    yield tale.seen()
    yield tale.approved()
    yield tale.done()


def delete_taken_back(tale: Tale) -> Story:
    """A user deletes an instance of a scale set with terminate notice, and takes it back."""
    tale.announced((yield "Delete", Delete(id=tale.id, by=USER, vms=(tale.vm.name,))))
    yield tale.canceled()


def evicted(tale: Tale) -> Story:
    """A Spot VM is deallocated after its 30 seconds, and started again somewhere."""
    tale.announced((yield "Evict", Evict(id=tale.id, by=PLATFORM, vms=(tale.vm.name,))))
    yield tale.due()
    yield tale.done()
    again = f"{tale.id}-again"
    yield "Start, placed anew", Start(id=again, by=USER, vms=(tale.vm.name,))
    yield tale.done(again)


def stopped_and_started(tale: Tale) -> Story:
    """A user stops a VM and starts it again."""
    yield "Stop", Stop(id=tale.id, by=USER, vms=(tale.vm.name,))
    yield tale.done()
    again = f"{tale.id}-again"
    yield "Start", Start(id=again, by=USER, vms=(tale.vm.name,))
    yield tale.done(again)


# How often each is told, in twenty stories.
MIX: tuple[tuple[Callable[[Tale], Story], int], ...] = (
    (restarted, 6),
    (restarted_in_silence, 3),
    (restart_taken_back, 2),
    (restart_postponed, 2),
    (redeployed, 3),
    (delete_taken_back, 1),
    (evicted, 1),
    (stopped_and_started, 2),
)


def fits(story: Callable[[Tale], Story], fleet: Fleet, vm: Vm) -> bool:
    """Whether this can happen to this VM: evictions are for Spot, notice of a delete for few."""
    if story is evicted:
        return vm.priority is Priority.SPOT
    if story is delete_taken_back:
        scope = fleet.scopes[vm.scope]
        if scope.kind is not ScopeKind.PLACEMENT_GROUP:
            return False
        return fleet.scale_sets[scope.of].terminate_notice_minutes is not None
    return True
