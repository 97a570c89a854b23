"""The part of the store port about webhooks: whom events are delivered to, and what is on its way.

A webhook follows the journal by a cursor of its own. What it is to be told is queued in the same
transaction that moves the cursor, and leaves the queue when it was taken or is given up: so a
crash at any moment repeats a delivery, and loses none. Without an epoch, like tokens: whoever led
a moment ago can at worst deliver something once more.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from fairnotice.words import EventSchema, EventStatus, EventType


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody outside who is told of events."""

    id: str
    name: str
    url: str
    schema: EventSchema
    created_at: datetime
    created_by: str
    # What he is told of; empty: all of it.
    statuses: tuple[EventStatus, ...] = ()
    types: tuple[EventType, ...] = ()
    scopes: tuple[str, ...] = ()
    resource_groups: tuple[str, ...] = ()
    # What deliveries are signed with; empty: they are not. Never shown again.
    secret: str = ""
    # Whether plain HTTP is spoken to a machine that is not this one.
    allow_http: bool = False
    attempts_max: int = 30
    keep_minutes: int = 1_440
    # What he has to say before he is told anything; empty: he has agreed.
    validation_code: str = ""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a webhook is told, or could not be."""

    # The same for every try of it, and for every webhook: whoever gets it twice can tell.
    id: str
    event: str
    status: EventStatus
    queued_at: datetime
    # The event as it is sent, without what a schema puts round it.
    content: str
    attempts: int = 0
    # Not before this instant.
    next_at: datetime
    # What came of the last try.
    error: str = ""
    # Since when it is given up.
    dead_at: datetime | None = None


class Queued(NamedTuple):
    """A delivery and its number: those of a webhook are in the order of what happened."""

    number: int
    delivery: Delivery


class Followed(NamedTuple):
    """A webhook, and up to which revision its deliveries are queued."""

    webhook: Webhook
    cursor: int


class Webhooks(Protocol):
    """What remembers webhooks and their deliveries."""

    def add_webhook(self, webhook: Webhook, cursor: int) -> bool:
        """Keep a new webhook; False, and nothing has changed, where one has its name."""
        ...

    def change_webhook(self, webhook: Webhook) -> bool:
        """Keep what is said of a webhook now; False where there is none of its id."""
        ...

    def remove_webhook(self, id_: str) -> bool:
        """Forget a webhook with all its deliveries; False where there is none."""
        ...

    def webhooks(self) -> list[Followed]:
        """Every webhook, the oldest first."""
        ...

    def queue_deliveries(
        self, webhook: str, after: int, until: int, deliveries: Sequence[Delivery]
    ) -> bool:
        """Queue these and move the cursor, all or none; False where it is not at `after`."""
        ...

    def deliveries(
        self, webhook: str, limit: int, *, dead: bool = False, after: int = 0
    ) -> list[Queued]:
        """Up to so many that wait, or that were given up, with a number after this one."""
        ...

    def deliveries_count(self, webhook: str, *, dead: bool = False) -> int:
        """How many wait, or were given up."""
        ...

    def settle_deliveries(self, done: Sequence[int], kept: Sequence[Queued]) -> None:
        """Forget those that were taken, and note what came of the others; all or none."""
        ...

    def forget_dead_letters(self, before: datetime) -> int:
        """Delete some that were given up earlier; how many. Called again until it says 0."""
        ...

    def forget_dead_letters_beyond(self, webhook: str, count: int) -> int:
        """Delete the oldest of a webhook's that were given up, beyond so many; how many."""
        ...


# ---- As text ----

_encode = msgspec.json.Encoder().encode
_decode_webhook = msgspec.json.Decoder(Webhook).decode
_decode_delivery = msgspec.json.Decoder(Delivery).decode


def webhook_text(webhook: Webhook) -> str:
    """A webhook as a table holds it."""
    return _encode(webhook).decode()


def webhooks_from(found: Iterable[tuple[int, str]]) -> list[Followed]:
    """All webhooks, from what a table holds of each: its cursor and its text."""
    rows = [Followed(_decode_webhook(text), cursor) for cursor, text in found]
    return sorted(rows, key=lambda row: (row.webhook.created_at, row.webhook.id))


def delivery_text(delivery: Delivery) -> str:
    """A delivery as a table holds it."""
    return _encode(delivery).decode()


def deliveries_from(found: Iterable[tuple[int, str]]) -> list[Queued]:
    """Deliveries, from their number and text."""
    return [Queued(number, _decode_delivery(text)) for number, text in found]


# ---- The same in every store ----


def is_new(known: Iterable[Followed], webhook: Webhook) -> bool:
    """Whether no webhook has this one's name, in whatever letters, nor its id."""
    return all(
        one.id != webhook.id and one.name.lower() != webhook.name.lower() for one, _ in known
    )
