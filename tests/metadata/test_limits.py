"""WIRE section 4: oversized heads, unfinished requests, idle connections; never a leak."""

import pytest

from tests.engine.story import WEB
from tests.metadata.wireless import (
    DB_0,
    PATH,
    TARGET,
    Limits,
    approval,
    get,
    post,
    request,
)

KIB = 1024


def padded(size):
    """A poll whose head is so many bytes."""
    bare = get("X-Padding: ")
    return get("X-Padding: " + "a" * (size - len(bare)))


# ---- Size ----


@pytest.mark.parametrize("piece", [100_000, 1_000, 16 * KIB])
def test_a_head_of_16_kib_is_read_and_more_is_431(wireless, piece):
    """In one piece or in many; the answer is the last, and says so."""
    world = wireless()
    data = padded(15 * KIB)
    assert [
        answer.status
        for answer in world.connect().send(
            *(data[i : i + piece] for i in range(0, len(data), piece))
        )
    ] == [200]
    data = padded(17 * KIB)
    vm = world.connect()
    (answer,) = vm.send(*(data[i : i + piece] for i in range(0, len(data), piece)))

    assert (answer.status, answer.headers["connection"]) == (431, "close")
    assert answer.error
    assert vm.closed


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 20_000,
        b"A" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4_000,
        b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"Y" * 20_000,
    ],
    ids=["target", "method", "many", "value", "name"],
)
@pytest.mark.parametrize("piece", [1_000, 100_000])
def test_a_head_without_end_is_cut_off(wireless, data, piece):
    """400 or 431 before the client is done, and the rest is not read."""
    vm = wireless().connect()
    (answer,) = vm.send(*(data[i : i + piece] for i in range(0, len(data), piece)))

    assert answer.status in (400, 431)
    assert vm.closed


def test_many_small_requests_are_not_one_large_head(wireless):
    """20 KiB of pipelined polls in one piece, the last of them unfinished."""
    vm = wireless().connect()
    raw = get()
    answers = vm.send(raw * 200 + raw[:50])

    assert [answer.status for answer in answers] == [200] * 200
    assert [answer.status for answer in vm.send(raw[50:])] == [200]


def test_a_large_body_is_not_a_large_head(wireless):
    """60 KiB of body and the beginning of the next request in one piece."""
    world = wireless()
    world.stage.restart_vm("web-0")
    body = post(b" " * 60 * KIB + approval(world.stage.only(WEB).id).partition(b"\r\n\r\n")[2])
    vm = world.connect()

    assert [answer.status for answer in vm.send(body + get()[:30], get()[30:])] == [200, 200]


def test_trailers_are_headers_too(wireless):
    """Behind a chunked body there is no room for what the head may not hold."""
    head = request("POST", TARGET, "Transfer-Encoding: chunked")
    vm = wireless().connect()
    vm.send(head + b"2\r\n{}\r\n0\r\n")
    for _ in range(100):
        vm.send(b"X: " + b"y" * 1_000 + b"\r\n")

    assert vm.closed, "a hundred KiB of trailers are kept"


def test_a_trailer_is_not_a_header(wireless):
    """What comes behind the body does not say who asks."""
    head = request("POST", TARGET, "Transfer-Encoding: chunked", metadata=None)
    answer = wireless().ask(head + b"2\r\n{}\r\n0\r\nMetadata: true\r\n\r\n")

    assert "Required metadata header" in answer.error


# ---- Time ----


@pytest.mark.parametrize(
    "beginning",
    [
        get()[:1],
        get()[:60],
        get()[:-1],
        post(b"{}")[:-1],
        request("POST", f"{PATH}?api-version=2020-07-01", "Transfer-Encoding: chunked")
        + b"5\r\nab",
    ],
    ids=["a byte", "half a line", "a head", "a body", "a chunk"],
)
@pytest.mark.parametrize("before", [b"", get(), get() * 3])
def test_a_request_that_is_not_finished_in_10_seconds_is_408(wireless, beginning, before):
    """Also behind others, in the same piece; dribbling does not help."""
    world = wireless()
    vm = world.connect()
    vm.send(before + beginning)
    for _ in range(9):
        world.advance(seconds=1)
        assert not vm.closed
    world.advance(seconds=1.5)
    (answer,) = vm.read()

    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert answer.error
    assert vm.closed


def test_dribbling_does_not_gain_time(wireless):
    """A byte a second, and it is over after ten."""
    world = wireless()
    vm = world.connect()
    answers = []
    for byte in get()[:14]:
        answers += vm.send(bytes([byte]))
        world.advance(seconds=1)
    answers += vm.read()

    assert [answer.status for answer in answers] == [408]
    assert vm.closed


def test_whoever_connects_and_says_nothing_is_closed(wireless):
    """At the latest after the idle limit; nothing is kept."""
    world = wireless()
    vm = world.connect()
    world.advance(seconds=76)

    assert vm.closed
    assert not world.worker.connections


@pytest.mark.parametrize("first", [get(), get("X-New: 1"), request("GET", "/nowhere"), post(b"x")])
def test_an_idle_connection_is_closed_after_75_seconds(wireless, first):
    """Not before, and without an answer that nobody asked for."""
    world = wireless()
    vm = world.connect()
    vm.ask(first)
    world.advance(seconds=74)
    assert vm.ask(get()).status == 200
    world.advance(seconds=74)
    assert not vm.closed
    world.advance(seconds=2)

    assert vm.closed
    assert vm.read() == []
    assert not world.worker.connections


def test_limits_can_be_set(wireless):
    """Smaller in all respects."""
    world = wireless(
        limits=Limits(
            head_bytes_max=500, body_bytes_max=50, request_seconds_max=2, idle_seconds_max=3
        )
    )
    assert world.ask(padded(600)).status == 431
    assert world.ask(post(b" " * 51)).status == 413
    slow, idle = world.connect(), world.connect()
    slow.send(get()[:9])
    idle.ask(get())
    world.advance(seconds=2.5)
    assert [answer.status for answer in slow.read()] == [408]
    assert not idle.closed
    world.advance(seconds=1)

    assert idle.closed


# ---- Those who do not listen ----


def test_behind_an_answer_that_is_held_so_many_requests_wait_and_no_more(wireless):
    """Then nothing is read until it is answered, and all are answered."""
    world = wireless(limits=Limits(queued_requests_max=10))
    vm = world.connect()
    vm.send(get('If-None-Match: "1-1"', "Prefer: wait=30"))
    for _ in range(50):
        vm.send(get())
    assert vm.paused
    assert len(vm.protocol._queue) == 10
    world.advance(seconds=31)
    world.run()

    assert [answer.status for answer in vm.read()] == [304, *[200] * 50]


def test_whoever_takes_no_answers_is_not_read_any_further(wireless):
    """The endpoint does not gather answers without end, whatever is asked in between."""
    world = wireless()
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    vm = world.connect()
    vm.stalled = True
    for _ in range(400):
        world.run(lambda: vm.feed(get() * 10 + approval(event)))

    assert vm.paused
    assert len(vm.untaken) < 400_000
    world.run(vm.take)
    assert len(vm.read()) == 400 * 11
    assert vm.ask(get()).status == 200


@pytest.mark.parametrize("line", [(), ("Connection: close",)])
def test_whoever_never_takes_his_answer_is_cut_off(wireless, line):
    """A connection that cannot be flushed is not kept for ever."""
    world = wireless()
    vm = world.connect()
    vm.stalled = True
    vm.send(get(*line))
    for _ in range(20):
        world.advance(seconds=75)

    assert vm.closed
    assert not world.worker.connections


def test_whoever_is_slow_to_take_his_last_answer_has_time(wireless):
    """As long as for a request at least: it is not cut off in the middle."""
    world = wireless()
    vm = world.connect()
    vm.stalled = True
    vm.send(get("Connection: close"))
    for _ in range(9):
        world.advance(seconds=1)
    world.run(vm.take)

    assert [answer.status for answer in vm.read()] == [200]
    assert not vm.aborted


def test_whoever_goes_on_sending_after_his_last_answer_is_cut_off(wireless):
    """It reads the 413 and stays, sending on: not for longer than a request may take."""
    world = wireless()
    vm = world.connect()
    vm.stays = True
    head = post(b"x" * 10_000_000)[:200]
    answers = vm.send(head, *[b"x" * 20_000] * 5)
    for _ in range(12):
        answers += vm.send(b"x" * 20_000)
        world.advance(seconds=1)

    assert [answer.status for answer in answers] == [413]
    assert vm.is_closing()
    assert not world.worker.connections


def test_whoever_hangs_up_in_the_middle_is_forgotten(wireless):
    """After nothing, half a request, a poll, an approval."""
    world = wireless()
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    for raw in (b"", get()[:30], get(), approval(event)[:-5]):
        vm = world.connect()
        vm.send(raw)
        vm.hang_up()

    assert not world.worker.connections
    assert world.stage.event(event).approval is None


def test_many_slow_ones_do_not_stall_another(wireless):
    """A thousand connections that dribble; every poll of another VM is answered at once."""
    world = wireless(limits=Limits(connections_per_address_max=1_000))
    slow = [world.connect() for _ in range(1_000)]
    quick = world.connect(DB_0)
    for byte in get()[:5]:
        for vm in slow:
            vm.feed(bytes([byte]))
        assert quick.ask(get()).status == 200

    world.advance(seconds=11)
    assert [answer.status for vm in slow for answer in vm.read()] == [408] * 1_000
