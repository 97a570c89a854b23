"""The port to whatever says which of several control planes leads: a lease that has to be renewed.

Nothing rests on it but who tries: what a control plane decides counts by its epoch alone, which the
store checks with every commit and the driver with every call. So a lease that is thought to be held
and is not does no harm; it only has to come to its end, whatever became of its holder.

Its calls block and raise errors.Unavailable, as a store's do; one thread makes them, and nobody
else's work keeps it waiting.
"""

from datetime import datetime
from typing import NamedTuple, Protocol


class Standing(NamedTuple):
    """What the lease was when it was looked at."""

    # Of the leader that has it or had it last; 0 where there never was one.
    epoch: int
    address: str
    # Tells two tenures of the same control plane apart.
    holder: str
    renewed_at: datetime
    # For how long it was given, and for how much longer it lasts by the clock of whoever keeps it;
    # negative since it has run out.
    seconds: float
    left_seconds: float

    @property
    def free(self) -> bool:
        """Whether it may be taken."""
        return self.left_seconds <= 0


class Lease(Protocol):
    """The lead among several control planes, as one of them sees it."""

    # Where the others reach this one, and for how long each renewal is good.
    address: str
    seconds: float

    def look(self) -> Standing:
        """Who has it."""
        ...

    def take(self, found: Standing) -> int | None:
        """Take it, provided that it is still as it was found: a new epoch, or None.

        Both in one transaction: once it is ours, no commit of an earlier epoch can be made.
        """
        ...

    def renew(self) -> bool:
        """Keep what was taken for another while; False where it is lost."""
        ...

    def resign(self) -> None:
        """Let go of what was taken, so that another may take it at once."""
        ...

    def hang_up(self) -> None:
        """Have the call that is under way fail now. Called by another thread."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
