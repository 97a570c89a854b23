"""Tokens and the audit in the SQLite file."""

import sqlite3
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from fairnotice.stores import access, sql
from fairnotice.stores.access import Audited, AuditLine, KnownTokens, Token

_QUERIES = sql.read_queries(__package__)


class SqliteAccess:
    """That part of the store; the rest of it has the connections."""

    @abstractmethod
    def _writing(self, operation: str) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _reading(self, operation: str) -> AbstractContextManager[sqlite3.Connection]: ...

    def add_token(self, token: Token) -> bool:
        """Keep a new token, unless one has or had its name."""
        with self._writing("add_token") as connection:
            known = _tokens(connection)
            new = access.is_new(known, token)
            if new:
                _keep(connection, known, token)
            return new

    def revoke_token(self, id_: str, at: datetime) -> Token | None:
        """Note that a token counts no longer."""
        with self._writing("revoke_token") as connection:
            known = _tokens(connection)
            token = access.revoked(known, id_, at)
            if token is not None and token not in known.tokens:
                _keep(connection, known, token)
            return token

    def tokens(self) -> KnownTokens:
        """Every token there ever was."""
        with self._reading("tokens") as connection:
            return _tokens(connection)

    def tokens_changed(self) -> int:
        """The number that grows with each change of a token."""
        with self._reading("tokens_changed") as connection:
            return int(connection.execute(_QUERIES["tokens_changed"]).fetchone()[0])

    def add_audit(self, audited: Sequence[Audited]) -> None:
        """Write these lines, all or none."""
        rows = [(sql.instant(one.at), access.audited_text(one)) for one in audited]
        with self._writing("add_audit") as connection:
            connection.executemany(_QUERIES["add_audit"], rows)

    def audit(
        self,
        limit: int,
        *,
        before: int | None = None,
        who: str | None = None,
        since: datetime | None = None,
    ) -> list[AuditLine]:
        """Up to so many lines, the newest first."""
        asked = {
            "limit": limit,
            "before": before,
            "who": who,
            "since": None if since is None else sql.instant(since),
        }
        with self._reading("audit") as connection:
            return access.audit_from(connection.execute(_QUERIES["audit"], asked))

    def forget_audit(self, before: datetime) -> int:
        """Delete some lines that are older."""
        which = (sql.instant(before), sql.FORGET_LINES)
        # Looked for first: a transaction that may write is not begun for nothing.
        with self._reading("forget_audit") as connection:
            old = connection.execute(_QUERIES["old_audit"], which).fetchall()
        if old:
            with self._writing("forget_audit") as connection:
                connection.executemany(_QUERIES["remove_audit"], old)
        return len(old)


def _tokens(connection: sqlite3.Connection) -> KnownTokens:
    return access.tokens_from(connection.execute(_QUERIES["tokens"]))


def _keep(connection: sqlite3.Connection, known: KnownTokens, token: Token) -> None:
    row = (token.id, known.changed + 1, access.token_text(token))
    connection.execute(_QUERIES["keep_token"], row)
