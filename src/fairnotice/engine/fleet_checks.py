"""What a fleet specification must be before it is compared with the fleet."""

from collections.abc import Iterable

from fairnotice.engine.commands import FleetSpec, VmSpec
from fairnotice.engine.notice import TERMINATE_NOTICE_MINUTES_MAX, TERMINATE_NOTICE_MINUTES_MIN
from fairnotice.engine.refusal import Code, refuse
from fairnotice.words import EventType

NAME_LENGTH_MAX = 200


def check_spec(spec: FleetSpec) -> None:
    """Refuse what cannot be a fleet, whatever the fleet is now."""
    _check_names("node", (node.name for node in spec.nodes))
    _check_names("availability set", (wanted.name for wanted in spec.availability_sets))
    _check_names("scale set", (wanted.name for wanted in spec.scale_sets))
    _check_names("cloud service", (wanted.name for wanted in spec.cloud_services))
    _check_names("VM", (vm.name for vm in spec.vms))
    for node in spec.nodes:
        if node.capacity < 1:
            _invalid(f"{node.name} needs room for at least one VM.", "Give a capacity from 1 on.")
        if node.fault_domain < 0:
            _invalid(f"{node.name} has fault domain {node.fault_domain}.", "Count from 0.")
    for scale_set in spec.scale_sets:
        check_notice(scale_set.terminate_notice_minutes)
        check_policy(scale_set.automatically_approve)
        if scale_set.placement_groups < 1:
            _invalid(f"{scale_set.name} needs a placement group.", "Give at least 1.")
    for wanted in (*spec.availability_sets, *spec.cloud_services):
        check_policy(wanted.automatically_approve)
    for vm in spec.vms:
        check_policy(vm.automatically_approve)
    _check_vms(spec)
    _check_addresses(spec)


def _check_names(what: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if not name or len(name) > NAME_LENGTH_MAX or "/" in name or not name.isprintable():
            article = "an" if what.startswith("a") else "a"
            why = f"{name!r} is no name for {article} {what}."
            _invalid(why, "Use up to 200 printable characters, but no slash.")

        if name in seen:
            _invalid(f"There are two {what}s {name}.", "Give each its own name.")
        seen.add(name)


def _check_vms(spec: FleetSpec) -> None:
    nodes = {node.name for node in spec.nodes}
    sets = {
        "availability_set": {wanted.name for wanted in spec.availability_sets},
        "scale_set": {wanted.name for wanted in spec.scale_sets},
        "cloud_service": {wanted.name for wanted in spec.cloud_services},
    }
    groups = {wanted.name: wanted.placement_groups for wanted in spec.scale_sets}
    for vm in spec.vms:
        if vm.node is not None and vm.node not in nodes:
            _invalid(f"{vm.name} is on {vm.node}, which is no node.", "Declare the node too.")
        named = [what for what in sets if getattr(vm, what) is not None]
        if len(named) > 1:
            _invalid(f"{vm.name} is in {' and '.join(named)}.", "Name one set at the most.")
        for what in named:
            if getattr(vm, what) not in sets[what]:
                _invalid(f"{vm.name} is in an unknown {what}.", "Declare the set too.")
        if not 0 <= vm.placement_group < groups.get(vm.scale_set or "", 1):
            _invalid(f"{vm.name} has no placement group {vm.placement_group}.", "Count from 0.")
        _check_update_domain(vm, standalone=not named)


def _check_update_domain(vm: VmSpec, *, standalone: bool) -> None:
    if vm.update_domain is None:
        return
    if standalone:
        _invalid(f"{vm.name} is standalone and has no update domain.", "Leave it out.")
    if vm.update_domain < 0:
        _invalid(f"{vm.name} has update domain {vm.update_domain}.", "Count from 0.")


def _check_addresses(spec: FleetSpec) -> None:
    """A VM is known by its address: who shares one would be told the other's events."""
    known: dict[str, str] = {}
    for vm in spec.vms:
        for address in vm.addresses:
            if known.get(address) == vm.name:
                _invalid(f"{vm.name} has the address {address} twice.", "Name it once.")
            if address in known:
                why = f"{known[address]} and {vm.name} have the same address {address}."
                _invalid(why, "Give each its own address.")
            known[address] = vm.name


def check_notice(minutes: int | None) -> None:
    """Rule 2: terminate notice is 5 to 15 minutes, or none at all."""
    low, high = TERMINATE_NOTICE_MINUTES_MIN, TERMINATE_NOTICE_MINUTES_MAX
    if minutes is not None and not low <= minutes <= high:
        refuse(
            Code.INVALID,
            f"{minutes} minutes is no terminate notice.",
            f"Give {low} to {high} minutes.",
            rule=2,
        )


def check_policy(automatically_approve: tuple[EventType, ...]) -> None:
    """Rule 18: only a user's Reboot and Redeploy are approved by policy."""
    for event_type in automatically_approve:
        if event_type not in (EventType.REBOOT, EventType.REDEPLOY):
            refuse(
                Code.INVALID,
                f"{event_type} cannot be approved automatically.",
                "Choose among Reboot and Redeploy.",
                rule=18,
            )


def _invalid(why: str, remedy: str) -> None:
    refuse(Code.INVALID, why, remedy, rule=21)
