"""Whose request it is, by the bearer token that it carries.

    bearers = Bearers(issuer)
    caller = await bearers.caller(text)     # control/auth.py's Caller, or None: answer 401

Taken are access tokens that we have signed, and the tokens of fairnotice as they are. Both come to
the same caller, with the same role and limits, and his `ended` is set when it counts no longer.
Raises errors.Unavailable where nobody can tell whether it counts: answer 503.
"""

from fairnotice.arm.issuing import OPERATOR, Issuer
from fairnotice.control.auth import ANYBODY, Caller, caller_of


class Bearers:
    """From the text of a bearer token to who shows it."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def caller(self, text: str) -> Caller | None:
        """Who shows this; None where it does not count, whatever the reason."""
        issuer = self._issuer
        if "." not in text:
            bearer = await issuer.auth.tokens.find(text)
            return None if bearer is None else caller_of(bearer)
        claims = issuer.file.keys.read(text, issuer.clock.wall(), issuer.audiences)
        if claims is None:
            return None
        if claims.sub == OPERATOR:
            # It was signed where nobody is asked who he is, with a key that is in force here.
            return None if issuer.auth.required else ANYBODY
        bearer = await issuer.auth.tokens.of_id(claims.sub)
        return None if bearer is None else caller_of(bearer)
