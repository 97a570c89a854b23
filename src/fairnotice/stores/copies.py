"""Everything that a store holds, as it is handed from one store to another.

`Copy.pieces` are the state's rows in their order, then the journal's lines in theirs, then tokens,
audit, webhooks and their deliveries. Each is a JSON array that begins with its table's name.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec


class FleetRow(msgspec.Struct, array_like=True, frozen=True, tag="fleet"):
    """A row of the state, in its place among the others."""

    kind: str
    id: str
    body: str


class JournalRow(msgspec.Struct, array_like=True, frozen=True, tag="journal"):
    """A line of the journal; sql.JournalLine has the same."""

    revision: int
    at: str
    what: str
    kind: str
    id: str
    about: str
    lasting: bool
    body: str


class TokenRow(msgspec.Struct, array_like=True, frozen=True, tag="token"):
    """A token, of which only the hash is known."""

    id: str
    changed: int
    body: str


class AuditRow(msgspec.Struct, array_like=True, frozen=True, tag="audit"):
    """Who asked for something."""

    at: str
    body: str


class WebhookRow(msgspec.Struct, array_like=True, frozen=True, tag="webhook"):
    """Who outside is told of events."""

    id: str
    cursor: int
    body: str


class DeliveryRow(msgspec.Struct, array_like=True, frozen=True, tag="delivery"):
    """What a webhook is told, in its place among the others."""

    webhook: str
    dead_at: str | None
    body: str


AnyRow = FleetRow | JournalRow | TokenRow | AuditRow | WebhookRow | DeliveryRow


class Pieces:
    """Rows that are read while they are asked for, once.

    What they are read from is closed after the last one, or by whoever does not read so far.
    """

    def __init__(self, found: Iterator[AnyRow], close: Callable[[], None] = lambda: None) -> None:
        self._found = found
        self.close = close

    def __iter__(self) -> "Pieces":
        return self

    def __next__(self) -> AnyRow:
        try:
            return next(self._found)
        except BaseException:
            self.close()
            raise


class Copy(NamedTuple):
    """What a store held at one revision; `pieces` are read while they are asked for."""

    schema: int
    epoch: int
    revision: int
    recorded_at: datetime | None
    pieces: Pieces


class Copied(Protocol):
    """What can be copied while it is used, and filled while it is empty."""

    def copy(self) -> Copy:
        """Everything at one revision, while commits go on.

        `pieces` may be read in another thread than the rest.
        """
        ...

    def fill(self, copy: Copy) -> None:
        """Take over a copy, all or nothing: errors.UsageError where this store holds something.

        What follows a revision of the copy's journal is not told to those who follow: they are
        given the whole state.
        """
        ...
