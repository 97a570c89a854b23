"""What browsers are told: every answer has these headers once, and a page's own word stands."""

import asyncio

from fairnotice.control.headers import EVERYWHERE, POLICY, Headers


def headers_of(given):
    """What is sent where an application sends these."""
    sent = []

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": given})

    async def send(message):
        sent.extend(message["headers"])

    asyncio.run(Headers(app)({}, None, send))
    return sent


def test_what_an_answer_says_itself_is_not_said_twice():
    """A browser keeps to all policies it is sent, so a second would be the stricter one."""
    own = (b"Content-Security-Policy", b"style-src 'self'")
    assert sorted(headers_of([])) == sorted(EVERYWHERE)
    found = headers_of([own])
    assert [value for name, value in found if name.lower() == POLICY] == [own[1]]
    assert len(found) == len(EVERYWHERE)
