"""Who is connected, and how many connections one address may have.

A VM that opens connections without end, by mistake or on purpose, must cost itself and nobody
else. Over its limit it loses the connection that would run out of time first: the newest request
of a client that forgets to close is still answered, and what is being answered is left alone.
"""

import math
from collections.abc import Hashable
from typing import Protocol


class Guest(Protocol):
    """A connection, as far as it takes up room."""

    # When its time is over, in monotonic seconds; infinity while it waits for its answer.
    deadline: float
    # Whose connections count together; None where they are not counted.
    peer: Hashable | None

    def timed_out(self) -> None:
        """Its time is over."""

    def end(self) -> None:
        """It ends now, whatever it waits for."""


class Crowd:
    """All connections of one endpoint process."""

    def __init__(self, per_peer_max: int) -> None:
        self.per_peer_max = per_peer_max
        self.guests: set[Guest] = set()
        self._of_peer: dict[Hashable, set[Guest]] = {}

    def let_in(self, guest: Guest) -> None:
        """A connection was made; another one, or it itself, ends where that is one too many."""
        self.guests.add(guest)
        if guest.peer is None:
            return
        beside = self._of_peer.setdefault(guest.peer, set())
        if len(beside) >= self.per_peer_max and not self._send_away(beside):
            guest.end()
            return
        beside.add(guest)

    def let_go(self, guest: Guest) -> None:
        """A connection is lost."""
        self.guests.discard(guest)
        beside = self._of_peer.get(guest.peer)
        if beside is not None:
            beside.discard(guest)
            if not beside:
                del self._of_peer[guest.peer]

    def make_room(self) -> None:
        """There is no descriptor left: whoever has the most connections loses half of them."""
        beside = max(self._of_peer.values(), key=len, default=set())
        for _ in range(len(beside) // 2):
            self._send_away(beside)

    def _send_away(self, beside: set[Guest]) -> bool:
        """End the connection whose time is over first; whether there is one to end."""
        first = min(beside, key=lambda guest: guest.deadline)
        if first.deadline == math.inf:
            return False
        # At once, so that nobody counts it until its end is seen.
        beside.discard(first)
        first.end()
        return True

    def sweep(self, now: float) -> None:
        """End what has taken too long."""
        for guest in [one for one in self.guests if now > one.deadline]:
            guest.timed_out()
