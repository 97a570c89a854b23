"""The driver of machines that libvirt runs.

Every impact leaves its key on its domain before it touches it, and whoever finds a key that has not
ended carries it on (deeds.py). So a control plane may die at any instant: the next one asks for the
outcome, and what was half done is finished, once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import libvirt

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Capabilities, Found, Order, Report, Survey
from fairnotice.drivers.libvirt.deeds import Deed
from fairnotice.drivers.libvirt.happenings import REBOOTED, Happening, Happenings
from fairnotice.drivers.libvirt.host import Host, Sight
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.records import Record
from fairnotice.drivers.libvirt.settings import LibvirtSettings
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.words import ImpactKind, Outcome

log = logging.getLogger(__name__)

# How long a freeze is that nobody has announced a length of.
UNANNOUNCED_FREEZE_SECONDS = 9


class LibvirtDriver:
    """Carries out impacts on the domains of several libvirtd."""

    def __init__(
        self,
        settings: LibvirtSettings,
        clock: Clock,
        open_connection: Callable[[str], Any] = libvirt.open,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._news = asyncio.Event()
        happenings = Happenings(clock, self._heard)
        self._hosts = {
            name: Host(name, address, clock, happenings, open_connection)
            for name, address in settings.nodes.items()
        }
        self._deeds: dict[str, asyncio.Task[Report]] = {}
        # Each domain as it was last seen: all that is left of it when its node is gone.
        self._kept: dict[str, str] = {}
        # Since when a node is away.
        self._away: dict[str, float] = {}
        self._closed = False
        kinds = set(ImpactKind)
        if all(address.uri.startswith("test:") for address in settings.nodes.values()):
            # libvirt's own test driver has no migration.
            kinds.discard(ImpactKind.MIGRATE)
        self._capabilities = Capabilities("libvirt", frozenset(kinds), answers=True, discovers=True)

    # ---- The port ----

    def capabilities(self) -> Capabilities:
        """All kinds, and it answers: domains remember."""
        return self._capabilities

    async def impact(self, order: Order, epoch: int) -> Report:
        """Carry it out, or wait for the one of the same key that was begun before."""
        self._check_open()
        deed = self._deeds.get(order.key)
        if deed is None:
            deed = self._begin(order.key, self._impact(order, epoch))
        else:
            await self._meet(epoch)
        return await asyncio.shield(deed)

    async def outcome(self, key: str, epoch: int) -> Report:
        """What became of this key; what is half done is carried on."""
        self._check_open()
        await self._meet(epoch)
        deed = self._deeds.get(key)
        if deed is not None:
            return deed.result() if deed.done() else Report(Outcome.UNDER_WAY)
        record = await self._record(key)
        if record is None:
            return Report(Outcome.NOT_BEGUN)
        if record.ended:
            return record.report
        _ = self._begin(key, self._carry_on(record._replace(epoch=epoch)))
        return Report(Outcome.UNDER_WAY)

    async def discover(self, epoch: int) -> tuple[Found, ...]:
        """Every labeled domain; Unavailable where a node cannot be asked."""
        self._check_open()
        await self._meet(epoch, everywhere=True)
        found: dict[str, Found] = {}
        for name, host in self._hosts.items():
            for sight in await host.look_at_all():
                self._add(found, name, sight)
        return tuple(sorted(found.values()))

    async def close(self) -> None:
        """Let go; who is frozen is let go of first."""
        if self._closed:
            return
        self._closed = True
        deeds = [deed for deed in self._deeds.values() if not deed.done()]
        for deed in deeds:
            deed.cancel()
        await asyncio.gather(*deeds, return_exceptions=True)
        for host in self._hosts.values():
            await host.close()

    # ---- What the fleet is told of ----

    async def survey(self, epoch: int) -> Survey:
        """What there is on the nodes that can be asked, and which cannot for long enough."""
        self._check_open()
        found: dict[str, Found] = {}
        reached, away = [], []
        for name, host in self._hosts.items():
            try:
                await host.meet(epoch)
                sights = await host.look_at_all()
            except LeadLost:
                raise
            except (Unavailable, Trouble) as error:
                since = self._away.setdefault(name, self._clock.monotonic())
                if self._clock.monotonic() - since >= self._settings.unreachable_after_seconds:
                    away.append(name)
                log.info("%s is passed over: %s", name, error)
                continue
            self._away.pop(name, None)
            reached.append(name)
            for sight in sights:
                self._add(found, name, sight)
                self._resume_forgotten(sight, epoch)
        return Survey(
            found=tuple(sorted(found.values())),
            reached=frozenset(reached),
            away=frozenset(away),
            whole=len(reached) == len(self._hosts),
        )

    async def news(self) -> None:
        """Return when something has happened, or when it is time to look anyway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.look_every_seconds):
                await self._news.wait()
        self._news.clear()

    async def labels(self) -> tuple[tuple[Found, Label], ...]:
        """Every labeled domain with its label; nothing is shown to the nodes."""
        found: dict[str, tuple[Found, Label]] = {}
        for name, host in self._hosts.items():
            for sight in await host.look_at_all():
                if sight.vm not in found or sight.active:
                    found[sight.vm] = (Found(sight.vm, name, sight.power), sight.label)
        return tuple(found.values())

    def _heard(self, happening: Happening) -> None:
        if happening.what == REBOOTED:
            log.info("%s on %s has rebooted", happening.domain, happening.node)
        self._news.set()

    def _add(self, found: dict[str, Found], node: str, sight: Sight) -> None:
        """On two nodes during a move, a VM is where it runs."""
        self._kept[sight.vm] = sight.xml
        if sight.vm not in found or sight.active:
            place = None if sight.given_up and not sight.active else node
            found[sight.vm] = Found(sight.vm, place, sight.power)

    def _resume_forgotten(self, sight: Sight, epoch: int) -> None:
        """One that somebody has frozen who is gone, and that nobody asks for: carried on."""
        for record in sight.records:
            left = not record.ended and record.kind is ImpactKind.FREEZE and sight.paused
            if left and record.key not in self._deeds:
                log.warning("%s was frozen by a control plane that is gone", sight.vm)
                _ = self._begin(record.key, self._carry_on(record._replace(epoch=epoch)))

    # ---- Impacts ----

    def _begin(self, key: str, work: Any) -> "asyncio.Task[Report]":  # noqa: ANN401 - a coroutine
        deed: asyncio.Task[Report] = asyncio.get_running_loop().create_task(work)
        self._deeds[key] = deed
        deed.add_done_callback(lambda ended: self._over(key, ended))
        return deed

    def _over(self, key: str, deed: "asyncio.Task[Report]") -> None:
        """What ended is written on its domain; what was given up may be carried on."""
        if self._deeds.get(key) is deed:
            del self._deeds[key]
        if not deed.cancelled() and deed.exception() is not None:
            log.info("%s was given up here: %s", key, deed.exception())

    async def _impact(self, order: Order, epoch: int) -> Report:
        await self._meet(epoch)
        record = await self._record(order.key)
        if record is None:
            places = await self._places(order.vm)
            if not places and order.kind is ImpactKind.DELETE:
                return Report(Outcome.DONE, f"there is no domain of {order.vm} any more")
            if not places and (order.kind is not ImpactKind.REDEPLOY or order.vm not in self._kept):
                return Report(Outcome.FAILED, f"there is no domain of {order.vm}")
            record = self._record_of(order, epoch)
            for name, sight in places.items():
                await self._hosts[name].write(sight, record)
            # Again, now that it is written: a later control plane has either seen it, or is seen.
            await self._meet(epoch)
        if record.ended:
            return record.report
        return await self._carry_on(record._replace(epoch=epoch))

    def _record_of(self, order: Order, epoch: int) -> Record:
        now = self._clock.wall()
        seconds = order.duration_seconds
        if seconds < 0:
            seconds = UNANNOUNCED_FREEZE_SECONDS
        return Record(
            key=order.key,
            vm=order.vm,
            kind=order.kind,
            epoch=epoch,
            begun_at=now,
            until=now + timedelta(seconds=seconds),
            limit_at=now + timedelta(seconds=max(0.0, order.limit_seconds)),
            target=order.target or "",
        )

    async def _carry_on(self, record: Record) -> Report:
        deed = Deed(record, self._hosts, self._settings, self._clock, self._kept.get)
        try:
            return await deed.carry_out()
        except asyncio.CancelledError:
            with suppress(Trouble, Unavailable):
                await deed.thaw()
            raise

    # ---- Looking ----

    async def _meet(self, epoch: int, *, everywhere: bool = False) -> None:
        """Show the epoch to every node that can be reached; LeadLost where one has seen a later."""
        lost = None
        for host in self._hosts.values():
            try:
                await host.meet(epoch)
            except LeadLost:
                raise
            except (Unavailable, Trouble) as error:
                lost = error
                if everywhere:
                    raise Unavailable(str(error)) from error
        if lost is not None and len(self._hosts) == 1:
            raise Unavailable(str(lost)) from lost

    async def _places(self, vm: str) -> dict[str, Sight]:
        """Where this VM has a domain; Unavailable where none is, and not all could be asked."""
        found, lost = {}, None
        for name, host in self._hosts.items():
            try:
                sight = await host.look(vm)
            except Unavailable as error:
                lost = error
            else:
                if sight is not None:
                    found[name] = sight
                    self._kept[vm] = sight.xml
        if lost is not None and not found and vm not in self._kept:
            raise lost
        return found

    async def _record(self, key: str) -> Record | None:
        """What is written of this key, as far as it has come; None: it was not begun."""
        vm = key.partition("/")[2]
        places = await self._places(vm)
        written = [one for sight in places.values() for one in sight.records if one.key == key]
        if not written:
            for host in self._hosts.values():
                with suppress(Unavailable):
                    noted = await host.noted(key)
                    if noted is not None:
                        written.append(noted)
        if not written:
            return None
        record = next((one for one in written if one.ended), written[-1])
        if not places and record.kind is ImpactKind.DELETE:
            # It was meant to be gone, and it is.
            return record._replace(phase="ended", outcome=Outcome.DONE, reason="")
        return record

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("The libvirt driver is closed.")
