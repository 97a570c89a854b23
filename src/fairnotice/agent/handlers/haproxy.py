"""`kind = "haproxy"`: drains servers of an HAProxy over its Runtime API, and readies them again.

`drain` sends no new work to a server and lets the sessions that it has come to their end. That is
waited for; with some left at the deadline the handler fails, and the rule decides what then.

Only a server that was ready is touched, and only one that is still draining is made ready: what an
operator has put into maintenance, before or since, stays there. The socket needs `level admin`.
"""

import csv
import socket
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from fairnotice.agent.handlers.handler import Call, Handler
from fairnotice.agent.handlers.notes import Notes
from fairnotice.agent.handlers.patience import Again, at_most, keep_trying
from fairnotice.agent.tables import Table
from fairnotice.client.document import one_line
from fairnotice.errors import HandlerFailed

Answer = TypeVar("Answer")
_REPLY_BYTES_MAX = 16_000_000
_TIMEOUT_SECONDS = 5.0
# An HAProxy that is away sends nobody to us: preparing does not wait long for it. It may be away
# while it is reloaded, though.
_AWAY_SECONDS = 3.0
# srv_admin_state of `show servers state`: what was ordered, here or by an operator. A state that
# the configuration or a tracked server asks for is not ours to change.
_ORDERED_MAINT = 0x01
_ORDERED_DRAIN = 0x08


def make(table: Table) -> "Haproxy":
    """The handler of this table."""
    path = table.text("socket", "")
    address = table.address("address") if "address" in table else None
    servers = table.words("servers")
    poll_seconds = table.seconds("poll_seconds", 0.25)
    table.done()
    if bool(path) == bool(address):
        raise table.refuse("give socket, the path of a Unix socket, or address, a HOST:PORT.")
    for server in servers:
        backend, _, name = server.partition("/")
        if not (backend and name) or "/" in name or any(one in server for one in " ;\n,"):
            raise table.refuse(f"servers has {server!r} in it: give BACKEND/SERVER.")
    return Haproxy(address or path, servers, poll_seconds, Notes(table.notes))


class _Found(NamedTuple):
    """A server as HAProxy has it."""

    ordered: int
    sessions: int


class Haproxy(Handler):
    """Drains and makes ready again."""

    def __init__(
        self,
        address: str | tuple[str, int],
        servers: tuple[str, ...],
        poll_seconds: float,
        notes: Notes,
    ) -> None:
        self._address = address
        self._servers = servers
        self._poll_seconds = poll_seconds
        self._notes = notes

    def prepare(self, call: Call) -> None:
        """Drain those that are ready, and wait until their sessions have ended."""
        found = self._all(at_most(call, _AWAY_SECONDS))
        ready = [server for server in self._servers if _is_ready(found[server])]
        held = [server for server in self._servers if self._notes.held(server)]
        for server in dict.fromkeys((*ready, *held)):
            self._notes.hold(call.event.id, server, "ready")
        for server in ready:
            self._order(server, "drain", at_most(call, _AWAY_SECONDS))
        self._wait_for_sessions(call)

    def recover(self, call: Call) -> None:
        """Make ready those that were drained here and still are."""
        drained = tuple(self._notes.things(call.event.id))
        try:
            found = self._all(call, drained) if drained else {}
            for server in drained:
                if found[server].ordered & _ORDERED_DRAIN:
                    self._order(server, "ready", call)
        except HandlerFailed:
            self._notes.abandon(call.event.id)
            raise
        self._notes.release(call.event.id)

    def _wait_for_sessions(self, call: Call) -> None:
        left: dict[str, int] = {}
        # A server that was chosen just before the order has its session just after it: so the wait
        # comes before the look.
        while call.wait(self._poll_seconds):
            left = self._left(call)
            if not left:
                return
        told = " and ".join(f"{count} of {server}" for server, count in left.items())
        told = told or "nobody looked how many"
        raise HandlerFailed(f"Sessions were left, {told}: {call.why_ended()}.")

    def _left(self, call: Call) -> dict[str, int]:
        """The servers that have sessions, with how many."""
        return {server: one.sessions for server, one in self._all(call).items() if one.sessions}

    def _all(self, call: Call, only: tuple[str, ...] = ()) -> dict[str, _Found]:
        """The servers as they are."""
        states = self._ask("show servers state", call, _states)
        sessions = self._ask("show stat -1 4 -1", call, _sessions)
        found = {}
        for server in only or self._servers:
            if server not in states or server not in sessions:
                raise HandlerFailed(f"HAProxy has no server {server}.")
            found[server] = _Found(states[server], sessions[server])
        return found

    def _order(self, server: str, state: str, call: Call) -> None:
        self._ask(f"set server {server} state {state}", call, _accepted)

    def _ask(self, command: str, call: Call, read: Callable[[str], Answer]) -> Answer:
        where = (
            self._address if isinstance(self._address, str) else ":".join(map(str, self._address))
        )
        return keep_trying(call, lambda: read(_say(self._address, command)), f"HAProxy at {where}")


def _is_ready(found: _Found) -> bool:
    return not found.ordered & (_ORDERED_DRAIN | _ORDERED_MAINT)


def _say(address: str | tuple[str, int], command: str) -> str:
    """HAProxy's reply to one command; Again where it cannot be reached."""
    try:
        with _connected(address) as connection:
            connection.sendall(f"{command}\n".encode())
            pieces, size = [], 0
            while piece := connection.recv(65_536):
                pieces.append(piece)
                size += len(piece)
                if size > _REPLY_BYTES_MAX:
                    raise HandlerFailed("What answers there is no HAProxy: its reply has no end.")
    except OSError as error:
        raise Again(f"{error.strerror or error}.") from error
    return b"".join(pieces).decode("utf-8", errors="replace")


def _connected(address: str | tuple[str, int]) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, _TIMEOUT_SECONDS)
    # Windows has none; whoever configures one there is told so.
    if not hasattr(socket, "AF_UNIX"):
        raise HandlerFailed("This system has no Unix sockets: give address instead of socket.")
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_TIMEOUT_SECONDS)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _states(reply: str) -> dict[str, int]:
    """What is ordered for each server, by `show servers state`: its second line has the names."""
    lines = [line.removeprefix("# ").split() for line in reply.splitlines()[1:] if line.strip()]
    names = lines[0] if lines else []
    if not {"be_name", "srv_name", "srv_admin_state"} <= {*names}:
        raise HandlerFailed(f"HAProxy does not tell its servers: {one_line(reply)[:200]}")
    rows = (dict(zip(names, line, strict=False)) for line in lines[1:])
    return {f"{row['be_name']}/{row['srv_name']}": int(row["srv_admin_state"]) for row in rows}


def _sessions(reply: str) -> dict[str, int]:
    """How many sessions each server has or has waiting, by `show stat`."""
    rows = list(csv.DictReader(reply.removeprefix("# ").splitlines()))
    if not rows or not {"pxname", "svname", "scur", "qcur"} <= rows[0].keys():
        raise HandlerFailed(f"HAProxy does not tell its sessions: {one_line(reply)[:200]}")
    return {
        f"{row['pxname']}/{row['svname']}": int(row["scur"] or 0) + int(row["qcur"] or 0)
        for row in rows
    }


def _accepted(reply: str) -> None:
    """HAProxy says nothing where it did what it was told."""
    if reply.strip():
        raise HandlerFailed(f"HAProxy refused: {one_line(reply)}")
