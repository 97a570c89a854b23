"""A network namespace of one's own, in which this process is alone with some addresses and a name.

Without root where the kernel lets users make namespaces; NoNamespace says why not, and what to do.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import socket
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from fairnotice.errors import FairnoticeError

# From the kernel's sched.h, mount.h, sockios.h and if.h; Python 3.11 has none of them.
_NEW_MOUNTS = 0x0002_0000
_NEW_HOST_NAME = 0x0400_0000
_NEW_USERS = 0x1000_0000
_NEW_NETWORK = 0x4000_0000
_BIND = 0x1000
_PRIVATE_BELOW = 0x4000 | 0x4_0000
_SET_FLAGS = 0x8914
_SET_ADDRESS = 0x8916
_SET_MASK = 0x891C
_UP = 0x1

# What the kernel takes; Azure gives a Linux VM no longer one either.
_HOST_NAME_BYTES_MAX = 64
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SYSCTL = Path("/proc/sys")
# The value of each that forbids, and the one that allows.
_SWITCHES = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
_LIMITS = ("user.max_user_namespaces", "user.max_net_namespaces", "user.max_uts_namespaces")
_LIMIT_ALLOWED = "10000"


class NoNamespace(FairnoticeError):
    """This system does not let the caller make a network namespace; the sentence says why."""


def enter(host_name: str, addresses: Iterable[str]) -> None:
    """Leave the network for a new one with loopback and these addresses; take this host name.

    All that this process may do there it loses when it becomes another program, unless it is
    root's; its user and its files stay what they are.
    """
    try:
        _unshare()
        _take_addresses(addresses)
        kept = host_name.encode("utf-8", "replace")[:_HOST_NAME_BYTES_MAX]
        socket.sethostname(kept.decode("utf-8", "ignore"))
    except OSError as error:
        raise NoNamespace(f"A network namespace cannot be made here: {_why(error)}") from error
    # Containers that allow all of the above may forbid mounts. The kernel's host name, which
    # nearly everybody asks for, is right even so.
    with contextlib.suppress(OSError):
        _name_in_files(host_name)


# ---- The kernel ----


def _unshare() -> None:
    """New namespaces; by a user namespace of one's own where that is what it takes."""
    wanted = _NEW_NETWORK | _NEW_HOST_NAME | _NEW_MOUNTS
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.unshare, wanted)
    except PermissionError:
        _checked(libc.unshare, wanted | _NEW_USERS)
        # Everybody is inside who he is outside, so that files stay one's own. The kernel takes
        # a map of groups from users only when they give up to change theirs.
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text, "utf-8")


def _checked(call: Callable[..., int], *arguments: object) -> None:
    if call(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _take_addresses(addresses: Iterable[str]) -> None:
    """Switch loopback on, and give it these addresses, one each and no network around it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
        for number, address in enumerate(addresses):
            # One after the other: the mask belongs to the address that is there.
            for request, value in ((_SET_ADDRESS, address), (_SET_MASK, "255.255.255.255")):
                name = f"lo:{number}".encode()
                packed = socket.inet_aton(value)
                fcntl.ioctl(
                    any_socket, request, struct.pack("16sHxx4s16x", name, socket.AF_INET, packed)
                )


def _name_in_files(host_name: str) -> None:
    """Let /etc say the name, too, to this process and its children alone."""
    if not _PLAIN_NAME.fullmatch(host_name):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.mount, None, b"/", None, _PRIVATE_BELOW, None)
    hosts = Path("/etc/hosts")
    # First, because the first line with a name counts.
    texts = {
        hosts: f"127.0.1.1\t{host_name}\n{hosts.read_text('utf-8', 'replace')}",
        Path("/etc/hostname"): f"{host_name}\n",
    }
    for path, text in texts.items():
        # Gone from its folder at once; what is mounted stays while somebody is inside.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            _checked(libc.mount, os.fsencode(file.name), os.fsencode(path), None, _BIND, None)


# ---- Why not ----


def _why(error: OSError) -> str:
    """What stands in the way, and how to get it out of it."""
    if error.errno == errno.ENOSPC:
        return _limit()
    # Several may stand in the way at once; the kernel does not say which of them did.
    found = [
        f"{name} is {forbids} (allow it: sudo sysctl -w {name}={allows})"
        for name, forbids, allows in _SWITCHES
        if _setting(name) == forbids
    ]
    if _filtered():
        advice = "start the container with --cap-add SYS_ADMIN or --security-opt seccomp=unconfined"
        found.append(f"a seccomp filter is on, as containers have one ({advice})")
    if not found:
        found.append(
            f"{(error.strerror or type(error).__name__).lower()} (it takes user namespaces)"
        )
    as_root = "" if os.geteuid() == 0 else " Or run the same as root."
    return f"{'; and '.join(found)}.{as_root}"


def _limit() -> str:
    """Which limit is reached. They are root's, too, and those of all user namespaces around."""
    for name in _LIMITS:
        if _setting(name) == "0":
            return f"{name} is 0. Allow some (sudo sysctl -w {name}={_LIMIT_ALLOWED})."
    return f"as many as are allowed are in use ({', '.join(_LIMITS)}). End some, or allow more."


def _setting(name: str) -> str:
    """What the kernel is set to; empty where this one has no such setting."""
    try:
        return (_SYSCTL / name.replace(".", "/")).read_text("utf-8").strip()
    except OSError:
        return ""


def _filtered() -> bool:
    """Whether system calls of this process are filtered."""
    status = Path("/proc/self/status").read_text("utf-8")
    return re.search(r"^Seccomp:\s*2$", status, re.MULTILINE) is not None
