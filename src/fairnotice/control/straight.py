"""Tokens that are made and revoked straight in the store, by whoever has it: the first one, mostly.

Nobody is asked, and yet it is held to the same: names have to be there, and it is written down.
"""

from datetime import datetime

from fairnotice.control.limits import must_be_there
from fairnotice.control.tokens import Made, taken, token_named
from fairnotice.engine import AZURE, Fleet
from fairnotice.stores.access import Audited, Token
from fairnotice.stores.store import Store

# Who did it, as the audit has it, and from where.
WHOEVER = "whoever has the store"
STRAIGHT = "straight in the store"


def add(store: Store, made: Made) -> list[str]:
    """Keep a new token; what is hardly meant with it. UsageError where it cannot be kept."""
    token = made.token
    doubts = _doubts(store, token)
    if not store.add_token(token):
        raise taken(token.name)
    _write_down(store, token.created_at, f"/v1/tokens/{token.name}")
    return doubts


def _doubts(store: Store, token: Token) -> list[str]:
    if not (token.scopes or token.resource_groups or token.node or token.vm):
        # A fleet need not be read, which may be large.
        return []
    loaded = store.load()
    fleet = Fleet.load(loaded.rows, AZURE, loaded.revision, loaded.recorded_at)
    if not fleet.nodes:
        return ["There is no fleet yet: whether what it is limited to will be there, nobody knows."]
    return must_be_there(fleet, token.scopes, token.resource_groups, token.node, token.vm)


def revoke(store: Store, name: str, now: datetime) -> Token | None:
    """Let a token, by its name or id, count no longer; as it is then, or None."""
    found = token_named(store.tokens().tokens, name)
    token = None if found is None else store.revoke_token(found.id, now)
    if token is not None:
        _write_down(store, now, f"/v1/tokens/{token.name}/revoke")
    return token


def _write_down(store: Store, at: datetime, path: str) -> None:
    line = Audited(
        at=at, token=None, name=WHOEVER, source=STRAIGHT, method="POST", path=path, status=200
    )
    store.add_audit([line])
