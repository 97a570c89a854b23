"""Impacts that end a guest: a reboot, off, and gone."""

import logging
from collections.abc import Container
from contextlib import suppress
from datetime import datetime
from functools import partial

import libvirt

from fairnotice.drivers.libvirt import records
from fairnotice.drivers.libvirt.footing import Failed, Footing, must_be_defined, must_run
from fairnotice.drivers.libvirt.host import Host, Sight, give_up_place, mark
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.pauses import reset
from fairnotice.drivers.libvirt.restarts import hold_restart, is_ended_by_a_reset
from fairnotice.words import ImpactKind

log = logging.getLogger(__name__)

_BESIDE_THE_DOMAIN = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)
# What a firmware and a TPM remember is the VM's: it goes with the VM, and not with its place.
_DELETED = _BESIDE_THE_DOMAIN | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_TPM
_MOVED = (
    _BESIDE_THE_DOMAIN
    | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
    | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
)
# Libvirt has these since 8.9; before, a TPM's own `persistent_state` decides.
_OF_A_TPM = libvirt.VIR_DOMAIN_UNDEFINE_TPM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
# How libvirt refuses a flag that it does not have.
_UNKNOWN_FLAGS = (libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_NO_SUPPORT)


async def reboot(on: Footing) -> None:
    """A guest that ends when it is asked to, and is started again; else a reset, if it can be."""
    host, sight = await on.place()
    if on.record.phase == records.BEGUN:
        must_run(sight)
        await on.insist(host, sight, partial(mark, key=on.record.key))
        until = on.politely_until(on.settings.reboot_limit_seconds)
        await on.write(phase=records.ASKING, until=until)
        host, sight = await on.place()
    if on.record.phase == records.ASKING:
        if sight.active and not sight.is_marked(on.record.key):
            return
        if not sight.active or await _ends_to_be_started(on, host, sight):
            await on.start(*await on.ended_at(host))
            return
        await on.write(phase=records.RESETTING)
    await reset(on)


async def _ends_to_be_started(on: Footing, host: Host, sight: Sight) -> bool:
    """Whether it is off now, asked or not; one that is not is to be reset."""
    # Of a transient one nothing would be left to be started.
    if sight.persistent and await _ends_when_asked(on, host, sight, on.record.until):
        return True
    host, sight = await on.place()
    if not (sight.is_marked(on.record.key) and is_ended_by_a_reset(sight)):
        return False
    must_be_defined(sight)
    await _destroy(on, host, sight, ())
    return True


async def _ends_when_asked(
    on: Footing, host: Host, sight: Sight, until: datetime, beside: Container[str] = ()
) -> bool:
    """Press its power button; whether it has ended by then, `beside` as in `is_off`."""
    if sight.paused:
        # Nobody in there could hear it.
        return False
    try:
        await hold_restart(on, host, sight)
    except Trouble as error:
        log.warning("%s is not asked to shut down: %s", sight.domain, error)
        return False
    with suppress(Trouble):
        await on.call(host, sight, lambda domain: domain.shutdown())
    return await on.wait(until, partial(on.is_off, host, beside))


async def stop(on: Footing) -> None:
    """Off, and still there."""
    await shut_down(on)


async def deallocate(on: Footing) -> None:
    """Off, and its place is free for others."""
    await shut_down(on)
    host, sight = await on.place()
    await on.insist(host, sight, partial(give_up_place, given_up=True))


async def delete(on: Footing) -> None:
    """Off, and gone from every node that had it."""
    places = await on.places()
    for name, sight in places.items():
        # First: once it is gone, only this says that it was we.
        await on.again(partial(on.hosts[name].note, on.record))
        await on.again(partial(on.hosts[name].write, sight, on.record))
    await shut_down(on)
    for name in places:
        host = on.hosts[name]
        there = await on.look(host)
        if there is not None:
            await undefine(on, host, there)
        if await on.look(host) is not None:
            raise Failed(f"{on.record.vm} is still on {name}")


async def shut_down(on: Footing) -> None:
    """Off wherever it runs: asked politely, and then not."""
    limit = on.politely_until(on.settings.shutdown_limit_seconds)
    running = {name: sight for name, sight in (await on.places()).items() if sight.active}
    for sight in running.values():
        if on.record.kind is not ImpactKind.DELETE:
            must_be_defined(sight)
    for name, sight in running.items():
        host = on.hosts[name]
        if not await _ends_when_asked(on, host, sight, limit, running):
            await _destroy(on, host, sight, running)


async def _destroy(on: Footing, host: Host, sight: Sight, beside: Container[str]) -> None:
    with suppress(Trouble):
        # It may have gone off by itself just now.
        await on.insist(host, sight, lambda domain: domain.isActive() and domain.destroy())
    if not await on.is_off(host, beside):
        raise Failed(f"{sight.domain} could not be stopped")


async def undefine(on: Footing, host: Host, sight: Sight) -> None:
    """Take the definition away; what the VM remembers stays where it only moves."""
    flags = _DELETED if on.record.kind is ImpactKind.DELETE else _MOVED

    def take_away(domain: libvirt.virDomain) -> None:
        known = (flags, flags & ~_OF_A_TPM)
        if not any(_is_undefined(domain, some) for some in known):
            # The test driver knows fewer, and where there are none nothing is beside the domain.
            domain.undefine()

    await on.insist(host, sight, take_away)


def _is_undefined(domain: libvirt.virDomain, flags: int) -> bool:
    """Whether it is gone now; not where this libvirt does not know what it is asked."""
    try:
        domain.undefineFlags(flags)
    except libvirt.libvirtError as error:
        if error.get_error_code() in _UNKNOWN_FLAGS:
            return False
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
    return True
