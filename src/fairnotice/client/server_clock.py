"""What time it is at the service, by the `Date` of its answers. Pure.

NotBefore is on the service's clock, and a VM's own may be hours wrong. `Date` is cut to whole
seconds, so one answer tells it to a second; each further one narrows that down.
"""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """The service's clock as an offset to the VM's monotonic one: somewhere between two bounds."""

    def __init__(self) -> None:
        self._bounds: tuple[float, float] | None = None

    def heard(self, date: datetime, asked_at: float, answered_at: float) -> None:
        """An answer has this `Date`; it was asked for and came at these monotonic seconds."""
        told = (date - _EPOCH).total_seconds()
        low, high = told - answered_at, told + _DATE_RESOLUTION_SECONDS - asked_at
        if self._bounds is not None:
            lowest, highest = max(low, self._bounds[0]), min(high, self._bounds[1])
            # No overlap: one of the clocks was stepped, or has drifted. The newest answer counts.
            if lowest <= highest:
                low, high = lowest, highest
        self._bounds = (low, high)

    def now(self, monotonic: float) -> datetime | None:
        """The instant on the service's clock; None where it has not answered yet."""
        if self._bounds is None:
            return None
        return _EPOCH + timedelta(seconds=monotonic + sum(self._bounds) / 2)
