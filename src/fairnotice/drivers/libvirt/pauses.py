"""Impacts that pause a VM: a freeze, and the reset of a guest that does not hear.

Once a VM is paused, whatever libvirt refuses, it is resumed: nothing is called ended before.
"""

import logging
from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta

from fairnotice.drivers.libvirt import records
from fairnotice.drivers.libvirt.footing import (
    LOOK_AGAIN_SECONDS,
    Failed,
    Footing,
    Superseded,
    must_run,
)
from fairnotice.drivers.libvirt.host import Host, Sight
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.restarts import give_restart_back

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS_MAX = 5.0
# Whoever finds a VM paused in one of these phases has to let it go.
PAUSING = (records.FREEZING, records.FROZEN, records.RESETTING, records.RESET)


async def freeze(on: Footing) -> None:
    """Paused for as long as was announced; Failed where it was not."""
    host, sight = await on.place()
    must_run(sight)
    if on.record.phase == records.BEGUN and sight.paused:
        raise Failed(f"{sight.domain} is paused already, and not by us")
    if _is_anothers(on, sight):
        raise Superseded("a later impact pauses it")
    paused_before = sight.paused
    if not paused_before:
        # Whoever had it in hand has resumed it, and was gone before that was written.
        if on.record.phase == records.FROZEN:
            return
        # Begun late, it is held for as long as was announced even so.
        until = on.clock.wall() + timedelta(seconds=on.record.pause_seconds)
        await on.write(phase=records.FREEZING, until=until)
        await _pause(on, host, sight)
    if on.record.phase != records.FROZEN:
        with suppress(Trouble):
            await on.write(phase=records.FROZEN)
    left = (on.record.until - on.clock.wall()).total_seconds()
    if left > 0:
        # Whoever wrote when it ends may have had another time.
        await on.clock.sleep(min(left, on.record.pause_seconds))
    if not (await let_go(on, host) or paused_before):
        # It was we who had paused it; but who leads by now may have resumed it in time.
        await host.meet(on.record.epoch)
        raise Failed(f"{sight.domain} runs before its time: somebody has resumed it")


async def thaw(on: Footing) -> None:
    """We end in the middle of a pause: its rest is not worth a VM that waits for us."""
    if on.record.phase not in PAUSING:
        return
    # What was asked for may be done only after we have stopped to wait for it.
    await on.landed()
    host, sight = await on.place()
    if sight.paused and not _is_anothers(on, sight):
        with suppress(Trouble):
            await on.write(phase=records.FROZEN)
        await let_go(on, host)


async def reset(on: Footing) -> None:
    """As if its plug was pulled: while it is paused, so that it can be known whether it was."""
    host, sight = await on.place()
    if not sight.active:
        # It has heard after all.
        await on.start(host, sight)
        return
    if on.record.phase == records.RESETTING and not sight.is_marked(on.record.key):
        # It had, and was started again.
        await let_go(on, host)
        return
    if on.record.phase == records.RESETTING:
        if not sight.paused and not await _unless_ended(on, host, sight, _pause(on, host, sight)):
            return
        try:
            await on.insist(host, sight, lambda domain: domain.reset(0))
            await give_restart_back(on, {host.name: sight})
            await on.write(phase=records.RESET)
        except Trouble as error:
            if not await _unless_ended(on, host, sight, let_go(on, host)):
                return
            raise Failed(f"{sight.domain} could not be reset: {error}") from error
    # QEMU may not have survived it.
    await _unless_ended(on, host, sight, let_go(on, host))


async def let_go(on: Footing, host: Host) -> bool:
    """Resume it, however often that is refused; whoever leads by now: nobody is left paused.

    Whether it was paused until then.
    """
    seconds, was_paused = LOOK_AGAIN_SECONDS, False
    while True:
        sight = await host.look(on.record.vm)
        if sight is None:
            raise Failed(f"{on.record.vm} is gone")
        if not sight.paused:
            must_run(sight)
            return was_paused
        was_paused = True
        try:
            await host.on(sight.domain, lambda domain: domain.resume())
        except Trouble as error:
            log.warning("%s is still paused: %s", sight.domain, error)
            await on.clock.sleep(seconds)
            seconds = min(2 * seconds, LOOK_AGAIN_SECONDS_MAX)


async def _unless_ended(on: Footing, host: Host, sight: Sight, do: Awaitable[object]) -> bool:
    """Whether this could be done; one that has ended just now is started instead."""
    try:
        await do
    except Failed:
        if not (sight.persistent and await on.is_off(host)):
            raise
        await on.start(host, sight)
        return False
    return True


def _is_anothers(on: Footing, sight: Sight) -> bool:
    """Whether a later impact may have paused it, which resumes it as well."""
    later = (one for one in sight.records if one.begun_at > on.record.begun_at)
    return any(one.phase in PAUSING for one in later)


async def _pause(on: Footing, host: Host, sight: Sight) -> None:
    try:
        await on.insist(host, sight, lambda domain: domain.suspend())
    except Trouble as error:
        # It may have been paused even so.
        await let_go(on, host)
        raise Failed(f"{sight.domain} could not be paused: {error}") from error
