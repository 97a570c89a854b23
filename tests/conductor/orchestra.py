"""What the conductor's tests share: a small fleet, and stores that fail when they are told to."""

import asyncio
from contextlib import asynccontextmanager

from fairnotice.conductor.conductor import Conductor
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine import AZURE
from fairnotice.engine.commands import ApplyFleet, Approve, Heard, ReportServed, Restart
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.errors import Unavailable
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import Role

USER = Requester("ada", Role.USER)
VM = Requester("web-0", Role.VM)

FLEET = FleetSpec(
    nodes=tuple(NodeSpec(f"node-{n}", fault_domain=n % 3) for n in range(4)),
    availability_sets=(SetSpec("web"),),
    vms=(
        *(VmSpec(f"web-{n}", f"node-{n}", availability_set="web") for n in range(3)),
        VmSpec("db", "node-3"),
    ),
)


def restart(name, *vms, **more):
    """A user restarts these VMs."""
    return Restart(id=name, by=USER, vms=vms, **more)


def approve(event):
    """A VM approves."""
    return Approve(events=(event,), by=VM)


class Wrapped:
    """A store in front of another: whatever is not said here is the other's."""

    def __init__(self, store=None) -> None:
        self.store = store or MemoryStore()

    def __getattr__(self, name):
        return getattr(self.store, name)


class Counting(Wrapped):
    """Counts commits, and the changes in each."""

    def __init__(self, store=None) -> None:
        super().__init__(store)
        self.commits = []

    def commit(self, epoch, after, changes):
        self.store.commit(epoch, after, changes)
        self.commits.append(len(changes))


class Failing(Wrapped):
    """Fails to commit while `broken`; after having committed, while `lost`."""

    def __init__(self, store=None) -> None:
        super().__init__(store)
        self.broken = self.lost = False

    def commit(self, epoch, after, changes):
        if self.broken:
            raise Unavailable("commit: the disk is full")
        self.store.commit(epoch, after, changes)
        if self.lost:
            raise Unavailable("commit: the connection was lost")


def simulated(clock, **more):
    """Machines whose impacts take no time."""
    return SimulatedDriver(clock, durations=AT_ONCE, **more)


@asynccontextmanager
async def conducting(
    store=None, driver=None, clock=None, timing=AZURE, *, conductor=None, declare=True, **more
):
    """A conductor at work on the small fleet, all of whose scopes listen."""
    clock = clock or ManualClock()
    if conductor is None:
        conductor = Conductor(store or MemoryStore(), driver or simulated(clock), clock, timing)
    await conductor.start(**more)
    if declare:
        await conductor.submit(ApplyFleet(spec=FLEET))
        heard = tuple(Heard(scope, clock.wall()) for scope in conductor.fleet.scopes)
        await conductor.submit(ReportServed(heard=heard))
    try:
        yield conductor
    finally:
        await conductor.close()


async def settled(*, turns=50):
    """Let everything that can go on without time passing go on."""
    for _ in range(turns):
        await asyncio.sleep(0)
        await asyncio.sleep(0.0005)


def events(conductor):
    """Every visible event."""
    return [event for event in conductor.fleet.events.values() if event.visible]


async def started(conductor, vm="web-0"):
    """Restart a VM and approve it; the event."""
    decision = await conductor.submit(restart(f"restart-{vm}", vm))
    (event,) = decision.answer.events
    await conductor.submit(Approve(events=(event,), by=Requester(vm, Role.VM)))
    await settled(turns=10)
    return event


def only_impact(conductor):
    """The one impact that there is."""
    (impact,) = conductor.fleet.impacts.values()
    return impact
