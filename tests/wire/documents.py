"""Events and scopes to render: what the tests of the wire share."""

from datetime import UTC, datetime

from fairnotice.model import Document, Event
from fairnotice.wire.document import render
from fairnotice.words import EventSource, EventStatus, EventType, ScopeKind

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVENT_ID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
MAINTENANCE = "Host server is undergoing maintenance."
RESTART = "Virtual machine is going to be restarted as requested by authorized user."
REDEPLOY = "Virtual machine is going to be redeployed as requested by authorized user."


def event(
    id: str = EVENT_ID,  # noqa: A002 - named like the row it fills
    type: EventType = EventType.REBOOT,  # noqa: A002
    status: EventStatus = EventStatus.SCHEDULED,
    *,
    resources: tuple[str, ...] = ("web_0",),
    not_before: datetime = NOON,
    description: str = RESTART,
    source: EventSource = EventSource.USER,
    duration_seconds: int = -1,
) -> Event:
    """An event as the document sees it; whatever else a row holds does not matter here."""
    return Event(
        id=id,
        operation="operation",
        scope="scope",
        type=type,
        source=source,
        status=status,
        resources=resources,
        revision=1,
        announced_at=NOON,
        not_before=not_before,
        notice_seconds=900,
        description=description,
        duration_seconds=duration_seconds,
    )


def rendered(
    *events: Event,
    version: str = "2020-07-01",
    incarnation: int = 2,
    kind: ScopeKind = ScopeKind.AVAILABILITY_SET,
) -> bytes:
    """The document of these events, as an api-version shows it."""
    return render(Document(incarnation, events), version, kind)
