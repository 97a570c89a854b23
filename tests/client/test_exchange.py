"""HTTP as both clients read it: in any pieces, in every framing, and nothing but answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.client.exchange import Place, Reading, Request
from fairnotice.errors import Away, BadAnswer, UsageError

HEAD = b'HTTP/1.1 200 OK\r\nETag: "1"\r\n'
WHOLE = {
    "by its length": (HEAD + b"Content-Length: 5\r\n\r\nhello", True),
    "in chunks": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        True,
    ),
    "after a hint": (
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
        True,
    ),
    "for the last time": (HEAD + b"Connection: Close\r\nContent-Length: 5\r\n\r\nhello", False),
    "of an old server": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", False),
}
BAD = {
    "another protocol": b"SSH-2.0-x\r\n",
    "no number": b"HTTP/1.1 fine\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
    "less than nothing": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "a chunk without a size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    "a body without an end": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000,
}


@pytest.mark.parametrize("name", WHOLE)
@given(data=st.data())
def test_an_answer_in_any_pieces(name, data):
    """Wherever the network cuts it, it is the same answer, and there when the last byte is."""
    raw, keep = WHOLE[name]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=4)))
    pieces = [raw[i:j] for i, j in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    reading = Reading()

    assert [reading.feed(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    answer = reading.feed(pieces[-1])
    assert (answer.status, answer.body, answer.keep) == (200, b"hello", keep)


def test_an_answer_that_ends_with_the_connection():
    """Without a length it is whole when nothing more comes; the connection is gone then."""
    reading = Reading()

    assert reading.feed(HEAD + b"\r\nhel") is None
    assert reading.feed(b"lo") is None
    answer = reading.feed(b"")
    assert (answer.body, answer.keep, answer.headers["etag"]) == (b"hello", False, '"1"')


@pytest.mark.parametrize("raw", [HEAD + b"Content-Length: 5\r\n\r\n", HEAD + b"\r\n"])
def test_an_unchanged_document_has_no_body(raw):
    """Whatever a 304 says of a length, there is nothing to wait for."""
    answer = Reading().feed(raw.replace(b"200 OK", b"304 Not Modified"))

    assert (answer.status, answer.body, answer.keep) == (304, b"", True)


@pytest.mark.parametrize("cut", [0, 3, 20, 40, len(WHOLE["by its length"][0]) - 1])
def test_an_answer_that_is_cut_off(cut):
    """It says whether anything had come."""
    reading = Reading()
    if cut:
        assert reading.feed(WHOLE["by its length"][0][:cut]) is None

    said = "in the middle" if cut else "without an answer"
    with pytest.raises(Away, match=said):
        reading.feed(b"")


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_http_is_said_to_be_none(name):
    """At once, before the time is over."""
    with pytest.raises(BadAnswer, match="answer"):
        Reading().feed(BAD[name])


@given(st.lists(st.binary(max_size=30)), st.booleans())
def test_nothing_else_comes_of_any_bytes(pieces, begun):
    """Noise, from the start or behind a good beginning."""
    reading = Reading()
    try:
        for piece in [HEAD] * begun + pieces + [b""]:
            if reading.feed(piece) is not None:
                return
    except (Away, BadAnswer):
        return
    pytest.fail("the end is an answer or an error")


def test_a_request_as_it_is_sent():
    """The header that the service demands, and a body's length."""
    place = Place.of("http://127.0.0.1:8169/vm/web-0/")

    asked = Request("/metadata/x").to_bytes(place, keep=True)
    assert (
        asked
        == b"GET /vm/web-0/metadata/x HTTP/1.1\r\nHost: 127.0.0.1:8169\r\nMetadata: true\r\n\r\n"
    )
    posted = Request("/metadata/x", body=b"{}").to_bytes(place, keep=False)
    assert posted.startswith(b"POST /vm/web-0/metadata/x HTTP/1.1\r\n")
    assert posted.endswith(
        b"Connection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1",
        "https://127.0.0.1",
        "http://",
        "http://a b",
        "http://a:b",
        "http://a?b=c",
        "http://é",
    ],
)
def test_what_is_no_address(url):
    """The sentence says what one looks like."""
    with pytest.raises(UsageError, match=r"http://HOST:PORT.*/vm/NAME"):
        Place.of(url)
