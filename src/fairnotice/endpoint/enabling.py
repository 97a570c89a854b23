"""Scopes that ask for the first time, passed on together.

When a node's endpoint begins, all its scopes ask within a second. Each may wait for its own word of
the control plane; a request for each of them would keep both busy for longer than VMs wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection

from fairnotice.errors import Unavailable

# In one request; a control plane takes more (control/endpoint_shapes.py).
TOGETHER_MAX = 2_000

# Takes scopes and has them enabled, durably; those of which no VM is on the node.
Say = Callable[[list[str]], Awaitable[Collection[str]]]


class _Batch:
    """Scopes that go into one request."""

    __slots__ = ("failure", "passed_on", "scopes")

    def __init__(self) -> None:
        self.scopes: dict[str, None] = {}
        self.failure: Unavailable | None = None
        # Whose result is who was passed over.
        self.passed_on: asyncio.Future[Collection[str]]


class Enabling:
    """Passes on whatever was asked for while the request before it was under way."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._one_at_a_time = asyncio.Lock()
        self._waiting: deque[_Batch] = deque()

    async def enable(self, scope: str) -> None:
        """Return when the enabling is durable; Unavailable where it cannot be passed on."""
        if not self._waiting or len(self._waiting[-1].scopes) >= TOGETHER_MAX:
            self._waiting.append(self._begun(_Batch()))
        batch = self._waiting[-1]
        batch.scopes[scope] = None
        if scope in await asyncio.shield(batch.passed_on):
            raise Unavailable(f"no VM of {scope} is on this node, says the control plane")

    def _begun(self, batch: _Batch) -> _Batch:
        batch.passed_on = asyncio.ensure_future(self._pass_on(batch))
        # Whoever waited may have gone, and nobody else is to be told.
        batch.passed_on.add_done_callback(lambda done: done.cancelled() or done.exception())
        return batch

    async def _pass_on(self, batch: _Batch) -> Collection[str]:
        async with self._one_at_a_time:
            self._waiting.remove(batch)
            if batch.failure is not None:
                raise batch.failure
            try:
                return await self._say(list(batch.scopes))
            except Unavailable as error:
                # Whoever waited behind this one has waited long enough: nobody answers there.
                for other in self._waiting:
                    other.failure = error
                raise
