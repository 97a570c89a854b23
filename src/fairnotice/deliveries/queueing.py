"""From the journal to what a webhook is told: which changes, and as what."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from fairnotice.conductor.conductor import Conductor
from fairnotice.conductor.feed import Snapshot
from fairnotice.deliveries import shapes
from fairnotice.engine import changes
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
# Of scopes that are gone, or in another group, so many are remembered; the fleet has to do, and
# where it has none their name.
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
        # Scopes as they were there, where they are gone or in another resource group by now.
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
        if isinstance(found, Snapshot):
            return sum(1 for _ in self._state(found, now))
        told, _ = self._told(found, await self._following(found), now)
        return len(told)

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
        told, scopes = self._told(found, await self._following(found), now)
        if told:
            await self._write(found[-1].revision, told, monotonic)
        # Only now: what could not be written is read again.
        self.cursor, self._scopes = found[-1].revision, scopes
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
        self.cursor, self._scopes = state.revision, self._unlike_now(self._scopes)
        return count

    def _state(self, state: Snapshot, now: datetime) -> Iterator[Delivery]:
        known = {**self._scopes, **self._conductor.fleet.scopes}
        for event in (row for row in state.rows if isinstance(row, Event)):
            yield from self._delivery(event, shapes.instant_of(event), known, now)

    async def _following(self, lines: Sequence[Line]) -> Sequence[Line]:
        """The next page, where what these lines tell of is explained only there.

        They end where the page is full, and so perhaps in the middle of a commit.
        """
        rows = [line.change.row for line in lines]
        known = self._scopes.keys() | {row.name for row in rows if isinstance(row, Scope)}
        if all(row.scope in known for row in rows if isinstance(row, Event)):
            return ()
        found = await self._conductor.feed.after(lines[-1].revision, PAGE_LINES)
        return () if isinstance(found, Snapshot) else found

    def _told(
        self, lines: Sequence[Line], following: Sequence[Line], now: datetime
    ) -> tuple[list[Delivery], dict[str, Scope]]:
        """What is told of these lines, and the scopes to be remembered after them.

        A scope is taken as it was at the line: whoever is told of a resource group is not told of
        what befell a VM before it was there.
        """
        scopes = dict(self._scopes)
        for row in (line.change.row for line in (*lines, *following)):
            if isinstance(row, Scope):
                # Where none was read before an event, the next one is nearest: its document
                # changes with it, in the same commit.
                scopes.setdefault(row.name, row)
        told: list[Delivery] = []
        for change in (line.change for line in lines):
            if isinstance(change.row, Scope):
                scopes[change.row.name] = change.row
            elif isinstance(change, TOLD):
                told += self._delivery(change.row, change.at, scopes, now)
        return told, self._unlike_now(scopes)

    def _unlike_now(self, scopes: Mapping[str, Scope]) -> dict[str, Scope]:
        """Those that the fleet does not know so, the last of them."""
        fleet = self._conductor.fleet.scopes
        unlike = (
            (name, scope)
            for name, scope in scopes.items()
            if name not in fleet or fleet[name].resource_group != scope.resource_group
        )
        return dict(deque(unlike, SCOPES_MAX))

    def _delivery(
        self, event: Event, at: datetime, scopes: Mapping[str, Scope], now: datetime
    ) -> Iterator[Delivery]:
        """What is told of an event, or nothing."""
        scope = self._scope(scopes, event)
        if shapes.wants(self._webhook, event, scope):
            yield Delivery(
                id=shapes.delivery_id(event),
                event=event.id,
                status=event.status,
                queued_at=now,
                next_at=now,
                content=shapes.content(event, scope, at, self._subscription, self._location),
            )

    def _scope(self, scopes: Mapping[str, Scope], event: Event) -> Scope:
        known = scopes.get(event.scope) or self._conductor.fleet.scopes.get(event.scope)
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
