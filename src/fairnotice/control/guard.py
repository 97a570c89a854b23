"""Who may talk to a control plane without authentication: programs on this machine, no web page.

A page from anywhere can make a browser send requests to 127.0.0.1, and by a name that resolves
there even read the answers. So a request must name this machine as its Host; and where a page sends
it, the page must be one of ours: its Origin is that very Host.
"""

import re
from collections.abc import Callable, Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fairnotice.control.problems import problem, said
from fairnotice.control.shapes import Problem

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})

# A name, or an IPv6 address in brackets, and a port: nothing else is taken apart, since what two
# programs read differently (user@host, a trailing dot, a slash) is how a guard is passed.
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{1,5})?")
_SCHEMES = ("http://", "https://")


class Guard:
    """Lets through what names this machine, and nothing else; a front may say no otherwise."""

    def __init__(
        self,
        app: ASGIApp,
        own: Iterable[str] = LOCAL_NAMES,
        names: Iterable[str] = (),
        says: Callable[[Problem], Response] = said,
    ) -> None:
        self._app = app
        self._says = says
        self._own = frozenset(own)
        self.believe(names)

    def believe(self, names: Iterable[str]) -> None:
        """Let through what names this machine, or has one of these names, from now on."""
        self._names = self._own | {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        why = "" if scope["type"] == "lifespan" else self._why_not(scope)
        if why:
            await self._says(problem("foreign", 403, why))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _why_not(self, scope: Scope) -> str:
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or _name(hosts[0]) not in self._names:
            return "Host names another machine. Ask by 127.0.0.1 or localhost."
        ours = [scheme + hosts[0] for scheme in _SCHEMES]
        if any(origin not in ours for origin in _values(scope, b"origin")):
            return "A page of another site may not ask."
        return ""


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for name, value in scope["headers"] if name == header]


def _name(host: str) -> str | None:
    found = _HOST.fullmatch(host)
    return None if found is None else found["v6"] or found["name"]
