"""The replay: the recording's clock, its bytes and its failures, and who asks wrongly."""

import http.client
import json
import socket
import threading
from datetime import timedelta

import pytest

from fairnotice.errors import UsageError
from fairnotice.testing import ManualClock, Replay
from fairnotice.testing.recordings.recorder import polls
from fairnotice.testing.recordings.recording import Answer, Exchange, Failure, Opening, Writer
from fairnotice.wire import error_bodies
from tests.metadata.wireless import get, post, read_answers, request, start_requests
from tests.testing.taped import (
    EMPTY,
    ID,
    NOT_BEFORE,
    PATIENCE_SECONDS,
    POLL,
    answer,
    document,
    spoken,
    taped,
)
from tests.testing.taped import http as answered

DATE = "Date: Thu, 01 Jan 2026 00:00:{:02} GMT"
OVER = "Connection: close"


def ask(url, data=None):
    """One answer on a connection of its own."""
    (found,) = read_answers(spoken(url, data or get(OVER)))
    return found


@pytest.fixture
def hour(tmp_path):
    """A recording: nothing, after ten minutes an event, gone after fifty, and it ends at sixty."""
    return taped(
        tmp_path / "a",
        (0.0, answer(EMPTY)),
        (600.0, answer(document())),
        (3000.0, answer(EMPTY)),
        end=3600.0,
    )


# ---- Time ----


@pytest.mark.parametrize("speed", [1, 60, 0.5])
def test_the_replay_goes_by_its_clock(hour, speed):
    """It begins with the first request; what was answered last at that second is answered."""
    clock = ManualClock()
    replay = Replay(hour, speed=speed, clock=clock)
    with replay as url:
        clock.advance(hours=2)
        seen = []
        for seconds in (0, 599, 2, 2398, 2):
            clock.advance(seconds=seconds / speed)
            seen.append(ask(url).body)
        assert seen == [EMPTY, EMPTY, document(), document(), EMPTY]
        assert not replay.over
        clock.advance(seconds=600 / speed)
        assert replay.over
        clock.advance(hours=9)
        assert ask(url).body == EMPTY


def test_it_begins_in_the_middle_and_again(hour):
    """--from and --loop: at the end comes the beginning, and what was seen is not seen yet."""
    clock = ManualClock()
    replay = Replay(hour, begin_seconds=700, loop=True, clock=clock)
    with replay as url:
        assert ask(url).body == document()
        clock.advance(seconds=2901)
        assert ask(url).body == EMPTY
        assert ask(url, post(start_requests(ID), OVER)).status == 400
        clock.advance(seconds=601)
        assert ask(url).body == document()
        assert not replay.over


def test_step_by_step_and_from_the_beginning_again(tmp_path):
    """Each request gets the next answer; with a loop the first comes after the last."""
    bodies = [document(n) for n in range(5)]
    path = taped(tmp_path / "a", *((n * 9.0, answer(body)) for n, body in enumerate(bodies)))
    with Replay(path, speed="step", loop=True) as url:
        assert [ask(url).body for _ in range(12)] == [*bodies, *bodies, *bodies[:2]]


@pytest.mark.parametrize(("speed", "left"), [(1, 300), (60, 5), ("step", 300)])
def test_shifted_the_countdown_makes_sense(tmp_path, speed, left):
    """Date is now and NotBefore is when the replay gets there, as short as the replay is."""
    when = "Date: Thu, 01 Jan 2026 00:10:00 GMT"
    path = taped(tmp_path / "a", (0.0, answer(EMPTY)), (600.0, answer(document(), when)))
    clock = ManualClock()
    clock.advance(hours=500)
    with Replay(path, speed=speed, shift=True, clock=clock) as url:
        ask(url)
        clock.advance(seconds=600 / (1 if speed == "step" else speed))
        shown = ask(url)
    (event,) = json.loads(shown.body)["Events"]
    instant = clock.wall() + timedelta(seconds=left)

    assert shown.headers["date"] == clock.wall().strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert event["NotBefore"] == instant.strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert shown.body.replace(event["NotBefore"].encode(), NOT_BEFORE.encode()) == document()


def test_a_slow_answer_is_slow_again(tmp_path):
    """It is held until the second at which it came."""
    writer = Writer()
    slow = Exchange(0.0, 30.0, POLL, answer(EMPTY))
    opening = writer.opening(Opening(ManualClock().wall()))
    (tmp_path / "a").write_bytes(opening + writer.line(slow))
    held = threading.Event()
    clock = ManualClock()
    replay = Replay(tmp_path / "a", clock=clock, tell=lambda _: held.set())
    with replay as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as waiting:
            waiting.sendall(get())
            assert held.wait(PATIENCE_SECONDS)
            clock.advance(seconds=31)
            # Another who asks later is answered before.
            assert ask(url).body == EMPTY
            replay.end()
            assert waiting.recv(1) == b""


# ---- Bytes ----


def test_heads_and_bodies_are_sent_as_they_were(tmp_path):
    """Order, case, blanks and doubles; connections are kept as long as nobody says otherwise."""
    head = (b"HTTP/1.1 200 Fine", b"DATE:now", b"x-a:  1", b"X-A: 2", b"content-length: 37")
    path = taped(tmp_path / "a", (0.0, Answer(head, EMPTY)))
    sent = b"\r\n".join((*head, b"", EMPTY))
    closing = b"\r\n".join((*head, b"Connection: close", b"", EMPTY))
    with Replay(path) as url:
        assert spoken(url, get() * 2 + get(OVER)) == sent * 2 + closing
        assert spoken(url, get(http="HTTP/1.0")) == closing


def test_chunks_are_cut_anew(tmp_path):
    """The body is the same; who knows no chunks gets none."""
    head = (b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked")
    path = taped(tmp_path / "a", (0.0, Answer(head, EMPTY)), (1.0, Answer(head, b"")))
    with Replay(path, speed="step") as url:
        client = http.client.HTTPConnection(url.removeprefix("http://"))
        for body in (EMPTY, b"", b""):
            client.request("GET", POLL.target, headers={"Metadata": "true"})
            assert client.getresponse().read() == body
        client.close()
    with Replay(path) as url:
        old = spoken(url, get(http="HTTP/1.0"))
    assert old == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + EMPTY


BROKEN = {
    "refused": (Answer(failure=Failure.REFUSED), b""),
    "unreachable": (Answer(failure=Failure.UNREACHABLE), b""),
    "timed-out": (Answer(failure=Failure.TIMED_OUT), b""),
    "dropped": (Answer(failure=Failure.DROPPED), b""),
    "half": (
        answer(b"abc", length=9)._replace(failure=Failure.DROPPED),
        answered(b"abc", length=9),
    ),
    "half of the chunks": (
        Answer((b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked"), b"abc", Failure.DROPPED),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ),
    "garbage": (Answer((), b"\x00\xff", Failure.GARBAGE), b"\x00\xff"),
    "until the end": (Answer((b"HTTP/1.1 200 OK",), b"abc"), b"HTTP/1.1 200 OK\r\n\r\nabc"),
    "closed": (answer(b"", "connection: Close"), answered(b"", "connection: Close")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_failed_fails_again(tmp_path, name):
    """To the byte, and the connection ends there; the next answer is whole again."""
    broken, sent = BROKEN[name]
    path = taped(tmp_path / "a", (0.0, broken), (1.0, answer(EMPTY)))
    told = []
    with Replay(path, speed="step", tell=told.append) as url:
        assert spoken(url, get() + get()) == sent
        assert ask(url).body == EMPTY
    assert [(one.status, one.failure) for one in told] == [
        (broken.status, broken.failure),
        (200, ""),
    ]


# ---- Who asks wrongly, and who approves ----


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (get(OVER, metadata=None), 400, error_bodies.METADATA_HEADER),
        (get(OVER, "X-Forwarded-For: 1"), 400, error_bodies.FORWARDED),
        (get(OVER, "Origin: null"), 403, error_bodies.ORIGIN),
        (get(OVER, version="latest"), 400, error_bodies.API_VERSION),
        (get(OVER, version="2019-08-01"), 400, error_bodies.invalid_version(["2020-07-01"])),
        (request("GET", "/metadata/versions", OVER), 404, error_bodies.NOT_FOUND),
        (
            request("GET", "/metadata/instance?api-version=2021-02-01", OVER),
            404,
            error_bodies.NO_SUCH_ELEMENT,
        ),
        (
            request("GET", f"{POLL.target}&api-version=2020-07-01", OVER),
            400,
            error_bodies.DUPLICATE_PARAMETER,
        ),
        (request("GET", "/", OVER), 404, error_bodies.NOT_FOUND),
        (request("PUT", POLL.target, OVER), 405, error_bodies.method_not_allowed("GET, POST")),
        (request("HEAD", POLL.target, OVER), 405, b""),
        (post(b"", OVER), 400, None),
        (post(b"{}", OVER), 400, None),
        (post(start_requests(ID, "x"), OVER), 400, error_bodies.event_not_found(["x"])),
        (post(b"a" * 65_537, OVER), 413, error_bodies.TOO_LARGE),
        (
            request("POST", POLL.target, OVER, "Transfer-Encoding: chunked", body=b"what\r\n"),
            400,
            error_bodies.MALFORMED,
        ),
        (b"what\r\n\r\n", 400, error_bodies.MALFORMED),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, error_bodies.MALFORMED),
        (get(OVER, *(f"A{n}: 1" for n in range(200))), 431, error_bodies.HEADERS_TOO_LARGE),
    ],
)
def test_who_asks_wrongly_is_told_so_as_on_the_wire(tmp_path, data, status, body):
    """And nothing of the recording is passed by it."""
    path = taped(tmp_path / "a", (0.0, answer(document())), (1.0, answer(EMPTY)))
    with Replay(path, speed="step") as url:
        assert ask(url).body == document()
        said = spoken(url, data)
        assert int(said.split()[1]) == status
        assert body in (None, said.partition(b"\r\n\r\n")[2])
        assert b"\r\nConnection: close\r\n" in said
        assert ask(url).body == EMPTY


def test_the_name_of_a_vm_and_other_spellings_are_the_same_request(tmp_path):
    """A client that is set up for fairnotice up needs no other address."""
    path = taped(tmp_path / "a", (0.0, answer(EMPTY)))
    targets = (
        "/vm/any/metadata/scheduledevents?api-version=2020-07-01",
        "/Metadata/ScheduledEvents/?x=1&API-Version=2020-07-01",
        "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
    )
    with Replay(path) as url:
        assert [ask(url, request("GET", one, OVER)).body for one in targets] == [EMPTY] * 3


def test_an_instance_document_that_was_recorded_is_served(tmp_path):
    """Whenever it is asked for: it does not move the events on."""
    own, _ = polls("2020-07-01", instance=True)
    writer = Writer()
    lines = [
        writer.opening(Opening(ManualClock().wall())),
        writer.line(Exchange(0.0, 0.0, own, answer(b'{"compute":{}}'))),
        *(writer.line(Exchange(n, 0.0, POLL, answer(document(n)))) for n in (1, 2)),
    ]
    (tmp_path / "a").write_bytes(b"".join(lines))
    for speed in ("step", 1):
        with Replay(tmp_path / "a", speed=speed) as url:
            for _ in range(3):
                asked = request("GET", own.target, OVER)
                assert ask(url, asked).body == b'{"compute":{}}'
            assert ask(url).body == document(1)


def test_what_a_client_was_refused_is_not_replayed_to_one_who_asks_rightly(tmp_path):
    """Of a recorded client only what it read counts; its POSTs name no version that is read."""
    writer = Writer()
    wrong = POLL._replace(head=(b"Metadata: yes",))
    post_only = POLL._replace(method="POST", target=POLL.target.replace("2020-07", "2019-08"))
    lines = [
        writer.opening(Opening(ManualClock().wall())),
        writer.line(
            Exchange(0.0, 0.0, wrong, answer(error_bodies.METADATA_HEADER, status="400 No"))
        ),
        writer.line(Exchange(1.0, 0.0, post_only, answer(b""))),
        writer.line(Exchange(2.0, 0.0, POLL, answer(EMPTY))),
    ]
    (tmp_path / "a").write_bytes(b"".join(lines))
    with Replay(tmp_path / "a") as url:
        assert ask(url).body == EMPTY
        other = ask(url, get(OVER, version="2019-08-01"))
        assert other.body == error_bodies.invalid_version(["2020-07-01"])


def test_approvals_are_taken_and_change_nothing(tmp_path):
    """Of what was shown so far, in any case, chunked too; the recording goes on as it was."""
    story = [(0.0, answer(EMPTY)), (1.0, answer(document())), (2.0, answer(EMPTY))]
    path = taped(tmp_path / "a", *story)
    told = []
    replay = Replay(path, speed="step", tell=told.append)
    approval = post(start_requests(ID.lower()), OVER)
    body = start_requests(ID)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    chunked = request("POST", POLL.target, OVER, "Transfer-Encoding: chunked", body=chunks)
    with replay as url:
        ask(url)
        assert ask(url, approval).status == 400
        assert ask(url).body == document()
        taken = ask(url, approval)
        assert (taken.status, taken.body, taken.headers["content-length"]) == (200, b"", "0")
        assert ask(url, chunked).status == 200
        assert ask(url).body == EMPTY
        assert ask(url, approval).status == 200
    assert replay.approvals == [ID.lower(), ID, ID.lower()]
    assert [one.approved for one in told if one.method == "POST"] == [
        (),
        (ID.lower(),),
        (ID,),
        (ID.lower(),),
    ]
    assert told[1].wrong == f"EventId not found: {ID.lower()}"


def test_many_clients_at_once(tmp_path):
    """Each answer of a step-by-step replay is given once."""
    path = taped(tmp_path / "a", *((float(n), answer(document(n))) for n in range(40)))
    seen = []
    with Replay(path, speed="step") as url:

        def client():
            found = read_answers(spoken(url, get() * 4 + get(OVER)))
            seen.extend(json.loads(one.body)["DocumentIncarnation"] for one in found)

        threads = [threading.Thread(target=client) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert sorted(seen) == list(range(40))


# ---- What cannot be replayed ----


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": 0}, "A speed of 0 is none"),
        ({"speed": "fast"}, "give 1, 60 or 0.5, or step"),
        ({"speed": float("nan")}, "A speed of nan is none"),
        ({"begin_seconds": 3601}, "The recording is 3600 s long"),
        ({"listen": ("192.0.2.1", 1)}, "192.0.2.1:1 cannot be listened on"),
    ],
)
def test_what_cannot_be_is_said(hour, options, said):
    """Before anything is served."""
    with pytest.raises(UsageError, match=said):
        Replay(hour, **options)


def test_a_port_that_is_taken(hour):
    """Two replays do not share one."""
    with Replay(hour) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(UsageError, match="Address already in use"):
            Replay(hour, listen=("127.0.0.1", port))
