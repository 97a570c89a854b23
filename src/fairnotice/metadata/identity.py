"""Which VM asks: by where the request comes from, or by the `/vm/NAME` prefix where allowed."""

from bisect import bisect
from collections.abc import Callable
from difflib import get_close_matches
from itertools import islice
from typing import NamedTuple

from fairnotice.metadata.board import Board, Caller

# Of how many VMs the nearest names are looked for, how many of them are compared letter by letter,
# and how much of what was asked for. Measured: 10 to 20 ms at most, where 100,000 took 1.4 s.
_NAMES_MAX = 20_000
_COMPARED_MAX = 500
_LETTERS_MAX = 64
_OFFERED_MAX = 3

# How the kernel writes an IPv4 address on a socket that takes both kinds.
_MAPPED = "::ffff:"


class Door(NamedTuple):
    """A place where requests come in, and how callers are told apart there.

    listener        names the table of addresses: two networks may use the same addresses.
    vm              set for a unix socket that belongs to one VM: whoever connects is that VM.
    prefix_allowed  whether `/vm/NAME` is believed: on a laptop only, never where VMs reach it.
    vouch           asked, where it is set, whether it is this VM that comes from this address.
    stranger        told, where it is set, of an address that is no VM's, at which somebody asks.
    stayed          asked, where it is set, before something is done for a VM: whether nobody else
                    was at its address since this instant, at which its connection began.
    """

    listener: str = ""
    vm: str | None = None
    prefix_allowed: bool = False
    vouch: Callable[[str, str], bool] | None = None
    stranger: Callable[[str], None] | None = None
    stayed: Callable[[str, str, float], bool] | None = None


def caller_at(board: Board, door: Door, address: str) -> Caller | None:
    """The VM that connects from this address, None where it is nobody we know."""
    if door.vm is not None:
        return board.callers.get(door.vm)
    caller = board.addresses.get(door.listener, {}).get(address)
    if caller is None and door.stranger is not None:
        door.stranger(address)
    if caller is None or door.vouch is None or door.vouch(address, caller.name):
        return caller
    return None


def is_doubted(board: Board, door: Door, address: str) -> bool:
    """Whether somebody whom caller_at does not know comes from the address of one it knows."""
    return door.vouch is not None and address in board.addresses.get(door.listener, ())


def address_of(peer: object) -> str:
    """The address of a socket's other end, as a fleet writes it; empty for a unix socket."""
    address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    return address.removeprefix(_MAPPED) if "." in address else address


def nearest_names(board: Board, name: str) -> list[str]:
    """Names that may have been meant: the same in another case, or else those alike."""
    wanted = name[:_LETTERS_MAX].lower()
    if wanted in board.callers:
        return [wanted]
    known = list(islice(board.callers, _NAMES_MAX))
    names = list(map(str.lower, known))
    by_lower = dict(zip(names, known, strict=True))
    if wanted in by_lower:
        return [by_lower[wanted]]
    if len(names) > _COMPARED_MAX:
        # Those that begin alike are neighbours.
        names.sort()
        place = bisect(names, wanted)
        names = names[max(0, place - _COMPARED_MAX // 2) : place + _COMPARED_MAX // 2]
    close = get_close_matches(wanted, names, n=_OFFERED_MAX, cutoff=0.5)
    return [by_lower[lower] for lower in close]
