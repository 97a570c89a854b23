"""Tokens and the audit in PostgreSQL."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import psycopg

from fairnotice.stores import access, sql
from fairnotice.stores.access import Audited, AuditLine, KnownTokens, Token

# As bytes, because psycopg takes text only where it is a literal of the code.
_QUERIES = {name: text.encode() for name, text in sql.read_queries(__package__).items()}

Connection = psycopg.Connection[Any]


class PostgresAccess:
    """That part of the store; the rest of it has the connections."""

    @abstractmethod
    def _door(self, operation: str) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _usable(self) -> Connection: ...

    def add_token(self, token: Token) -> bool:
        """Keep a new token, unless one has or had its name."""
        with self._door("add_token"), self._usable().transaction():
            known = self._tokens_alone()
            new = access.is_new(known, token)
            if new:
                self._keep_token(known, token)
            return new

    def revoke_token(self, id_: str, at: datetime) -> Token | None:
        """Note that a token counts no longer."""
        with self._door("revoke_token"), self._usable().transaction():
            known = self._tokens_alone()
            token = access.revoked(known, id_, at)
            if token is not None and token not in known.tokens:
                self._keep_token(known, token)
            return token

    def tokens(self) -> KnownTokens:
        """Every token there ever was."""
        with self._door("tokens"):
            return access.tokens_from(self._usable().execute(_QUERIES["tokens"]))

    def tokens_changed(self) -> int:
        """The number that grows with each change of a token."""
        with self._door("tokens_changed"):
            found = self._usable().execute(_QUERIES["tokens_changed"]).fetchone()
            assert found is not None
            return int(found[0])

    def _tokens_alone(self) -> KnownTokens:
        """All tokens, while nobody else changes one."""
        connection = self._usable()
        connection.execute(_QUERIES["tokens_alone"])
        return access.tokens_from(connection.execute(_QUERIES["tokens"]))

    def _keep_token(self, known: KnownTokens, token: Token) -> None:
        row = (token.id, known.changed + 1, access.token_text(token))
        self._usable().execute(_QUERIES["keep_token"], row)

    def add_audit(self, audited: Sequence[Audited]) -> None:
        """Write these lines, all or none."""
        instants = [one.at for one in audited]
        texts = [access.audited_text(one) for one in audited]
        with self._door("add_audit"):
            self._usable().execute(_QUERIES["add_audit"], (instants, texts))

    def audit(
        self,
        limit: int,
        *,
        before: int | None = None,
        who: str | None = None,
        since: datetime | None = None,
    ) -> list[AuditLine]:
        """Up to so many lines, the newest first."""
        asked = {"limit": limit, "before": before, "who": who, "since": since}
        with self._door("audit"):
            return access.audit_from(self._usable().execute(_QUERIES["audit"], asked))

    def forget_audit(self, before: datetime) -> int:
        """Delete some lines that are older."""
        with self._door("forget_audit"):
            found = self._usable().execute(_QUERIES["remove_audit"], (before, sql.FORGET_LINES))
            return found.rowcount
