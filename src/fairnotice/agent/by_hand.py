"""What a person says to an agent that runs: that something is recovered, by hand.

A file per event in the agent's folder, which the agent looks for with each answer of the service.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from fairnotice.errors import Unavailable

FOLDER = "by-hand"


def say(state: Path, event: str) -> None:
    """Leave word that what was prepared for this event is recovered."""
    file = state / FOLDER / quote(event, safe="")
    try:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    except OSError as error:
        raise Unavailable(f"{file} cannot be written: {error.strerror}.") from error


def taken(state: Path) -> Iterator[str]:
    """The events of which that was said; of each it is said no longer once the next is asked for.

    So nothing is forgotten that could not be written down.
    """
    folder = state / FOLDER
    with suppress(OSError):
        # Mostly nobody has ever said anything.
        for file in list(folder.iterdir()) if folder.is_dir() else ():
            yield unquote(file.name)
            file.unlink()
