"""What a fleet specification must be before it is compared with the fleet."""

from collections.abc import Iterable

from fairnotice.engine.notice import TERMINATE_NOTICE_MINUTES_MAX, TERMINATE_NOTICE_MINUTES_MIN
from fairnotice.engine.refusal import misfit
from fairnotice.engine.specs import FleetSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.words import EventType

NAME_LENGTH_MAX = 200


def check_spec(spec: FleetSpec) -> None:
    """Refuse what cannot be a fleet, whatever the fleet is now."""
    _check_names("node", "node", (node.name for node in spec.nodes))
    sets: dict[str, tuple[SetSpec | ScaleSetSpec, ...]] = {
        "availability_set": spec.availability_sets,
        "scale_set": spec.scale_sets,
        "cloud_service": spec.cloud_services,
    }
    for table, wanted in sets.items():
        _check_names(table, table.replace("_", " "), (one.name for one in wanted))
    _check_names("vm", "VM", (vm.name for vm in spec.vms))
    _check_nodes(spec)
    for number, scale_set in enumerate(spec.scale_sets):
        field = f"scale_set[{number}]"
        check_notice(scale_set.terminate_notice_minutes, f"{field}.terminate_notice_minutes")
        if scale_set.placement_groups < 1:
            why = f"{scale_set.name} needs a placement group."
            misfit(f"{field}.placement_groups", why, "Give at least 1.", rule=21)
    approving: dict[str, tuple[SetSpec | ScaleSetSpec | VmSpec, ...]] = {**sets, "vm": spec.vms}
    for table, ones in approving.items():
        for number, one in enumerate(ones):
            check_policy(one.automatically_approve, f"{table}[{number}].automatically_approve")
    _check_vms(spec)
    _check_addresses(spec)


def _check_nodes(spec: FleetSpec) -> None:
    for number, node in enumerate(spec.nodes):
        if node.capacity < 1:
            why = f"{node.name} needs room for at least one VM."
            misfit(f"node[{number}].capacity", why, "Give a capacity from 1 on.", rule=21)
        if node.fault_domain < 0:
            why = f"{node.name} has fault domain {node.fault_domain}."
            misfit(f"node[{number}].fault_domain", why, "Count from 0.", rule=21)


def _check_names(table: str, what: str, names: Iterable[str]) -> None:
    seen = set()
    for number, name in enumerate(names):
        field = f"{table}[{number}].name"
        if not name or len(name) > NAME_LENGTH_MAX or "/" in name or not name.isprintable():
            article = "an" if what.startswith("a") else "a"
            why = f"{name!r} is no name for {article} {what}."
            misfit(field, why, "Use up to 200 printable characters, but no slash.", rule=21)

        if name in seen:
            why = f"There are two {what}s {name}."
            misfit(field, why, "Give each its own name.", rule=21)
        seen.add(name)


def _check_vms(spec: FleetSpec) -> None:
    nodes = {node.name for node in spec.nodes}
    sets = {
        "availability_set": {wanted.name for wanted in spec.availability_sets},
        "scale_set": {wanted.name for wanted in spec.scale_sets},
        "cloud_service": {wanted.name for wanted in spec.cloud_services},
    }
    groups = {wanted.name: wanted.placement_groups for wanted in spec.scale_sets}
    for number, vm in enumerate(spec.vms):
        field = f"vm[{number}]"
        if vm.node is not None and vm.node not in nodes:
            why = f"{vm.name} is on {vm.node}, which is no node."
            misfit(f"{field}.node", why, "Declare the node too.", rule=21)
        named = [what for what in sets if getattr(vm, what) is not None]
        if len(named) > 1:
            why = f"{vm.name} is in {' and '.join(named)}."
            misfit(f"{field}.{named[-1]}", why, "Name one set at the most.", rule=21)
        for what in named:
            if getattr(vm, what) not in sets[what]:
                why = f"{vm.name} is in an unknown {what}."
                misfit(f"{field}.{what}", why, "Declare the set too.", rule=21)
        if not 0 <= vm.placement_group < groups.get(vm.scale_set or "", 1):
            why = f"{vm.name} has no placement group {vm.placement_group}."
            misfit(f"{field}.placement_group", why, "Count from 0.", rule=21)
        _check_update_domain(vm, f"{field}.update_domain", standalone=not named)


def _check_update_domain(vm: VmSpec, field: str, *, standalone: bool) -> None:
    if vm.update_domain is None:
        return
    if standalone:
        why = f"{vm.name} is standalone and has no update domain."
        misfit(field, why, "Leave update_domain out.", rule=21)
    if vm.update_domain < 0:
        why = f"{vm.name} has update domain {vm.update_domain}."
        misfit(field, why, "Count from 0.", rule=21)


def _check_addresses(spec: FleetSpec) -> None:
    """A VM is known by its address: who shares one would be told the other's events."""
    known: dict[str, str] = {}
    for number, vm in enumerate(spec.vms):
        field = f"vm[{number}].addresses"
        for address in vm.addresses:
            if known.get(address) == vm.name:
                why = f"{vm.name} has the address {address} twice."
                misfit(field, why, "Name it once.", rule=21)
            if address in known:
                why = f"{known[address]} and {vm.name} have the same address {address}."
                misfit(field, why, "Give each its own address.", rule=21)
            known[address] = vm.name


def check_notice(minutes: int | None, field: str) -> None:
    """Rule 2: terminate notice is 5 to 15 minutes, or none at all."""
    low, high = TERMINATE_NOTICE_MINUTES_MIN, TERMINATE_NOTICE_MINUTES_MAX
    if minutes is not None and not low <= minutes <= high:
        why = f"{minutes} minutes is no terminate notice."
        misfit(field, why, f"Give {low} to {high} minutes.", rule=2)


def check_policy(automatically_approve: tuple[EventType, ...], field: str) -> None:
    """Rule 18: only a user's Reboot and Redeploy are approved by policy."""
    for event_type in automatically_approve:
        if event_type not in (EventType.REBOOT, EventType.REDEPLOY):
            why = f"{event_type} cannot be approved automatically."
            misfit(field, why, "Choose among Reboot and Redeploy.", rule=18)
