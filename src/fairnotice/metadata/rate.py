"""How often one VM may ask: evenly spaced, with a burst, counted in one number per VM."""

import math
from typing import NamedTuple

from fairnotice.metadata.board import Caller

# Sums of intervals are not exact.
ROUNDING_SECONDS = 1e-9


class Rate(NamedTuple):
    """At most so many requests a second in the long run, and so many at once."""

    interval_seconds: float
    burst_seconds: float


def rate_of(per_second: float, burst: int) -> Rate:
    """A rate in the words of the settings."""
    return Rate(1 / per_second, burst / per_second)


# WIRE.md: Azure's limit. The count is per process.
BURST = 10
DEFAULT = rate_of(per_second=5, burst=BURST)


def retry_after_seconds(caller: Caller, now: float, rate: Rate) -> int:
    """In how many whole seconds the next request will be within the rate; one at least."""
    wait = caller.busy_until + rate.interval_seconds - rate.burst_seconds - now
    return max(1, math.ceil(wait))


def admit(caller: Caller, now: float, rate: Rate) -> bool:
    """Count a request, and say whether it was within the rate."""
    busy_until = caller.busy_until
    busy_until = (max(now, busy_until)) + rate.interval_seconds
    if busy_until - now > rate.burst_seconds + ROUNDING_SECONDS:
        return False
    caller.busy_until = busy_until
    return True
