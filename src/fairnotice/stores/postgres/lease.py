"""The lease of the lead, as a row in PostgreSQL: it runs out by the clock of the database."""

from typing import Any
from uuid import uuid4

import psycopg

from fairnotice.errors import Unavailable
from fairnotice.stores import sql
from fairnotice.stores.lease import Standing
from fairnotice.stores.postgres.sessions import Connection, Where, hang_up

_QUERIES = {name: text.encode() for name, text in sql.read_queries(__package__).items()}

# For how long a commit under way may hold the lead back before its session is ended, and for how
# long the database may take for any of these small statements.
LOCK_SECONDS = 0.25
STATEMENT_SECONDS = 1.5


class PostgresLease:
    """The one row of the table `lease`, for a control plane that is reached at this address."""

    def __init__(self, url: str, address: str, seconds: float) -> None:
        self.address = address
        self.seconds = seconds
        self._where = Where(url, connect_timeout="2", application_name="fairnotice lease")
        self._connection: Connection | None = None
        # Of the tenure that is ours: a new one for each, so that none is taken for another.
        self._holder = ""
        self._epoch = 0

    # ---- The port ----

    def look(self) -> Standing:
        """Who has it."""
        found = self._ask("look at the lease", _QUERIES["look_at_lease"])
        assert found is not None
        return Standing(*found)

    def take(self, found: Standing) -> int | None:
        """Take it, provided that it is still as it was found: a new epoch, or None."""
        holder = str(uuid4())
        asked = {
            "holder": holder,
            "address": self.address,
            "seconds": self.seconds,
            "found_holder": found.holder,
            "found_renewed_at": found.renewed_at,
        }
        try:
            taken = self._ask("take the lead", _QUERIES["take_lease"], asked)
        except Unavailable as error:
            if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise
            # Whoever led is stopped in the middle of a commit, or cut off: nobody waits for him.
            self._ask("end what keeps the lead", _QUERIES["end_stale_commits"], asked)
            taken = self._ask("take the lead", _QUERIES["take_lease"], asked)
        if taken is None:
            return None
        self._holder, self._epoch = holder, int(taken[0])
        return self._epoch

    def renew(self) -> bool:
        """Keep what was taken for another while; False where it is lost."""
        asked = {"holder": self._holder, "epoch": self._epoch, "seconds": self.seconds}
        return self._ask("renew the lease", _QUERIES["renew_lease"], asked) is not None

    def resign(self) -> None:
        """Let go of what was taken, so that another may take it at once."""
        self._ask("resign", _QUERIES["resign_lease"], {"holder": self._holder})

    def hang_up(self) -> None:
        """Have the call that is under way fail now. Called by another thread."""
        hang_up(self._connection)

    def close(self) -> None:
        """Let go of everything."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- The connection ----

    def _ask(
        self, operation: str, query: bytes, asked: dict[str, Any] | None = None
    ) -> tuple[Any, ...] | None:
        """The first row of what is answered; after a failure the next call connects anew."""
        try:
            answer = self._usable().execute(query, asked)
            return answer.fetchone() if answer.description else None
        except psycopg.Error as error:
            self.close()
            raise self._where.trouble(operation, error) from error

    def _usable(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._where.connect()
            limits = {
                "lock": f"{LOCK_SECONDS * 1000:.0f}ms",
                "statement": f"{STATEMENT_SECONDS * 1000:.0f}ms",
            }
            self._connection.execute(_QUERIES["prepare_lease_session"], limits)
        return self._connection
