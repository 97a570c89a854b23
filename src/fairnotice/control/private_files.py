"""Files for their owner only: there whole, or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from fairnotice.errors import UsageError


def make_directory(path: Path) -> None:
    """A directory for its owner only, unless it is there; UsageError where it cannot be."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}.") from error


def write(path: Path, content: bytes) -> None:
    """Put this in the place of what was there; nobody ever reads half of it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        opened = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(opened, content)
            os.fsync(opened)
        finally:
            os.close(opened)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
