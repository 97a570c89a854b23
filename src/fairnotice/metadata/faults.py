"""Faults: ways in which one endpoint process misbehaves on purpose, so that clients can be tested.

    worker.faults.set(Fault(FaultKind.SLOW, vm="web-0", seconds=5))
    worker.faults.clear("slow@web-0")

None is on unless somebody sets it; they live in memory and are gone with the process. They change
what a VM is answered and never what the law decides. While one is on, every request takes the long
way (worker.py), and only there is it looked at: the hot path knows nothing of faults.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from fairnotice.clock import Clock
from fairnotice.errors import UnknownName, UsageError
from fairnotice.metadata.board import Board
from fairnotice.metadata.identity import nearest_names

log = logging.getLogger(__name__)

# Longer is a typing mistake: no notice is as long.
SECONDS_MAX = 30 * 24 * 3_600.0


class FaultKind(StrEnum):
    """What people type. Of those that stand in for an answer the first one here is shown."""

    SLOW_FIRST = "slow-first"
    SLOW = "slow"
    # These answer in the service's place: the request goes no further.
    DROPPED = "dropped"
    GONE = "gone"
    TOO_MANY = "too-many"
    NOT_FOUND = "not-found"
    ERROR = "error"
    # These spoil the answer alone: what was asked is done, an approval too.
    EMPTY_BODY = "empty-body"
    GARBAGE = "garbage"
    CUT_OFF = "cut-off"
    # These change the document that a VM is shown, and go together.
    CONTROL_CHARACTERS = "control-characters"
    INCARNATION_RESET = "incarnation-reset"
    SHORT_NOTICE = "short-notice"
    CANCELED_LATE = "canceled-late"
    STRAIGHT_TO_STARTED = "straight-to-started"
    FREEZE_FOR_REBOOT = "freeze-for-reboot"
    TWO_EVENTS = "two-events"


STAND_INS = (
    FaultKind.DROPPED,
    FaultKind.GONE,
    FaultKind.TOO_MANY,
    FaultKind.NOT_FOUND,
    FaultKind.ERROR,
)
SPOILING = (FaultKind.EMPTY_BODY, FaultKind.GARBAGE, FaultKind.CUT_OFF)
OF_DOCUMENTS = (
    FaultKind.CONTROL_CHARACTERS,
    FaultKind.INCARNATION_RESET,
    FaultKind.SHORT_NOTICE,
    FaultKind.CANCELED_LATE,
    FaultKind.STRAIGHT_TO_STARTED,
    FaultKind.FREEZE_FOR_REBOOT,
    FaultKind.TWO_EVENTS,
)


class Meaning(NamedTuple):
    """What a kind does, and what its `seconds` are, where it has any."""

    sentence: str
    seconds: float | None = None
    seconds_mean: str = ""


MEANINGS: Mapping[FaultKind, Meaning] = {
    FaultKind.SLOW_FIRST: Meaning(
        "The first request of each VM is answered late.", 60.0, "how late it is answered"
    ),
    FaultKind.SLOW: Meaning("Every request is answered late.", 10.0, "how late it is answered"),
    FaultKind.DROPPED: Meaning("The connection is closed without a byte of an answer."),
    FaultKind.GONE: Meaning("Every request is answered 410, as during an update of the service."),
    FaultKind.TOO_MANY: Meaning(
        "Every request is answered 429, as if there had been too many.", 1.0, "Retry-After"
    ),
    FaultKind.NOT_FOUND: Meaning("Every request is answered 404."),
    FaultKind.ERROR: Meaning("Every request is answered 500."),
    FaultKind.EMPTY_BODY: Meaning("Every GET is answered 200 without a body."),
    FaultKind.GARBAGE: Meaning("Every request is answered 200 with bytes that are no JSON."),
    FaultKind.CUT_OFF: Meaning("The connection is closed in the middle of the answer."),
    FaultKind.CONTROL_CHARACTERS: Meaning("Descriptions hold control characters as raw bytes."),
    FaultKind.INCARNATION_RESET: Meaning("DocumentIncarnation counts from 1 again."),
    FaultKind.SHORT_NOTICE: Meaning(
        "An event is hidden until shortly before its NotBefore.", 60.0, "how long before NotBefore"
    ),
    FaultKind.CANCELED_LATE: Meaning(
        "An event vanishes shortly before its NotBefore, as a canceled one does.",
        60.0,
        "how long before NotBefore",
    ),
    FaultKind.STRAIGHT_TO_STARTED: Meaning("An event is hidden until it is Started."),
    FaultKind.FREEZE_FOR_REBOOT: Meaning("A Reboot is shown as a Freeze."),
    FaultKind.TWO_EVENTS: Meaning(
        "Each event of a VM has a twin of another type.", 300.0, "how much later the twin's is"
    ),
}


class Fault(NamedTuple):
    """One way to misbehave, towards one VM or towards all of them."""

    kind: FaultKind
    vm: str | None = None
    # What they mean is in MEANINGS; left out, they are what it says.
    seconds: float | None = None
    # It clears itself after so long.
    for_seconds: float | None = None

    @property
    def id(self) -> str:
        """`slow` for all VMs, `slow@web-0` for one."""
        return self.kind if self.vm is None else f"{self.kind}@{self.vm}"


class On(NamedTuple):
    """A fault that is on."""

    fault: Fault
    since: datetime
    # In monotonic seconds; infinity where it stays until somebody clears it.
    ends_at: float


class Faults:
    """What is on in one endpoint process. All of it is called from the endpoint's loop."""

    def __init__(self, board: Board, clock: Clock, changed: Callable[[Fault], None]) -> None:
        self._board = board
        self._clock = clock
        # Told of each fault that was set or cleared.
        self._changed = changed
        self._on: dict[str, On] = {}
        self._ends_at = math.inf
        # VMs whose first request since it was set has come, by the id of the fault.
        self._met: dict[str, set[str]] = {}
        self.spoiled: Counter[FaultKind] = Counter()

    # ---- Setting and clearing ----

    def set(self, fault: Fault) -> On:
        """Switch a fault on; one that is on already begins anew. Raises UsageError."""
        fault = _checked(fault)
        if fault.vm is not None and fault.vm not in self._board.callers:
            near = tuple(nearest_names(self._board, fault.vm))
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UnknownName(f"There is no VM {fault.vm}.{meant}", near)
        ends_at = math.inf
        if fault.for_seconds is not None:
            ends_at = self._clock.monotonic() + fault.for_seconds
        on = On(fault, self._clock.wall(), ends_at)
        self._on[fault.id] = on
        self._met[fault.id] = set()
        log.warning("the fault %s is on: %s", fault.id, MEANINGS[fault.kind].sentence)
        self._moved(fault)
        return on

    def clear(self, name: str) -> Fault:
        """Switch off the fault of this id; UnknownName where it is not on."""
        self.sweep()
        if name not in self._on:
            on = ", ".join(self._on) or "none"
            raise UnknownName(f"The fault {name} is not on; on are: {on}.", tuple(self._on))
        return self._switch_off(name, "cleared")

    def clear_all(self) -> list[Fault]:
        """Switch off every fault; those that were on."""
        self.sweep()
        return [self._switch_off(name, "cleared") for name in list(self._on)]

    def _switch_off(self, name: str, how: str) -> Fault:
        fault = self._on.pop(name).fault
        del self._met[name]
        log.warning("the fault %s is off: %s", name, how)
        self._moved(fault)
        return fault

    def _moved(self, fault: Fault) -> None:
        self._ends_at = min((one.ends_at for one in self._on.values()), default=math.inf)
        self._changed(fault)

    def sweep(self) -> None:
        """Switch off those whose time is over."""
        now = self._clock.monotonic()
        if now < self._ends_at:
            return
        for name in [name for name, one in self._on.items() if one.ends_at <= now]:
            # Whoever is told of one that is off may look, and so switch off the next.
            if name in self._on:
                self._switch_off(name, "its time is over")

    # ---- Looking ----

    @property
    def on(self) -> bool:
        """Whether any is on."""
        if self._ends_at < math.inf:
            self.sweep()
        return bool(self._on)

    def __iter__(self) -> Iterator[On]:
        """Every fault that is on, in the order in which they were set."""
        self.sweep()
        return iter(list(self._on.values()))

    def get(self, kind: FaultKind, vm: str) -> Fault | None:
        """The fault of this kind that this VM meets: its own, or else the one for all."""
        found = self._on.get(f"{kind}@{vm}") or self._on.get(kind)
        return None if found is None else found.fault

    def of_document(self, vm: str) -> dict[FaultKind, Fault]:
        """The faults that change the document of this VM."""
        if not self.on:
            return {}
        found = ((kind, self.get(kind, vm)) for kind in OF_DOCUMENTS)
        return {kind: fault for kind, fault in found if fault is not None}

    # ---- What a request meets ----

    def delay_seconds(self, vm: str) -> float:
        """How late a request of this VM is answered; asked once for each request."""
        delays = []
        for kind in (FaultKind.SLOW, FaultKind.SLOW_FIRST):
            fault = self.get(kind, vm)
            if fault is None or (kind is FaultKind.SLOW_FIRST and vm in self._met[fault.id]):
                continue
            self._met[fault.id].add(vm)
            self.spoiled[kind] += 1
            delays.append(fault.seconds or 0.0)
        return max(delays, default=0.0)

    def first_of(self, kinds: tuple[FaultKind, ...], vm: str) -> Fault | None:
        """The first of these kinds that this VM meets."""
        found = (self.get(kind, vm) for kind in kinds)
        return next((fault for fault in found if fault is not None), None)


def _checked(fault: Fault) -> Fault:
    """The fault with its seconds; UsageError where it cannot mean anything."""
    meaning = MEANINGS[fault.kind]
    if fault.seconds is not None and meaning.seconds is None:
        raise UsageError(f"seconds mean nothing to {fault.kind}; for_seconds may be meant.")
    for name, value in (("seconds", fault.seconds), ("for_seconds", fault.for_seconds)):
        if value is not None and not 0 <= value <= SECONDS_MAX:
            raise UsageError(f"{name} is {value:g}; give 0 to {SECONDS_MAX:.0f}.")
    if fault.for_seconds == 0:
        raise UsageError("for_seconds is 0, so it would never be on; give more, or leave it out.")
    return fault if fault.seconds is not None else fault._replace(seconds=meaning.seconds)
