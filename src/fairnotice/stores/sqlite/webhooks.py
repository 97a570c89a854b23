"""Webhooks and their deliveries in the SQLite file."""

import sqlite3
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from fairnotice.stores import sql, webhooks
from fairnotice.stores.webhooks import Delivery, Followed, Queued, Webhook

_QUERIES = sql.read_queries(__package__)


class SqliteWebhooks:
    """That part of the store; the rest of it has the connections."""

    @abstractmethod
    def _writing(self, operation: str) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _reading(self, operation: str) -> AbstractContextManager[sqlite3.Connection]: ...

    def add_webhook(self, webhook: Webhook, cursor: int) -> bool:
        """Keep a new webhook, unless one has its name."""
        with self._writing("add_webhook") as connection:
            known = webhooks.webhooks_from(connection.execute(_QUERIES["webhooks"]))
            new = webhooks.is_new(known, webhook)
            if new:
                row = (webhook.id, cursor, webhooks.webhook_text(webhook))
                connection.execute(_QUERIES["add_webhook"], row)
            return new

    def change_webhook(self, webhook: Webhook) -> bool:
        """Keep what is said of a webhook now."""
        row = (webhooks.webhook_text(webhook), webhook.id)
        with self._writing("change_webhook") as connection:
            return connection.execute(_QUERIES["change_webhook"], row).rowcount == 1

    def remove_webhook(self, id_: str) -> bool:
        """Forget a webhook with all its deliveries."""
        with self._writing("remove_webhook") as connection:
            connection.execute(_QUERIES["remove_deliveries"], (id_,))
            return connection.execute(_QUERIES["remove_webhook"], (id_,)).rowcount == 1

    def webhooks(self) -> list[Followed]:
        """Every webhook, the oldest first."""
        with self._reading("webhooks") as connection:
            return webhooks.webhooks_from(connection.execute(_QUERIES["webhooks"]))

    def queue_deliveries(
        self, webhook: str, after: int, until: int, deliveries: Sequence[Delivery]
    ) -> bool:
        """Queue these and move the cursor, all or none."""
        with self._writing("queue_deliveries") as connection:
            move = (until, webhook, after)
            if connection.execute(_QUERIES["move_cursor"], move).rowcount != 1:
                return False
            rows = [(webhook, None, webhooks.delivery_text(one)) for one in deliveries]
            connection.executemany(_QUERIES["add_delivery"], rows)
            return True

    def deliveries(
        self, webhook: str, limit: int, *, dead: bool = False, after: int = 0
    ) -> list[Queued]:
        """Up to so many that wait, or that were given up."""
        asked = (webhook, dead, after, limit)
        with self._reading("deliveries") as connection:
            return webhooks.deliveries_from(connection.execute(_QUERIES["deliveries"], asked))

    def deliveries_count(self, webhook: str, *, dead: bool = False) -> int:
        """How many wait, or were given up."""
        with self._reading("deliveries_count") as connection:
            found = connection.execute(_QUERIES["deliveries_count"], (webhook, dead))
            return int(found.fetchone()[0])

    def settle_deliveries(self, done: Sequence[int], kept: Sequence[Queued]) -> None:
        """Forget those that were taken, and note what came of the others."""
        rows = [
            (one.dead_at and sql.instant(one.dead_at), webhooks.delivery_text(one), number)
            for number, one in kept
        ]
        with self._writing("settle_deliveries") as connection:
            connection.executemany(_QUERIES["remove_delivery"], [(number,) for number in done])
            connection.executemany(_QUERIES["keep_delivery"], rows)

    def forget_dead_letters(self, before: datetime) -> int:
        """Delete some that were given up earlier."""
        which = (sql.instant(before), sql.FORGET_LINES)
        # Looked for first: a transaction that may write is not begun for nothing.
        with self._reading("forget_dead_letters") as connection:
            old = connection.execute(_QUERIES["old_dead_letters"], which).fetchall()
        if old:
            with self._writing("forget_dead_letters") as connection:
                connection.executemany(_QUERIES["remove_delivery"], old)
        return len(old)

    def forget_dead_letters_beyond(self, webhook: str, count: int) -> int:
        """Delete the oldest that were given up, beyond so many."""
        with self._reading("forget_dead_letters_beyond") as connection:
            which = (webhook, count)
            beyond = connection.execute(_QUERIES["dead_letters_beyond"], which).fetchall()
        if beyond:
            with self._writing("forget_dead_letters_beyond") as connection:
                connection.executemany(_QUERIES["remove_delivery"], beyond)
        return len(beyond)
