"""A lock that one process holds on a database file, and that its death lets go of."""

import fcntl
import os
from pathlib import Path

from fairnotice.errors import StoreInUse


class FileLock:
    """Holds `PATH.lock` from the making of this object until `release`.

    The file stays when the lock is gone: were it removed, two processes could hold a lock each,
    on two files of the same name. It is kept open for reading only, so that its file system can
    be remounted read-only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._held = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path.write_text(f"{os.getpid()}\n", "ascii")
        except BlockingIOError as error:
            os.close(self._held)
            raise StoreInUse(
                f"The database {path} is in use by process {self._holder()}: only one may lead. "
                f"Stop that one first."
            ) from error
        except BaseException:
            os.close(self._held)
            raise

    def _holder(self) -> str:
        return self._path.read_text("ascii").strip() or "(unknown)"

    def release(self) -> None:
        """Let another process have it."""
        os.close(self._held)
