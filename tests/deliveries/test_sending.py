"""One request to a receiver: where it goes, and how much of an answer is read."""

import asyncio

import pytest

from fairnotice.deliveries import sending
from fairnotice.deliveries.sending import Sender, target_of
from fairnotice.errors import Unavailable


async def asked(answer, addresses, monkeypatch):
    """What comes of asking a receiver that has these addresses and listens on one."""

    async def answers(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await answer(writer)
        writer.close()

    async def resolved(_):
        return addresses

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(sending, "_resolved", resolved)
    async with server:
        target = target_of(f"http://localhost:{port}/in", allow_http=False)
        return await asyncio.wait_for(Sender().ask("POST", target, (), b"{}"), 20)


async def well(writer):
    """Answer as one should."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_a_receiver_that_listens_on_one_of_its_addresses_is_found(monkeypatch):
    """Where `localhost` is ::1 first, and somebody listens on 127.0.0.1 only."""
    answer = asyncio.run(asked(well, ["127.0.0.2", "127.0.0.3", "127.0.0.1"], monkeypatch))
    assert (answer.status, answer.body) == (200, b"ok")


def test_where_nobody_listens_on_any_of_them_that_is_said(monkeypatch):
    """The last one's reason."""
    with pytest.raises(Unavailable, match="nobody listens there"):
        asyncio.run(asked(well, ["127.0.0.2", "127.0.0.3"], monkeypatch))


def test_a_head_without_end_is_not_read_for_ever(monkeypatch):
    """A receiver that wants our memory."""

    async def without_end(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            writer.write(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            await writer.drain()

    with pytest.raises(Unavailable):
        asyncio.run(asked(without_end, ["127.0.0.1"], monkeypatch))
