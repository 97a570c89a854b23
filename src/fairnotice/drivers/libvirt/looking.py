"""Looking for a VM on several nodes at once: where it is, and who could not say."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from fairnotice.drivers.driver import Order
from fairnotice.drivers.libvirt.host import Host, Sight, Unreadable, claimed_twice
from fairnotice.errors import Unavailable

# What is asked of a node takes some milliseconds.
SLOW_SECONDS = 3.0
# A node with hundreds of domains takes seconds to tell of all of them.
WHOLE_LOOK_SECONDS = 10.0

Answer = TypeVar("Answer")
Lost = dict[str, Unavailable]


async def look_for(
    vm: str,
    hosts: Mapping[str, Host],
    nodes: Iterable[str] | None = None,
    needed: Iterable[str | None] = (),
) -> tuple[dict[str, Sight], Lost]:
    """Where this VM has a domain, by node, and the nodes that cannot be asked.

    Those that are needed are waited for; of the others, one that is slow counts as one that cannot
    be asked, so that it does not hold up what happens elsewhere.

    Trouble where two domains say that they are this VM: nobody can tell which one is meant.
    """
    names = [name for name in hosts if nodes is None or name in nodes]
    return await _heard(
        vm, {name: in_time(hosts[name], hosts[name].look(vm), needed) for name in names}
    )


async def look_anew(
    vm: str, hosts: Mapping[str, Host], failed: frozenset[str], needed: Iterable[str | None] = ()
) -> tuple[dict[str, Sight], Lost]:
    """The same of all nodes, where it counts that a VM is not found: every label is read anew.

    A node that has a label that cannot be read, and not the VM, cannot be asked: it may be there.
    One that has failed is not waited for.
    """
    looks = {
        name: in_time(host, host.look_anew(vm), needed, WHOLE_LOOK_SECONDS)
        for name, host in hosts.items()
        if name not in failed
    }
    failing = {name: in_time(host, host.look(vm)) for name, host in hosts.items() if name in failed}
    return await _heard(vm, looks | failing)


async def _heard(
    vm: str, asked: Mapping[str, Awaitable[Sight | None]]
) -> tuple[dict[str, Sight], Lost]:
    looks = await asyncio.gather(*asked.values(), return_exceptions=True)
    found: dict[str, Sight] = {}
    lost: Lost = {}
    for name, look in zip(asked, looks, strict=True):
        if isinstance(look, Unavailable):
            lost[name] = look
        elif isinstance(look, BaseException):
            raise look
        elif look is not None:
            found[name] = look
    _must_be_one(vm, found)
    return found, lost


def is_certain(found: Mapping[str, Sight], order: Order | None) -> bool:
    """Whether the VM has to be looked for nowhere else.

    Not where its own node has it: the one that the law names, or, of a VM that the law has nowhere,
    the one where it has given up its place since it is off. A domain of it that is off elsewhere
    may be no more than what is left of it.
    """
    if order is not None and order.node is None:
        at_home = any(sight.given_up for sight in found.values())
    else:
        at_home = order is not None and order.node in found
    return at_home or any(sight.active for sight in found.values())


def must_be_certain(
    found: Mapping[str, Sight], lost: Lost, failed: frozenset[str], order: Order | None
) -> None:
    """Unavailable where the VM may be on a node that cannot tell, and that has not failed.

    Whoever has declared the VM's node failed has said where it was: no label elsewhere that cannot
    be read keeps it down.
    """
    if is_certain(found, order):
        return
    for name, error in lost.items():
        known = order is not None and order.node_failed and isinstance(error, Unreadable)
        if name not in failed and not known:
            raise error


async def in_time(
    host: Host,
    asking: Awaitable[Answer],
    needed: Iterable[str | None] = (),
    seconds: float | None = None,
) -> Answer:
    """What a node answers; Unavailable where it is slow, and not needed."""
    if host.name in needed:
        return await asking
    limit = SLOW_SECONDS if seconds is None else seconds
    try:
        return await asyncio.wait_for(asking, limit)
    except TimeoutError:
        raise Unavailable(f"{host.name} has not answered in {limit:g} s.") from None


def _must_be_one(vm: str, found: Mapping[str, Sight]) -> None:
    """A domain keeps its UUID wherever it goes; a copy of it has another."""
    if len({sight.uuid for sight in found.values()}) > 1:
        raise claimed_twice(vm, (f"{sight.domain} on {name}" for name, sight in found.items()))
