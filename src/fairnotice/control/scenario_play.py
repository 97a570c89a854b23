"""A scenario while it is played: VMs that poll, a person who asks, and a timeline of what is seen.

The VMs are as a VM on Azure is: each asks the metadata endpoint over HTTP, four times a second,
and knows nothing but the answer. Only the machine it runs on is looked at besides, where that
can be done.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from fairnotice.clock import Clock
from fairnotice.control import shapes
from fairnotice.control.scenario_sightings import (
    Evidence,
    Promised,
    Shown,
    Sighting,
    read_document,
)
from fairnotice.control.scenario_sites import Answer, Site, exchange
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.errors import Unavailable, UsageError
from fairnotice.words import EventStatus, EventType, ImpactKind, Power

POLL_SECONDS = 0.25
LOOK_SECONDS = 0.05
# So long after the end the last look is over, and what was served is noted down.
LAST_LOOK_SECONDS = 1.5
OK, NO_SUCH_VM, REFUSED = 200, 404, 400
OPERATOR, USER = "the operator", "a user"
EVENTS = "metadata/scheduledevents?api-version=2020-07-01"

Found = TypeVar("Found")
Shape = TypeVar("Shape")


class Line(NamedTuple):
    """One line of a timeline."""

    at_seconds: float
    who: str
    text: str

    def __str__(self) -> str:
        return f"+{self.at_seconds:5.1f} s  {self.who} {self.text}"


Tell = Callable[[Line], None]


class Stalled(Exception):
    """What has to happen did not. It never leaves the scenarios, who make a sentence of it."""


class Play:
    """One scenario, one service, one timeline."""

    def __init__(self, site: Site, clock: Clock, tell: Tell = lambda _: None) -> None:
        self.site = site
        self.promised = Promised(site.timing)
        self.lines: list[Line] = []
        self.vms: dict[str, shapes.Vm] = {}
        self._clock = clock
        self._tell = tell
        self._began, self._began_at = clock.monotonic(), clock.wall()
        self._sightings: dict[str, list[Sighting]] = {}
        self._approved: dict[str, datetime] = {}
        self._before: dict[str, Machine] = {}
        self._polls: list[asyncio.Task[None]] = []
        self._undoing: list[Callable[[], Awaitable[object]]] = []

    # ---- Beginning and ending ----

    async def begin(self) -> None:
        """Look at the fleet as it is; UsageError where somebody else's events are in the way.

        Unavailable where nobody answers, at one of the two addresses: nothing is broken by that.
        """
        self.vms = {vm.name: vm for vm in await self._every("/v1/vms", shapes.Vm)}
        live = [event for event in await self._events() if event.gone_at is None]
        if live:
            raise UsageError(
                f"{len(live)} events are not over, the first is {live[0].type} of "
                f"{', '.join(live[0].resources)}. Wait until they are, or cancel them."
            )
        # Without the header nobody is told anything, and no VM counts as one that listens.
        await exchange(self.site.metadata, "GET", f"/{EVENTS}")
        self._before = self._machines()
        self._began, self._began_at = self._clock.monotonic(), self._clock.wall()

    def strikes(self, kind: ImpactKind, vms: Iterable[str]) -> None:
        """It is promised that this happens to these VMs, once."""
        struck = {**self.promised.struck, **dict.fromkeys(vms, kind)}
        self.promised = self.promised._replace(struck=struck)

    async def evidence(self) -> Evidence:
        """All that is known, when the last look is over."""
        await self._clock.sleep(LAST_LOOK_SECONDS)
        await self._stop_polls()
        operations = await self._every("/v1/operations", shapes.Operation)
        mine = (one for one in operations if one.asked_at >= self._began_at)
        return Evidence(
            self._sightings,
            self._approved,
            self.vms,
            [event for event in await self._events() if event.announced_at >= self._began_at],
            [impact for operation in mine for impact in operation.impacts],
            self._before,
            self._machines(),
        )

    async def close(self) -> None:
        """Nobody polls any more; a service of others is put back as far as that can be done."""
        await self._stop_polls()
        while self._undoing and not self.site.own:
            try:
                await self._undoing.pop()()
            except (Stalled, Unavailable) as error:
                self.say(OPERATOR, f"could not put everything back: {error}")

    def afterwards(self, undo: Callable[[], Awaitable[object]]) -> None:
        """This puts back what the scenario has done to a service that is not thrown away."""
        self._undoing.append(undo)

    async def _stop_polls(self) -> None:
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)
        self._polls.clear()

    # ---- The person at the control plane ----

    def vm(self, name: str) -> shapes.Vm:
        """A VM as it was at the beginning; UsageError where the sample fleet is not there."""
        vm = self.vms.get(name)
        if vm is None or vm.power is not Power.RUNNING or vm.node is None:
            why = "There is no VM" if vm is None else "It does not run, the VM"
            raise UsageError(f"{why} {name}. Scenarios need the sample fleet: fairnotice up.")
        return vm

    def node_of(self, name: str) -> str:
        """The node that this VM was on."""
        return self.vm(name).node or ""

    def on_node(self, node: str) -> list[str]:
        """The VMs that ran on this node."""
        return [
            vm.name for vm in self.vms.values() if vm.node == node and vm.power is Power.RUNNING
        ]

    async def ask(self, who: str, words: str, path: str, **body: object) -> shapes.Accepted:
        """Have something done, and say so in words."""
        self.say(who, words)
        answer = await self._exchange("POST", path, body)
        return msgspec.json.decode(answer.body, type=shapes.Accepted)

    async def put(self, words: str, path: str, body: dict[str, Any]) -> None:
        """Make something what this says, and say so in words."""
        self.say(OPERATOR, words)
        await self._exchange("PUT", path, body)

    async def shown(self, path: str, shape: type[Shape]) -> Shape:
        """What the control plane shows there."""
        answer = await self._exchange("GET", path)
        return msgspec.json.decode(answer.body, type=shape)

    async def _events(self) -> list[shapes.Event]:
        return await self._every("/v1/events", shapes.Event)

    async def _every(self, path: str, shape: type[Shape]) -> list[Shape]:
        items: list[Any] = []
        after = ""
        while True:
            answer = await self._exchange("GET", f"{path}?limit=1000&after={quote(after)}")
            page = json.loads(answer.body)
            items += page["items"]
            if not page["next"]:
                return msgspec.convert(items, list[shape])  # type: ignore[valid-type]
            after = page["next"]

    async def _exchange(
        self, method: str, path: str, body: dict[str, object] | None = None
    ) -> Answer:
        sent = b"" if body is None else json.dumps(body).encode()
        token = self.site.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await exchange(self.site.control, method, path, body=sent, headers=headers)
        if answer.status >= REFUSED:
            raise Stalled(f"{method} {path} was refused: {_why(answer)}")
        return answer

    # ---- The VMs ----

    async def listen(self, *names: str) -> None:
        """These VMs look at their document from now on; returns when each has seen it once."""
        for name in names:
            self.vm(name)
            self._sightings[name] = []
            self._polls.append(asyncio.create_task(self._poll(name)))
        await self.until(lambda: all(map(self._sightings.get, names)), "the first document")

    async def approve(self, vm: str, event: Shown) -> None:
        """This VM gives its go-ahead."""
        self._approved.setdefault(event.id, self._clock.wall())
        self.say(vm, f"approves {event}")
        body = json.dumps({"StartRequests": [{"EventId": event.id}]}).encode()
        answer = await self._as_vm(vm, "POST", body)
        if answer.status != OK:
            raise Stalled(f"The approval of {event} was answered {answer.status}: {_why(answer)}")

    async def _as_vm(self, vm: str, method: str, body: bytes = b"") -> Answer:
        target = f"/vm/{quote(vm)}/{EVENTS}"
        return await exchange(
            self.site.metadata, method, target, body=body, headers={"Metadata": "true"}
        )

    async def _poll(self, vm: str) -> None:
        while True:
            machine = self._machines().get(vm)
            if self.site.own and (machine is None or machine.power is not Power.RUNNING):
                self.say(vm, "does not run any more")
                return
            asked_at = self._clock.wall()
            answer = await self._as_vm(vm, "GET")
            if answer.status == NO_SUCH_VM:
                self.say(vm, "is gone")
                return
            if answer.status == OK:
                document = read_document(answer.body)
                self._note(Sighting(vm, asked_at, self._clock.wall(), *document, machine))
            await self._clock.sleep(POLL_SECONDS)

    def _note(self, sighting: Sighting) -> None:
        seen = self._sightings[sighting.vm]
        last = seen[-1] if seen else None
        seen.append(sighting)
        for text in _news(last, sighting):
            self.say(sighting.vm, text)

    def _machines(self) -> dict[str, Machine]:
        return {} if self.site.machines is None else dict(self.site.machines())

    # ---- Waiting ----

    async def sees(
        self,
        vm: str,
        event_type: EventType,
        status: EventStatus = EventStatus.SCHEDULED,
        *,
        of: str | None = None,
    ) -> Shown:
        """Wait until this VM sees such an event, of itself unless said otherwise."""
        name = of or vm

        def look() -> Shown | None:
            return next(
                (
                    event
                    for sighting in reversed(self._sightings[vm])
                    for event in sighting.events
                    if (event.type, event.status) == (event_type, status)
                    and name in event.resources
                ),
                None,
            )

        return await self.until(look, f"{vm} to see {event_type} of {name} {status}")

    def last_shown(self, vm: str, name: str) -> Shown | None:
        """The event of this id as this VM saw it last."""
        return self._sightings[vm][-1].event(name)

    async def sees_gone(self, vm: str, event: Shown) -> None:
        """Wait until this VM sees the event no more."""
        await self.until(
            lambda: self._sightings[vm][-1].event(event.id) is None,
            f"{vm} to see that {event} is gone",
            beyond=event.not_before,
        )

    async def until(
        self, look: Callable[[], Found | None], what: str, *, beyond: datetime | None = None
    ) -> Found:
        """What `look` finds, as soon as it finds something; Stalled when patience is over."""
        timing = self.site.timing
        waits = self.site.patience_seconds + timing.recovery_seconds
        waits += max(timing.notice_seconds.values())
        if beyond is not None:
            waits += max(0.0, (beyond - self._clock.wall()).total_seconds())
        given_up_at = self._clock.monotonic() + waits
        while not (found := look()):
            self._must_poll()
            if self._clock.monotonic() > given_up_at:
                raise Stalled(f"{waits:.0f} s were not enough for {what}.")
            await self._clock.sleep(LOOK_SECONDS)
        return found

    def _must_poll(self) -> None:
        for poll in self._polls:
            error = poll.exception() if poll.done() and not poll.cancelled() else None
            if isinstance(error, Unavailable):
                raise Stalled(str(error)) from error
            if error is not None:
                raise error

    async def wait(self, seconds: float) -> None:
        """Let some time pass."""
        await self._clock.sleep(seconds)

    async def wait_beyond(self, instant: datetime | None, seconds: float) -> None:
        """Let time pass until so many seconds after this instant."""
        assert instant is not None
        left = (instant - self._clock.wall()).total_seconds()
        await self._clock.sleep(max(0.0, left + seconds))

    # ---- The timeline ----

    def say(self, who: str, text: str) -> None:
        """Put a line on the timeline."""
        line = Line(round(self._clock.monotonic() - self._began, 3), who, text)
        self.lines.append(line)
        self._tell(line)


def _why(answer: Answer) -> str:
    try:
        said = json.loads(answer.body)
        return str(said.get("detail") or said.get("error"))
    except (ValueError, AttributeError):
        return f"status {answer.status}"


# ---- What is new ----


def _news(last: Sighting | None, now: Sighting) -> Iterator[str]:
    """What this look shows that the last one did not."""
    if last is None:
        if not now.events:
            yield f"looks: no events (document {now.incarnation})"
        last = now._replace(events=())
    for event in now.events:
        before = last.event(event.id)
        if before != event:
            yield f"{_seen(before, event, now.at)} (document {now.incarnation})"
    for event in last.events:
        if now.event(event.id) is None:
            yield f"sees that {event} is gone (document {now.incarnation})"
    yield from _touched(last.machine, now.machine)


def _seen(before: Shown | None, event: Shown, at: datetime) -> str:
    words = f"sees {event.type} {event.status} of {', '.join(event.resources)}"
    if before is not None and before.resources != event.resources:
        words = f"sees {event.type} of {', '.join(event.resources)} only"
    if event.not_before is not None:
        away = (event.not_before - at).total_seconds()
        words += f", not before {event.not_before:%H:%M:%S} UTC, in {away:.1f} s"
    return words


def _touched(before: Machine | None, after: Machine | None) -> Iterator[str]:
    if before is None or after is None:
        return
    if before.paused != after.paused:
        yield "is paused" if after.paused else "goes on"
    if before.boot_id != after.boot_id:
        yield f"has booted: its boot id is {after.boot_id[:8]}…, not {before.boot_id[:8]}…"
    if before.node != after.node:
        yield f"is on {after.node} now, not on {before.node}"
    if before.disk_generation != after.disk_generation:
        yield "has empty ephemeral disks"
