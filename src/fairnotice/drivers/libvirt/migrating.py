"""A live migration: the nodes move a VM among themselves while it runs.

They go on when we die. While they do, libvirt lets nobody change what it knows of the VM: whoever
writes waits, and finds it gone. So all that has to be written is written before the VM is handed
over, and whoever carries a migration on only looks until it is over.
"""

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import libvirt

from fairnotice.drivers.libvirt import records
from fairnotice.drivers.libvirt.footing import Failed, Footing, Superseded, must_run
from fairnotice.drivers.libvirt.host import Host, Sight, mark_moved
from fairnotice.drivers.libvirt.line import Trouble, heard
from fairnotice.drivers.libvirt.moves import hold_autostart, moved_by, only_there, target_of

log = logging.getLogger(__name__)

# So long a migration is called off again and again.
CALLING_OFF_SECONDS = 10.0


async def migrate(on: Footing) -> None:
    """From node to node while it runs."""
    target = target_of(on)
    places = await on.places()
    source = next((name for name in places if name != target.name), None)
    if source is None:
        await on.wait(on.record.limit_at, partial(_arrived, on))
    elif not await _arrived(on):
        if on.record.phase == records.BEGUN:
            _must_be_movable(places[source])
            await hold_autostart(on)
            await on.write(phase=records.HANDED_OVER)
        await _see_it_over(on, on.hosts[source], places[source])
    if not await _arrived(on):
        raise Failed(f"{on.record.vm} did not arrive on {target.name}")
    there = (await on.places())[target.name]
    if there.moved.by != on.record.key:
        moved = await moved_by(on, there.moved)
        await on.insist(target, there, partial(mark_moved, moved=moved))
    await only_there(on, target)


def _must_be_movable(sight: Sight) -> None:
    must_run(sight)
    if sight.paused:
        raise Failed(f"{sight.domain} is paused")


async def _see_it_over(on: Footing, source: Host, sight: Sight) -> None:
    """Have it moved until the limit passes; then, or for a later impact, call that off.

    The law takes it to be where it was from then on, so it must not arrive later.
    """
    moving = asyncio.ensure_future(_hand_over(on, source, sight))
    moving.add_done_callback(heard)

    async def is_over() -> bool:
        if not moving.done():
            return False
        moving.result()
        return await _arrived(on) or not await _is_under_way(on, source)

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
            await source.on(sight.domain, _abort)
        if await _arrived(on):
            return True
        # In its last phase there is no job any more, and nothing has arrived yet.
        return moving.done() and not await _is_under_way(on, source)

    until = on.clock.wall() + timedelta(seconds=CALLING_OFF_SECONDS)
    if not await on.look_until(until, is_over):
        raise Failed(f"the migration of {on.record.vm} could not be called off: it may yet arrive")


async def _hand_over(on: Footing, source: Host, sight: Sight) -> None:
    """Have the node itself do it, unless whoever was here before us has."""
    if await _is_under_way(on, source):
        return
    flags = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PEER2PEER
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    )
    target = target_of(on)
    parameters = {}
    if target.address.migrate_uri:
        parameters[libvirt.VIR_MIGRATE_PARAM_URI] = target.address.migrate_uri
    uri = target.address.peer_uri or target.address.uri
    try:
        await on.call(source, sight, lambda domain: domain.migrateToURI3(uri, parameters, flags))
    except Trouble as error:
        # It may have begun since we looked.
        if not await _is_under_way(on, source):
            raise
        log.info("%s: %s; it is under way already", on.record.key, error)


async def _is_under_way(on: Footing, source: Host) -> bool:
    sight = await source.look(on.record.vm)
    if sight is None or not sight.active:
        # It leaves a node only once the other one has it; else it has ended by itself.
        there = await target_of(on).look(on.record.vm)
        return there is not None and there.active
    try:
        return await source.on(sight.domain, _migrates)
    except Trouble:
        # It has left just now.
        return True


def _migrates(domain: Any) -> bool:  # noqa: ANN401 - libvirt has no types
    """Whether that is its job: a backup, a dump, a save or a snapshot is one too, and not ours."""
    operation = domain.jobStats().get(libvirt.VIR_DOMAIN_JOB_OPERATION)
    return bool(operation == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)


def _abort(domain: Any) -> None:  # noqa: ANN401 - libvirt has no types
    # In one go: libvirt ends whatever job there is.
    if _migrates(domain):
        domain.abortJob()


async def _arrived(on: Footing) -> bool:
    places = await on.places()
    there = places.pop(on.record.target, None)
    running = there is not None and there.state == libvirt.VIR_DOMAIN_RUNNING
    return running and not any(sight.active for sight in places.values())
