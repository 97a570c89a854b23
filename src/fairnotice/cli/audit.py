"""`fairnotice audit`: who asked the control plane for what, and what came of it."""

from functools import partial
from typing import Any

from fairnotice.cli import shown
from fairnotice.cli.instants import length, to_api
from fairnotice.cli.parsing import Subparsers, from_one, leaf
from fairnotice.cli.remote import PAGE
from fairnotice.cli.session import Session

COLUMNS = ("WHEN", "WHO", "FROM", "STATUS", "[WHAT]", "[OPERATIONS]")


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    lines = ("fairnotice audit", "fairnotice audit --who ann --since 2h", "fairnotice audit --json")
    summary = "say who asked the control plane for what, the newest first"
    parser = leaf(subparsers, "audit", _run, summary, lines)
    parser.add_argument("--who", metavar="NAME", help="only of this token: its name or its id")
    parser.add_argument("--since", type=length, metavar="2h", help="only of the last so long")
    parser.add_argument("--limit", type=from_one, default=50, metavar="50", help="at most so many")


def _run(session: Session) -> int:
    options = session.options
    query: dict[str, Any] = {}
    if options.who is not None:
        query["who"] = options.who
    if options.since is not None:
        query["since"] = to_api(session.clock.wall() - options.since)
    items: list[Any] = []
    after: str | None = ""
    while after is not None and len(items) < options.limit:
        limit = min(PAGE, options.limit - len(items))
        part = session.remote.get("v1", "audit", limit=limit, after=after, **query)
        items += part["items"]
        after = part["next"]
    return session.show({"items": items, "next": after}, partial(_picture, session))


def _picture(session: Session, found: dict[str, Any]) -> None:
    if not found["items"]:
        shown.say(shown.dim(_nothing(session)))
        return
    now = session.clock.wall()
    rows = (
        (
            shown.at(line["at"], now),
            _who(line),
            line["source"],
            str(line["status"]),
            _what(line),
            ", ".join(map(shown.short, line["operations"])),
        )
        for line in found["items"]
    )
    shown.say(shown.table(COLUMNS, rows))
    if found["next"] is not None:
        shown.hint("There is more: fairnotice audit --limit 1000")


def _nothing(session: Session) -> str:
    """Why there is nothing to show: a name that nobody has must not look like innocence."""
    who = session.options.who
    if who is None:
        return (
            "Nobody has asked for anything, as far as is written down. A control plane that asks "
            "nobody who he is (fairnotice up) writes nothing down."
        )
    tokens = session.remote.everything("tokens")["items"]
    if any(who in (token["name"], token["id"]) for token in tokens):
        return f"{who} has asked for nothing, as far as is written down."
    return f"There is no token {who}, and nothing is written down of one."


def _who(line: dict[str, Any]) -> str:
    """`ann`; `ann (revoked)` where the token was hers and did not count any more."""
    name = line["name"] or "nobody known"
    return f"{name} ({line['lapsed']})" if line["lapsed"] else name


def _what(line: dict[str, Any]) -> str:
    left_out = line["left_out"]
    before = f" (and {left_out:,} such before it)" if left_out else ""
    return f"{line['method']} {line['path']}{before}"
