"""More instances of a scale set, or fewer: `sku.capacity`."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from itertools import chain, islice
from socket import inet_aton
from typing import NamedTuple

from fairnotice.arm.failures import Failure, of_refusal
from fairnotice.arm.route import Call
from fairnotice.control import bodies, shapes
from fairnotice.engine import Code, Fleet, Refusal, commands
from fairnotice.model import ScaleSet

# At most so many at once: each is looked for a place.
MORE_MAX = 1_000


class _Network(NamedTuple):
    """Addresses that may be given to machines, as numbers."""

    first: int
    last: int


def _network(first: str, last: str) -> _Network:
    return _Network(int(IPv4Address(first)), int(IPv4Address(last)))


# Where the addresses of simulated VMs are, where no VM has one of another private network.
_SIMULATED = _network("127.69.0.10", "127.255.255.254")
# RFC 1918, the highest first. What is outside of them is somebody else's.
_NETWORKS = (
    _network("192.168.0.1", "192.168.255.254"),
    _network("172.16.0.1", "172.31.255.254"),
    _SIMULATED,
    _network("10.0.0.1", "10.255.255.254"),
)


def addresses_for(call: Call, row: ScaleSet, more: int) -> tuple[str, ...]:
    """Those of the instances that are new: refused here before anything else is done."""
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
        addresses = _free_addresses(call.fleet, more)
        _must_be_taken(call, commands.ScaleOut(scale_set=row.name, addresses=addresses))
        return addresses
    if more < 0:
        _must_be_taken(
            call,
            commands.ScaleIn(id="foreseen", by=call.who.requester, scale_set=row.name, count=-more),
        )
    return ()


def _must_be_taken(call: Call, command: commands.Command) -> None:
    decision = call.service.conductor.foresee(command)
    if isinstance(decision, Refusal):
        raise of_refusal(decision)


async def scale(call: Call, row: ScaleSet, more: int, found: tuple[str, ...]) -> None:
    """Have so many more, or fewer. The law has a request of it, also where nothing was to be done.

    For a repeat must not undo what somebody else has asked for since. `found` are the addresses
    that were free when it was foreseen.
    """
    if more < 0:
        result = await call.service.scale_in(row.name, call.who, bodies.ScaleIn(count=-more))
    else:
        result = await _scale_out(call, row, more, found)
    if isinstance(result, Refusal):
        raise of_refusal(result)


async def _scale_out(
    call: Call, row: ScaleSet, more: int, found: tuple[str, ...]
) -> shapes.Accepted | Refusal:
    if more <= len(found):
        result = await call.service.scale_out(row.name, found[:more], call.who)
        if not (isinstance(result, Refusal) and result.code is Code.CONFLICT):
            return result
    # Somebody else has one of them since, or has taken an instance away.
    addresses = _free_addresses(call.fleet, more)
    return await call.service.scale_out(row.name, addresses, call.who)


def _free_addresses(fleet: Fleet, count: int) -> tuple[str, ...]:
    taken = (address for vm in fleet.vms.values() for address in vm.addresses)
    found = free_addresses(taken, count)
    if len(found) < count:
        message = f"There are only {len(found)} addresses left in the network of the others."
        raise Failure(409, "AllocationFailed", message, "sku.capacity")
    return found


def free_addresses(taken: Iterable[str], count: int) -> tuple[str, ...]:
    """So many that nobody has, or all there are: in the network of the highest, behind it first."""
    # 100,000 are read in 30 ms, by ipaddress in 150.
    known = {int.from_bytes(inet_aton(one)) for one in taken if ":" not in one}
    network, highest = _highest(sorted(known))
    following = chain(range(highest + 1, network.last + 1), range(network.first, highest))
    # What ends so means all of a network to many programs.
    free = (one for one in following if one not in known and one & 255 not in (0, 255))
    return tuple(str(IPv4Address(one)) for one in islice(free, count))


def _highest(known: Sequence[int]) -> tuple[_Network, int]:
    """The last address that is in one of the networks, and in which."""
    for network in _NETWORKS:
        number = bisect_right(known, network.last)
        if number and known[number - 1] >= network.first:
            return network, known[number - 1]
    return _SIMULATED, _SIMULATED.first - 1
