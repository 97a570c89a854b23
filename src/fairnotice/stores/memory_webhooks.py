"""Webhooks and their deliveries, as long as the process lives."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from threading import RLock

from fairnotice.stores import sql, webhooks
from fairnotice.stores.copies import AnyRow, DeliveryRow, WebhookRow
from fairnotice.stores.webhooks import Delivery, Followed, Queued, Webhook


class MemoryWebhooks:
    """That part of the store in memory."""

    def __init__(self) -> None:
        # Whoever copies reads while others write.
        self._webhooks_lock = RLock()
        self._followed: dict[str, Followed] = {}
        # By number: whose delivery it is, and the delivery.
        self._queue: dict[int, tuple[str, Delivery]] = {}
        self._queued_count = 0

    def add_webhook(self, webhook: Webhook, cursor: int) -> bool:
        """Keep a new webhook, unless one has its name."""
        with self._webhooks_lock:
            new = webhooks.is_new(self._followed.values(), webhook)
            if new:
                self._followed[webhook.id] = Followed(webhook, cursor)
            return new

    def change_webhook(self, webhook: Webhook) -> bool:
        """Keep what is said of a webhook now."""
        with self._webhooks_lock:
            known = self._followed.get(webhook.id)
            if known is not None:
                self._followed[webhook.id] = known._replace(webhook=webhook)
            return known is not None

    def remove_webhook(self, id_: str) -> bool:
        """Forget a webhook with all its deliveries."""
        with self._webhooks_lock:
            self._queue = {n: row for n, row in self._queue.items() if row[0] != id_}
            return self._followed.pop(id_, None) is not None

    def webhooks(self) -> list[Followed]:
        """Every webhook, the oldest first."""
        with self._webhooks_lock:
            rows = self._followed.values()
            return sorted(rows, key=lambda row: (row.webhook.created_at, row.webhook.id))

    def queue_deliveries(
        self, webhook: str, after: int, until: int, deliveries: Sequence[Delivery]
    ) -> bool:
        """Queue these and move the cursor, all or none."""
        with self._webhooks_lock:
            known = self._followed.get(webhook)
            if known is None or known.cursor != after:
                return False
            self._followed[webhook] = known._replace(cursor=until)
            for one in deliveries:
                self._queue_one(webhook, one)
            return True

    def _queue_one(self, webhook: str, delivery: Delivery) -> None:
        self._queued_count += 1
        self._queue[self._queued_count] = (webhook, delivery)

    def deliveries(
        self, webhook: str, limit: int, *, dead: bool = False, after: int = 0
    ) -> list[Queued]:
        """Up to so many that wait, or that were given up."""
        with self._webhooks_lock:
            return list(islice(self._of(webhook, dead=dead, after=after), limit))

    def _of(self, webhook: str, *, dead: bool, after: int = 0) -> Iterator[Queued]:
        for number, (whose, one) in self._queue.items():
            if number > after and whose == webhook and (one.dead_at is not None) == dead:
                yield Queued(number, one)

    def deliveries_count(self, webhook: str, *, dead: bool = False) -> int:
        """How many wait, or were given up."""
        with self._webhooks_lock:
            return sum(1 for _ in self._of(webhook, dead=dead))

    def settle_deliveries(self, done: Sequence[int], kept: Sequence[Queued]) -> None:
        """Forget those that were taken, and note what came of the others."""
        with self._webhooks_lock:
            for number in done:
                self._queue.pop(number, None)
            for number, one in kept:
                if number in self._queue:
                    self._queue[number] = (self._queue[number][0], one)

    def forget_dead_letters(self, before: datetime) -> int:
        """Delete those that were given up earlier."""
        with self._webhooks_lock:
            old = [
                number
                for number, (_, one) in self._queue.items()
                if one.dead_at is not None and one.dead_at < before
            ]
            for number in old:
                del self._queue[number]
            return len(old)

    def forget_dead_letters_beyond(self, webhook: str, count: int) -> int:
        """Delete the oldest that were given up, beyond so many."""
        with self._webhooks_lock:
            dead = [one.number for one in self._of(webhook, dead=True)]
            beyond = dead[: max(0, len(dead) - count)]
            for number in beyond:
                del self._queue[number]
            return len(beyond)

    # ---- Copies ----

    def _copied_webhooks(self) -> Iterator[AnyRow]:
        with self._webhooks_lock:
            known, queue = list(self._followed.values()), list(self._queue.values())
        for webhook, cursor in known:
            yield WebhookRow(webhook.id, cursor, webhooks.webhook_text(webhook))
        for whose, one in queue:
            dead_at = None if one.dead_at is None else sql.instant(one.dead_at)
            yield DeliveryRow(whose, dead_at, webhooks.delivery_text(one))

    def _take_webhook(self, piece: WebhookRow | DeliveryRow) -> None:
        if isinstance(piece, WebhookRow):
            (row,) = webhooks.webhooks_from([(piece.cursor, piece.body)])
            self._followed[piece.id] = row
        else:
            (queued,) = webhooks.deliveries_from([(0, piece.body)])
            self._queue_one(piece.webhook, queued.delivery)
