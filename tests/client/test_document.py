"""A document is read as it comes, by both kinds of client; what is none is BadAnswer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.client import Document, read_document
from fairnotice.errors import BadAnswer
from tests.client.bodies import BAD, GOOD, ID, OTHER, one, reboot
from tests.client.scripted import answer, serving

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
KEYS = "EventId EventStatus EventType Resources NotBefore Description DurationInSeconds".split()  # noqa: SIM905
NEARLY_EVENTS = st.dictionaries(st.sampled_from(KEYS), VALUES | st.just(ID))
NEARLY_DOCUMENTS = st.fixed_dictionaries(
    {"DocumentIncarnation": st.integers() | VALUES, "Events": st.lists(NEARLY_EVENTS) | VALUES}
)
WHOLE = GOOD["2020-07-01"][0]
SPOILED = st.builds(
    lambda at, noise: WHOLE[:at] + noise + WHOLE[at + len(noise) :],
    st.integers(0, len(WHOLE)),
    st.binary(max_size=3),
)


@pytest.mark.parametrize("name", GOOD)
def test_what_services_send_is_read(kind, name):
    """A body comes over the wire, and is the document that the table says."""
    body, expected = GOOD[name]
    with serving(answer(body)) as service:
        assert kind(service.url).call("get") == expected
    assert read_document(body) == expected


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_document_is_said_to_be_none(kind, name):
    """Whatever comes instead of a document is one error, with a sentence."""
    with (
        serving(answer(BAD[name])) as service,
        pytest.raises(BadAnswer, match=r"^(The answer|An event|[A-Z]\w+ is )"),
    ):
        kind(service.url).call("get")


@given(st.binary() | NEARLY_DOCUMENTS.map(lambda it: json.dumps(it).encode()) | SPOILED)
def test_there_is_nothing_but_a_document_or_a_bad_answer(body):
    """Whatever the bytes are, nothing else comes of them; what is read holds together."""
    try:
        document = read_document(body)
    except BadAnswer:
        return
    assert isinstance(document, Document)
    assert all(document.event(event.id.lower()) is event for event in document.events)


def test_whom_an_event_names():
    """Names are compared without case, and an old version's underscore is not part of them."""
    event = reboot(resources=("Web_0", "_batch_1"))

    assert event.names("web_0")
    assert event.names("BATCH_1")
    assert not event.names("web")
    assert not event.names("0")


def test_an_event_is_found_by_its_id():
    """In any case, and not where it is not."""
    document = one()

    assert document.event(ID.lower()) == reboot()
    assert document.event(OTHER) is None
