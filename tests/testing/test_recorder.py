"""Recording: a whole event's life, every way to fail, and what a client asks."""

import asyncio
import http.client
import json
import socket
import urllib.request
from contextlib import contextmanager

import pytest

from fairnotice.clock import SystemClock
from fairnotice.errors import Unavailable, UsageError
from fairnotice.testing import Replay
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.testing.recordings.recorder import Endpoint, Recorder, poll, polls, recording_proxy
from fairnotice.testing.recordings.recording import Answer, Failure, Recording
from tests.metadata.sockets import endpoint, on_sockets
from tests.ports import own_port
from tests.testing.taped import EMPTY, ID, POLL, answering, document, recorded
from tests.testing.taped import http as answered


def looked(url, target=POLL.target):
    """Read as a client does."""
    request = urllib.request.Request(url + target, headers={"Metadata": "true"})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.read()


def lived(path):
    """Record the life of an event, from a real endpoint; what a client has seen of it."""
    seen = []

    async def story():
        async with endpoint() as served:
            with path.open("wb") as file:
                url = f"http://127.0.0.1:{served.port}"
                recorder = Recorder(Endpoint.of(url), file, ManualClock())
                recorder.begin(url)

                async def look():
                    exchange = await asyncio.to_thread(recorder.exchange, POLL)
                    seen.append(exchange.answer.body)

                await look()
                served.stage.restart_vm("web-0")
                await look()
                await look()
                served.stage.advance(minutes=15)
                await look()
                served.stage.done("web-0")
                served.stage.advance(minutes=30)
                await look()
                recorder.end()

    on_sockets(story)
    return seen


def test_the_life_of_an_event_is_the_same_in_the_replay(tmp_path):
    """Announced, Started, gone: the bodies are the same to the byte, in the same order."""
    seen = lived(tmp_path / "a")
    statuses = [[one["EventStatus"] for one in json.loads(body)["Events"]] for body in seen]
    assert statuses == [[], ["Scheduled"], ["Scheduled"], ["Started"], []]

    with Replay(tmp_path / "a", speed="step") as url:
        assert [looked(url) for _ in seen] == seen
        assert looked(url) == seen[-1]


def test_what_was_received_is_kept_to_the_byte(tmp_path):
    """Also a head that no program of ours would write."""
    odd = b"HTTP/1.1 200 Fine\r\nserver:x\r\nDATE:  now\r\nContent-Length:37\r\n\r\n" + EMPTY
    with answering(odd) as url:
        recorded(tmp_path / "a", url, POLL)
    (one,) = Recording(tmp_path / "a").exchanges()

    assert b"\r\n".join((*one.answer.head, b"", one.answer.body)) == odd


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FAILING = {
    "an empty body": (answered(b""), b"", ""),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc", ""),
    "chunks": (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n", b"abcde", ""),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + answered(EMPTY), EMPTY, ""),
    "half a body": (answered(b"abc", length=9), b"abc", "dropped"),
    "half of the chunks": (CHUNKED + b"3\r\nabc\r\n9\r\nab", b"abcab", "dropped"),
    "half a head": (b"HTTP/1.1 200 OK\r\nServer", b"HTTP/1.1 200 OK\r\nServer", "dropped"),
    "a few letters": (b"HTT", b"HTT", "dropped"),
    "no HTTP": (b"HELO", b"HELO", "garbage"),
    "nothing": (b"", b"", "dropped"),
    "garbage": (b"\x00\xffwhat?\r\n\r\n", b"\x00\xffwhat?\r\n\r\n", "garbage"),
    "far too much": (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 4_300_000, None, "too-large"),
}


@pytest.mark.parametrize("name", FAILING)
def test_every_answer_is_recorded_as_what_it_was(tmp_path, name):
    """Whole, cut off, or none; and the next request is asked as if nothing had been."""
    sent, body, failure = FAILING[name]
    rest = () if name == "far too much" else (answered(EMPTY),)
    with answering(sent, *rest) as url:
        recorded(tmp_path / "a", url, POLL, *(POLL for _ in rest))
    first, *others = Recording(tmp_path / "a").exchanges()

    assert (first.answer.failure, body in (None, first.answer.body)) == (failure, True)
    assert [one.answer.body for one in others] == [EMPTY for _ in rest]


def test_nobody_there(tmp_path):
    """Refused is one thing, no way there another."""
    (refused,) = recorded(tmp_path / "a", f"http://127.0.0.1:{own_port()}", POLL)
    (lost,) = recorded(tmp_path / "b", "http://nobody.invalid", POLL)

    assert refused.answer == Answer(failure=Failure.REFUSED)
    assert lost.answer == Answer(failure=Failure.UNREACHABLE)


def test_an_answer_that_never_ends(tmp_path):
    """What had come until then is kept."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        (silent,) = recorded(tmp_path / "a", url, POLL, seconds_max=0.05)

    assert silent.answer == Answer(failure=Failure.TIMED_OUT)


@pytest.mark.parametrize("url", ["", "169.254.169.254", "https://a", "http://", "http://a b", "x:"])
def test_what_is_no_address_is_refused(url):
    """Before anything is written."""
    with pytest.raises(UsageError, match="is no address of an endpoint"):
        Endpoint.of(url)


def test_a_full_disk_is_said():
    """The recorder ends with a sentence."""
    with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123 - a device
        recorder = Recorder(Endpoint.of("http://127.0.0.1:1"), file, ManualClock())
        with pytest.raises(Unavailable, match="No space left"):
            recorder.begin("")
    assert recorder.stopped.is_set()


@contextmanager
def recording(path, *answers):
    """A recorder on the machine's clock, of an endpoint that answers this."""
    clock = SystemClock()
    with answering(*answers) as url, path.open("wb") as file:
        recorder = Recorder(Endpoint.of(url), file, clock)
        recorder.begin(url)
        yield recorder, clock


def test_polling_goes_on_after_errors_and_ends_in_time(tmp_path):
    """The instance document once, the events again and again."""
    asked = polls("2020-07-01", instance=True)
    answers = (answered(b"{}"), answered(EMPTY), b"", answered(document()))

    def tell(exchange):
        if exchange.answer.body == document():
            raise KeyboardInterrupt

    with recording(tmp_path / "a", *answers) as (recorder, clock):
        with pytest.raises(KeyboardInterrupt):
            poll(recorder, asked, every_seconds=0.01, clock=clock, tell=tell)
        # The time is over: nobody is asked any more.
        poll(recorder, asked[1:], every_seconds=0.01, clock=clock, for_seconds=0)
    found = list(Recording(tmp_path / "a").exchanges())

    assert [one.answer.body for one in found] == [b"{}", EMPTY, b"", document()]
    assert [one.answer.failure for one in found] == ["", "", "dropped", ""]
    assert "instance" in found[0].asked.target
    assert recorder.counted == (4, 4, 1)


def test_a_client_is_recorded_with_its_posts(tmp_path):
    """It gets what the endpoint answers; both sides are in the file, and can be replayed."""
    body = json.dumps({"StartRequests": [{"EventId": ID}]}).encode()
    answers = (answered(document(), "ETag: 1"), answered(b""), answered(EMPTY))
    headers = {"Metadata": "true", "If-None-Match": "1", "Accept-Encoding": "gzip"}
    said = []
    with recording(tmp_path / "a", *answers) as (recorder, clock):
        server = recording_proxy(recorder, ("127.0.0.1", 0), clock)
        server.begin()
        client = http.client.HTTPConnection(server.url.removeprefix("http://"))
        for method, data in (("GET", None), ("POST", body), ("GET", None)):
            client.request(method, POLL.target, data, headers)
            answer = client.getresponse()
            said.append((answer.status, answer.read()))
        client.close()
        server.end()
    found = list(Recording(tmp_path / "a").exchanges())

    assert said == [(200, document()), (200, b""), (200, EMPTY)]
    assert [one.asked.method for one in found] == ["GET", "POST", "GET"]
    assert found[1].asked.body == body
    # With these an answer is not whole, or nobody can read it.
    assert not [line for line in found[0].asked.head if line.startswith((b"if-", b"accept-e"))]
    with Replay(tmp_path / "a", speed="step") as again:
        assert [looked(again), looked(again)] == [document(), EMPTY]
