"""`fairnotice operation`: look at what is to be done and is done, take it back."""

from functools import partial
from typing import Any

from rich.text import Text

from fairnotice.cli import shown
from fairnotice.cli.parsing import Subparsers, group, leaf, names
from fairnotice.cli.session import Session

COLUMNS = ("OPERATION", "WHAT", "STATUS", "[ON]", "NOT BEFORE (UTC)", "EVENTS")
IMPACT_COLUMNS = ("VM", "IMPACT", "STATUS", "BEGUN", "ENDED", "[WHY]")
WHOLE_REQUEST = "its id, or how that begins; the id of a request takes back all that is left of it"


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice operation list",
        "fairnotice operation show 5c1e      # an id may be cut short",
        "fairnotice operation cancel 5c1e",
    )
    summary = "look at operations, announced by an event or not, and take them back"
    commands = group(subparsers, "operation", summary, lines)
    lines = ("fairnotice operation list", "fairnotice operation list --all")
    listing = leaf(commands, "list", _list, "the operations that are not over", lines)
    listing.add_argument("--all", action="store_true", help="also those of the last day")
    lines = ("fairnotice operation show 5c1e",)
    summary = "one operation: what it does to each VM, and the events that announce it"
    names(leaf(commands, "show", _show, summary, lines), "operations", many=False)
    lines = ("fairnotice operation cancel 5c1e",)
    summary = "take back what has not started, with all its events"
    cancel = leaf(commands, "cancel", _cancel, summary, lines)
    names(cancel, "operations", many=False, what=WHOLE_REQUEST)


# ---- Looking ----


def _list(session: Session) -> int:
    found = session.remote.everything("operations")
    operations = found["items"]
    if not session.options.all:
        found["items"] = [one for one in operations if one["ended_at"] is None]
    over = len(operations) - len(found["items"])

    def picture(found: dict[str, Any]) -> None:
        if found["items"]:
            rows = (_row(session, one) for one in found["items"])
            shown.say(shown.table(COLUMNS, rows, ("EVENTS",)))
        else:
            shown.say(shown.dim("Nothing is pending or under way."))
        if over:
            more = f"{shown.counted(over, 'operation')} of the last day, over: "
            shown.hint(f"{more}fairnotice operation list --all")

    return session.show(found, picture)


def _row(session: Session, operation: dict[str, Any]) -> tuple[shown.Cell, ...]:
    now = session.clock.wall()
    return (
        shown.short(operation["id"]),
        operation["kind"],
        shown.styled(operation["status"]),
        _on(operation),
        shown.not_before(operation, now, waiting=operation["status"] == "Pending"),
        str(len(operation["events"]) or ""),
    )


def _on(operation: dict[str, Any]) -> str:
    """`node-0: web-0, batch_0`, or the VMs alone."""
    where = f"{operation['node']}: " if operation["node"] else ""
    return f"{where}{shown.listed(operation['vms']) or 'nobody'}"


def _show(session: Session) -> int:
    name = session.remote.id_of("operations", session.options.name)
    operation = session.remote.get("v1", "operations", name)
    return session.show(operation, partial(_picture, session))


def _picture(session: Session, operation: dict[str, Any]) -> None:
    now = session.clock.wall()
    pending = operation["status"] == "Pending"
    shown.facts(
        headline(operation),
        (
            ("id", operation["id"]),
            ("request", operation["request"] if operation["request"] != operation["id"] else ""),
            ("rollout", operation["rollout"]),
            ("node", operation["node"]),
            ("asked by", operation["requested_by"]),
            ("asked", shown.when(operation["asked_at"], now)),
            ("not before", shown.not_before(operation, now, waiting=pending)),
            ("started", shown.when(operation["started_at"], now)),
            ("ended", shown.when(operation["ended_at"], now)),
            ("reason", operation["reason"]),
        ),
    )
    if operation["impacts"]:
        rows = (_impact(session, impact) for impact in operation["impacts"])
        shown.say("", shown.table(IMPACT_COLUMNS, rows))
    events(session, operation)
    if pending:
        shown.hint(f"Take it back: fairnotice operation cancel {shown.short(operation['id'])}")


def _impact(session: Session, impact: dict[str, Any]) -> tuple[shown.Cell, ...]:
    now = session.clock.wall()
    return (
        impact["vm"],
        impact["kind"],
        shown.styled(impact["status"]),
        shown.at(impact["begun_at"], now),
        shown.at(impact["ended_at"], now),
        impact["reason"],
    )


def events(session: Session, operation: dict[str, Any]) -> None:
    """The events that announce an operation, if any do."""
    found = [session.remote.get("v1", "events", name) for name in operation["events"]]
    if found:
        shown.say("", shown.events(found, session.clock.wall()))


def headline(operation: dict[str, Any]) -> Text:
    """`restart of web-0 · Pending`."""
    what = f"{operation['kind']} of {_on(operation)}"
    return shown.title(what, shown.styled(operation["status"]))


# ---- Taking back ----


def _cancel(session: Session) -> int:
    name = session.remote.id_of("operations", session.options.name)
    result = session.remote.post("v1", "operations", name, "cancel")

    def picture(result: dict[str, Any]) -> None:
        for name in result["operations"]:
            shown.say(headline(session.remote.get("v1", "operations", name)))
        for warning in result["warnings"]:
            shown.note(warning)

    return session.show(result, picture)
