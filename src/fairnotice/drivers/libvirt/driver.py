"""The driver of machines that libvirt runs.

Every impact leaves its key on its domain before it touches it, and whoever finds a key that has not
ended carries it on (deeds.py). So a control plane may die at any instant: the next one asks for the
outcome, and what was half done is finished, once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import libvirt

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Capabilities, Found, Order, Report, Survey
from fairnotice.drivers.libvirt import pauses, records
from fairnotice.drivers.libvirt.deeds import carry_out
from fairnotice.drivers.libvirt.definitions import Definitions
from fairnotice.drivers.libvirt.footing import Failed, Footing, late_at
from fairnotice.drivers.libvirt.forgotten import forgotten
from fairnotice.drivers.libvirt.happenings import DEFINED, REBOOTED, Happening, Happenings
from fairnotice.drivers.libvirt.host import Host, Sight, Unreadable
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.looking import (
    in_time,
    is_certain,
    look_anew,
    look_for,
    must_be_certain,
)
from fairnotice.drivers.libvirt.migrating import CALLING_OFF_SECONDS
from fairnotice.drivers.libvirt.records import Record
from fairnotice.drivers.libvirt.settings import LibvirtSettings
from fairnotice.drivers.libvirt.surveying import Surveyor
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.words import ImpactKind, Outcome

log = logging.getLogger(__name__)

# How long a freeze is that nobody has announced a length of.
UNANNOUNCED_FREEZE_SECONDS = 9
# When we end, so long whatever is under way may come to its own end: a guest that was asked to end
# is started again.
LAST_SECONDS = 5.0


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
        # What those of them stand on that are beyond their beginning.
        self._footings: dict[str, Footing] = {}
        # All that is left of a domain when its node is gone.
        self._definitions = Definitions(self._hosts, clock)
        self._surveyor = Surveyor(self._hosts, settings, clock, self._definitions)
        # Since when this epoch leads: what was begun before may be asked for again from then on.
        self._epoch, self._led_at = 0, clock.wall()
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

    async def outcome(
        self, key: str, epoch: int, failed_nodes: frozenset[str] = frozenset()
    ) -> Report:
        """What became of this key; what is half done is carried on."""
        self._check_open()
        await self._meet(epoch)
        deed = self._deeds.get(key)
        if deed is not None:
            return deed.result() if deed.done() else Report(Outcome.UNDER_WAY)
        try:
            record = await self._record(key, failed_nodes)
        except Trouble as error:
            raise Unavailable(str(error)) from error
        if record is None:
            return Report(Outcome.NOT_BEGUN)
        if record.ended:
            return record.report
        # While it was looked for somebody else may have asked, or come upon it.
        if key not in self._deeds:
            _ = self._begin(key, self._take_up(record, epoch, failed_nodes))
        return Report(Outcome.UNDER_WAY)

    async def discover(self, epoch: int) -> tuple[Found, ...]:
        """Every labeled domain; Unavailable where a node cannot be asked."""
        self._check_open()
        await self._meet(epoch, everywhere=True)
        return await self._surveyor.discover()

    async def close(self) -> None:
        """Let go; who is frozen is let go of first."""
        if self._closed:
            return
        self._closed = True
        await self._give_up(dict(self._deeds), LAST_SECONDS)
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    # ---- What the fleet is told of ----

    async def survey(self, epoch: int, failed_nodes: frozenset[str] = frozenset()) -> Survey:
        """What there is on the nodes that can be asked, and which cannot for long enough."""
        self._check_open()
        if epoch != self._epoch:
            self._epoch, self._led_at = epoch, self._clock.wall()
        survey, places = await self._surveyor.survey(epoch, failed_nodes)
        for record in self._left(epoch, survey, places, failed_nodes - survey.reached):
            log.warning("%s was left in the middle of %s, and is carried on", record.vm, record.key)
            again = self._take_up(record, epoch, failed_nodes, led_at=self._led_at)
            _ = self._begin(record.key, again)
        return survey

    def _left(
        self,
        epoch: int,
        survey: Survey,
        places: Mapping[str, Mapping[str, Sight]],
        lost: frozenset[str],
    ) -> Iterator[Record]:
        """What was left half done and can be carried on, where nothing else is in hand."""
        now = self._clock.wall()
        since = now - timedelta(days=self._settings.kept_days)
        found = {one.vm for one in survey.found}

        def is_late(record: Record) -> bool:
            return late_at(records.carried_on(record, epoch, self._led_at)) < now

        for vm, sights in places.items():
            # What is only left of a VM whose node has failed is not to be started.
            record = forgotten(sights, since, is_late, whole=survey.whole and vm in found)
            if record is not None and _can_go_on(record, lost) and not self._is_in_hand(vm):
                yield record

    def _is_in_hand(self, vm: str) -> bool:
        """Whether anything is being done with it: what was seen of it is then old."""
        return any(key.partition("/")[2] == vm for key in self._deeds)

    async def news(self) -> None:
        """Return when something has happened, or when it is time to look anyway."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.look_every_seconds):
                await self._news.wait()
        self._news.clear()

    async def labels(self) -> tuple[tuple[Found, Label], ...]:
        """Every labeled domain with its label; nothing is shown to the nodes."""
        everything = await self._surveyor.everything()
        return tuple(
            (Found(vm, node, sight.power), sight.label) for vm, (node, sight) in everything.items()
        )

    def _heard(self, happening: Happening) -> None:
        if happening.what == REBOOTED:
            log.info("%s on %s has rebooted", happening.domain, happening.node)
        if happening.what == DEFINED:
            self._hosts[happening.node].forget_label(happening.domain)
        self._news.set()

    # ---- Impacts ----

    def _begin(self, key: str, work: Any) -> "asyncio.Task[Report]":  # noqa: ANN401 - a coroutine
        deed: asyncio.Task[Report] = asyncio.get_running_loop().create_task(work)
        self._deeds[key] = deed
        deed.add_done_callback(lambda ended: self._over(key, ended))
        return deed

    def _over(self, key: str, deed: "asyncio.Task[Report]") -> None:
        """Take it off the list; what came of it is on its domain."""
        if self._deeds.get(key) is deed:
            del self._deeds[key]
            self._footings.pop(key, None)
        if not deed.cancelled() and deed.exception() is not None:
            log.info("%s was given up here: %s", key, deed.exception())

    async def _give_up(self, deeds: Mapping[str, "asyncio.Task[Report]"], seconds: float) -> None:
        """Let these come to their ends, for so long; who is frozen is let go of at once."""
        for key, deed in deeds.items():
            if key in self._footings and self._footings[key].record.kind is ImpactKind.FREEZE:
                deed.cancel()
        if deeds:
            await asyncio.wait(deeds.values(), timeout=seconds)
        for deed in deeds.values():
            deed.cancel()
        await asyncio.gather(*deeds.values(), return_exceptions=True)

    async def _supersede(self, order: Order) -> None:
        """Have what was begun with this VM before do nothing more: the law has let go of it."""
        older = {}
        for key, deed in self._deeds.items():
            if key == order.key:
                break
            if key.partition("/")[2] == order.vm:
                older[key] = deed
                log.warning("%s is given up: %s was begun after it", key, order.key)
        seconds = LAST_SECONDS
        for key in older.keys() & self._footings.keys():
            self._footings[key].superseded_by = order.key
            if self._footings[key].record.kind is ImpactKind.MIGRATE:
                # It is called off, which takes until it is known where the VM is.
                seconds = LAST_SECONDS + CALLING_OFF_SECONDS
        await self._give_up(older, seconds)

    async def _impact(self, order: Order, epoch: int) -> Report:
        home = _home(order)
        await self._meet(epoch, home)
        try:
            record = await self._record(order.key, order.failed_nodes, order)
            if record is None:
                await self._supersede(order)
                places, _ = await look_for(order.vm, self._hosts, needed=(home,))
                if not is_certain(places, order):
                    places = await self._look_anew(order.vm, order.failed_nodes, order)
        except Trouble as error:
            return Report(Outcome.FAILED, str(error))
        if record is None:
            record = self._record_of(order, epoch, places)
            if not places and order.kind is ImpactKind.DELETE:
                return Report(Outcome.DONE, f"there is no domain of {order.vm} any more")
            if not places and not (order.node_failed and await self._noted_elsewhere(record)):
                lacking = ", and nobody keeps its definition" if order.node_failed else ""
                return Report(Outcome.FAILED, f"there is no domain of {order.vm}{lacking}")
            await self._write_first(record, places)
            # Again, now that it is written: a later control plane has either seen it, or is seen.
            await self._meet(epoch, home)
        if record.ended:
            return record.report
        return await self._carry_on(record, epoch, self._clock.wall(), order.failed_nodes)

    async def _write_first(self, record: Record, places: Mapping[str, Sight]) -> None:
        """Leave its key on the VM; Unavailable where that is refused, as nothing was begun."""
        on = self._footing(record)
        try:
            for name, sight in places.items():
                await on.again(partial(self._hosts[name].write, sight, record))
        except Trouble as error:
            raise Unavailable(f"{record.key} cannot be begun: {error}") from error

    def _footing(self, record: Record, failed_nodes: frozenset[str] = frozenset()) -> Footing:
        kept = self._definitions.find
        known = (record, self._hosts, self._settings, self._clock, kept)
        return Footing(*known, failed_nodes=failed_nodes)

    async def _noted_elsewhere(self, record: Record) -> bool:
        """Whether the VM of a node that failed can be had elsewhere, which is written there now."""
        target = self._hosts.get(record.target)
        if record.kind is not ImpactKind.REDEPLOY or target is None:
            return False
        if await self._definitions.find(record.vm) is None:
            return False
        await target.note(record)
        return True

    def _record_of(self, order: Order, epoch: int, places: Mapping[str, Sight]) -> Record:
        now = self._clock.wall()
        earlier = [one for sight in places.values() for one in sight.records]
        seconds = order.duration_seconds
        if seconds < 0:
            seconds = UNANNOUNCED_FREEZE_SECONDS
        return Record(
            key=order.key,
            vm=order.vm,
            kind=order.kind,
            epoch=epoch,
            begun_at=max([now, *(one.begun_at + records.A_MOMENT for one in earlier)]),
            until=now + timedelta(seconds=seconds),
            limit_at=now + timedelta(seconds=max(0.0, order.limit_seconds)),
            target=order.target or "",
            source="" if order.node_failed else order.node or "",
            # The one before was given up while it held it.
            autostart=bool(earlier) and max(earlier, key=lambda one: one.begun_at).autostart,
            pause_seconds=seconds,
            limit_seconds=max(0.0, order.limit_seconds),
            uuid=next((sight.uuid for sight in places.values()), ""),
        )

    async def _take_up(
        self,
        seen: Record,
        epoch: int,
        failed_nodes: frozenset[str] = frozenset(),
        led_at: datetime | None = None,
    ) -> Report:
        """Carry on what was found half done, unless it has ended since it was seen.

        To look at all nodes takes seconds where one hangs, and it may have been in hand until then.
        Whoever asks has patience from now on; if nobody does, it began when this epoch did.
        """
        record = await self._record(seen.key, failed_nodes)
        if record is None or record.ended:
            return (record or seen).report
        patient_since = led_at or self._clock.wall()
        return await self._carry_on(record, epoch, patient_since, failed_nodes)

    async def _carry_on(
        self, record: Record, epoch: int, patient_since: datetime, failed_nodes: frozenset[str]
    ) -> Report:
        record = records.carried_on(record, epoch, patient_since)
        on = self._footings[record.key] = self._footing(record, failed_nodes)
        if record.kind is not ImpactKind.FREEZE:
            return await carry_out(on)
        try:
            return await carry_out(on)
        except asyncio.CancelledError:
            with suppress(Failed, Trouble, Unavailable):
                await pauses.thaw(on)
            raise

    # ---- Looking ----

    async def _meet(self, epoch: int, home: str | None = None, *, everywhere: bool = False) -> None:
        """Show the epoch to every node that can be reached; LeadLost where one has seen a later."""
        self._definitions.lead(epoch)
        needed = self._hosts if everywhere or len(self._hosts) == 1 else (home,)
        meetings = await asyncio.gather(
            *(in_time(host, host.meet(epoch), needed) for host in self._hosts.values()),
            return_exceptions=True,
        )
        errors = [one for one in meetings if isinstance(one, BaseException)]
        for error in errors:
            if isinstance(error, LeadLost) or not isinstance(error, (Unavailable, Trouble)):
                raise error
        if errors and (everywhere or len(errors) == len(self._hosts)):
            raise Unavailable(str(errors[0])) from errors[0]

    async def _record(
        self, key: str, failed: frozenset[str], order: Order | None = None
    ) -> Record | None:
        """What is written of this key, as far as it has come; None: it was not begun."""
        vm, home = key.partition("/")[2], _home(order)
        found, _ = await look_for(vm, self._hosts, needed=(home,))
        written = _written(key, found) or await self._noted(key, home)
        if not written and not is_certain(found, order):
            found = await self._look_anew(vm, failed, order)
            written = _written(key, found)
        if not written:
            return None
        record = next((one for one in written if one.ended), written[-1])
        if _meant(record, found) or record.ended or record.kind is not ImpactKind.DELETE:
            return record
        found, lost = await look_anew(vm, self._hosts, failed, needed=(home,))
        for name, error in lost.items():
            if name not in failed and (name == record.source or isinstance(error, Unreadable)):
                raise error
        # It was meant to be gone; if it is, this is the end.
        gone = record._replace(phase=records.ENDED, outcome=Outcome.DONE, reason="")
        return record if _meant(record, found) else gone

    async def _look_anew(
        self, vm: str, failed: frozenset[str], order: Order | None
    ) -> dict[str, Sight]:
        """Where the VM has a domain, whatever is remembered; Unavailable where nobody can tell."""
        found, lost = await look_anew(vm, self._hosts, failed, needed=(_home(order),))
        must_be_certain(found, lost, failed, order)
        return found

    async def _noted(self, key: str, home: str | None) -> list[Record]:
        """What the ledgers have of this key, as far as they can be asked."""
        asked = await asyncio.gather(
            *(in_time(host, host.noted(key), (home,)) for host in self._hosts.values()),
            return_exceptions=True,
        )
        for noted in asked:
            if isinstance(noted, BaseException) and not isinstance(noted, Unavailable):
                raise noted
        return [noted for noted in asked if isinstance(noted, Record)]

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("The libvirt driver is closed.")


def _home(order: Order | None) -> str | None:
    """The node that has to be waited for; of one that has failed no answer is."""
    return None if order is None or order.node_failed else order.node


def _can_go_on(record: Record, lost: frozenset[str]) -> bool:
    """Not where something of it may be on a node that has failed, and that is not heard of."""
    return record.target not in lost or record.phase in (records.LEAVING, records.STAYING)


def _meant(record: Record, found: Mapping[str, Sight]) -> bool:
    """Whether any of these is what it was begun with."""
    return any(record.is_about(sight.uuid) for sight in found.values())


def _written(key: str, found: Mapping[str, Sight]) -> list[Record]:
    """What the domains of a VM have of this key."""
    return [one for sight in found.values() for one in sight.records if one.key == key]
