"""Looking for a VM on several nodes at once: where it is, and who could not say."""

import asyncio
from collections.abc import Iterable, Mapping

from fairnotice.drivers.libvirt.host import Host, Sight
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.errors import Unavailable

Lost = dict[str, Unavailable]


async def look_for(
    vm: str, hosts: Mapping[str, Host], nodes: Iterable[str] | None = None
) -> tuple[dict[str, Sight], Lost]:
    """Where this VM has a domain, by node, and the nodes that cannot be asked.

    Trouble where two domains say that they are this VM: nobody can tell which one is meant.
    """
    names = [name for name in hosts if nodes is None or name in nodes]
    looks = await asyncio.gather(*(hosts[name].look(vm) for name in names), return_exceptions=True)
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


def _must_be_one(vm: str, found: Mapping[str, Sight]) -> None:
    """A domain keeps its UUID wherever it goes; a copy of it has another."""
    if len({sight.uuid for sight in found.values()}) > 1:
        said = " and ".join(f"{sight.domain} on {name}" for name, sight in found.items())
        raise Trouble(f"{said} both say that they are {vm}: label one of them anew")
