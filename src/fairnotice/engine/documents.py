"""Rule 7: what a scope's VMs read, and the incarnation that moves when it changes."""

from typing import Any

from fairnotice.engine.changes import DocumentChanged
from fairnotice.engine.draft import Draft
from fairnotice.engine.tables import Tables
from fairnotice.model import Document, Event

EMPTY = Document(1)


def document(tables: Tables, scope_name: str) -> Document:
    """The document of a scope, its events in the order they were announced."""
    scope = tables.scopes[scope_name]
    events = tuple(tables.events[event] for event in tables.events_in_scope.get(scope_name, ()))
    return Document(scope.incarnation, events) if scope.enabled else EMPTY


def shown(event: Event | None) -> tuple[Any, ...] | None:
    """What a VM can see of an event; None where it sees nothing of it."""
    if event is None or not event.visible:
        return None
    return (
        event.status,
        event.resources,
        event.not_before if event.scheduled else None,
        event.type,
        event.source,
        event.description,
        event.duration_seconds,
    )


def move_incarnations(draft: Draft) -> None:
    """Count one up for each scope whose document this decision changes, and no other."""
    scopes: dict[str, None] = {}
    for event_id in draft.touched_events:
        event = draft.events[event_id]
        if shown(event) != shown(draft.fleet.events.get(event_id)):
            scopes[event.scope] = None
    for name in scopes:
        scope = draft.scopes.get(name)
        if scope is not None and scope.enabled:
            moved = scope._replace(incarnation=scope.incarnation + 1)
            draft.record(DocumentChanged(draft.now, moved))
