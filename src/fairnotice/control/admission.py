"""Tokens and the audit at work, without HTTP: what stands behind the gate of auth.py."""

import contextlib
from collections.abc import AsyncIterator

from fairnotice.clock import Clock
from fairnotice.control.audits import Audits
from fairnotice.control.loops import Loops
from fairnotice.control.tokens import AskStore, Tokens
from fairnotice.errors import Unavailable


class Auth:
    """Tokens and the audit of one control plane."""

    def __init__(self, ask_store: AskStore, clock: Clock) -> None:
        # Whether everybody has to say who he is.
        self.required = False
        self.tokens = Tokens(ask_store, clock)
        self.audits = Audits(ask_store, clock)
        self.clock = clock
        self.loops = Loops(clock)

    @contextlib.asynccontextmanager
    async def on_duty(self) -> AsyncIterator[None]:
        """From now on everybody is asked for his token, and is written down."""
        self.required = True
        await self.tokens.look()
        try:
            async with self.loops.beside(tokens=self.tokens.follow, audits=self.audits.write):
                yield
        finally:
            with contextlib.suppress(Unavailable):
                await self.audits.flush()
