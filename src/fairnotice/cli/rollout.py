"""`fairnotice rollout`: the same operation on many nodes, one update domain after another."""

from functools import partial
from typing import Any

from rich.text import Text

from fairnotice.cli import accepted, exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import length, window, window_in_words
from fairnotice.cli.parsing import Subparsers, from_one, from_zero, group, leaf, names
from fairnotice.cli.session import Session

IMPACTS = ("freeze", "reboot", "migrate", "repair", "evacuate")
COLUMNS = ("ROLLOUT", "WHAT", "STATUS", "PROGRESS", "", "FAILED", "ASKED")
BAR = 30
SMALL_BAR = 12
# The parts of a bar: colour, and a letter where there is none.
PARTS = (
    ("done", "green", "#"),
    ("failed", "red", "!"),
    ("skipped", "yellow", "-"),
    ("live", "magenta", "="),
)


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice rollout start node-0 node-1 node-2 --impact reboot --dry-run",
        "fairnotice rollout list",
        "fairnotice rollout show 5c1e      # an id may be cut short",
    )
    summary = "the same operation on many nodes, in an order that no scope feels twice"
    commands = group(subparsers, "rollout", summary, lines)
    _add_start(commands)
    leaf(commands, "list", _list, "every rollout", ("fairnotice rollout list",))
    lines = ("fairnotice rollout show 5c1e",)
    show = leaf(commands, "show", _show, "one rollout: how far it is, node by node", lines)
    names(show, "rollouts", many=False)
    for what, summary in (
        ("pause", "announce nothing new; what was promised goes on"),
        ("resume", "go on, with a fresh failure budget"),
        ("cancel", "take back what has not started; what has started ends"),
    ):
        parser = leaf(
            commands, what, partial(_steer, what), summary, (f"fairnotice rollout {what} 5c1e",)
        )
        names(parser, "rollouts", many=False)


def _add_start(commands: Subparsers) -> None:
    lines: tuple[str, ...] = (
        "fairnotice rollout start --all --impact reboot --dry-run",
        "fairnotice rollout start node-0 node-1 --impact freeze --duration 9",
        "fairnotice rollout start --all --impact evacuate --window 'Sat,Sun 22:00-04:00'",
    )
    start = leaf(commands, "start", _start, "begin a rollout", lines)
    action = names(start, "nodes", what="the nodes; or --all")
    action.nargs = "*"
    start.add_argument("--all", action="store_true", help="every node of the fleet")
    start.add_argument("--impact", choices=IMPACTS, default="freeze", help="what is done (freeze)")
    start.add_argument("--duration", type=from_one, metavar="SECONDS", help="of a freeze (9)")
    start.add_argument(
        "--window",
        type=window,
        action="append",
        default=[],
        metavar="'DAYS HH:MM-HH:MM'",
        help="only then, in UTC; may be given several times",
    )
    start.add_argument("--recovery", type=length, metavar="LENGTH", help="pause between domains")
    start.add_argument("--at-once", type=from_one, metavar="N", help="nodes at the same time")
    start.add_argument("--failure-budget", type=from_zero, metavar="N", help="failures it bears")
    start.add_argument("--dry-run", action="store_true", help="only say what it would do")


# ---- Starting ----


def _start(session: Session) -> int:
    options = session.options
    if options.all == bool(options.names):
        raise CommandFailed("Name the nodes, or give --all.", exits.WRONG_USAGE)
    nodes = options.names
    if options.all:
        nodes = [node["name"] for node in session.remote.everything("nodes")["items"]]
    given = {
        "duration_seconds": options.duration,
        "recovery_seconds": options.recovery and int(options.recovery.total_seconds()),
        "nodes_at_once_max": options.at_once,
        "failure_budget": options.failure_budget,
    }
    body = {key: value for key, value in given.items() if value is not None}
    body |= {"nodes": nodes, "impact": options.impact, "windows": options.window}
    return begin(session, body, dry_run=options.dry_run)


def begin(session: Session, body: dict[str, Any], *, dry_run: bool = False) -> int:
    """Start a rollout, or say what it would do."""
    result = session.remote.post("v1", "rollouts", body={**body, "dry_run": dry_run})
    return session.show(result, partial(_forecast if dry_run else _begun, session))


def _begun(session: Session, result: dict[str, Any]) -> None:
    name = result["id"]
    rollout = session.remote.get("v1", "rollouts", name)
    _picture(session, rollout)
    for warning in result["warnings"]:
        shown.note(warning)
    mine = {node["node"] for node in rollout["nodes"]}
    nodes = session.remote.everything("nodes")["items"]
    hit = [vm for node in nodes if node["name"] in mine for vm in node["vms"]]
    accepted.say_who_is_silent(session, hit, "is told")
    shown.hint(f"How far it is: fairnotice rollout show {name[: shown.SHORT]}")


def _forecast(session: Session, result: dict[str, Any]) -> None:
    now = session.clock.wall()
    shown.say(shown.title("A dry run", shown.dim("nothing has changed; if nobody approves early")))
    rows = (
        (
            node["node"],
            shown.at(node["announced_at"], now),
            shown.at(node["over_at"], now),
        )
        for node in result["order"]
    )
    if result["order"]:
        shown.say(shown.table(("NODE", "ANNOUNCED", "OVER"), rows))
    if result["in_the_way"]:
        whys = ((one["node"], _why(one["node"], one["why"])) for one in result["in_the_way"])
        shown.say("", shown.table(("IN THE WAY", "[WHY]"), whys), "")
    for warning in result["warnings"]:
        shown.note(warning)
    shown.say(_conclusion(result, shown.when(result["ends_at"], now)))


def _conclusion(result: dict[str, Any], ends: str | None) -> str:
    """What it all comes to, in one sentence."""
    ordered = {one["node"] for one in result["order"]}
    if ends:
        return f"Over at {ends}." if ordered else "Nothing would be done."
    in_the_way = [one["node"] for one in result["in_the_way"]]
    stuck = [node for node in in_the_way if node not in ordered] or in_the_way
    it = "It" if ordered else "Nothing would be done, and it"
    return f"{it} would not end by itself: see to {shown.listed(stuck)}."


# ---- Looking ----


def _list(session: Session) -> int:
    now = session.clock.wall()

    def picture(found: dict[str, Any]) -> None:
        if not found["items"]:
            shown.say(shown.dim("No rollouts. Try: fairnotice rollout start --all --dry-run"))
            return
        rows = (_row(one, shown.when(one["asked_at"], now)) for one in found["items"])
        shown.say(shown.table(COLUMNS, rows, ("PROGRESS", "ASKED")))

    return session.show(session.remote.everything("rollouts"), picture)


def _row(rollout: dict[str, Any], asked: str | None) -> tuple[shown.Cell, ...]:
    over, failed = _over(rollout), rollout["failed_count"]
    return (
        shown.short(rollout["id"]),
        rollout["kind"],
        shown.styled(rollout["status"]),
        _bar(rollout, SMALL_BAR),
        f"{over} of {rollout['node_count']}",
        Text(str(failed), style="bold red") if failed else None,
        asked,
    )


def _over(rollout: dict[str, Any]) -> int:
    counts = (rollout[f"{status}_count"] for status in ("done", "failed", "skipped"))
    return int(sum(counts))


def _bar(rollout: dict[str, Any], cells: int) -> Text:
    """How far it is: done, failed, skipped and live nodes, each in its colour."""
    bar, filled, counted = Text(), 0, 0
    for status, style, letter in PARTS:
        counted += rollout[f"{status}_count"]
        upto = round(cells * counted / max(rollout["node_count"], 1))
        bar.append((letter if shown.colourless() else "━") * (upto - filled), style=style)
        filled = upto
    return bar.append(("." if shown.colourless() else "━") * (cells - filled), style="bright_black")


def _show(session: Session) -> int:
    name = session.remote.id_of("rollouts", session.options.name)
    return session.show(session.remote.get("v1", "rollouts", name), partial(_picture, session))


def _picture(session: Session, rollout: dict[str, Any]) -> None:
    now = session.clock.wall()
    shown.say(
        shown.title(
            f"{rollout['kind']} of {shown.counted(rollout['node_count'], 'node')}",
            shown.styled(rollout["status"]),
            shown.dim(shown.short(rollout["id"])),
        )
    )
    share = _over(rollout) / max(rollout["node_count"], 1)
    line = Text("  ") + _bar(rollout, BAR)
    line.append(f"  {share:.0%}", style="bold")
    shown.say(line.append(f"   {_counts(rollout)}"))
    if rollout["reason"]:
        shown.note(f"  {rollout['reason']}")
    ended = rollout["ended_at"]
    words = f"ended {shown.when(ended, now)}" if ended else _limits(rollout)
    shown.say(shown.dim(f"  asked by {rollout['requested_by']}, {words}"), "")
    rows = (
        (
            f"  {node['node']}",
            shown.styled(node["status"]),
            _why(node["node"], node["reason"]),
        )
        for node in rollout["nodes"]
    )
    shown.say(shown.table(("  NODE", "STATUS", "[WHY]"), rows))


def _why(node: str, why: str) -> str:
    """Why, beside the name of a node, which need not be said again."""
    return why.removeprefix(f"{node} ")


def _counts(rollout: dict[str, Any]) -> str:
    statuses = ("done", "live", "failed", "skipped", "canceled")
    parts = ((rollout[f"{status}_count"], status) for status in statuses)
    told = [f"{number} {status}" for number, status in parts if number]
    return ", ".join(told) or "nothing begun yet"


def _limits(rollout: dict[str, Any]) -> str:
    windows = " or ".join(map(window_in_words, rollout["windows"]))
    return (
        f"{rollout['nodes_at_once_max']} at once, {rollout['recovery_seconds']} s of recovery, "
        f"pauses after {shown.counted(rollout['failure_budget'] + 1, 'failure')}"
    ) + (f", only {windows} UTC" if windows else "")


# ---- Steering ----


def _steer(what: str, session: Session) -> int:
    name = session.remote.id_of("rollouts", session.options.name)
    result = session.remote.post("v1", "rollouts", name, what)

    def picture(result: dict[str, Any]) -> None:
        for warning in result["warnings"]:
            shown.note(warning)
        _picture(session, session.remote.get("v1", "rollouts", name))

    return session.show(result, picture)
