"""WIRE.md, section 4: errors, as far as their bodies go."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.wire import error_bodies

CONSTANTS = [name for name in vars(error_bodies) if name.isupper() and not name.startswith("_")]
MADE = {
    "bad_body": error_bodies.bad_body("The body is not JSON."),
    "event_not_found": error_bodies.event_not_found(["A"]),
    "method_not_allowed": error_bodies.method_not_allowed("GET, POST"),
    "unknown_caller": error_bodies.unknown_caller("10.0.0.9", hint=True),
    "unknown_name": error_bodies.unknown_name("web_9", ["web_0"]),
    "version_not_there": error_bodies.version_not_there("2021-02-01"),
}
BODIES = {name: getattr(error_bodies, name) for name in CONSTANTS} | MADE


def error(body: bytes) -> str:
    """The sentence of a fault."""
    return json.loads(body)["error"]


def test_no_or_wrong_metadata_header_as_captured():
    """The odd spacing and the odd `: .` are Azure's."""
    assert error_bodies.METADATA_HEADER == (
        b'{ "error": "Bad request: . Required metadata header not specified" }'
    )


def test_api_version_absent_or_unknown():
    """Azure's sentence, and the three newest versions of scheduled events."""
    assert error_bodies.API_VERSION == (
        b'{"error":"Bad request. api-version is invalid or was not specified in the request. '
        b'For more information refer to aka.ms/azureimds",'
        b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
    )


def test_api_version_of_the_instance_document_names_its_own_newest():
    """As on Azure's page: the three newest that the instance document has."""
    assert json.loads(error_bodies.INSTANCE_API_VERSION) == {
        "error": error(error_bodies.API_VERSION),
        "newest-versions": ["2025-04-07", "2024-07-17", "2024-03-15"],
    }


def test_event_id_not_found_names_the_ids():
    """What was not found is said back."""
    assert error_bodies.event_not_found(["A", "B"]) == (
        b'{"error":"Bad request. EventId not found: A, B"}'
    )


def test_what_a_client_sent_is_said_back_cut_short():
    """Neither a hundred ids nor a long one make a long answer."""
    many = error(error_bodies.event_not_found([f"{number}" for number in range(100)]))
    long = error(error_bodies.event_not_found(["x" * 60_000]))

    assert many.endswith("8, 9 and 90 more")
    assert long.endswith("x…")
    assert len(long) < 120


def test_a_version_that_is_not_there_says_which_is():
    """OpenShift's probe is told what to use."""
    assert "2024-07-09" in error(error_bodies.version_not_there("2024-07-09"))
    assert error(error_bodies.version_not_there("2024-07-09")).endswith("use 2020-07-01")


def test_an_unknown_caller_is_told_its_address_and_where_it_helps_the_other_form():
    """The hint is for `up`, where a name may be given."""
    plain = error(error_bodies.unknown_caller("10.0.0.9", hint=False))
    hinted = error(error_bodies.unknown_caller("10.0.0.9", hint=True))

    assert "10.0.0.9" in plain
    assert "/vm/NAME" not in plain
    assert hinted.startswith(plain)
    assert "/vm/NAME/metadata/scheduledevents" in hinted


def test_on_the_socket_of_a_vm_that_is_not_there_its_name_is_said():
    """There is no address to name."""
    assert "the VM db," in error(error_bodies.unknown_owner("db"))


def test_an_unknown_name_is_answered_with_the_nearest():
    """And where there are none, with what is wanted."""
    assert error(error_bodies.unknown_name("web_9", ["web_0", "web_1"])).endswith("web_0, web_1")
    assert error(error_bodies.unknown_name("web_9", [])).endswith("web_9; give a name of the fleet")


def test_a_method_that_is_not_allowed_is_told_which_are():
    """The same words as in Allow."""
    assert error(error_bodies.method_not_allowed("GET, POST")).endswith("GET, POST")


@pytest.mark.parametrize("name", BODIES)
def test_all_bodies_are_an_error_in_json(name):
    """One sentence under `error`, and at most the newest versions beside it."""
    read = json.loads(BODIES[name])

    assert type(BODIES[name]) is bytes
    assert set(read) - {"newest-versions"} == {"error"}
    assert read["error"]


@given(st.text(st.characters()), st.lists(st.text(st.characters()), min_size=1))
def test_whatever_a_client_sent_the_fault_is_json(text, ids):
    """Control characters, quotes and halves of surrogate pairs do not break the answer."""
    for body in (
        error_bodies.bad_body(text),
        error_bodies.event_not_found(ids),
        error_bodies.unknown_caller(text, hint=True),
        error_bodies.unknown_name(text, ids),
        error_bodies.version_not_there(text),
    ):
        assert set(json.loads(body.decode("utf-8"))) == {"error"}
