"""The driver of the machine room. To add a driver, copy this one."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Capabilities, Found, Order, Report
from fairnotice.drivers.simulated.durations import Durations, checked_durations
from fairnotice.drivers.simulated.faults import Fault, FaultKind, FaultPlan
from fairnotice.drivers.simulated.ledger import FileLedger, Ledger, NoLedger
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.drivers.simulated.room import Deed, Room
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.words import ImpactKind, Outcome, Power

FAILURE = "the simulated machine failed, as it was told to"
REFUSAL = "the simulated machine room refuses, as it was told to"


def machines_beside(store: Path) -> Path:
    """Where machines are remembered that go with a store in this file."""
    return store.with_name(store.name + ".machines")


class SimulatedDriver:
    """Machines that exist only here, and do what real ones do.

    With a `path` it remembers across the death of its process, and so it can answer for a key
    afterwards: an impact that was under way has gone on meanwhile, by the wall clock. Without
    one, what it has not seen itself is unknown to it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        durations: Durations = Durations(),  # noqa: B008 - immutable
        path: Path | None = None,
    ) -> None:
        self._clock = clock
        self._durations = checked_durations(durations)
        self._faults = FaultPlan()
        self._ledger: Ledger = NoLedger() if path is None else FileLedger(path)
        self._room = Room(self._ledger, clock)
        self._closed = False
        # Keys that were refused: it is certain that they were not begun.
        self._refused: set[str] = set()
        self._capabilities = Capabilities(
            "simulated",
            frozenset(ImpactKind),
            answers=path is not None,
            discovers=True,
            makes=True,
        )

    # ---- The port ----

    def capabilities(self) -> Capabilities:
        """All kinds; it answers when it has a path."""
        return self._capabilities

    async def impact(self, order: Order, epoch: int) -> Report:
        """Carry it out, or wait for the one of the same key that was begun before."""
        with self._looking(epoch):
            deed = self._room.deeds.get(order.key) or self._begin(order)
        while deed.report is None:
            await self._wait(deed)
            with self._looking():
                pass
        return deed.report

    async def outcome(
        self,
        key: str,
        epoch: int,
        failed_nodes: frozenset[str] = frozenset(),  # noqa: ARG002 - its nodes always answer
    ) -> Report:
        """What became of this key."""
        with self._looking(epoch):
            deed = self._room.deeds.get(key)
        if deed is not None:
            return deed.report or Report(Outcome.UNDER_WAY)
        if self._capabilities.answers or key in self._refused:
            return Report(Outcome.NOT_BEGUN)
        return Report(Outcome.UNKNOWN, "it was not begun in this life of the machine room")

    async def discover(self, epoch: int) -> tuple[Found, ...]:
        """Every machine that there is."""
        with self._looking(epoch):
            machines = sorted(self._room.machines.values())
        return tuple(Found(machine.vm, machine.node, machine.power) for machine in machines)

    async def close(self) -> None:
        """Let go of the file, and of whoever waits for an impact that hangs."""
        self._closed = True
        self._ledger.close()
        for deed in self._room.deeds.values():
            deed.let_go.set()

    @contextmanager
    def _looking(self, epoch: int | None = None) -> Iterator[None]:
        """Alone with the room, which is as of now; LeadLost to whoever has an older epoch."""
        if self._closed:
            raise Unavailable("The simulated machine room is closed.")
        with self._ledger.locked():
            self._room.look()
            if epoch is not None and epoch < self._room.epoch:
                raise LeadLost(f"Epoch {epoch} is over: {self._room.epoch} has begun.")
            if epoch is not None and epoch > self._room.epoch:
                self._room.raise_epoch(epoch)
            yield

    def _begin(self, order: Order) -> Deed:
        fault = self._faults.strike(order)
        seconds, failure = self._durations.seconds(order), None
        if fault is not None and fault.fault is FaultKind.REFUSES:
            self._refused.add(order.key)
            raise Unavailable(fault.reason)
        if fault is not None and fault.fault is FaultKind.FAILS:
            failure = fault.reason
        if fault is not None and fault.fault is FaultKind.HANGS:
            seconds = math.inf
        return self._room.begin(order, seconds, failure)

    async def _wait(self, deed: Deed) -> None:
        if math.isinf(deed.ends_at):
            await deed.let_go.wait()
        else:
            await self._clock.sleep(deed.ends_at - self._clock.monotonic())

    # ---- What a test looks at ----

    def machine(self, vm: str) -> Machine | None:
        """The machine as it is now; None when there is none, or none any more."""
        with self._looking():
            return self._room.seen(vm)

    def machines(self) -> tuple[Machine, ...]:
        """All of them, by name."""
        with self._looking():
            seen = (self._room.seen(vm) for vm in sorted(self._room.machines))
            return tuple(machine for machine in seen if machine is not None)

    def begun(self) -> tuple[str, ...]:
        """The key of every impact that was ever begun, in that order; twice if it was twice."""
        with self._looking():
            return tuple(self._room.begun)

    # ---- What a test wishes ----

    def declare(self, vm: str, node: str | None, power: Power = Power.RUNNING) -> None:
        """Put a machine into the room, as new; one of that name is replaced."""
        with self._looking():
            self._room.declare(vm, node, power)

    def next_fails(
        self,
        vm: str | None = None,
        reason: str = FAILURE,
        *,
        kind: ImpactKind | None = None,
        standing: bool = False,
    ) -> None:
        """The next impact on this VM, or on any, takes its time and fails."""
        self._faults.faults.append(Fault(FaultKind.FAILS, vm, kind, reason, standing))

    def next_hangs(
        self,
        vm: str | None = None,
        *,
        kind: ImpactKind | None = None,
        standing: bool = False,
    ) -> None:
        """The next impact on this VM, or on any, does not end until it is let go."""
        self._faults.faults.append(Fault(FaultKind.HANGS, vm, kind, "", standing))

    def next_refuses(
        self,
        vm: str | None = None,
        reason: str = REFUSAL,
        *,
        kind: ImpactKind | None = None,
        standing: bool = False,
    ) -> None:
        """The next impact on this VM, or on any, is not begun: errors.Unavailable."""
        self._faults.faults.append(Fault(FaultKind.REFUSES, vm, kind, reason, standing))

    def clear_faults(self) -> None:
        """From now on nothing goes wrong; what hangs goes on hanging."""
        self._faults.faults.clear()

    def let_go(self, vm: str) -> None:
        """What hangs on this VM ends now, done."""
        with self._looking():
            self._room.let_go(vm)
            self._room.look()
