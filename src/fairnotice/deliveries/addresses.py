"""Where a receiver is, and where none may be.

An address is looked at after its name was looked up, and it is the one that is connected to: what
the name stands for a moment later does not matter.
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor

from fairnotice.errors import Unavailable, UsageError

# Where clouds keep what machines may know, beside the link-local addresses.
OF_CLOUDS = frozenset(
    map(
        ipaddress.ip_address,
        (
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:42::42",
            "fd00:c1::a9fe:a9fe",
        ),
    )
)
# As many names as there may be webhooks are looked up at a time.
THREADS_MAX = 50


def must_be_allowed(address: str) -> None:
    """UsageError for an address that no receiver has, and that others could be after."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found.sixtofour or found
    if found.is_loopback:
        return
    nobodys = found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved
    if nobodys or found in OF_CLOUDS:
        raise UsageError(f"{found} is an address that no webhook may have.")


class Addresses:
    """Looks up names, each once at a time, in threads of its own.

    A name server that does not answer holds a thread for half a minute, whoever still waits for it.
    In the threads that all of the process shares, a few such receivers would keep names of others
    from being looked up, and drivers from their work.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, "webhook-names")
        self._under_way: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def of(self, host: str, port: int) -> list[str]:
        """The addresses of a receiver; UsageError where one of them may not be asked."""
        asked = self._under_way.get((host, port))
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = loop.run_in_executor(self._threads, _looked_up, host, port)
            self._under_way[host, port] = asked
            asked.add_done_callback(lambda done: self._noted((host, port), done))
        # Others may wait for it too, and the thread goes on whoever has left.
        addresses = await asyncio.shield(asked)
        for address in addresses:
            must_be_allowed(address)
        if not addresses:
            raise Unavailable(f"{host} has no address")
        return addresses

    def _noted(self, place: tuple[str, int], done: "asyncio.Future[list[str]]") -> None:
        del self._under_way[place]
        if not done.cancelled():
            # Nobody may be waiting for it any more, and asyncio would complain of that.
            done.exception()


def _looked_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]
