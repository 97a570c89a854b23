"""Events and courses for tests of the agent."""

from datetime import UTC, datetime, timedelta

from fairnotice.agent.rules import Course
from fairnotice.client.document import Event

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
VM = "web-0"


def event(name: str = "E1", kind: str = "Reboot", seconds: float | None = 900, **more) -> Event:
    """An event that names web-0, Scheduled so many seconds from now."""
    due = None if seconds is None else NOW + timedelta(seconds=seconds)
    return Event(
        **{"id": name, "type": kind, "status": "Scheduled", "resources": (VM,)}
        | more
        | {"not_before": due}
    )


def course(*prepare: str, **more) -> Course:
    """A course with these handlers, recovered in reverse."""
    return Course(**{"rule": "r", "prepare": prepare, "recover": prepare[::-1]} | more)
