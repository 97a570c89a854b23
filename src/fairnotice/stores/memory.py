"""A store that remembers as long as the process lives: for tests, simulations and trying out."""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from threading import Condition
from typing import Any

from fairnotice.engine.changes import Change, EventAnnounced, Removal, Row
from fairnotice.stores import rows
from fairnotice.stores.sql import event_of, refused
from fairnotice.stores.store import Line, Loaded


class MemoryStore:
    """Rows and journal in lists. Closing it loses nothing: the same object may be used again."""

    def __init__(self) -> None:
        self._moved = Condition()
        self._epoch = 0
        self._revision = 0
        self._recorded_at: datetime | None = None
        # Lines up to this revision may be forgotten.
        self._feed_from = 0
        self._rows: dict[tuple[str, str], Row] = {}
        self._journal: list[Line] = []

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
                raise refused(epoch, after, found_epoch=self._epoch, found_revision=self._revision)
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
            event = event_of(about)
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

    def wait_beyond(self, revision: int, seconds: float) -> int:
        """Wait until the journal is beyond this revision, or so long; where it is now."""
        with self._moved:
            self._moved.wait_for(lambda: self._revision > revision, seconds)
            return self._revision

    def hang_up(self) -> None:
        """Nothing here waits for an answer from elsewhere."""

    def close(self) -> None:
        """Nothing to let go of."""


def _lasting(line: Line) -> bool:
    return rows.kind_of(line.change.row) in rows.LASTING
