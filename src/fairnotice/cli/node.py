"""`fairnotice node`: look at nodes, and maintain them. Several nodes at once are a rollout."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rich.text import Text

from fairnotice.cli import accepted, exits, operation, reports, rollout, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import instant, to_api
from fairnotice.cli.parsing import Subparsers, from_one, group, leaf, names
from fairnotice.cli.session import Session
from fairnotice.words import NodeState, Power

COLUMNS = ("NODE", "STATE", "FAULT DOMAIN", "SLOTS", "ENDPOINT", "LIVE", "[VMS]")
SPARE = ("FAULT DOMAIN", "SLOTS")
STYLES = {reports.FOLLOWS: "green", reports.SILENT: "red", reports.UNHEARD: "yellow"}
# What no VM feels.
UNFELT = ("cordon", "uncordon")


class Deed(NamedTuple):
    """What may be asked of nodes."""

    summary: str
    examples: tuple[str, ...]
    # Whether several nodes are a rollout, one after another, instead of all at once.
    rolled_out: bool = False


DEEDS = {
    "maintain": Deed(
        "freeze the VMs of a node, or reboot it, after notice",
        (
            "fairnotice node maintain node-0                        # freeze for 9 s",
            "fairnotice node maintain node-0 --impact reboot --not-before +1h",
            "fairnotice node maintain node-0 node-1 node-2          # a rollout, in order",
        ),
        rolled_out=True,
    ),
    "migrate": Deed(
        "live-migrate the VMs of a node, after notice",
        ("fairnotice node migrate node-0",),
        rolled_out=True,
    ),
    "repair": Deed(
        "repair a node in an emergency; its VMs are rebooted, after notice",
        ("fairnotice node repair node-3",),
        rolled_out=True,
    ),
    "predict-failure": Deed(
        "a node is going to fail: move its VMs away in time",
        (
            "fairnotice node predict-failure node-3 --risk high",
            "fairnotice node predict-failure node-3 --not-before +2d",
        ),
    ),
    "fail": Deed(
        "a node has failed, and its VMs surely do not run any more",
        (
            "fairnotice node fail node-3",
            "fairnotice node fail node-3 --yes     # asks nothing, though it still answers",
        ),
    ),
    "cordon": Deed("put no VM on a node", ("fairnotice node cordon node-5",)),
    "uncordon": Deed("return a node to service", ("fairnotice node uncordon node-5",)),
    "evacuate": Deed(
        "cordon a node and move its VMs away, after notice",
        ("fairnotice node evacuate node-0", "fairnotice node evacuate node-0 node-1  # a rollout"),
        rolled_out=True,
    ),
}

# Of a node's endpoint; where another control plane may know more, nobody says that it does not.
FOLLOWS = {True: "follows", False: "does not follow", None: "not followed here"}


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = ("fairnotice node list", "fairnotice node maintain node-0")
    summary = "look at nodes, and maintain them; several at once are a rollout"
    commands = group(subparsers, "node", summary, lines)
    leaf(commands, "list", _list, "every node", ("fairnotice node list",))
    lines = ("fairnotice node show node-0",)
    show = leaf(commands, "show", _show, "one node, its VMs and what is live there", lines)
    names(show, "nodes", many=False)
    lines = ("fairnotice node forget-endpoint node-0",)
    summary = "a node has no endpoint of its own any more: wait for it no longer"
    forget = leaf(commands, "forget-endpoint", _forget_endpoint, summary, lines)
    names(forget, "nodes", many=False)
    for what, deed in DEEDS.items():
        parser = leaf(commands, what, partial(_do, what), deed.summary, deed.examples)
        names(parser, "nodes")
        if what == "maintain":
            _add_maintain(parser)
        if what == "fail":
            parser.add_argument("--yes", action="store_true", help="do not ask")
        if what == "predict-failure":
            _add_prediction(parser)
        elif deed.rolled_out:
            _add_when(parser)


def _add_maintain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--impact", choices=("freeze", "reboot"), default="freeze")
    parser.add_argument(
        "--duration", type=from_one, metavar="SECONDS", help="how long VMs are frozen (9)"
    )


def _add_prediction(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--risk", choices=("low", "medium", "high"), help="how soon it is expected")
    how.add_argument("--not-before", type=instant, metavar="WHEN", help="2026-01-31T22:00Z or +2d")


def _add_when(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--not-before",
        type=instant,
        metavar="WHEN",
        help="of one node: 2026-01-31T22:00Z, or +15m; the notice is given in any case",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="of one node: although another domain of a scope is being worked on",
    )


# ---- Looking ----


def _list(session: Session) -> int:
    def picture(found: dict[str, Any]) -> None:
        if not found["items"]:
            shown.say(shown.dim("No nodes. Declare a fleet: fairnotice fleet apply FILE"))
            return
        has_any = any(node["endpoint"] for node in found["items"])
        told = session.remote.everything("endpoints")["items"] if has_any else []
        now = session.clock.wall()
        words = {one["node"]: reports.in_a_word(one, now) for one in told}
        rows = (_row(node, words.get(node["name"], "")) for node in found["items"])
        shown.say(shown.table(COLUMNS, rows, SPARE))

    return session.show(session.remote.everything("nodes"), picture)


def _row(node: dict[str, Any], endpoint: str) -> tuple[shown.Cell, ...]:
    live = len(node["operations"])
    return (
        node["name"],
        shown.styled(node["state"]),
        str(node["fault_domain"]),
        f"{node['used']} of {node['capacity']}",
        Text(endpoint, STYLES.get(endpoint, "")),
        shown.counted(live, "operation") if live else None,
        shown.listed(node["vms"]),
    )


def _show(session: Session) -> int:
    node = session.remote.get("v1", "nodes", session.options.name)
    return session.show(node, partial(_picture, session))


def _picture(session: Session, node: dict[str, Any]) -> None:
    words = [shown.styled(node["state"])]
    if node["cordoned"] and node["state"] != "cordoned":
        words.append(shown.styled("cordoned"))
    shown.facts(
        shown.title(node["name"], *words),
        (
            ("fault domain", str(node["fault_domain"])),
            ("slots", f"{node['used']} of {node['capacity']} used"),
            ("VMs", _vms(node)),
            ("endpoint", _endpoint(session, node)),
        ),
    )
    for name in node["operations"]:
        live = session.remote.get("v1", "operations", name)
        shown.say("", operation.headline(live))
        shown.say(shown.dim(f"  {name}"))
        operation.events(session, live)


def _vms(node: dict[str, Any]) -> str | None:
    """Its VMs; whoever waits to reboot the node is told which of them do not run any more."""
    return shown.listed(
        f"{name} ({Power.STOPPED})" if name in node["stopped"] else name for name in node["vms"]
    )


def _endpoint(session: Session, node: dict[str, Any]) -> str | None:
    """How the node's endpoint is, where it has one of its own."""
    if not node["endpoint"]:
        return None
    found = session.remote.get("v1", "endpoints", node["name"])
    words = [FOLLOWS[found["followed"]]]
    if found["heard_at"] is not None:
        words.append(f"reported {shown.at(found['heard_at'], session.clock.wall())}")
    if found["unconfirmed"]:
        words.append(f"has not confirmed {shown.counted(len(found['unconfirmed']), 'event')}")
    return ", ".join(words)


# ---- Doing ----


def _forget_endpoint(session: Session) -> int:
    name = session.options.name
    session.remote.get("v1", "endpoints", name)
    result = session.remote.delete("v1", "endpoints", name)
    return session.show(result, lambda _: shown.say(f"Nothing waits for the endpoint of {name}."))


def _do(what: str, session: Session) -> int:
    options = session.options
    if DEEDS[what].rolled_out and len(set(options.names)) > 1:
        return _roll_out(what, session)
    if what == "fail":
        _must_be_off(session)
    body = _bodies.get(what, _nothing)(session)
    # Looked at before: afterwards they may have gone elsewhere.
    hit = {} if what in UNFELT or session.json else _vms_on(session, options.names)

    def ask(name: str) -> dict[str, Any]:
        found: dict[str, Any] = session.remote.post("v1", "nodes", name, what, body=body)
        return found

    def tell(done: list[str], result: dict[str, Any]) -> None:
        accepted.picture(session, f"{shown.listed(done)}: {what}", result)
        told = {name for event in result["events"] for name in event["resources"]}
        untold = [name for name, node in hit.items() if node in done and name not in told]
        untold = [name for name in untold if _runs(session, name)]
        if untold:
            accepted.say_who_is_silent(session, untold)

    return accepted.for_each(session, "nodes", ask, tell)


def _must_be_off(session: Session) -> None:
    """Ask on a terminal: VMs of a node that runs would run twice. Fencing commands have none."""
    if session.options.yes or not sys.stdin.isatty():
        return
    for name in dict.fromkeys(session.options.names):
        state = session.remote.get("v1", "nodes", name)["state"]
        if state in (NodeState.UNREACHABLE, NodeState.FAILED):
            continue
        twice = "its VMs are started elsewhere, and would run twice if it is not"
        if not shown.agreed(f"{name} still answers: is it switched off? ({twice})"):
            raise CommandFailed("Nothing has changed.")


def _vms_on(session: Session, nodes: Sequence[str]) -> dict[str, str]:
    """The VMs on these nodes, and on which each is."""
    return {vm: name for name in nodes for vm in session.remote.get("v1", "nodes", name)["vms"]}


def _runs(session: Session, vm: str) -> bool:
    return bool(session.remote.get("v1", "vms", vm)["power"] == Power.RUNNING)


def _roll_out(what: str, session: Session) -> int:
    options = session.options
    if options.not_before is not None or options.force:
        sentence = (
            "--not-before and --force are for one node; several are a rollout. "
            "Give it a window: fairnotice rollout start --help"
        )
        raise CommandFailed(sentence, exits.WRONG_USAGE)
    body: dict[str, Any] = {"nodes": options.names, "impact": getattr(options, "impact", what)}
    if getattr(options, "duration", None) is not None:
        body["duration_seconds"] = options.duration
    return rollout.begin(session, body)


def _nothing(_: Session) -> dict[str, Any]:
    return {}


def _when(session: Session) -> dict[str, Any]:
    not_before = session.options.not_before
    return {} if not_before is None else {"not_before": to_api(not_before(session.clock.wall()))}


def _on_node(session: Session) -> dict[str, Any]:
    return _when(session) | ({"force": True} if session.options.force else {})


def _maintain(session: Session) -> dict[str, Any]:
    duration = session.options.duration
    lasting = {} if duration is None else {"duration_seconds": duration}
    return _on_node(session) | {"impact": session.options.impact} | lasting


def _prediction(session: Session) -> dict[str, Any]:
    risk = session.options.risk
    return _when(session) if risk is None else {"risk": risk}


_bodies: dict[str, Callable[[Session], dict[str, Any]]] = {
    "maintain": _maintain,
    "migrate": _on_node,
    "repair": _on_node,
    "evacuate": _on_node,
    "predict-failure": _prediction,
}
