"""What a program in a VM asks its metadata service with, on fairnotice and on Azure alike.

    from fairnotice.client import ScheduledEvents

    events = ScheduledEvents()
    for change in events.watch():
        ...

Of the standard library alone. Names are imported when they are used, so that nobody pays for the
asynchronous client who does not want it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairnotice.client.asynchronous import AsyncScheduledEvents
    from fairnotice.client.changes import Change, ChangeKind, Position
    from fairnotice.client.document import Document, Event, read_document
    from fairnotice.client.steps import Missed
    from fairnotice.client.sync import ScheduledEvents

__all__ = [
    "AsyncScheduledEvents",
    "Change",
    "ChangeKind",
    "Document",
    "Event",
    "Missed",
    "Position",
    "ScheduledEvents",
    "read_document",
]

_MODULES = {
    "AsyncScheduledEvents": "asynchronous",
    "Change": "changes",
    "ChangeKind": "changes",
    "Document": "document",
    "Event": "document",
    "Missed": "steps",
    "Position": "changes",
    "ScheduledEvents": "sync",
    "read_document": "document",
}


def __getattr__(name: str) -> object:
    """The public name, imported now."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only where a name is asked for

    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
