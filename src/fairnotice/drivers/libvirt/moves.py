"""Impacts that start a VM elsewhere: a redeploy, which switches it off where it was, and a start.

A redeploy that cannot be finished has a way back: its VM is defined on the source until it runs on
the target, and if it does not run there, it is started where it was.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import libvirt

from fairnotice.drivers.libvirt import definitions, disks, records
from fairnotice.drivers.libvirt.definitions import Definition
from fairnotice.drivers.libvirt.footing import Failed, Footing, latest, must_be_defined
from fairnotice.drivers.libvirt.host import Host, Sight, give_up_place
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.powering import shut_down, undefine
from fairnotice.drivers.libvirt.records import A_MOMENT, Moved
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind

log = logging.getLogger(__name__)

_KIB = 1024


async def redeploy(on: Footing) -> None:
    """Off where it is, and on where it goes."""
    if on.record.phase == records.BEGUN:
        for sight in (await on.places()).values():
            must_be_defined(sight)
        await _take_remains_away(on)
        await _must_have_room(on)
        await hold_autostart(on)
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
        await hold_autostart(on)
        await on.write(phase=records.MOVING)
    await _settle(on)


def target_of(on: Footing) -> Host:
    """Where the VM goes."""
    target = on.hosts.get(on.record.target)
    if target is None:
        raise Failed(f"there is no node {on.record.target!r} to go to")
    return target


async def _must_have_room(on: Footing) -> None:
    """Before anything is touched: the target is there, has memory, and nobody of that name."""
    target = target_of(on)
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
    target = target_of(on)
    elsewhere = [sight for name, sight in (await on.places()).items() if name != target.name]
    # One that cannot be reached is refused by its lack of room.
    with suppress(Unavailable):
        remains = await target.look(on.record.vm)
        if remains is not None and not remains.active and any(one.active for one in elsewhere):
            await undefine(on, target, remains)


async def hold_autostart(on: Footing) -> None:
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
    await only_there(on, target_of(on))


async def only_there(on: Footing, target: Host) -> None:
    """It runs there: what others have of it is how it was before."""
    there = await target.look(on.record.vm)
    if there is None or not there.active:
        raise Failed(f"{on.record.vm} does not run on {target.name}: nothing of it is taken away")
    for name, sight in (await on.everywhere()).items():
        if name != target.name:
            if sight.active:
                raise Failed(f"{sight.domain} runs on {name} as well as on {target.name}")
            await undefine(on, on.hosts[name], sight)


async def _put(on: Footing) -> None:
    """Define it on the target, with the impact's key, and start it there."""
    target = target_of(on)
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
        moved = await moved_by(on, records.moved_in(definition.xml))
        xml = definitions.with_record(definition.xml, on.record, moved)
        await on.again(lambda: target.ask(lambda c: c.defineXML(xml)))
    there = await target.look(on.record.vm)
    if there is None:
        raise Failed(f"{on.record.vm} is not on {target.name}, where it was put")
    await on.insist(target, there, partial(give_up_place, given_up=False))
    await on.start(target, there)


async def _go_back(on: Footing) -> None:
    """Not on the target: run where it ran before, and Failed; unless it runs there after all."""
    target = target_of(on)
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
    """Where it ran before, unless somebody has it run anywhere meanwhile."""
    places = await on.places()
    running = any(sight.active for sight in places.values())
    places.pop(on.record.target, None)
    if places and not running:
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


async def moved_by(on: Footing, before: Moved) -> Moved:
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
