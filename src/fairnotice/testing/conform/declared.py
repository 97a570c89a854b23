"""What the author of a client says of it: how it is started, and what it does at all."""

import sys
from typing import NamedTuple

from fairnotice.errors import UsageError
from fairnotice.words import EventType

# Types that can be announced to any VM, again and again; Preempt and Terminate are its end.
USUAL_TYPES = (EventType.REBOOT, EventType.REDEPLOY, EventType.FREEZE)

# A machine may be busy.
PATIENCE_SECONDS_MIN = 5.0
# Azure's limit: so many a second from one VM, after a burst.
REQUESTS_PER_SECOND = 5.0
BURST = 10

# Longer is a typing mistake: nobody asks so seldom.
SECONDS_MAX = 3_600


class Declared(NamedTuple):
    """A client, and what may be expected of it.

    In the words of `command`, {url} stands for the metadata service and {vm} for the VM's name.
    """

    command: tuple[str, ...]
    # How often it asks; None where that is to be measured.
    poll_seconds: float | None = None
    # Whether it acknowledges at all, or only watches; and which types of event.
    acknowledges: bool = True
    types: frozenset[EventType] = frozenset(EventType)
    # Where an event names several VMs it leaves it to the first of them, as Azure suggests.
    first_leads: bool = False
    # It asks once and ends: it is run anew each `poll_seconds`.
    once: bool = False
    # What it should do within so many of its intervals it has done, or it does not do it.
    patience: float = 10.0
    # But not less, however short its interval.
    patience_seconds_min: float = PATIENCE_SECONDS_MIN
    # After so long without an answer it should have asked anew.
    stall_seconds: float = 30.0
    # Run it where 169.254.169.254 is its endpoint (Linux).
    namespace: bool = False
    # Nobody has said how often it asks, so that it is so often is no excuse.
    measured: bool = False
    # How long it took from its start to its first request, when it was looked whether it asks.
    start_seconds: float = 0.0

    @property
    def interval_seconds(self) -> float:
        """How often it asks, once that is known."""
        assert self.poll_seconds is not None, "it is measured before anything is played"
        return self.poll_seconds

    @property
    def patience_seconds(self) -> float:
        """How long to wait for what it should do."""
        return max(self.patience * self.interval_seconds, self.patience_seconds_min)

    @property
    def late_seconds(self) -> float:
        """How late an answer is that is late, and yet not too late."""
        return min(5.0, self.stall_seconds / 4)

    @property
    def requests_per_second_max(self) -> float:
        """How often it may ask: as Azure lets it, or twice as was declared where that is more."""
        if self.measured:
            return REQUESTS_PER_SECOND
        return max(REQUESTS_PER_SECOND, 2.0 / self.interval_seconds)

    @property
    def usual_type(self) -> EventType | None:
        """A type that it acknowledges and that may come again and again."""
        if not self.acknowledges:
            return None
        return next((one for one in USUAL_TYPES if one in self.types), None)

    def checked(self) -> "Declared":
        """The same; UsageError where it cannot mean anything."""
        if not self.command:
            raise UsageError("Say which client: fairnotice conform -- COMMAND…")
        if self.namespace and sys.platform != "linux":
            raise UsageError("--namespace needs Linux: other systems have no network namespaces.")
        for name in ("poll_seconds", "patience", "stall_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= SECONDS_MAX:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} is {value:g}; give more than 0, up to {SECONDS_MAX}.")
        return self
