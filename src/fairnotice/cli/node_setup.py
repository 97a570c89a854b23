"""`fairnotice node-setup`: what a node needs for its VMs to be answered; printed, done, undone."""

import argparse
import json
import os
import shlex
from pathlib import Path
from typing import Any

from fairnotice.cli import exits
from fairnotice.cli.parsing import Subparsers, alone
from fairnotice.endpoint import libvirt_places, node_findings, node_setup, places
from fairnotice.endpoint.node_deeds import Deed
from fairnotice.endpoint.node_setup import Wanted
from fairnotice.errors import OutOfSight, UsageError

EXAMPLES = (
    "fairnotice node-setup --bridge br0             # print what is to be done, for a shell",
    "fairnotice node-setup --bridge br0 --apply     # do what is missing; may be repeated",
    "fairnotice node-setup --bridge br0 --check     # say what is missing; exit code 1 if any is",
    "fairnotice node-setup --bridge br0 --undo      # take back exactly what was done",
    "fairnotice node-setup --bridge br0 --refresh   # say anew which VM is plugged in where",
)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    summary = "what a node needs for its VMs to be answered: print, do, undo"
    parser = alone(subparsers, "node-setup", run, summary, EXAMPLES)
    parser.add_argument("--bridge", metavar="NAME", required=True, help="the bridge of the VMs")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--apply", action="store_true", help="do what is missing (root)")
    how.add_argument("--undo", action="store_true", help="take back what was done (root)")
    how.add_argument("--check", action="store_true", help="say what is missing (root)")
    how.add_argument(
        "--refresh",
        action="store_true",
        help="write the file of places from libvirt's domains, and tell the packet filter (root)",
    )
    parser.add_argument(
        "--interface",
        metavar="NAME",
        default="",
        help="what has the addresses, on top of the bridge: br0.10 (the bridge)",
    )
    parser.add_argument(
        "--no-classic", action="store_true", help="without 168.63.129.16 and DHCP option 245"
    )
    parser.add_argument(
        "--vms",
        metavar="FILE",
        type=Path,
        default=places.FILE,
        help=f"the file of places ({places.FILE})",
    )
    libvirt = parser.add_mutually_exclusive_group()
    libvirt.add_argument(
        "--no-libvirt", action="store_true", help="another program writes the file of places"
    )
    libvirt.add_argument(
        "--libvirt-hooks",
        metavar="DIR",
        type=Path,
        help="folder of libvirt's hooks; a hook that keeps the file of places is put there "
        "(/etc/libvirt/hooks, if there)",
    )
    parser.add_argument(
        "--dnsmasq",
        metavar="DIR",
        type=Path,
        help="folder of dnsmasq's configuration: /etc/dnsmasq.d",
    )
    parser.add_argument(
        "--record",
        metavar="DIR",
        type=Path,
        default=node_setup.RECORDS,
        help=f"folder that records what was done ({node_setup.RECORDS})",
    )
    leave_out = "with --refresh: leave out this domain, which is ending"
    parser.add_argument("--without", metavar="DOMAIN", default="", help=leave_out)
    caller = "with --refresh: the hook that calls; does nothing once this file is gone"
    parser.add_argument("--hook", metavar="FILE", type=Path, help=caller)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    """Do what was asked for; the exit code."""
    wanted = _wanted(options)
    if options.apply or options.undo or options.refresh:
        _as_root()
    if options.undo:
        # Also where the bridge is gone already: its rules are not.
        return _undo(options, wanted)
    node_setup.checked(wanted)
    if options.refresh:
        count = node_setup.refresh(wanted, options.without, options.hook)
        return _say(options, {"vms": count}, f"{count} VMs have their place in {wanted.vms}.")
    if options.apply:
        return _apply(options, wanted)
    if options.check:
        return _check(options, wanted)
    return _print(options, wanted)


def _wanted(options: argparse.Namespace) -> Wanted:
    hooks = options.libvirt_hooks
    if hooks is None and not options.no_libvirt and libvirt_places.HOOKS.parent.is_dir():
        hooks = libvirt_places.HOOKS
    return Wanted(
        bridge=options.bridge,
        interface=options.interface,
        classic=not options.no_classic,
        vms=options.vms.absolute(),
        records=options.record.absolute(),
        hooks=None if hooks is None else hooks.absolute(),
        dnsmasq=None if options.dnsmasq is None else options.dnsmasq.absolute(),
        domains=None if options.no_libvirt else libvirt_places.DOMAINS,
    )


def _at_once(line: str) -> None:
    """What fails after it is said after it, wherever both are written to."""
    print(line, flush=True)


def _as_root() -> None:
    if os.geteuid():
        raise UsageError("Only root may change the network of a node: sudo fairnotice node-setup …")


def _apply(options: argparse.Namespace, wanted: Wanted) -> int:
    lines: list[str] = []
    node_setup.apply(wanted, lines.append if options.json else _at_once)
    daemon = node_findings.not_called(wanted)
    if options.json:
        found = {"bridge": wanted.bridge, "done": lines, "restart": daemon or None}
        print(json.dumps(found, indent=2))
        return exits.DONE
    but = node_findings.overruled(wanted)
    but += filter(None, [node_findings.not_answered(wanted)])
    if daemon:
        # It is always so when the hook has just been written: nothing of this has failed.
        but.append(_restart(daemon))
    print(f"# {wanted.bridge} is as it should be" + (", but:" if but else "."))
    print("".join(f"# {why}.\n" for why in but), end="")
    return exits.DONE


def _restart(daemon: str) -> str:
    return (
        f"{daemon} runs since before its hook was written, and looks for hooks when it starts: "
        "until it is restarted, VMs that start or arrive may be answered 403 "
        f"(systemctl restart {daemon}: domains go on running)"
    )


def _undo(options: argparse.Namespace, wanted: Wanted) -> int:
    left = node_findings.unrecorded(wanted)
    lines: list[str] = []
    node_setup.undo(wanted, lines.append if options.json else _at_once)
    there = [str(line) for line in left or ()]
    if options.json:
        found = {"bridge": wanted.bridge, "undone": lines, "recorded": left is None}
        print(json.dumps({**found, "still_there": there}, indent=2))
    elif left is None:
        print(f"# What was done for {wanted.bridge} is undone.")
    else:
        print(f"# Nothing is recorded for {wanted.bridge}, so nothing was undone.", end=" ")
        print("Only what --apply did is recorded, not what was typed by hand.")
        if there:
            print("# Still there, whoever put it there; what would take it away:")
            print("\n".join(f"#   {line}" for line in there))
    return exits.DONE


def _missing(wanted: Wanted) -> list[Deed]:
    """By whoever has what it takes to look: of what is out of sight, nothing is said."""
    try:
        return node_findings.missing_in_sight(wanted)
    except OutOfSight as error:
        if not os.geteuid():
            raise
        why = str(error).splitlines()[0].rstrip(".")
        raise UsageError(
            f"{why}. Only root can look at all of it: sudo fairnotice node-setup …"
        ) from error


def _check(options: argparse.Namespace, wanted: Wanted) -> int:
    left, over = _missing(wanted), node_findings.left_over(wanted)
    lines = [f"missing: {one.why} ({one.key})" for one in left]
    void = node_findings.overruled(wanted)
    lines += [f"overruled: {why}." for why in void]
    lines += [f"left over from other flags: {key}" for key in over]
    out = node_findings.out_of_place(wanted)
    lines += [f"out of place: {why} ({wanted.vms})." for why in out]
    if out:
        lines.append(
            f"--refresh puts that right; the hook, or fairnotice-places@{wanted.bridge}.path, "
            "should have."
        )
    silent = node_findings.not_answered(wanted)
    if silent:
        lines.append(f"not answered: {silent}.")
    daemon = node_findings.not_called(wanted)
    if daemon:
        lines.append(f"not called: {_restart(daemon)}.")
    lines = lines or [f"{wanted.bridge} is as it should be."]
    found: dict[str, Any] = {"bridge": wanted.bridge}
    found["missing"] = [{"key": d.key, "why": d.why} for d in left]
    found["overruled"], found["left_over"], found["out_of_place"] = void, over, out
    found["not_answered"] = silent or None
    found["restart"] = daemon or None
    found["nobodys"] = node_findings.nobodys(wanted)
    if found["nobodys"]:
        ports = ", ".join(found["nobodys"])
        lines.append(
            f"by the way: whoever is at these ports is nobody, and answered 403: {ports}. A domain "
            "is a VM by its label; of one that cannot be read, journalctl -t fairnotice-node tells."
        )
    found["not_isolated"] = node_findings.seen_by_others(wanted)
    if found["not_isolated"]:
        seen = ", ".join(found["not_isolated"])
        lines.append(f"by the way: VMs at these ports see each other's frames: {seen}.")
    _say(options, found, "\n".join(lines))
    return exits.REFUSED if left or over or void or out or silent or daemon else exits.DONE


def _print(options: argparse.Namespace, wanted: Wanted) -> int:
    all_of_it = node_setup.deeds(wanted)
    steps = [
        {"key": one.key, "why": one.why, "lines": [str(line) for line in one.lines()]}
        for one in all_of_it
    ]
    steps.append(
        {
            "key": "who is where",
            "why": f"the packet filter knows what {wanted.vms} says",
            "lines": [str(node_setup.who_is_where(wanted))],
        }
    )
    by_hand = node_setup.by_hand(wanted)
    refresh = shlex.join(_refreshing(wanted))
    if options.json:
        found = {"bridge": wanted.bridge, "steps": steps, "endpoint_toml": by_hand}
        print(json.dumps({**found, "refresh": refresh}, indent=2))
        return exits.DONE
    for step in steps:
        print(f"# {step['why']}")
        print("\n".join(step["lines"]), end="\n\n")
    print("# Typed by hand, nothing of that is recorded: --undo takes back what --apply did.\n")
    print("# By hand in any case: the endpoint is told where its VMs are.")
    print("\n".join(f"# {line}".rstrip() for line in by_hand.splitlines()))
    print("#\n# And once the lines above are typed, it is said which VM is plugged in where:")
    print(f"# {refresh}")
    return exits.DONE


def _refreshing(wanted: Wanted) -> list[str]:
    """What fills the file of places and the tables, where no --apply does it."""
    words = ["fairnotice", "node-setup", "--bridge", wanted.bridge, "--refresh"]
    if wanted.vms != places.FILE:
        words += ["--vms", str(wanted.vms)]
    if wanted.records != node_setup.RECORDS:
        words += ["--record", str(wanted.records)]
    return words if wanted.domains is not None else [*words, "--no-libvirt"]


def _say(options: argparse.Namespace, found: dict[str, Any], sentence: str) -> int:
    print(json.dumps(found, indent=2) if options.json else sentence)
    return exits.DONE
