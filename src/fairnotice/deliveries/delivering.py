"""All webhooks of a control plane: a courier for each, while it leads."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Container, Sequence

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.deliveries.courier import Courier
from fairnotice.deliveries.queueing import CursorMoved, Journal
from fairnotice.deliveries.retries import RETRY_SECONDS
from fairnotice.deliveries.webhooks import Webhooks
from fairnotice.errors import Unavailable
from fairnotice.stores.webhooks import Followed, Webhook

log = logging.getLogger(__name__)

# So often it is looked whether this one leads, and which webhooks there are: another control plane
# may have let one agree.
LOOK_SECONDS = 1.0


class Delivering:
    """Has everything delivered that webhooks wait for."""

    def __init__(
        self,
        conductor: Conductor,
        clock: Clock,
        webhooks: Webhooks,
        *,
        subscription: str,
        location: str,
    ) -> None:
        self._conductor = conductor
        self._clock = clock
        self._subscription = subscription
        self._location = location
        # Whose sender it uses, once there is a webhook.
        self._webhooks = webhooks
        self.retry_seconds: Sequence[float] = RETRY_SECONDS
        self._couriers: dict[str, Courier] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # By id: the names of all webhooks, and what couriers have counted that are no more.
        self._names: dict[str, str] = {}
        self._before: dict[str, Counter[str]] = {}
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Something was changed here that need not wait for the next look."""
        for courier in self._couriers.values():
            courier.look_again()
        self._changed.set()

    async def deliver(self) -> None:
        """Deliver whenever this control plane leads, for as long as the task lives."""
        while True:
            try:
                await self._while_leading()
            except Unavailable as error:
                log.warning("webhooks wait for the store: %s", error)
            finally:
                await self._dismiss(list(self._tasks))
            if not self._conductor.leading:
                # Whoever leads now counts on; and here nobody would see that one is deleted.
                self._forget_counts(())
            await self._clock.sleep(LOOK_SECONDS)

    async def _while_leading(self) -> None:
        while self._conductor.leading:
            self._changed.clear()
            known = await self._conductor.ask_store(lambda store: store.webhooks())
            self._names = {one.webhook.id: one.webhook.name for one in known}
            await self._employ([one for one in known if not one.webhook.validation_code])
            self._forget_counts(self._names)
            await self._wait()

    async def _employ(self, known: list[Followed]) -> None:
        """A courier for each of these, and for nobody else."""
        wanted = {one.webhook.id: one for one in known}
        over = [
            id_
            for id_, task in self._tasks.items()
            if task.done() or id_ not in wanted or wanted[id_].webhook != self._webhook(id_)
        ]
        await self._dismiss(over)
        for id_, followed in wanted.items():
            if id_ not in self._tasks:
                self._couriers[id_] = courier = self._courier(followed)
                self._tasks[id_] = asyncio.ensure_future(self._deliver_to(courier))

    def _webhook(self, id_: str) -> Webhook:
        return self._couriers[id_].webhook

    def _courier(self, followed: Followed) -> Courier:
        journal = Journal(
            self._conductor,
            followed.webhook,
            followed.cursor,
            subscription=self._subscription,
            location=self._location,
        )
        return Courier(
            self._conductor,
            self._clock,
            self._webhooks.sender,
            followed.webhook,
            journal=journal,
            retry_seconds=self.retry_seconds,
        )

    async def _deliver_to(self, courier: Courier) -> None:
        """Until it is ended; what goes wrong with one webhook is the others' no business."""
        try:
            await courier.deliver()
        except CursorMoved:
            # Begun anew from what the store says, at the next look.
            log.info("deliveries to %s are looked at anew", courier.webhook.name)
        except Exception:
            log.exception("a fault of fairnotice itself in deliveries to %s", courier.webhook.name)

    async def _wait(self) -> None:
        waits = [
            asyncio.ensure_future(one)
            for one in (self._changed.wait(), self._clock.sleep(LOOK_SECONDS))
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _dismiss(self, ids: list[str]) -> None:
        tasks = [self._tasks.pop(id_) for id_ in ids]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for id_ in ids:
            courier = self._couriers.pop(id_)
            self._before.setdefault(id_, Counter()).update(courier.counts)

    def _forget_counts(self, kept: Container[str]) -> None:
        """A webhook that is deleted leaves nothing in the metrics."""
        self._before = {id_: counts for id_, counts in self._before.items() if id_ in kept}

    # ---- For the metrics ----

    def counts(self) -> dict[str, Counter[str]]:
        """By webhook: what came of the tries since this process began."""
        found = {
            self._names[id_]: Counter(counts)
            for id_, counts in self._before.items()
            if id_ in self._names
        }
        for courier in self._couriers.values():
            found.setdefault(courier.webhook.name, Counter()).update(courier.counts)
        return found

    def dead(self) -> dict[str, int]:
        """By webhook: how many letters were given up and are kept."""
        return {one.webhook.name: one.dead_count for one in self._couriers.values()}

    def waiting(self) -> dict[str, tuple[int, float]]:
        """By webhook: how many deliveries are at hand, and how long the first has waited."""
        return {
            one.webhook.name: (one.waiting_count, one.oldest_seconds())
            for one in self._couriers.values()
        }
