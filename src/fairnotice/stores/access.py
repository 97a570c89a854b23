"""The part of the store port about who may ask, and who has asked: tokens and the audit.

Beside the fleet and its journal, and without an epoch: whoever has the database may add a token,
whether he leads or not, and every control plane writes down who has asked it for what.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from fairnotice.words import TokenRole


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token; its secret is not, only the hash of it."""

    id: str
    # Nobody else ever has the same name, so that it says who asked.
    name: str
    role: TokenRole
    # SHA-256 of the whole text, in hexadecimal digits.
    secret_hash: str
    created_at: datetime
    created_by: str
    # Empty, both of them: it is not limited.
    scopes: tuple[str, ...] = ()
    resource_groups: tuple[str, ...] = ()
    # The only one that an endpoint's token is good for.
    node: str | None = None
    # The VM whose identity it is: it signs in by asking for it, and nobody has a secret.
    vm: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    # The revision that declared this VM: the next one of its name is another.
    vm_revision: int = 0


class KnownTokens(NamedTuple):
    """Every token there ever was, the oldest first, and a number that grows with each change."""

    changed: int
    tokens: list[Token]


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asked for something; what came of it is its status and its operations."""

    at: datetime
    # None and empty where nobody knows who it was.
    token: str | None
    name: str
    source: str
    method: str
    path: str
    status: int
    operations: tuple[str, ...] = ()
    # What came before this one, of the same and to as little, and was too much to be written down.
    left_out: int = 0
    # Why the token did not count, although it was the right one: `revoked`, `expired`, `VM gone`.
    lapsed: str = ""


class AuditLine(NamedTuple):
    """One line of the audit, and its number."""

    number: int
    audited: Audited


class Access(Protocol):
    """What remembers who may ask, and who has asked."""

    def add_token(self, token: Token) -> bool:
        """Keep a new token; False, and nothing has changed, where one has or had its name."""
        ...

    def revoke_token(self, id_: str, at: datetime) -> Token | None:
        """Note that a token counts no longer; as it is then, or None where there is none."""
        ...

    def tokens(self) -> KnownTokens:
        """Every token there ever was."""
        ...

    def tokens_changed(self) -> int:
        """The number that grows with each change of a token; 0 where there is none."""
        ...

    def add_audit(self, audited: Sequence[Audited]) -> None:
        """Write these lines, all or none."""
        ...

    def audit(
        self,
        limit: int,
        *,
        before: int | None = None,
        who: str | None = None,
        since: datetime | None = None,
    ) -> list[AuditLine]:
        """Up to so many lines, the newest first: before this number, of this name or token id."""
        ...

    def forget_audit(self, before: datetime) -> int:
        """Delete some lines that are older; how many. Called again until it says 0."""
        ...


# ---- As text ----

encode = msgspec.json.Encoder().encode
_decode_token = msgspec.json.Decoder(Token).decode
_decode_audited = msgspec.json.Decoder(Audited).decode


def token_text(token: Token) -> str:
    """A token as a table holds it."""
    return encode(token).decode()


def audited_text(audited: Audited) -> str:
    """A line of the audit as a table holds it."""
    return encode(audited).decode()


def tokens_from(found: Iterable[tuple[int, str]]) -> KnownTokens:
    """All tokens, from what a table holds of each: when it changed, and its text."""
    rows = list(found)
    tokens = sorted((_decode_token(text) for _, text in rows), key=lambda one: one.created_at)
    return KnownTokens(max((changed for changed, _ in rows), default=0), tokens)


def audit_from(found: Iterable[tuple[int, str]]) -> list[AuditLine]:
    """Lines of the audit, from their number and text."""
    return [AuditLine(number, _decode_audited(text)) for number, text in found]


# ---- Changes, the same in every store ----


def is_new(known: KnownTokens, token: Token) -> bool:
    """Whether no token has or had this one's name, in whatever letters, nor its id."""
    return all(
        one.id != token.id and one.name.lower() != token.name.lower() for one in known.tokens
    )


def revoked(known: KnownTokens, id_: str, at: datetime) -> Token | None:
    """This token as it is when it counts no longer; None where there is none."""
    token = next((one for one in known.tokens if one.id == id_), None)
    if token is None or token.revoked_at is not None:
        return token
    return msgspec.structs.replace(token, revoked_at=at)
