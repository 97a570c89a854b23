"""How long an impact takes in the machine room."""

import math
from typing import NamedTuple

from fairnotice.drivers.driver import Order
from fairnotice.errors import UsageError
from fairnotice.words import ImpactKind


class Durations(NamedTuple):
    """Seconds per kind, about as on Azure; `scale` multiplies them all, 0 is at once.

    A freeze and a live migration take as long as was announced, these where nothing was.
    Azure's pauses are under 10 s, those of a live migration about 5 s; a user's restart was seen
    gone a minute after it was approved (EVIDENCE.md 3.5, 4 #10). The others are plausible.
    """

    freeze: float = 9.0
    migrate: float = 5.0
    reboot: float = 45.0
    redeploy: float = 180.0
    delete: float = 30.0
    stop: float = 20.0
    start: float = 40.0
    deallocate: float = 30.0
    scale: float = 1.0

    def seconds(self, order: Order) -> float:
        """How long this order takes."""
        announced = order.kind in (ImpactKind.FREEZE, ImpactKind.MIGRATE)
        if announced and order.duration_seconds >= 0:
            return order.duration_seconds * self.scale
        of_its_kind: float = getattr(self, order.kind.value)
        return of_its_kind * self.scale


AT_ONCE = Durations(scale=0.0)


def checked_durations(durations: Durations) -> Durations:
    """The same; UsageError when one of them is no length of time."""
    for name, seconds in durations._asdict().items():
        if not (math.isfinite(seconds) and seconds >= 0):
            raise UsageError(f"durations.{name} is {seconds}: give a number of 0 or more.")
    return durations
