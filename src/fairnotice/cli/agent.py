"""`fairnotice agent`: what runs inside a VM, and what people ask there. Standard library alone."""

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairnotice.cli import exits
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.logs import FORMATS, log_to_standard_error
from fairnotice.cli.parsing import Subparsers, alone, group, some_name
from fairnotice.errors import ClientError, NoEndpoint

if TYPE_CHECKING:
    from fairnotice.agent.config import Config
    from fairnotice.client.document import Event
    from fairnotice.client.sync import ScheduledEvents

SUMMARY = "inside a VM: prepare for events, look at them, approve them"
EXAMPLES = (
    "fairnotice agent check --config agent.toml    # what would be done about each event",
    "fairnotice agent run --config agent.toml      # watch, prepare, acknowledge, recover",
    "fairnotice agent status                       # what is prepared, and why",
)
SHORT = 8


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    commands = group(subparsers, "agent", SUMMARY, EXAMPLES)
    _with_config(
        alone(
            commands,
            "run",
            run,
            "watch, prepare, acknowledge and recover, until it is told to end",
            ["fairnotice agent run --config agent.toml", "fairnotice agent run --log-format json"],
        )
    ).add_argument(
        "--log-format", dest="form", choices=FORMATS, default="text", help="how it logs (text)"
    )
    check_parser = _with_config(
        alone(
            commands,
            "check",
            check,
            "check the configuration, and say what would be done about each event that there is",
            ["fairnotice agent check", "fairnotice agent check --offline --config agent.toml"],
        )
    )
    check_parser.add_argument(
        "--offline", action="store_true", help="ask no metadata service: the file alone"
    )
    _with_json(check_parser)
    _with_json(
        _with_config(
            alone(
                commands,
                "status",
                show_status,
                "what is prepared, and why; whether an agent runs",
                ["fairnotice agent status", "fairnotice agent status --all --json"],
            )
        )
    ).add_argument("--all", action="store_true", help="also of events that are over")
    _with_json(
        _with_url(
            alone(
                commands,
                "events",
                show_events,
                "the events that this VM is told about",
                ["fairnotice agent events", "fairnotice agent events --json"],
            )
        )
    )
    approve_parser = _with_url(
        alone(
            commands,
            "approve",
            approve,
            "let events begin before their time; asks yes or no for each",
            ["fairnotice agent approve", "fairnotice agent approve 2B9C --yes"],
        )
    )
    approve_parser.add_argument(
        "ids",
        nargs="*",
        type=some_name,
        metavar="ID",
        help="how ids begin (all that are Scheduled)",
    )
    approve_parser.add_argument("--yes", action="store_true", help="do not ask")


def _with_config(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    where = "~/.config/fairnotice/agent.toml, then /etc/fairnotice/agent.toml"
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"the configuration ({where})")
    return parser


def _with_url(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="the metadata service (FAIRNOTICE_METADATA_URL, or where it is found)",
    )
    return parser


def _with_json(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


# ---- run ----


def run(options: argparse.Namespace) -> int:
    """Be the agent."""
    from fairnotice.agent.daemon import Agent  # noqa: PLC0415 - only whoever runs it pays for it
    from fairnotice.clock import SystemClock  # noqa: PLC0415

    config = _config(options)
    log_to_standard_error(options.form)
    logging.getLogger("fairnotice.agent").setLevel(logging.INFO)
    agent = Agent(config, _client(config.url), SystemClock())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: agent.stop.set())
    agent.run()
    return exits.DONE


def _config(options: argparse.Namespace) -> "Config":
    from fairnotice.agent import config  # noqa: PLC0415 - as above

    return config.load(options.config or config.find())


def _client(url: str | None) -> "ScheduledEvents":
    from fairnotice.client.sync import ScheduledEvents  # noqa: PLC0415 - as above

    return ScheduledEvents(url)


# ---- check ----


def check(options: argparse.Namespace) -> int:
    """Read the file, make everything in it, and try it on the events that there are."""
    from fairnotice.agent import daemon, rendezvous  # noqa: PLC0415 - as above

    config = _config(options)
    daemon.made_handlers(config)
    if config.rendezvous is not None:
        rendezvous.make(config.rendezvous)
    rows = [] if options.offline else _dry_run(config)
    if options.json:
        print(json.dumps({"rules": len(config.rules), "events": rows}, indent=2))
        return exits.DONE
    print(
        f"The configuration is right. Rules: {len(config.rules)} and the built-in one; "
        f"handlers: {len(config.handlers)}."
    )
    if not options.offline:
        columns = ("EVENT", "TYPE", "STATUS", "RULE", "TIME", "PREPARES", "ACKNOWLEDGES")
        _table(columns, [_dry_cells(row) for row in rows], "There is no event to try it on.")
    return exits.DONE


def _dry_run(config: "Config") -> list[dict[str, Any]]:
    from fairnotice.agent.daemon import vm_name  # noqa: PLC0415 - as above
    from fairnotice.agent.plan import seconds_left  # noqa: PLC0415
    from fairnotice.agent.rules import choose  # noqa: PLC0415

    client = _client(config.url)
    try:
        document = client.get()
        vm = config.vm or vm_name(client)
    except ClientError as error:
        raise _unreachable(error) from error
    rows = []
    for event in document.events:
        rule = choose(config.rules, event, vm)
        left = seconds_left(event, client.now(), config.margin_seconds)
        course = rule.course if rule else None
        rows.append(
            {
                "event": event.id,
                "type": event.type,
                "status": event.status,
                "rule": course.rule if course else None,
                "seconds": None if left is None else round(left, 1),
                "prepare": list(course.prepare) if course else [],
                "acknowledge": course.acknowledge if course and event.names(vm) else "never",
            }
        )
    return rows


def _dry_cells(row: dict[str, Any]) -> Sequence[str]:
    seconds = row["seconds"]
    return (
        row["event"],
        row["type"],
        row["status"],
        row["rule"] or "none: of others",
        "not said" if seconds is None else f"{seconds:.0f} s",
        ", ".join(row["prepare"]),
        row["acknowledge"],
    )


# ---- status ----


def show_status(options: argparse.Namespace) -> int:
    """What the journal and the status file say; nobody needs to run."""
    from fairnotice.agent import config as configuration  # noqa: PLC0415 - as above
    from fairnotice.agent import journal, status  # noqa: PLC0415

    known = options.config is not None or any(path.is_file() for path in configuration.places())
    own = _config(options).state if known else configuration.default_state()
    # The agent of the system is asked about by people who are not root.
    places = (own, configuration.SYSTEM_STATE)
    folder = next((one for one in places if status.read(one) is not None), own)
    told = status.read(folder)
    records = journal.read(folder).values()
    rows = [status.row(one) for one in records if options.all or not one.over]
    runs = told is not None and told.get("doing") != "ended" and _runs(folder, told.get("pid"))
    if options.json:
        print(json.dumps({"runs": runs, "agent": told, "plans": rows}, indent=2))
        return exits.DONE
    print(_agent_line(told, runs=runs, folder=folder))
    if not rows:
        print("Nothing is prepared.")
    for row in rows:
        _show_plan(row)
    return exits.DONE


def _agent_line(told: dict[str, Any] | None, *, runs: bool, folder: Path) -> str:
    if told is None:
        return f"No agent has run here ({folder})."
    if not runs:
        return f"No agent runs now; one did, as process {told.get('pid')}."
    trouble = f" Trouble: {told['trouble']}" if told.get("trouble") else ""
    return f"An agent runs (process {told['pid']}) as {told.get('vm') or '?'}.{trouble}"


def _runs(folder: Path, pid: object) -> bool:
    """Whether somebody holds the lock; by the number of the process where that cannot be seen."""
    from fairnotice.agent import journal  # noqa: PLC0415 - as above

    held = journal.is_held(folder)
    return _lives(pid) if held is None else held


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or os.name == "nt":
        return isinstance(pid, int)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _show_plan(row: dict[str, Any]) -> None:
    print(f"\n{row['event']}  {row['type']}  {row['state']}")
    facts = {
        "why": f"rule {row['rule']}; {row['description'] or 'no description'}",
        "VMs": ", ".join(row["resources"]),
        "not before": row["not_before"],
        "go-ahead": row["acknowledgement"] or "not given",
    }
    for name, fact in facts.items():
        if fact:
            print(f"  {name:<11} {fact}")
    for step in row["steps"]:
        why = f" ({step['why']})" if step["why"] else ""
        print(f"  {step['phase']:<11} {step['handler']}: {step['outcome']}{why}")


# ---- events ----


def show_events(options: argparse.Namespace) -> int:
    """The document, for people."""
    client = _client(options.endpoint)
    events, now = _events(client), client.now()
    if options.json:
        from fairnotice.client.changes import Position  # noqa: PLC0415 - as above

        print(json.dumps(json.loads(Position(tuple(events)).to_json())["events"], indent=2))
        return exits.DONE
    columns = ("EVENT", "TYPE", "STATUS", "VMS", "NOT BEFORE", "LASTS", "SOURCE", "DESCRIPTION")
    _table(columns, [_event_cells(event, now) for event in events], "No event is announced.")
    return exits.DONE


def _events(client: "ScheduledEvents") -> "tuple[Event, ...]":
    try:
        return client.get().events
    except ClientError as error:
        raise _unreachable(error) from error


def _unreachable(error: ClientError) -> CommandFailed:
    from fairnotice.errors import Away  # noqa: PLC0415 - only where it went wrong

    away = isinstance(error, NoEndpoint | Away)
    return CommandFailed(str(error), exits.UNREACHABLE if away else exits.REFUSED)


def _event_cells(event: "Event", now: datetime) -> Sequence[str]:
    seconds = event.duration_seconds
    return (
        event.id,
        event.type,
        event.status,
        ", ".join(event.resources),
        _when(event, now),
        "" if seconds is None else "not known" if seconds < 0 else f"{seconds} s",
        event.source,
        _printable(event.description),
    )


def _when(event: "Event", now: datetime) -> str:
    if event.not_before is None:
        return ""
    left = int((event.not_before - now).total_seconds())
    in_words = f"in {left // 60} min {left % 60} s" if left >= 0 else "now"
    return f"{event.not_before:%H:%M:%S}, {in_words}"


def _printable(text: str) -> str:
    """What a service sends is shown, never obeyed by the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], none: str) -> None:
    lines = [[_printable(cell) or "-" for cell in row] for row in rows]
    if not lines:
        print(none)
        return
    lines.insert(0, list(columns))
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("   ".join(padded).rstrip())


# ---- approve ----


def approve(options: argparse.Namespace) -> int:
    """Ask about each event, and approve those that were said yes to."""
    client = _client(options.endpoint)
    found = [event for event in _events(client) if not event.is_started]
    chosen = _chosen(found, options.ids)
    if not chosen:
        print("No event waits for a go-ahead.")
    for event in chosen:
        if options.yes or _agreed(event, client.now()):
            try:
                client.approve(event)
            except ClientError as error:
                raise _unreachable(error) from error
            print(f"{event.id[:SHORT]} may begin.")
    return exits.DONE


def _chosen(events: "Sequence[Event]", ids: Sequence[str]) -> "list[Event]":
    for begins in ids:
        if not any(event.id.startswith(begins.upper()) for event in events):
            raise CommandFailed(f"No event that waits begins with {begins}.", exits.NOT_FOUND)
    wanted = tuple(begins.upper() for begins in ids)
    return [event for event in events if not wanted or event.id.startswith(wanted)]


def _agreed(event: "Event", now: datetime) -> bool:
    names = ", ".join(event.resources)
    asked = f"{event.type} of {names} ({event.id[:SHORT]}, {_when(event, now)}): approve? [y/N] "
    print(_printable(asked), end="", flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print()
        raise CommandFailed("Nobody answers here: give --yes to approve without being asked.")
    return answer.strip().lower() in ("y", "yes")
