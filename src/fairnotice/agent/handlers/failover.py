"""`kind = "failover"`: makes another replica the primary, and checks that it took effect.

`check` ends with 0 when this VM is not the primary. It is asked first: a VM that is not is left as
it is, and nothing is done for it afterwards. Then `command` is run, and `check` asked again until
it says so or the time is over. `back`, if given, is run afterwards where `command` was.
"""

from fairnotice.agent.handlers import processes
from fairnotice.agent.handlers.handler import Call
from fairnotice.agent.handlers.marks import Trace
from fairnotice.agent.handlers.notes import Notes
from fairnotice.agent.handlers.patience import at_most
from fairnotice.agent.tables import Table
from fairnotice.errors import HandlerFailed

_THING = "primary"


def make(table: Table) -> "Failover":
    """The handler of this table."""
    return Failover(
        table.command("command"),
        table.command("check"),
        table.command("back", ()),
        poll_seconds=table.seconds("poll_seconds", 1.0),
        check_seconds=table.seconds("check_seconds", 10.0),
        notes=Notes(table.notes),
    )


class Failover(processes.Runs):
    """Hands over, and takes back."""

    def __init__(
        self,
        command: tuple[str, ...],
        check: tuple[str, ...],
        back: tuple[str, ...],
        *,
        poll_seconds: float,
        check_seconds: float,
        notes: Notes,
    ) -> None:
        self._command = command
        self._check = check
        self._back = back
        self._poll_seconds = poll_seconds
        self._check_seconds = check_seconds
        self._notes = notes

    def prepare(self, call: Call) -> None:
        """Hand over if this VM is the primary."""
        if not processes.was_begun(call) and self._is_elsewhere(call):
            if self._notes.held(_THING):
                self._notes.hold(call.event.id, _THING, "here")
            return
        self._notes.hold(call.event.id, _THING, "here")
        processes.run(self._command, call, once=True)
        while not self._is_elsewhere(call):
            if not call.wait(self._poll_seconds):
                raise HandlerFailed(
                    f"{self._command[0]} ended well, but {self._check[0]} did not say that it took "
                    f"effect: {call.why_ended()}."
                )

    def recover(self, call: Call) -> None:
        """Take back what was handed over, if that is wanted."""
        try:
            handed_over = _THING in self._notes.things(call.event.id) or processes.was_begun(call)
            if self._back and handed_over:
                processes.run(self._back, call, once=True)
        except HandlerFailed:
            self._notes.abandon(call.event.id)
            raise
        self._notes.release(call.event.id)

    def outcome(self, call: Call) -> Trace:
        """What the marks say; what is noted already is gone on with, and not left behind."""
        trace = super().outcome(call)
        noted = _THING in self._notes.things(call.event.id)
        return Trace.KNOWN if trace is Trace.NOT_BEGUN and noted else trace

    def _is_elsewhere(self, call: Call) -> bool:
        """What the check says; one that hangs has not said so."""
        try:
            return processes.succeeds(self._check, at_most(call, self._check_seconds))
        except processes.Ended:
            if call.going_on():
                return False
            raise
