"""The use cases: making webhooks, looking at them, and what becomes of dead letters."""

import base64
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec

from fairnotice.conductor.conductor import Conductor
from fairnotice.deliveries import retries, shapes
from fairnotice.deliveries.handshakes import agreed
from fairnotice.deliveries.queueing import Journal
from fairnotice.deliveries.sending import Sender, target_of
from fairnotice.errors import Unavailable, UnknownName, UsageError
from fairnotice.model import Event, Scope
from fairnotice.stores.store import Store
from fairnotice.stores.webhooks import Delivery, Followed, Queued, Webhook
from fairnotice.words import EventSchema, EventSource, EventStatus, EventType, ScopeKind

NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
NAME_IN_WORDS = "up to 64 letters, digits and . _ -, of which the first is a letter or a digit"
WEBHOOKS_MAX = 50
# Dead letters that are put back at a time.
REDELIVER_MAX = 1_000
TEST_SECONDS = 10.0
NOBODY = "00000000-0000-0000-0000-000000000000"


class Wanted(NamedTuple):
    """What a new webhook is to be."""

    name: str
    url: str
    schema: EventSchema
    statuses: tuple[EventStatus, ...] = ()
    types: tuple[EventType, ...] = ()
    scopes: tuple[str, ...] = ()
    resource_groups: tuple[str, ...] = ()
    signed: bool = False
    allow_http: bool = False
    attempts_max: int = retries.ATTEMPTS_MAX
    keep_minutes: int = retries.KEEP_MINUTES_MAX


class Standing(NamedTuple):
    """A webhook, and how it stands with it."""

    webhook: Webhook
    cursor: int
    waiting_count: int
    dead_count: int
    # What came of the last try of what waits longest.
    error: str
    next_at: datetime | None


class Tested(NamedTuple):
    """What a receiver answered to a test; 0 where he did not."""

    status: int
    error: str


class Webhooks:
    """What may be asked about webhooks. UnknownName where nobody has a name."""

    def __init__(self, conductor: Conductor, *, subscription: str, location: str) -> None:
        self._conductor = conductor
        self._subscription = subscription
        self._location = location
        self._sender: Sender | None = None
        # Told when something was changed: whoever delivers looks at once.
        self.changed: Callable[[], None] = lambda: None
        # Where the control plane is reached from outside, for validation URLs; "" where unknown.
        self.public_url = ""

    @property
    def sender(self) -> Sender:
        """What asks receivers; made when it is needed, since it reads all authorities."""
        self._sender = self._sender or Sender()
        return self._sender

    @sender.setter
    def sender(self, sender: Sender) -> None:
        self._sender = sender

    @property
    def _now(self) -> datetime:
        return self._conductor.now().wall

    # ---- Looking ----

    async def all(self) -> list[Followed]:
        """Every webhook, the oldest first."""
        return await self._conductor.ask_store(lambda store: store.webhooks())

    async def named(self, name: str) -> Followed:
        """The webhook of this name or id."""
        known = await self.all()
        for one in known:
            if name in (one.webhook.name, one.webhook.id):
                return one
        names = tuple(one.webhook.name for one in known)
        alike = tuple(one for one in names if one.lower() == name.lower())
        raise UnknownName(f"There is no webhook {name}.", alike)

    async def standing(self, followed: Followed) -> Standing:
        """How it stands with a webhook."""
        id_ = followed.webhook.id

        def ask(store: Store) -> tuple[int, int, list[Queued]]:
            return (
                store.deliveries_count(id_),
                store.deliveries_count(id_, dead=True),
                store.deliveries(id_, 1),
            )

        waiting, dead, first = await self._conductor.ask_store(ask)
        if followed.webhook.validation_code:
            # Nothing is queued for him yet: it waits in the journal.
            waiting += await self._journal(followed).unqueued_count(self._now)
        oldest = first[0].delivery if first else None
        return Standing(
            followed.webhook,
            followed.cursor,
            waiting,
            dead,
            "" if oldest is None else oldest.error,
            None if oldest is None else oldest.next_at,
        )

    def _journal(self, followed: Followed) -> Journal:
        return Journal(
            self._conductor,
            followed.webhook,
            followed.cursor,
            subscription=self._subscription,
            location=self._location,
        )

    async def dead_letters(self, name: str, limit: int, after: int) -> list[Queued]:
        """Up to so many deliveries that were given up, the oldest first."""
        id_ = (await self.named(name)).webhook.id
        return await self._conductor.ask_store(
            lambda store: store.deliveries(id_, limit, dead=True, after=after)
        )

    # ---- Changing ----

    async def add(self, wanted: Wanted, created_by: str) -> Webhook:
        """Ask the receiver, and keep the webhook; UsageError where that cannot be."""
        _must_mean_something(wanted)
        known = await self.all()
        if len(known) >= WEBHOOKS_MAX:
            raise UsageError(f"There are {WEBHOOKS_MAX} webhooks, and no room for more.")
        if any(one.webhook.name.lower() == wanted.name.lower() for one in known):
            raise _taken(wanted.name)
        webhook = self._made(wanted, created_by)
        # From here on: what is committed while the receiver is asked is told too.
        cursor = self._conductor.feed.revision
        if await agreed(
            self.sender,
            webhook,
            at=self._now,
            subscription=self._subscription,
            validation_url=self._validation_url(webhook),
        ):
            webhook = msgspec.structs.replace(webhook, validation_code="")
        kept = await self._conductor.ask_store(lambda store: store.add_webhook(webhook, cursor))
        if not kept:
            raise _taken(wanted.name)
        self.changed()
        return webhook

    def _made(self, wanted: Wanted, created_by: str) -> Webhook:
        secret = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        return Webhook(
            id=secrets.token_hex(8),
            name=wanted.name,
            url=wanted.url,
            schema=wanted.schema,
            created_at=self._now,
            created_by=created_by,
            statuses=wanted.statuses,
            types=wanted.types,
            scopes=wanted.scopes,
            resource_groups=wanted.resource_groups,
            secret=secret if wanted.signed else "",
            allow_http=wanted.allow_http,
            attempts_max=wanted.attempts_max,
            keep_minutes=wanted.keep_minutes,
            validation_code=secrets.token_urlsafe(32),
        )

    def _validation_url(self, webhook: Webhook) -> str:
        if not self.public_url:
            return ""
        return f"{self.public_url}/v1/webhooks/{webhook.id}/validate?code={webhook.validation_code}"

    async def validate(self, name: str, code: str) -> bool:
        """Note that a receiver agrees, provided that this is his code."""
        try:
            webhook = (await self.named(name)).webhook
        except UnknownName:
            return False
        expected = webhook.validation_code
        if not expected or not hmac.compare_digest(expected.encode(), code.encode()):
            return False
        agreeing = msgspec.structs.replace(webhook, validation_code="")
        kept = await self._conductor.ask_store(lambda store: store.change_webhook(agreeing))
        self.changed()
        return kept

    async def remove(self, name: str) -> Webhook:
        """Tell him nothing any more, and forget what waits for him."""
        webhook = (await self.named(name)).webhook
        await self._conductor.ask_store(lambda store: store.remove_webhook(webhook.id))
        self.changed()
        return webhook

    async def redeliver(self, name: str, ids: tuple[str, ...]) -> int:
        """Have dead letters tried again, these or all of them; how many.

        UnknownName, and none of them is, where there is no dead letter of an id.
        """
        webhook = (await self.named(name)).webhook
        now = self._now

        def put_back(store: Store) -> int:
            if ids:
                wanted = set(ids)
                these = [one for one in _dead(store, webhook.id) if one.delivery.id in wanted]
                missing = wanted - {one.delivery.id for one in these}
                if missing:
                    raise UnknownName(f"{webhook.name} has no dead letter {min(missing)}.")
                return _back(store, these, now)
            return _back(store, _dead(store, webhook.id), now)

        count = await self._conductor.ask_store(put_back)
        self.changed()
        return count

    async def test(self, name: str) -> Tested:
        """Send something that is no event, once, and say what came of it.

        UsageError where its receiver has not agreed to be told anything.
        """
        webhook = (await self.named(name)).webhook
        if webhook.validation_code:
            raise UsageError(
                f"{webhook.name} awaits validation: nothing is sent to it, nor a test, before its "
                "validationUrl was opened."
            )
        now = self._now
        delivery = self._test_delivery(now)
        body = shapes.body(webhook, delivery)
        headers = shapes.headers(webhook, delivery, body, now)
        try:
            target = target_of(webhook.url, allow_http=webhook.allow_http)
            answer = await self.sender.ask("POST", target, headers, body, TEST_SECONDS)
        except (Unavailable, UsageError) as error:
            return Tested(0, str(error))
        taken = answer.status in retries.TAKEN
        return Tested(answer.status, "" if taken else f"it answered {answer.status}")

    def _test_delivery(self, now: datetime) -> Delivery:
        event = Event(
            id=NOBODY,
            operation=NOBODY,
            scope="vm:test",
            type=EventType.FREEZE,
            source=EventSource.PLATFORM,
            status=EventStatus.SCHEDULED,
            resources=(),
            revision=0,
            announced_at=now,
            not_before=now + timedelta(minutes=15),
            notice_seconds=900.0,
            description="A test of this webhook: nothing is going to happen.",
        )
        scope = Scope("vm:test", ScopeKind.STANDALONE, "test")
        content = shapes.content(event, scope, now, self._subscription, self._location)
        return Delivery(
            id=secrets.token_hex(16),
            event=NOBODY,
            status=event.status,
            queued_at=now,
            next_at=now,
            content=content,
        )


def _dead(store: Store, webhook: str) -> Iterator[Queued]:
    """All dead letters of a webhook, the oldest first."""
    after = 0
    while found := store.deliveries(webhook, REDELIVER_MAX, dead=True, after=after):
        after = found[-1].number
        yield from found


def _back(store: Store, letters: Iterable[Queued], now: datetime) -> int:
    """Put letters back among those that wait, where they were; how many."""
    count, left = 0, iter(letters)
    while piece := list(islice(left, REDELIVER_MAX)):
        store.settle_deliveries(
            [], [Queued(one.number, retries.anew(one.delivery, now)) for one in piece]
        )
        count += len(piece)
    return count


def _taken(name: str) -> UsageError:
    return UsageError(f"A webhook called {name} is there. Delete it first, or choose another name.")


def _must_mean_something(wanted: Wanted) -> None:
    if not re.fullmatch(NAME_PATTERN.strip("^$"), wanted.name):
        raise UsageError(f"{wanted.name!r} is no name of a webhook: {NAME_IN_WORDS}.")
    target_of(wanted.url, allow_http=wanted.allow_http)
