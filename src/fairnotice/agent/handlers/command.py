"""`kind = "command"`: a command line before the event, one after it, or both.

It is told by variables (FAIRNOTICE_EVENT_TYPE, FAIRNOTICE_REMAINING_SECONDS …) what it is about.
Code 0 is success; every other one is a failure, and the end of what it printed goes into the
sentence that says so.
"""

from collections.abc import Mapping

from fairnotice.agent.handlers import processes
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.tables import Table


def make(table: Table) -> "Command":
    """The handler of this table."""
    made = Command(
        table.command("prepare", ()),
        table.command("recover", ()),
        table.texts("environment"),
        table.text("directory", "") or None,
        table.seconds("grace_seconds", processes.GRACE_SECONDS, zero=True),
    )
    table.done()
    if not ("prepare" in table or "recover" in table):
        raise table.refuse("give prepare or recover, or both: the command lines to run.")
    return made


class Command(processes.Runs):
    """Runs one command line before, and one after; an empty one is not run."""

    def __init__(
        self,
        prepare: tuple[str, ...],
        recover: tuple[str, ...],
        environment: Mapping[str, str],
        directory: str | None = None,
        grace_seconds: float = processes.GRACE_SECONDS,
    ) -> None:
        self._prepare = prepare
        self._recover = recover
        self._environment = environment
        self._directory = directory
        self._grace_seconds = grace_seconds

    def prepare(self, call: Call) -> None:
        """Run the command that makes ready."""
        self._run(self._prepare, call)

    def recover(self, call: Call) -> None:
        """Run the command that undoes it."""
        self._run(self._recover, call)

    def _run(self, command: tuple[str, ...], call: Call) -> None:
        if command:
            processes.run(
                command,
                call,
                environment=self._environment,
                directory=self._directory,
                grace_seconds=self._grace_seconds,
                once=True,
            )
