"""`fairnotice libvirt`: say of domains which VMs they are, and make a fleet file of them."""

import argparse
import asyncio
import shlex
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fairnotice.cli import exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.output_files import must_be_new
from fairnotice.cli.parsing import TAKES_MORE, Subparsers, alone, group
from fairnotice.cli.serve import FILE
from fairnotice.cli.serve_config import read
from fairnotice.cli.session import Session
from fairnotice.clock import SystemClock
from fairnotice.control import private_files
from fairnotice.control.fleet_body import FleetBody, NodeBody, ScaleSetBody, SetBody, VmBody
from fairnotice.control.fleet_files import to_toml
from fairnotice.drivers.libvirt import labels
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.errors import FairnoticeError, UsageError

DEFAULT_URI = "qemu:///system"
Labeled = tuple[tuple[str, str, Label], ...]
Set = TypeVar("Set", SetBody, ScaleSetBody)


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice libvirt label web-0 availability_set=web update_domain=0",
        "fairnotice libvirt fleet --output fleet.toml",
    )
    summary = "label domains of libvirt, and make a fleet of those that are"
    commands = group(subparsers, "libvirt", summary, lines)
    lines = (
        "fairnotice libvirt label web-0 availability_set=web update_domain=0",
        "fairnotice libvirt label web-0                      # what it says now",
        "fairnotice libvirt label web-0 update_domain=       # no longer given",
        "fairnotice libvirt label web-0 addresses='10.0.0.4 10.0.0.5' ephemeral_disks=vdb",
        "fairnotice libvirt label web-0 zone=1 --connect qemu+ssh://node-0/system",
        "fairnotice libvirt label web-0 --remove",
    )
    label = alone(commands, "label", _label, "say of a domain which VM it is", lines)
    setattr(label, TAKES_MORE, "fields")
    label.add_argument("domain", metavar="DOMAIN", help="the domain, by its name")
    what = f"none: show what is there. An empty value: no longer given. {', '.join(labels.FIELDS)}"
    label.add_argument("fields", metavar="FIELD=VALUE", nargs="*", help=what)
    label.add_argument(
        "--connect", metavar="URI", default=DEFAULT_URI, help=f"its libvirtd; default {DEFAULT_URI}"
    )
    label.add_argument("--remove", action="store_true", help="it is no VM of a fleet any more")
    lines = (
        "fairnotice libvirt fleet --output fleet.toml && fairnotice fleet apply fleet.toml",
        "fairnotice libvirt fleet --output fleet.toml --force",
    )
    fleet = alone(commands, "fleet", _fleet, "a fleet file of all domains that are labeled", lines)
    fleet.add_argument("--config", metavar="FILE", default=FILE, help=f"default {FILE}")
    what = "make this file, for its owner, once all of it is known; left out, it is printed"
    fleet.add_argument("--output", metavar="FILE", help=what)
    fleet.add_argument("--force", action="store_true", help="replace a file that is there")


def _label(options: argparse.Namespace) -> int:
    fields = _given(options.fields)
    if options.remove and fields:
        raise UsageError("Give fields, or --remove.")
    domain, host, libvirt = _domain(options.connect, options.domain)
    if options.domain in (host.LEDGER, host.DEFINITIONS):
        raise UsageError(f"{options.domain} is no VM: fairnotice itself remembers there.")
    try:
        if options.remove:
            host.set_label(domain, None)
            print(f"{options.domain} is no VM of a fleet any more.")
            return exits.DONE
        xml = domain.XMLDesc(0)
        there = labels.fields_in(xml)
        if fields:
            label = _changed(options, there or {}, fields, xml)
            host.set_label(domain, label)
            there = labels.fields_of(label)
    except libvirt.libvirtError as error:
        raise CommandFailed(f"libvirt refuses it: {error}.") from error
    return _shown(options, there)


def _shown(options: argparse.Namespace, there: dict[str, str] | None) -> int:
    """Show the label as it is written, and what is wrong with it."""
    if there is None:
        # Without a name: a clone of the domain would say that it is the same VM.
        command = _command(options, {"addresses": "ADDRESS"})
        print(f"{options.domain} has no label: it is no VM of a fleet. Give it one: {command}")
        return exits.DONE
    shown.facts(options.domain, list({"name": options.domain, **there}.items()))
    wrong = labels.understood(there)[1]
    if wrong:
        raise CommandFailed(_unreadable(options, wrong, {}))
    return exits.DONE


def _unreadable(options: argparse.Namespace, wrong: dict[str, str], fields: dict[str, str]) -> str:
    """What is wrong with the label that is there; the one command that mends that, with these."""
    said = " ".join(dict.fromkeys(wrong.values()))
    command = _command(options, {**fields, **dict.fromkeys(wrong, "")})
    how = f"Drop that, or give it another value: {command}"
    return f"The label that {options.domain} has cannot be read: {said} {how}"


def _command(options: argparse.Namespace, fields: dict[str, str]) -> str:
    """A whole command that labels this domain so."""
    words = (f"{name}={value}" for name, value in fields.items())
    label = ("fairnotice", "libvirt", "label", options.domain, *words)
    return shlex.join((*label, "--connect", options.connect))


def _given(texts: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for text in texts:
        name, value = _field(text)
        if name in fields:
            raise UsageError(f"{name} is given twice: several values have spaces between.")
        fields[name] = value
    return fields


def _changed(
    options: argparse.Namespace, there: dict[str, str], fields: dict[str, str], xml: str
) -> Label:
    """The label with these fields; one that is empty is no longer given."""
    # What is typed has to be right by itself; to be dropped, an unknown field has to be there.
    known = {*labels.FIELDS, *there}
    labels.label_of({k: v for k, v in fields.items() if v or k not in known})
    label, wrong = labels.understood({k: v for k, v in {**there, **fields}.items() if v})
    before = labels.understood(there)[1]
    old = {name: why for name, why in wrong.items() if name in before}
    if old:
        raise UsageError(_unreadable(options, old, fields))
    for sentence in wrong.values():
        raise UsageError(sentence)
    if label.update_domain is not None and not label.is_in_a_set:
        remedy = "name the set of this one too, or drop it (update_domain=)"
        raise UsageError(f"update_domain is for VMs of a set: {remedy}.")
    from fairnotice.drivers.libvirt import disks  # noqa: PLC0415 - it needs libvirt's library

    if "ephemeral_disks" in fields:
        found = {disk.device: disk for disk in disks.disks_in(xml)}
        for device in label.ephemeral_disks:
            if device not in found or not found[device].name:
                can_be = ", ".join(name for name, disk in found.items() if disk.name) or "none"
                raise UsageError(
                    f"ephemeral_disks cannot be {device!r}: it has no such disk that is a file "
                    f"or a volume. It has {can_be}."
                )
    return label


def _field(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise UsageError(f"{text!r} is no FIELD=VALUE: {', '.join(labels.FIELDS)}.")
    return name, value


def _domain(uri: str, name: str) -> tuple[Any, Any, Any]:
    """The domain; and what is there only where libvirt's library is."""
    import libvirt  # noqa: PLC0415

    from fairnotice.drivers.libvirt import host  # noqa: PLC0415

    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        return libvirt.open(uri).lookupByName(name), host, libvirt
    except libvirt.libvirtError as error:
        raise CommandFailed(f"{uri} does not give {name}: {error}.") from error


# ---- A fleet of them ----


def _fleet(options: argparse.Namespace) -> int:
    path = None if options.output is None else Path(options.output)
    if path is not None:
        must_be_new(path, force=options.force)
    elif options.force:
        raise UsageError("--force replaces the file of --output: name one.")
    config = read(Path(options.config))
    if config.driver.kind != "libvirt":
        raise UsageError(f"{options.config}: driver.kind is {config.driver.kind}, not libvirt")
    labeled = asyncio.run(_labeled(config.driver.libvirt))
    fleet = _with_what_is_declared(fleet_of(tuple(config.driver.nodes), labeled))
    if path is None:
        print(to_toml(fleet), end="")
    else:
        private_files.write(path, to_toml(fleet).encode())
        print(f"{path}: nodes: {len(fleet.node)}, VMs: {len(fleet.vm)}")
    return exits.DONE


def _with_what_is_declared(made: FleetBody) -> FleetBody:
    """The same with what no label says, as the fleet has it now; and a word on whence that is."""
    # `--config` is the file of `serve` here, and not the settings of the command line.
    session = Session(argparse.Namespace())
    where = "the control plane"
    try:
        where = session.remote.url
        declared = msgspec.convert(session.remote.get("v1", "fleet"), FleetBody)
    except (FairnoticeError, msgspec.ValidationError) as error:
        shown.note(f"{where} does not say what is declared now: {error}")
        declared = FleetBody()
    if declared.node:
        shown.note(f"Fault domains, capacities, policies and tags are those declared at {where}.")
    else:
        shown.note(
            "Fault domains and capacities are not known to libvirt: each node has a domain of its "
            "own here, and room for 16 VMs. Say in the file what fails together and what fits."
        )
    return kept(made, declared)


async def _labeled(settings: Any) -> Labeled:  # noqa: ANN401 - of a room that may not be imported here
    from fairnotice.drivers.libvirt.driver import LibvirtDriver  # noqa: PLC0415

    driver = LibvirtDriver(settings, SystemClock())
    try:
        found = await driver.labels()
    finally:
        await driver.close()
    return tuple((one.vm, one.node or "", label) for one, label in found)


def fleet_of(nodes: tuple[str, ...], labeled: Labeled) -> FleetBody:
    """What a fleet file declares: every node, every set that a label names, every VM."""
    sets = sorted({label.availability_set for *_, label in labeled} - {""})
    services = sorted({label.cloud_service for *_, label in labeled} - {""})
    groups: dict[str, int] = {}
    for *_, label in labeled:
        if label.scale_set:
            most = max(groups.get(label.scale_set, 1), label.placement_group + 1)
            groups[label.scale_set] = most
    return FleetBody(
        # Each a fault domain of its own: what else they share nobody here knows.
        node=[NodeBody(name=name, fault_domain=at) for at, name in enumerate(nodes)],
        availability_set=[SetBody(name=name) for name in sets],
        cloud_service=[SetBody(name=name) for name in services],
        scale_set=[
            ScaleSetBody(name=name, placement_groups=groups[name]) for name in sorted(groups)
        ],
        vm=[_vm(vm, node, label) for vm, node, label in sorted(labeled)],
    )


def kept(made: FleetBody, declared: FleetBody) -> FleetBody:
    """What libvirt says, with what only people know as it was declared."""
    nodes = {node.name: node for node in declared.node}
    domain = count(max((node.fault_domain for node in declared.node), default=-1) + 1)
    groups = {one.name: one.placement_groups for one in made.scale_set}
    vms = {vm.name: vm for vm in declared.vm}
    return FleetBody(
        node=[
            nodes.get(node.name) or replace(node, fault_domain=next(domain)) for node in made.node
        ],
        availability_set=_as_declared(made.availability_set, declared.availability_set),
        cloud_service=_as_declared(made.cloud_service, declared.cloud_service),
        scale_set=[
            replace(one, placement_groups=groups[one.name])
            for one in _as_declared(made.scale_set, declared.scale_set)
        ],
        vm=[_with_tags(vm, vms.get(vm.name)) for vm in made.vm],
    )


def _as_declared(made: list[Set], declared: list[Set]) -> list[Set]:
    known = {one.name: one for one in declared}
    return [known.get(one.name, one) for one in made]


def _with_tags(vm: VmBody, declared: VmBody | None) -> VmBody:
    if declared is None:
        return vm
    alone = not (vm.availability_set or vm.scale_set or vm.cloud_service)
    # In a set the policy is the set's.
    policy = declared.automatically_approve if alone else []
    return replace(vm, tags=declared.tags, automatically_approve=policy)


def _vm(vm: str, node: str, label: Label) -> VmBody:
    spec = label.spec(vm, node)
    return VmBody(
        name=vm,
        node=spec.node or None,
        availability_set=spec.availability_set,
        scale_set=spec.scale_set,
        cloud_service=spec.cloud_service,
        placement_group=spec.placement_group,
        update_domain=spec.update_domain,
        addresses=list(spec.addresses),
        network=spec.network,
        zone=spec.zone,
        priority=spec.priority,
        eviction_policy=spec.eviction_policy,
        resource_group=spec.resource_group,
    )
