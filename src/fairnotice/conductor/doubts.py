"""Trouble with the store: whether anything can be recorded, and what may have been all the same."""

import logging
from collections.abc import Sequence
from typing import Any

from fairnotice.engine import Decision
from fairnotice.engine.changes import Change
from fairnotice.errors import Unavailable

log = logging.getLogger(__name__)

# Commits that failed in a row and are remembered.
DOUBTFUL_MAX = 100


class Doubts:
    """What is not known of the store at the moment."""

    def __init__(self) -> None:
        # Why nothing is durable at the moment; None while all is well.
        self.trouble: Unavailable | None = None
        # The journal holds what is not in the fleet, or it has to be made good that it did.
        self.behind = False
        # What could not be recorded and yet may have been: its answer was lost on the way.
        self._doubtful: list[list[Decision]] = []

    def begin(self, error: Unavailable) -> None:
        """The store cannot be used."""
        if self.trouble is None:
            log.error("nothing can be recorded: %s", error)
        self.trouble = error

    def end(self) -> None:
        """It can be used again, and everything that it holds is known."""
        if self.trouble is not None:
            log.warning("commands are recorded again")
        self.trouble = None
        self._doubtful.clear()

    def settled(self) -> None:
        """What the journal holds is in the fleet."""
        self._doubtful.clear()
        self.behind = False

    def doubt(self, decisions: list[Decision]) -> None:
        """This could not be recorded, and yet it may have been: its answer was lost."""
        if changes_of(decisions) and len(self._doubtful) < DOUBTFUL_MAX:
            self._doubtful.append(decisions)

    def which(self, found: Sequence[Change[Any]]) -> list[Decision] | None:
        """Which of the commits that failed these changes are; None if none."""
        return next((one for one in self._doubtful if changes_of(one) == found), None)


def changes_of(decisions: list[Decision]) -> list[Change[Any]]:
    """What they change, in their order."""
    return [change for decision in decisions for change in decision.changes]
