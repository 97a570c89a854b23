"""`fairnotice fault`: let the metadata endpoint misbehave, to see what clients make of it."""

from functools import partial
from typing import Any

from fairnotice.cli import exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import seconds, seconds_in_words
from fairnotice.cli.parsing import NAMES_OF, Subparsers, group, leaf, some_name
from fairnotice.cli.session import Session
from fairnotice.metadata.faults import MEANINGS, FaultKind

COLUMNS = ("FAULT", "VM", "SECONDS", "ENDS", "[WHAT IT DOES]")
KIND_COLUMNS = ("FAULT", "SECONDS", "[WHAT IT DOES]")


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice fault list --kinds",
        "fairnotice fault set slow --vm web-0 --seconds 5 --for 60",
        "fairnotice fault clear",
    )
    summary = "let the endpoint misbehave on purpose, to see what clients make of it"
    commands = group(subparsers, "fault", summary, lines)
    lines = ("fairnotice fault list", "fairnotice fault list --kinds")
    listing = leaf(commands, "list", _list, "what is on", lines)
    listing.add_argument("--kinds", action="store_true", help="show what there is instead")
    _add_set(commands)
    lines = (
        "fairnotice fault clear slow@web-0",
        "fairnotice fault clear               # all of them",
    )
    clear = leaf(commands, "clear", _clear, "let the endpoint behave again", lines)
    action = clear.add_argument(
        "names", nargs="*", type=some_name, metavar="ID", help="as `list` shows it; left out: all"
    )
    setattr(action, NAMES_OF, "faults")


def _add_set(commands: Subparsers) -> None:
    lines = (
        "fairnotice fault set error --vm web-0",
        "fairnotice fault set gone --for 70",
        "fairnotice fault set slow --vm web-0 --seconds 5 --for 60",
        "fairnotice fault set short-notice --seconds 30",
    )
    parser = leaf(commands, "set", _set, "switch a fault on", lines)
    parser.add_argument(
        "fault", choices=tuple(map(str, FaultKind)), metavar="FAULT", help="fault list --kinds"
    )
    parser.add_argument("--vm", type=some_name, metavar="NAME", help="only this VM; left out: all")
    parser.add_argument(
        "--seconds", type=seconds, metavar="5", help="how late, or how long before NotBefore; or 2m"
    )
    parser.add_argument(
        "--for",
        dest="lasts",
        type=seconds,
        metavar="60",
        help="it clears itself after so long; or 2m",
    )


def _list(session: Session) -> int:
    if session.options.kinds:
        kinds = session.remote.get("v1", "faults")["kinds"]
        return session.show(kinds, _picture_of_kinds)
    return session.show(session.remote.everything("faults"), partial(_picture, session))


def _picture(session: Session, found: dict[str, Any]) -> None:
    if not found["items"]:
        shown.say(shown.dim("No fault is on. What there is: fairnotice fault list --kinds"))
        return
    now = session.clock.wall()
    rows = (
        (
            fault["id"],
            fault["vm"] or "all",
            _number(fault["seconds"]),
            shown.when(fault["ends_at"], now),
            MEANINGS[FaultKind(fault["fault"])].sentence,
        )
        for fault in found["items"]
    )
    shown.say(shown.table(COLUMNS, rows))


def _picture_of_kinds(kinds: list[dict[str, Any]]) -> None:
    rows = (
        (
            kind["fault"],
            kind["seconds_mean"] and f"{kind['seconds_mean']}, {_number(kind['seconds'])}",
            kind["sentence"],
        )
        for kind in kinds
    )
    shown.say(shown.table(KIND_COLUMNS, rows))


def _number(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:g}"


def _set(session: Session) -> int:
    options = session.options
    kind = FaultKind(options.fault)
    if options.seconds is not None and not MEANINGS[kind].seconds_mean:
        meant = "how long it is to be on is --for"
        raise CommandFailed(f"--seconds means nothing to {kind}; {meant}.", exits.WRONG_USAGE)
    given = {"vm": options.vm, "seconds": options.seconds, "for_seconds": options.lasts}
    body = {name: value for name, value in given.items() if value is not None}
    result = session.remote.post("v1", "faults", body={"fault": options.fault, **body})
    return session.show(result, partial(_say_set, options.lasts))


def _say_set(lasts: float | None, fault: dict[str, Any]) -> None:
    how_long = "until it is cleared" if lasts is None else f"for {seconds_in_words(lasts)}"
    told = [f"towards {fault['vm'] or 'every VM'}", f"on {how_long}"]
    if fault["seconds"] is not None:
        mean = MEANINGS[FaultKind(fault["fault"])].seconds_mean
        told.insert(0, f"{mean}: {_number(fault['seconds'])} s")
    shown.say(shown.title(fault["id"], *map(shown.dim, told)))
    shown.hint(f"End it: fairnotice fault clear {fault['id']}")


def _clear(session: Session) -> int:
    names = list(dict.fromkeys(session.options.names))
    if not names:
        return session.show(session.remote.delete("v1", "faults"), _say_cleared)
    cleared: list[str] = []
    failures: list[CommandFailed] = []
    for name in names:
        try:
            cleared += session.remote.delete("v1", "faults", name)["cleared"]
        except CommandFailed as failure:
            failures.append(failure)
            shown.note(str(failure))
    # What was not on has been said; that nothing was on may not be so.
    if cleared or session.json:
        session.show({"cleared": cleared}, _say_cleared)
    return next((failure.code for failure in failures), exits.DONE)


def _say_cleared(result: dict[str, Any]) -> None:
    cleared = result["cleared"]
    shown.say(f"Cleared: {shown.listed(cleared)}" if cleared else shown.dim("Nothing was on."))
