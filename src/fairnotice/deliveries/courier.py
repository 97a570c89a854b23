"""Delivers what one webhook waits for, for as long as this control plane leads.

What waits is in the store, and leaves it when the receiver has it: whoever is killed in between has
it delivered again by whoever leads next. Of one event nothing is sent before what came earlier is
taken or given up; other events do not wait for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from math import inf

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.deliveries import retries, shapes
from fairnotice.deliveries.queueing import Journal
from fairnotice.deliveries.sending import Answer, Sender, shown, target_of
from fairnotice.errors import FairnoticeError, Unavailable
from fairnotice.stores.store import Store
from fairnotice.stores.webhooks import Delivery, Queued, Webhook

log = logging.getLogger(__name__)

# So many wait in memory and in the store; what is more waits in the journal.
WAITING_MAX = 1_000
# So many requests at a time to one receiver.
AT_ONCE_MAX = 4
# So many dead letters are kept; it is looked whether there are more after so many new ones, since
# to count them is to read them.
DEAD_MAX = 10_000
DEAD_LOOK_EVERY = 100
# So often they are counted all the same: they also go by their age.
COUNT_SECONDS = 60.0
# However far off the next try is, the clock may be stepped, and there may be a new letter.
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 1.0
# What is committed one after another is read together.
TOGETHER_SECONDS = 0.02


class Courier:
    """Delivers to one webhook."""

    def __init__(
        self,
        conductor: Conductor,
        clock: Clock,
        sender: Sender,
        webhook: Webhook,
        *,
        journal: Journal,
        retry_seconds: Sequence[float],
    ) -> None:
        self.webhook = webhook
        self.counts: Counter[str] = Counter()
        # How many letters were given up and are kept, whoever gave them up; and when to look anew.
        self.dead_count = 0
        self._count_at = -inf
        self._conductor = conductor
        self._clock = clock
        self._sender = sender
        self._journal = journal
        self._retry_seconds = retry_seconds
        # By number, in their order; read from the store up to this number.
        self._waiting: dict[int, Delivery] = {}
        self._read_until = 0
        self._stale = True
        # The store may have more of them than were read.
        self._more = False
        # What is being sent, by event; and what came of it, not yet written down.
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._results: list[tuple[int, Delivery | None]] = []
        self._woken = asyncio.Event()
        # Dead letters since it was looked how many there are; at first that is not known.
        self._unlooked = DEAD_LOOK_EVERY

    @property
    def waiting_count(self) -> int:
        """How many deliveries are at hand."""
        return len(self._waiting)

    def oldest_seconds(self) -> float:
        """For how long the first of them has waited."""
        first = next(iter(self._waiting.values()), None)
        waited = timedelta() if first is None else self._clock.wall() - first.queued_at
        # Not less than nothing, though the clock may be set back.
        return max(0.0, waited.total_seconds())

    def look_again(self) -> None:
        """A dead letter was put back among those that wait."""
        self._stale = True
        self._count_at = -inf
        self._woken.set()

    async def deliver(self) -> None:
        """Deliver, for as long as the task lives; queueing.CursorMoved where another does.

        Back when this control plane leads no more. That is seen before each turn: one that was
        stopped and goes on would else note what came of a try of a letter that is another's by now.
        """
        try:
            while self._conductor.leading:
                try:
                    await self._turn()
                except Unavailable as error:
                    log.warning("deliveries to %s wait for the store: %s", self.webhook.name, error)
                    await self._clock.sleep(AGAIN_SECONDS)
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _turn(self) -> None:
        await self._count_dead()
        await self._settle()
        # A receiver that is away has its letters wait in the journal, which is there anyway.
        room = len(self._waiting) < WAITING_MAX
        if room and not self._journal.level and not self._conductor.feed.cut_off:
            now = self._clock.wall()
            # Kept beyond this turn: what is queued has to be read, if it cannot be now.
            self._more |= await self._journal.queue(now, self._clock.monotonic()) > 0
        if self._stale or (room and self._more):
            await self._read()
        self._send_due()
        await self._until_something(level=self._journal.level or not room)

    async def _count_dead(self) -> None:
        at, now = self._count_at, self._clock.monotonic()
        if now < at:
            return
        # Set before the store is asked: what is put back meanwhile may not be in its answer.
        self._count_at = now + COUNT_SECONDS
        id_ = self.webhook.id
        try:
            self.dead_count = await self._conductor.ask_store(
                lambda store: store.deliveries_count(id_, dead=True)
            )
        except Unavailable:
            self._count_at = at
            raise

    async def _read(self) -> None:
        """Have at hand what waits in the store: what is new there, or all of it again."""
        # Taken before the store is asked: what is put back meanwhile may not be in its answer.
        stale, self._stale = self._stale, False
        if stale:
            self._waiting.clear()
            self._read_until = 0
        after, id_ = self._read_until, self.webhook.id
        try:
            found = await self._conductor.ask_store(
                lambda store: store.deliveries(id_, WAITING_MAX, after=after)
            )
        except Unavailable:
            self._stale |= stale
            raise
        self._waiting |= dict(found)
        self._more = len(found) == WAITING_MAX
        self._read_until = max((one.number for one in found), default=after)

    # ---- Sending ----

    def _send_due(self) -> None:
        now = self._clock.wall()
        for number, delivery in self._heads():
            over = retries.expired(self.webhook, delivery, now)
            if over is not None:
                self._results.append((number, over))
                self._woken.set()
            elif len(self._under_way) < AT_ONCE_MAX and retries.is_due(delivery, now):
                task = asyncio.ensure_future(self._try(number, delivery))
                self._under_way[delivery.event] = task

    def _heads(self) -> Iterator[tuple[int, Delivery]]:
        """Of each event the first that waits, unless one is under way."""
        taken = set(self._under_way) | {
            self._waiting[number].event for number, _ in self._results if number in self._waiting
        }
        for number, delivery in list(self._waiting.items()):
            if delivery.event not in taken:
                taken.add(delivery.event)
                yield number, delivery

    async def _try(self, number: int, delivery: Delivery) -> None:
        try:
            result = await self.attempt(delivery)
        except Exception:
            log.exception("a fault of fairnotice itself in a delivery to %s", self.webhook.name)
            result = self._failed(delivery, "a fault of fairnotice itself")
        self._results.append((number, result))
        del self._under_way[delivery.event]
        self._woken.set()

    async def attempt(self, delivery: Delivery) -> Delivery | None:
        """Send it once: None where it was taken, else as it is afterwards."""
        try:
            answer = await self.send(delivery)
        except FairnoticeError as error:
            return self._failed(delivery, str(error))
        if answer.status in retries.TAKEN:
            self.counts["delivered"] += 1
            return None
        retry_after = answer.headers.get("retry-after", "")
        return self._failed(delivery, f"it answered {answer.status}", answer.status, retry_after)

    async def send(self, delivery: Delivery) -> Answer:
        """What the receiver answers; Unavailable or UsageError where he is not reached."""
        target = target_of(self.webhook.url, allow_http=self.webhook.allow_http)
        body = shapes.body(self.webhook, delivery)
        headers = shapes.headers(self.webhook, delivery, body, self._clock.wall())
        return await self._sender.ask("POST", target, headers, body)

    def _failed(
        self, delivery: Delivery, error: str, status: int = 0, retry_after: str = ""
    ) -> Delivery:
        after = retries.failed(
            self.webhook,
            delivery,
            self._clock.wall(),
            error,
            status=status,
            retry_after=retry_after,
            retry_seconds=self._retry_seconds,
        )
        self.counts["failed"] += 1
        return after

    # ---- Writing down ----

    async def _settle(self) -> None:
        """Make durable what came of the tries; what cannot be is tried again."""
        results = list(self._results)
        if not results:
            return
        done = [number for number, after in results if after is None]
        kept = [Queued(number, after) for number, after in results if after is not None]
        dead_count = sum(1 for _, after in kept if after.dead_at is not None)
        look = dead_count and self._unlooked + dead_count >= DEAD_LOOK_EVERY

        def settle(store: Store) -> int:
            store.settle_deliveries(done, kept)
            return store.forget_dead_letters_beyond(self.webhook.id, DEAD_MAX) if look else 0

        self._forgotten(await self._conductor.ask_store(settle))
        self._unlooked = 0 if look else self._unlooked + dead_count
        del self._results[: len(results)]
        for number in done:
            self._waiting.pop(number, None)
        for number, after in kept:
            if after.dead_at is None:
                if number in self._waiting:
                    self._waiting[number] = after
            else:
                self._waiting.pop(number, None)
                self._bury(after)

    def _bury(self, delivery: Delivery) -> None:
        self.counts["dead"] += 1
        self.dead_count += 1
        log.warning(
            "%s at %s was not told that event %s is %s: %s",
            self.webhook.name,
            shown(self.webhook.url),
            delivery.event,
            delivery.status,
            delivery.error,
        )

    def _forgotten(self, count: int) -> None:
        if count:
            self.counts["forgotten"] += count
            self.dead_count -= count
            log.warning(
                "the %d oldest dead letters of %s are forgotten: no more than %d are kept",
                count,
                self.webhook.name,
                DEAD_MAX,
            )

    # ---- Waiting ----

    async def _until_something(self, *, level: bool) -> None:
        # Whoever woke us since it was looked for has left word of it in one of these.
        if self._results or self._stale:
            return
        self._woken.clear()
        if not level and not self._conductor.feed.cut_off:
            # There is more to read: others get their turn in between.
            await asyncio.sleep(0)
            return
        sleeping = self._clock.sleep(self._seconds_to_next())
        waits = [
            asyncio.ensure_future(one) for one in (sleeping, self._woken.wait(), self._moved())
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _moved(self) -> None:
        """Something was committed that is not read yet, and there is room for it."""
        feed = self._conductor.feed
        if len(self._waiting) >= WAITING_MAX or feed.ended or feed.cut_off:
            await asyncio.Event().wait()
        await feed.wait_beyond(self._journal.cursor)
        await asyncio.sleep(TOGETHER_SECONDS)

    def _seconds_to_next(self) -> float:
        now = self._clock.wall()
        at = (retries.looked_at(self.webhook, one) for _, one in self._heads())
        waits = [(one - now).total_seconds() for one in at]
        if len(self._under_way) >= AT_ONCE_MAX:
            # Nothing is begun before one of those has ended, and that wakes us.
            waits = []
        return min(LOOK_SECONDS, max(0.01, min(waits, default=LOOK_SECONDS)))
