"""What an address of Azure Resource Manager is: what it does, and who may ask there."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairnotice.arm.kinds import Kind
from fairnotice.control.auth import Caller
from fairnotice.control.limits import Reach
from fairnotice.control.service import Service, Who
from fairnotice.engine import Fleet
from fairnotice.words import TokenRole


class Call(NamedTuple):
    """One request, understood."""

    service: Service
    caller: Caller
    # Who asks, under a key that a repeat of the same request has too.
    who: Who
    # What stands for the names in the path.
    names: Mapping[str, str]
    query: Mapping[str, str]
    # None where nothing was sent.
    body: dict[str, Any] | None
    # What was read before, as If-Match has it, any of these; none where nothing was said.
    expected: tuple[str, ...]
    # For what must be read and changed by one at a time.
    in_turn: asyncio.Lock
    new_only: bool = False

    @property
    def fleet(self) -> Fleet:
        """The state as it was last committed."""
        return self.service.fleet

    def expects(self, version: str) -> str | None:
        """What it shall still be for the law, where it is this version now; None where any will do.

        Of several that were read one is enough.
        """
        return version if version in self.expected else next(iter(self.expected), None)

    def shows(self, reach: Reach, name: str) -> bool:
        """Whether whoever asks may see this."""
        return self.caller.reaches(self.fleet, reach, name)


class Done(NamedTuple):
    """What is answered: a body, or none; and the request of the law that is followed, if any."""

    body: object = None
    status: int = 200
    request: str | None = None
    etag: str | None = None
    # Of a list that goes on: behind which name (paging.py).
    page_ends: str | None = None


Handler = Callable[[Call], Any]


class ArmRoute(NamedTuple):
    """One address and method."""

    method: str
    path: str
    summary: str
    handle: Handler
    # The least role that may ask. Nobody forgets to say so: there is no default.
    needs: TokenRole
    # What the thing is that the path names, and how it is called by the law: None where that is
    # none of the law's, and `handle` shows whoever asks only what he may see.
    reach: Reach | None
    name: Callable[[Call], str] | None = None
    # What its body is called by Azure, where it takes one (kinds.py).
    body: Kind | None = None
    # Whether `handle` looks at $filter (filtering.py); elsewhere one is refused.
    filters: bool = False
