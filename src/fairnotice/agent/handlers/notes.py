"""What a handler remembers, so that `recover` undoes what `prepare` did and nothing else.

A note says of one thing (a server, a unit) how it was found and which events hold it changed. Two
events may hold the same thing: it is given back when the last of them is over. A note is written
before the thing is changed, and outlives the agent where it has a directory for its state.
"""

import contextlib
import json
import logging
import os
import threading
from pathlib import Path

from fairnotice.errors import HandlerFailed

# In the place of an event that is over, whose thing is still changed.
_NOBODY = ""
_LOG = logging.getLogger("fairnotice.agent")


class Notes:
    """The notes of one handler; several plans may use them at once."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._things: dict[str, tuple[str, list[str]]] | None = None

    def hold(self, event_id: str, thing: str, found: str) -> None:
        """Note that this event holds the thing changed; how it was found first is what counts."""
        with self._lock:
            first, events = self._read().get(thing, (found, []))
            self._read()[thing] = (first, sorted({*events, event_id}))
            self._write()

    def held(self, thing: str) -> bool:
        """Whether any event holds the thing changed."""
        with self._lock:
            return thing in self._read()

    def things(self, event_id: str) -> dict[str, str]:
        """How each thing was found that this event, and no other one, holds changed.

        What could not be given back after an earlier event is given back with this one.
        """
        with self._lock:
            return {
                thing: found
                for thing, (found, events) in self._read().items()
                if {*events} <= {event_id, _NOBODY}
            }

    def release(self, event_id: str, thing: str | None = None) -> None:
        """Note that this event holds the thing no longer; all of its things where none is named."""
        with self._lock:
            things = self._read()
            for one in [thing] if thing is not None else list(things):
                found, events = things.pop(one, ("", []))
                if left := [other for other in events if other not in {event_id, _NOBODY}]:
                    things[one] = (found, left)
            self._write()

    def abandon(self, event_id: str) -> None:
        """Note that this event is over, and what it holds could not be given back."""
        with self._lock:
            things = self._read()
            for thing, (found, events) in things.items():
                left = {_NOBODY if one == event_id else one for one in events}
                things[thing] = (found, sorted(left))
            self._write()

    def forget(self) -> None:
        """Note that nothing is changed."""
        with self._lock:
            self._things = {}
            self._write()

    def _read(self) -> dict[str, tuple[str, list[str]]]:
        if self._things is None:
            self._things = _read(self._file) if self._file else {}
        return self._things

    def _write(self) -> None:
        if self._file is None:
            return
        beside = self._file.with_suffix(".new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("w", encoding="utf-8") as file:
                json.dump(self._things, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file)
        except OSError as error:
            raise HandlerFailed(f"{self._file} cannot be written: {error.strerror}.") from error


def _read(file: Path) -> dict[str, tuple[str, list[str]]]:
    with contextlib.suppress(FileNotFoundError):
        try:
            kept = json.loads(file.read_bytes())
            return {str(thing): (str(one[0]), [*map(str, one[1])]) for thing, one in kept.items()}
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            # To recover nothing leaves the VM as it is, which a person can see and mend.
            _LOG.warning("%s is damaged and was put aside: %s", file, error)
            file.replace(file.with_suffix(".damaged"))
    return {}
