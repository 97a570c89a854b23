"""The port of Azure Resource Manager: who is let in there, and as whom."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from fairnotice.arm import failures
from fairnotice.arm.api import Arm
from fairnotice.control.auth import (
    ANYBODY,
    CALLER,
    CHALLENGE,
    Find,
    Gate,
    finding,
    shown_token,
    unauthenticated,
)
from fairnotice.control.guard import LOCAL_NAMES, Guard
from fairnotice.control.passing_on import PassingOn
from fairnotice.control.problems import unavailable
from fairnotice.control.running import Entrance, Place, Running, answering, listening
from fairnotice.errors import Unavailable

PLACE = Place("127.0.0.1", 8643)


class Port(NamedTuple):
    """Where it listens, with which certificate, and by which names it may be asked."""

    place: Place
    entrance: Entrance


class _Shown:
    """Where nobody has to say who he is: a token that is shown must be one all the same."""

    def __init__(self, app: ASGIApp, find: Find) -> None:
        self._app = app
        self._find = find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        caller = ANYBODY
        if any(name == b"authorization" for name, _ in scope["headers"]):
            try:
                found = await self._find(shown_token(scope))
            except Unavailable as error:
                await failures.of_problem(unavailable(error))(scope, receive, send)
                return
            if found is None:
                answer = failures.of_problem(unauthenticated(), CHALLENGE)
                await answer(scope, receive, send)
                return
            caller = found
        await self._app({**scope, CALLER: caller}, receive, send)


def opened(port: Port) -> Callable[[Running], contextlib.AbstractAsyncContextManager[None]]:
    """The port, for control.running.Plan."""

    @contextlib.asynccontextmanager
    async def serve(run: Running) -> AsyncIterator[None]:
        with contextlib.closing(listening(port.place, "arm")) as sock:
            run.arm = port.place._replace(port=sock.getsockname()[1])
            app: ASGIApp = Arm(run.service)
            passing_on = None
            if run.cluster is not None:
                app = passing_on = PassingOn(app, run.conductor, run.cluster)
            find = finding(run.auth)
            if run.auth.required:
                app = Gate(app, run.auth, find, failures.of_problem)
            else:
                own = LOCAL_NAMES | {sock.getsockname()[0]}
                app = Guard(_Shown(app, find), own, port.entrance.names)
            try:
                async with answering(app, sock, port.entrance):
                    yield
            finally:
                if passing_on is not None:
                    await passing_on.close()

    return serve
