"""What each impact is on libvirt: step by step, each step decided by what is found.

Whoever begins an impact and whoever finds it half done after a crash walk the same steps. So each
step is chosen by the phase that is written on the domain and by the domain's state, and what must
not happen twice leaves a trace in that state before the phase is written:

- A freeze is begun, then its domain is paused, then it is `frozen`. Running and `frozen`: it was
  resumed. Running and begun: it was not paused yet. Paused: it is resumed when its time has come.
- A reboot is a guest that ends when it is asked to, and is started again: libvirt numbers every
  start, so one with another number has been rebooted. Asking it twice to end does no harm.
- A reset happens while the domain is paused. Until `reset` is written it may be reset again, since
  nothing has run in it; it runs only afterwards.
- What moves is off before `moving` is written, and runs on its target only afterwards.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import libvirt

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Report
from fairnotice.drivers.libvirt import definitions, disks, records
from fairnotice.drivers.libvirt.definitions import Definition
from fairnotice.drivers.libvirt.host import Host, Sight, Trouble, give_up_place
from fairnotice.drivers.libvirt.records import Record
from fairnotice.drivers.libvirt.settings import LibvirtSettings
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind, Outcome

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.1
_UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)
_KIB = 1024
# No domain of that name: what was to go is gone.
_GONE = "Domain not found"


class Failed(Exception):
    """The impact has failed, and why."""


class Deed:
    """One impact under way."""

    def __init__(
        self,
        record: Record,
        hosts: Mapping[str, Host],
        settings: LibvirtSettings,
        clock: Clock,
        kept: Callable[[str], Awaitable[Definition | None]],
    ) -> None:
        self.record = record
        self._hosts = hosts
        self._settings = settings
        self._clock = clock
        self._kept = kept

    async def carry_out(self) -> Report:
        """Walk the steps that are left; how it ended, as it is written now."""
        steps = {
            ImpactKind.FREEZE: self._freeze,
            ImpactKind.REBOOT: self._reboot,
            ImpactKind.MIGRATE: self._migrate,
            ImpactKind.REDEPLOY: self._redeploy,
            ImpactKind.STOP: self._stop,
            ImpactKind.DEALLOCATE: self._deallocate,
            ImpactKind.START: self._start,
            ImpactKind.DELETE: self._delete,
        }
        try:
            await steps[self.record.kind]()
        except (Failed, Trouble) as error:
            await self._end(Outcome.FAILED, str(error))
        else:
            await self._end(Outcome.DONE, "")
        return self.record.report

    # ---- What it stands on ----

    async def _places(self) -> dict[str, Sight]:
        """Where the VM has a domain, by node; nodes that cannot be reached are passed over.

        But for the one where it was when this began: while nobody can tell that it is off there,
        it is started nowhere else.
        """
        found = {}
        for name, host in self._hosts.items():
            try:
                sight = await host.look(self.record.vm)
            except Unavailable:
                if name == self.record.source:
                    raise
                continue
            if sight is not None:
                found[name] = sight
        return found

    async def _place(self) -> tuple[Host, Sight]:
        """Where the VM is: where it runs, if it does."""
        places = await self._places()
        if not places:
            raise Failed(f"no node that can be reached has a domain of {self.record.vm}")
        name = next((name for name, sight in places.items() if sight.active), next(iter(places)))
        return self._hosts[name], places[name]

    async def _write(self, **news: Any) -> None:  # noqa: ANN401 - fields of Record
        """Note how far it has come, wherever the VM has a domain."""
        self.record = self.record._replace(**news)
        kept = self._clock.wall() - timedelta(days=self._settings.kept_days)
        for name, sight in (await self._places()).items():
            await self._hosts[name].write(sight, self.record, kept)

    async def _end(self, outcome: Outcome, reason: str) -> None:
        await self._write(phase=records.ENDED, outcome=outcome, reason=reason)
        if self.record.kind is ImpactKind.DELETE or not self.record.source:
            for host in self._hosts.values():
                with suppress(Unavailable):
                    if await host.noted(self.record.key) is not None:
                        await host.note(self.record)

    async def _act(self, host: Host, call: Callable[[], Any]) -> None:
        """Do something to a machine, unless another control plane leads by now."""
        await host.meet(self.record.epoch)
        await call()

    async def _wait(self, until: datetime, is_so: Callable[[], Any]) -> bool:
        """Look again and again whether it is so, until that instant."""
        while True:
            if await is_so():
                return True
            left = (until - self._clock.wall()).total_seconds()
            if left <= 0:
                return False
            await self._clock.sleep(min(LOOK_AGAIN_SECONDS, left))

    def _politely_until(self, seconds: float) -> datetime:
        """When a guest has been asked for long enough; the law's patience is not used up by it."""
        now = self._clock.wall()
        left = (self.record.limit_at - now).total_seconds()
        return now + timedelta(seconds=max(0.0, min(seconds, left / 2)))

    async def _call(self, host: Host, sight: Sight, call: Callable[[Any], Any]) -> None:
        async def calling() -> None:
            await host.on(sight.domain, call)

        await self._act(host, calling)

    # ---- Freeze ----

    async def _freeze(self) -> None:
        host, sight = await self._place()
        _must_run(sight)
        if sight.paused and not self._paused_by_us(sight):
            raise Failed(f"{sight.domain} is paused already, and not by us")
        if not sight.paused:
            if self.record.phase == records.FROZEN:
                return
            # Begun late, it is held for as long as was announced even so.
            length = self.record.until - self.record.begun_at
            await self._write(until=self._clock.wall() + length)
            await self._call(host, sight, lambda domain: domain.suspend())
        await self._write(phase=records.FROZEN)
        left = (self.record.until - self._clock.wall()).total_seconds()
        if left > 0:
            await self._clock.sleep(left)
        # Whoever leads by now: nobody is left paused.
        with suppress(Trouble):
            await host.on(sight.domain, lambda domain: domain.resume())
        _, sight = await self._place()
        if sight.paused:
            raise Failed(f"{sight.domain} could not be resumed")

    async def thaw(self) -> None:
        """We end in the middle of a pause: its rest is not worth a VM that waits for us."""
        if self.record.kind is not ImpactKind.FREEZE:
            return
        host, sight = await self._place()
        if sight.paused:
            await self._write(phase=records.FROZEN)
            await host.on(sight.domain, lambda domain: domain.resume())

    def _paused_by_us(self, sight: Sight) -> bool:
        """Whether this impact had begun when it was paused: its record is on the domain."""
        return any(one.key == self.record.key for one in sight.records)

    # ---- Reboot ----

    async def _reboot(self) -> None:
        host, sight = await self._place()
        if self.record.phase == records.BEGUN:
            if self.record.was < 0:
                _must_run(sight)
                limit = self._politely_until(self._settings.reboot_limit_seconds)
                await self._write(was=sight.number, until=limit)
            if sight.number not in (-1, self.record.was):
                return
            if sight.active and await self._refuses_to_end(host, sight):
                await self._write(phase=records.RESETTING)
            else:
                await self._call(host, sight, lambda domain: domain.create())
                _, sight = await self._place()
                _must_run(sight)
                return
        await self._reset(host)

    async def _refuses_to_end(self, host: Host, sight: Sight) -> bool:
        """Ask the guest to end; whether it still runs when it has been asked for long enough."""
        if sight.paused or not sight.persistent:
            # Nobody could hear it, or nothing would be left to be started.
            return True
        with suppress(Trouble):
            await self._call(host, sight, lambda domain: domain.shutdown())
        return not await self._wait(self.record.until, lambda: self._is_off(host))

    async def _reset(self, host: Host) -> None:
        if self.record.phase == records.RESETTING:
            _, sight = await self._place()
            if not sight.paused:
                await self._call(host, sight, lambda domain: domain.suspend())
            await self._call(host, sight, lambda domain: domain.reset(0))
            await self._write(phase=records.RESET)
        _, sight = await self._place()
        if sight.paused:
            await host.on(sight.domain, lambda domain: domain.resume())
        _, sight = await self._place()
        _must_run(sight)

    # ---- Live migration ----

    async def _migrate(self) -> None:
        target = self._target()
        places = await self._places()
        source = next((name for name in places if name != target.name), None)
        if source is not None and not await self._arrived():
            sight = places[source]
            _must_run(sight)
            try:
                await self._hand_over(self._hosts[source], sight, target)
            except Trouble as error:
                # It may be under way already, for whoever was here before us.
                log.info("%s: %s", self.record.key, error)
                if not await self._under_way(source):
                    raise
        if not await self._wait(self.record.limit_at, self._arrived):
            raise Failed(f"{self.record.vm} did not arrive on {target.name}")

    async def _hand_over(self, host: Host, sight: Sight, target: Host) -> None:
        """Have the node itself do it: it goes on when the control plane dies."""
        flags = (
            libvirt.VIR_MIGRATE_LIVE
            | libvirt.VIR_MIGRATE_PEER2PEER
            | libvirt.VIR_MIGRATE_PERSIST_DEST
            | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        )
        parameters = {}
        if target.address.migrate_uri:
            parameters[libvirt.VIR_MIGRATE_PARAM_URI] = target.address.migrate_uri
        uri = target.address.peer_uri or target.address.uri
        await self._call(host, sight, lambda domain: domain.migrateToURI3(uri, parameters, flags))

    async def _under_way(self, source: str) -> bool:
        sight = await self._hosts[source].look(self.record.vm)
        if sight is None or not sight.active:
            return True
        kind = (await self._hosts[source].on(sight.domain, lambda domain: domain.jobInfo()))[0]
        return bool(kind != libvirt.VIR_DOMAIN_JOB_NONE)

    async def _arrived(self) -> bool:
        places = await self._places()
        there = places.get(self.record.target)
        running = there is not None and there.state == libvirt.VIR_DOMAIN_RUNNING
        return bool(running) and len(places) == 1

    # ---- Off and on ----

    async def _stop(self) -> None:
        await self._shut_down()

    async def _deallocate(self) -> None:
        await self._shut_down()
        host, sight = await self._place()
        await host.on(sight.domain, lambda domain: give_up_place(domain, given_up=True))

    async def _delete(self) -> None:
        for name, sight in (await self._places()).items():
            # First: once it is gone, only this says that it was we.
            await self._hosts[name].note(self.record)
            await self._hosts[name].write(sight, self.record)
        await self._shut_down()
        for name, sight in (await self._places()).items():
            await self._undefine(self._hosts[name], sight)
        if await self._places():
            raise Failed(f"{self.record.vm} is still there")

    async def _redeploy(self) -> None:
        if self.record.phase == records.BEGUN:
            await self._clear_target()
            await self._must_have_room()
            await self._shut_down()
            await self._write(phase=records.MOVING)
        await self._settle()

    async def _start(self) -> None:
        places = await self._places()
        if self.record.phase == records.BEGUN:
            if any(sight.active for sight in places.values()):
                return
            await self._must_have_room()
            await self._write(phase=records.MOVING)
        await self._settle()

    async def _shut_down(self) -> None:
        """Off wherever it runs: asked politely, and then not."""
        limit = self._politely_until(self._settings.shutdown_limit_seconds)
        for name, sight in (await self._places()).items():
            host = self._hosts[name]
            if not sight.active:
                continue
            if sight.paused:
                # Nobody in there could hear the button.
                await self._destroy(host, sight)
                continue
            with suppress(Trouble):
                await self._call(host, sight, lambda domain: domain.shutdown())
            if not await self._wait(limit, partial(self._is_off, host)):
                await self._destroy(host, sight)

    async def _destroy(self, host: Host, sight: Sight) -> None:
        with suppress(Trouble):
            # It may have gone off by itself just now.
            await self._call(host, sight, lambda domain: domain.destroy())
        if not await self._is_off(host):
            raise Failed(f"{sight.domain} could not be stopped")

    async def _is_off(self, host: Host) -> bool:
        sight = await host.look(self.record.vm)
        return sight is None or not sight.active

    # ---- Moving ----

    def _target(self) -> Host:
        target = self._hosts.get(self.record.target)
        if target is None:
            raise Failed(f"there is no node {self.record.target!r} to go to")
        return target

    async def _clear_target(self) -> None:
        """Undefine what a target that had failed still has of the VM: it moved on since."""
        places = await self._places()
        left = places.get(self.record.target)
        if left is not None and not left.active and len(places) > 1:
            await self._undefine(self._target(), left)

    async def _must_have_room(self) -> None:
        """Before anything is touched: the target is there, has memory, and nobody of that name."""
        target = self._target()
        try:
            there = await target.look(self.record.vm)
        except Unavailable as error:
            raise Failed(f"{target.name} cannot take it: {error}") from error
        if there is not None:
            return
        definition = await self._definition()
        name = definitions.name_in(definition.xml)
        names = await target.ask(lambda c: [one.name() for one in c.listAllDomains(0)])
        if name in names:
            raise Failed(f"{target.name} has another domain called {name}")
        needed = definitions.memory_kib(definition.xml)
        free = await target.ask(_free_kib)
        if free is not None and free < needed:
            raise Failed(
                f"{target.name} has no room: {free // _KIB} MiB are free, {needed // _KIB} needed"
            )
        await self._disks(target, definition, disks.must_be_possible)

    async def _disks(self, target: Host, definition: Definition, do: Callable[..., None]) -> None:
        try:
            await target.ask(lambda c: do(c, definition.xml, definition.capacities))
        except disks.CannotBeMade as error:
            raise Failed(f"{target.name} cannot take it: {error}") from error

    async def _definition(self) -> Definition:
        """The domain as it is defined; as it was last seen, if its node is gone."""
        for name, sight in (await self._places()).items():
            return await definitions.taken(self._hosts[name], sight.domain)
        kept = await self._kept(self.record.vm)
        if kept is None:
            raise Failed(
                f"no node that can be reached has a domain of {self.record.vm}, or its definition"
            )
        return kept

    async def _settle(self) -> None:
        """Defined on the target before it is undefined elsewhere; run there, and nowhere else."""
        target = self._target()
        places = await self._places()
        if target.name not in places:
            definition = await self._definition()
            await self._act(target, lambda: self._disks(target, definition, disks.make_empty))
            xml = definitions.with_record(definition.xml, self.record)
            await self._act(target, lambda: target.ask(lambda c: c.defineXML(xml)))
        for name, sight in places.items():
            if name != target.name:
                await self._undefine(self._hosts[name], sight)
        there = await target.look(self.record.vm)
        if there is None:
            raise Failed(f"{self.record.vm} is not on {target.name}, where it was put")
        if not there.active:
            await target.on(there.domain, lambda domain: give_up_place(domain, given_up=False))
            await self._call(target, there, lambda domain: domain.create())
        there = await target.look(self.record.vm)
        if there is None or not there.active:
            raise Failed(f"{self.record.vm} does not run on {target.name}, where it was started")

    async def _undefine(self, host: Host, sight: Sight) -> None:
        try:
            await self._call(host, sight, lambda domain: domain.undefineFlags(_UNDEFINE))
        except Trouble as error:
            if _GONE in str(error):
                return
            # The test driver knows fewer flags.
            await self._call(host, sight, lambda domain: domain.undefine())


def _must_run(sight: Sight) -> None:
    if not sight.active:
        raise Failed(f"{sight.domain} does not run")


def _free_kib(connection: Any) -> int | None:  # noqa: ANN401 - libvirt has no types
    """Memory that a new VM could have; None where the node cannot tell."""
    try:
        memory = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    except libvirt.libvirtError:
        return None
    return sum(int(memory.get(what, 0)) for what in ("free", "buffers", "cached"))
