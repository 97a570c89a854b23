"""What goes wrong in the machine room because a test wants it to."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fairnotice.drivers.driver import Order
from fairnotice.words import ImpactKind


class FaultKind(StrEnum):
    """How an impact goes wrong."""

    # It takes its time, ends failed, and leaves the machine as it was.
    FAILS = "fails"
    # It does not end until it is let go.
    HANGS = "hangs"
    # It is not begun: the driver raises errors.Unavailable, and the key is as good as new.
    REFUSES = "refuses"


class Fault(NamedTuple):
    """One wish: which impacts go wrong, and how. None means any."""

    fault: FaultKind
    vm: str | None = None
    kind: ImpactKind | None = None
    reason: str = ""
    # It holds until it is cleared; otherwise it is used up by the first impact it strikes.
    standing: bool = False

    def strikes(self, order: Order) -> bool:
        """Whether this order is one of those meant."""
        return self.vm in (None, order.vm) and self.kind in (None, order.kind)


@dataclass(slots=True)
class FaultPlan:
    """The wishes that are still open, first come first served."""

    faults: list[Fault] = field(default_factory=list)

    def strike(self, order: Order) -> Fault | None:
        """What befalls this order, used up unless it is standing."""
        for position, fault in enumerate(self.faults):
            if fault.strikes(order):
                if not fault.standing:
                    del self.faults[position]
                return fault
        return None
