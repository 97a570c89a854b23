"""`fairnotice scale-set`: look at scale sets, scale them in, set their terminate notice."""

import argparse
from typing import Any

from fairnotice.cli import accepted, shown
from fairnotice.cli.instants import MINUTE, seconds_in_words
from fairnotice.cli.parsing import Subparsers, from_one, group, leaf, names
from fairnotice.cli.session import Session
from fairnotice.engine.notice import TERMINATE_NOTICE_MINUTES_MAX, TERMINATE_NOTICE_MINUTES_MIN

COLUMNS = ("SCALE SET", "PRIORITY", "TERMINATE NOTICE", "GROUPS", "INSTANCES", "[VMS]")


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice scale-set list",
        "fairnotice scale-set scale-in batch --count 1",
    )
    summary = "look at scale sets, scale them in, set their terminate notice"
    commands = group(subparsers, "scale-set", summary, lines)
    leaf(commands, "list", _list, "every scale set", ("fairnotice scale-set list",))
    lines = ("fairnotice scale-set show batch",)
    show = leaf(commands, "show", _show, "one scale set and its instances", lines)
    names(show, "scale-sets", many=False)
    lines = ("fairnotice scale-set scale-in batch --count 2",)
    scale_in = leaf(commands, "scale-in", _scale_in, "delete the newest instances", lines)
    names(scale_in, "scale-sets", many=False)
    scale_in.add_argument("--count", type=from_one, required=True, metavar="N", help="how many go")
    lines = (
        "fairnotice scale-set set-terminate-notice batch 10",
        "fairnotice scale-set set-terminate-notice batch off",
    )
    summary = "how long before their deletion instances are told"
    notice = leaf(commands, "set-terminate-notice", _set_notice, summary, lines)
    names(notice, "scale-sets", many=False)
    notice.add_argument("minutes", type=_minutes, metavar="MINUTES|off", help="5 to 15, or off")


def _minutes(text: str) -> int | None:
    if text == "off":
        return None
    low, high = TERMINATE_NOTICE_MINUTES_MIN, TERMINATE_NOTICE_MINUTES_MAX
    if not (text.isascii() and text.isdecimal()) or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"give {low} to {high} minutes, or off, not {text!r}")
    return int(text)


def _list(session: Session) -> int:
    def picture(found: dict[str, Any]) -> None:
        if found["items"]:
            rows = (_row(one) for one in found["items"])
            shown.say(shown.table(COLUMNS, rows, ("GROUPS", "INSTANCES")))
        else:
            shown.say(shown.dim("No scale sets."))

    return session.show(session.remote.everything("scale-sets"), picture)


def _row(scale_set: dict[str, Any]) -> tuple[shown.Cell, ...]:
    return (
        scale_set["name"],
        scale_set["priority"],
        _notice(scale_set),
        str(scale_set["placement_groups"]),
        str(len(scale_set["vms"])),
        shown.listed(scale_set["vms"]),
    )


def _notice(scale_set: dict[str, Any]) -> str:
    minutes, seconds = scale_set["terminate_notice_minutes"], scale_set["terminate_notice_seconds"]
    if minutes is None:
        return "off"
    given = seconds_in_words(seconds)
    return given if seconds == minutes * MINUTE else f"{given} (for {minutes} min)"


def _show(session: Session) -> int:
    def picture(scale_set: dict[str, Any]) -> None:
        shown.facts(
            shown.title(scale_set["name"], shown.counted(len(scale_set["vms"]), "instance")),
            (
                ("priority", scale_set["priority"]),
                ("terminate notice", _notice(scale_set)),
                ("placement groups", str(scale_set["placement_groups"])),
                ("resource group", scale_set["resource_group"]),
                ("VMs", shown.listed(scale_set["vms"])),
            ),
        )

    return session.show(session.remote.get("v1", "scale-sets", session.options.name), picture)


def _scale_in(session: Session) -> int:
    name, count = session.options.name, session.options.count
    result = session.remote.post("v1", "scale-sets", name, "scale-in", body={"count": count})
    what = f"{name}: {shown.counted(count, 'instance')} fewer"
    return session.show(result, lambda result: accepted.picture(session, what, result))


def _set_notice(session: Session) -> int:
    name, minutes = session.options.name, session.options.minutes
    body = {"terminate_notice_minutes": minutes}
    result = session.remote.patch("v1", "scale-sets", name, body=body)

    def picture(result: dict[str, Any]) -> None:
        changed = session.remote.get("v1", "scale-sets", name)
        accepted.picture(session, f"{name}: terminate notice {_notice(changed)}", result)

    return session.show(result, picture)
