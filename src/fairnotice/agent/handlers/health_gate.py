"""`kind = "health-gate"`: a health endpoint that a load balancer probes; it answers 503 first.

It answers 200 while nothing is prepared, and 503 from the first moment of preparing until the last
event that holds it is over, through restarts of the agent. Having shut, it waits as long as
configured, so that the probes notice: their interval times the failures it takes, and a bit.
"""

from fairnotice.agent.answering import Answer, Listener
from fairnotice.agent.handlers.handler import Call, Handler
from fairnotice.agent.handlers.notes import Notes
from fairnotice.agent.tables import Table
from fairnotice.errors import HandlerFailed

_THING = "gate"


def make(table: Table) -> "HealthGate":
    """The handler of this table."""
    path = table.text("path", "/health")
    if not path.startswith("/"):
        raise table.refuse(f"path is {path!r}: it begins with /.")
    wait_seconds = table.seconds("wait_seconds", 10.0, zero=True)
    return HealthGate(table.address("listen"), path, wait_seconds, Notes(table.notes))


class HealthGate(Handler):
    """Listens while the agent runs."""

    def __init__(
        self, listen: tuple[str, int], path: str, wait_seconds: float, notes: Notes
    ) -> None:
        self._listen = listen
        self._path = path
        self._wait_seconds = wait_seconds
        self._notes = notes
        self._listener: Listener | None = None

    def open(self, prepared: bool) -> None:  # noqa: FBT001 - as every handler
        """Listen, and answer as it was left."""
        if not prepared:
            self._notes.forget()
        elif not self._notes.held(_THING):
            # The journal knows of an event that nobody wrote down here.
            self._notes.hold("", _THING, "open")
        try:
            self._listener = Listener(self._listen, self._answer)
        except OSError as error:
            told = ":".join(map(str, self._listen))
            raise HandlerFailed(f"Nobody can listen at {told}: {error.strerror}.") from error

    def _answer(self, path: str) -> Answer:
        if path != self._path:
            return Answer("404 Not Found", f"health is at {self._path}\n")
        if self._notes.held(_THING):
            return Answer("503 Service Unavailable", "this VM prepares for an event\n")
        return Answer("200 OK", "ok\n")

    def close(self) -> None:
        """Listen no longer."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @property
    def port(self) -> int:
        """Where it listens; asked for by those who let the system choose."""
        assert self._listener is not None
        return self._listener.port

    def prepare(self, call: Call) -> None:
        """Answer 503 from now on, and wait so that it is noticed."""
        self._notes.hold(call.event.id, _THING, "open")
        enough = call.clock.monotonic() + self._wait_seconds
        while (left := enough - call.clock.monotonic()) > 0:
            if not call.wait(left):
                raise HandlerFailed(
                    f"The gate is shut, but probes had less than {self._wait_seconds:g} s to "
                    f"notice: {call.why_ended()}."
                )

    def recover(self, call: Call) -> None:
        """Answer 200 again, unless another event holds it."""
        self._notes.release(call.event.id)
