"""`kind = "log"`: writes down that something is going to happen, and that it is over.

To journald over its native socket, with every fact as a field of its own; to the local syslog; or
as a line of JSON into a file or to standard output.
"""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from fairnotice.agent.handlers.handler import Call, Teller
from fairnotice.agent.handlers.patience import within
from fairnotice.agent.tables import Table
from fairnotice.errors import HandlerFailed

_SOCKETS = {"journald": "/run/systemd/journal/socket", "syslog": "/dev/log"}
_TO = (*_SOCKETS, "file", "stdout")
# RFC 5424, 6.2.1: something normal that somebody may want to know; by the system's daemons.
_NOTICE = 5
_DAEMON = 3
_TIMEOUT_SECONDS = 5.0


def make(table: Table) -> "Log":
    """The handler of this table."""
    to = table.choice("to", _TO)
    file, path = table.text("file", ""), table.text("socket", _SOCKETS.get(to, ""))
    identifier = table.text("identifier", "fairnotice")
    table.done()
    if (to == "file") != bool(file):
        raise table.refuse('file is the file to write to; it belongs to to = "file".')
    if "socket" in table and to not in _SOCKETS:
        raise table.refuse('socket belongs to to = "journald" and to = "syslog".')
    if not identifier.isascii() or not identifier.replace("-", "").isalnum():
        raise table.refuse(f"identifier is {identifier!r}: give letters, digits and -.")
    writers: dict[str, Callable[[Call], None]] = {
        "journald": lambda call: _send(path, journald_fields(call, identifier)),
        "syslog": lambda call: _send(path, syslog_line(call, identifier)),
        "file": lambda call: _append(Path(file), json_line(call)),
        "stdout": _print,
    }
    return Log(writers[to], file or path or to)


class Log(Teller):
    """Writes a line for each phase."""

    def __init__(self, write: Callable[[Call], None], to: str) -> None:
        self._write = write
        self._to = to

    def tell(self, call: Call) -> None:
        """Write a line."""
        try:
            within(call, lambda: self._write(call), f"writing to {self._to}")
        except OSError as error:
            raise HandlerFailed(f"Writing to {self._to} failed: {error.strerror}.") from error


def json_line(call: Call) -> bytes:
    """The facts as a line of JSON."""
    time = f"{call.clock.wall():%Y-%m-%dT%H:%M:%S.%fZ}"
    return f"{json.dumps({'time': time, **call.facts()})}\n".encode()


def journald_fields(call: Call, identifier: str) -> bytes:
    """What journald's native protocol takes: one field after the other."""
    fields = {
        "MESSAGE": call.sentence(),
        "PRIORITY": str(_NOTICE),
        "SYSLOG_IDENTIFIER": identifier,
        **call.environment(),
    }
    return b"".join(_journald_field(name, text.encode()) for name, text in fields.items())


def _journald_field(name: str, value: bytes) -> bytes:
    """`NAME=value`, or, where the value has several lines, its length first."""
    if b"\n" not in value:
        return name.encode() + b"=" + value + b"\n"
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def syslog_line(call: Call, identifier: str) -> bytes:
    """What the local syslog takes; it adds the time itself."""
    return f"<{_DAEMON * 8 + _NOTICE}>{identifier}[{os.getpid()}]: {call.sentence()}".encode()


def _send(path: str, datagram: bytes) -> None:
    # Windows has no such sockets.
    if not hasattr(socket, "AF_UNIX"):
        raise HandlerFailed("This system has neither journald nor syslog: log to a file.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_TIMEOUT_SECONDS)
        sender.sendto(datagram, path)


def _append(file: Path, line: bytes) -> None:
    """One write at the end: whoever else writes there does not mix with it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _print(call: Call) -> None:
    sys.stdout.write(json_line(call).decode())
    sys.stdout.flush()
