"""A handler of a table, and what it is told, as the agent would."""

import threading
import tomllib
from dataclasses import replace
from datetime import UTC, datetime

from fairnotice.agent.handlers import registry
from fairnotice.agent.handlers.handler import Call
from fairnotice.client import Event
from fairnotice.clock import SystemClock

CLOCK = SystemClock()
REBOOT = Event(
    id="A123BC45-1234-5678-AB90-ABCDEF123456",
    type="Reboot",
    status="Scheduled",
    resources=("web-0", "web-1"),
    not_before=datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
    description="Host server is undergoing maintenance.",
    source="Platform",
    duration_seconds=-1,
    resource_type="VirtualMachine",
)
FREEZE = replace(REBOOT, id="B123BC45-1234-5678-AB90-ABCDEF123456", type="Freeze")


def call(seconds=10.0, phase="prepare", event=REBOOT, stopping=None):
    """What a handler with so many seconds is told."""
    deadline = CLOCK.monotonic() + seconds
    return Call(event, "web-0", phase, deadline, CLOCK, stopping or threading.Event())


def after(seconds=10.0, event=REBOOT):
    """The same, when the event is over."""
    return call(seconds, "recover", event)


def made(toml, state=None):
    """The handler whose table this is."""
    settings = tomllib.loads(toml)
    return registry.make(settings["kind"], settings, "it", state)
