"""The inside of a cloud: a service in one loop whose time passes in steps. Nothing here is public.

A step goes to the next instant at which something is due, at the conductor or in a machine, and
lets everything happen that then can. So an advance of a week visits each of them in its order, and
costs no more than what happens in that week.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fairnotice.conductor.conductor import Conductor
from fairnotice.control.running import LOOPBACK, Place, Running, control_plane, listening
from fairnotice.control.serving import Serving
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import Durations
from fairnotice.engine import Fleet, Timing
from fairnotice.engine.changes import Change
from fairnotice.metadata.identity import Door
from fairnotice.metadata.rate import Rate
from fairnotice.metadata.request import Request, Target
from fairnotice.metadata.server import Server
from fairnotice.model import Event
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock, RealPace
from fairnotice.words import EventStatus

# Turns of the loop in which nothing happened, until it is believed that nothing is going to.
QUIET_TURNS = 12
# Days may pass between two polls that are a moment apart: each poll is heard.
HEARD_EVERY_SECONDS = 1e-6
# More steps than this at one instant, and something asks to be woken for ever.
STEPS_AT_ONCE_MAX = 1_000
# An event that has not got there after so long is not going to.
RUN_UNTIL_MAX = timedelta(days=40)
OVER = (EventStatus.COMPLETED, EventStatus.CANCELED)


class Approval(NamedTuple):
    """Somebody gave the go-ahead for an event."""

    event: str
    by: str
    at: datetime


class Asked(NamedTuple):
    """A request that a client has made, and how it was answered; `at` is on the cloud's clock."""

    vm: str
    method: str
    api_version: str
    # Whether it was for the document of scheduled events, and not for another path.
    for_events: bool
    status: int
    at: datetime


class CloudCore:
    """Conductor, machines and endpoint of one cloud. Use it in the loop it was begun in."""

    def __init__(
        self, clock: ManualClock, timing: Timing, durations: Durations, rate_limit: Rate | None
    ) -> None:
        self.clock = clock
        self.driver = SimulatedDriver(clock, durations=durations)
        self.conductor = Conductor(MemoryStore(), self.driver, clock, timing, in_memory=True)
        self.serving = Serving(self.conductor, RealPace(clock))
        self.worker = self.serving.worker(rate_limit=rate_limit)
        self.worker.observer = self._note
        self.running = Running(self.conductor, self.serving, self.worker, clock)
        self.service = self.running.service
        self.approvals: list[Approval] = []
        self.requests: list[Asked] = []
        self._server = Server(self.worker)
        self._stack = contextlib.AsyncExitStack()
        self._approved: set[str] = set()
        self._looking: set[asyncio.Future[None]] = set()
        self._steps_at_once = 0

    async def begin(self) -> None:
        """Take commands and answer VMs."""
        await self.conductor.start(waking=False)
        self._stack.push_async_callback(self.conductor.close)
        self._stack.callback(self._server.close)
        self.conductor.feed.follow(self)

    async def close(self) -> None:
        """Answer nobody any more."""
        await self._stack.aclose()
        await asyncio.gather(*self._looking, return_exceptions=True)

    # ---- Doors ----

    async def open_door(self, vm: str) -> Place:
        """Listen for this VM alone: whoever connects there is that VM."""
        return Place(LOOPBACK, self._server.listen(LOOPBACK, 0, Door(vm=vm)).port)

    async def open_control_plane(self) -> Place:
        """Serve the API."""
        sock = listening(Place(LOOPBACK, 0), "control")
        self._stack.callback(sock.close)
        await self._stack.enter_async_context(control_plane(self.running, sock))
        return Place(LOOPBACK, sock.getsockname()[1])

    # ---- Time ----

    async def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant, stopping at everything that is due on the way."""
        await self.hand_on()
        await self.settle()
        while (due := self._next_due()) is not None and due <= instant:
            await self._step_to(due)
        await self._step_to(instant)

    def set_wall(self, instant: datetime) -> None:
        """Step the wall clock alone, and show it in Date."""
        self.clock.set_wall(instant)
        self.worker.renew_date(self.worker.monotonic())

    async def run_until(self, name: str, wanted: EventStatus) -> None:
        """Let time pass until this event has this status; AssertionError where it never has."""
        latest = self.clock.wall() + RUN_UNTIL_MAX
        await self.hand_on()
        await self.settle()
        while (found := (await self.service.event(name)).status) is not wanted:
            due = self._next_due()
            if found in OVER:
                raise AssertionError(f"Event {name} is {found} and will not be {wanted} any more.")
            if due is None or due > latest:
                raise AssertionError(f"Event {name} stays {found}; nothing makes it {wanted}.")
            await self._step_to(due)

    def _next_due(self) -> datetime | None:
        waits = (self.conductor.timers.next, self.clock.next_wake)
        return min((due for due in waits if due is not None), default=None)

    async def _step_to(self, instant: datetime) -> None:
        missing = (instant - self.clock.wall()).total_seconds()
        if missing > 0:
            self.clock.advance(seconds=missing)
            self.worker.renew_date(self.worker.monotonic())
            self._steps_at_once = 0
        self._steps_at_once += 1
        if self._steps_at_once > STEPS_AT_ONCE_MAX:
            raise AssertionError(f"Time stands still at {instant}: a fault of fairnotice.")
        await self.settle()

    async def settle(self) -> None:
        """Let everything that can go on without time passing go on."""
        quiet = 0
        before: tuple[object, ...] = ()
        while quiet < QUIET_TURNS:
            await self.conductor.tick()
            await asyncio.sleep(0)
            timers = self.conductor.timers
            now = (self.conductor.fleet.revision, len(timers), self.clock.next_wake)
            quiet = quiet + 1 if now == before else 0
            before = now

    # ---- Following what happens ----

    async def hand_on(self) -> None:
        """Let the law know what the endpoint has served; a service does so every second."""
        await self.serving.report(HEARD_EVERY_SECONDS)

    def loaded(self, fleet: Fleet) -> None:
        """The state at the beginning: nothing has been approved."""

    def committed(self, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:  # noqa: ARG002
        """Note who approved, and have looked at what is due at this very instant."""
        for change in changes:
            row = change.row
            if isinstance(row, Event) and row.approval is not None and row.id not in self._approved:
                self._approved.add(row.id)
                self.approvals.append(Approval(row.id, *row.approval))
        # Timers that come of this commit are set after this call, and some are due at once: nobody
        # settles after the approval of a client.
        asyncio.get_running_loop().call_soon(self._look_soon)

    def _look_soon(self) -> None:
        due = self.conductor.timers.next
        if due is not None and due <= self.clock.wall():
            look = asyncio.ensure_future(self.conductor.tick())
            self._looking.add(look)
            look.add_done_callback(self._looking.discard)

    def _note(self, vm: str, request: Request, status: int) -> None:
        method = "POST" if request.post else "HEAD" if request.head else "GET"
        for_events = request.target is Target.EVENTS
        self.requests.append(
            Asked(vm, method, request.api_version, for_events, status, self.clock.wall())
        )
