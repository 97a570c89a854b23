"""No web page reaches the control plane behind a person's back."""

import asyncio

import pytest

from fairnotice.control.guard import Guard

OURS = ["127.0.0.1", "127.0.0.1:8600", "localhost", "localhost:8600", "LocalHost:1", "[::1]:8600"]
FOREIGN = [
    "evil.com",
    "evil.com:8600",
    "127.0.0.1.evil.com",
    "localhost.evil.com",
    "evil.com@127.0.0.1",
    "127.0.0.1@evil.com",
    "user:pw@localhost:8600",
    "localhost.",
    "127.0.0.1.",
    "127.0.0.1:8600:80",
    "127.0.0.1:",
    "127.0.0.1:http",
    "127.0.0.1:123456",
    "127.0.0.1/",
    "127.0.0.1#evil.com",
    "127.0.0.1?x",
    "127.0.0.1\\evil.com",
    "127.0.0.1, evil.com",
    " 127.0.0.1",
    "::1",
    "[::1",
    "::1]",
    "[::1]evil.com",
    "[::2]",
    "[127.0.0.1.evil]",
    "[fe80::1%25lo]",
    "127.1",
    "2130706433",
    "0.0.0.0",  # noqa: S104, a header, nothing is bound
    "localhost\xa0",
    "",
]


def status(*headers, kind="http", names=None):
    """What becomes of a request with these headers: 200 where it is let through."""
    said = []

    async def behind(_, __, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        said.append(message)

    async def story():
        pairs = [(name, value.encode("latin-1")) for name, value in headers]
        guard = Guard(behind) if names is None else Guard(behind, names)
        await guard({"type": kind, "headers": pairs}, None, send)

    asyncio.run(story())
    return said[0]["status"]


@pytest.mark.parametrize("host", OURS)
def test_a_host_of_this_machine_is_let_through(host):
    """By name or address, with a port or without."""
    assert status((b"host", host)) == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_any_other_host_is_not(host):
    """However it is dressed up."""
    assert status((b"host", host)) == 403


def test_without_a_host_nothing_is_answered():
    """Nor with two of them, of which somebody else may read the other."""
    assert status() == 403
    assert status((b"host", "localhost"), (b"host", "evil.com")) == 403
    assert status((b"host", "localhost"), (b"host", "localhost")) == 403


@pytest.mark.parametrize("host", OURS)
def test_a_page_of_ours_may_ask(host):
    """Its Origin is where it was loaded from: this very host and port."""
    assert status((b"host", host), (b"origin", f"http://{host}")) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.com",
        "https://evil.com:8600",
        "http://localhost:8600.evil.com",
        "http://evil.com@localhost:8600",
        "http://localhost.:8600",
        "http://localhost:8600/",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:8600",
        "http://[::1]:8600",
        "file://localhost:8600",
        "localhost:8600",
        "http://localhost:8600 http://evil.com",
    ],
)
def test_a_page_from_anywhere_else_may_not(origin):
    """Not from another port of this machine either: that is somebody else's page."""
    assert status((b"host", "localhost:8600"), (b"origin", origin)) == 403


def test_one_origin_of_ours_does_not_excuse_another():
    """Both are looked at."""
    ours, foreign = (b"origin", "http://localhost"), (b"origin", "http://evil.com")
    for origins in ((ours, foreign), (foreign, ours)):
        assert status((b"host", "localhost"), *origins) == 403


def test_a_service_that_listens_elsewhere_goes_by_that_name():
    """And by no other."""
    assert status((b"host", "127.0.0.5:8600"), names={"127.0.0.5"}) == 200
    assert status((b"host", "localhost:8600"), names={"127.0.0.5"}) == 403


def test_a_start_of_the_server_is_no_request():
    """It has no headers, and is passed on."""
    assert status(kind="lifespan") == 200
