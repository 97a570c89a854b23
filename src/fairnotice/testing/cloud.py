"""A whole fairnotice in the test's own process, with a clock that the test owns.

The law, its conductor, the simulated machines and the metadata endpoint are those of the service;
only the store is memory, and time passes when the test says so.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from fairnotice.clock import SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.fleet_files import (
    FleetBody,
    read_tables,
    read_toml,
    sample_fleet,
    specification,
)
from fairnotice.control.running import LOOPBACK, Place, Running, control_plane, listening
from fairnotice.control.service import named
from fairnotice.control.serving import Serving
from fairnotice.control.shapes import Accepted
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import Durations
from fairnotice.engine import AZURE, Decision, Fleet, Refusal, Timing
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Command, Heard, ReportServed
from fairnotice.metadata.identity import Door
from fairnotice.metadata.rate import Rate
from fairnotice.metadata.request import Request, Target
from fairnotice.metadata.server import Server
from fairnotice.model import Event
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.backstage import Backstage, backstage
from fairnotice.testing.cloud_handles import (
    CloudEvent,
    CloudNode,
    CloudRollout,
    CloudScaleSet,
    CloudVm,
)
from fairnotice.testing.manual_clock import ManualClock, RealPace, must_not_pass_backwards
from fairnotice.testing.stage import profile
from fairnotice.words import EventStatus

Value = TypeVar("Value")

# Turns of the loop in which nothing happened, until it is believed that nothing is going to.
QUIET_TURNS = 12
# An event that has not got there after so long is not going to.
RUN_UNTIL_MAX = timedelta(days=40)
# How often something that a real client has to do first is looked for.
LOOK_SECONDS = 0.01


class CloudRefused(AssertionError):
    """The law forbids what a test has asked for; `refusal` says which rule."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


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


class Cloud:
    """A fleet, its metadata endpoint, and a clock that you own.

    with Cloud() as cloud:
        client = MyClient(cloud.url_for("web-0"))       # any client, any language
        event = cloud.vm("web-0").restart()
        client.poll_once()
        assert cloud.seen_by("web-0") == [event]
        cloud.advance(minutes=15)
        assert event.status == "Started"

    `fleet` is a fleet file's text, its path, or the same as a mapping; the sample fleet of
    `fairnotice up` where it is left out. With `listening` every VM has just asked for its document,
    so that all are told; without, a scope is told nothing until one of its VMs has asked (rule 8).
    The clock begins at this second, or at `start`, and stands still.
    """

    def __init__(
        self,
        fleet: str | Path | Mapping[str, Any] | None = None,
        *,
        timing: Timing | str = AZURE,
        start: datetime | None = None,
        listening: bool = True,
        rate_limit: Rate | None = None,
        durations: Durations = Durations(),  # noqa: B008 - immutable
    ) -> None:
        self.clock = ManualClock(start or SystemClock().wall().replace(microsecond=0))
        self._backstage: Backstage = backstage()
        self._approvals: list[Approval] = []
        self._approved: set[str] = set()
        self._requests: list[Asked] = []
        self._looking: set[asyncio.Future[None]] = set()
        self._doors: dict[str, Place] = {}
        self._control: Place | None = None
        self._ended = False
        self._stack = contextlib.AsyncExitStack()
        self.call(self._begin(profile(timing), durations, rate_limit))
        try:
            self.apply(fleet)
        except BaseException:
            self.close()
            raise
        if listening:
            self.listen()

    async def _begin(self, timing: Timing, durations: Durations, rate: Rate | None) -> None:
        self.driver = SimulatedDriver(self.clock, durations=durations)
        self.conductor = Conductor(MemoryStore(), self.driver, self.clock, timing, in_memory=True)
        endpoint_clock = RealPace(self.clock)
        self.serving = Serving(self.conductor, endpoint_clock)
        await self.conductor.start(waking=False)
        self._stack.push_async_callback(self.conductor.close)
        self.conductor.feed.follow(self)
        self.worker = self.serving.worker(rate_limit=rate)
        self.worker.observer = self._note
        self._running = Running(self.conductor, self.serving, self.worker, self.clock)
        self.service = self._running.service
        self._server = Server(self.worker)
        self._stack.callback(self._server.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nobody answers any more. A second time does nothing."""
        if not self._ended:
            self._ended = True
            self.call(self._stack.aclose())

    # ---- The fleet ----

    def apply(self, fleet: str | Path | Mapping[str, Any] | None = None) -> None:
        """Make the fleet what this file, text or mapping says; the sample fleet for None."""
        spec = specification(_body(fleet))
        self.done(self.service.apply_fleet(spec))
        for vm in self.service.vms():
            if self.driver.machine(vm.name) is None:
                self.driver.declare(vm.name, vm.node, vm.power)

    @property
    def fleet(self) -> Fleet:
        """Every row of the law's state: fleet.vms["web-0"], fleet.scopes …; only to look at."""
        return self.conductor.fleet

    def vm(self, name: str) -> CloudVm:
        """A VM, to do something to; errors.UnknownName with the nearest names."""
        return CloudVm(self, named("VM", self.fleet.vms, name).name)

    def node(self, name: str) -> CloudNode:
        """A node, to do something to."""
        return CloudNode(self, named("node", self.fleet.nodes, name).name)

    def scale_set(self, name: str) -> CloudScaleSet:
        """A scale set, to do something to."""
        return CloudScaleSet(self, named("scale set", self.fleet.scale_sets, name).name)

    def rollout(self, nodes: Sequence[str], **wishes: Any) -> CloudRollout:  # noqa: ANN401
        """Begin a rollout; the wishes are those of control.shapes.StartRollout."""
        return CloudRollout.start(self, nodes, **wishes)

    # ---- What VMs are shown, and what they have done ----

    def url_for(self, vm: str) -> str:
        """Where the metadata service is for this VM: put it in the place of http://169.254.169.254.

        Whoever connects there is that VM; no prefix, so that a client that knows only a host and a
        port can be told, too.
        """
        return f"http://{self.place_for(vm)}"

    def place_for(self, vm: str) -> Place:
        """Host and port of the metadata service for this VM."""
        name = named("VM", self.fleet.vms, vm).name
        if name not in self._doors:
            self._doors[name] = self.call(self._open_door(name))
        return self._doors[name]

    async def _open_door(self, vm: str) -> Place:
        return Place(LOOPBACK, self._server.listen(LOOPBACK, 0, Door(vm=vm)).port)

    @property
    def control_url(self) -> str:
        """Where the control plane of this cloud is, for the command line and the API."""
        if self._control is None:
            self._control = self.call(self._open_control_plane())
        return f"http://{self._control}"

    async def _open_control_plane(self) -> Place:
        sock = self._stack.enter_context(
            contextlib.closing(listening(Place(LOOPBACK, 0), "control"))
        )
        place = Place(LOOPBACK, sock.getsockname()[1])
        await self._stack.enter_async_context(control_plane(self._running, sock))
        return place

    def environment(self, vm: str) -> dict[str, str]:
        """All of this process's environment, and what a client that is this VM needs."""
        direct = "127.0.0.1,localhost,169.254.169.254"
        return {
            **os.environ,
            "FAIRNOTICE_METADATA_URL": self.url_for(vm),
            "FAIRNOTICE_URL": self.control_url,
            "NO_PROXY": direct,
            "no_proxy": direct,
        }

    def document(self, vm: str, api_version: str = "2020-07-01") -> dict[str, Any]:
        """What this VM would read now. It does not count as having looked."""
        read: dict[str, Any] = json.loads(self.service.document(vm, api_version))
        return read

    @property
    def events(self) -> list[CloudEvent]:
        """Every event that some VM is shown now."""
        return [CloudEvent(self, row.id) for row in list(self.fleet.events.values()) if row.visible]

    def event(self, name: str) -> CloudEvent:
        """The event of this id, for as long as history is kept."""
        event = CloudEvent(self, name.upper())
        event.look()
        return event

    @property
    def approvals(self) -> list[Approval]:
        """Every approval, in the order in which they were given."""
        return list(self._approvals)

    @property
    def requests(self) -> list[Asked]:
        """Every request that a client has made, in the order in which they were answered."""
        return list(self._requests)

    def _note(self, vm: str, request: Request, status: int) -> None:
        method = "POST" if request.post else "HEAD" if request.head else "GET"
        for_events = request.target is Target.EVENTS
        self._requests.append(
            Asked(vm, method, request.api_version, for_events, status, self.clock.wall())
        )

    def seen_by(self, vm: str) -> list[CloudEvent]:
        """The events that this VM has been served, in the order in which it first was."""
        named("VM", self.fleet.vms, vm)
        self.hand_on()
        seen = (
            (at, row.id)
            for row in list(self.fleet.events.values())
            for name, at in row.seen
            if name == vm
        )
        return [CloudEvent(self, event) for _, event in sorted(seen)]

    def listen(self, *vms: str) -> None:
        """These VMs, or all, have just asked for their document, so their scopes are told."""
        names = vms or tuple(self.fleet.vms)
        scopes = dict.fromkeys(named("VM", self.fleet.vms, name).scope for name in names)
        heard = tuple(Heard(scope, self.clock.wall()) for scope in scopes)
        if heard:
            self.submit(ReportServed(heard=heard))

    # ---- Time ----

    @property
    def now(self) -> datetime:
        """This instant, on the cloud's clock."""
        return self.clock.wall()

    def advance(
        self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass; everything that is due on the way happens, in its order."""
        passed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        must_not_pass_backwards(passed)
        self.call(self._advance_to(self.now + passed))

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant."""
        must_not_pass_backwards(instant - self.now)
        self.call(self._advance_to(instant))

    def run_until(self, event: CloudEvent | str, status: EventStatus | str) -> CloudEvent:
        """Let time pass until the event has this status: Scheduled, Started, Completed, Canceled.

        AssertionError where it gets there no more. It stops at the very instant of the change.
        """
        name = event if isinstance(event, str) else event.id
        wanted = EventStatus(status)
        self.call(self._run_until(name.upper(), wanted))
        return CloudEvent(self, name.upper())

    async def _run_until(self, name: str, wanted: EventStatus) -> None:
        latest = self.now + RUN_UNTIL_MAX
        await self.serving.report()
        await self._settle()
        while (found := (await self.service.event(name)).status) is not wanted:
            due = self._next_due()
            if found in (EventStatus.COMPLETED, EventStatus.CANCELED):
                raise AssertionError(f"Event {name} is {found} and will not be {wanted} any more.")
            if due is None or due > latest:
                raise AssertionError(f"Event {name} stays {found}; nothing makes it {wanted}.")
            await self._step_to(due)

    async def _advance_to(self, instant: datetime) -> None:
        await self.serving.report()
        await self._settle()
        while (due := self._next_due()) is not None and due <= instant:
            await self._step_to(due)
        await self._step_to(instant)

    def _next_due(self) -> datetime | None:
        waits = (self.conductor.timers.next, self.clock.next_wake)
        return min((due for due in waits if due is not None), default=None)

    async def _step_to(self, instant: datetime) -> None:
        missing = (instant - self.clock.wall()).total_seconds()
        if missing > 0:
            self.clock.advance(seconds=missing)
            self.worker.renew_date(self.worker.monotonic())
        await self._settle()

    async def _settle(self) -> None:
        """Let everything that can go on without time passing go on."""
        quiet = 0
        before: tuple[object, ...] = ()
        while quiet < QUIET_TURNS:
            await self.conductor.tick()
            await asyncio.sleep(0)
            now = (self.fleet.revision, len(self.conductor.timers), self.clock.next_wake)
            quiet = quiet + 1 if now == before else 0
            before = now

    def wait_until(self, condition: Callable[[], Value], seconds: float = 10.0) -> Value:
        """Wait, in real time, until a client has done something; what the condition returned.

        cloud.wait_until(lambda: cloud.approvals)
        """
        return asyncio.run(self.wait_until_async(condition, seconds))

    async def wait_until_async(
        self, condition: Callable[[], Value], seconds: float = 10.0
    ) -> Value:
        """The same for a test that is a coroutine: its own loop goes on meanwhile."""
        clock = SystemClock()
        until = clock.monotonic() + seconds
        while not (found := condition()):
            if clock.monotonic() >= until:
                raise AssertionError(f"It did not happen within {seconds:g} s of real time.")
            await clock.sleep(LOOK_SECONDS)
        return found

    # ---- Telling the law ----

    def submit(self, command: Command) -> Decision:
        """Give the law a command of fairnotice.engine.commands; CloudRefused where it says no."""
        decision = self.call(self._submit(command))
        if isinstance(decision, Refusal):
            raise CloudRefused(decision)
        return decision

    async def _submit(self, command: Command) -> Decision | Refusal:
        decision = await self.conductor.submit(command)
        await self._settle()
        return decision

    def done(self, asked: Coroutine[Any, Any, object]) -> Accepted:
        """Have a use case of the service carried out; CloudRefused where the law says no."""
        result = self.call(self._carried_out(asked))
        if isinstance(result, Refusal):
            raise CloudRefused(result)
        assert isinstance(result, Accepted), "a dry run does nothing: ask cloud.service for it"
        return result

    async def _carried_out(self, asked: Coroutine[Any, Any, Value]) -> Value:
        result = await asked
        await self._settle()
        return result

    def call(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Have this done in the cloud's own thread, and wait for it."""
        return self._backstage.call(work)

    # ---- Following the commits ----

    def loaded(self, fleet: Fleet) -> None:
        """The state at the beginning: nothing has been approved."""

    def committed(self, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:  # noqa: ARG002
        """Note who approved, and have looked at what is due at this very instant."""
        for change in changes:
            row = change.row
            if isinstance(row, Event) and row.approval is not None and row.id not in self._approved:
                self._approved.add(row.id)
                self._approvals.append(Approval(row.id, *row.approval))
        # Timers that come of this commit are set after this call, and some are due at once.
        asyncio.get_running_loop().call_soon(self._look_soon)

    def _look_soon(self) -> None:
        due = self.conductor.timers.next
        if due is not None and due <= self.clock.wall() and not self._ended:
            look = asyncio.ensure_future(self.conductor.tick())
            self._looking.add(look)
            look.add_done_callback(self._looking.discard)

    def hand_on(self) -> None:
        """Let the law know what the endpoint has served; a service does so every second."""
        self.call(self.serving.report())


def _body(fleet: str | Path | Mapping[str, Any] | None) -> FleetBody:
    """The fleet that is meant by a file's text, its path or a mapping."""
    if fleet is None:
        return sample_fleet()
    if isinstance(fleet, Path):
        return read_toml(fleet.read_text("utf-8"), fleet.name)
    if isinstance(fleet, str):
        return read_toml(fleet, "the fleet")
    return read_tables(fleet, "the fleet")
