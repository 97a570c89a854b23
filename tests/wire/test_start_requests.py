"""WIRE.md, section 3: acknowledging, as far as the body of the POST goes."""

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairnotice.errors import BadBody
from fairnotice.wire.start_requests import IDS_MAX, parse

ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"


def body(*ids: object, **more: object) -> bytes:
    """A POST's body that approves these ids."""
    return json.dumps({"StartRequests": [{"EventId": given} for given in ids], **more}).encode()


def test_one_id_or_several():
    """The ids come back in the order given."""
    assert parse(body(ID)) == (ID,)
    assert parse(body("b", "a", "c")) == ("b", "a", "c")


def test_ids_come_back_as_given():
    """Case and repeats are the law's business."""
    assert parse(body(ID.lower(), ID)) == (ID.lower(), ID)


@pytest.mark.parametrize("incarnation", [1, -1, 1.5, "5", None, [], {}, "9" * 9])
def test_a_document_incarnation_of_any_kind_is_ignored(incarnation):
    """Stale, a number or a string: TeamCity and the old samples send it."""
    assert parse(body(ID, DocumentIncarnation=incarnation)) == (ID,)


def test_other_keys_are_ignored_at_both_levels():
    """Neither beside StartRequests nor beside EventId does a key more matter."""
    assert parse(b'{"a":{"b":[1]},"StartRequests":[{"EventId":"x","Note":null}],"z":1}') == ("x",)


def test_numbers_of_any_length_are_ignored():
    """A number that Python would refuse to read is one that nobody reads."""
    long = b"9" * 5_000

    assert parse(b'{"DocumentIncarnation":%s,"StartRequests":[{"EventId":"x"}]}' % long) == ("x",)
    assert parse(b'{"n":1e%s,"StartRequests":[{"EventId":"x"}]}' % long) == ("x",)


def test_the_last_of_two_equal_keys_counts():
    """A repeated key is allowed by JSON, and the last one is taken."""
    assert parse(b'{"StartRequests":1,"StartRequests":[{"EventId":"a","EventId":"b"}]}') == ("b",)


def test_white_space_and_a_byte_order_mark_are_accepted():
    """.NET and PowerShell put a mark in front."""
    assert parse(b"\xef\xbb\xbf \r\n\t" + body(ID) + b"\n") == (ID,)


def test_at_most_100_ids():
    """A hundred are taken, one more is not."""
    most = [f"{number}" for number in range(IDS_MAX)]

    assert parse(body(*most)) == tuple(most)
    with pytest.raises(BadBody, match="101 items, at most 100"):
        parse(body(*most, "one more"))


BAD = {
    "nothing": (b"", "not JSON"),
    "not JSON": (b"StartRequests=1", "not JSON"),
    "JSON and more": (body(ID) + b"}", "not JSON"),
    "NaN, which JSON does not have": (b'{"a":NaN,"StartRequests":[{"EventId":"x"}]}', "not JSON"),
    "infinity": (b'{"a":-Infinity}', "not JSON"),
    "a raw control character": (b'{"StartRequests":[{"EventId":"\n"}]}', "not JSON"),
    "not UTF-8": (b'{"a":"\xff"}', "not UTF-8"),
    "UTF-16": (body(ID).decode().encode("utf-16"), "not UTF-8"),
    "nested without end, lists": (b"[" * 65_536, "nested too deeply"),
    "nested without end, objects": (b'{"a":' * 13_000, "nested too deeply"),
    "not an object": (b"[]", "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "no StartRequests": (b"{}", "no StartRequests"),
    "other case": (b'{"startRequests":[{"EventId":"x"}]}', "no StartRequests"),
    "null StartRequests": (b'{"StartRequests":null}', "not a list"),
    "an object of StartRequests": (b'{"StartRequests":{"EventId":"x"}}', "not a list"),
    "an empty list": (b'{"StartRequests":[]}', "is empty"),
    "an item that is a string": (
        b'{"StartRequests":["x"]}',
        r"StartRequests\[0\] is not an object",
    ),
    "an item without EventId": (
        b'{"StartRequests":[{"EventId":"x"},{}]}',
        r"StartRequests\[1\] has no EventId",
    ),
    "an EventId that is a number": (body(1), "no EventId that is a string"),
    "an EventId that is a fraction": (body(1.5), "no EventId that is a string"),
    "an EventId that is null": (body(None), "no EventId that is a string"),
    "an EventId that is a list": (body([ID]), "no EventId that is a string"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_body_is_refused_with_what_is_wrong(name):
    """Each fault has its sentence, and the sentence says what to send or to do."""
    sent, why = BAD[name]

    with pytest.raises(BadBody, match=why) as refused:
        parse(sent)

    assert str(refused.value).endswith(".")


@given(st.binary())
@example(b"\xef\xbb\xbf")
@example(b"\x00")
@example(b'{"StartRequests":[{"EventId":"\\ud800"}]}')
def test_any_bytes_are_ids_or_a_bad_body(sent):
    """Whatever a client sends, it costs a BadBody at most."""
    with contextlib.suppress(BadBody):
        assert all(type(given) is str for given in parse(sent))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["StartRequests", "EventId"]) | st.text(), inner)
    ),
)


@given(json_values | st.fixed_dictionaries({"StartRequests": st.lists(json_values)}))
def test_any_json_is_ids_or_a_bad_body(value):
    """JSON that is nearly right is refused as calmly as noise."""
    with contextlib.suppress(BadBody):
        ids = parse(json.dumps(value).encode())
        assert ids == tuple(item["EventId"] for item in value["StartRequests"])


@given(st.lists(st.text(), min_size=1, max_size=IDS_MAX))
def test_any_list_of_ids_comes_back(ids):
    """Up to a hundred strings of anything."""
    assert parse(body(*ids)) == tuple(ids)
