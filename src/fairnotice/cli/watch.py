"""`fairnotice event watch`: a live view on a terminal, a line for each change in a pipe."""

import json
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from fairnotice.cli import exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.following import Followed, Following, Told
from fairnotice.cli.instants import clock_time, countdown, seconds_in_words, until
from fairnotice.cli.remote import FROM_NOW, Remote, Unreachable
from fairnotice.cli.session import Session

REFRESH_SECONDS = 0.25
RECONNECT_SECONDS = 1.0
# What is gone stays in view for a moment, so that a person sees how it ended.
LINGER = timedelta(seconds=10)
TOLD_SHOWN = 8
BAR = 12
VMS_SHOWN = 6
# Of the notice, or in seconds: when it gets tight.
TIGHT = 0.2
# Headings, footing and the blank lines between.
FRAME_LINES = 10
# An event of one VM, where there is no room for a table.
STACKED_LINES = 5

Line = dict[str, Any]


def watch(session: Session) -> int:
    """Follow events until Ctrl-C."""
    if session.options.vm is not None:
        session.remote.get("v1", "vms", session.options.vm)
    # Whoever ends it by a signal gets the terminal back as it was, like with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if session.json or not shown.terminal().is_terminal:
            _lines(session)
        else:
            _live(session)
    except KeyboardInterrupt:
        pass
    return exits.DONE


# ---- In a pipe ----


def _lines(session: Session) -> None:
    following, held = Following(session.options.vm), Held()
    for line in _moments(session.remote):
        told: list[Told] = []
        if line is not None:
            told = following.take(line)
            event = following.events.get(line["id"]) if line["kind"] == "event" else None
            if session.json:
                if told or event is not None:
                    print(json.dumps(line, ensure_ascii=False), flush=True)
                continue
            if line["what"] == "Snapshot" and event is not None and event.gone_at is None:
                # What was announced or under way when the watching began.
                since = event.started_at or event.announced_at
                told = [Told(since, event, event.status.lower())]
        elif not session.json:
            told = held.new(following.events.values(), session.clock.wall())
        for one in told:
            print(_plain(one), flush=True)
    raise Unreachable("The control plane has ended, and so has the watching.")


def _moments(remote: Remote) -> Iterator[Line | None]:
    """The lines of the feed, and None whenever there was none for a moment: time passes, too."""
    lines: SimpleQueue[Line | CommandFailed | None] = SimpleQueue()

    def read() -> None:
        try:
            for line in remote.feed():
                lines.put(line)
            lines.put(None)
        except CommandFailed as gone:
            lines.put(gone)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=REFRESH_SECONDS)
        except Empty:
            yield None
            continue
        if line is None:
            return
        if isinstance(line, CommandFailed):
            raise line
        yield line


class Held:
    """Events that are due and do not start, each told of once."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, ...]] = {}

    def new(self, events: Iterable[Followed], now: datetime) -> list[Told]:
        """Those that were not held a moment ago, or not by the same nodes."""
        held = {one.id: one for one in events if one.held_by and one.not_before <= now}
        new = [one for one in held.values() if self._told.get(one.id) != one.held_by]
        self._told = {name: one.held_by for name, one in held.items()}
        return [Told(now, one, countdown(one.not_before, now, one.held_by)) for one in new]


def _plain(told: Told) -> str:
    return f"{told.at:%Y-%m-%dT%H:%M:%SZ}  {told.event.id}  {told.event.name}: {told.text}"


# ---- On a terminal ----


def _live(session: Session) -> None:
    lines: SimpleQueue[Line | str] = SimpleQueue()
    session.remote.get("healthz")
    view = View(session.remote.url, session.options.vm)
    threading.Thread(target=_follow, args=(session.remote, lines), daemon=True).start()
    with Live(console=shown.terminal(), auto_refresh=False) as live:
        try:
            while True:
                view.take(_waiting(lines))
                live.update(view.picture(session.clock.wall()), refresh=True)
        finally:
            # The view stays in the terminal as it was last.
            live.update(view.picture(session.clock.wall()), refresh=True)


def _follow(remote: Remote, lines: "SimpleQueue[Line | str]") -> None:
    """Put what the feed says into the queue; where it breaks off, go on after what is known."""
    revision = FROM_NOW
    pause = threading.Event()
    while True:
        try:
            for line in remote.feed(revision):
                lines.put(line)
                revision = line["revision"]
        except CommandFailed as gone:
            lines.put(str(gone))
        pause.wait(RECONNECT_SECONDS)


def _waiting(lines: "SimpleQueue[Line | str]") -> Iterator[Line | str]:
    """All that waits in the queue, after a moment at most."""
    try:
        yield lines.get(timeout=REFRESH_SECONDS)
        while True:
            yield lines.get_nowait()
    except Empty:
        return


class View:
    """What is on the terminal: events with their countdowns, and what happened last."""

    def __init__(self, url: str, vm: str | None) -> None:
        self._where = url + (f" · {vm}" if vm else "")
        self._following = Following(vm)
        self._told: deque[Told] = deque(maxlen=TOLD_SHOWN)
        self._trouble = ""

    def take(self, lines: Iterable[Line | str]) -> None:
        """Follow these lines of the feed; a sentence among them is trouble."""
        for line in lines:
            if isinstance(line, str):
                self._trouble = line
            else:
                self._trouble = ""
                self._told.extend(self._following.take(line))

    def picture(self, now: datetime) -> RenderableType:
        """All of it."""
        events = sorted(
            (event for event in self._following.events.values() if _in_view(event, now)),
            key=lambda event: (event.gone_at is not None, event.not_before),
        )
        parts: list[RenderableType] = [self._headline(events, now), Text()]
        parts.append(self._events(events, now))
        if self._told:
            parts += [Text(), self._story(now)]
        return Group(*parts, Text(), self._footing())

    def _headline(self, events: list[Followed], now: datetime) -> Text:
        waiting = sum(event.status == "Scheduled" for event in events)
        under_way = sum(event.status == "Started" for event in events)
        line = Text("Events", style="bold")
        line.append(f"  {self._where} · {now:%H:%M:%S} UTC", style="dim")
        line.append(f"   {waiting} announced", style="yellow" if waiting else "dim")
        line.append(f"   {under_way} under way", style="bold magenta" if under_way else "dim")
        return line

    def _events(self, events: list[Followed], now: datetime) -> RenderableType:
        if not events:
            return shown.dim("Nothing is announced or under way. Try: fairnotice vm restart NAME")
        room = max(3, shown.terminal().height - FRAME_LINES - len(self._told))
        columns = ("EVENT", "TYPE", "[VMS]", "NOT BEFORE", "", "APPROVED BY")
        table = shown.table(columns, (_row(one, now) for one in events[:room]))
        if table.stacks(shown.terminal().width):
            room = max(1, room // STACKED_LINES)
            table = shown.table(columns, (_row(one, now) for one in events[:room]))
        # What is gone is not in the list that the line names.
        more = sum(event.gone_at is None for event in events[room:])
        if not more:
            return table
        return Group(table, shown.dim(f"and {more} more: fairnotice event list"))

    def _story(self, now: datetime) -> RenderableType:
        rows = (
            (
                shown.dim(clock_time(told.at, now)),
                shown.dim(told.event.id[: shown.SHORT]),
                told.text,
            )
            for told in self._told
        )
        return shown.table(("AT", "EVENT", "[WHAT HAPPENED]"), rows)

    def _footing(self) -> Text:
        if self._trouble:
            return Text(f"{self._trouble} Trying again …", style="red")
        return shown.dim("✓ has seen it   · has not looked yet   Ctrl-C ends")


def _in_view(event: Followed, now: datetime) -> bool:
    return event.gone_at is None or now - event.gone_at < LINGER


def _row(event: Followed, now: datetime) -> tuple[Text, ...]:
    over = event.gone_at is not None
    return (
        Text(event.id[: shown.SHORT], style="dim" if over else "bold"),
        Text(event.type, style="dim" if over else ""),
        _vms(event),
        _instant(event, now),
        _countdown(event, now),
        Text(event.approved_by, style="green"),
    )


def _vms(event: Followed) -> Text:
    """The VMs, each with a mark that says whether it has seen the event."""
    if len(event.resources) > VMS_SHOWN:
        seen = sum(vm in event.seen for vm in event.resources)
        return Text(f"{len(event.resources)} VMs, {seen} have seen it")
    line = Text()
    for vm in event.resources:
        # Each on a line of its own, so that the mark stays beside its VM.
        line.append("\n" if line else "")
        line.append("✓ " if vm in event.seen else "· ", "green" if vm in event.seen else "yellow")
        line.append(vm)
    return line


def _instant(event: Followed, now: datetime) -> Text:
    return Text(clock_time(event.not_before, now), style="" if event.gone_at is None else "dim")


def _countdown(event: Followed, now: datetime) -> Text:
    """How much of the notice is left, or what became of it."""
    if event.gone_at is not None:
        return shown.styled(event.status) + Text(f" {until(event.gone_at, now)}", style="dim")
    if event.started_at is not None:
        took = seconds_in_words((now - event.started_at).total_seconds())
        words = "settling" if event.settling else "under way"
        return Text(f"{words} for {took}", style="bold magenta")
    left = (event.not_before - now).total_seconds()
    if left <= 0:
        return Text(countdown(event.not_before, now, event.held_by), style="yellow")
    share = min(1.0, left / max((event.not_before - event.announced_at).total_seconds(), 1.0))
    filled = max(1, round(BAR * share))
    colour = "red" if share < TIGHT else "yellow"
    bar = Text("━" * filled, style=colour).append("━" * (BAR - filled), style="bright_black")
    return bar.append(f" {until(event.not_before, now)}", style=colour)
