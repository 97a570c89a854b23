"""Who is given an access token, and whom it stands for.

    service principal   a token of fairnotice by its name or id, and its secret
    managed identity    a token of fairnotice that is bound to the VM that asks
    `operator`          with whatever secret, where nobody is asked who he is (`fairnotice up`)

An access token says only which token of fairnotice it stands for. What that may do is looked up
each time it is shown (bearers.py): revoked, it counts no longer, whatever was signed before.
"""

import hmac
import secrets
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from fairnotice.arm.signing import TENANT, Claims, KeyFile, issuer_at, plain_audience
from fairnotice.clock import Clock
from fairnotice.control.admission import Auth
from fairnotice.control.auth import ANYBODY
from fairnotice.stores.access import Token
from fairnotice.words import TokenRole

LIFE_SECONDS = 3_600
# What tools ask a token for when nobody tells them our name; those of Node never do otherwise.
AZURE_AUDIENCES = ("https://management.azure.com", "https://management.core.windows.net")
# As whom anybody signs in where nobody is asked who he is. No token can have this name.
OPERATOR = ANYBODY.requester.name


class Issued(NamedTuple):
    """An access token, for what, and from when until when, in seconds since 1970."""

    text: str
    audience: str
    at: int
    until: int
    client_id: str


class Issuer:
    """Makes access tokens. Several control planes with the same keys make and believe the same.

    `url` is where Resource Manager is, as clients write it: https://localhost:8643.
    """

    def __init__(self, file: KeyFile, auth: Auth, clock: Clock, url: str) -> None:
        self.file = file
        self.auth = auth
        self.clock = clock
        self.url = url.rstrip("/")
        self.audiences = frozenset(map(plain_audience, (self.url, *AZURE_AUDIENCES)))

    def knows(self, audience: str) -> bool:
        """Whether a token for this would be good for anything here."""
        return plain_audience(audience) in self.audiences

    async def principal(self, client: str, secret: str) -> Token | str | None:
        """Who signs in with these; None where nobody does, whatever the reason.

        OPERATOR where nobody is asked who he is and he says nothing else.
        """
        if client == OPERATOR:
            return None if self.auth.required else OPERATOR
        bearer = await self.auth.tokens.find(secret)
        if bearer is None:
            return None
        token = bearer.token
        named = any(hmac.compare_digest(client.encode(), name.encode()) for name in names(token))
        # An endpoint speaks for the VMs of its node, with its own key, and for nothing else.
        return token if named and token.role is not TokenRole.ENDPOINT else None

    def issue(self, whom: Token | str, audience: str, resource_id: str = "") -> Issued:
        """An access token for whom `principal` has found, or for a VM with this resource id."""
        id_ = whom if isinstance(whom, str) else whom.id
        at = int(self.clock.wall().timestamp())
        until = at + LIFE_SECONDS
        if isinstance(whom, Token) and whom.expires_at is not None:
            until = min(until, int(whom.expires_at.timestamp()))
        claims = Claims(
            sub=id_,
            aud=audience,
            iss=issuer_at(self.url),
            tid=TENANT,
            iat=at,
            nbf=at,
            exp=until,
            oid=object_id(id_),
            appid=object_id(id_),
            jti=secrets.token_urlsafe(12),
            xms_mirid=resource_id,
            app_displayname=whom if isinstance(whom, str) else whom.name,
        )
        return Issued(self.file.keys.sign(claims), audience, at, until, object_id(id_))


def names(token: Token) -> tuple[str, ...]:
    """By what a principal may call itself: the token's name, its id, and that as a GUID."""
    return token.name, token.id, object_id(token.id)


def object_id(id_: str) -> str:
    """The GUID that tools are shown for a principal."""
    return str(uuid5(NAMESPACE_URL, f"https://fairnotice/{TENANT}/{id_}"))
