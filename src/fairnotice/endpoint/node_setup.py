"""What a node needs so that its VMs find the endpoint, and are not taken for one another.

Done as often as one likes, and taken back exactly: what was there before is written down before it
is changed, so that a kill in between loses nothing.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnotice.endpoint import libvirt_places, node_rules, places
from fairnotice.endpoint.config import CLASSIC, METADATA
from fairnotice.endpoint.node_deeds import (
    Address,
    BridgeSetting,
    Deed,
    File,
    Kept,
    Line,
    Routes,
    Rules,
    Setting,
    run,
)
from fairnotice.errors import UsageError

RECORDS = Path("/var/lib/fairnotice-node")
# Whoever may read a folder may lock it, and hold up the hook: others may open what is in it alone.
_RECORDS_MODE = 0o711
INTERFACES = Path("/sys/class/net")
# No path of its own, no space, and no sign that means something to nft: as bridges are called.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
# Where dnsmasq looks for more of its configuration.
DNSMASQ_FILE = "fairnotice.conf"
HOOK_FILE = "qemu.d/50-fairnotice"
# For which bridge a hook of ours is, whatever its other flags are.
_HOOKED = re.compile(rf" fairnotice node-setup --bridge ({_NAME.pattern}) ")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator wants of a node."""

    bridge: str
    # What has the node's address, where that is not the bridge itself: br0.10.
    interface: str = ""
    classic: bool = True
    vms: Path = places.FILE
    records: Path = RECORDS
    # libvirt's own folder, and dnsmasq's; None: nothing is written there.
    hooks: Path | None = None
    dnsmasq: Path | None = None
    # Where libvirt keeps what it knows of domains; None: somebody else says who is where.
    domains: Path | None = libvirt_places.DOMAINS
    leases: Path = libvirt_places.LEASES

    @property
    def on(self) -> str:
        """The interface that has the addresses."""
        return self.interface or self.bridge

    @property
    def addresses(self) -> tuple[str, ...]:
        """At which VMs ask."""
        return (METADATA[0], CLASSIC) if self.classic else (METADATA[0],)


def checked(wanted: Wanted) -> Wanted:
    """The same; UsageError where there is no such bridge."""
    for name in (wanted.bridge, wanted.on):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of an interface that can be set up.")
    if not (INTERFACES / wanted.bridge).exists():
        raise UsageError(f"There is no interface {wanted.bridge} here. {_bridges()}")
    if not (INTERFACES / wanted.bridge / "bridge").is_dir():
        raise UsageError(f"{wanted.bridge} is no bridge. {_bridges()}")
    if not (INTERFACES / wanted.on).exists():
        raise UsageError(f"There is no interface {wanted.on} here.")
    return wanted


def _bridges() -> str:
    found = sorted(path.parent.name for path in INTERFACES.glob("*/bridge"))
    if found:
        return f"Bridges of this machine: {', '.join(found)}."
    return "This machine has no bridge: make one, or start a network of libvirt's."


# ---- What it needs ----


def deeds(wanted: Wanted) -> list[Deed]:
    """Everything, in the order in which it is done."""
    found: list[Deed] = [
        # First: at no moment is the address there and anybody's.
        _rules(wanted),
        BridgeSetting(wanted.bridge, "no_linklocal_learn", "1", _LEARNING_WHY),
        *(Setting(wanted.on, *one) for one in _SETTINGS),
        *(Address(wanted.on, address) for address in wanted.addresses),
    ]
    if wanted.hooks is not None:
        hook = wanted.hooks / HOOK_FILE
        found.append(File(hook, _hook(wanted, hook), _HOOK_WHY, 0o755))
    if wanted.dnsmasq is not None:
        found.append(File(wanted.dnsmasq / DNSMASQ_FILE, _dnsmasq(wanted), _DNSMASQ_WHY))
    return found


def _rules(wanted: Wanted) -> Rules:
    name = node_rules.table(wanted.bridge)
    text = node_rules.ruleset(wanted.bridge, wanted.on, wanted.addresses)
    return Rules((("bridge", name), ("inet", name)), text)


_SETTINGS = (
    ("rp_filter", "1", "what comes in is from where its answer would go"),
    ("arp_announce", "2", "VMs are asked for their hardware address from one of their own network"),
    ("arp_accept", "0", "nobody gets into the neighbour table by saying so unasked"),
    ("route_localnet", "0", "the node's loopback is not reached from VMs"),
)
# They are taken in before any rule is asked.
_LEARNING_WHY = "the bridge learns nothing from what switches say to one another"
_HOOK_WHY = "libvirt says which VM is plugged in where, whenever one starts or ends"
_DNSMASQ_WHY = "VMs outside of a virtual network are told by DHCP (option 245) where to ask"


def _hook(wanted: Wanted, file: Path) -> str:
    words = [sys.executable, "-m", "fairnotice", "node-setup", "--bridge", wanted.bridge]
    words += ["--vms", str(wanted.vms), "--record", str(wanted.records), "--refresh"]
    words += ["--hook", str(file)]
    command = shlex.join(words)
    return f"""\
#!/bin/sh
# Written by fairnotice node-setup. libvirt calls it with a domain's name and what becomes of it;
# whatever comes of it here, the domain goes its way, and what went wrong is in the system's log.
case "$2" in
    started | reconnect) {command} ;;
    stopped | release) {command} --without="$1" ;;
esac 2>&1 >/dev/null </dev/null | logger -t fairnotice-node
exit 0
"""


def _dnsmasq(wanted: Wanted) -> str:
    forced = f"dhcp-option-force=245,{CLASSIC if wanted.classic else METADATA[0]}"
    return f"# Written by fairnotice node-setup.\n{forced}\n"


def by_hand(wanted: Wanted) -> str:
    """What is left to a person: the endpoint's own file."""
    classic = f'classic_listen = "{CLASSIC}:80"\n' if wanted.classic else ""
    interface = f'interface = "{wanted.interface}"\n' if wanted.interface else ""
    return f"""\
# /etc/fairnotice/endpoint.toml
[metadata]
listen = "{METADATA[0]}:80"
{classic}
[network]
bridge = "{wanted.bridge}"
{interface}vms = "{wanted.vms}"
"""


def who_is_where(wanted: Wanted) -> Line:
    """The line that tells the packet filter what the file of places says."""
    known: places.Places = {}
    if wanted.vms.exists():
        known = places.read(wanted.vms)
    # Each time: a bridge whose hardware address nobody chose takes another with its ports.
    mac = (INTERFACES / wanted.bridge / "address").read_text("ascii").strip()
    here = dict.fromkeys(wanted.addresses, mac)
    return Line(("nft", "-f", "-"), node_rules.elements(wanted.bridge, known, here))


# ---- Done, and taken back ----


class Record:
    """What was done to this node, with what was there before; a file that root alone may write."""

    def __init__(self, wanted: Wanted) -> None:
        self.path = wanted.records / f"{wanted.bridge}.json"
        self.kept: dict[str, dict[str, Any]] = {}
        try:
            self.kept = json.loads(self.path.read_text("utf-8"))["deeds"]
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"{self.path}, the record of what was done, cannot be read: {error}."
            ) from error

    def keep(self, key: str, **what: Any) -> None:  # noqa: ANN401 - JSON
        """Write it down, on disk, before or after it is done."""
        self.kept[key] = {**self.kept.get(key, {}), **what}
        self._write()

    def forget(self, key: str) -> None:
        """It was taken back; with the last one the record itself is gone."""
        self.kept.pop(key, None)
        if self.kept:
            self._write()
        else:
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump({"deeds": self.kept}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}.") from error


Said = Callable[[str], None]


def missing(wanted: Wanted) -> list[Deed]:
    """What is not as it should be."""
    record = Record(wanted)
    return [one for one in deeds(wanted) if not one.is_done(_ours(record, one))]


def unwanted(wanted: Wanted, record: Record) -> list[tuple[str, Deed]]:
    """What the record has of other flags, the last first."""
    # Whoever writes the file of places now, it is needed.
    keys = {one.key for one in deeds(wanted)} | {Kept(wanted.vms, "", "").key}
    return [(key, deed) for key, deed in _backwards(record) if key not in keys]


def _ours(record: Record, deed: Deed) -> Any:  # noqa: ANN401 - JSON
    return record.kept.get(deed.key, {}).get("ours")


@contextlib.contextmanager
def alone(wanted: Wanted) -> Iterator[None]:
    """One at a time: of two hooks, the one that looked first must not write last."""
    # Without links: what is there by its name, and cannot be opened as a folder, is none.
    records = Path(os.path.realpath(wanted.records))
    try:
        folder = _held(records)
    except OSError as error:
        raise UsageError(f"{wanted.records} cannot be opened: {error.strerror}.") from error
    try:
        yield
    finally:
        # Gone with the last record, or where nothing came of it.
        with contextlib.suppress(OSError):
            records.rmdir()
        os.close(folder)


def _held(records: Path) -> int:
    """The folder of records, locked; never one that is gone by then, and that nobody else finds."""
    while True:
        with contextlib.suppress(FileExistsError):
            records.mkdir(_RECORDS_MODE, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            # Whoever leaves removes it: before it is opened here, or while this waits for it.
            folder = os.open(records, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            if _is_at(records, folder):
                return folder
            os.close(folder)


def _is_at(records: Path, folder: int) -> bool:
    try:
        return os.path.samestat(records.stat(), os.fstat(folder))
    except FileNotFoundError:
        return False


def apply(wanted: Wanted, said: Said) -> int:
    """Do what is missing; how much that was. Whatever was there already stays whose it was."""
    with alone(wanted):
        return _apply(wanted, said)


def _apply(wanted: Wanted, said: Said) -> int:
    record = Record(wanted)
    _alone_on_the_node(wanted, record)
    count = sum(_take_back(record, *one, said) for one in unwanted(wanted, record))
    for deed in deeds(wanted):
        if deed.is_done(_ours(record, deed)):
            continue
        count += 1
        # A setting that was ours and is not any more is another's, or of another boot.
        is_known = deed.key in record.kept and not isinstance(deed, Setting)
        before = record.kept[deed.key]["before"] if is_known else deed.before()
        record.keep(deed.key, before=before, ours=None, deed=_written(deed))
        for line in deed.lines():
            said(str(line))
            line.do()
        record.keep(deed.key, ours=deed.mark())
    if wanted.hooks is not None:
        # Those that run already were started without the hook.
        _look(wanted, record)
    line = who_is_where(wanted)
    if count:
        said(str(line))
    line.do()
    return count


def _alone_on_the_node(wanted: Wanted, record: Record) -> None:
    """UsageError where the node is set up for another bridge, recorded or typed by hand."""
    # The rules of each keep the VMs of the other from the endpoint, which checks one bridge.
    others = [path.stem for path in wanted.records.glob("*.json") if path != record.path]
    if others:
        raise UsageError(
            f"This node is set up for {others[0]} already, and a node has one bridge for its VMs: "
            f"undo that first (--bridge {others[0]} --undo)."
        )
    there = [one for one in _there(wanted) if one[0] != wanted.bridge]
    if there:
        other = there[0][0]
        what = ", ".join(what for bridge, what in there if bridge == other)
        raise UsageError(
            f"This node is set up for {other} already, without a record: {what}. A node has "
            f"one bridge for its VMs: take that away first (--bridge {other} --undo says how; "
            "rm takes away a hook)."
        )


def _there(wanted: Wanted) -> Iterator[tuple[str, str]]:
    """What there is of ours, whoever put it there: for which bridge, and what it is."""
    for line in run(("nft", "list", "tables")).splitlines():
        _, family, name, *_ = line.split()
        if name.startswith(node_rules.table("")):
            yield name.removeprefix(node_rules.table("")), f"the table {family} {name}"
    if wanted.hooks is not None:
        hook = wanted.hooks / HOOK_FILE
        with contextlib.suppress(OSError):
            found = _HOOKED.search(hook.read_text("utf-8", "replace"))
            if found is not None:
                yield found[1], f"the hook {hook}"


def undo(wanted: Wanted, said: Said) -> int:
    """Take back what the record has, last first; how much that was."""
    with alone(wanted):
        record = Record(wanted)
        try:
            return sum(_take_back(record, *one, said) for one in _backwards(record))
        except UsageError as error:
            # Nothing after it is tried: rules stay for as long as the addresses that they protect.
            left = ", ".join(key for key, _ in _backwards(record))
            raise UsageError(
                f"{error} Not undone yet: {left}. Once that is mended, "
                f"run it again (--bridge {wanted.bridge} --undo)."
            ) from error


def _take_back(record: Record, key: str, deed: Deed, said: Said) -> int:
    if isinstance(deed, Routes):
        return _put_back(record, deed, said)
    kept = record.kept[key]
    lines = deed.undoing(kept["before"], kept["ours"] or deed.mark())
    # They go with the last address of an interface, and whoever is killed then has them on disk.
    beside = Routes.beside(deed) if lines and isinstance(deed, Address) else None
    if beside is not None:
        record.keep(beside.key, before=None, ours=None, deed=_written(beside))
    for line in lines:
        said(str(line))
        line.do()
    count = len(lines) + (0 if beside is None else _put_back(record, beside, said))
    record.forget(key)
    return count


def _put_back(record: Record, deed: Routes, said: Said) -> int:
    lines = deed.undoing(None, None)
    for line in lines:
        said(str(line))
        try:
            line.do()
        except UsageError as error:
            # Its interface is down or gone by now, or somebody has another route there.
            said(f"# {error}")
    record.forget(deed.key)
    return len(lines)


def _backwards(record: Record) -> list[tuple[str, Deed]]:
    """The last first; but what the hook writes is last, when there is no hook to write it."""
    found = [(key, _read(kept["deed"])) for key, kept in reversed(record.kept.items())]
    return sorted(found, key=lambda one: isinstance(one[1], Kept))


def refresh(wanted: Wanted, without: str = "", hook: Path | None = None) -> int:
    """Write the file of places anew from libvirt, and tell the packet filter; how many VMs.

    For a `hook` that is gone nothing is done: it waited here while everything was taken back.
    """
    with alone(wanted):
        if hook is None or hook.exists():
            record = Record(wanted)
            _look(wanted, record, without)
            # Rules that were typed by hand are to know it as well.
            if record.kept or _rules(wanted).shown():
                who_is_where(wanted).do()
    known = places.read(wanted.vms) if wanted.vms.exists() else {}
    return len(known.keys() - {places.NOBODY})


def _look(wanted: Wanted, record: Record, without: str = "") -> None:
    """Write the file as libvirt has it; where it keeps nothing, what others wrote stays."""
    if wanted.domains is None or not wanted.domains.is_dir():
        return
    found = libvirt_places.places(wanted.bridge, wanted.domains, wanted.leases, without)
    text = places.written(found)
    file = Kept(wanted.vms, text, "")
    # Once, and again where it is gone with the boot that had it.
    if record.kept and not (file.key in record.kept and wanted.vms.exists()):
        record.keep(file.key, before=file.before(), ours=None, deed=_written(file))
    _replace(wanted.vms, text)


def _replace(path: Path, text: str) -> None:
    """All of it or nothing: an endpoint may look at any moment."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(text, "utf-8")
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


# ---- Deeds as the record has them: an undo needs no flags, and no version that did them ----


def _written(deed: Deed) -> list[Any]:
    if isinstance(deed, Address):
        return ["address", deed.interface, deed.address]
    if isinstance(deed, BridgeSetting):
        return ["bridge", deed.interface, deed.name, deed.value]
    if isinstance(deed, Setting):
        return ["setting", deed.interface, deed.name, deed.value]
    if isinstance(deed, Rules):
        return ["rules", [list(one) for one in deed.tables], deed.text]
    if isinstance(deed, Routes):
        return ["routes", deed.interface, list(deed.routes)]
    assert isinstance(deed, File)  # there are no others
    if isinstance(deed, Kept):
        return ["kept", str(deed.file)]
    return ["file", str(deed.file), deed.text, deed.mode]


def _read(kept: list[Any]) -> Deed:
    kind, *more = kept
    if kind == "address":
        return Address(more[0], more[1])
    if kind in {"setting", "bridge"}:
        interface, name, value = more
        return (Setting if kind == "setting" else BridgeSetting)(interface, name, value, "")
    if kind == "routes":
        return Routes(more[0], tuple(more[1]))
    if kind == "rules":
        return Rules(tuple((family, name) for family, name in more[0]), more[1])
    if kind == "kept":
        return Kept(Path(more[0]), "", "")
    return File(Path(more[0]), more[1], "", more[2])
