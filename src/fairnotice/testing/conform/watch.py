"""What a client has done, as its endpoint saw it: every request, and every acknowledgement."""

from collections.abc import Callable
from itertools import pairwise
from threading import Condition, Event
from typing import NamedTuple

from fairnotice.clock import SystemClock
from fairnotice.errors import Unavailable
from fairnotice.metadata.request import API_VERSION, METADATA_HEADER, Request, Target
from fairnotice.testing.clouds.cloud import Cloud

READ = (200, 304)


class Interrupted(Exception):
    """The whole run is to end, and this scene with it."""


class Seen(NamedTuple):
    """A request, and its answer."""

    # In seconds of this machine's monotonic clock: when it was answered.
    at: float
    # For scheduled events, or for what a VM reads about itself.
    target: Target
    api_version: str
    post: bool
    status: int
    # What was wrong with it: it came without Metadata: true.
    headless: bool
    # It was a poll with an api-version that is not served, and was told which are.
    of_unknown_version: bool
    # It said which document it knows.
    conditional: bool

    @property
    def for_events(self) -> bool:
        """Whether it was for scheduled events."""
        return self.target is Target.EVENTS

    @property
    def polled(self) -> bool:
        """Whether it was a poll that was answered with what there is."""
        return self.for_events and not self.post and self.status in READ


class Posted(NamedTuple):
    """An acknowledgement that was taken."""

    at: float
    events: tuple[str, ...]


class Watch:
    """Follows one VM of a cloud; whoever waits is woken when it asks."""

    def __init__(self, cloud: Cloud, vm: str, interrupted: Event) -> None:
        self.vm = vm
        self.seen: list[Seen] = []
        self.posted: list[Posted] = []
        # So many acknowledgements more are answered 503.
        self.refusing = 0
        self.clock = SystemClock()
        self._interrupted = interrupted
        self._something = Condition()
        self._note_before = cloud.core.worker.observer
        self._approve_before = cloud.core.worker.approve
        cloud.core.worker.observer = self._note
        cloud.core.worker.approve = self._approve

    def _note(self, vm: str, request: Request, status: int) -> None:
        if self._note_before is not None:
            self._note_before(vm, request, status)
        if vm != self.vm:
            return
        self.seen.append(
            Seen(
                at=self.clock.monotonic(),
                target=request.target,
                api_version=request.api_version,
                post=request.post,
                status=status,
                headless=request.late is METADATA_HEADER,
                of_unknown_version=request.late is API_VERSION and not request.post,
                conditional=bool(request.etags),
            )
        )
        with self._something:
            self._something.notify_all()

    async def _approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        if vm == self.vm and self.refusing > 0:
            self.refusing -= 1
            raise Unavailable("Nothing can be recorded now.")
        unknown = await self._approve_before(vm, events)
        if vm == self.vm and not unknown:
            ids = tuple(event.upper() for event in events)
            self.posted.append(Posted(self.clock.monotonic(), ids))
        return unknown

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is so, and whether it is; Interrupted where nobody wants to know it."""
        until = self.clock.monotonic() + seconds
        while not condition():
            if self._interrupted.is_set():
                raise Interrupted
            left = until - self.clock.monotonic()
            if left <= 0:
                return False
            with self._something:
                # Not all that is waited for is a request: it may also end.
                self._something.wait(min(left, 0.05))
        return True

    # ---- Looking ----

    @property
    def asked(self) -> int:
        """How many requests have come, also those that were answered with nothing."""
        return len(self.seen)

    @property
    def polls(self) -> int:
        """How many polls were answered with what there is."""
        return sum(one.polled for one in list(self.seen))

    @property
    def api_version(self) -> str:
        """With which api-version it polled last; empty where it has not."""
        return next((one.api_version for one in reversed(self.seen) if one.polled), "")

    @property
    def knows_its_name(self) -> bool:
        """Whether it has read what it is called, or all that a VM reads about itself."""
        return any(one.target is Target.INSTANCE and one.status in READ for one in list(self.seen))

    def has_acknowledged(self, event: str) -> bool:
        """Whether it has named this event in an acknowledgement."""
        return any(event in one.events for one in list(self.posted))

    def intervals(self) -> list[float]:
        """The seconds between one poll and the next."""
        seen = list(self.seen)
        # Some ask first who they are, and get no further where they are refused.
        at = [one.at for one in seen if one.for_events and not one.post] or [one.at for one in seen]
        return [later - earlier for earlier, later in pairwise(at)]

    def most_within(self, seconds: float) -> int:
        """The most requests that have come within any span so long."""
        at = [one.at for one in list(self.seen)]
        most = first = 0
        for place, now in enumerate(at):
            while now - at[first] > seconds:
                first += 1
            most = max(most, place - first + 1)
        return most

    def burst(self, per_second: float) -> float:
        """How far it was ahead of whoever asks so often and no more, in requests."""
        ahead = most = before = 0.0
        for one in list(self.seen):
            ahead = max(0.0, ahead - (one.at - before) * per_second) + 1
            before, most = one.at, max(most, ahead)
        return most
