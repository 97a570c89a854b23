"""The nouns: how a person is shown an event."""

import pytest

from fairnotice.words import EventStatus
from tests.engine.story import DB, Story


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "Reboot of db, Scheduled, not before 2026-01-01 00:15:00 UTC"),
        ({"status": EventStatus.STARTED}, "Reboot of db, Started"),
        ({"status": EventStatus.COMPLETED, "resources": ("a", "b")}, "Reboot of a, b, Completed"),
        ({"status": EventStatus.CANCELED, "resources": ()}, "Reboot of nobody, Canceled"),
    ],
)
def test_an_event_is_shown_in_one_line(fields, shown):
    """What, to whom, where in its life; NotBefore as long as it means something."""
    story = Story()
    story.restart_vm("db")

    assert str(story.only(DB)._replace(**fields)) == shown
