"""Where bars are on the timeline."""

from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.model import Event
from fairnotice.portal.timeline import LEAST, NOW_AT, NOW_MAX, SPANS, bar, span_of
from fairnotice.words import EventSource, EventStatus, EventType

NOW = datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)


def in_seconds(seconds):
    """An instant from now on."""
    return NOW + timedelta(seconds=seconds)


def event(not_before, announced=-5, started=None, duration=-1):
    """An event with these instants, in seconds from now."""
    return Event(
        id="E",
        operation="O",
        scope="vm:db",
        type=EventType.REBOOT,
        source=EventSource.USER,
        status=EventStatus.SCHEDULED if started is None else EventStatus.STARTED,
        resources=("db",),
        revision=1,
        announced_at=in_seconds(announced),
        not_before=in_seconds(not_before),
        notice_seconds=15.0,
        duration_seconds=duration,
        started_at=None if started is None else in_seconds(started),
    )


@pytest.mark.parametrize("ahead", [0, 15, 55, 600, 900, 86_400, 7 * 86_400, 300 * 86_400])
def test_what_is_announced_is_in_view(ahead):
    """With now on the left, and its whole notice; until the next span begins."""
    span = span_of([event(ahead)], NOW)
    assert NOW_AT * 100 <= span.percent(NOW) < NOW_MAX * 100
    assert span.percent(in_seconds(ahead)) < 100
    assert span.redrawn_at > NOW
    assert not bar(event(ahead), span, NOW).beyond


def test_what_is_far_away_does_not_squeeze_what_is_near():
    """It is drawn to the edge, and told in words."""
    span = span_of([event(15), event(20), event(7 * 86_400)], NOW)
    assert span.seconds == 60
    assert bar(event(7 * 86_400), span, NOW).beyond


def test_one_that_is_near_does_not_take_the_axis_from_the_others():
    """Azure's own notices are in view together; and so is what is the greater part."""
    announced = [event(ahead) for ahead in (30, 30, 30, 300, 900)]
    span = span_of(announced, NOW)
    assert not any(bar(one, span, NOW).beyond for one in announced)
    far = [event(ahead) for ahead in (15, 86_400, 86_400)]
    assert not any(bar(one, span_of(far, NOW), NOW).beyond for one in far)


def test_not_before_is_where_it_was_promised():
    """Though it was approved, and started before; nowhere where the timeline does not reach it."""
    span = span_of([event(15)], NOW, 60)
    found = bar(event(15, started=-6), span, NOW)
    assert found.not_before_at == span.percent(in_seconds(15)) > found.impact_at
    assert bar(event(900, started=-6), span, NOW).not_before_at is None


def test_a_bar_is_its_notice_and_then_its_impact():
    """One after the other, as wide as they last."""
    span = span_of([event(15)], NOW, 60)
    found = bar(event(15, announced=0, duration=6), span, NOW)
    assert found.notice_width == pytest.approx(25, abs=0.01)
    assert found.impact_at == pytest.approx(found.notice_at + 25, abs=0.01)
    assert found.impact_width == pytest.approx(10, abs=0.01)
    assert not found.grows


def test_what_has_started_goes_on_until_now():
    """Of what nobody knows how long it takes the end is now; it grows with time."""
    span = span_of([event(15, started=-6)], NOW, 60)
    found = bar(event(15, started=-6), span, NOW)
    assert found.grows
    assert found.impact_width == pytest.approx(10, abs=0.01)
    late = bar(event(15, started=-6, duration=3), span, NOW)
    assert late.impact_width == pytest.approx(10, abs=0.01)


def test_nobody_is_made_to_believe_that_a_reboot_takes_hours():
    """How long it takes is unknown: it is drawn as little, whatever the span."""
    span = span_of([event(15)], NOW, 2 * 86_400)
    assert bar(event(15), span, NOW).impact_width == LEAST


@pytest.mark.parametrize("seconds", SPANS)
def test_marks_are_at_round_instants_within_the_span(seconds):
    """Few enough to be read."""
    marks = span_of([], NOW, seconds).marks()
    assert 5 <= len(marks) <= 8
    assert all(0 <= mark.at_percent <= 100 for mark in marks)
    assert len({mark.text for mark in marks}) == len(marks)
