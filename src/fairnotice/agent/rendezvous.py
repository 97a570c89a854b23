"""Where the VMs of one event say to each other that they are ready.

A shared directory, a command of the operator, or another package's way by the entry point group
`fairnotice.rendezvous`: a callable that takes the settings and returns a Rendezvous.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import quote, unquote

from fairnotice.agent.tables import Table, nearest
from fairnotice.client.document import Event
from fairnotice.errors import RendezvousFailed, UsageError

GROUP = "fairnotice.rendezvous"
COMMAND_SECONDS = 10.0


class Rendezvous(Protocol):
    """What a place to meet promises. Each may raise RendezvousFailed, and is tried again."""

    def ready(self, event: Event, vm: str) -> None:
        """Say that this VM is ready for this event. Saying it twice is as good as once."""
        ...

    def who(self, event: Event) -> frozenset[str]:
        """The VMs that have said so."""
        ...

    def leave(self, event: Event, vm: str) -> None:
        """Take it back, when the event is gone. Taking it back twice is as good as once."""
        ...


def make(settings: Mapping[str, object]) -> Rendezvous:
    """The place of `[rendezvous]`; UsageError where it cannot be."""
    table = Table("[rendezvous]", settings)
    kind = table.text("kind", "")
    table.seconds("takeover_seconds", 1.0)
    if kind:
        return _made_by(kind, settings)
    directory, command = table.text("directory", ""), table.command("command", ())
    table.done()
    if bool(directory) == bool(command):
        raise table.refuse("give either directory or command, or the kind of another package.")
    return SharedDirectory(Path(directory)) if directory else OwnCommand(command)


def look(place: Rendezvous | None) -> None:
    """Raise RendezvousFailed where nobody could meet there now, as far as that can be seen."""
    if isinstance(place, SharedDirectory):
        place.look()


def _made_by(kind: str, settings: Mapping[str, object]) -> Rendezvous:
    from importlib.metadata import entry_points  # noqa: PLC0415 - it is heavy, and seldom needed

    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if kind not in found:
        known = nearest(kind, found) if found else f"No package offers any ({GROUP})."
        raise UsageError(f"[rendezvous]: there is no kind {kind!r}. {known}")
    own = {key: value for key, value in settings.items() if key not in ("kind", "takeover_seconds")}
    try:
        return cast("Rendezvous", found[kind].load()(own))
    except Exception as error:
        # Whatever another package raises is wrapped here, at the door, with its cause.
        raise UsageError(f"[rendezvous]: the kind {kind} cannot be made: {error}") from error


class SharedDirectory:
    """A file per VM in a folder per event: `DIRECTORY/EVENT/VM`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def look(self) -> None:
        """Whether the folder is there at all; RendezvousFailed where it is not."""
        if not self._directory.is_dir():
            raise RendezvousFailed(
                f"[rendezvous]: directory is {self._directory}, which is no folder here: is what "
                "the VMs share mounted? It is not made, since nobody else would see it."
            )

    def _folder(self, event: Event) -> Path:
        # An id is from the network: whatever it is, it names no other folder.
        return self._directory / ("event-" + quote(event.id, safe=""))

    def _file(self, event: Event, vm: str) -> Path:
        return self._folder(event) / ("vm-" + quote(vm.casefold(), safe=""))

    def ready(self, event: Event, vm: str) -> None:
        """Put the file there, whole at once."""
        self.look()
        file = self._file(event, vm)
        try:
            # The shared folder itself is never made: it would be one that nobody shares.
            file.parent.mkdir(exist_ok=True)
            part = file.with_name(f".{file.name}.{os.getpid()}")
            part.write_text(json.dumps({"vm": vm, "event": event.id}) + "\n", "utf-8")
            part.replace(file)
        except OSError as error:
            raise RendezvousFailed(f"{file} cannot be written: {error}.") from error

    def who(self, event: Event) -> frozenset[str]:
        """Whose files are there."""
        self.look()
        folder = self._folder(event)
        try:
            names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
        except OSError as error:
            raise RendezvousFailed(f"{folder} cannot be read: {error}.") from error
        return frozenset(
            unquote(name.removeprefix("vm-")) for name in names if name.startswith("vm-")
        )

    def leave(self, event: Event, vm: str) -> None:
        """Take the file away; the last one takes the folder with it."""
        file = self._file(event, vm)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise RendezvousFailed(f"{file} cannot be taken away: {error}.") from error
        with suppress(OSError):
            self._folder(event).rmdir()


class OwnCommand:
    """The operator's command, with one more word: `ready`, `who` (a name per line) or `leave`."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command

    def ready(self, event: Event, vm: str) -> None:
        """`COMMAND ready`."""
        self._run("ready", event, vm)

    def who(self, event: Event) -> frozenset[str]:
        """`COMMAND who`."""
        said = self._run("who", event, "")
        return frozenset(line.strip() for line in said.splitlines() if line.strip())

    def leave(self, event: Event, vm: str) -> None:
        """`COMMAND leave`."""
        self._run("leave", event, vm)

    def _run(self, word: str, event: Event, vm: str) -> str:
        told = {
            "FAIRNOTICE_EVENT_ID": event.id,
            "FAIRNOTICE_RESOURCES": " ".join(event.resources),
            "FAIRNOTICE_VM": vm,
        }
        try:
            done = subprocess.run(  # noqa: S603 - to run what the owner of this VM configured
                [*self._command, word],
                env={**os.environ, **told},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=COMMAND_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RendezvousFailed(f"{self._command[0]} {word}: {error}") from error
        return done.stdout.decode("utf-8", errors="replace")
