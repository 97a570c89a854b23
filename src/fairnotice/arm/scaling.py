"""More instances of a scale set, or fewer: `sku.capacity`."""

from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address

from fairnotice.arm.failures import Failure, of_refusal
from fairnotice.arm.route import Call
from fairnotice.control.shapes import ScaleIn
from fairnotice.engine import Fleet, Refusal, commands
from fairnotice.model import ScaleSet

# At most so many at once: each is looked for a place.
MORE_MAX = 1_000
# Where the addresses of simulated VMs begin, where no VM has one.
_FIRST = IPv4Address("127.69.0.10")


def must_be_possible(call: Call, row: ScaleSet, more: int) -> None:
    """Refused before anything else of the request is done."""
    if more > MORE_MAX:
        message = f"At most {MORE_MAX:,} instances are added at once."
        raise Failure(400, "InvalidParameter", message, "sku.capacity")
    if more > 0:
        driver = call.service.conductor.driver
        if not driver.makes:
            message = (
                f"The driver ({driver.name}) cannot make machines: make them, and declare them in "
                "the fleet file."
            )
            raise Failure(409, "OperationNotAllowed", message, "sku.capacity")
        command = commands.ScaleOut(scale_set=row.name, addresses=free_addresses(call.fleet, more))
        _must_be_taken(call, command)
    elif more < 0:
        _must_be_taken(
            call,
            commands.ScaleIn(id="foreseen", by=call.who.requester, scale_set=row.name, count=-more),
        )


def _must_be_taken(call: Call, command: commands.Command) -> None:
    decision = call.service.conductor.foresee(command)
    if isinstance(decision, Refusal):
        raise of_refusal(decision)


async def scale(call: Call, row: ScaleSet, more: int) -> str | None:
    """Have so many more, or fewer; the request of the law that is followed, if there is one."""
    if more > 0:
        result = await call.service.scale_out(row.name, free_addresses(call.fleet, more))
    elif more < 0:
        result = await call.service.scale_in(row.name, call.who, ScaleIn(count=-more))
    else:
        return None
    if isinstance(result, Refusal):
        raise of_refusal(result)
    return result.id


def free_addresses(fleet: Fleet, count: int) -> tuple[str, ...]:
    """So many addresses that nobody has, behind those that VMs have."""
    known = {ip_address(address) for vm in fleet.vms.values() for address in vm.addresses}
    ours = [one for one in known if isinstance(one, IPv4Address)]
    following = _following(max(ours, default=_FIRST - 1))
    return tuple(str(next(following)) for _ in range(count))


def _following(address: IPv4Address) -> Iterator[IPv4Address]:
    while True:
        address += 1
        # What ends so means all of a network to many programs.
        if address.packed[-1] not in (0, 255):
            yield address
