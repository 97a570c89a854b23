"""`fairnotice agent`: what runs inside a VM, and what people ask there. Standard library alone."""

import argparse
import json
import logging
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairnotice.cli import exits
from fairnotice.cli.agent_check import check
from fairnotice.cli.agent_parts import (
    agent_runs,
    config_if_any,
    configured,
    made_client,
    print_table,
    printable,
    unreachable,
)
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import countdown
from fairnotice.cli.logs import FORMATS, log_to_standard_error
from fairnotice.cli.parsing import Subparsers, alone, group, some_name
from fairnotice.errors import ClientError

if TYPE_CHECKING:
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
    _add_for_people(commands)


def _add_for_people(commands: Subparsers) -> None:
    """What asks no agent, or says something to it."""
    _with_ids(
        _with_config(
            alone(
                commands,
                "recovered",
                recovered,
                "say that you have recovered by hand what the agent could not",
                ["fairnotice agent recovered", "fairnotice agent recovered 2B9C"],
            )
        ),
        "all that are not recovered",
    )
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
    approve_parser = _with_ids(
        _with_url(
            alone(
                commands,
                "approve",
                approve,
                "let events of this VM begin before their time; asks yes or no for each",
                ["fairnotice agent approve", "fairnotice agent approve 2B9C --yes"],
            )
        ),
        "all of this VM that are Scheduled",
    )
    approve_parser.add_argument("--yes", action="store_true", help="do not ask")
    approve_parser.add_argument(
        "--all", action="store_true", help="also events that name only other VMs"
    )


def _with_ids(parser: argparse.ArgumentParser, which: str) -> argparse.ArgumentParser:
    help_text = f"how ids begin ({which})"
    parser.add_argument("ids", nargs="*", type=some_name, metavar="ID", help=help_text)
    return parser


def _with_config(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    where = "~/.config/fairnotice/agent.toml, then /etc/fairnotice/agent.toml"
    # One that stands in front of `agent` is this one: a default here would take its place.
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"the configuration ({where})",
    )
    return parser


def _with_url(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="the metadata service (as the configuration says, or where it is found)",
    )
    return _with_config(parser)


def _with_json(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


# ---- run ----


def run(options: argparse.Namespace) -> int:
    """Be the agent."""
    from fairnotice.agent.daemon import Agent  # noqa: PLC0415 - only whoever runs it pays for it
    from fairnotice.clock import SystemClock  # noqa: PLC0415

    config = configured(options)
    log_to_standard_error(options.form)
    logging.getLogger("fairnotice.agent").setLevel(logging.INFO)
    agent = Agent(config, made_client(config.url), SystemClock())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: agent.stop.set())
    agent.run()
    return exits.DONE


# ---- status ----


def show_status(options: argparse.Namespace) -> int:
    """What the journal and the status file say; nobody needs to run."""
    from fairnotice.agent import journal, status  # noqa: PLC0415 - as above

    folder = _state(options)
    told = status.read(folder)
    records = journal.read(folder).values()
    rows = [status.row(one, told) for one in records if options.all or not one.over]
    runs = agent_runs(folder, told)
    if options.json:
        print(json.dumps({"runs": runs, "agent": told, "plans": rows}, indent=2))
        return exits.DONE
    print(_agent_line(told, runs=runs, folder=folder))
    if not rows:
        print("Nothing is prepared.")
    for row in rows:
        _show_plan(row)
    return exits.DONE


def _state(options: argparse.Namespace) -> Path:
    """The folder of the agent that is asked about."""
    from fairnotice.agent import config as configuration  # noqa: PLC0415 - as above
    from fairnotice.agent import status  # noqa: PLC0415

    config = config_if_any(options)
    own = config.state if config else configuration.default_state()
    # The agent of the system is asked about by people who are not root.
    places = (own, configuration.SYSTEM_STATE)
    return next((one for one in places if status.read(one) is not None), own)


def _agent_line(told: dict[str, Any] | None, *, runs: bool, folder: Path) -> str:
    if told is None:
        return f"No agent has run here ({folder})."
    if not runs:
        return f"No agent runs now; one did, as process {told.get('pid')}."
    trouble = f" Trouble: {told['trouble']}" if told.get("trouble") else ""
    return f"An agent runs (process {told['pid']}) as {told.get('vm') or '?'}.{trouble}"


def _show_plan(row: dict[str, Any]) -> None:
    print(f"\n{row['event']}  {row['type']}  {row['state']}")
    facts = {
        "why": f"{row['called']}; {row['description'] or 'no description'}",
        "VMs": ", ".join(row["resources"]),
        "status": row["status"],
        "not before": row["not_before"],
        "go-ahead": row["acknowledgement"] or _not_given(row["waits"]),
    }
    for name, fact in facts.items():
        if fact:
            print(f"  {name:<11} {fact}")
    for step in row["steps"]:
        why = f" ({step['why']})" if step["why"] else ""
        print(f"  {step['phase']:<11} {step['handler']}: {step['outcome']}{why}")


def _not_given(why: str | None) -> str:
    return f"not given ({why})" if why else "not given"


# ---- recovered ----


def recovered(options: argparse.Namespace) -> int:
    """Leave word for the agent, which goes on with what waited for that."""
    from fairnotice.agent import by_hand, journal  # noqa: PLC0415 - as above

    folder = _state(options)
    found = [one for one in journal.read(folder).values() if one.unrecovered and not one.over]
    chosen = _chosen([one.event for one in found], options.ids, "is not recovered")
    if not chosen:
        print("The agent has recovered all that it was to recover.")
    for record in found:
        if record.event in chosen:
            by_hand.say(folder, record.event.id)
            names = ", ".join(record.unrecovered)
            print(f"{record.event.id[:SHORT]}: the agent will take {names} for recovered.")
    return exits.DONE


# ---- events ----


def show_events(options: argparse.Namespace) -> int:
    """The document, for people."""
    client = made_client(_endpoint(options))
    events, now = _events(client), client.now()
    if options.json:
        from fairnotice.client.changes import Position  # noqa: PLC0415 - as above

        print(json.dumps(json.loads(Position(tuple(events)).to_json())["events"], indent=2))
        return exits.DONE
    columns = ("EVENT", "TYPE", "STATUS", "VMS", "NOT BEFORE", "LASTS", "SOURCE", "DESCRIPTION")
    print_table(columns, [_event_cells(event, now) for event in events], "No event is announced.")
    return exits.DONE


def _endpoint(options: argparse.Namespace) -> str | None:
    if options.endpoint:
        return str(options.endpoint)
    config = config_if_any(options)
    return config.url if config else None


def _events(client: "ScheduledEvents") -> "tuple[Event, ...]":
    try:
        return client.get().events
    except ClientError as error:
        raise unreachable(error) from error


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
        printable(event.description),
    )


def _when(event: "Event", now: datetime) -> str:
    if event.not_before is None:
        return ""
    return f"{event.not_before:%H:%M:%S} UTC, {countdown(event.not_before, now)}"


# ---- approve ----


def approve(options: argparse.Namespace) -> int:
    """Ask about each event, and approve those that were said yes to."""
    client = made_client(_endpoint(options))
    found = [event for event in _events(client) if not event.is_started]
    own = found if options.all else _own(found, client, options)
    chosen = _chosen(own, options.ids, "waits" if options.all else "waits and names this VM")
    if not chosen:
        others = len(found) - len(own)
        more = f" Of other VMs {others} do: see --all." if others else ""
        print(f"No event waits for a go-ahead.{more}")
    for event in chosen:
        if options.yes or _agreed(event, client.now()):
            try:
                client.approve(event)
            except ClientError as error:
                raise unreachable(error) from error
            print(f"{event.id[:SHORT]} may begin.")
    return exits.DONE


def _own(
    events: "Sequence[Event]", client: "ScheduledEvents", options: argparse.Namespace
) -> "list[Event]":
    """Those that name this VM."""
    from fairnotice.agent.daemon import vm_name  # noqa: PLC0415 - as above

    config = config_if_any(options)
    try:
        vm = (config.vm if config else None) or vm_name(client)
    except ClientError as error:
        raise unreachable(error, " Whose events are its own is not known: see --all.") from error
    return [event for event in events if event.names(vm)]


def _chosen(events: "Sequence[Event]", ids: Sequence[str], what: str) -> "list[Event]":
    for begins in ids:
        if not any(event.id.startswith(begins.upper()) for event in events):
            raise CommandFailed(f"No event that {what} begins with {begins}.", exits.NOT_FOUND)
    wanted = tuple(begins.upper() for begins in ids)
    return [event for event in events if not wanted or event.id.startswith(wanted)]


def _agreed(event: "Event", now: datetime) -> bool:
    names = ", ".join(event.resources)
    asked = f"{event.type} of {names} ({event.id[:SHORT]}, {_when(event, now)}): approve? [y/N] "
    print(printable(asked), end="", flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print()
        raise CommandFailed("Nobody answers here: give --yes to approve without being asked.")
    return answer.strip().lower() in ("y", "yes")
