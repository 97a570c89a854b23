"""What the agent shows of itself: a status file and a readiness file.

What is prepared and why is in the journal; the status file says whether an agent lives and what it
last read, for `fairnotice agent status`.
"""

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairnotice.agent.plan import withheld
from fairnotice.agent.records import Record
from fairnotice.errors import Unavailable

FILE = "status.json"
_LOG = logging.getLogger("fairnotice.agent")


class StatusFile:
    """The status file in the agent's folder: whole at any time, or not there."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._written: dict[str, object] = {}

    def write(self, **told: object) -> None:
        """Say this, where it is not what was said last."""
        status = {"pid": os.getpid(), **told}
        if status != self._written and _replaced(self._file, json.dumps(status, indent=1) + "\n"):
            self._written = status


class ReadyFile:
    """There while the agent watches and nothing is prepared: the VM may be given work.

    It is touched whenever that is said again, with each answer of the service: one that is older
    than a few of those was left by an agent that was killed, or is deaf.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._there: bool | None = None

    def set(self, *, ready: bool) -> None:
        """Put it there, or take it away."""
        if self._path is None or (ready == self._there and not ready):
            return
        if ready:
            if self._there and _touched(self._path):
                return
            self._there = True if _replaced(self._path, f"{os.getpid()}\n") else None
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            # No plan may depend on it; but whoever looks at it is deceived.
            if self._there is not False:
                _LOG.error("ready_file %s cannot be taken away: %s", self._path, error.strerror)
        self._there = False


def _touched(file: Path) -> bool:
    """Whether the file is there, and is as new as can be."""
    try:
        os.utime(file)
    except OSError:
        return False
    return True


def _replaced(file: Path, text: str) -> bool:
    """Whether the file could be written, whole at once."""
    part = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, "utf-8")
        part.replace(file)
    except OSError:
        # It is there for whoever looks; nothing depends on it.
        return False
    return True


# ---- Reading it ----


def read(folder: Path) -> dict[str, Any] | None:
    """What an agent last said of itself; None where none ever ran here."""
    try:
        found = json.loads((folder / FILE).read_text("utf-8"))
    except PermissionError as error:
        raise Unavailable(f"{folder} is for others to read: ask as root.") from error
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def row(record: Record, told: dict[str, Any] | None = None) -> dict[str, Any]:
    """What was done about one event, for programs; `told` is what the status file says."""
    event = record.event
    known = ((told or {}).get("events") or {}).get(event.id) or {}
    status = known.get("status") or ("gone" if record.gone else event.status)
    none = "" if record.gone else withheld(record, replace(event, status=status))
    return {
        "event": event.id,
        "type": event.type,
        "status": status,
        "source": event.source,
        "resources": list(event.resources),
        "not_before": f"{event.not_before:%Y-%m-%dT%H:%M:%SZ}" if event.not_before else None,
        "description": event.description,
        "rule": record.course.rule,
        "called": record.course.called,
        "state": state(record),
        "acknowledgement": record.acknowledgement or None,
        "waits": known.get("waits") or none or None,
        "steps": [
            {
                "phase": step.phase,
                "handler": step.handler,
                "outcome": step.outcome,
                "why": step.why or None,
            }
            for step in record.steps.values()
        ],
        "at": record.at,
    }


def state(record: Record) -> str:
    """Where the plan is, in a word or two."""
    if record.over:
        return "over"
    if record.unrecovered:
        return f"NOT recovered: {', '.join(record.unrecovered)}"
    if record.gone:
        return "recovering"
    if not record.prepared:
        return "preparing"
    if not record.any_begun:
        return "nothing to do"
    if not record.failed:
        return "prepared"
    return "prepared, not wholly" if record.any_done else "not prepared"
