"""The audit: who asked for what. A line in the log at once, in the store within a second.

What changes nothing costs whoever asks nothing, be it refused, asked of what is not there, or a
signing in. So it is written down only so often: a flood of it fills neither log nor disk, and the
next line says how many were left out. Strangers share what there is room for, and every token has
room of its own, one for refusals and one for the rest: nobody hides what another's token tries, nor
by what he may do what he may not.
"""

import asyncio
import logging
from datetime import datetime

import msgspec

from fairnotice.clock import Clock
from fairnotice.control.tokens import AskStore
from fairnotice.errors import Unavailable
from fairnotice.stores.access import Audited, AuditLine

log = logging.getLogger(__name__)

# What comes within this time is written together.
TOGETHER_SECONDS = 0.25
AGAIN_SECONDS = 1.0
# What waits for a store that is away; then the oldest are only in the log.
WAITING_MAX = 10_000
# Of each token, and of all strangers: so many at once, and then so many a second.
AT_ONCE_MAX = 100
A_SECOND = 1.0
UNAUTHENTICATED = 401


class _Room:
    """How many lines may still be written down, and how many were left out since."""

    def __init__(self, now: float) -> None:
        self._left = float(AT_ONCE_MAX)
        self._at = now
        self.left_out = 0

    def take(self, now: float) -> bool:
        """Whether there is room for one more."""
        gained = (now - self._at) * A_SECOND
        self._at = now
        self._left = min(self._left + gained, float(AT_ONCE_MAX))
        if self._left < 1:
            self.left_out += 1
            return False
        self._left -= 1
        return True


class Audits:
    """Writes down who asked for what."""

    def __init__(self, ask_store: AskStore, clock: Clock) -> None:
        self._ask_store = ask_store
        self._clock = clock
        self._waiting: list[Audited] = []
        self._arrived = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        # By whose token it was, and whether it was refused: tokens are few. Whoever showed none is
        # in one with all.
        self._rooms: dict[tuple[str | None, bool], _Room] = {}

    def note(self, audited: Audited, *, refused: bool, changes: bool) -> None:
        """This was asked for; where it changes nothing, it may be one too many to write down."""
        if not changes:
            now = self._clock.monotonic()
            # A token that does not count was shown by a stranger, whosever it was.
            whose = None if audited.status == UNAUTHENTICATED else audited.token
            room = self._rooms.setdefault((whose, refused), _Room(now))
            if not room.take(now):
                return
            audited = msgspec.structs.replace(audited, left_out=room.left_out)
            room.left_out = 0
        _tell(audited, refused=refused)
        if len(self._waiting) >= WAITING_MAX:
            # It is in the log; the newest are more likely what is looked for.
            del self._waiting[0]
        self._waiting.append(audited)
        self._arrived.set()

    async def write(self) -> None:
        """Make durable what is noted, for as long as the task lives."""
        while True:
            await self._arrived.wait()
            await self._clock.sleep(TOGETHER_SECONDS)
            try:
                await self.flush()
            except Unavailable as error:
                log.warning("the audit waits for the store: %s", error)
                await self._clock.sleep(AGAIN_SECONDS)

    async def flush(self) -> None:
        """Make durable what is noted so far."""
        async with self._one_at_a_time:
            batch, self._waiting = self._waiting, []
            self._arrived.clear()
            if not batch:
                return
            try:
                await self._ask_store(lambda store: store.add_audit(batch))
            except BaseException:
                self._waiting = [*batch, *self._waiting][-WAITING_MAX:]
                self._arrived.set()
                raise

    async def read(
        self, limit: int, *, before: int | None, who: str | None, since: datetime | None
    ) -> list[AuditLine]:
        """The newest lines, with all that was noted until now."""
        await self.flush()
        return await self._ask_store(
            lambda store: store.audit(limit, before=before, who=who, since=since)
        )


def _tell(audited: Audited, *, refused: bool) -> None:
    log.log(
        logging.WARNING if refused else logging.INFO,
        "%s %s: %d, asked by %s from %s%s",
        audited.method,
        audited.path,
        audited.status,
        _who(audited),
        audited.source,
        f"; {audited.left_out} such before it were left out" if audited.left_out else "",
    )


def _who(audited: Audited) -> str:
    lapsed = f", {audited.lapsed}" if audited.lapsed else ""
    return f"{audited.name} ({audited.token}{lapsed})" if audited.token else "nobody known"
