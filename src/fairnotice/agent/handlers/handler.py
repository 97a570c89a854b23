"""What every handler promises, and what it is told.

A handler prepares this VM for an event, and recovers it afterwards. It returns when that is done,
and raises HandlerFailed with a sentence when it cannot be. It returns by its deadline in any case,
and soon after `stopping` is set: every wait of a handler is one of `Call.wait`, or is as short.

`recover` undoes what `prepare` did, no more: what an operator had changed before stays as it was.
It may be called in a later life of the agent than `prepare` was, and after a `prepare` that failed
half way; both must be right.

An agent that died while a handler was at work asks it in its next life what became of that:
`outcome`. Most cannot know. Those that run a command can, by the marks that it leaves (marks.py).
"""

import threading
from dataclasses import dataclass
from typing import Protocol

from fairnotice.agent.handlers.marks import Mark, Trace
from fairnotice.client.document import Event, one_line
from fairnotice.clock import Clock

PREPARE = "prepare"
RECOVER = "recover"
CANCELED = "canceled"


@dataclass(slots=True, eq=False)
class Call:
    """What a handler is told."""

    event: Event
    vm: str
    phase: str
    # On the clock's monotonic; the plan goes on without the handler afterwards. It moves while the
    # handler runs, if NotBefore does: whoever waits looks at it again.
    deadline: float
    clock: Clock
    # Set when the handler must end now: the event is gone, or the agent ends.
    stopping: threading.Event
    # Where a command leaves marks of what became of it; None where there can be none.
    mark: Mark | None = None
    # How the event ended, of a call to recover: `over`, `canceled`; empty where nobody knows.
    ended: str = ""

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

    def facts(self) -> dict[str, object]:
        """What there is to tell of the event and of this VM; None where the event does not say."""
        event = self.event
        not_before = event.not_before
        return {
            "event_id": event.id,
            "event_type": event.type,
            "event_status": event.status,
            "event_source": event.source,
            "not_before": f"{not_before:%Y-%m-%dT%H:%M:%SZ}" if not_before else None,
            "duration_seconds": event.duration_seconds,
            "description": event.description,
            "resources": list(event.resources),
            "vm": self.vm,
            "phase": self.phase,
            "ended": self.ended or None,
            "remaining_seconds": int(self.remaining_seconds()),
        }

    def environment(self) -> dict[str, str]:
        """The facts as variables for a command: FAIRNOTICE_EVENT_ID and so on."""
        facts = {**self.facts(), "resources": " ".join(self.event.resources)}
        return {
            f"FAIRNOTICE_{name.upper()}": "" if fact is None else str(fact).replace("\0", "")
            for name, fact in facts.items()
        }

    def sentence(self) -> str:
        """The facts for a person, in one line."""
        event = self.event
        when = f" not before {event.not_before:%Y-%m-%d %H:%M:%S} UTC" if event.not_before else ""
        state = f"{event.status}, {self.ended}" if self.ended else event.status
        told = f"{self.phase} {self.vm}: {event.type} ({state}){when}: {event.description}"
        return one_line(told)


class Handler(Protocol):
    """One thing to do before and after an event. Whoever inherits from this writes what it does."""

    def prepare(self, call: Call) -> None:  # noqa: ARG002 - for those who inherit
        """Make ready for the event; HandlerFailed where that cannot be."""
        return

    def recover(self, call: Call) -> None:  # noqa: ARG002 - for those who inherit
        """Undo what `prepare` did, and nothing else."""
        return

    def outcome(self, call: Call) -> Trace:  # noqa: ARG002 - the same
        """What became of this call, which an earlier life of the agent had begun.

        A handler of another package need not have it.
        """
        return Trace.UNKNOWN

    def open(self, prepared: bool) -> None:  # noqa: ARG002, FBT001 - the same
        """The agent starts; `prepared` if it was left so in an earlier life of the agent."""
        return

    def close(self) -> None:
        """The agent ends; what is prepared stays so."""
        return


class Teller(Handler):
    """A handler that tells somebody, before and after, and has nothing to undo."""

    def prepare(self, call: Call) -> None:
        """Tell that it is going to happen."""
        self.tell(call)

    def recover(self, call: Call) -> None:
        """Tell that it is over."""
        self.tell(call)

    def tell(self, call: Call) -> None:
        """Tell it; the phase of the call says which."""
        raise NotImplementedError
