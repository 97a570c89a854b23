"""Whose request it is, by the bearer token that it carries.

    bearers = Bearers(issuer)
    caller = await bearers.caller(text)     # control/auth.py's Caller, or None: answer 401

Taken are access tokens that we have signed, and the tokens of fairnotice as they are. Both come to
the same caller, with the same role and limits, and his `ended` is set when it counts no longer.
Raises errors.Unavailable where nobody can tell whether it counts: answer 503.
"""

from fairnotice.arm.issuing import OPERATOR, Issuer
from fairnotice.control.auth import ANYBODY, Caller, WhoseToken, caller_of
from fairnotice.control.tokens import Lapsed


class Bearers:
    """From the text of a bearer token to who shows it."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._plain = WhoseToken(issuer.auth.tokens)

    async def caller(self, text: str) -> Caller | None:
        """Who shows this; None where it does not count, whatever the reason."""
        issuer = self._issuer
        if "." not in text:
            return await self._plain.caller(text)
        claims = issuer.file.keys.read(text, issuer.clock.wall(), issuer.audiences)
        if claims is None:
            return None
        if claims.sub == OPERATOR:
            # It was signed where nobody is asked who he is, with a key that is in force here.
            return None if issuer.auth.required else ANYBODY
        bearer = await issuer.auth.tokens.of_id(claims.sub)
        return None if bearer is None else caller_of(bearer)

    def lapsed(self, text: str) -> Lapsed | None:
        """Whose it was, where that token counts no longer, though the hour of this one is over."""
        if "." not in text:
            return self._plain.lapsed(text)
        claims = self._issuer.file.keys.signed(text)
        return None if claims is None else self._issuer.auth.tokens.lapsed_of_id(claims.sub)
