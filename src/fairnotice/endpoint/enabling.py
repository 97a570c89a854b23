"""Scopes that ask for the first time, passed on together.

When a node's endpoint begins, all its scopes ask within a second. Each may wait for its own word of
the control plane; a request for each of them would keep both busy for longer than VMs wait.
"""

import asyncio
from collections.abc import Awaitable, Callable

# As many as a control plane takes in one request (control/endpoint_shapes.py).
TOGETHER_MAX = 2_000


class Enabling:
    """Passes on whatever was asked for while the request before it was under way."""

    def __init__(self, say: Callable[[list[str]], Awaitable[object]]) -> None:
        self._say = say
        self._one_at_a_time = asyncio.Lock()
        self._asked: dict[str, None] = {}
        self._next: asyncio.Future[None] | None = None

    async def enable(self, scope: str) -> None:
        """Return when the enabling is durable; Unavailable where it cannot be passed on."""
        if self._next is None or len(self._asked) >= TOGETHER_MAX:
            self._asked = {}
            self._next = asyncio.ensure_future(self._pass_on(self._asked))
            # Whoever waited may have gone, and nobody else is to be told.
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._asked[scope] = None
        await asyncio.shield(self._next)

    async def _pass_on(self, asked: dict[str, None]) -> None:
        async with self._one_at_a_time:
            if self._asked is asked:
                self._next = None
            await self._say(list(asked))
