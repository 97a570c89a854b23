"""What a service says to systemd, where systemd listens (sd_notify(3)): of the standard library."""

import os
from contextlib import suppress

_MICROSECONDS = 1_000_000


def tell_systemd(word: str) -> None:
    """Say `READY=1` or the like; several are lines of one word."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    import socket  # noqa: PLC0415 - mostly nobody listens

    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall(word.encode("utf-8"))


def reloading(monotonic: float) -> str:
    """The word that a reload begins with; systemd orders it by when that was."""
    return f"RELOADING=1\nMONOTONIC_USEC={int(monotonic * _MICROSECONDS)}"


def waiting(seconds: float) -> str:
    """The word for a start that takes so much longer than systemd would wait for."""
    return f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}"


def watchdog_seconds() -> float | None:
    """Within how many seconds systemd wants to hear `WATCHDOG=1`; None where it does not."""
    meant_for = os.environ.get("WATCHDOG_PID")
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or (meant_for and meant_for != str(os.getpid())):
        return None
    return int(microseconds) / _MICROSECONDS or None
