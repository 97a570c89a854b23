"""A store that remembers as long as the process lives: for tests, simulations and trying out."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from threading import Condition
from typing import Any

from fairnotice.engine.changes import Change, EventAnnounced, EventGone, Removal, Row
from fairnotice.stores import access, rows, sql
from fairnotice.stores.access import Audited, AuditLine, KnownTokens, Token
from fairnotice.stores.copies import (
    AnyRow,
    AuditRow,
    Copy,
    DeliveryRow,
    FleetRow,
    JournalRow,
    Pieces,
    TokenRow,
    WebhookRow,
)
from fairnotice.stores.memory_webhooks import MemoryWebhooks
from fairnotice.stores.store import Line, Loaded

# It has no tables; its rows are those of the newest schema.
SCHEMA = sql.read_migrations("fairnotice.stores.sqlite")[-1].number


class MemoryStore(MemoryWebhooks):
    """Rows and journal in lists. Closing it loses nothing: the same object may be used again."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = Condition()
        self._epoch = 0
        self._revision = 0
        self._recorded_at: datetime | None = None
        # Lines up to this revision may be forgotten.
        self._feed_from = 0
        self._rows: dict[tuple[str, str], Row] = {}
        self._journal: list[Line] = []
        self._tokens = KnownTokens(0, [])
        self._audit: list[AuditLine] = []

    def lead(self) -> int:
        """Take the lead: a new epoch."""
        with self._moved:
            self._epoch += 1
            return self._epoch

    def load(self) -> Loaded:
        """All rows, and the revision that they show."""
        with self._moved:
            return Loaded(list(self._rows.values()), self._revision, self._recorded_at)

    def commit(self, epoch: int, after: int, changes: Sequence[Change[Any]]) -> None:
        """Write the rows and the journal."""
        with self._moved:
            if (epoch, after) != (self._epoch, self._revision):
                raise sql.refused(
                    epoch, after, found_epoch=self._epoch, found_revision=self._revision
                )
            # Found for all of them first: where one is no row, none is written.
            keys = [(rows.kind_of(change.row), rows.id_of(change.row)) for change in changes]
            for key, change in zip(keys, changes, strict=True):
                self._write(key, change)
            self._moved.notify_all()

    def _write(self, key: tuple[str, str], change: Change[Any]) -> None:
        self._revision += 1
        self._recorded_at = change.at
        self._journal.append(Line(self._revision, change))
        if isinstance(change, Removal):
            self._rows.pop(key, None)
        else:
            self._rows[key] = change.row

    def changes_after(self, revision: int, limit: int) -> list[Line] | None:
        """Up to `limit` lines that follow this revision; None where some are forgotten."""
        with self._moved:
            if not self._feed_from <= revision <= self._revision:
                return None
            start = bisect_right(self._journal, revision, key=lambda line: line.revision)
            return self._journal[start : start + limit]

    def history(self, about: str) -> list[Line]:
        """The story of one thing, oldest first."""
        with self._moved:
            event = sql.event_of(about)
            if event is not None:
                about = self._story_of_event(event)
            return [
                line
                for line in self._journal
                if _lasting(line) and rows.about(line.change.row) == about
            ]

    def _story_of_event(self, event: str) -> str:
        for line in self._journal:
            if isinstance(line.change, EventAnnounced) and line.change.row.id == event:
                return rows.about(line.change.row)
        return ""

    def events_gone(self, before: int, limit: int) -> list[Line]:
        """Events that are over, the newest first."""
        with self._moved:
            gone = (
                line
                for line in reversed(self._journal)
                if line.revision < before and isinstance(line.change, EventGone)
            )
            return list(islice(gone, limit))

    def forget(self, *, journal_before: datetime, history_before: datetime) -> int:
        """Delete what is kept no longer; how many lines."""
        feed_before = max(journal_before, history_before)
        with self._moved:
            kept = [
                line
                for line in self._journal
                if line.change.at >= (history_before if _lasting(line) else feed_before)
            ]
            forgotten = {line.revision for line in self._journal}
            forgotten.difference_update(line.revision for line in kept)
            self._feed_from = max(self._feed_from, *forgotten, 0)
            self._journal = kept
            return len(forgotten)

    def copy(self) -> Copy:
        """Everything as it is now."""
        with self._moved:
            tokens, audit = self._tokens, list(self._audit)
            found = chain(
                _copied(dict(self._rows), list(self._journal), tokens, audit),
                self._copied_webhooks(),
            )
            return Copy(SCHEMA, self._epoch, self._revision, self._recorded_at, Pieces(found))

    def fill(self, copy: Copy) -> None:
        """Take over a copy."""
        pieces = list(copy.pieces)
        with self._moved:
            if self._revision or self._tokens.tokens or self._audit or self.webhooks():
                raise sql.not_empty("in memory")
            for piece in pieces:
                self._take(piece)
            self._epoch = max(self._epoch, copy.epoch)
            self._revision = self._feed_from = copy.revision
            self._recorded_at = copy.recorded_at
            self._moved.notify_all()

    def _take(self, piece: AnyRow) -> None:
        if isinstance(piece, FleetRow):
            self._rows[piece.kind, piece.id] = rows.decode(piece.kind, piece.body)
        elif isinstance(piece, JournalRow):
            at = datetime.fromisoformat(piece.at)
            change = rows.change_from(piece.what, at, piece.body)
            self._journal.append(Line(piece.revision, change))
        elif isinstance(piece, TokenRow):
            (token,) = access.tokens_from([(piece.changed, piece.body)]).tokens
            self._keep_token(token)
        elif isinstance(piece, WebhookRow | DeliveryRow):
            self._take_webhook(piece)
        else:
            (line,) = access.audit_from([(len(self._audit) + 1, piece.body)])
            self._audit.append(line)

    def wait_beyond(self, revision: int, seconds: float) -> int:
        """Wait until the journal is beyond this revision, or so long; where it is now."""
        with self._moved:
            self._moved.wait_for(lambda: self._revision > revision, seconds)
            return self._revision

    # ---- Tokens and the audit ----

    def add_token(self, token: Token) -> bool:
        """Keep a new token, unless one has or had its name."""
        with self._moved:
            new = access.is_new(self._tokens, token)
            if new:
                self._keep_token(token)
            return new

    def revoke_token(self, id_: str, at: datetime) -> Token | None:
        """Note that a token counts no longer."""
        with self._moved:
            token = access.revoked(self._tokens, id_, at)
            if token is not None and token not in self._tokens.tokens:
                self._keep_token(token)
            return token

    def _keep_token(self, token: Token) -> None:
        changed, before = self._tokens
        others = [one for one in before if one.id != token.id]
        tokens = sorted([*others, token], key=lambda one: one.created_at)
        self._tokens = KnownTokens(changed + 1, tokens)

    def tokens(self) -> KnownTokens:
        """Every token there ever was."""
        return self._tokens

    def tokens_changed(self) -> int:
        """The number that grows with each change of a token."""
        return self._tokens.changed

    def add_audit(self, audited: Sequence[Audited]) -> None:
        """Write these lines."""
        with self._moved:
            number = self._audit[-1].number if self._audit else 0
            self._audit += [AuditLine(*one) for one in enumerate(audited, number + 1)]

    def audit(
        self,
        limit: int,
        *,
        before: int | None = None,
        who: str | None = None,
        since: datetime | None = None,
    ) -> list[AuditLine]:
        """Up to so many lines, the newest first."""
        found = (
            line
            for line in reversed(self._audit)
            if (before is None or line.number < before)
            and (since is None or line.audited.at >= since)
            and (who is None or who in (line.audited.name, line.audited.token))
        )
        return list(islice(found, limit))

    def forget_audit(self, before: datetime) -> int:
        """Delete the lines that are older."""
        with self._moved:
            known = len(self._audit)
            self._audit = [line for line in self._audit if line.audited.at >= before]
            return known - len(self._audit)

    def hang_up(self) -> None:
        """Nothing here waits for an answer from elsewhere."""

    def close(self) -> None:
        """Nothing to let go of."""


def _copied(
    state: dict[tuple[str, str], Row],
    journal: list[Line],
    tokens: KnownTokens,
    audit: list[AuditLine],
) -> Iterator[AnyRow]:
    for (kind, id_), row in state.items():
        yield FleetRow(kind, id_, rows.encode(row))
    yield from map(_journal_row, journal)
    for token in tokens.tokens:
        yield TokenRow(token.id, tokens.changed, access.token_text(token))
    for line in audit:
        yield AuditRow(sql.instant(line.audited.at), access.audited_text(line.audited))


def _journal_row(line: Line) -> JournalRow:
    row = line.change.row
    return JournalRow(
        line.revision,
        sql.instant(line.change.at),
        type(line.change).__name__,
        rows.kind_of(row),
        rows.id_of(row),
        rows.about(row),
        _lasting(line),
        rows.encode(row),
    )


def _lasting(line: Line) -> bool:
    return rows.kind_of(line.change.row) in rows.LASTING
