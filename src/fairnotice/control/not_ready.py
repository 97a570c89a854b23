"""The control plane's address before there is a control plane: alive, and not ready."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fairnotice.control.problems import problem, said
from fairnotice.control.running import Entrance, Place, answering, listening


@contextlib.asynccontextmanager
async def not_ready(place: Place, entrance: Entrance, why: str) -> AsyncIterator[None]:
    """Answer everybody there that nothing can be done yet; why is told to nobody by name."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(Request(scope, receive).url.path, why)(scope, receive, send)

    with contextlib.closing(listening(place, "control")) as sock:
        async with answering(app, sock, entrance):
            yield


def _answer(path: str, why: str) -> Response:
    if path == "/healthz":
        return _json(200, alive=True)
    if path == "/readyz":
        return _json(503, ready=False)
    return said(problem("unavailable", 503, f"It cannot be done now: {why}. Try again later."))


def _json(status: int, **word: bool) -> Response:
    return Response(msgspec.json.encode(word), status, media_type="application/json")
