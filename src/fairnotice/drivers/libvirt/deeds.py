"""What each impact is on libvirt: step by step, each step decided by what is found.

Whoever begins an impact and whoever finds it half done after a crash walk the same steps. So each
step is chosen by the phase that is written on the domain and by the domain's state, and what must
not happen twice leaves a trace in that state before the phase is written:

- A freeze is `freezing`, then its domain is paused, then it is `frozen`. Running and `frozen`: it
  was resumed. Running and `freezing`: it was not paused yet. Paused: it is resumed when its time
  has come; but one that is paused before anything was written was paused by somebody else. Whoever
  has paused it himself, and finds it running when its time has come, says that it was not frozen.
- A reboot is a guest that ends when it is asked to, and is started again. Before it is asked, the
  running domain gets a mark, which is gone with it: one that runs without has been rebooted.
- A reset happens while the domain is paused. Until `reset` is written it may be reset again, since
  nothing has run in it; it runs only afterwards.
- Who is asked to end is not restarted by libvirt, whatever the domain has for that: what it had is
  noted on it before that is changed, and given back before a reset guest runs, and in the end.
- Before each call that changes a machine it is looked whether a later impact has left its key on
  the domain: then the law has let go of this one, and it does nothing more but resume what it has
  paused. When its limit has passed it only undoes what it has begun.
- A migration is `handed over` when all is written that has to be: while the nodes move a domain,
  nobody can write to it. From then on it is only looked whether it has arrived.
- What moves otherwise is switched off after `leaving` is written. It is off before `moving` is, and
  runs on its target only afterwards. If it cannot run there, `returning` is written, and it runs
  where it was; `staying`, where nothing of it can be on the target yet: then that is not asked.
- Whether its node starts a VM by itself is written before that is held, and given back in the end.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial

from fairnotice.drivers.driver import Report
from fairnotice.drivers.libvirt import migrating, moves, pauses, powering, records, restarts
from fairnotice.drivers.libvirt.footing import Failed, Footing, Superseded
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.looking import in_time
from fairnotice.errors import Unavailable
from fairnotice.words import ImpactKind, Outcome

STEPS: Mapping[ImpactKind, Callable[[Footing], Awaitable[None]]] = {
    ImpactKind.FREEZE: pauses.freeze,
    ImpactKind.REBOOT: powering.reboot,
    ImpactKind.MIGRATE: migrating.migrate,
    ImpactKind.REDEPLOY: moves.redeploy,
    ImpactKind.STOP: powering.stop,
    ImpactKind.DEALLOCATE: powering.deallocate,
    ImpactKind.START: moves.start,
    ImpactKind.DELETE: powering.delete,
}


async def carry_out(on: Footing) -> Report:
    """Walk the steps that are left; how it ended, as it is written now."""
    try:
        await STEPS[on.record.kind](on)
    except (Superseded, Failed, Trouble) as error:
        # Whatever went wrong: once it is called ended, nobody looks for a VM that we have paused.
        with suppress(Failed, Trouble):
            await pauses.thaw(on)
        await _end(on, Outcome.FAILED, f"{error}{_lacking(on, error)}")
    else:
        await _end(on, Outcome.DONE, "")
    return on.record.report


def _lacking(on: Footing, error: Exception) -> str:
    """What the target of a migration lacks in the configuration, where libvirt has refused one."""
    target = on.hosts.get(on.record.target)
    if on.record.kind is not ImpactKind.MIGRATE or target is None or not isinstance(error, Trouble):
        return ""
    lacking = target.address.lacking_for_peers
    return f" ({target.name} may be out of reach for other nodes: {lacking})" if lacking else ""


async def _end(on: Footing, outcome: Outcome, reason: str) -> None:
    """Write it down; Unavailable where that is refused: whoever asks then finds what there is."""
    on.record = on.record._replace(phase=records.ENDED, outcome=outcome, reason=reason)
    try:
        await _write_end(on)
    except Trouble as error:
        raise Unavailable(f"the end of {on.record.key} cannot be written: {error}") from error


async def _write_end(on: Footing) -> None:
    with suppress(Superseded):
        await moves.give_autostart_back(on)
    deleted = on.record.kind is ImpactKind.DELETE
    if not (deleted and on.record.outcome is Outcome.DONE):
        await restarts.give_restart_back(on, await on.places())
        await on.write()
    if not deleted:
        return
    forgotten = on.clock.wall() - timedelta(days=on.settings.kept_days)
    for host in on.hosts.values():
        with suppress(Unavailable):
            if await in_time(host, host.noted(on.record.key), (on.record.source,)) is not None:
                await on.again(partial(host.note, on.record))
                await on.again(partial(host.forget, forgotten, on.record.key))
