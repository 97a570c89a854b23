"""The port to whatever remembers. `fairnotice.testing.check_store` is its proof.

A store holds two things and writes both in one transaction: the rows, which are the state and the
only thing a start reads; and the journal, one line per change, numbered by a revision that only
grows, which boards, histories and other processes follow.

Beside them, tokens and the audit: stores/access.py; and webhooks: stores/webhooks.py.

Its calls block; the conductor makes them in a thread of their own, one at a time. What cannot be
done now raises errors.Unavailable, and the same call may succeed later.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from fairnotice.engine.changes import Change, Row
from fairnotice.stores.access import Access
from fairnotice.stores.copies import Copied
from fairnotice.stores.webhooks import Webhooks


class Loaded(NamedTuple):
    """The state as it was last committed: rows in the order in which they were first written."""

    rows: Iterable[Row]
    revision: int
    recorded_at: datetime | None


class Line(NamedTuple):
    """One line of the journal."""

    revision: int
    change: Change[Any]


class Store(Access, Copied, Webhooks, Protocol):
    """What remembers a fleet, who may ask for what, who has, and who is told outside."""

    def lead(self) -> int:
        """Take the lead: a new epoch, higher than all before, durable when this returns."""
        ...

    def load(self) -> Loaded:
        """All rows, and the revision that they show."""
        ...

    def commit(self, epoch: int, after: int, changes: Sequence[Change[Any]]) -> None:
        """Make these changes durable, all or none, as the revisions that follow `after`.

        errors.LeadLost where a later epoch has begun; errors.JournalMoved where the journal does
        not end at `after`, because an earlier commit that was thought lost had succeeded.
        """
        ...

    def changes_after(self, revision: int, limit: int) -> list[Line] | None:
        """Up to `limit` lines that follow this revision; None where some are forgotten."""
        ...

    def history(self, about: str) -> list[Line]:
        """The story of one thing, oldest first; rows.about says how things are called.

        `event:ID` is that of the operation which made the event.
        """
        ...

    def events_gone(self, before: int, limit: int) -> list[Line]:
        """Up to `limit` lines of events that are over, the newest first, before this revision."""
        ...

    def forget(self, *, journal_before: datetime, history_before: datetime) -> int:
        """Delete some of what is kept no longer; how many lines.

        A few thousand at a time, so that commits get their turn: it is called again until it
        says 0. Where there is nothing, nothing is written.
        """
        ...

    def wait_beyond(self, revision: int, seconds: float) -> int:
        """Wait until the journal is beyond this revision, or so long; where it is now.

        May be called in another thread than the rest.
        """
        ...

    def hang_up(self) -> None:
        """Have the calls that wait for an answer from elsewhere fail now.

        Called by another thread than theirs. What they asked for may have been done.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
