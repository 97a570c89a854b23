"""What the steps of an impact stand on: where the VM is, and what is written of the impact."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import datetime, timedelta
from typing import Any

from fairnotice.clock import Clock
from fairnotice.drivers.libvirt.definitions import Definition
from fairnotice.drivers.libvirt.host import Host, Sight
from fairnotice.drivers.libvirt.line import Trouble, heard
from fairnotice.drivers.libvirt.looking import look_for
from fairnotice.drivers.libvirt.records import (
    ENDED,
    MOVING,
    RETURNING,
    STAYING,
    Record,
    records_in,
)
from fairnotice.drivers.libvirt.settings import LibvirtSettings
from fairnotice.words import ImpactKind, Outcome

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.1
# libvirt may refuse what it does a moment later: another one holds the lock of the domain.
TRY_AGAIN_SECONDS = (0.1, 0.3, 1.0, 3.0)
# So long after its limit an impact may still go on: two clocks are never quite alike.
LATE_SECONDS = 10.0
# Phases that only undo: nobody is left off because they are late.
UNDOING = (STAYING, RETURNING, ENDED)

# After these, done, a VM is on the impact's target.
MOVING_KINDS = (ImpactKind.REDEPLOY, ImpactKind.MIGRATE, ImpactKind.START)

Call = Callable[[Any], Any]


class Failed(Exception):
    """The impact has failed, and why."""


class Superseded(Exception):
    """The law has let go of this impact: a later one decides what becomes of the VM."""


class Footing:
    """One impact, its VM, and the nodes."""

    def __init__(
        self,
        record: Record,
        hosts: Mapping[str, Host],
        settings: LibvirtSettings,
        clock: Clock,
        kept: Callable[[str], Awaitable[Definition | None]],
        *,
        failed_nodes: frozenset[str] = frozenset(),
    ) -> None:
        self.record = record
        self.hosts = hosts
        self.settings = settings
        self.clock = clock
        # How a VM was defined when its node could last be asked.
        self.kept = kept
        # Nothing runs there, an operator has said.
        self.failed_nodes = failed_nodes
        # The key of a later impact on the same VM, where this process has begun one.
        self.superseded_by = ""
        left = (late_at(record) - clock.wall()).total_seconds()
        self._over_at = clock.monotonic() + left
        self._in_flight: asyncio.Future[Any] | None = None

    # ---- Where the VM is ----

    async def places(self) -> dict[str, Sight]:
        """Where the VM has a domain, by node; Unavailable where that is not certain.

        Where it was when this began, unless that has failed and it runs elsewhere, and where it
        goes, must say so. Who else cannot be reached is passed over if it was found, or if its node
        has failed.
        """
        record = self.record
        moved = record.outcome is Outcome.DONE and record.kind in MOVING_KINDS
        needed = {record.target} if moved else {record.source} - self.failed_nodes
        if record.kind is ImpactKind.MIGRATE or record.phase in (MOVING, RETURNING):
            needed.add(record.target)
        found, lost = await look_for(record.vm, self.hosts, needed, needed)
        if record.kind is ImpactKind.DELETE or not any(one.active for one in found.values()):
            more, others = await look_for(record.vm, self.hosts, set(self.hosts) - needed)
            found, lost = found | more, lost | others
        found = {name: sight for name, sight in found.items() if record.is_about(sight.uuid)}
        failed = record.kind is ImpactKind.REDEPLOY and not record.source
        if not moved and not any(one.active for one in found.values()):
            # A definition that is off elsewhere may be what is left of it: nobody starts that.
            needed.add(record.source)
        for name, error in lost.items():
            if name in needed or not (found or failed):
                raise error
        return found

    async def everywhere(self) -> dict[str, Sight]:
        """Where the VM has a domain, or what is left of one, as far as that can be told now."""
        found, _ = await look_for(self.record.vm, self.hosts)
        return found

    async def place(self) -> tuple[Host, Sight]:
        """Where the VM is: where it runs, if it does, or where it was put last."""
        places = await self.places()
        if not places:
            raise Failed(f"no node has a domain of {self.record.vm}")
        name = latest(places)
        return self.hosts[name], places[name]

    async def look(self, host: Host) -> Sight | None:
        """The VM's domain there; None where it has none, or none that this is about."""
        sight = await host.look(self.record.vm)
        return sight if sight is not None and self.record.is_about(sight.uuid) else None

    async def is_off(self, host: Host, beside: Container[str] = ()) -> bool:
        """Whether it has ended there, and runs nowhere else but on those nodes where it did before.

        Somebody may have moved it by hand, and what is left here was not what ran.
        """
        there = await self.look(host)
        if there is not None and (there.active or there.ended):
            # It is known here: nobody else is asked for that, ten times a second.
            return not there.active
        running = [name for name, sight in (await self.places()).items() if sight.active]
        return not any(name == host.name or name not in beside for name in running)

    async def ended_at(self, host: Host) -> tuple[Host, Sight]:
        """Where it is that has ended: there, or where somebody has moved it to meanwhile.

        Only just after it has: later, others that were off before say so, too.
        """
        there = await self.look(host)
        if there is not None and there.ended:
            return host, there
        places = await self.places()
        ended = {name: sight for name, sight in places.items() if sight.ended}
        if not places:
            raise Failed(f"no node has a domain of {self.record.vm}")
        name = latest(ended or places)
        return self.hosts[name], places[name]

    # ---- What is done and written ----

    async def write(self, **news: Any) -> None:  # noqa: ANN401 - fields of Record
        """Note how far it has come, wherever the VM has a domain by then."""
        self.record = self.record._replace(**news)
        kept = self.clock.wall() - timedelta(days=self.settings.kept_days)

        async def write_everywhere() -> None:
            for name, sight in (await self.places()).items():
                await self.hosts[name].write(sight, self.record, kept)

        await self.again(write_everywhere)

    async def call(self, host: Host, sight: Sight, call: Call) -> None:
        """Do something to a machine, unless it is another's by now.

        LeadLost where another control plane leads, Superseded where a later impact was begun, and
        Failed where the law has given this one up by its limit, or the domain's name is another's.
        Whoever stops to wait for it does not stop it: see `landed`.
        """
        await host.meet(self.record.epoch)

        def do(domain: Any) -> None:  # noqa: ANN401 - libvirt has no types
            if domain.UUIDString() != sight.uuid:
                raise Failed(f"{sight.domain} is another domain by now")
            self.must_be_latest(records_in(domain.XMLDesc(0)))
            call(domain)

        self._must_be_in_time(call)
        self._in_flight = asyncio.ensure_future(host.on(sight.domain, do))
        self._in_flight.add_done_callback(heard)
        await asyncio.shield(self._in_flight)

    async def landed(self) -> None:
        """Wait for the last call that was made, however it ends."""
        if self._in_flight is not None:
            await asyncio.wait({self._in_flight})

    def must_be_latest(self, others: list[Record]) -> None:
        """Superseded where one of these, or one that this process has begun, came later."""
        later = self.superseded_by
        for one in others:
            if one.key != self.record.key and one.begun_at > self.record.begun_at:
                later = one.key
        if later:
            raise Superseded(f"{later} was begun after it")

    def _must_be_in_time(self, call: Call) -> None:
        late = self.clock.monotonic() > self._over_at
        # Who was asked to end so that it boots is not left off either.
        boots = call is _create and self.record.kind is ImpactKind.REBOOT
        if late and not boots and self.record.phase not in UNDOING:
            raise Failed(f"it was not over in time, by {self.record.limit_at.isoformat()}")

    async def insist(self, host: Host, sight: Sight, call: Call) -> None:
        """As `call`, and again where libvirt refuses."""
        await self.again(lambda: self.call(host, sight, call))

    async def again(self, attempt: Callable[[], Awaitable[Any]]) -> None:
        """Try it, and again where libvirt refuses; Trouble where it goes on to."""
        for seconds in TRY_AGAIN_SECONDS:
            try:
                await attempt()
            except Trouble as error:
                log.info("%s: %s; it is tried again", self.record.key, error)
                await self.clock.sleep(seconds)
            else:
                return
        await attempt()

    async def start(self, host: Host, sight: Sight) -> None:
        """Run it there, unless it does; Failed where it does not run then."""
        await self.insist(host, sight, _create)
        there = await host.look(self.record.vm)
        if there is None or not there.active:
            raise Failed(f"{self.record.vm} does not run on {host.name}, where it was started")

    # ---- Time ----

    async def wait(self, until: datetime, is_so: Callable[[], Awaitable[bool]]) -> bool:
        """Look again and again whether it is so, until that instant; Superseded as in `call`."""

        async def is_so_or_superseded() -> bool:
            self.must_be_latest([])
            return await is_so()

        return await self.look_until(until, is_so_or_superseded)

    async def look_until(self, until: datetime, is_so: Callable[[], Awaitable[bool]]) -> bool:
        """Look again and again whether it is so, until that instant, whatever happens."""
        while True:
            if await is_so():
                return True
            left = (until - self.clock.wall()).total_seconds()
            if left <= 0:
                return False
            await self.clock.sleep(min(LOOK_AGAIN_SECONDS, left))

    def politely_until(self, seconds: float) -> datetime:
        """When a guest has been asked for long enough; the law's patience is not used up by it."""
        now = self.clock.wall()
        left = (self.record.limit_at - now).total_seconds()
        return now + timedelta(seconds=max(0.0, min(seconds, left / 2)))


def late_at(record: Record) -> datetime:
    """From when on it begins nothing any more."""
    return record.limit_at + timedelta(seconds=LATE_SECONDS)


def latest(places: Mapping[str, Sight]) -> str:
    """The node where the VM is: where it runs, or else where it was put last.

    What is active and does not run may be the other end of a migration, which waits for memory.
    """

    def order(name: str) -> tuple[bool, bool, datetime]:
        sight = places[name]
        return sight.running, sight.active, sight.moved.at

    return max(places, key=order)


def must_run(sight: Sight) -> None:
    """Failed where it is off."""
    if not sight.active:
        raise Failed(f"{sight.domain} does not run")


def must_be_defined(sight: Sight) -> None:
    """Failed where nothing of it is left once it is off."""
    if not sight.persistent:
        raise Failed(f"{sight.domain} is transient, and would be lost: have virsh define it first")


def _create(domain: Any) -> None:  # noqa: ANN401 - libvirt has no types
    if not domain.isActive():
        domain.create()
