"""The audit: who asked for what. A line in the log at once, in the store within a second.

Refusals cost whoever is refused nothing, so they are written down only so often: a flood of them
fills neither log nor disk, and the next line says how many were left out.
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
# Refusals: so many at once, and then so many a second.
REFUSALS_MAX = 100
REFUSALS_A_SECOND = 1.0


class Audits:
    """Writes down who asked for what."""

    def __init__(self, ask_store: AskStore, clock: Clock) -> None:
        self._ask_store = ask_store
        self._clock = clock
        self._waiting: list[Audited] = []
        self._arrived = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._refusals_left = float(REFUSALS_MAX)
        self._refused_at = clock.monotonic()
        self._left_out = 0

    def note(self, audited: Audited, *, refused: bool) -> None:
        """This was asked for; where it was refused, it may be one too many to be written down."""
        if refused:
            if not self._room_for_refusal():
                self._left_out += 1
                return
            audited = msgspec.structs.replace(audited, left_out=self._left_out)
            self._left_out = 0
        _tell(audited, refused=refused)
        if len(self._waiting) >= WAITING_MAX:
            # It is in the log; the newest are more likely what is looked for.
            del self._waiting[0]
        self._waiting.append(audited)
        self._arrived.set()

    def _room_for_refusal(self) -> bool:
        now = self._clock.monotonic()
        gained = (now - self._refused_at) * REFUSALS_A_SECOND
        self._refused_at = now
        self._refusals_left = min(self._refusals_left + gained, float(REFUSALS_MAX))
        if self._refusals_left < 1:
            return False
        self._refusals_left -= 1
        return True

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
        f"; {audited.left_out} refusals before it were left out" if audited.left_out else "",
    )


def _who(audited: Audited) -> str:
    lapsed = f", {audited.lapsed}" if audited.lapsed else ""
    return f"{audited.name} ({audited.token}{lapsed})" if audited.token else "nobody known"
