"""Addresses of this machine: which are its own, and who listens there, as far as we may know."""

import contextlib
import errno
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from fairnotice.errors import CannotListen

_LISTENING = "0A"
_METADATA = "169.254.169.254"
_NOT_ALLOWED = "it is not allowed: a port below 1024 needs the capability CAP_NET_BIND_SERVICE"
_NOT_HERE = "no interface of this machine has this address yet"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_routable(host: str) -> bool:
    """Whether more than this machine and its links may reach this address."""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host != "localhost"
    return not (found.is_loopback or found.is_link_local)


def cannot_listen(what: str, where: tuple[str, int], error: OSError) -> CannotListen:
    """Why an address cannot be listened on, for whoever may mend it."""
    host, port = where
    shown = f"[{host}]" if ":" in host else host
    taken = error.errno == errno.EADDRINUSE
    return CannotListen(
        f"{shown}:{port} cannot be listened on: {_why(host, port, error)}.",
        what,
        taken=taken,
        lasts=error.errno == errno.EACCES,
    )


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return _NOT_ALLOWED
    if error.errno == errno.EADDRNOTAVAIL:
        more = f" (ip address add {host}/32 dev lo)" if host == _METADATA else ""
        return f"{_NOT_HERE}{more}"
    holder = listener_at(port) if error.errno == errno.EADDRINUSE else None
    return f"it is taken by {holder}" if holder else str(error.strerror)


def listener_at(port: int, proc: Path = Path("/proc")) -> str | None:
    """The process that listens there, by name and number; None where that cannot be seen."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return None
    for process in proc.glob("[0-9]*"):
        if sockets & set(_open_files(process)):
            name = (process / "comm").read_text("utf-8", errors="replace").strip()
            return f"{name} (process {process.name})"
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    # Another user's are not ours to see, and processes end while we look.
    with contextlib.suppress(OSError):
        for file in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(file.readlink())
