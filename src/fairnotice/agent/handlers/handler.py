"""What every handler promises, and what it is told.

A handler prepares this VM for an event, and recovers it afterwards. It returns when that is done,
and raises HandlerFailed with a sentence when it cannot be. It returns by its deadline in any case,
and soon after `stopping` is set: every wait of a handler is one of `Call.wait`, or is as short.

`recover` undoes what `prepare` did, no more: what an operator had changed before stays as it was.
It may be called in a later life of the agent than `prepare` was, and after a `prepare` that failed
half way; both must be right.
"""

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fairnotice.clock import Clock

if TYPE_CHECKING:
    from fairnotice.client.document import Event

PREPARE = "prepare"
RECOVER = "recover"


class Call(NamedTuple):
    """What a handler is told."""

    event: "Event"
    vm: str
    phase: str
    # On the clock's monotonic; the plan goes on without the handler afterwards.
    deadline: float
    clock: Clock
    # Set when the handler must end now: the event is gone, or the agent ends.
    stopping: threading.Event

    def remaining_seconds(self) -> float:
        """How long there is; 0 where the deadline has passed."""
        return max(0.0, self.deadline - self.clock.monotonic())

    def wait(self, seconds: float) -> bool:
        """Whether to go on, after so many seconds: not if the time is over, or it must end now."""
        self.stopping.wait(min(seconds, self.remaining_seconds()))
        return self.going_on()

    def going_on(self) -> bool:
        """Whether there is time left, and nobody has said to end."""
        return not self.stopping.is_set() and self.remaining_seconds() > 0

    def why_ended(self) -> str:
        """Why `going_on` says no, for a sentence."""
        return "it was told to end" if self.stopping.is_set() else "its time was over"

    def environment(self) -> dict[str, str]:
        """What a command is told, as variables; empty where the event does not say."""
        event = self.event
        duration = event.duration_seconds
        return {
            "FAIRNOTICE_EVENT_ID": event.id,
            "FAIRNOTICE_EVENT_TYPE": event.type,
            "FAIRNOTICE_EVENT_STATUS": event.status,
            "FAIRNOTICE_EVENT_SOURCE": event.source,
            "FAIRNOTICE_NOT_BEFORE": instant(self),
            "FAIRNOTICE_DURATION_SECONDS": "" if duration is None else str(duration),
            "FAIRNOTICE_DESCRIPTION": event.description.replace("\0", ""),
            "FAIRNOTICE_RESOURCES": " ".join(event.resources),
            "FAIRNOTICE_VM": self.vm,
            "FAIRNOTICE_PHASE": self.phase,
            "FAIRNOTICE_REMAINING_SECONDS": str(int(self.remaining_seconds())),
        }


def instant(call: Call) -> str:
    """NotBefore as RFC 3339 writes it, in UTC; empty where the event has none."""
    not_before = call.event.not_before
    return not_before.strftime("%Y-%m-%dT%H:%M:%SZ") if not_before else ""


class Handler(Protocol):
    """One thing to do before and after an event. Whoever inherits from this writes what it does."""

    def prepare(self, call: Call) -> None:
        """Make ready for the event; HandlerFailed where that cannot be."""
        return

    def recover(self, call: Call) -> None:
        """Undo what `prepare` did, and nothing else."""
        return

    def open(self, prepared: bool) -> None:  # noqa: FBT001 - the agent says it in one word
        """The agent starts; `prepared` if it was left so in an earlier life of the agent."""
        return

    def close(self) -> None:
        """The agent ends; what is prepared stays so."""
        return
