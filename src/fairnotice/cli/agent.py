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
from fairnotice.errors import ClientError, NoEndpoint, Unavailable

if TYPE_CHECKING:
    from fairnotice.agent.config import Config
    from fairnotice.agent.plan import Limits
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

    return config.load(_given(options) or config.find())


def _given(options: argparse.Namespace) -> Path | None:
    given = getattr(options, "config", None)
    return Path(given) if given else None


def _config_if_any(options: argparse.Namespace) -> "Config | None":
    """The configuration, for commands that can do without."""
    from fairnotice.agent import config  # noqa: PLC0415 - as above

    known = _given(options) is not None or any(path.is_file() for path in config.places())
    return _config(options) if known else None


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
        rendezvous.look(rendezvous.make(config.rendezvous))
    doubts, rows, failure = _doubts(config), [], None
    if not options.offline:
        try:
            about, rows = _dry_run(config)
            doubts += about
        except ClientError as error:
            failure = _unreachable(error, " With --offline the file alone is checked.")
    if options.json and failure is None:
        told = {"rules": len(config.rules), "doubts": doubts, "events": rows}
        print(json.dumps(told, indent=2))
        return exits.DONE
    if not options.json:
        _show_check(config, doubts)
    if failure is not None:
        raise failure
    if not options.offline:
        _show_dry_run(config, rows)
    return exits.DONE


def _show_check(config: "Config", doubts: Sequence[str]) -> None:
    can_be = "can be read, but look at this" if doubts else "is right"
    print(
        f"The configuration {can_be}. Rules: {len(config.rules)} and the built-in one; "
        f"handlers: {len(config.handlers)}."
    )
    for doubt in doubts:
        print(f"  - {doubt}")


def _show_dry_run(config: "Config", rows: "Sequence[dict[str, Any]]") -> None:
    columns = ("EVENT", "TYPE", "STATUS", "RULE", "TIME", "PREPARES", "SKIPS", "ACKNOWLEDGES")
    _table(columns, [_dry_cells(row) for row in rows], "There is no event to try it on.")
    if rows:
        margin = f"until NotBefore, less margin_seconds ({config.margin_seconds:g} s)"
        print(f"TIME is what there is to prepare: {margin}; none once it is Started.")


def _doubts(config: "Config") -> list[str]:
    from fairnotice.agent import daemon, journal, status  # noqa: PLC0415 - as above
    from fairnotice.agent.doubts import doubts  # noqa: PLC0415

    try:
        told, records = status.read(config.state), journal.read(config.state)
    except Unavailable as error:
        return [str(error), *doubts(config, runs=True)]
    live = [one for one in records.values() if not one.over]
    return [*doubts(config, runs=_runs(told)), *daemon.missing_handlers(live, config)]


def _dry_run(config: "Config") -> tuple[list[str], list[dict[str, Any]]]:
    """What is odd about the answers, and a row for each event. Raises ClientError."""
    from fairnotice.agent.daemon import other_name, vm_name  # noqa: PLC0415 - as above
    from fairnotice.agent.plan import Limits  # noqa: PLC0415

    client = _client(config.url)
    document = client.get()
    try:
        name = vm_name(client)
    except ClientError:
        if config.vm is None:
            raise
        name = config.vm
    limits = Limits(config.margin_seconds, config.limits)
    vm, now = config.vm or name, client.now()
    odd = [sentence for sentence in [other_name(config, name)] if sentence]
    return odd, [_dry_row(config, event, vm, now, limits) for event in document.events]


def _dry_row(
    config: "Config", event: "Event", vm: str, now: datetime, limits: "Limits"
) -> dict[str, Any]:
    from fairnotice.agent.rehearsal import rehearse  # noqa: PLC0415 - as above
    from fairnotice.agent.rules import BUILT_IN, choose  # noqa: PLC0415

    rule = choose(config.rules, event, vm)
    came = rehearse(event, vm, (rule or BUILT_IN).course, now, limits)
    return {
        "event": event.id,
        "type": event.type,
        "status": event.status,
        "rule": rule.course.rule if rule else None,
        "seconds": None if came.seconds is None else round(came.seconds, 1),
        "prepare": list(came.runs),
        "skip": came.skipped,
        "acknowledge": came.acknowledges,
        "withheld": came.withheld or None,
    }


def _dry_cells(row: dict[str, Any]) -> Sequence[str]:
    seconds = row["seconds"]
    return (
        row["event"],
        row["type"],
        row["status"],
        row["rule"] or "none: of others",
        "not said" if seconds is None else f"{seconds:.0f} s",
        ", ".join(row["prepare"]),
        ", ".join(f"{name} ({why})" for name, why in row["skip"].items()),
        row["acknowledge"] + (f" ({row['withheld']})" if row["rule"] and row["withheld"] else ""),
    )


# ---- status ----


def show_status(options: argparse.Namespace) -> int:
    """What the journal and the status file say; nobody needs to run."""
    from fairnotice.agent import journal, status  # noqa: PLC0415 - as above

    folder = _state(options)
    told = status.read(folder)
    records = journal.read(folder).values()
    rows = [status.row(one, told) for one in records if options.all or not one.over]
    runs = _runs(told)
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

    config = _config_if_any(options)
    own = config.state if config else configuration.default_state()
    # The agent of the system is asked about by people who are not root.
    places = (own, configuration.SYSTEM_STATE)
    return next((one for one in places if status.read(one) is not None), own)


def _runs(told: dict[str, Any] | None) -> bool:
    return told is not None and told.get("doing") != "ended" and _lives(told.get("pid"))


def _agent_line(told: dict[str, Any] | None, *, runs: bool, folder: Path) -> str:
    if told is None:
        return f"No agent has run here ({folder})."
    if not runs:
        return f"No agent runs now; one did, as process {told.get('pid')}."
    trouble = f" Trouble: {told['trouble']}" if told.get("trouble") else ""
    return f"An agent runs (process {told['pid']}) as {told.get('vm') or '?'}.{trouble}"


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
    client = _client(_endpoint(options))
    events, now = _events(client), client.now()
    if options.json:
        from fairnotice.client.changes import Position  # noqa: PLC0415 - as above

        print(json.dumps(json.loads(Position(tuple(events)).to_json())["events"], indent=2))
        return exits.DONE
    columns = ("EVENT", "TYPE", "STATUS", "VMS", "NOT BEFORE", "LASTS", "SOURCE", "DESCRIPTION")
    _table(columns, [_event_cells(event, now) for event in events], "No event is announced.")
    return exits.DONE


def _endpoint(options: argparse.Namespace) -> str | None:
    if options.endpoint:
        return str(options.endpoint)
    config = _config_if_any(options)
    return config.url if config else None


def _events(client: "ScheduledEvents") -> "tuple[Event, ...]":
    try:
        return client.get().events
    except ClientError as error:
        raise _unreachable(error) from error


def _unreachable(error: ClientError, more: str = "") -> CommandFailed:
    from fairnotice.errors import Away  # noqa: PLC0415 - only where it went wrong

    away = isinstance(error, NoEndpoint | Away)
    return CommandFailed(str(error) + more, exits.UNREACHABLE if away else exits.REFUSED)


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
    client = _client(_endpoint(options))
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
                raise _unreachable(error) from error
            print(f"{event.id[:SHORT]} may begin.")
    return exits.DONE


def _own(
    events: "Sequence[Event]", client: "ScheduledEvents", options: argparse.Namespace
) -> "list[Event]":
    """Those that name this VM."""
    from fairnotice.agent.daemon import vm_name  # noqa: PLC0415 - as above

    config = _config_if_any(options)
    try:
        vm = (config.vm if config else None) or vm_name(client)
    except ClientError as error:
        raise _unreachable(error, " Whose events are its own is not known: see --all.") from error
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
    print(_printable(asked), end="", flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print()
        raise CommandFailed("Nobody answers here: give --yes to approve without being asked.")
    return answer.strip().lower() in ("y", "yes")
