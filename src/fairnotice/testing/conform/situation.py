"""What a situation is: a name, what is shown to the client, what is right, and how it is played."""

from collections.abc import Callable
from typing import NamedTuple

from fairnotice.testing.conform.scene import Scene


class Situation(NamedTuple):
    """Something that happens to every client one day."""

    name: str
    # What happens, as the client's author reads it.
    shows: str
    # What a client does that survives it.
    right: str
    # Where it is from: a section of docs/reference/metadata.md, or where it was seen.
    source: str
    play: Callable[[Scene], None]
    # It is about acknowledging and nothing else: a client that only watches is not asked.
    acknowledging: bool = False
    # And its events are of a type that comes again: whoever acknowledges none of them is not asked.
    usual: bool = False
    vm: str = "web-0"
    # The sample fleet where it is left out.
    fleet: str | None = None
