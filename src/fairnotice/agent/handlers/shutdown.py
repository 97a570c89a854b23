"""`kind = "shutdown"`: shuts this VM down in order, before it is done from outside.

There is nothing to undo: whoever starts the VM starts the agent.
"""

from fairnotice.agent.handlers import processes
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.tables import Table


def make(table: Table) -> "Shutdown":
    """The handler of this table."""
    return Shutdown(table.command("command", ("systemctl", "poweroff")))


class Shutdown(processes.Runs):
    """Runs the command that shuts down."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command

    def prepare(self, call: Call) -> None:
        """Shut down."""
        processes.run(self._command, call, once=True)
