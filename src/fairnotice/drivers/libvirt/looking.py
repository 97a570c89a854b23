"""Looking for a VM on several nodes at once: where it is, and who could not say."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from fairnotice.drivers.libvirt.host import Host, Sight, claimed_twice
from fairnotice.errors import Unavailable

# What is asked of a node takes some milliseconds.
SLOW_SECONDS = 3.0

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
    looks = await asyncio.gather(
        *(in_time(hosts[name], hosts[name].look(vm), needed) for name in names),
        return_exceptions=True,
    )
    found: dict[str, Sight] = {}
    lost: Lost = {}
    for name, look in zip(names, looks, strict=True):
        if isinstance(look, Unavailable):
            lost[name] = look
        elif isinstance(look, BaseException):
            raise look
        elif look is not None:
            found[name] = look
    _must_be_one(vm, found)
    return found, lost


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
