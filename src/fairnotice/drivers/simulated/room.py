"""The state of the machine room: its lines, put together.

Time passes in it without anybody doing anything: an impact that has begun ends when its time is
over, and whoever looks next writes that down. So an impact goes on although nobody waits for it,
and also although the process that began it has died; it ends once all the same.
"""

import asyncio
import heapq
import math
from dataclasses import dataclass, field
from datetime import datetime

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Order, Report
from fairnotice.drivers.simulated.ledger import Ledger, Line
from fairnotice.drivers.simulated.machine import PAUSING, Machine, boot_id_after, machine_after
from fairnotice.words import ImpactKind, Outcome, Power

# What the ledger has of an order: which nodes have failed is another matter in a later life.
_WRITTEN = frozenset(Order._fields) - {"failed_nodes"}


@dataclass(slots=True)
class Deed:
    """An impact that has begun."""

    order: Order
    # On the monotonic clock of this process; infinite while it hangs.
    ends_at: float
    # Why it is going to fail, if it is.
    failure: str | None = None
    report: Report | None = None
    let_go: asyncio.Event = field(default_factory=asyncio.Event)


class Room:
    """Machines, deeds and the highest epoch, as the ledger has them. Use it inside its lock."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self.epoch = 0
        self.machines: dict[str, Machine] = {}
        self.deeds: dict[str, Deed] = {}
        # The key of every impact that was begun, in that order: what proves that it was once.
        self.begun: list[str] = []
        self._under_way: dict[str, Deed] = {}
        self._ends: list[tuple[float, str]] = []
        self._declared = 0

    # ---- What is written ----

    def raise_epoch(self, epoch: int) -> None:
        """A later control plane has spoken."""
        self._add({"epoch": epoch})

    def declare(self, vm: str, node: str | None, power: Power) -> None:
        """There is such a machine."""
        boot_id = boot_id_after(f"declared {self._declared} {vm}")
        self._add({"declared": Machine(vm, node, boot_id, power)._asdict()})

    def begin(self, order: Order, seconds: float, failure: str | None) -> Deed:
        """It is written that this impact begins; from here on it takes its course."""
        known = [] if order.vm in self.machines else [self._born(order)]
        at = self._clock.wall().isoformat()
        length = seconds if math.isfinite(seconds) else None
        begun = {"begun": _written(order), "at": at, "seconds": length, "failure": failure}
        self._add(*known, begun)
        return self.deeds[order.key]

    @staticmethod
    def _born(order: Order) -> Line:
        """A machine that is heard of for the first time is as the order takes it to be."""
        starts = order.kind is ImpactKind.START
        off = Power.DEALLOCATED if order.node is None else Power.STOPPED
        power = off if starts else Power.RUNNING
        born = Machine(order.vm, order.node, boot_id_after(f"before {order.key}"), power)
        return {"declared": born._asdict()}

    def let_go(self, vm: str) -> None:
        """Whatever hangs on this VM ends now."""
        for deed in self._under_way.values():
            if deed.order.vm == vm and math.isinf(deed.ends_at):
                deed.ends_at = self._clock.monotonic()
                heapq.heappush(self._ends, (deed.ends_at, deed.order.key))
                deed.let_go.set()

    def look(self) -> None:
        """Take in what others have written, and write down what has ended since."""
        self._read()
        now = self._clock.monotonic()
        while self._ends and self._ends[0][0] <= now:
            deed = self.deeds[self._ends[0][1]]
            if deed.report is None:
                self._add(self._end(deed))
            heapq.heappop(self._ends)

    def _end(self, deed: Deed) -> Line:
        key, vm = deed.order.key, deed.order.vm
        if deed.failure is not None:
            return {"ended": key, "outcome": Outcome.FAILED, "reason": deed.failure}
        before = self.machines.get(vm)
        after = None if before is None else machine_after(before, deed.order)
        row = None if after is None else after._asdict()
        return {"ended": key, "outcome": Outcome.DONE, "vm": vm, "machine": row}

    def _add(self, *lines: Line) -> None:
        self._ledger.add(*lines)
        self._read()

    # ---- What is read ----

    def _read(self) -> None:
        for line in self._ledger.news():
            if "epoch" in line:
                self.epoch = max(self.epoch, line["epoch"])
            elif "declared" in line:
                self._declared += 1
                self._put(line["declared"])
            elif "begun" in line:
                self._read_begun(line)
            else:
                self._read_ended(line)

    def _read_begun(self, line: Line) -> None:
        order = _read(line["begun"])
        deed = Deed(order, self._ends_at(line), line["failure"])
        self.deeds[order.key] = self._under_way[order.key] = deed
        if math.isfinite(deed.ends_at):
            heapq.heappush(self._ends, (deed.ends_at, order.key))
        self.begun.append(order.key)

    def _ends_at(self, line: Line) -> float:
        """When it ends, on our own clock. A wall clock that was set back does not prolong it."""
        if line["seconds"] is None:
            return math.inf
        passed = (self._clock.wall() - datetime.fromisoformat(line["at"])).total_seconds()
        left: float = line["seconds"] - max(0.0, passed)
        return self._clock.monotonic() + left

    def _read_ended(self, line: Line) -> None:
        deed = self._under_way.pop(line["ended"])
        deed.report = Report(Outcome(line["outcome"]), line.get("reason", ""))
        deed.let_go.set()
        if "machine" in line:
            self.machines.pop(line["vm"], None)
            if line["machine"] is not None:
                self._put(line["machine"])

    def _put(self, row: Line) -> None:
        machine = Machine(**{**row, "power": Power(row["power"])})
        self.machines[machine.vm] = machine

    def seen(self, vm: str) -> Machine | None:
        """The machine as it is at this moment, paused or not."""
        machine = self.machines.get(vm)
        if machine is None:
            return None
        kinds = {deed.order.kind for deed in self._under_way.values() if deed.order.vm == vm}
        return machine._replace(paused=not kinds.isdisjoint(PAUSING))


def _written(order: Order) -> Line:
    """As the ledger has it."""
    return {name: value for name, value in order._asdict().items() if name in _WRITTEN}


def _read(fields: Line) -> Order:
    """The same; what an earlier version has written besides is passed over."""
    known = {name: value for name, value in fields.items() if name in _WRITTEN}
    return Order(**{**known, "kind": ImpactKind(fields["kind"])})
