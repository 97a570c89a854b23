"""Which VM asks: by where the request comes from, or by the `/vm/NAME` prefix where allowed."""

from difflib import get_close_matches
from typing import NamedTuple

from fairnotice.metadata.board import Board, Caller


class Door(NamedTuple):
    """A place where requests come in, and how callers are told apart there."""

    # Names the table of addresses; two networks may use the same addresses.
    listener: str = ""
    # A unix socket that belongs to one VM: whoever connects is that VM.
    vm: str | None = None
    # Whether `/vm/NAME` is believed: on a laptop only, never where VMs can reach it.
    prefix_allowed: bool = False


def caller_at(board: Board, door: Door, address: str) -> Caller | None:
    """The VM that connects from this address, None where it is nobody we know."""
    if door.vm is not None:
        return board.callers.get(door.vm)
    return board.addresses.get(door.listener, {}).get(address)


def nearest_names(board: Board, name: str) -> list[str]:
    """Names that may have been meant."""
    return get_close_matches(name, board.callers, n=3, cutoff=0.5)
