"""Impacts after which a VM may be on another node: a migration, a redeploy, a start.

A redeploy that cannot be finished has a way back: its VM is defined on the source until it runs on
the target, and if it does not run there, it is started where it was.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import libvirt

from fairnotice.drivers.libvirt import definitions, disks, records
from fairnotice.drivers.libvirt.definitions import Definition
from fairnotice.drivers.libvirt.footing import (
    Failed,
    Footing,
    Superseded,
    latest,
    must_be_defined,
    must_run,
)
from fairnotice.drivers.libvirt.host import Host, Sight, give_up_place, mark_moved
from fairnotice.drivers.libvirt.line import Trouble, heard
from fairnotice.drivers.libvirt.powering import shut_down, undefine
from fairnotice.drivers.libvirt.records import A_MOMENT, Moved
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind

log = logging.getLogger(__name__)

# So long a migration is called off again and again.
CALLING_OFF_SECONDS = 10.0
_KIB = 1024


# ---- Running ----


async def migrate(on: Footing) -> None:
    """From node to node while it runs; the nodes do it, so it goes on when we die."""
    target = _target(on)
    places = await on.places()
    source = next((name for name in places if name != target.name), None)
    if source is None:
        await on.wait(on.record.limit_at, partial(_arrived, on))
    elif not await _arrived(on):
        sight = places[source]
        must_run(sight)
        if sight.paused:
            raise Failed(f"{sight.domain} is paused")
        await _hold_autostart(on)
        await _take_over(on, on.hosts[source], sight, target)
    if not await _arrived(on):
        raise Failed(f"{on.record.vm} did not arrive on {target.name}")
    there = (await on.places())[target.name]
    if there.moved.by != on.record.key:
        moved = await _moved(on, there.moved)
        await on.insist(target, there, partial(mark_moved, moved=moved))
    await _only_there(on, target)


async def _take_over(on: Footing, source: Host, sight: Sight, target: Host) -> None:
    """Have it moved until the limit passes; then, or for a later impact, call that off.

    The law takes it to be where it was from then on, so it must not arrive later.
    """
    moving = asyncio.ensure_future(_hand_over(on, source, sight, target))
    moving.add_done_callback(heard)

    async def is_over() -> bool:
        if not moving.done():
            return False
        error = moving.exception()
        if error is not None:
            log.info("%s: %s", on.record.key, error)
            # It may be under way already, for whoever was here before us.
            if not isinstance(error, Trouble) or not await _is_under_way(on, source):
                raise error
        return await _arrived(on)

    try:
        if not await on.wait(on.record.limit_at, is_over):
            await _call_off(on, source, sight, moving)
    except Superseded:
        await _call_off(on, source, sight, moving)
        raise
    finally:
        moving.cancel()


async def _call_off(
    on: Footing, source: Host, sight: Sight, moving: "asyncio.Future[None]"
) -> None:
    """Have it stay; or go, where it is too late for that."""

    async def is_over() -> bool:
        with suppress(Trouble):
            await source.on(sight.domain, lambda domain: domain.abortJob())
        if await _arrived(on):
            return True
        # In its last phase there is no job any more, and nothing has arrived yet.
        return moving.done() and not await _is_under_way(on, source)

    until = on.clock.wall() + timedelta(seconds=CALLING_OFF_SECONDS)
    if not await on.look_until(until, is_over):
        raise Failed(f"the migration of {on.record.vm} could not be called off: it may yet arrive")


async def _hand_over(on: Footing, host: Host, sight: Sight, target: Host) -> None:
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
    await on.call(host, sight, lambda domain: domain.migrateToURI3(uri, parameters, flags))


async def _is_under_way(on: Footing, source: Host) -> bool:
    sight = await source.look(on.record.vm)
    if sight is None or not sight.active:
        return True
    try:
        kind = (await source.on(sight.domain, lambda domain: domain.jobInfo()))[0]
    except Trouble:
        # It has left just now.
        return True
    return bool(kind != libvirt.VIR_DOMAIN_JOB_NONE)


async def _arrived(on: Footing) -> bool:
    places = await on.places()
    there = places.pop(on.record.target, None)
    running = there is not None and there.state == libvirt.VIR_DOMAIN_RUNNING
    return running and not any(sight.active for sight in places.values())


# ---- Off, and on again ----


async def redeploy(on: Footing) -> None:
    """Off where it is, and on where it goes."""
    if on.record.phase == records.BEGUN:
        for sight in (await on.places()).values():
            must_be_defined(sight)
        await _take_remains_away(on)
        await _must_have_room(on)
        await _hold_autostart(on)
        await on.write(phase=records.LEAVING)
    if on.record.phase == records.LEAVING:
        try:
            await shut_down(on)
            # A while has passed, and whoever carries this on has not looked yet.
            await _must_have_room(on)
            await on.write(phase=records.MOVING)
        except (Trouble, Failed) as error:
            # Nothing of it is there yet, whatever the target would say.
            with suppress(Trouble):
                await on.write(phase=records.STAYING, reason=str(error))
    if on.record.phase == records.STAYING:
        await _start_again(on)
        raise Failed(on.record.reason)
    await _settle(on)


async def start(on: Footing) -> None:
    """On, on the node that the law has chosen."""
    places = await on.places()
    if on.record.phase == records.BEGUN:
        if any(sight.active for sight in places.values()):
            return
        await _must_have_room(on)
        await _hold_autostart(on)
        await on.write(phase=records.MOVING)
    await _settle(on)


def _target(on: Footing) -> Host:
    target = on.hosts.get(on.record.target)
    if target is None:
        raise Failed(f"there is no node {on.record.target!r} to go to")
    return target


async def _must_have_room(on: Footing) -> None:
    """Before anything is touched: the target is there, has memory, and nobody of that name."""
    target = _target(on)
    try:
        there = await target.look(on.record.vm)
    except Unavailable as error:
        raise Failed(f"{target.name} cannot take it: {error}") from error
    definition = await _definition(on)
    if there is None:
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
    if _is_outdated(there, definition):
        await _disks(target, definition, disks.must_be_possible)


def _free_kib(connection: Any) -> int | None:  # noqa: ANN401 - libvirt has no types
    """Memory that a new VM could have; None where the node cannot tell."""
    try:
        memory = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    except libvirt.libvirtError:
        return None
    return sum(int(memory.get(what, 0)) for what in ("free", "buffers", "cached"))


async def _take_remains_away(on: Footing) -> None:
    """An earlier move may have left its definition on the target: it is not how the VM is now."""
    target = _target(on)
    elsewhere = [sight for name, sight in (await on.places()).items() if name != target.name]
    # One that cannot be reached is refused by its lack of room.
    with suppress(Unavailable):
        remains = await target.look(on.record.vm)
        if remains is not None and not remains.active and any(one.active for one in elsewhere):
            await undefine(on, target, remains)


async def _hold_autostart(on: Footing) -> None:
    """Nobody but us starts it from now on; whether its node did is written first."""
    places = await on.places()
    if places and not on.record.autostart:
        name = latest(places)
        asked = await on.hosts[name].on(places[name].domain, lambda domain: domain.autostart())
        await on.write(autostart=bool(asked))
    if on.record.autostart:
        for name, sight in places.items():
            await on.insist(on.hosts[name], sight, lambda domain: domain.setAutostart(0))


async def _settle(on: Footing) -> None:
    """Run on the target, and then nowhere else; or where it was, if it cannot."""
    if on.record.phase == records.MOVING:
        try:
            await _put(on)
        except (Trouble, Failed) as error:
            places = await on.places()
            there = places.pop(on.record.target, None)
            ours = there is None or there.moved.by == on.record.key
            if not places or not (ours or on.record.kind is ImpactKind.REDEPLOY):
                # Nothing is left to go back to, or nothing has moved.
                raise
            await on.write(phase=records.RETURNING, reason=str(error))
    if on.record.phase == records.RETURNING:
        await _go_back(on)
    await _only_there(on, _target(on))


async def _only_there(on: Footing, target: Host) -> None:
    """It runs there: what others have of it is how it was before."""
    if await on.is_off(target):
        raise Failed(f"{on.record.vm} does not run on {target.name}: nothing of it is taken away")
    for name, sight in (await on.everywhere()).items():
        if name != target.name:
            if sight.active:
                raise Failed(f"{sight.domain} runs on {name} as well as on {target.name}")
            await undefine(on, on.hosts[name], sight)


async def _put(on: Footing) -> None:
    """Define it on the target, with the impact's key, and start it there."""
    target = _target(on)
    places = await on.places()
    for name, sight in places.items():
        if sight.active and name != target.name:
            raise Failed(f"{sight.domain} was started on {name} meanwhile")
    there = places.get(target.name)
    definition = await _definition(on)
    if _is_outdated(there, definition):
        if there is not None:
            # With all that libvirt keeps beside it: a saved state would be how it was, too.
            await undefine(on, target, there)
        await target.meet(on.record.epoch)
        await _disks(target, definition, disks.make_empty)
        moved = await _moved(on, records.moved_in(definition.xml))
        xml = definitions.with_record(definition.xml, on.record, moved)
        await on.again(lambda: target.ask(lambda c: c.defineXML(xml)))
    there = await target.look(on.record.vm)
    if there is None:
        raise Failed(f"{on.record.vm} is not on {target.name}, where it was put")
    await on.insist(target, there, partial(give_up_place, given_up=False))
    await on.start(target, there)


async def _go_back(on: Footing) -> None:
    """Not on the target: run where it ran before, and Failed; unless it runs there after all."""
    target = _target(on)
    there = await target.look(on.record.vm)
    if there is not None and there.active:
        await on.write(phase=records.MOVING, reason="")
        return
    if there is not None:
        await undefine(on, target, there)
    if on.record.kind is ImpactKind.REDEPLOY:
        await _start_again(on)
    raise Failed(on.record.reason)


async def _start_again(on: Footing) -> None:
    """Where it ran before."""
    places = await on.places()
    places.pop(on.record.target, None)
    if places:
        name = latest(places)
        await on.start(on.hosts[name], places[name])


async def give_autostart_back(on: Footing) -> None:
    """Where the VM is now; however this has ended."""
    # A VM that is deleted is nowhere, and whoever is away need not say so.
    places = await on.places() if on.record.autostart else {}
    if places:
        name = latest(places)
        try:
            await on.insist(on.hosts[name], places[name], lambda domain: domain.setAutostart(1))
        except Trouble as error:
            log.warning("%s is not started with %s any more: %s", on.record.vm, name, error)
        else:
            on.record = on.record._replace(autostart=False)


def _is_outdated(there: Sight | None, definition: Definition) -> bool:
    """Whether the target does not have the VM as it is now."""
    if there is None:
        return True
    return not there.active and there.moved.at < records.moved_in(definition.xml).at


async def _moved(on: Footing, before: Moved) -> Moved:
    """A mark that is later than every other on the VM, whatever the clocks say."""
    known = [before.at, *(sight.moved.at for sight in (await on.places()).values())]
    return Moved(max(on.clock.wall(), max(known) + A_MOMENT), on.record.key)


async def _definition(on: Footing) -> Definition:
    """The VM as it was put somewhere last; as it was last seen, if its node is gone."""
    places = await on.places()
    # Of two that are as late, the one where it was.
    where = dict(sorted(places.items(), key=lambda place: place[0] == on.record.target))
    kept = None if where and on.record.source else await on.kept(on.record.vm)
    if where:
        name = latest(where)
        if kept is None or records.moved_in(kept.xml).at <= where[name].moved.at:
            return await definitions.taken(on.hosts[name], where[name].domain)
    if kept is None:
        raise Failed(
            f"no node that can be reached has a domain of {on.record.vm}, or its definition"
        )
    return kept


async def _disks(target: Host, definition: Definition, do: Callable[..., None]) -> None:
    try:
        await target.ask(lambda c: do(c, definition.xml, definition.capacities))
    except disks.CannotBeMade as error:
        raise Failed(f"{target.name} cannot take it: {error}") from error
