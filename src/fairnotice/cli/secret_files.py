"""A secret that is told once, in a file of its own: `token create` and `webhook create`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairnotice.cli import shown
from fairnotice.errors import UsageError


@contextmanager
def new_file(path: Path, otherwise: str) -> Iterator[int]:
    """A file for its owner only, there before anything is made; gone where nothing was."""
    try:
        opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already: {otherwise}.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        yield opened
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(opened)


def write_or_print(secret: str, file: int, path: str) -> bool:
    """Write it, or print it where that fails: nobody can read it again. Whether it was written."""
    try:
        os.write(file, f"{secret}\n".encode("ascii"))
    except OSError as error:
        print(secret)
        shown.note(f"{path} cannot be written: {error.strerror}. It is printed.")
        return False
    return True
