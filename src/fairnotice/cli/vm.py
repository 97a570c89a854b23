"""`fairnotice vm`: look at VMs, and do to them what a user may."""

from functools import partial
from typing import Any

from fairnotice.cli import accepted, exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import instant, to_api
from fairnotice.cli.parsing import Subparsers, group, leaf, names
from fairnotice.cli.session import Session
from fairnotice.words import Priority

COLUMNS = ("VM", "POWER", "SCOPE", "NODE", "DOMAIN", "PRIORITY", "NOW", "EVENTS")
SPARE = ("PRIORITY", "DOMAIN")

# What may be asked of a VM: (what it does, examples).
DEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "restart": (
        "reboot VMs, after notice",
        (
            "fairnotice vm restart web-0",
            "fairnotice vm restart web-0 web-1 --not-before +10m",
        ),
    ),
    "redeploy": (
        "move VMs to other nodes, after notice",
        (
            "fairnotice vm redeploy db",
            "fairnotice vm redeploy db --not-before 2026-01-31T22:00Z",
        ),
    ),
    "evict": ("take Spot VMs away, after notice", ("fairnotice vm evict spot_0",)),
    "delete": (
        "delete VMs; only those of a scale set with terminate notice are told first",
        ("fairnotice vm delete batch_3",),
    ),
    "stop": ("stop VMs; they keep their place", ("fairnotice vm stop db",)),
    "start": ("start VMs that are stopped", ("fairnotice vm start db",)),
    "deallocate": ("stop VMs and give up their place", ("fairnotice vm deallocate db",)),
}


# What all VMs of a scope are told of beforehand, where one of them listens.
ANNOUNCED = ("restart", "redeploy", "evict")
SEVERAL = """its name. Several VMs are one request: all of them or, where one is refused, none"""


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines = ("fairnotice vm list", "fairnotice vm show web-0", "fairnotice vm restart web-0")
    commands = group(subparsers, "vm", "look at VMs, and do to them what a user may", lines)
    listing = ("fairnotice vm list", "fairnotice vm list --json | jq -r '.items[].name'")
    leaf(commands, "list", _list, "every VM", listing)
    show = leaf(commands, "show", _show, "one VM and its events", ("fairnotice vm show web-0",))
    names(show, "vms", many=False)
    for what, (summary, examples) in DEEDS.items():
        parser = leaf(commands, what, partial(_do, what), summary, examples)
        names(parser, "vms", what=SEVERAL)
        if what in ("restart", "redeploy"):
            parser.add_argument(
                "--not-before",
                type=instant,
                metavar="WHEN",
                help="2026-01-31T22:00Z, or +15m; the notice is given in any case",
            )


def _list(session: Session) -> int:
    def picture(found: dict[str, Any]) -> None:
        rows = found["items"]
        if not rows:
            shown.say(shown.dim("No VMs. Declare a fleet: fairnotice fleet apply FILE"))
            return
        shown.say(shown.table(COLUMNS, (_row(vm) for vm in rows), SPARE))

    return session.show(session.remote.everything("vms"), picture)


def _row(vm: dict[str, Any]) -> tuple[shown.Cell, ...]:
    domain = vm["update_domain"]
    return (
        vm["name"],
        shown.styled(vm["power"]),
        vm["scope"],
        vm["node"],
        None if domain is None else str(domain),
        vm["priority"],
        vm["impact"],
        shown.listed(shown.short(event) for event in vm["events"]),
    )


def _show(session: Session) -> int:
    vm = session.remote.get("v1", "vms", session.options.name)
    return session.show(vm, partial(_picture, session))


def _picture(session: Session, vm: dict[str, Any]) -> None:
    zone = f", zone {vm['zone']}" if vm["zone"] else ""
    tags = shown.listed(f"{key}={value}" for key, value in vm["tags"].items())
    shown.facts(
        shown.title(vm["name"], shown.styled(vm["power"])),
        (
            ("computer name", vm["computer_name"] if vm["computer_name"] != vm["name"] else None),
            ("scope", vm["scope"]),
            ("node", f"{vm['node']} (fault domain {vm['fault_domain']})" if vm["node"] else None),
            ("update domain", _text(vm["update_domain"])),
            ("priority", vm["priority"] + _eviction(vm)),
            ("addresses", shown.listed(vm["addresses"])),
            ("network", vm["network"] + zone),
            ("resource group", vm["resource_group"]),
            ("tags", tags),
            ("under way", vm["impact"]),
        ),
    )
    if vm["events"]:
        events = [session.remote.get("v1", "events", name) for name in vm["events"]]
        shown.say("", shown.events(events, session.clock.wall()))


def _eviction(vm: dict[str, Any]) -> str:
    return f", when evicted: {vm['eviction_policy']}" if vm["priority"] == "Spot" else ""


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _do(what: str, session: Session) -> int:
    not_before = getattr(session.options, "not_before", None)
    body = {} if not_before is None else {"not_before": to_api(not_before(session.clock.wall()))}
    vms = list(dict.fromkeys(session.options.names))
    try:
        result = session.remote.post("v1", f"vms:{what}", body={**body, "vms": vms})
    except CommandFailed as refused:
        if len(vms) == 1 or refused.code == exits.UNREACHABLE:
            raise
        sentence = f"{refused} So nothing is done to any of the {len(vms)} VMs."
        raise CommandFailed(sentence, refused.code) from refused

    def picture(result: dict[str, Any]) -> None:
        title = f"{shown.listed(vms)}: {what}"
        accepted.picture(session, title, result, nothing="nothing to be done")
        _say_who_was_not_told(session, what, vms, result)

    return session.show(result, picture)


def _say_who_was_not_told(
    session: Session, what: str, done: list[str], result: dict[str, Any]
) -> None:
    """Why no event announces it to some of these VMs."""
    told = {name for event in result["events"] for name in event["resources"]}
    untold = [name for name in done if name not in told]
    if what == "delete" and untold:
        noticed = _with_terminate_notice(session)
        untold = [name for name in untold if name in noticed]
    elif what not in ANNOUNCED:
        return
    if not untold:
        return
    accepted.say_who_is_silent(session, untold)


def _with_terminate_notice(session: Session) -> set[str]:
    """The VMs that are told before they are deleted; Spot VMs never are."""
    scale_sets = session.remote.everything("scale-sets")["items"]
    noticed = (one for one in scale_sets if one["terminate_notice_minutes"] is not None)
    vms = session.remote.everything("vms")["items"]
    spot = {vm["name"] for vm in vms if vm["priority"] == Priority.SPOT}
    return {name for one in noticed for name in one["vms"]} - spot
