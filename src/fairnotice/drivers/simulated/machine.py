"""What each impact does to a VM, as PRODUCT.md, "What each impact does", has it."""

from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from fairnotice.drivers.driver import Order
from fairnotice.words import ImpactKind, Power

# Memory and open files stay, nothing runs.
PAUSING = frozenset({ImpactKind.FREEZE, ImpactKind.MIGRATE})


class Machine(NamedTuple):
    """A VM as somebody who stands in the machine room sees it."""

    vm: str
    node: str | None
    # Another one means that memory was lost: what /proc/sys/kernel/random/boot_id shows.
    boot_id: str
    power: Power = Power.RUNNING
    # Another one means that ephemeral disks were lost.
    disk_generation: int = 1
    # How many impacts were done to it.
    impacts: int = 0
    # It is frozen, or being migrated, at this moment.
    paused: bool = False


def boot_id_after(cause: str) -> str:
    """A boot id of Linux's shape that no other cause gives; the same cause gives the same."""
    return str(uuid5(NAMESPACE_URL, f"fairnotice:boot:{cause}"))


def machine_after(machine: Machine, order: Order) -> Machine | None:
    """What this order, done, leaves of a machine; None when that is nothing."""
    after = machine._replace(impacts=machine.impacts + 1)
    rebooted = after._replace(power=Power.RUNNING, boot_id=boot_id_after(order.key))
    moved_to = order.target or machine.node
    match order.kind:
        case ImpactKind.FREEZE:
            return after
        case ImpactKind.MIGRATE:
            return after._replace(node=moved_to)
        case ImpactKind.REBOOT:
            return rebooted
        case ImpactKind.REDEPLOY:
            return rebooted._replace(node=moved_to, disk_generation=machine.disk_generation + 1)
        case ImpactKind.START:
            # Only a VM that had given up its place has lost what was on that place's disks.
            lost = machine.power is Power.DEALLOCATED
            generation = machine.disk_generation + int(lost)
            return rebooted._replace(node=moved_to, disk_generation=generation)
        case ImpactKind.STOP:
            return after._replace(power=Power.STOPPED)
        case ImpactKind.DEALLOCATE:
            return after._replace(power=Power.DEALLOCATED, node=None)
        case ImpactKind.DELETE:
            return None
