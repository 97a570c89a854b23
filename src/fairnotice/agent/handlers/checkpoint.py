"""`kind = "checkpoint"`: saves what a job has done so far, and goes on from there afterwards.

The command is told how long it has, until it gets TERM: `{remaining_seconds}` in a word of it, and
FAIRNOTICE_REMAINING_SECONDS. `restore` is run only where `save` has ended well.
"""

from fairnotice.agent.handlers import processes
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.handlers.notes import Notes
from fairnotice.agent.tables import Table

_THING = "saved"
_PLACE = "{remaining_seconds}"


def make(table: Table) -> "Checkpoint":
    """The handler of this table."""
    grace = table.seconds("grace_seconds", processes.GRACE_SECONDS, zero=True)
    restore = table.command("restore", ())
    return Checkpoint(table.command("save"), restore, grace, Notes(table.notes))


class Checkpoint(processes.Runs):
    """Saves and restores."""

    def __init__(
        self, save: tuple[str, ...], restore: tuple[str, ...], grace_seconds: float, notes: Notes
    ) -> None:
        self._save = save
        self._restore = restore
        self._grace_seconds = grace_seconds
        self._notes = notes

    def prepare(self, call: Call) -> None:
        """Save; noted afterwards, because half a checkpoint is none."""
        self._run(self._save, call)
        # The newest counts: an older one that could not be restored is not restored after this.
        self._notes.forget()
        self._notes.hold(call.event.id, _THING, "not saved")

    def recover(self, call: Call) -> None:
        """Restore what was saved; noted until that is done, because it may be tried again."""
        saved = _THING in self._notes.things(call.event.id) or processes.was_begun(call)
        if self._restore and saved:
            self._run(self._restore, call)
        self._notes.release(call.event.id)

    def _run(self, command: tuple[str, ...], call: Call) -> None:
        seconds = str(int(processes.until_term(call, self._grace_seconds)))
        told = [word.replace(_PLACE, seconds) for word in command]
        processes.run(told, call, grace_seconds=self._grace_seconds, once=True)
