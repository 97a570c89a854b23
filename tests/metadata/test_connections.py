"""WIRE section 1: keep-alive, pipelining, HTTP/1.0, Connection: close; answers come in order."""

import pytest

from tests.engine.story import WEB
from tests.metadata.wireless import DB_0, NEWEST, PATH, TARGET, WEB_1, approval, get, post, request

UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQA")


# ---- Keeping and closing ----


def test_http_1_1_keeps_the_connection(wireless):
    """Ten polls on one connection, and nothing is said of closing."""
    vm = wireless().connect()

    for _ in range(10):
        assert "connection" not in vm.ask(get()).headers
    assert not vm.closed


@pytest.mark.parametrize(
    "line", ["Connection: close", "connection: Close", "Connection: TE, close"]
)
@pytest.mark.parametrize("ask_first", [False, True])
def test_close_is_obeyed_and_said_back(wireless, line, ask_first):
    """Node 20 loses its acknowledgement otherwise; a POST, a 404 and a 304 alike."""
    world = wireless()
    etag = world.ask(get()).etag
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    for raw in (
        get(line),
        approval(event).replace(b"\r\n", f"\r\n{line}\r\n".encode(), 1),
        request("GET", "/nowhere", line),
        get(line, f"If-None-Match: {etag}"),
        get(line, metadata=None),
    ):
        vm = world.connect()
        if ask_first:
            vm.ask(get())
        answer = vm.ask(raw)
        assert answer.headers["connection"] == "close"
        assert vm.closed


def test_http_1_0_is_answered_once_and_closed(wireless):
    """Without keep-alive the connection ends with the answer, and the answer says so."""
    vm = wireless().connect()
    answer = vm.ask(get(http="HTTP/1.0"))

    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert vm.closed


def test_http_1_0_with_keep_alive_is_kept(wireless):
    """It is told that it was kept, again and again."""
    vm = wireless().connect()

    for _ in range(3):
        answer = vm.ask(get("Connection: keep-alive", http="HTTP/1.0"))
        assert (answer.status, answer.headers["connection"].lower()) == (200, "keep-alive")
    assert not vm.closed


def test_http_1_0_without_any_header_reads_the_oldest_version(wireless):
    """The least a client can send."""
    answer = wireless().ask(f"GET {PATH}?api-version=2017-03-01 HTTP/1.0\r\n\r\n".encode())

    assert (answer.status, answer.incarnation) == (200, 1)


@pytest.mark.parametrize(
    ("path", "status"),
    [(TARGET, b"405"), ("/metadata/versions", b"405"), ("/nowhere", b"404"), ("/vm/db/x", b"404")],
)
def test_whoever_only_asks_for_the_head_gets_the_head(wireless, path, status):
    """No body (RFC 9110), and the connection goes on."""
    vm = wireless().connect()
    vm.world.run(lambda: vm.feed(request("HEAD", path) + get()))
    head, _, rest = bytes(vm.received).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 " + status)
    assert (b"\r\nAllow: " in head) == (status == b"405")
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert not vm.closed


@pytest.mark.parametrize("stray", [b"\r\n", b"\n", b"\r\n\r\n"])
def test_a_stray_line_end_is_not_the_beginning_of_a_request(wireless, stray):
    """In a packet of its own behind a request: the connection is idle, not too slow."""
    world = wireless()
    vm = world.connect()
    vm.ask(get())
    assert vm.send(stray) == []
    world.advance(seconds=70)
    assert not vm.closed
    assert vm.ask(get()).status == 200
    vm.send(stray)
    world.advance(seconds=76)

    assert (vm.closed, vm.read()) == (True, [])


# ---- Pipelining ----


def test_pipelined_requests_are_answered_in_order(wireless):
    """Polls, faults and approvals in one piece, each answered in its place."""
    world = wireless()
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    answers = world.connect().send(
        get(version="2017-03-01")
        + request("GET", "/nowhere")
        + approval(event)
        + get(metadata=None)
        + request("PUT")
        + post(b"[]")
        + get()
    )

    assert [answer.status for answer in answers] == [200, 404, 200, 400, 405, 400, 200]
    assert answers[0].events[0]["EventStatus"] == "Scheduled"
    assert answers[-1].events[0]["EventStatus"] == "Started"


def test_a_thousand_pipelined_polls(wireless):
    """In one piece, then in the same piece again."""
    vm = wireless().connect()

    for _ in range(2):
        assert [answer.status for answer in vm.send(get() * 1_000)] == [200] * 1_000


def test_three_hundred_pipelined_approvals(wireless):
    """More than may wait at a time: reading pauses, and every one is answered."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect()
    vm.send(*[approval(world.stage.only(WEB).id)] * 300)
    world.run()

    assert not vm.closed
    assert vm.ask(get()).status == 200


def test_a_poll_in_the_middle_of_polls_seen_before(wireless):
    """Bytes that were one request before are not one request inside another."""
    vm = wireless().connect()
    vm.ask(get())
    first, second = get()[:30], get()[30:]

    assert [answer.status for answer in vm.send(first, second + get())] == [200, 200]
    inside = post(get())
    assert [answer.status for answer in vm.send(inside[: -len(get())], get())] == [400]
    assert vm.ask(get()).status == 200


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_two_requests_are_two_however_their_lines_end(wireless, ends):
    """Sent twice, they are read alike: either both are answered twice or they are malformed."""
    world = wireless()
    raw = get().replace(b"\r\n", ends) + get()
    first = world.connect().send(raw)
    again = world.connect().send(raw)

    assert [answer.status for answer in first] in ([200, 200], [400])
    assert [answer.status for answer in again] == [answer.status for answer in first]


def test_nothing_is_done_after_the_last_request(wireless):
    """An approval behind `Connection: close` is neither answered nor carried out."""
    world = wireless()
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB)
    answers = world.connect().send(get("Connection: close") + approval(event.id))

    assert [answer.status for answer in answers] == [200]
    assert world.stage.event(event.id) == event


def test_nothing_is_done_after_an_approval_that_was_the_last(wireless):
    """The same where the last request has to wait for its commit."""
    world = wireless()
    world.stage.restart_vm("web-0")
    world.stage.restart_vm("web-1")
    first, second = world.stage.events(WEB)
    last = approval(first.id).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    answers = world.connect().send(last + approval(second.id))

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"")]
    assert world.stage.event(second.id).approval is None


@pytest.mark.parametrize("rubbish", [b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"A" * 20_000])
def test_rubbish_behind_an_approval_is_answered_after_it(wireless, rubbish):
    """The approval was taken, and its 200 is not overtaken by the 400 or 431 for the rubbish."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect()
    answers = vm.send(approval(world.stage.only(WEB).id) + rubbish)

    assert [answer.status for answer in answers] in ([200, 400], [200, 431])
    assert answers[-1].headers["connection"] == "close"
    assert vm.closed


def test_rubbish_behind_the_first_poll_is_answered_after_it(wireless):
    """The same where the first answer waits until the scope is enabled."""
    answers = wireless(listening=()).connect().send(get() + b"\0rubbish\r\n\r\n")

    assert [answer.status for answer in answers] == [200, 400]


def test_the_last_poll_that_waits_is_answered(wireless):
    """`Connection: close`, a scope that is not enabled, and a stray byte behind it."""
    vm = wireless(listening=()).connect()
    answers = vm.send(get("Connection: close") + b"\r\nX")

    assert [answer.status for answer in answers] == [200]
    assert vm.closed


# ---- Upgrades and expectations ----


def test_an_offer_of_http_2_is_declined(wireless):
    """Java's client offers it with every request: it is answered as if it had not."""
    vm = wireless().connect()

    for _ in range(3):
        answer = vm.ask(get(*UPGRADE))
        assert (answer.status, answer.headers.get("upgrade")) == (200, None)
    assert [answer.status for answer in vm.send(get(*UPGRADE) + get())] == [200, 200]


def test_thousands_of_pipelined_offers_are_answered(wireless):
    """However many come in one piece."""
    try:
        answers = wireless().connect().send(get(*UPGRADE) * 1_400)
    except RecursionError:
        # Its traceback has a thousand parts.
        pytest.fail("one stack frame is spent per request")

    assert [answer.status for answer in answers] == [200] * 1_400


def test_whoever_waits_to_be_told_to_go_on_is_told(wireless):
    """`Expect: 100-continue` (.NET, curl with long bodies), then the body, then the 200."""
    world = wireless()
    world.stage.restart_vm("web-0")
    raw = approval(world.stage.only(WEB).id)
    head, _, body = raw.partition(b"\r\n\r\n")
    vm = world.connect()
    world.run(lambda: vm.feed(head + b"\r\nExpect: 100-continue\r\n\r\n"))

    assert bytes(vm.received) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert vm.ask(body).status == 200


GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


def expecting(body, value="100-continue", **more):
    """The head of a POST that waits to be told to send its body."""
    return post(body, f"Expect: {value}", **more).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def fed(vm, data):
    """What a VM receives for these bytes, as bytes."""
    vm.world.run(lambda: vm.feed(data))
    data = bytes(vm.received)
    vm.received.clear()
    return data


@pytest.mark.parametrize("value", ["100-Continue", "100-CONTINUE", " 100-continue "])
def test_the_expectation_in_any_case(wireless, value):
    """RFC 9110: it is compared without case."""
    assert fed(wireless().connect(), expecting(b"{}", value)) == GO_ON


def test_http_1_0_is_not_told_to_go_on(wireless):
    """RFC 9110: it would take the 100 for its answer."""
    vm = wireless().connect()

    assert fed(vm, expecting(b"{}", http="HTTP/1.0")) == b""
    assert vm.ask(b"{}").status == 400


def test_whoever_sends_his_body_unasked_need_not_be_told(wireless):
    """Head and body in one piece: one answer."""
    data = fed(wireless().connect(), expecting(b"{}") + b"{}")

    assert data.startswith(b"HTTP/1.1 400 ")


def test_behind_an_answer_that_is_held_he_is_told_when_it_is_his_turn(wireless):
    """Not before the answer in front of it, and not never."""
    world = wireless()
    vm = world.connect()
    etag = vm.ask(get()).etag
    held = get(f"If-None-Match: {etag}", "Prefer: wait=5")
    assert fed(vm, held + expecting(b"{}")) == b""
    world.stage.clock.advance(seconds=6)
    data = fed(vm, b"")

    assert data.startswith(b"HTTP/1.1 304 ")
    assert data.endswith(GO_ON)
    assert data.count(b"HTTP/1.1") == 2
    assert vm.ask(b"{}").status == 400


def test_what_will_be_too_large_is_refused_before_it_is_sent(wireless):
    """413 at once by its Content-Length, and no word of going on."""
    for raw in (expecting(b" " * 65_537), post(b" " * 65_537)[:-65_537]):
        vm = wireless().connect()
        assert fed(vm, raw).startswith(b"HTTP/1.1 413 ")
        assert vm.closed
    assert fed(wireless().connect(), expecting(b" " * 65_536)) == GO_ON


def test_a_tunnel_is_not_opened(wireless):
    """CONNECT is a method and a path that we do not have."""
    answer = wireless().ask(b"CONNECT example.com:443 HTTP/1.1\r\nMetadata: true\r\n\r\n")

    assert answer.status in (404, 405)


# ---- Neighbours ----


def test_a_broken_request_costs_nobody_else_anything(wireless):
    """One VM sends rubbish and is cut off; the connections of the others go on."""
    world = wireless()
    broken, near, far = world.connect(), world.connect(WEB_1), world.connect(DB_0)
    near.send(get()[:20])
    far.ask(get())
    answer = broken.ask(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert answer.error
    assert broken.closed
    assert near.ask(get()[20:]).status == 200
    assert far.ask(get()).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\nrubbish\r\n\r\n",
        f"GET {TARGET}\r\n\r\n".encode(),
        f"GET {TARGET} HTTP/9.9\r\n\r\n".encode(),
        get(http="HTTP/2.0"),
        get(http="HTTP/0.9"),
        post(b"{}", http="HTTP/2.0")[:-2],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        f"GET {TARGET} HTTP/1.1\r\nMetadata true\r\n\r\n".encode(),
        f"GET {TARGET} HTTP/1.1\r\nMetadata : true\r\n\r\n".encode(),
        f"GET {TARGET} HTTP/1.1\r\nMeta\0data: true\r\n\r\n".encode(),
        f"POST {TARGET} HTTP/1.1\r\nContent-Length: -1\r\n\r\n".encode(),
        f"POST {TARGET} HTTP/1.1\r\nContent-Length: 1x\r\n\r\n".encode(),
        f"POST {TARGET} HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n".encode(),
        f"POST {TARGET} HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n".encode(),
        f"POST {TARGET} HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0"
        "\r\n\r\n".encode(),
        f"POST {TARGET} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".encode(),
    ],
)
def test_what_is_not_http_is_answered_400_and_closed(wireless, raw):
    """One answer that says so, then the end."""
    vm = wireless().connect()
    answer = vm.ask(raw)

    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert answer.error
    assert vm.closed


def test_an_api_version_is_that_of_its_own_request(wireless):
    """Versions do not leak from one request on a connection to the next."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect()
    keys = [len(vm.ask(get(version=v)).events[0]) for v in (NEWEST, "2017-08-01", "2019-04-01")]

    assert keys == [9, 6, 7]
