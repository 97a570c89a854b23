"""What every answer of the control plane tells a browser, so that it does less with it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = b"content-security-policy"
# JSON that somebody opens in a browser loads nothing, and no page puts it into a frame. A page
# that has styles or scripts of its own says itself which.
EVERYWHERE = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (POLICY, b"default-src 'none'; frame-ancestors 'none'"),
)


class Headers:
    """Puts these headers on every answer that does not have them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message["headers"])
                there = {name.lower() for name, _ in given}
                more = [header for header in EVERYWHERE if header[0] not in there]
                message = {**message, "headers": [*given, *more]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
