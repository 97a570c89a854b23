"""Leading alone, and yet with the lease: whoever is started beside sees that somebody leads.

One of several waits for it as for any leader, and a second one that is alone is refused. A lease
that runs out while the database is away is no loss: it is renewed unless another has taken it.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from fairnotice.clock import Clock
from fairnotice.conductor.leading import ANSWER_SECONDS_MAX, AT_ONCE_SECONDS, RENEWALS
from fairnotice.errors import LeadLost, StoreInUse, Unavailable
from fairnotice.stores.lease import Lease, Standing

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Alone:
    """The lease of a control plane that has nobody to follow."""

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self._lease = lease
        self._clock = clock
        self._every_seconds = lease.seconds / RENEWALS
        # Its own: a renewal waits for no commit.
        self._thread = ThreadPoolExecutor(1, "fairnotice-lease")
        self._keeping: asyncio.Task[None] | None = None

    async def take(self, lost: Callable[[LeadLost], None]) -> int:
        """Lead, and go on to; the epoch. StoreInUse where somebody else does.

        Whoever led and died without a word is waited for, as long as his lease lasts.
        """
        found = await self._ask(self._lease.look)
        first, since = found, self._clock.monotonic()
        while True:
            # By our own clock too: that of the database may have been set back.
            over = self._clock.monotonic() - since > found.seconds
            if found.free or (over and found.renewed_at == first.renewed_at):
                epoch = await self._ask(partial(self._lease.take, found))
                if epoch is not None:
                    self._keeping = asyncio.create_task(self._keep(lost))
                    return epoch
            elif found.address or found.renewed_at != first.renewed_at:
                raise _in_use(found)
            await asyncio.sleep(AT_ONCE_SECONDS)
            found = await self._ask(self._lease.look)

    async def _keep(self, lost: Callable[[LeadLost], None]) -> None:
        while True:
            await asyncio.sleep(self._every_seconds)
            try:
                if not await self._ask(self._lease.renew):
                    lost(_taken_by(await self._ask(self._lease.look)))
                    return
            except Unavailable:
                # Whoever commits meets the same, and says so.
                continue
            except Exception:
                log.exception("the lease went wrong")

    async def close(self) -> None:
        """Let another lead at once."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            try:
                await self._ask(self._lease.resign)
            except Unavailable as error:
                log.warning("another may lead when the lease has run out: %s", error)
        await self._ask(self._lease.close)
        self._thread.shutdown()

    async def _ask(self, call: Callable[[], Result]) -> Result:
        """What the lease answers, in time or not at all."""
        asked = asyncio.get_running_loop().run_in_executor(self._thread, call)
        answered, _ = await asyncio.wait({asked}, timeout=ANSWER_SECONDS_MAX)
        if not answered:
            self._lease.hang_up()
        return await asked


def _in_use(found: Standing) -> StoreInUse:
    if found.address:
        return StoreInUse(
            f"lead: several control planes share this database, and {found.address} leads. Who "
            "joins them needs an address of its own (table [cluster])."
        )
    return StoreInUse(
        "lead: another control plane uses this database. End it first; where both are meant to "
        "run, give both the table [cluster]."
    )


def _taken_by(found: Standing) -> LeadLost:
    who = f"the control plane at {found.address}" if found.address else "another control plane"
    return LeadLost(
        f"{who} leads on this database, so this one does nothing any more. End it; where both "
        "are meant to run, give both the table [cluster]"
    )
