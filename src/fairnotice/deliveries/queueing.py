"""From the journal to what a webhook is told: which changes, and as what."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from fairnotice.conductor.conductor import Conductor
from fairnotice.conductor.feed import Snapshot
from fairnotice.deliveries import shapes
from fairnotice.engine import Fleet, changes
from fairnotice.model import Event, Scope
from fairnotice.stores.store import Line
from fairnotice.stores.webhooks import Delivery, Webhook
from fairnotice.words import ScopeKind

# What changes something that a receiver is shown. That somebody has seen an event is not told.
TOLD = (
    changes.EventAnnounced,
    changes.EventPostponed,
    changes.EventResourcesChanged,
    changes.EventStarted,
    changes.EventGone,
)
# Lines that are read at a time, and deliveries that are written at a time.
PAGE_LINES = 1_000
PIECE_DELIVERIES = 500
# A cursor that moved without a delivery is written down after so many lines, or seconds.
CURSOR_LINES = 5_000
CURSOR_SECONDS = 60.0
# Of scopes that are gone, so many are remembered; of others their name has to do.
SCOPES_MAX = 10_000


class CursorMoved(Exception):
    """The webhook is gone, or another control plane has gone on with it: look anew."""


class Journal:
    """Follows the journal for one webhook, and queues what it is told."""

    def __init__(
        self,
        conductor: Conductor,
        webhook: Webhook,
        cursor: int,
        *,
        subscription: str,
        location: str,
    ) -> None:
        self._conductor = conductor
        self._webhook = webhook
        # Up to where it was read, and up to where that is durable.
        self.cursor = cursor
        self._written = cursor
        self._written_at: float | None = None
        self._subscription = subscription
        self._location = location
        # Scopes of events that may outlive them: a scope goes with its last VM.
        self._scopes: dict[str, Scope] = {}

    @property
    def level(self) -> bool:
        """Whether everything that is committed was read."""
        return self.cursor >= self._conductor.feed.revision

    async def unqueued_count(self, now: datetime) -> int:
        """How many deliveries the lines would come to that are next; nothing is queued."""
        if self.level:
            return 0
        found = await self._conductor.feed.after(self.cursor, PAGE_LINES)
        several = self._state(found, now) if isinstance(found, Snapshot) else self._told(found, now)
        return sum(1 for _ in several)

    async def queue(self, now: datetime, monotonic: float) -> int:
        """Read on, and make durable what is to be told; how many deliveries.

        CursorMoved where somebody else does so too.
        """
        found = await self._conductor.feed.after(self.cursor, PAGE_LINES)
        if isinstance(found, Snapshot):
            return await self._queue_state(found, now, monotonic)
        if not found:
            await self._write_cursor(monotonic)
            return 0
        told = list(self._told(found, now))
        if told:
            await self._write(found[-1].revision, told, monotonic)
        # Only now: what could not be written is read again.
        self.cursor = found[-1].revision
        if not told:
            await self._write_cursor(monotonic)
        return len(told)

    async def _queue_state(self, state: Snapshot, now: datetime, monotonic: float) -> int:
        """Lines were forgotten that it has not read: every event is told as it is instead.

        A receiver who knows one so already can tell by its id.
        """
        several = self._state(state, now)
        count = 0
        while piece := list(islice(several, PIECE_DELIVERIES)):
            count += len(piece)
            # The cursor stays where it is until all of it is there.
            await self._write(self._written, piece, monotonic)
        await self._write(state.revision, (), monotonic)
        self.cursor = state.revision
        return count

    def _state(self, state: Snapshot, now: datetime) -> Iterator[Delivery]:
        events = (row for row in state.rows if isinstance(row, Event))
        return self._deliveries(((one, shapes.instant_of(one)) for one in events), now)

    def _told(self, lines: Sequence[Line], now: datetime) -> Iterator[Delivery]:
        rows = (line.change.row for line in lines)
        self._scopes |= {row.name: row for row in rows if isinstance(row, Scope)}
        found = [line.change for line in lines if isinstance(line.change, TOLD)]
        yield from self._deliveries(((change.row, change.at) for change in found), now)
        # Of those that are there the fleet knows more.
        fleet = self._conductor.fleet.scopes
        gone = ((name, row) for name, row in self._scopes.items() if name not in fleet)
        self._scopes = dict(deque(gone, SCOPES_MAX))

    def _deliveries(
        self, events: Iterable[tuple[Event, datetime]], now: datetime
    ) -> Iterator[Delivery]:
        for event, at in events:
            scope = self._scope(self._conductor.fleet, event)
            if shapes.wants(self._webhook, event, scope):
                yield Delivery(
                    id=shapes.delivery_id(event),
                    event=event.id,
                    status=event.status,
                    queued_at=now,
                    next_at=now,
                    content=shapes.content(event, scope, at, self._subscription, self._location),
                )

    def _scope(self, fleet: Fleet, event: Event) -> Scope:
        known = fleet.scopes.get(event.scope) or self._scopes.get(event.scope)
        if known is not None:
            return known
        # It went before this process came; its name says the most of it.
        kind, _, of = event.scope.partition(":")
        if kind == ScopeKind.PLACEMENT_GROUP:
            of = of.rpartition(":")[0]
        return Scope(event.scope, ScopeKind(kind), of)

    async def _write_cursor(self, monotonic: float) -> None:
        if self._written_at is None:
            self._written_at = monotonic
        long_ago = monotonic - self._written_at >= CURSOR_SECONDS
        moved = self.cursor - self._written
        if moved >= CURSOR_LINES or (moved and long_ago):
            await self._write(self.cursor, (), monotonic)

    async def _write(self, until: int, told: Sequence[Delivery], monotonic: float) -> None:
        after, id_ = self._written, self._webhook.id
        kept = await self._conductor.ask_store(
            lambda store: store.queue_deliveries(id_, after, until, told)
        )
        if not kept:
            raise CursorMoved
        self._written, self._written_at = until, monotonic
