"""Weekly maintenance windows, in UTC (rule 22)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.engine import windows
from fairnotice.model import Window

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
WEEK_MINUTES = 7 * 24 * 60

SATURDAY_NIGHT = Window((5,), 22 * 60, 4 * 60)  # 22:00 to 02:00 on Sunday
WORKDAYS_AT_TWO = Window((0, 1, 2, 3, 4), 2 * 60, 60)


def at(day: int, hour: int, minute: int = 0, second: int = 0) -> datetime:
    """An instant in the week that begins on Monday, the 5th of January 2026."""
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute, seconds=second)


def test_rule_22_without_windows_it_is_always_open():
    """No window at all forbids nothing."""
    assert windows.is_open((), at(3, 12))
    assert windows.next_open((), at(3, 12)) == at(3, 12)


def test_rule_22_a_window_is_open_from_its_start_until_just_before_its_end():
    """02:00 to 03:00 on Monday: 02:00:00 is inside, 03:00:00 is not."""
    assert not windows.is_open([WORKDAYS_AT_TWO], at(0, 1, 59, 59))
    assert windows.is_open([WORKDAYS_AT_TWO], at(0, 2))
    assert windows.is_open([WORKDAYS_AT_TWO], at(0, 2, 59, 59))
    assert not windows.is_open([WORKDAYS_AT_TWO], at(0, 3))


def test_rule_22_monday_is_weekday_0():
    """A window of weekday 0 is open on Monday, closed on Sunday."""
    assert windows.is_open([Window((0,), 0, 60)], at(0, 0, 30))
    assert not windows.is_open([Window((0,), 0, 60)], at(6, 0, 30))


def test_rule_22_a_window_may_run_past_midnight():
    """Saturday 22:00 for four hours is open on Sunday at 01:59, and closed at 02:00."""
    assert windows.is_open([SATURDAY_NIGHT], at(5, 22))
    assert windows.is_open([SATURDAY_NIGHT], at(6, 1, 59))
    assert not windows.is_open([SATURDAY_NIGHT], at(6, 2))
    assert not windows.is_open([SATURDAY_NIGHT], at(5, 1))


def test_rule_22_a_window_may_run_past_the_week():
    """Sunday 23:00 for two hours is open on Monday at 00:30."""
    assert windows.is_open([Window((6,), 23 * 60, 120)], at(7, 0, 30))


def test_rule_22_the_next_opening_is_now_while_a_window_is_open():
    """Inside a window nobody waits."""
    assert windows.next_open([WORKDAYS_AT_TWO], at(1, 2, 30)) == at(1, 2, 30)


def test_rule_22_the_next_opening_may_be_later_today_tomorrow_or_next_week():
    """01:00 waits an hour, 03:00 until tomorrow, Friday 03:00 until Monday."""
    assert windows.next_open([WORKDAYS_AT_TWO], at(0, 1)) == at(0, 2)
    assert windows.next_open([WORKDAYS_AT_TWO], at(0, 3)) == at(1, 2)
    assert windows.next_open([WORKDAYS_AT_TWO], at(4, 3)) == at(7, 2)


def test_rule_22_a_window_just_missed_opens_again_in_a_week():
    """The window of Saturday night, asked for when it has just closed."""
    assert windows.next_open([SATURDAY_NIGHT], at(6, 2)) == at(12, 22)
    assert windows.next_open([Window((2,), 60, 1)], at(2, 1, 1)) == at(9, 1)


def test_rule_22_of_several_windows_the_soonest_counts():
    """From Friday 03:00 on the night of Saturday comes before Monday."""
    both = [WORKDAYS_AT_TWO, SATURDAY_NIGHT]
    assert windows.next_open(both, at(4, 3)) == at(5, 22)
    assert windows.is_open(iter(both), at(5, 23))
    assert windows.next_open(iter(both), at(4, 3)) == at(5, 22)


def test_rule_22_a_window_of_a_whole_week_never_closes():
    """The longest window there is."""
    always = Window((3,), 0, WEEK_MINUTES)
    assert all(windows.is_open([always], at(0, hour)) for hour in range(8 * 24))


def test_rule_22_the_next_closing_is_the_end_of_all_that_is_open():
    """A window ends at its end, two that overlap or touch at the end of the second."""
    assert windows.next_closed([WORKDAYS_AT_TWO], at(0, 2, 30)) == at(0, 3)
    touching = [Window((0,), 120, 60), Window((0,), 150, 60), Window((0,), 210, 30)]
    assert windows.next_closed(touching, at(0, 2)) == at(0, 4)
    assert windows.next_closed([SATURDAY_NIGHT], at(6, 1)) == at(6, 2)


def test_rule_22_what_is_closed_is_closed_now_and_what_never_closes_has_no_closing():
    """Outside a window it is now; without windows, or with one always open, there is none."""
    assert windows.next_closed([WORKDAYS_AT_TWO], at(0, 4)) == at(0, 4)
    assert windows.next_closed([], at(0, 4)) is None
    assert windows.next_closed([Window((3,), 0, WEEK_MINUTES)], at(0, 4)) is None
    assert windows.next_closed([Window(tuple(range(7)), 0, 1440)], at(0, 4)) is None


@pytest.mark.parametrize(
    ("window", "why"),
    [
        (Window((), 0, 60), "weekdays"),
        (Window((7,), 0, 60), "weekdays"),
        (Window((0, -1), 0, 60), "weekdays"),
        (Window((0,), -1, 60), "1439"),
        (Window((0,), 1440, 60), "1439"),
        (Window((0,), 0, 0), "one minute"),
        (Window((0,), 0, -5), "one minute"),
        (Window((0,), 0, WEEK_MINUTES + 1), "one week"),
    ],
)
def test_rule_22_what_is_no_window_is_named(window, why):
    """Each thing that can be wrong with a window is said in words."""
    found = windows.problem(window)
    assert found is not None
    assert why in found.why
    assert getattr(window, found.field) is not None


@pytest.mark.parametrize("window", [Window((0, 6), 1439, 1), Window((3,), 0, WEEK_MINUTES)])
def test_rule_22_the_smallest_and_the_largest_window_are_fine(window):
    """The limits themselves are allowed."""
    assert windows.problem(window) is None


A_WINDOW = st.builds(
    Window,
    st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True).map(tuple),
    st.integers(0, 1439),
    st.integers(1, WEEK_MINUTES),
)


@given(st.lists(A_WINDOW, min_size=1, max_size=3), st.integers(0, WEEK_MINUTES - 1))
def test_rule_22_windows_agree_with_a_calendar_of_minutes(several, minute):
    """Against a list of all open minutes of the week, made the slow way."""
    open_minutes = {
        (day * 1440 + window.start_minute + passed) % WEEK_MINUTES
        for window in several
        for day in window.weekdays
        for passed in range(window.length_minutes)
    }
    closes = (n for n in range(WEEK_MINUTES) if (minute + n) % WEEK_MINUTES not in open_minutes)
    closed_in = next(closes, None)
    waits = next(n for n in range(WEEK_MINUTES) if (minute + n) % WEEK_MINUTES in open_minutes)
    instant = MONDAY + timedelta(minutes=minute)
    assert windows.is_open(several, instant) == (waits == 0)
    assert windows.next_open(several, instant) == instant + timedelta(minutes=waits)
    closed_at = None if closed_in is None else instant + timedelta(minutes=closed_in)
    assert windows.next_closed(several, instant) == closed_at
