"""Where a situation is played: a cloud of its own, the client in it as a VM, and what is required.

Each requirement returns when it is met, and raises NotSurvived with a sentence where it is not.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from threading import Event
from types import TracebackType
from typing import Self

from fairnotice.metadata.faults import FaultKind
from fairnotice.testing.clouds.cloud import Cloud
from fairnotice.testing.clouds.handles import CloudEvent, CloudNode, Impact
from fairnotice.testing.conform.declared import BURST, Declared
from fairnotice.testing.conform.endpoint import Endpoint
from fairnotice.testing.conform.process import ClientProcess, Guest
from fairnotice.testing.conform.watch import Seen, Watch
from fairnotice.wire.document import knows
from fairnotice.words import EventType

# Until it has asked for the first time: some take their time to start.
START_SECONDS = 30.0
# So many polls after something was shown it has been looked at, and what follows has been done.
POLLS_TO_SEE = 3
BAD_REQUEST = 400
TOO_MANY = 429


# What is right in every situation.
PAUSE = "Pause between requests, also after errors: Azure recommends a second."
SEND_THE_HEADER = "Send Metadata: true with every request."
KNOWN_VERSIONS = "Ask with an api-version that is served; the newest-versions of a 400 are."
KNOWN_IDS = "Send the EventId as the document shows it, in StartRequests."
NOT_DECLARED = "Leave acknowledging to others, or do not say that it only watches."


class NotSurvived(AssertionError):
    """The client did what it should not, or not what it should; in a sentence."""

    def __init__(self, what: str, right: str = "") -> None:
        super().__init__(what)
        # What would have been right, where it is not what the situation is about.
        self.right = right


class Scene:
    """One cloud and one client."""

    def __init__(self, declared: Declared, vm: str, fleet: str | None, interrupted: Event) -> None:
        self.declared = declared
        self.vm = vm
        # What has happened last, to be said where the client did not survive it.
        self._since = "it was started"
        # What it must leave alone to the end, and why.
        self._forbidden: list[tuple[CloudEvent, str]] = []
        with ExitStack() as stack:
            self.cloud = stack.enter_context(Cloud(fleet))
            self.watch = Watch(self.cloud, vm, interrupted)
            self.endpoint = stack.enter_context(closing(Endpoint(self.cloud, vm)))
            self.host_name = self.cloud.vm(vm).look().computer_name
            self.client = ClientProcess(declared, Guest(vm, self.host_name, self.endpoint.place))
            stack.callback(self.client.end)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()

    # ---- What happens ----

    def begin(self) -> None:
        """Start the client, and let it ask a few times."""
        self.endpoint.open()
        self.client.start()
        self._polls(2, START_SECONDS + self.declared.patience_seconds)

    def tell(self, what: str) -> None:
        """Say what has happened, as it is told where the client does not survive it."""
        self._since = what

    def set_fault(self, kind: FaultKind, seconds: float | None = None) -> None:
        """Let its endpoint misbehave towards it."""
        self.cloud.fault(kind, vm=self.vm, seconds=seconds)

    def clear_faults(self) -> None:
        """Let its endpoint behave again."""
        self.cloud.clear_faults()

    def announce(self, vm: str = "", kind: EventType | None = None) -> CloudEvent:
        """Announce an event to a VM, to the client's own where none is named."""
        name = vm or self.vm
        kind = kind or self.declared.usual_type or EventType.REBOOT
        if kind is EventType.FREEZE:
            return self.maintain(name)
        handle = self.cloud.vm(name)
        announced = {
            EventType.REBOOT: handle.restart,
            EventType.REDEPLOY: handle.redeploy,
            EventType.PREEMPT: handle.evict,
            EventType.TERMINATE: handle.delete,
        }
        event = announced[kind]()
        assert event is not None, "where one is deleted its scale set has terminate notification"
        return event

    def maintain(
        self, vm: str = "", impact: Impact = "freeze", duration_seconds: int = 9
    ) -> CloudEvent:
        """Announce maintenance of the node that a VM, or the client's own, is on.

        In the sample fleet another scope has a VM there, too, so one approval starts nothing.
        """
        name = vm or self.vm
        events = self.node_of(name).maintain(
            impact=impact,
            duration_seconds=duration_seconds if impact == "freeze" else None,
            force=True,
        )
        return next(event for event in events if name in event.resources)

    def node_of(self, vm: str) -> CloudNode:
        """Where a VM is."""
        node = self.cloud.fleet.vms[vm].node
        assert node is not None, "it runs"
        return self.cloud.node(node)

    def complete(self, event: CloudEvent) -> None:
        """Let time pass until the event is over and gone."""
        self.cloud.run_until(event, "Completed")

    # ---- What is required ----

    def asks_on(self, times: int = 2) -> None:
        """It asks again, however it is answered."""
        self._more(lambda: self.watch.asked, times, self.declared.patience_seconds)

    def polls_on(self, times: int = POLLS_TO_SEE) -> None:
        """It goes on asking, and reads what there is."""
        self._polls(times, self.declared.patience_seconds)

    def _polls(self, times: int, seconds: float) -> None:
        self._more(lambda: self.watch.polls, times, seconds)

    def acknowledges(self, event: CloudEvent, more_seconds: float = 0.0) -> None:
        """It gives its go-ahead for this event in time."""
        seconds = self.declared.patience_seconds + more_seconds
        before = self.watch.polls

        def why() -> str:
            polls = self.watch.polls - before
            if not polls:
                return self._silent(0, seconds)
            return (
                f"It did not acknowledge the {event.type} of {self.vm} within {seconds:.0f} s "
                f"after {self._since}, though it asked {_times(polls)}.{self._blind_to(event)}"
            )

        self.require(lambda: self.watch.has_acknowledged(event.id), seconds, why)

    def _blind_to(self, event: CloudEvent) -> str:
        """Why it could not see that this event is its own; nothing where it could."""
        version = self.watch.api_version
        if version and not knows(version, event.type):
            return f" It asked with api-version {version}, which does not show a {event.type}."
        told = any("{vm}" in word for word in self.declared.command)
        if told or self.watch.knows_its_name:
            return ""
        host_name = self.host_name if self.declared.namespace else "this machine's"
        if host_name == self.vm:
            return ""
        return (
            f" It did not read its name, {self.vm}, from /metadata/instance/compute/name; the host "
            f"name is {host_name}."
        )

    def leaves_alone(self, event: CloudEvent, why: str) -> None:
        """It looks at this event a few times and does not give its go-ahead, nor later."""
        self.forbid(event, why)
        self.polls_on(POLLS_TO_SEE)
        self.has_left_alone(event, why)

    def forbid(self, event: CloudEvent, why: str) -> None:
        """From now on it does not give its go-ahead for this event; it is looked at in the end."""
        self._forbidden.append((event, why))

    def looks_on(self) -> None:
        """It has asked as often as it may before it does what it does at all."""
        self._polls(math.ceil(self.declared.patience), 2 * self.declared.patience_seconds)

    def has_left_alone(self, event: CloudEvent, why: str) -> None:
        """It has not given its go-ahead for this event until now."""
        if self.watch.has_acknowledged(event.id):
            raise NotSurvived(f"It acknowledged the {event.type} of {_named(event)}, {why}.")

    def lets_go(self, event: CloudEvent, why: str = "which was gone") -> None:
        """An event that is gone, or Started, is not acknowledged any more.

        What was under way may still come.
        """
        self.polls_on(2)
        since = self.watch.clock.monotonic()
        self.polls_on()
        if any(one.at > since and event.id in one.events for one in list(self.watch.posted)):
            raise NotSurvived(f"It still acknowledged the {event.type}, {why}.")

    def decides(self, event: CloudEvent) -> None:
        """It acknowledges an event of its own, where it is of a type that it handles."""
        if self.declared.acknowledges and event.type in self.declared.types:
            self.acknowledges(event)
        else:
            self.leaves_alone(event, "a type that it was said not to acknowledge")

    def recovers(self, more_seconds: float = 0.0) -> None:
        """It sees what comes next: an event that is announced now, where it handles any."""
        if self.declared.usual_type is None:
            self._polls(POLLS_TO_SEE, self.declared.patience_seconds + POLLS_TO_SEE * more_seconds)
            return
        self.acknowledges(self.announce(), more_seconds)
        self._polls(1, self.declared.patience_seconds + more_seconds)

    def has_manners(self) -> None:
        """Nothing that it did on the way was wrong: it did not hammer, nor send what is refused."""
        for event, why in self._forbidden:
            self.has_left_alone(event, why)
        seen = list(self.watch.seen)
        if self.watch.burst(self.declared.requests_per_second_max) > BURST:
            raise NotSurvived(
                f"It asked {self.watch.most_within(1.0)} times within a second, and went on so; "
                "Azure answers 429 to more than 5 requests a second.",
                PAUSE,
            )
        if any(one.headless for one in seen):
            told = "It asked without the header Metadata: true, and was answered 400."
            raise NotSurvived(told, SEND_THE_HEADER)
        refused = self._refused(seen)
        if refused:
            post = refused[0].post
            what = "acknowledged with what was" if post else "asked with what was"
            right = KNOWN_IDS if post else KNOWN_VERSIONS
            raise NotSurvived(f"It {what} refused: 400 {_times(len(refused))}.", right)
        if not self.declared.acknowledges and any(one.post for one in seen):
            raise NotSurvived("It acknowledged, though it was said only to watch.", NOT_DECLARED)

    def _refused(self, seen: Sequence[Seen]) -> list[Seen]:
        """What was answered 400, but for a first poll that asks which api-versions there are.

        That is how the versions of Azure are found; one that is run anew each time finds them anew.
        """
        refused = []
        may_learn = True
        for one in seen:
            if one.polled:
                may_learn = self.declared.once
            elif one.for_events and one.status == BAD_REQUEST:
                if not (may_learn and one.of_unknown_version):
                    refused.append(one)
                may_learn = False
        return refused

    # ---- Waiting ----

    def lives_on(self, seconds: float) -> None:
        """Nothing is asked of it for so long but to be there."""
        self.watch.wait(self._is_over, seconds)
        self._must_live()

    def require(
        self, condition: Callable[[], bool], seconds: float, why: Callable[[], str]
    ) -> None:
        """This comes to be within so long, while the client lives and is not turned away."""
        self.watch.wait(lambda: condition() or self._is_over(), seconds)
        if not condition():
            self._must_live()
            # Why nothing comes of it, where it asks and is refused.
            self.has_manners()
            raise NotSurvived(why())

    def _is_over(self) -> bool:
        """Whether nothing can come of it any more."""
        seen = list(self.watch.seen)
        turned_away = any(one.headless for one in seen) or bool(self._refused(seen))
        return turned_away or self.client.exit_code is not None

    def _more(self, count: Callable[[], int], times: int, seconds: float) -> None:
        """So many times more within so long."""
        before = count()
        self.require(
            lambda: count() >= before + times,
            seconds,
            lambda: self._silent(count() - before, seconds),
        )

    def _must_live(self) -> None:
        code = self.client.exit_code
        if code is not None:
            how = f"exit code {code}" if code >= 0 else f"by signal {-code}"
            raise NotSurvived(f"Its process ended ({how}) after {self._since}.")

    def _silent(self, times: int, seconds: float) -> str:
        how_often = {0: "It did not ask again", 1: "It asked only once more"}.get(times)
        how_often = how_often or f"It asked only {times} times more"
        return f"{how_often} within {seconds:.0f} s after {self._since}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _named(event: CloudEvent) -> str:
    return " and ".join(event.resources)
