"""What the commands of `fairnotice agent` share: the configuration, the service, a table."""

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairnotice.cli import exits
from fairnotice.cli.exits import CommandFailed
from fairnotice.errors import ClientError, NoEndpoint

if TYPE_CHECKING:
    from fairnotice.agent.config import Config
    from fairnotice.client.sync import ScheduledEvents


def configured(options: argparse.Namespace) -> "Config":
    """The configuration that was named, or is found; UsageError where it cannot be."""
    from fairnotice.agent import config  # noqa: PLC0415 - only whoever needs it pays for it

    return config.load(given_file(options) or config.find())


def given_file(options: argparse.Namespace) -> Path | None:
    """The file that was named, in front of `agent` or behind its command."""
    given = getattr(options, "config", None)
    return Path(given) if given else None


def config_if_any(options: argparse.Namespace) -> "Config | None":
    """The configuration, for commands that can do without."""
    from fairnotice.agent import config  # noqa: PLC0415 - as above

    known = given_file(options) is not None or any(path.is_file() for path in config.places())
    return configured(options) if known else None


def made_client(url: str | None) -> "ScheduledEvents":
    """A client of this service, or of the one that is found."""
    from fairnotice.client.sync import ScheduledEvents  # noqa: PLC0415 - as above

    return ScheduledEvents(url)


# ---- Asking ----


def unreachable(error: ClientError, more: str = "") -> CommandFailed:
    """The end of a command to which the service did not answer as it should; to be raised."""
    from fairnotice.errors import Away  # noqa: PLC0415 - only where it went wrong

    away = isinstance(error, NoEndpoint | Away)
    return CommandFailed(str(error) + more, exits.UNREACHABLE if away else exits.REFUSED)


def agent_runs(folder: Path, told: dict[str, Any] | None) -> bool:
    """Whether the agent lives that said this of itself.

    Somebody holds the lock; where that cannot be seen, by the number of the process.
    """
    from fairnotice.agent import journal  # noqa: PLC0415 - as above

    if told is None or told.get("doing") == "ended":
        return False
    held = journal.is_held(folder)
    return _lives(told.get("pid")) if held is None else held


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or os.name == "nt":
        return isinstance(pid, int)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# ---- Printing ----


def printable(text: str) -> str:
    """What a service sends is shown, never obeyed by the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], none: str) -> None:
    """Rows below their heads, or the sentence that there is none."""
    lines = [[printable(cell) or "-" for cell in row] for row in rows]
    if not lines:
        print(none)
        return
    lines.insert(0, list(columns))
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("   ".join(padded).rstrip())
