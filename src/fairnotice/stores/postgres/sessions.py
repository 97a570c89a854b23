"""How a connection to PostgreSQL is held, and how one is given up that does not answer."""

import socket
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fairnotice.errors import Unavailable, UsageError

# How the connection is held, unless the URL says otherwise: a server that went away without a
# word is noticed within seconds.
_DEFAULTS = {
    "application_name": "fairnotice",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Errors that mean a wrong statement of ours, and no trouble with the database.
_OUR_FAULT = (psycopg.DataError, psycopg.IntegrityError)

Connection = psycopg.Connection[Any]


class Where:
    """A database by its URL, and how it is called in errors: without its password."""

    def __init__(self, url: str, **defaults: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise UsageError(f"This is no PostgreSQL URL: {error}") from error
        self._conninfo = make_conninfo("", **(_DEFAULTS | defaults | given))
        self.name = f"{given.get('dbname', '')} at {given.get('host', 'localhost')}"

    def connect(self) -> Connection:
        """A new connection; each statement is a transaction unless it is said otherwise."""
        return psycopg.connect(self._conninfo, autocommit=True)

    def trouble(self, operation: str, error: psycopg.Error) -> Exception:
        """What whoever called is told of this error."""
        if isinstance(error, _OUR_FAULT):
            return error
        # The server's words come on several lines.
        why = " ".join(str(error).split())
        return Unavailable(f"{operation}: the database {self.name} cannot be used: {why}")


def hang_up(connection: Connection | None) -> None:
    """End the conversation from another thread: whoever waits for its answer is told so.

    A connection may not be closed while it is in use; its socket may be shut.
    """
    if connection is None:
        return
    with suppress(OSError, psycopg.Error), socket.socket(fileno=_copy_of(connection)) as held:
        held.shutdown(socket.SHUT_RDWR)


def _copy_of(connection: Connection) -> int:
    # A descriptor of our own: that of the connection may be closed and given to another meanwhile.
    return socket.dup(connection.fileno())
