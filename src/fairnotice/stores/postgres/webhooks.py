"""Webhooks and their deliveries in PostgreSQL."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import psycopg

from fairnotice.stores import sql, webhooks
from fairnotice.stores.webhooks import Delivery, Followed, Queued, Webhook

# As bytes, because psycopg takes text only where it is a literal of the code.
_QUERIES = {name: text.encode() for name, text in sql.read_queries(__package__).items()}

Connection = psycopg.Connection[Any]


class PostgresWebhooks:
    """That part of the store; the rest of it has the connections."""

    @abstractmethod
    def _door(self, operation: str) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _usable(self) -> Connection: ...

    def add_webhook(self, webhook: Webhook, cursor: int) -> bool:
        """Keep a new webhook, unless one has its name."""
        with self._door("add_webhook"), self._usable().transaction():
            connection = self._usable()
            connection.execute(_QUERIES["webhooks_alone"])
            known = webhooks.webhooks_from(connection.execute(_QUERIES["webhooks"]))
            new = webhooks.is_new(known, webhook)
            if new:
                row = (webhook.id, cursor, webhooks.webhook_text(webhook))
                connection.execute(_QUERIES["add_webhook"], row)
            return new

    def change_webhook(self, webhook: Webhook) -> bool:
        """Keep what is said of a webhook now."""
        row = (webhooks.webhook_text(webhook), webhook.id)
        with self._door("change_webhook"):
            return self._usable().execute(_QUERIES["change_webhook"], row).rowcount == 1

    def remove_webhook(self, id_: str) -> bool:
        """Forget a webhook with all its deliveries."""
        with self._door("remove_webhook"), self._usable().transaction():
            connection = self._usable()
            # Its own row first: whoever queues a delivery meanwhile waits, and finds it gone.
            gone = connection.execute(_QUERIES["remove_webhook"], (id_,)).rowcount == 1
            connection.execute(_QUERIES["remove_deliveries"], (id_,))
            return gone

    def webhooks(self) -> list[Followed]:
        """Every webhook, the oldest first."""
        with self._door("webhooks"):
            return webhooks.webhooks_from(self._usable().execute(_QUERIES["webhooks"]))

    def queue_deliveries(
        self, webhook: str, after: int, until: int, deliveries: Sequence[Delivery]
    ) -> bool:
        """Queue these and move the cursor, all or none."""
        texts = [webhooks.delivery_text(one) for one in deliveries]
        with self._door("queue_deliveries"), self._usable().transaction():
            connection = self._usable()
            move = (until, webhook, after)
            if connection.execute(_QUERIES["move_cursor"], move).rowcount != 1:
                return False
            if texts:
                connection.execute(_QUERIES["add_deliveries"], (webhook, texts))
            return True

    def deliveries(
        self, webhook: str, limit: int, *, dead: bool = False, after: int = 0
    ) -> list[Queued]:
        """Up to so many that wait, or that were given up."""
        asked = (webhook, dead, after, limit)
        with self._door("deliveries"):
            return webhooks.deliveries_from(self._usable().execute(_QUERIES["deliveries"], asked))

    def deliveries_count(self, webhook: str, *, dead: bool = False) -> int:
        """How many wait, or were given up."""
        with self._door("deliveries_count"):
            found = self._usable().execute(_QUERIES["deliveries_count"], (webhook, dead)).fetchone()
            assert found is not None
            return int(found[0])

    def settle_deliveries(self, done: Sequence[int], kept: Sequence[Queued]) -> None:
        """Forget those that were taken, and note what came of the others."""
        with self._door("settle_deliveries"), self._usable().transaction():
            connection = self._usable()
            if done:
                connection.execute(_QUERIES["remove_done"], (list(done),))
            for number, one in kept:
                row = (one.dead_at, webhooks.delivery_text(one), number)
                connection.execute(_QUERIES["keep_delivery"], row)

    def forget_dead_letters(self, before: datetime) -> int:
        """Delete some that were given up earlier."""
        with self._door("forget_dead_letters"):
            asked = (before, sql.FORGET_LINES)
            return self._usable().execute(_QUERIES["remove_dead_letters"], asked).rowcount

    def forget_dead_letters_beyond(self, webhook: str, count: int) -> int:
        """Delete the oldest that were given up, beyond so many."""
        with self._door("forget_dead_letters_beyond"):
            asked = (webhook, count)
            return self._usable().execute(_QUERIES["remove_dead_letters_beyond"], asked).rowcount
