"""When it asks next, and what time it is at the service: by instants that the test gives."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.client import Document, Missed, ScheduledEvents
from fairnotice.client.discovery import Surroundings
from fairnotice.client.exchange import Answer
from fairnotice.client.pace import Pace
from fairnotice.client.server_clock import ServerClock
from fairnotice.client.steps import Ask, Pause, Session
from fairnotice.testing import ManualClock
from tests.client.bodies import GOOD, one

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PREEMPT_SECONDS = 30
CHANCES = st.floats(0, 1, exclude_max=True)


def pace(chance=0.0):
    """A pace whose chance is always the same."""
    return Pace(lambda: chance)


def pause(it, *, etag):
    """How long it waits when the answer came at once."""
    return it.pause_seconds(100.0, 100.0, can_wait=etag)


def test_whether_the_service_waits_is_found_out_at_once():
    """As soon as there is an ETag it asks again; ignored, it polls once a second from then on."""
    it = pace()
    it.heard(applied=False, could_wait=False)
    assert pause(it, etag=False) == 1.0
    assert pause(it, etag=True) == 0

    it.heard(applied=False, could_wait=True)
    assert pause(it, etag=True) == 1.0
    assert it.pause_seconds(100.0, 100.7, can_wait=True) == pytest.approx(0.3)


def test_where_the_service_waits_it_asks_again_when_it_has_heard():
    """At once after a held answer, also when a few come close together."""
    it = pace()
    it.heard(applied=True, could_wait=True)

    assert it.pause_seconds(100.0, 107.0, can_wait=True) == 0
    assert it.pause_seconds(107.0, 107.1, can_wait=True) == 0


@given(st.lists(st.floats(0, 2), min_size=5, max_size=30))
def test_a_service_that_always_has_news_is_asked_four_times_a_second_at_most(took):
    """Whatever the answers take: any five requests are a second apart, from first to last."""
    it, now, asked = pace(), 0.0, []
    it.heard(applied=True, could_wait=True)
    for seconds in took:
        asked.append(now)
        now += seconds
        now += it.pause_seconds(asked[-1], now, can_wait=True)
    assert all(last - first >= 1 - 1e-9 for first, last in zip(asked, asked[4:], strict=False))


@given(st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=40), CHANCES)
def test_no_back_off_is_longer_than_a_preempts_notice_allows(told, chance):
    """However often it fails and whatever Retry-After says; and Retry-After is kept up to there."""
    it = pace(chance)
    for number, seconds in enumerate(told, 1):
        waited = it.failed(seconds)
        assert min(seconds or 0.0, 25.0) <= waited <= max(10.0, min(seconds or 0.0, 25.0))
        assert waited < PREEMPT_SECONDS
        assert waited >= min(2 ** (number - 1), 10) / 2
    it.heard(applied=False, could_wait=False)
    assert it.failed(None) <= 1.0


def test_those_that_fail_together_come_back_apart():
    """Between half of the pause and all of it."""
    assert (pace(0.0).failed(None), pace(0.5).failed(None)) == (0.5, 0.75)


# ---- The service's clock ----


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 600), st.floats(0, 30), CHANCES), min_size=1, max_size=20),
)
def test_the_services_clock_is_known_to_a_second_and_what_the_answer_took(offset, answers):
    """Whatever the VM's own says: each answer is as late as it is, and Date is cut to seconds."""
    clock, at = ServerClock(), 0.0
    shortest = min(took for _, took, _ in answers)
    for passed, took, share in answers:
        at += passed
        told = NOON + timedelta(seconds=offset + at + took * share)
        clock.heard(told.replace(microsecond=0), at, at + took)
        at += took
    wrong = clock.now(at) - (NOON + timedelta(seconds=offset + at))
    assert abs(wrong.total_seconds()) <= (1 + shortest) / 2 + 1e-3


def test_a_clock_that_was_stepped_counts_as_it_is_now():
    """The service's clock, or the VM's after a pause, jumps: the newest answer is believed."""
    clock = ServerClock()
    assert clock.now(0.0) is None
    clock.heard(NOON, 10.0, 10.0)
    clock.heard(NOON + timedelta(hours=1), 11.0, 11.0)

    assert clock.now(11.0) == NOON + timedelta(hours=1, seconds=0.5)


@pytest.mark.parametrize("hours", [-5, 0, 7])
def test_until_it_has_answered_the_vms_own_clock_is_all_there_is(hours):
    """now() is the VM's."""
    own = ManualClock(NOON + timedelta(hours=hours))
    assert ScheduledEvents("http://127.0.0.1:1", clock=own).now() == own.wall()


# ---- A stream, step by step ----


def driven(clock, answers):
    """What a stream gives, where each request is answered by the next of these at once."""
    nowhere = Surroundings(environment={})
    session = Session("http://vm", "2020-07-01", None, clock, nowhere, proxies=False)
    stream, outcome = session.documents(None), None
    left = list(answers)
    while True:
        step = stream.send(outcome)
        outcome = None
        if isinstance(step, Ask):
            if not left:
                return
            outcome = left.pop(0)
        elif isinstance(step, Pause):
            clock.advance(seconds=step.seconds)
        else:
            yield step


def plain(body):
    """A 200 without an ETag."""
    return Answer(200, {}, body, keep=True)


def test_empty_bodies_mean_nothing_until_there_is_nothing_else_for_minutes():
    """An event's end that is never seen would be as bad as one that is none."""
    clock = ManualClock()
    began = clock.monotonic()
    first = plain(GOOD["2020-07-01"][0])

    items = list(driven(clock, [first, *[plain(b"")] * 20]))
    assert len([item for item in items if isinstance(item, Missed)]) == 20

    items = list(driven(clock, [first, *[plain(b"")] * 60, first]))
    documents = [item for item in items if isinstance(item, Document)]
    shown = GOOD["2020-07-01"][1]
    assert documents == [shown, Document(0), shown]
    assert clock.monotonic() - began > 300


def test_a_document_that_is_not_new_is_not_given_again():
    """Polled, with or without an ETag."""
    same = [plain(GOOD["2017-08-01 to 2019-01-01"][0])] * 5
    assert list(driven(ManualClock(), same)) == [one()]
