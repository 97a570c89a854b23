"""Request bytes in any pieces, and any bytes at all: never a traceback, a hang or a neighbour's.

What is read does not depend on how the network cuts it: the same bytes are answered by the same
bytes. What is not HTTP costs one answer. Nothing that is sent makes the endpoint show an event of
another scope.
"""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.engine.story import DB, WEB
from tests.metadata.harmless import UNKNOWN, WHOLE, cut, must_be_harmless, received, world_of_two
from tests.metadata.wireless import PATH, VERSIONS, WEB_0, approval, get, post, read_answers

# ---- Pieces ----


@pytest.mark.parametrize("name", WHOLE)
def test_split_at_every_byte(wireless, name):
    """In two pieces, wherever it is cut, it is answered as it is in one; twice, as seen before."""
    raw = WHOLE[name]
    world = wireless()
    world.stage.restart_vm("web-0")
    whole = received(world, [raw])
    assert len(read_answers(whole[0])) == 1

    for place in range(1, len(raw)):
        assert received(world, [raw[:place], raw[place:]]) == whole, place
    assert received(world, [raw]) == whole


@pytest.mark.parametrize("name", WHOLE)
def test_one_byte_at_a_time(wireless, name):
    """A piece for every byte, twice on one connection."""
    raw = WHOLE[name]
    world = wireless()
    world.stage.restart_vm("web-0")
    whole, closed = received(world, [raw])

    assert not closed
    assert received(world, [bytes([byte]) for byte in raw * 2]) == (whole * 2, False)


@given(
    st.lists(st.sampled_from(sorted(WHOLE)), min_size=1, max_size=8),
    st.lists(st.integers(0, 10_000), max_size=12),
)
@example(["poll"] * 5, [0])
def test_pipelined_in_any_pieces(names, places):
    """Any requests one behind the other, cut anywhere: each gets the answer it gets alone."""
    with world_of_two() as world:
        alone = b"".join(received(world, [WHOLE[name]])[0] for name in names)
        together = b"".join(WHOLE[name] for name in names)

        assert received(world, cut(together, places)) == (alone, False)


@given(
    st.lists(st.sampled_from(sorted(WHOLE)), max_size=3),
    st.sampled_from(
        [b"\0", b"GET\r\n", b"GET / HTTP/1.1\r\nx y\r\n\r\n", b"\x16\x03\x01", b"{}\r\n"]
    ),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_rubbish_behind_requests_in_any_pieces(names, rubbish, places):
    """What came before is answered as ever, the rubbish with one 400, and that is the end."""
    with world_of_two() as world:
        alone = b"".join(received(world, [WHOLE[name]])[0] for name in names)
        together = b"".join(WHOLE[name] for name in names) + rubbish
        data, closed = received(world, cut(together, places))

        assert data.startswith(alone)
        assert closed
        assert [answer.status for answer in read_answers(data[len(alone) :])] == [400]


# ---- Any bytes ----

METHODS = st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "get", "", "G\0T"])
SEGMENTS = st.sampled_from(
    [
        "metadata",
        "scheduledevents",
        "instance",
        "versions",
        "compute",
        "vm",
        "db",
        "",
        "..",
        "%2e",
        "%",
    ]
)
TARGETS = st.one_of(
    st.just(PATH),
    st.lists(SEGMENTS, max_size=6).map(lambda parts: "/" + "/".join(parts)),
    st.text(st.characters(codec="latin-1"), max_size=30),
)
PAIRS = st.tuples(
    st.sampled_from(["api-version", "format", "x", "", "%61pi-version", "%ff%"]),
    st.sampled_from([*VERSIONS, "latest", "text", "json", "", "%00", "{latest}", "2024-07-09"]),
)
QUERIES = st.lists(PAIRS, max_size=4).map(lambda some: "&".join("=".join(pair) for pair in some))
NAMES = st.sampled_from(
    [
        "Metadata",
        "X-Forwarded-For",
        "Origin",
        "Host",
        "If-None-Match",
        "Prefer",
        "Connection",
        "Upgrade",
        "Expect",
        "Content-Length",
        "Transfer-Encoding",
        "",
        "é",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            "true",
            '"1-2"',
            "W/1-2",
            "wait=1",
            "close",
            "keep-alive",
            "h2c",
            "chunked",
            "0",
            "5",
            "100-continue",
        ]
    ),
    st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=20),
)
HEADERS = st.lists(st.tuples(NAMES, VALUES).map(": ".join), max_size=5)
BODIES = st.one_of(st.just(b""), st.binary(max_size=60), st.just(b"5\r\nhello\r\n0\r\n\r\n"))


@st.composite
def odd_requests(draw):
    """Something that looks like a request, more or less."""
    http = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", ""]))
    end = draw(st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r"]))
    target = f"{draw(TARGETS)}?{draw(QUERIES)}"
    lines = [f"{draw(METHODS)} {target} {http}", *draw(HEADERS), "", ""]
    return end.join(lines).encode("latin-1") + draw(BODIES)


@given(st.lists(odd_requests(), min_size=1, max_size=3), st.lists(st.integers(0, 999), max_size=4))
def test_odd_requests_are_harmless(requests, places):
    """Whatever is nearly a request."""
    with world_of_two() as world:
        must_be_harmless(world, b"".join(requests), places)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_any_bytes_are_harmless(data, places):
    """Whatever is no request at all."""
    with world_of_two() as world:
        must_be_harmless(world, data, places)


@given(
    st.sampled_from(sorted(WHOLE)),
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_request_with_wrong_bytes_is_harmless(name, changes):
    """Whatever was a request before a few bytes were changed."""
    with world_of_two() as world:
        data = bytearray(WHOLE[name])
        for place, byte in changes:
            data[place % len(data)] = byte
        must_be_harmless(world, bytes(data) + get())


# ---- Any body ----

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=10),
        st.sampled_from(["EventId", "StartRequests", UNKNOWN]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["EventId", "StartRequests", "x"]), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
def test_no_body_but_a_right_one_approves(body):
    """400 in words for any other, nothing has changed, and the connection goes on."""
    with world_of_two() as world:
        before = world.stage.snapshot()
        line = world.connect(WEB_0)
        answer = line.ask(post(body))

        assert answer.status == 400
        assert answer.error
        assert world.stage.snapshot() == before
        assert line.ask(get()).status == 200


@given(
    st.lists(st.sampled_from(["own", "foreign", "unknown", ""]), min_size=1, max_size=5), st.data()
)
def test_an_approval_takes_all_or_nothing(kinds, data):
    """Any mixture of own, foreign and unknown ids, written in any case."""
    with world_of_two() as world:
        own, foreign = world.stage.only(WEB).id, world.stage.only(DB).id
        ids = {"own": own, "foreign": foreign, "unknown": UNKNOWN, "": ""}
        chosen = [data.draw(st.sampled_from([ids[kind], ids[kind].lower()])) for kind in kinds]
        answer = world.ask(approval(*chosen))

        assert answer.status == (200 if set(kinds) == {"own"} else 400)
        assert (world.stage.event(own).approval is not None) == (answer.status == 200)
        assert world.stage.event(foreign).approval is None
