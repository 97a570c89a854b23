"""`kind = "systemd"`: stops units before the event and starts them afterwards.

In the order given, and started in the opposite one. A unit that did not run is not stopped, and
what was not stopped here is not started.
"""

from fairnotice.agent.handlers import processes
from fairnotice.agent.handlers.handler import Call, Handler
from fairnotice.agent.handlers.notes import Notes
from fairnotice.agent.tables import Table
from fairnotice.errors import HandlerFailed

_RUNNING = frozenset({"active", "reloading", "refreshing", "activating"})


def make(table: Table) -> "Systemd":
    """The handler of this table."""
    units = table.words("units")
    for unit in units:
        if unit.startswith("-") or any(letter.isspace() for letter in unit):
            raise table.refuse(f"units has {unit!r} in it, which is no name of a unit.")
    owner = "--user" if table.flag("of_user", default=False) else "--system"
    return Systemd(units, owner, Notes(table.notes))


class Systemd(Handler):
    """Stops and starts, by `systemctl` as the PATH has it."""

    def __init__(self, units: tuple[str, ...], owner: str, notes: Notes) -> None:
        self._units = units
        self._systemctl = ("systemctl", owner, "--no-ask-password")
        self._notes = notes

    def prepare(self, call: Call) -> None:
        """Stop those that run."""
        for unit in self._units:
            if self._runs(unit, call) or self._notes.held(unit):
                self._notes.hold(call.event.id, unit, "active")
                processes.run((*self._systemctl, "stop", "--", unit), call)

    def recover(self, call: Call) -> None:
        """Start those that were stopped here; each is tried, and the first failure is told."""
        stopped = self._notes.things(call.event.id)
        failures = []
        for unit in reversed([unit for unit in self._units if unit in stopped]):
            try:
                processes.run((*self._systemctl, "start", "--", unit), call)
                self._notes.release(call.event.id, unit)
            except HandlerFailed as error:
                failures.append(error)
        if failures:
            self._notes.abandon(call.event.id)
            raise failures[0]
        self._notes.release(call.event.id)

    def _runs(self, unit: str, call: Call) -> bool:
        asked = ("show", "--property=LoadState,ActiveState", "--", unit)
        said = processes.run((*self._systemctl, *asked), call)
        state = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        if state.get("LoadState") == "not-found":
            raise HandlerFailed(f"There is no unit {unit}.")
        return state.get("ActiveState") in _RUNNING
