"""The feed as lines for whoever follows over HTTP: a snapshot where need be, then every change."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from fairnotice.conductor.feed import Feed, Snapshot
from fairnotice.control.shapes import Line
from fairnotice.engine.changes import Removal, Row
from fairnotice.errors import Unavailable
from fairnotice.stores import rows, store


async def feed_lines(feed: Feed, after: int, *endings: asyncio.Event) -> AsyncIterator[Line]:
    """Everything after this revision, until nobody reads or one of these is set.

    errors.Unavailable where what is shown here may be old.
    """
    while not any(ending.is_set() for ending in endings):
        if feed.cut_off:
            raise Unavailable("this control plane has lost the journal: follow another")
        found = await feed.after(after)
        if isinstance(found, Snapshot):
            *rows_before, last = found.rows
            # Whoever goes away before the end of it has to begin anew.
            for row in rows_before:
                yield _line(0, "Snapshot", row)
            yield _line(found.revision, "Snapshot", last)
            after = found.revision
        elif found:
            for one in found:
                yield _change(one)
            after = found[-1].revision
        else:
            await _either(feed.wait_beyond(after), *(ending.wait() for ending in endings))


async def _either(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of these, and leave none behind."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _change(line: store.Line) -> Line:
    change = line.change
    shown = _line(line.revision, type(change).__name__, change.row)
    shown.at = change.at
    shown.removed = isinstance(change, Removal)
    return shown


def _line(revision: int, what: str, row: Row) -> Line:
    return Line(
        revision=revision,
        at=None,
        what=what,
        kind=rows.kind_of(row),
        id=rows.id_of(row),
        removed=False,
        row=_with_names(row),
    )


def _with_names(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    """The fields of a row, and of what is inside it, by their names."""
    if hasattr(value, "_asdict"):
        return {name: _with_names(one) for name, one in value._asdict().items()}
    if isinstance(value, tuple):
        return [_with_names(one) for one in value]
    return value
