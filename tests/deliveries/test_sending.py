"""One request to a receiver: where it goes, and how much of an answer is read."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from fairnotice.deliveries import sending
from fairnotice.deliveries.addresses import Addresses, must_be_allowed
from fairnotice.deliveries.sending import Sender, shown, target_of
from fairnotice.errors import Unavailable, UsageError


async def asked(answer, addresses, monkeypatch):
    """What comes of asking a receiver that has these addresses and listens on one."""
    answering = []

    async def answers(reader, writer):
        answering.append(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        finally:
            writer.close()

    async def of(*_):
        return addresses

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(Addresses, "of", of)
    async with server:
        target = target_of(f"http://localhost:{port}/in", allow_http=False)
        try:
            return await asyncio.wait_for(Sender().ask("POST", target, (), b"{}"), 20)
        finally:
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)


def said_against(url):
    """Why nobody may be told anything there; nothing where somebody may."""
    try:
        target_of(url, allow_http=True)
    except UsageError as error:
        return str(error)
    return ""


PLAIN = some.text(some.sampled_from("ab.-_~%1"))
ODD = some.text(some.sampled_from("ab1/?#@:[]\\\n %ü℀"))


@given(
    scheme=some.sampled_from(["https://", "http://", "ftp://", "https:", "//", ""]),
    user=PLAIN,
    before=ODD,
    after=ODD,
    rest=some.sampled_from(["h/", "h:x/", "h:1/a?b#c", "[h/", "", "127.0.0.1/@a?x=@"]),
)
def test_a_password_is_never_shown_whatever_address_it_stands_in(scheme, user, before, after, rest):
    """Neither where a URL is shown nor in what is said against it, also by what reads it."""
    url = f"{scheme}{user}:{before}SESAME{after}@{rest}"
    assert "SESAME" not in shown(url)
    assert "SESAME" not in said_against(url)


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://h.example:8443/in", "https://h.example:8443/in"),
        ("https://h/in?code=x", "https://h/in?…"),
        ("https://h/in?mail=a@b", "https://h/…"),
        ("https://h/#x", "https://h/#…"),
        ("https://h:8443/@team/in", "https://h:8443/…"),
        ("ftp://u:x@h/", "ftp://…"),
        ("u:x@h", "…"),
    ],
)
def test_of_an_address_as_much_is_shown_as_can_be(url, seen):
    """Host and port are, wherever they can be told from a user."""
    assert shown(url) == seen


@example("a..b")
@example("a" * 64)
@given(host=some.text(some.characters(min_codepoint=33, max_codepoint=126), max_size=80))
def test_whatever_host_is_taken_can_be_looked_up(host):
    """What no name server could be asked for is the fault of whoever gave it."""
    with suppress(UsageError):
        target_of(f"https://{host}/", allow_http=False).host.encode("idna")


async def well(writer):
    """Answer as one should."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_a_receiver_that_listens_on_one_of_its_addresses_is_found(monkeypatch):
    """Where `localhost` is ::1 first, and somebody listens on 127.0.0.1 only."""
    answer = asyncio.run(asked(well, ["127.0.0.2", "127.0.0.3", "127.0.0.1"], monkeypatch))
    assert (answer.status, answer.body) == (200, b"ok")


@contextmanager
def swallowing(address, port):
    """Nobody accepts there, and the queue is full: the kernel drops whoever else knocks."""
    with socket.socket() as deaf, ExitStack() as knocking:
        deaf.bind((address, port))
        deaf.listen(0)
        for _ in range(4):
            one = knocking.enter_context(socket.socket())
            one.settimeout(0)
            one.connect_ex((address, port))
        yield


def test_addresses_that_swallow_all_leave_time_for_the_one_that_listens(monkeypatch):
    """A name with dead AAAA records: the last address is asked, within the time of one try."""

    async def story():
        async def answers(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await well(writer)
            writer.close()

        async def of(*_):
            return ["127.0.0.2", "127.0.0.3", "127.0.0.1"]

        monkeypatch.setattr(Addresses, "of", of)
        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        target = target_of(f"http://localhost:{port}/in", allow_http=False)
        async with server:
            with swallowing("127.0.0.2", port), swallowing("127.0.0.3", port):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await asyncio.open_connection("127.0.0.2", port)
                return await Sender().ask("POST", target, (), b"{}", 2.0)

    assert asyncio.run(story()).status == 200


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


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def for_ever(writer):
    """A body of which a piece comes now and then."""
    writer.write(HEAD)
    while not writer.is_closing():
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(writer):
    """A body of which nothing comes."""
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n")
    await asyncio.sleep(5)


async def broken(writer):
    """A body that is none."""
    writer.write(HEAD + b"no size\r\n")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def flooding(writer):
    """More than anybody wants."""
    writer.write(b"HTTP/1.1 201 Created\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x" * 10_000)
        await writer.drain()


@pytest.mark.parametrize(
    ("answers", "status"), [(for_ever, 200), (silent, 202), (broken, 200), (flooding, 201)]
)
def test_the_head_of_an_answer_says_whether_it_was_taken(answers, status, monkeypatch):
    """Whatever becomes of the body, which is read so far and no farther."""
    monkeypatch.setattr(sending, "REST_SECONDS", 0.2)
    answer = asyncio.run(asked(answers, ["127.0.0.1"], monkeypatch))
    assert answer.status == status
    assert len(answer.body) <= sending.ANSWER_BYTES_MAX


def test_what_stands_below_a_body_is_no_header(monkeypatch):
    """Else whoever fills in bodies could agree in the name of the receiver."""

    async def below(writer):
        writer.write(HEAD + b"0\r\nWebHook-Allowed-Origin: *\r\n\r\n")

    assert asyncio.run(asked(below, ["127.0.0.1"], monkeypatch)).headers == {
        "transfer-encoding": "chunked"
    }


def test_whoever_wants_another_protocol_has_not_answered(monkeypatch):
    """Nobody asked for one."""

    async def switching(writer):
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
        )

    with pytest.raises(Unavailable):
        asyncio.run(asked(switching, ["127.0.0.1"], monkeypatch))


@pytest.mark.parametrize(
    "address",
    ["192.0.0.192", "fd20:ce::254", "64:ff9b::a9fe:a9fe", "fe80::1%lo", "255.255.255.255"],
)
def test_where_no_receiver_is(address):
    """What clouds keep, also behind a translation of addresses; more in test_handshakes."""
    with pytest.raises(UsageError):
        must_be_allowed(address)


def test_a_name_server_that_does_not_answer_holds_up_no_other_receiver(monkeypatch):
    """Each name waits in one thread, and in none that others of the process need."""
    answers, asked_for = threading.Event(), []
    real = socket.getaddrinfo

    def slow(host, *given, **more):
        asked_for.append(host)
        if host.endswith(".test"):
            answers.wait()
            raise socket.gaierror("it has none")
        return real(host, *given, **more)

    async def story():
        addresses = Addresses()
        slow_ones = [f"{number}.test" for number in range(40)]
        waiting = [
            asyncio.ensure_future(addresses.of(one, 443)) for one in slow_ones for _ in "four"
        ]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(addresses.of("127.0.0.1", 443), 10) == ["127.0.0.1"]
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "a driver's turn"), 10)
        assert sorted(asked_for) == sorted([*slow_ones, "127.0.0.1"])
        # One of those who wait leaves: the others are told.
        waiting[0].cancel()
        answers.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in found[1:]] == [socket.gaierror] * (len(found) - 1)
        # And it is looked up anew.
        with pytest.raises(OSError, match="it has none"):
            await addresses.of("0.test", 443)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        asyncio.run(story())
    finally:
        answers.set()


@pytest.mark.parametrize("later", [["169.254.169.254"], ["127.0.0.1", "169.254.169.254"]])
def test_a_name_that_changes_its_mind_gains_nothing(later, monkeypatch):
    """It is looked up once a try, and what was looked at is where it goes."""
    real, meant = socket.getaddrinfo, [["127.0.0.1"], later]

    def changing(host, port, *given, **more):
        if host != "mind.test":
            return real(host, port, *given, **more)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in (meant.pop(0) if len(meant) > 1 else meant[0])
        ]

    async def story():
        async def answers(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await well(writer)
            writer.close()

        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        target = target_of(f"http://mind.test:{port}/in", allow_http=True)
        async with server:
            sender = Sender()
            assert (await sender.ask("POST", target, [], b"{}")).status == 200
            with pytest.raises(UsageError, match="is an address that no webhook may have"):
                await sender.ask("POST", target, [], b"{}")

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    asyncio.run(story())
