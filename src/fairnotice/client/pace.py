"""When to ask next. Pure: chance and instants come in.

Where the service holds its answer (`Preference-Applied`) it is asked again at once, else once a
second. After a failure it is asked less and less often, but never so seldom that the notice of a
Preempt, 30 s, could pass unseen.
"""

from collections import deque
from collections.abc import Callable

# How long the service is asked to hold its answer. A connection that has died in silence is found
# out after this and ANSWER_SECONDS: in time for a Preempt.
WAIT_SECONDS = 10
# How late an answer may be, of a service that has answered before: Azure's took up to 10 s.
ANSWER_SECONDS = 12.0
# Before that: Azure's first answer to a scope takes up to two minutes.
FIRST_ANSWER_SECONDS = 130.0
CONNECT_SECONDS = 3.0

POLL_SECONDS = 1.0
# Requests in any second at most. Azure allows five; one is left for an approval.
_A_SECOND_MAX = 4
# So long there must have been nothing but empty bodies, until they are taken for no events.
EMPTY_MEANS_NONE_SECONDS = 300.0
# Between a failure and the next request, where the service does not say how long.
BACKOFF_SECONDS_MAX = 10.0
# Where it does. Whoever kept more than this could sleep through a Preempt.
RETRY_AFTER_SECONDS_MAX = 25.0
_FIRST_BACKOFF_SECONDS = 1.0
_DOUBLINGS_MAX = 8

# From 0 up to 1.
Chance = Callable[[], float]


class Pace:
    """How often one watch asks. Instants are monotonic seconds."""

    def __init__(self, chance: Chance) -> None:
        self.failures = 0
        self._chance = chance
        # Unknown until it could have waited, which needs an ETag.
        self._held: bool | None = None
        self._asked: deque[float] = deque(maxlen=_A_SECOND_MAX)

    def heard(self, *, applied: bool, could_wait: bool) -> None:
        """A good answer came; whether it says that it was held, and whether it could have been."""
        self.failures = 0
        if could_wait or applied:
            self._held = applied

    def failed(self, retry_after_seconds: float | None) -> float:
        """A try failed; seconds until the next."""
        self.failures += 1
        most = _FIRST_BACKOFF_SECONDS * 2.0 ** min(self.failures - 1, _DOUBLINGS_MAX)
        # Between half of it and all: a scope's VMs that failed together come back apart.
        wanted = min(most, BACKOFF_SECONDS_MAX) * (1 + self._chance()) / 2
        told = min(retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX)
        return max(wanted, told)

    def pause_seconds(self, asked_at: float, now: float, *, can_wait: bool) -> float:
        """After a good answer: seconds until the next request."""
        self._asked.append(asked_at)
        # Whether the service waits is found out at once: a second later may be a second late.
        if not can_wait or self._held is False:
            return max(0.0, asked_at + POLL_SECONDS - now)
        crowded = len(self._asked) == _A_SECOND_MAX
        return max(0.0, self._asked[0] + 1 - now) if crowded else 0.0
