"""What is new between documents: each thing once, in order, also from a saved position on."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.client import ChangeKind, Document, Event, Position
from fairnotice.errors import UsageError
from tests.client.bodies import ID, OTHER, reboot

INSTANTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
EVENTS = st.builds(
    Event,
    id=st.sampled_from("ABC"),
    type=st.sampled_from(["Reboot", "Freeze"]),
    status=st.sampled_from(["Scheduled", "Started"]),
    resources=st.lists(st.text(), max_size=2).map(tuple),
    not_before=st.none() | INSTANTS,
    description=st.text(max_size=3),
    duration_seconds=st.none() | st.integers(-1, 9),
)
DOCUMENTS = st.builds(
    Document,
    # It may go back, and stay.
    incarnation=st.integers(0, 3),
    events=st.lists(EVENTS, max_size=3, unique_by=lambda event: event.id).map(tuple),
)


def walked(documents, since=None):
    """Every change of a row of documents."""
    position, changes = since or Position(), []
    for document in documents:
        for change in position.after(document):
            changes.append(change)
            position = change.position
    return changes


def kinds(changes):
    """What became of events, as words."""
    return [(change.kind, change.event.id) for change in changes]


def test_printed_it_is_a_line_for_people():
    """Not the three hundred characters of everything; and nothing that a terminal would obey."""
    odd = replace(reboot(), type="Re\x1b[31mboot\n", resources=(), not_before=None)
    announced, started = walked(
        Document(1, (event,)) for event in (reboot(), replace(reboot(), status="Started"))
    )
    assert str(reboot()) == "Reboot of web_0, Scheduled, not before 2026-03-01 12:15:00 UTC"
    assert str(odd) == "Re [31mboot of nobody, Scheduled"
    assert str(announced) == f"announced: {reboot()}"
    assert str(started) == "started: Reboot of web_0, Started"


def test_the_life_of_an_event():
    """Announced, postponed, started, gone; a document that comes again brings nothing."""
    scheduled = reboot()
    later = replace(scheduled, not_before=datetime(2026, 3, 2, tzinfo=UTC))
    started = replace(later, status="Started", not_before=None)
    row = [(), (scheduled,), (scheduled,), (later,), (started,), (started,), ()]

    changes = walked(Document(number, events) for number, events in enumerate(row))

    assert [change.kind for change in changes] == ["announced", "changed", "started", "gone"]
    assert [change.event for change in changes] == [scheduled, later, started, started]
    assert [change.before for change in changes] == [None, scheduled, later, started]


def test_one_that_was_never_scheduled():
    """Hardware that failed: it is started when it is first seen, and announced at no time."""
    started = reboot(status="Started", not_before=None)

    (change,) = walked([Document(1, (started,))])

    assert (change.kind, change.before) == (ChangeKind.STARTED, None)


def test_several_at_once():
    """What is gone is told first, then what is shown, in the document's order."""
    old, new = reboot(), reboot(id=OTHER)
    third = reboot(id="A")
    changes = walked([Document(1, (old, third)), Document(2, (new, replace(third, type="Freeze")))])

    assert kinds(changes[2:]) == [("gone", ID), ("announced", OTHER), ("changed", "A")]


def test_an_incarnation_that_goes_back_brings_nothing():
    """The number starts anew; the events are the same."""
    assert len(walked([Document(7, (reboot(),)), Document(1, (reboot(),))])) == 1


@given(st.lists(DOCUMENTS))
def test_each_change_comes_once_and_leads_to_what_is_shown(documents):
    """Whatever comes after what: the changes, taken one after another, make the last document."""
    known = {}
    for change in walked(documents):
        name = change.event.id
        assert change.before == known.get(name)
        if change.kind is ChangeKind.GONE:
            assert known.pop(name) == change.event
        else:
            assert known.get(name) != change.event
            new = change.before is None
            fresh = change.event.is_started and (new or not change.before.is_started)
            assert (change.kind is ChangeKind.STARTED) == fresh
            assert (change.kind is ChangeKind.ANNOUNCED) == (new and not fresh)
            known[name] = change.event
    assert known == {event.id: event for event in documents[-1].events} if documents else not known


@given(st.lists(DOCUMENTS, min_size=1), st.data())
def test_whoever_is_killed_goes_on_after_the_last_he_saved(documents, data):
    """Wherever it ends, and though that document is shown again: nothing is lost or told twice."""
    whole = walked(documents)
    told, shown = [], 0
    for number, document in enumerate(documents):
        position = told[-1].position if told else Position()
        new = list(position.after(document))
        cut = data.draw(st.integers(0, len(new)), label="killed after")
        told += new[:cut]
        if cut < len(new):
            shown = number
            break
    else:
        shown = len(documents)
    saved = Position.from_json(told[-1].position.to_json()) if told else None

    assert told + walked(documents[shown:], saved) == whole


@given(st.lists(EVENTS, max_size=3).map(tuple))
def test_a_position_is_saved_as_text(events):
    """One line, and it comes back as it was."""
    saved = Position(events).to_json()

    assert "\n" not in saved
    assert Position.from_json(saved) == Position.from_json(saved.encode()) == Position(events)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format":2,"events":[]}', '{"format":1,"events":[{"id":"A"}]}', "7"],
)
def test_what_is_no_position_is_said_to_be_none(text):
    """A file that was cut, or is another's."""
    with pytest.raises(UsageError, match="position"):
        Position.from_json(text)
