"""Where a command writes what it has found: a new file, or one that is to be replaced."""

from pathlib import Path

from fairnotice.errors import UsageError


def must_be_new(path: Path, *, force: bool) -> None:
    """UsageError where a file is there that nobody has said to replace."""
    if path.exists() and not force:
        raise UsageError(f"{path} is there already: choose another name, or replace it: --force.")
