"""How results look: calm tables, colour on a terminal, plain text in a pipe."""

import io
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fairnotice.cli.instants import clock_time, countdown, from_api, until

SHORT = 8
# In a pipe nothing is cut or folded: whoever reads it has no columns.
PIPE_COLUMNS = 100_000

STYLES = {
    # Events
    "Scheduled": "yellow",
    "Started": "bold magenta",
    "Completed": "green",
    "Canceled": "dim",
    # Operations
    "Pending": "yellow",
    "Failed": "bold red",
    # Nodes
    "in service": "green",
    "cordoned": "yellow",
    "unreachable": "red",
    # Nodes, rollouts and their nodes, operations
    "failed": "bold red",
    "running": "green",
    "live": "bold magenta",
    "done": "green",
    "completed": "green",
    "paused": "yellow",
    "skipped": "yellow",
    "canceled": "dim",
    "pending": "dim",
    # VMs
    "stopped": "yellow",
    "deallocated": "dim",
    # Situations
    "survived": "green",
    "not asked": "dim",
}


@cache
def terminal() -> Console:
    """The terminal, or the pipe, that results go to."""
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    return Console(width=width, highlight=False, markup=False, emoji=False)


def colourless() -> bool:
    """Whether colours cannot tell one thing from another."""
    return not terminal().is_terminal or terminal().no_color


def say(*things: RenderableType) -> None:
    """Print these, one below the other."""
    console = terminal()
    if console.is_terminal:
        console.print(*things, sep="\n")
        return
    pipe = Console(file=io.StringIO(), width=PIPE_COLUMNS, color_system=None, markup=False)
    for thing in things:
        with pipe.capture() as captured:
            pipe.print(thing, highlight=False, emoji=False, soft_wrap=isinstance(thing, str | Text))
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def note(text: str) -> None:
    """Say something beside the result, to people only."""
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(
        Text(text, style="yellow")
    )


def hint(text: str) -> None:
    """Say what may be done next, to people only: in a pipe it would be in the way."""
    if terminal().is_terminal:
        say(dim(text))


def dim(text: str) -> Text:
    """What need not be read."""
    return Text(text, style="dim")


def styled(word: str) -> Text:
    """A status in its colour."""
    return Text(word, style=STYLES.get(word, ""))


# ---- Tables ----

Cell = str | Text | None


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Rows under their headings. A heading in [brackets] may be folded, others are not."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold dim")
    for column in columns:
        foldable = column.startswith("[")
        made.add_column(column.strip("[]"), no_wrap=not foldable, overflow="fold")
    for row in rows:
        made.add_row(*(_cell(cell) for cell in row))
    return made


def facts(title: RenderableType, rows: Iterable[tuple[str, Cell]]) -> None:
    """One thing, and what there is to say of it; what is empty is left out."""
    made = Table.grid(padding=(0, 3, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value is not None and str(value):
            made.add_row(f"  {name}", _cell(value))
    say(title, made)


def title(name: str, *words: str | Text) -> Text:
    """A name, and what it is, in one line."""
    line = Text(name, style="bold")
    for word in words:
        line.append("  ·  ", style="dim").append_text(Text("") + word)
    return line


def _cell(cell: Cell) -> Text:
    if cell is None or not str(cell):
        return Text("-", style="dim")
    # A Text of its own: in a string rich would look for [styles].
    return Text(cell) if isinstance(cell, str) else cell


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def listed(names: Iterable[str]) -> str:
    """Names in one cell."""
    return ", ".join(names)


# ---- Ids and instants ----


def short(name: str) -> str:
    """An id as it is typed: its beginning on a terminal, all of it in a pipe.

    Operations of one request begin alike, and have a number behind a point.
    """
    head, point, number = name.partition(".")
    return f"{head[:SHORT]}{point}{number}" if terminal().is_terminal else name


def when(text: str | None, now: datetime) -> str | None:
    """An instant of the API: `12:37:16, in 12 s`."""
    if text is None:
        return None
    found = from_api(text)
    return f"{clock_time(found, now)}, {until(found, now)}"


def at(text: str | None, now: datetime) -> str | None:
    """An instant of the API: `12:37:16`."""
    return None if text is None else clock_time(from_api(text), now)


def not_before(row: dict[str, Any], now: datetime, *, waiting: bool) -> str:
    """NotBefore of an event or an operation; while it waits, with how long it still does."""
    found = from_api(row["not_before"])
    more = f", {countdown(found, now)}" if waiting else ""
    return clock_time(found, now) + more


# ---- Events ----

EVENT_COLUMNS = ("EVENT", "TYPE", "STATUS", "[VMS]", "NOT BEFORE (UTC)", "SEEN", "APPROVED BY")


def event_rows(events: Iterable[dict[str, Any]], now: datetime) -> Iterable[Sequence[Cell]]:
    """A line for each event."""
    for event in events:
        scheduled = event["status"] == "Scheduled"
        yield (
            Text(short(event["id"]), style="bold" if not event["gone_at"] else "dim"),
            event["type"],
            styled(event["status"]),
            listed(event["resources"]),
            not_before(event, now, waiting=scheduled),
            seen(event),
            listed(one["by"] for one in event["approvals"]),
        )


def seen(event: dict[str, Any]) -> str:
    """How many of its VMs have seen it."""
    resources = event["resources"]
    return f"{len(resources) - len(event['never_seen'])} of {len(resources)}"
