"""WIRE.md, section 2: the document, byte for byte."""

import json
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.model import Document
from fairnotice.wire.document import knows, render, render_all, rfc1123
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import EventSource, EventStatus, EventType, ScopeKind
from tests.wire.documents import EVENT_ID, NOON, event, rendered

SIX = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]
KEYS = {
    "2017-03-01": SIX,
    "2017-08-01": SIX,
    "2017-11-01": SIX,
    "2019-01-01": SIX,
    "2019-04-01": [*SIX, "Description"],
    "2019-08-01": [*SIX, "Description", "EventSource"],
    "2020-07-01": [*SIX, "Description", "EventSource", "DurationInSeconds"],
}
SHOWN = [EventStatus.SCHEDULED, EventStatus.STARTED]


def events_of(document: bytes) -> list[dict[str, object]]:
    """The events that a document shows."""
    return json.loads(document)["Events"]


# ---- Shape ----


@pytest.mark.parametrize("version", SCHEDULED_EVENTS)
def test_nothing_is_an_empty_list_never_null(version):
    """A scope at peace reads an empty list, compact, without a newline."""
    assert rendered(version=version, incarnation=1) == b'{"DocumentIncarnation":1,"Events":[]}'


@pytest.mark.parametrize("version", SCHEDULED_EVENTS)
def test_keys_of_an_event_in_this_order_and_no_others(version):
    """Six keys at first; Description, EventSource and DurationInSeconds came one by one."""
    (shown,) = events_of(rendered(event(), version=version))

    assert list(shown) == KEYS[version]


def test_the_newest_version_byte_for_byte():
    """All nine keys, compact."""
    held = event(resources=("web_0", "web_1"), source=EventSource.PLATFORM, duration_seconds=9)

    assert rendered(held, incarnation=7) == (
        b'{"DocumentIncarnation":7,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123",'
        b'"EventStatus":"Scheduled","EventType":"Reboot","ResourceType":"VirtualMachine",'
        b'"Resources":["web_0","web_1"],"NotBefore":"Sun, 01 Mar 2026 12:00:00 GMT",'
        b'"Description":"Virtual machine is going to be restarted as requested by authorized '
        b'user.","EventSource":"Platform","DurationInSeconds":9}]}'
    )


def test_incarnation_and_duration_are_json_integers():
    """No quotes around them: mechanic asserts their type."""
    document = json.loads(rendered(event(duration_seconds=5), incarnation=3))

    assert type(document["DocumentIncarnation"]) is int
    assert type(document["Events"][0]["DurationInSeconds"]) is int


def test_event_ids_are_upper_case():
    """Whatever case an id was made in, the wire shows upper case."""
    assert events_of(rendered(event(EVENT_ID.lower())))[0]["EventId"] == EVENT_ID


def test_events_stand_in_the_order_they_were_announced():
    """The order of the document is kept."""
    ids = ["C0", "A0", "B0"]

    assert [shown["EventId"] for shown in events_of(rendered(*map(event, ids)))] == ids


# ---- Resources ----


@pytest.mark.parametrize("version", SCHEDULED_EVENTS)
@pytest.mark.parametrize("kind", ScopeKind)
def test_only_in_2017_03_01_the_names_of_iaas_vms_carry_an_underscore(version, kind):
    """`_web_0` of a VM, but `FrontEnd_IN_0` of a role instance; exact case elsewhere."""
    name = "FrontEnd_IN_0" if kind is ScopeKind.CLOUD_SERVICE else "Web_0"
    underscored = version == "2017-03-01" and kind is not ScopeKind.CLOUD_SERVICE

    (shown,) = events_of(rendered(event(resources=(name,)), version=version, kind=kind))

    assert shown["Resources"] == [f"_{name}" if underscored else name]


# ---- Event types ----


@pytest.mark.parametrize("version", SCHEDULED_EVENTS)
def test_preempt_from_2017_11_01_and_terminate_from_2019_01_01(version):
    """An older version leaves such an event out and shows the others."""
    held = [event(f"{number}", kind) for number, kind in enumerate(EventType)]

    shown = {shown["EventType"] for shown in events_of(rendered(*held, version=version))}

    assert ("Preempt" in shown) == (version >= "2017-11-01")
    assert ("Terminate" in shown) == (version >= "2019-01-01")
    assert shown >= {"Freeze", "Reboot", "Redeploy"}
    assert shown == {kind for kind in EventType if knows(version, kind)}


def test_a_document_of_unknown_events_is_empty_not_broken():
    """Where only a Terminate is live, 2017-08-01 reads an empty list."""
    document = rendered(event(type=EventType.TERMINATE), version="2017-08-01", incarnation=5)

    assert document == b'{"DocumentIncarnation":5,"Events":[]}'


# ---- NotBefore ----


@pytest.mark.parametrize("version", SCHEDULED_EVENTS)
def test_not_before_is_blank_once_started_and_the_key_stays(version):
    """While Scheduled 29 bytes, once Started an empty string."""
    scheduled, started = (event(status=status) for status in SHOWN)

    assert events_of(rendered(scheduled, version=version))[0]["NotBefore"] == (
        "Sun, 01 Mar 2026 12:00:00 GMT"
    )
    assert events_of(rendered(started, version=version))[0]["NotBefore"] == ""


def test_rfc_1123_of_the_example():
    """The instant of Azure's page, with the right weekday."""
    assert rfc1123(datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)) == "Mon, 19 Sep 2016 18:29:47 GMT"


def test_rfc_1123_drops_parts_of_a_second():
    """A VM is never shown a NotBefore that is later than the true one."""
    assert rfc1123(NOON + timedelta(microseconds=999_999)) == rfc1123(NOON)


def test_rfc_1123_of_another_zone_is_in_gmt():
    """Two in the afternoon in Helsinki is noon."""
    afternoon = NOON.astimezone(timezone(timedelta(hours=2)))

    assert afternoon.hour == 14
    assert rfc1123(afternoon) == "Sun, 01 Mar 2026 12:00:00 GMT"


@given(st.datetimes(timezones=st.just(UTC)))
def test_rfc_1123_is_what_the_standard_library_writes(instant):
    """For any instant: 29 characters, the same as email.utils."""
    assert rfc1123(instant) == format_datetime(instant, usegmt=True)
    assert len(rfc1123(instant)) == 29


# ---- Any content ----


def test_other_scripts_stand_as_they_are_and_control_characters_are_escaped():
    """Ö is two bytes of UTF-8, a newline, a quote and a backslash are escaped."""
    document = rendered(event(resources=("Öl",), description='a\n"b"\\c\x01'))

    assert '["Öl"]'.encode() in document
    assert b'"a\\n\\"b\\"\\\\c\\u0001"' in document


def test_half_of_a_surrogate_pair_is_still_json():
    """What is no UTF-8 is written as JSON's escape, and reads back the same."""
    document = rendered(event(description="\ud800"))

    assert b'"Description":"\\ud800"' in document
    assert events_of(document)[0]["Description"] == "\ud800"


# Whole characters: two halves of a surrogate pair become one character on the way.
texts = st.text(st.characters(exclude_categories=["Cs"]))
events = st.builds(
    event,
    st.uuids().map(str),
    st.sampled_from(EventType),
    st.sampled_from(SHOWN),
    resources=st.lists(texts, max_size=4).map(tuple),
    not_before=st.datetimes(timezones=st.just(UTC)),
    description=texts,
    source=st.sampled_from(EventSource),
    duration_seconds=st.integers(-1, 10**9),
)
documents = st.builds(Document, st.integers(1), st.lists(events, max_size=4).map(tuple))


@given(documents, st.sampled_from(SCHEDULED_EVENTS), st.sampled_from(ScopeKind))
def test_any_document_reads_back_with_exactly_its_keys(document, version, kind):
    """Whatever names and descriptions hold, each event comes back with the right keys."""
    prefix = "_" if version == "2017-03-01" and kind is not ScopeKind.CLOUD_SERVICE else ""

    read = json.loads(render(document, version, kind).decode("utf-8"))

    held = [row for row in document.events if knows(version, row.type)]
    assert list(read) == ["DocumentIncarnation", "Events"]
    assert read["DocumentIncarnation"] == document.incarnation
    assert len(read["Events"]) == len(held)
    for shown, row in zip(read["Events"], held, strict=True):
        values = [
            row.id.upper(),
            row.status,
            row.type,
            "VirtualMachine",
            [prefix + name for name in row.resources],
            rfc1123(row.not_before) if row.scheduled else "",
            row.description,
            row.source,
            row.duration_seconds,
        ]
        assert list(shown.items()) == list(zip(KEYS[version], values, strict=False))


@given(documents, st.sampled_from(ScopeKind))
def test_any_document_is_as_compact_as_json_allows(document, kind):
    """No space, no escape that need not be: the bytes are json.dumps's own."""
    for written in render_all(document, kind).values():
        again = json.dumps(json.loads(written), ensure_ascii=False, separators=(",", ":"))
        assert written == again.encode("utf-8")


@given(documents, st.sampled_from(ScopeKind))
def test_all_versions_at_once_are_each_version_by_itself(document, kind):
    """`render_all` saves time and changes nothing."""
    assert render_all(document, kind) == {
        version: render(document, version, kind) for version in SCHEDULED_EVENTS
    }
