"""`fairnotice fleet`: declare the fleet by a file, export it as one, look at it as a whole."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from fairnotice.cli import exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.parsing import Subparsers, group, leaf
from fairnotice.cli.remote import failure
from fairnotice.cli.session import Session
from fairnotice.control.fleet_files import Difference, FleetBody, read_toml, to_toml
from fairnotice.errors import UsageError

KINDS = {
    "node": "node",
    "availability_set": "availability set",
    "scale_set": "scale set",
    "cloud_service": "cloud service",
    "vm": "VM",
}
# Of a large fleet so many lines are shown of what is added, and of what is removed.
LINES_SHOWN = 30
REFUSED = "Refused, and nothing has changed."
SCOPE_COLUMNS = ("SCOPE", "VMS", "LISTENS", "INCARNATION", "APPROVES BY ITSELF", "EVENTS")


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice fleet export > fleet.toml",
        "fairnotice fleet apply fleet.toml     # shows what would change, and asks",
        "fairnotice fleet show",
    )
    summary = "declare the fleet by a file, export it as one, look at it"
    commands = group(subparsers, "fleet", summary, lines)
    lines = (
        "fairnotice fleet apply fleet.toml",
        "fairnotice fleet apply fleet.toml --dry-run",
        "fairnotice fleet apply fleet.toml --yes     # for a script",
    )
    apply = leaf(commands, "apply", _apply, "make the fleet what a file says, or nothing", lines)
    apply.add_argument("file", metavar="FILE", help="a fleet file in TOML; - for standard input")
    apply.add_argument("--yes", action="store_true", help="do not ask")
    apply.add_argument("--dry-run", action="store_true", help="only show what would change")
    lines = ("fairnotice fleet export > fleet.toml", "fairnotice fleet export --json")
    leaf(commands, "export", _export, "the fleet as a file that declares it", lines)
    leaf(commands, "show", _show, "the fleet as a whole", ("fairnotice fleet show",))


# ---- Looking ----


def _export(session: Session) -> int:
    fleet = session.remote.get("v1", "fleet")
    if session.json:
        return session.show(fleet, print)
    print(to_toml(msgspec.convert(fleet, FleetBody)), end="")
    return exits.DONE


def _show(session: Session) -> int:
    kinds = ("nodes", "scopes", "scale-sets", "vms")
    fleet = {kind: session.remote.everything(kind)["items"] for kind in kinds}
    return session.show(fleet, _picture)


def _picture(fleet: dict[str, Any]) -> None:
    nodes, vms = fleet["nodes"], fleet["vms"]
    running = sum(vm["power"] == "running" for vm in vms)
    used, slots = (sum(node[field] for node in nodes) for field in ("used", "capacity"))
    in_service = sum(node["state"] == "in service" for node in nodes)
    shown.facts(
        shown.title("The fleet"),
        (
            ("nodes", f"{len(nodes)}, {in_service} in service"),
            ("slots", f"{used} of {slots} used"),
            ("VMs", f"{len(vms)}, {running} running"),
        ),
    )
    if fleet["scopes"]:
        rows = (_scope_row(scope) for scope in fleet["scopes"])
        shown.say("", shown.table(SCOPE_COLUMNS, rows, ("INCARNATION",)))
        shown.hint("More: fairnotice vm list, fairnotice node list")


def _scope_row(scope: dict[str, Any]) -> tuple[shown.Cell, ...]:
    return (
        scope["name"],
        str(len(scope["vms"])),
        Text("yes", style="green") if scope["enabled"] else shown.dim("no"),
        str(scope["incarnation"]),
        shown.listed(scope["automatically_approve"]),
        str(len(scope["events"])) if scope["events"] else None,
    )


# ---- Applying ----


def _apply(session: Session) -> int:
    options = session.options
    wanted = _read(options.file)
    body = msgspec.to_builtins(wanted)
    answer = session.remote.post("v1", "fleet", "difference", body=body)
    found = msgspec.convert(answer, Difference)
    if options.dry_run:
        session.show(answer, partial(_show_difference, found))
    elif not session.json:
        _show_difference(found)
    if found.refused is not None:
        # Nobody is asked whether he wants what he cannot have.
        how = "It would be refused." if options.dry_run else REFUSED
        raise _refused(how, failure(answer["refused"]))
    if options.dry_run:
        return exits.DONE
    if not found.nothing and not (options.yes or _is_wanted()):
        raise CommandFailed("Nothing has changed.")
    try:
        result = session.remote.put("v1", "fleet", body=body)
    except CommandFailed as refused:
        raise _refused(REFUSED, refused) from None
    return session.show(result, partial(_applied, found))


def _refused(how: str, why: CommandFailed) -> CommandFailed:
    return CommandFailed(f"{how} {why}", why.code)


def _read(file: str) -> FleetBody:
    where = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no text in UTF-8.") from error
    return read_toml(text, where)


def _is_wanted() -> bool:
    if not sys.stdin.isatty():
        raise CommandFailed(
            "Nobody is there to say yes, so nothing has changed. Give --yes.", exits.WRONG_USAGE
        )
    return shown.agreed("Apply this?")


def _applied(found: Difference, result: dict[str, Any]) -> None:
    for warning in result["warnings"]:
        shown.note(warning)
    if not found.nothing:
        shown.say(Text("Applied.", style="green"))


# ---- The difference ----


def _show_difference(found: Difference, _: object = None) -> None:
    if found.nothing:
        shown.say("The fleet is as the file says; nothing changes.")
        return
    _lines("+", "green", [f"{KINDS[one.kind]} {one.name}" for one in found.added])
    for one in found.changed:
        shown.say(Text(f"~ {KINDS[one.kind]} {one.name}", style="yellow"))
        for field in one.changes:
            before, after = _value(field.before), _value(field.after)
            name = field.field.replace("_", " ")
            shown.say(Text.assemble((f"    {name}: ", "dim"), before, (" → ", "dim"), after))
    _lines("-", "red", [f"{KINDS[one.kind]} {one.name}" for one in found.removed])
    for warning in found.warnings:
        shown.say(Text(f"! {warning}", style="bold red"))
    counts = f"{len(found.added)} added, {len(found.changed)} changed, {len(found.removed)} removed"
    shown.say(shown.dim(counts))


def _lines(sign: str, style: str, lines: list[str]) -> None:
    for line in lines[:LINES_SHOWN]:
        shown.say(Text(f"{sign} {line}", style=style))
    if len(lines) > LINES_SHOWN:
        shown.say(shown.dim(f"  and {len(lines) - LINES_SHOWN:,} more"))


def _value(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
