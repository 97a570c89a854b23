"""A handler of a table, and what it is told, as the agent would."""

import threading
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from fairnotice.agent.handlers import registry
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.handlers.marks import Mark, Marks
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
# Where commands leave their marks, as those of an agent do; each call has its own.
FOLDER = TemporaryDirectory()
MARKS = Marks(Path(FOLDER.name))
NUMBERS = count()


def promised() -> Mark:
    """Marks that nobody has left yet."""
    mark = MARKS.of(REBOOT.id, "prepare", str(next(NUMBERS)))
    mark.promise()
    return mark


def call(seconds=10.0, phase="prepare", event=REBOOT, stopping=None, mark=None):
    """What a handler with so many seconds is told."""
    deadline = CLOCK.monotonic() + seconds
    stopping = stopping or threading.Event()
    return Call(event, "web-0", phase, deadline, CLOCK, stopping, mark or promised())


def after(seconds=10.0, event=REBOOT, mark=None):
    """The same, when the event is over."""
    return call(seconds, "recover", event, mark=mark)


def made(toml, state=None):
    """The handler whose table this is."""
    settings = tomllib.loads(toml)
    return registry.make(settings["kind"], settings, "it", state)


def gone(process):
    """Whether this process ends, or waits for nothing but its burial."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        threading.Event().wait(0.01)
    return False
