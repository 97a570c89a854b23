"""How results look: calm tables, colour on a terminal, plain text in a pipe."""

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fairnotice.cli.instants import clock_time, countdown, from_api, until

SHORT = 8
# A cell in which there is nothing to say.
EMPTY = "-"
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


def agreed(question: str) -> bool:
    """Whether somebody at this terminal says yes; a result that goes elsewhere stays whole."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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


# Between columns; the second where the first is too wide.
GAPS = (3, 2)
# What may be folded is not made narrower: nobody reads a column of single words. Only what is
# longer than any word, a path, is folded in the middle.
FOLDED_MIN = 16
WORD_MAX = 32
# So many cells are the headline of a row that is stacked.
HEADLINE_CELLS = 2


class Column(NamedTuple):
    """A heading, and how wide the cells below it are: as they are, and folded between words."""

    heading: str
    foldable: bool
    widest: int
    narrowest: int


class Layout(NamedTuple):
    """Which columns stand beside each other, how wide each is, and how far apart they are."""

    widths: dict[int, int]
    gap: int


class Sheet:
    """Rows under their headings, of which nothing is cut however narrow the terminal is.

    Where there is no room, columns first stand closer and those fold that may. Then the columns of
    least value are left out, one after another, and it says which. Then each row is stacked: what
    does not fit beside each other stands below each other.
    """

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Sequence[Cell]], spare: Sequence[str] = ()
    ) -> None:
        self.rows = [[_cell(cell) for cell in row] for row in rows]
        self._columns = [
            _column(heading, [row[number] for row in self.rows])
            for number, heading in enumerate(columns)
        ]
        self._spare = spare

    def stacks(self, width: int) -> bool:
        """Whether rows have to be stacked in so many columns of a terminal."""
        return self._layout(width) is None

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """As it fits."""
        layout = self._layout(options.max_width)
        if layout is None:
            yield from map(self._stacked, self.rows)
            return
        yield self._table(layout)
        left_out = [one for one in self._spare if not self._has(layout, one)]
        if left_out:
            yield dim(f"Left out for want of room: {listed(left_out)}.")

    def _has(self, layout: Layout, heading: str) -> bool:
        return any(self._columns[number].heading == heading for number in layout.widths)

    def _layout(self, width: int) -> Layout | None:
        for count in range(len(self._spare) + 1):
            kept = {
                number: column
                for number, column in enumerate(self._columns)
                if column.heading not in self._spare[:count]
            }
            for gap in GAPS:
                room = width - gap * (len(kept) - 1) - sum(one.narrowest for one in kept.values())
                if room >= 0:
                    return Layout(_widened(kept, room), gap)
        return None

    def _table(self, layout: Layout) -> Table:
        made = Table(
            box=None, pad_edge=False, padding=(0, layout.gap, 0, 0), header_style="bold dim"
        )
        for number, width in layout.widths.items():
            column = self._columns[number]
            foldable = column.foldable
            made.add_column(column.heading, no_wrap=not foldable, overflow="fold", width=width)
        for row in self.rows:
            made.add_row(*(row[number] for number in layout.widths))
        return made

    def _stacked(self, row: list[Text]) -> RenderableType:
        cells = [pair for pair in zip(self._columns, row, strict=True) if pair[1].plain != EMPTY]
        titles = list(takewhile(lambda pair: not pair[0].foldable, cells[:HEADLINE_CELLS]))
        below = Table.grid(padding=(0, 2, 0, 0))
        below.add_column(style="dim", no_wrap=True)
        below.add_column(overflow="fold")
        for column, cell in cells[len(titles) :]:
            below.add_row(f"  {column.heading.strip()}", cell)
        return Group(Text("  ").join(cell for _, cell in titles), below)


def _column(heading: str, cells: Iterable[Text]) -> Column:
    foldable, heading = heading.startswith("["), heading.strip("[]")
    texts = [heading, *(cell.plain for cell in cells)]
    widest = max(cell_len(line) for text in texts for line in text.split("\n"))
    if not foldable:
        return Column(heading, foldable, widest, widest)
    longest = max(cell_len(word) for text in texts for word in (text.split() or [""]))
    return Column(heading, foldable, widest, min(widest, max(min(longest, WORD_MAX), FOLDED_MIN)))


def _widened(columns: Mapping[int, Column], room: int) -> dict[int, int]:
    """How wide each column is: what room there is goes to those that would have to fold."""
    widths = {}
    for number, column in columns.items():
        more = min(room, column.widest - column.narrowest)
        widths[number] = column.narrowest + more
        room -= more
    return widths


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], spare: Sequence[str] = ()
) -> Sheet:
    """Rows under their headings. A heading in [brackets] may be folded, others are not.

    `spare` are the headings that are left out where there is no room for all, the first first.
    """
    return Sheet(columns, rows, spare)


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
        return Text(EMPTY, style="dim")
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
    # Nobody waits for the endpoints of what is approved (rule 5); an operation says nothing of it.
    held_by = () if row.get("approvals") else row.get("unconfirmed", ())
    more = f", {countdown(found, now, held_by)}" if waiting else ""
    return clock_time(found, now) + more


# ---- Events ----

EVENT_COLUMNS = ("EVENT", "TYPE", "STATUS", "[VMS]", "NOT BEFORE (UTC)", "SEEN", "APPROVED BY")


def events(found: Iterable[dict[str, Any]], now: datetime) -> Sheet:
    """Events, a row for each."""
    return table(EVENT_COLUMNS, event_rows(found, now), ("SEEN",))


def event_rows(events: Iterable[dict[str, Any]], now: datetime) -> Iterable[Sequence[Cell]]:
    """A line for each event."""
    for event in events:
        scheduled = event["status"] == "Scheduled"
        yield (
            Text(short(event["id"]), style="bold" if not event["gone_at"] else "dim"),
            event["type"],
            event_status(event),
            listed(event["resources"]),
            not_before(event, now, waiting=scheduled),
            seen(event),
            listed(one["by"] for one in event["approvals"]),
        )


def event_status(event: dict[str, Any]) -> Text:
    """`Completed, 1 impact failed`: what VMs are shown, and what became of them."""
    status = styled(event["status"])
    failed = event["failed"]
    return status.append(f", {counted(len(failed), 'impact')} failed", "red") if failed else status


def seen(event: dict[str, Any]) -> str:
    """How many of its VMs have seen it."""
    resources = event["resources"]
    return f"{len(resources) - len(event['never_seen'])} of {len(resources)}"
