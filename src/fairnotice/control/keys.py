"""Idempotency keys: the same key at the same address with the same body is the same request.

What the law is asked for it remembers itself, durably (rule 19), and is none of ours. The rest is
faults of the endpoint in this process, and tokens that are revoked, which stay so however often it
is said: here its answer is kept for as long as the process lives.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

KEY_CHARACTERS_MAX = 200
# Enough for every client that repeats what it got no answer to.
KEPT_MAX = 10_000


class Kept(NamedTuple):
    """What a key stands for, as a digest, and its answer."""

    at: datetime
    request: bytes
    answer: bytes


class Keys:
    """The keys of the last requests that were accepted, for as long as the law keeps its own."""

    def __init__(
        self, now: Callable[[], datetime], kept_seconds: float, kept_max: int = KEPT_MAX
    ) -> None:
        self._now = now
        self._kept_time = timedelta(seconds=kept_seconds)
        self._kept_max = kept_max
        # The oldest first.
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def get(self, key: str) -> Kept | None:
        """What this key stands for; None where it is new, or was long ago."""
        kept = self._kept.get(key)
        return kept if kept is not None and self._now() < kept.at + self._kept_time else None

    def keep(self, key: str, request: bytes, answer: bytes) -> None:
        """This request was accepted."""
        now = self._now()
        self._kept.pop(key, None)
        self._kept[key] = Kept(now, request, answer)
        while len(self._kept) > self._kept_max or self._oldest_at() + self._kept_time <= now:
            self._kept.popitem(last=False)

    def _oldest_at(self) -> datetime:
        return next(iter(self._kept.values())).at
