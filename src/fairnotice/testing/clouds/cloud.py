"""A whole fairnotice in the test's own process, with a clock that the test owns.

The law, its conductor, the simulated machines and the metadata endpoint are those of the service;
only the store is memory, and time passes when the test says so.
"""

import asyncio
import json
import os
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event as Signal
from types import TracebackType
from typing import Any, Self, TypeVar

from fairnotice.clock import SystemClock
from fairnotice.control.fleet_files import (
    FleetBody,
    read_tables,
    read_toml,
    sample_fleet,
    specification,
)
from fairnotice.control.running import LOOPBACK, Place
from fairnotice.control.service import named
from fairnotice.control.shapes import Accepted
from fairnotice.drivers.simulated.durations import Durations
from fairnotice.engine import AZURE, Decision, Fleet, Refusal, Timing
from fairnotice.engine.commands import Command, Heard, ReportServed
from fairnotice.errors import UsageError
from fairnotice.metadata.faults import Fault, FaultKind
from fairnotice.metadata.rate import Rate
from fairnotice.testing.as_vm.run_as import Guest, command_line
from fairnotice.testing.clouds.backstage import Backstage, backstage
from fairnotice.testing.clouds.core import Approval, Asked, CloudCore
from fairnotice.testing.clouds.handles import (
    CloudEvent,
    CloudFault,
    CloudNode,
    CloudRollout,
    CloudScaleSet,
    CloudVm,
)
from fairnotice.testing.manual_clock import ManualClock, must_not_pass_backwards
from fairnotice.testing.stage import profile
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import EventStatus

Value = TypeVar("Value")
# A fleet file's text, its path, or what is in it; None is the sample fleet.
FleetGiven = str | Path | Mapping[str, Any] | None

# How often something that a real client has to do first is looked for.
LOOK_SECONDS = 0.01
DIRECT = "127.0.0.1,localhost,169.254.169.254"


class CloudRefused(AssertionError):
    """The law forbids what a test has asked for; `refusal` says which rule."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


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

    Its methods may be called in any thread, and in coroutines.
    """

    def __init__(
        self,
        fleet: FleetGiven = None,
        *,
        timing: Timing | str = AZURE,
        start: datetime | None = None,
        listening: bool = True,
        rate_limit: Rate | None = None,
        durations: Durations = Durations(),  # noqa: B008 - immutable
    ) -> None:
        self._clock = ManualClock(start or SystemClock().wall().replace(microsecond=0))
        self._backstage: Backstage = backstage()
        self._doors: dict[str, Place] = {}
        self._control: Place | None = None
        self._closed = False
        made = lambda: CloudCore(self._clock, profile(timing), durations, rate_limit)  # noqa: E731
        self.core = self.inside(made)
        self.service = self.core.service
        self.call(self.core.begin())
        # Whoever lets go of a cloud without closing it has it closed.
        self._end = weakref.finalize(self, _close, self._backstage, self.core)
        self._end.atexit = False
        try:
            self.apply(fleet)
        except BaseException:
            self.close()
            raise
        if listening:
            self.listen()

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
        if self._end.detach() is not None:
            self.call(self.core.close())
            self._closed = True

    # ---- The fleet ----

    def apply(self, fleet: FleetGiven = None) -> None:
        """Make the fleet what this file, text or mapping says; the sample fleet for None."""
        self.done(self.service.apply_fleet(specification(_body(fleet))))
        self.inside(self._declare_machines)

    def _declare_machines(self) -> None:
        driver = self.core.driver
        known = {machine.vm for machine in driver.machines()}
        for vm in self.fleet.vms.values():
            if vm.name not in known:
                driver.declare(vm.name, vm.node, vm.power)

    @property
    def fleet(self) -> Fleet:
        """Every row of the law's state: fleet.vms["web-0"], fleet.scopes …; only to look at."""
        return self.core.conductor.fleet

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
        """Begin a rollout; the wishes are those of control.bodies.StartRollout."""
        return CloudRollout.start(self, nodes, **wishes)

    # ---- Where clients ask ----

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
            self._doors[name] = self.call(self.core.open_door(name))
        return self._doors[name]

    @property
    def control_url(self) -> str:
        """Where the control plane of this cloud is, for the command line and the API."""
        return f"http://{self._control_place()}"

    def _control_place(self) -> Place:
        if self._control is None:
            self._control = self.call(self.core.open_control_plane())
        return self._control

    def environment(self, vm: str) -> dict[str, str]:
        """All of this process's environment, and what a client that is this VM needs."""
        return {
            **os.environ,
            "FAIRNOTICE_METADATA_URL": self.url_for(vm),
            "FAIRNOTICE_URL": self.control_url,
            **{name: _with_direct(os.environ.get(name, "")) for name in ("NO_PROXY", "no_proxy")},
        }

    def command_as(self, vm: str, command: Sequence[str]) -> list[str]:
        """The command line that runs this command as the VM (Linux, docs/guides/any-client.md).

        To it 169.254.169.254 is this cloud's endpoint, and its host name is the VM's.

        subprocess.run(cloud.command_as("web-0", ["their-client"]))
        """
        host_name = self.vm(vm).look().computer_name
        guest = Guest(host_name, LOOPBACK, self.place_for(vm), (self._control_place(),))
        return command_line(guest, command)

    # ---- What VMs are shown, and what they have done ----

    def document(self, vm: str, api_version: str = "2020-07-01") -> dict[str, Any]:
        """What this VM would read now. It does not count as having looked."""
        version = named("api-version", {one: one for one in SCHEDULED_EVENTS}, api_version)
        rendered = self.inside(lambda: self.service.document(vm, version))
        read: dict[str, Any] = json.loads(rendered)
        return read

    @property
    def events(self) -> list[CloudEvent]:
        """Every event that some VM is shown now."""
        rows = self.inside(lambda: list(self.fleet.events.values()))
        return [CloudEvent(self, row.id) for row in rows if row.visible]

    def event(self, name: str) -> CloudEvent:
        """The event of this id, for as long as history is kept."""
        event = CloudEvent(self, name.upper())
        event.look()
        return event

    @property
    def approvals(self) -> list[Approval]:
        """Who has approved which event, in that order; of several, the first one counts."""
        return list(self.core.approvals)

    @property
    def requests(self) -> list[Asked]:
        """Every request that a client has made, in the order in which they were answered."""
        return list(self.core.requests)

    def seen_by(self, vm: str) -> list[CloudEvent]:
        """The events that this VM has been served, in the order in which it first was."""
        named("VM", self.fleet.vms, vm)
        self.hand_on()
        rows = self.inside(lambda: list(self.fleet.events.values()))
        seen = ((at, row.id) for row in rows for name, at in row.seen if name == vm)
        return [CloudEvent(self, event) for _, event in sorted(seen)]

    def listen(self, *vms: str) -> None:
        """These VMs, or all, have just asked for their document, so their scopes are told."""
        names = vms or self.inside(lambda: tuple(self.fleet.vms))
        scopes = dict.fromkeys(named("VM", self.fleet.vms, name).scope for name in names)
        heard = tuple(Heard(scope, self.now) for scope in scopes)
        if heard:
            self.submit(ReportServed(heard=heard))

    def hand_on(self) -> None:
        """Let the law know what the endpoint has served; a service does so every second."""
        self.call(self.core.hand_on())

    # ---- Faults ----

    def fault(
        self,
        kind: FaultKind | str,
        *,
        vm: str | None = None,
        seconds: float | None = None,
        for_seconds: float | None = None,
    ) -> CloudFault:
        """Let the endpoint misbehave from now on, towards this VM or all (docs/guides/faults.md).

        with cloud.fault("empty-body", vm="web-0"):     # off again after the block
            client.poll_once()

        `for_seconds` are of real time, since it is the endpoint that misbehaves.
        """
        fault = Fault(_fault_kind(kind), vm, seconds, for_seconds)
        return CloudFault(self, self.inside(lambda: self.core.worker.faults.set(fault)).fault.id)

    def clear_faults(self) -> None:
        """Let it behave again: every fault is off."""
        self.inside(self.core.worker.faults.clear_all)

    # ---- Time ----

    @property
    def now(self) -> datetime:
        """This instant, on the cloud's clock."""
        return self._clock.wall()

    def advance(
        self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let time pass; everything that is due on the way happens, in its order."""
        passed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self.advance_to(self.now + passed)

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant."""
        must_not_pass_backwards(instant - self.now)
        self.call(self.core.advance_to(instant))

    def set_wall(self, instant: datetime) -> None:
        """Step the wall clock, as NTP or an operator does; no time passes by that (rule 25)."""
        self.inside(lambda: self.core.set_wall(instant))

    def run_until(self, event: CloudEvent | str, status: EventStatus | str) -> CloudEvent:
        """Let time pass until the event has this status: Scheduled, Started, Completed, Canceled.

        AssertionError where it gets there no more. It stops at the very instant of the change.
        """
        if not isinstance(event, CloudEvent | str):
            raise UsageError(f"run_until takes one event, not {event!r}.")
        found = self.event(event) if isinstance(event, str) else event
        self.call(self.core.run_until(found.id, EventStatus(status)))
        return found

    def wait_until(self, condition: Callable[[], Value], seconds: float = 10.0) -> Value:
        """Wait, in real time, until a client has done something; what the condition returned.

        cloud.wait_until(lambda: cloud.approvals)
        """
        for pause_seconds in _pauses(seconds):
            if found := condition():
                return found
            Signal().wait(pause_seconds)
        raise _too_long(seconds)

    async def wait_until_async(
        self, condition: Callable[[], Value], seconds: float = 10.0
    ) -> Value:
        """The same for a test that is a coroutine: its own loop goes on meanwhile."""
        for pause_seconds in _pauses(seconds):
            if found := condition():
                return found
            await asyncio.sleep(pause_seconds)
        raise _too_long(seconds)

    # ---- Telling the law ----

    def submit(self, command: Command) -> Decision:
        """Give the law a command of fairnotice.engine.commands; CloudRefused where it says no."""
        decision = self.call(self._settled(self.core.conductor.submit(command)))
        if isinstance(decision, Refusal):
            raise CloudRefused(decision)
        return decision

    def done(self, asked: Coroutine[Any, Any, object]) -> Accepted:
        """Have a use case of the service carried out; CloudRefused where the law says no."""
        result = self.call(self._settled(asked))
        if isinstance(result, Refusal):
            raise CloudRefused(result)
        assert isinstance(result, Accepted), "a dry run does nothing: ask cloud.service for it"
        return result

    async def _settled(self, asked: Coroutine[Any, Any, Value]) -> Value:
        result = await asked
        await self.core.settle()
        return result

    def call(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Have this done in the cloud's own thread, and wait for it."""
        if self._closed:
            work.close()
            raise UsageError("This cloud is closed.")
        return self._backstage.call(work)

    def inside(self, look: Callable[[], Value]) -> Value:
        """What this returns when it is called in the cloud's own thread, between two commits."""
        return self.call(self._backstage.inside(look))


def _close(where: Backstage, core: CloudCore) -> None:
    where.begin(core.close())


def _fault_kind(word: str) -> FaultKind:
    return named("fault", {kind.value: kind for kind in FaultKind}, word)


def _with_direct(known: str) -> str:
    """What is reached without a proxy: what was, and this cloud."""
    return ",".join(word for word in (known, DIRECT) if word)


def _pauses(seconds: float) -> Iterator[float]:
    """How long to wait after each look, until so much time has passed."""
    until = SystemClock.monotonic() + seconds
    while SystemClock.monotonic() < until:
        yield LOOK_SECONDS
    yield 0.0


def _too_long(seconds: float) -> AssertionError:
    return AssertionError(f"It did not happen within {seconds:g} s of real time.")


def _body(fleet: FleetGiven) -> FleetBody:
    """The fleet that is meant."""
    if fleet is None:
        return sample_fleet()
    if isinstance(fleet, Path):
        return read_toml(fleet.read_text("utf-8"), fleet.name)
    if isinstance(fleet, str):
        if fleet.endswith(".toml") and "\n" not in fleet:
            return _body(Path(fleet))
        return read_toml(fleet, "the fleet")
    return read_tables(fleet, "the fleet")
