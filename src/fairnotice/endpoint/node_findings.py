"""What is to be said of a node beside its deeds: nothing of it is changed here."""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path

from fairnotice.endpoint import libvirt_places, places
from fairnotice.endpoint.node_deeds import (
    Address,
    Deed,
    File,
    Line,
    Routes,
    Rules,
    Setting,
    run,
)
from fairnotice.endpoint.node_setup import (
    HOOK_FILE,
    INTERFACES,
    Record,
    Wanted,
    deeds,
    missing,
    unwanted,
)
from fairnotice.endpoint.places import NOBODY, Place, Places
from fairnotice.endpoint.vouching import Network, Tables
from fairnotice.errors import OutOfSight

# Of the daemon that calls hooks, whole or split: written when it starts (virpidfile.c).
PIDS = tuple(map(Path, ("/run/libvirtd.pid", "/run/virtqemud.pid", "/run/libvirt/libvirtd.pid")))

# Of more VMs it is said how many: one route mends them all.
NAMED_MAX = 3


def missing_in_sight(wanted: Wanted) -> list[Deed]:
    """What is missing; OutOfSight where something is only not seen by whoever asks."""
    # It is asked for that alone: whoever may not look at tables is shown none.
    run(("nft", "list", "tables"), failure=OutOfSight)
    left = missing(wanted)
    if any(isinstance(one, Rules) and one.shown() for one in left):
        # They may be right, as it is seen in a network of one's own.
        run(("unshare", "--net", "true"), failure=OutOfSight)
    for path in (wanted.vms, *_kept_by_libvirt(wanted)):
        try:
            path.open("rb").close()
        except PermissionError as error:
            raise OutOfSight(f"{path} cannot be read: {error.strerror}.") from error
        except OSError:
            # A folder, or not there: that is seen as well.
            continue
    return left


def _kept_by_libvirt(wanted: Wanted) -> list[Path]:
    """From what it is said who is where."""
    if wanted.domains is None:
        return []
    domains = sorted(wanted.domains.glob("*.xml"))
    return [wanted.domains, *domains, wanted.leases / f"{wanted.bridge}.status"]


def overruled(wanted: Wanted) -> list[str]:
    """What makes settings void; others may rely on it, so it is only said."""
    settings = [one for one in deeds(wanted) if isinstance(one, Setting)]
    return [why for one in settings if (why := one.overruled())]


def left_over(wanted: Wanted) -> list[str]:
    """What was done for other flags, and is not wanted any more."""
    return [key for key, _ in unwanted(wanted, Record(wanted))]


def seen_by_others(wanted: Wanted) -> list[str]:
    """Ports of VMs that see each other's frames. Only their owners know whether they may."""
    known = places.read(wanted.vms) if wanted.vms.exists() else {}
    ports = sorted({one.port for found in known.values() for one in found})
    seen = [port for port in ports if not _is_isolated(port)]
    return seen if len(seen) > 1 else []


def nobodys(wanted: Wanted) -> list[str]:
    """Ports of domains that are no VMs: answered 403. Only their owners know whether they are."""
    known = places.read(wanted.vms) if wanted.vms.exists() else {}
    return sorted({one.port for one in known.get(NOBODY, ())})


def _is_isolated(port: str) -> bool:
    try:
        return (INTERFACES / port / "brport" / "isolated").read_text("ascii").strip() == "1"
    except OSError:
        # No port of a bridge, so nobody's frames are there.
        return True


def out_of_place(wanted: Wanted) -> list[str]:
    """VMs that libvirt has elsewhere than the file of places does: they are answered 403."""
    if wanted.domains is None or not wanted.domains.is_dir():
        return []
    found = libvirt_places.places(wanted.bridge, wanted.domains, wanted.leases)
    told: Places = places.read(wanted.vms) if wanted.vms.exists() else {}
    return [_difference(*one) for one in _differing(found, told)]


def _differing(found: Places, told: Places) -> Iterator[tuple[str, set[Place], set[Place]]]:
    for name in sorted(found.keys() | told.keys()):
        here, there = set(found.get(name, ())), set(told.get(name, ()))
        if here != there:
            yield name, here, there


def _difference(name: str, found: set[Place], told: set[Place]) -> str:
    who, are, have = name, "is", "has"
    if name == NOBODY:
        who, are, have = "domains that are no VMs by their labels", "are", "have"
    here, there = _ports(found), _ports(told)
    if here == there:
        return f"{who} at {here} {have} other hardware or addresses for libvirt than in the file"
    return f"{who} {are} at {here} for libvirt, and at {there} in the file"


def _ports(found: set[Place]) -> str:
    return ", ".join(sorted(one.port for one in found)) or "no port"


def not_answered(wanted: Wanted) -> str:
    """VMs no answer to which would leave by their bridge, and what to do; empty where all would.

    What they ask is dropped before the endpoint sees it (rp_filter), so nothing else says so. A VM
    may have addresses in other networks beside: one here is enough. Only IPv4 is asked for, as at
    the addresses that are set up here.
    """
    told: Places = places.read(wanted.vms) if wanted.vms.exists() else {}
    with closing(Tables(Network(wanted.bridge, wanted.on))) as tables:
        found = [
            f"{', '.join(addresses)} ({name})"
            for name, here in sorted(told.items())
            if name != NOBODY
            and (addresses := _version_four(here))
            and not any(_leads_to_the_vms(tables, one) for one in addresses)
        ]
    if not found:
        return ""
    more = len(found) - NAMED_MAX
    named = ", ".join(found[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return (
        f"answers to {named} would not leave by {wanted.on}: give it an address in the VMs' "
        f"network, or a route there (ip route add NETWORK dev {wanted.on})"
    )


def _version_four(found: Iterable[Place]) -> list[str]:
    told = {address for place in found for address in place.addresses if ":" not in address}
    return sorted(told, key=IPv4Address)


def _leads_to_the_vms(tables: Tables, address: str) -> bool:
    try:
        return tables.leads_to_the_vms(address)
    except OSError:
        # A route that says no (unreachable, prohibit, blackhole).
        return False


def not_called(wanted: Wanted, pids: Iterable[Path] = PIDS) -> str:
    """The daemon that runs since before its hook was there; empty where none does.

    It may have had ours from the beginning, taken away and put back since: that is not known.
    """
    if wanted.hooks is None:
        return ""
    for pid in pids:
        try:
            finds_it = _had_a_hook(wanted.hooks, pid.stat().st_mtime_ns)
            is_there = Path("/proc", str(int(pid.read_text("ascii")))).exists()
        except (OSError, ValueError):
            continue
        if is_there and not finds_it:
            return pid.stem
    return ""


def _had_a_hook(hooks: Path, started: int) -> bool:
    """Whether libvirt found a hook for VMs when it started: then it calls all, also later ones."""
    ours = hooks / HOOK_FILE
    # What is written anew in its place was there before: its folder shows nothing of it.
    if min(ours.stat().st_mtime_ns, ours.parent.stat().st_mtime_ns) <= started:
        return True
    others = {hooks / "qemu", *ours.parent.iterdir()} - {ours}
    # By when it came here, whatever time its package gave it.
    return any(_is_run(one) and one.stat().st_ctime_ns <= started for one in others)


def _is_run(hook: Path) -> bool:
    return hook.is_file() and os.access(hook, os.X_OK)


def unrecorded(wanted: Wanted) -> list[Line] | None:
    """What would take away what nobody recorded; None where something is recorded.

    Whose that is, is not known: it was done by hand, or was there before anything was done.
    """
    if Record(wanted).kept:
        return None
    all_of_it = deeds(wanted)
    lines = [line for deed in reversed(all_of_it) for line in _without(deed)]
    ours = [one for one in all_of_it if isinstance(one, Address) and one.is_done(None)]
    # With the last address of an interface its routes go, whoever's they are.
    return [*lines, *(Routes.beside(ours[0]).lines() if ours else ())]


def _without(deed: Deed) -> list[Line]:
    if isinstance(deed, File):
        return deed.undoing({"text": None, "folders": []}, deed.text)
    if isinstance(deed, Rules):
        return deed.undoing("", None)
    # A setting may have been so from the beginning.
    return deed.undoing(None, None) if isinstance(deed, Address) else []
