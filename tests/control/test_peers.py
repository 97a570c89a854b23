"""Asking another process of ours: what is kept, what is sent twice, and what an error says."""

import asyncio
import os
import re
import shutil
import ssl
import subprocess

import pytest

from fairnotice.control.peers import Peer, PeerAnswer
from fairnotice.errors import Unavailable, UsageError

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Word: a\r\nX-Word: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Far:
    """A server of the test: each connection is given to `play`, and what it was sent is kept."""

    def __init__(self, *plays, context=None):
        self.context = context
        self.plays = list(plays)
        self.heard: list[bytes] = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _serve(self, reader, writer):
        for answer in self.plays.pop(0):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = re.search(rb"Content-Length: (\d+)", head)
            self.heard.append(head + await reader.readexactly(int(length[1]) if length else 0))
            for piece in answer if isinstance(answer, list) else [answer]:
                writer.write(piece)
                await writer.drain()
        writer.close()


def run(story, *plays):
    """Play a story against a server, and give what it gives with what the server heard."""

    async def whole():
        async with Far(*plays) as far:
            peer = Peer(far.url, token="secret")  # noqa: S106
            try:
                return await story(peer), far.heard
            finally:
                await peer.close()

    return asyncio.run(asyncio.wait_for(whole(), 20))


async def read_all(peer, idle_seconds=5.0):
    """Every line of a stream."""
    return [line async for line in peer.lines("/feed", idle_seconds=idle_seconds)]


def test_a_connection_is_kept_and_the_token_goes_along():
    """Two questions, one connection; the token and the body arrive, headers come back as one."""

    async def story(peer):
        await peer.ask("GET", "/v1/a")
        return await peer.ask("POST", "/v1/b", body=b"{}", headers=[("X-Key", "7")])

    answer, heard = run(story, [HELLO, HELLO])

    assert answer == PeerAnswer(200, {"content-length": "5", "x-word": "a, b"}, b"hello")
    assert heard[0].startswith(b"GET /v1/a HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-Key: 7\r\n" in heard[1]
    assert b"Authorization: Bearer secret\r\n" in heard[1]
    assert heard[1].endswith(b"Content-Length: 2\r\n\r\n{}")


def test_the_callers_own_authorization_is_passed_on():
    """Who passes a request on passes on who asked."""
    _, heard = run(
        lambda peer: peer.ask("GET", "/", headers=[("authorization", "Bearer x")]), [HELLO]
    )

    assert re.findall(rb"(?i)authorization: (.*)\r\n", heard[0]) == [b"Bearer x"]


@pytest.mark.parametrize(("method", "repeatable"), [("GET", False), ("POST", True)])
def test_a_kept_connection_that_was_closed_is_replaced(method, repeatable):
    """What may be done twice is sent again over a new connection, once."""

    async def story(peer):
        await peer.ask("GET", "/first")
        return await peer.ask(method, "/second", repeatable=repeatable)

    # The first connection reads the second request and closes without a byte of an answer.
    answer, heard = run(story, [HELLO, b""], [HELLO])

    assert answer.body == b"hello"
    assert [line.split()[1] for line in heard] == [b"/first", b"/second", b"/second"]


def test_what_may_not_be_done_twice_is_not_sent_again():
    """Nobody knows whether the POST was carried out; the caller is told, and decides."""

    async def story(peer):
        await peer.ask("GET", "/first")
        with pytest.raises(Unavailable, match=r"POST http://.*/second: .*closed before an answer"):
            await peer.ask("POST", "/second")

    _, heard = run(story, [HELLO, b""], [HELLO])

    assert len(heard) == 2


def test_a_connection_that_the_peer_has_left_is_not_used_for_anything():
    """Where the end of a kept connection has been seen, nothing was sent: a POST is safe."""

    async def story(peer):
        await peer.ask("GET", "/first")
        # The server closes after its one answer; the kept connection's reader hears of it.
        await asyncio.wait_for(peer._kept[0]._reader.read(), 10)
        return await peer.ask("POST", "/second")

    answer, heard = run(story, [HELLO], [HELLO])

    assert (answer.status, len(heard)) == (200, 2)


@pytest.mark.parametrize(
    ("play", "says"),
    [
        ([b""], "closed before an answer"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell"], "broke off in the middle"),
        ([b"HTTP/1.1 200 OK\r\nContent-Le"], "broke off in the middle"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "is no HTTP"),
    ],
)
def test_what_keeps_a_peer_from_answering_is_one_error_that_says_what_and_where(play, says):
    """Closed, cut, or somebody else altogether."""

    async def story(peer):
        with pytest.raises(Unavailable, match=rf"^GET http://127\.0\.0\.1:\d+/v1/x: .*{says}"):
            await peer.ask("GET", "/v1/x?secret=1")

    run(story, play)


def test_nobody_there_and_nobody_in_time():
    """A refused connection and a silent peer are said as what they are."""

    async def story(peer):
        with pytest.raises(Unavailable, match="no answer in time"):
            await peer.ask("GET", "/", seconds=0.05)
        with pytest.raises(Unavailable, match=r"GET http://127\.0\.0\.1:1/: .*nobody listens"):
            await Peer("http://127.0.0.1:1").ask("GET", "/")

    run(story, [[], HELLO])


def test_an_answer_without_a_length_ends_with_the_connection_and_after_a_1xx():
    """Bodies may go on to the end of a connection; what is said before an answer is passed over."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    whole = early + b"HTTP/1.1 201 Created\r\nX-A: b\r\n\r\nto the end"
    answer, _ = run(lambda peer: peer.ask("POST", "/"), [whole])

    assert answer == PeerAnswer(201, {"x-a": "b"}, b"to the end")


def test_lines_come_as_they_are_however_they_are_cut():
    """A stream of two chunks that part a line in the middle, and its end."""
    lines, _ = run(read_all, [[CHUNKED, b"5\r\none\nt\r\n", b"9\r\nwo\nthree\n\r\n0\r\n\r\n"]])

    assert lines == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("play", "says"),
    [
        ([CHUNKED, b"4\r\none\n\r\n"], "broke off in the middle"),
        ([b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!"], "answered 403: no!"),
    ],
)
def test_a_stream_that_breaks_off_is_no_end(play, says):
    """A cut stream and one that is refused raise; only the end that the peer meant is an end."""

    async def story(peer):
        with pytest.raises(Unavailable, match=says):
            await read_all(peer, idle_seconds=5)

    run(story, [play])


def test_a_stream_that_falls_silent_is_given_up():
    """A link that was cut says nothing: the silence does."""

    async def story(peer):
        with pytest.raises(Unavailable, match="no answer in time"):
            await read_all(peer, idle_seconds=0.05)

    # It waits for a second request, which never comes.
    run(story, [[CHUNKED, b"4\r\none\n\r\n"], b""])


@pytest.mark.parametrize(
    "url", ["cp.example.net:8600", "ftp://a", "http://", "http://a?b", "http://a:x"]
)
def test_a_url_that_is_none_is_refused(url):
    """A typing error is found before anything is asked."""
    with pytest.raises(UsageError):
        Peer(url)


def test_a_line_end_cannot_be_smuggled_into_a_request():
    """A header or path is one line."""
    with pytest.raises(UsageError, match="line end"):
        asyncio.run(Peer("http://127.0.0.1:1").ask("GET", "/", headers=[("A", "b\r\nC: d")]))


def certified(folder):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=peer"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)  # noqa: S603
    return certificate, key


@pytest.mark.skipif(
    shutil.which("openssl") is None and "CI" not in os.environ, reason="needs openssl"
)
def test_a_certificate_is_believed_where_it_is_trusted_and_nowhere_else(tmp_path):
    """Over TLS the peer has to show who it is; a stranger is an Unavailable that says why."""
    certificate, key = certified(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def story():
        async with Far([HELLO], [HELLO], context=context) as far:
            url = far.url.replace("http:", "https:")
            trust = ssl.create_default_context(cafile=str(certificate))
            trusting = Peer(url, trust=trust)
            answer = await trusting.ask("GET", "/")
            await trusting.close()
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await Peer(url).ask("GET", "/")
            return answer

    assert asyncio.run(asyncio.wait_for(story(), 20)).body == b"hello"


def test_a_token_is_never_said_where_others_could_read_it():
    """Neither its own nor one that is passed on; on this machine it is, and over HTTPS."""

    async def story():
        for url in ("http://cp.example.net:8600", "http://10.0.0.1"):
            with pytest.raises(UsageError, match="everybody could read it") as error:
                Peer(url, token="secret")  # noqa: S106
            assert "secret" not in str(error.value)
            peer = Peer(url)
            with pytest.raises(UsageError, match="everybody could read it"):
                await peer.ask("POST", "/v1/a", headers=[("Authorization", "Bearer secret")])
        for url in ("http://localhost:1", "http://[::1]:1", "https://cp.example.net"):
            Peer(url, token="secret")  # noqa: S106

    asyncio.run(story())
