"""The platform's promise, held against what VMs saw: each check says in sentences what was broken.

Checked from outside, by what was shown and done, and without the code that decides it. A poll sees
a moment, never the instant at which something happened; so every check asks only for what must be
true whichever instant that was, and none can fail because a machine is slow.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from fairnotice.control import shapes
from fairnotice.control.scenario_sightings import Evidence, Promised, Shown, Sighting
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.words import EventSource, EventStatus, ImpactKind, ImpactStatus

# Between the instant that is announced from and the one it can be seen at lies one commit.
COMMIT_SECONDS = 0.1
# A VM that looks four times a second has seen what was there for so long.
SEEN_WITHIN_SECONDS = 3.0

_ORDER = {EventStatus.SCHEDULED: 0, EventStatus.STARTED: 1}
# What an impact changes of a machine, and what it leaves as it was.
_LOOKED_AT = ("boot_id", "node", "disk_generation", "power")
_CHANGED = {
    ImpactKind.FREEZE: set[str](),
    ImpactKind.MIGRATE: {"node"},
    ImpactKind.REBOOT: {"boot_id"},
    ImpactKind.REDEPLOY: {"boot_id", "node", "disk_generation"},
    ImpactKind.DEALLOCATE: {"node", "power"},
}

Check = Callable[[Evidence, Promised], Iterator[str]]


def broken(evidence: Evidence, promised: Promised, *, over: bool = True) -> list[str]:
    """What was broken, a sentence each; of a story that did not end, only what holds always."""
    checks = (*ALWAYS, *AT_THE_END) if over else ALWAYS
    found = (sentence for check in checks for sentence in check(evidence, promised))
    return list(dict.fromkeys(found))


def _all(evidence: Evidence) -> Iterator[Sighting]:
    return (sighting for seen in evidence.sightings.values() for sighting in seen)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.1f} s"


# ---- While it goes on ----


def not_before_kept(evidence: Evidence, _: Promised) -> Iterator[str]:
    """Nothing is seen Started before its NotBefore, unless it was approved."""
    not_before: dict[str, datetime] = {}
    found: set[str] = set()
    for sighting in sorted(_all(evidence), key=lambda one: one.at):
        for event in sighting.events:
            if event.not_before is not None:
                # One that was asked for earlier may be answered later.
                known = not_before.get(event.id, event.not_before)
                not_before[event.id] = max(known, event.not_before)
            elif event.id in not_before and event.id not in found:
                early = not_before[event.id] - sighting.at
                approved_at = evidence.approved.get(event.id, sighting.at)
                if early > timedelta(0) and approved_at >= sighting.at:
                    found.add(event.id)
                    yield (
                        f"NotBefore was not kept: {event} was Started {_seconds(early)} before it,"
                        " and nobody had approved it."
                    )


def notice_given(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """NotBefore is at least the notice away from the last look that did not show the event."""
    for seen in evidence.sightings.values():
        for last, now in pairwise(seen):
            for event in now.events:
                if event.not_before is None or last.event(event.id) is not None:
                    continue
                notice = promised.notice_of(event.type)
                given = event.not_before - last.asked_at
                if given < timedelta(seconds=notice - COMMIT_SECONDS):
                    yield (
                        f"Too little notice: {now.vm} had at most {_seconds(given)} from seeing "
                        f"{event} to its NotBefore, {notice} s were promised."
                    )


def never_earlier(evidence: Evidence, _: Promised) -> Iterator[str]:
    """An announced NotBefore may be put off; it is never brought forward."""
    for last, now, before in _known_before(evidence):
        after = now.event(before.id)
        assert after is not None
        if before.not_before and after.not_before and after.not_before < before.not_before:
            yield (
                f"NotBefore was brought forward: {last.vm} was shown {before.not_before:%H:%M:%S} "
                f"for {before}, and then {after.not_before:%H:%M:%S}."
            )


def steady(evidence: Evidence, _: Promised) -> Iterator[str]:
    """An event stays what it is: type, source and words; its resources only get fewer."""
    for last, now, before in _known_before(evidence):
        after = now.event(before.id)
        assert after is not None
        same = (before.type, before.source, before.description)
        if same != (after.type, after.source, after.description):
            yield f"An event became another one: {last.vm} saw {before} become {after}."
        if not set(after.resources) <= set(before.resources):
            yield f"An event grew: {last.vm} saw {before} become {after}."


def _known_before(evidence: Evidence) -> Iterator[tuple[Sighting, Sighting, Shown]]:
    """Two looks of one VM in a row, and an event that both show, as the first one does."""
    for seen in evidence.sightings.values():
        for last, now in pairwise(seen):
            for before in last.events:
                if now.event(before.id) is not None:
                    yield last, now, before


def life_in_order(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """Scheduled, Started, gone: one way, and from the beginning unless hardware has failed."""
    announced = {
        event.id
        for sighting in _all(evidence)
        for event in sighting.events
        if event.status is EventStatus.SCHEDULED
    }
    for vm, seen in evidence.sightings.items():
        reached: dict[str, int] = {}
        for sighting in seen:
            for event in sighting.events:
                step, before = _ORDER[event.status], reached.get(event.id, 0)
                if before > _ORDER[EventStatus.STARTED]:
                    yield f"{event} came back: {vm} had seen that it was gone."
                elif step < before:
                    yield f"{event} went backwards: {vm} saw it Started, then {event.status}."
                elif step and event.id not in announced and not promised.without_notice:
                    yield f"{event} was never announced: {vm} saw it Started at first sight."
                reached[event.id] = max(step, before)
            shown = {event.id for event in sighting.events}
            reached.update(dict.fromkeys(reached.keys() - shown, len(_ORDER)))


def incarnation_grows(evidence: Evidence, _: Promised) -> Iterator[str]:
    """DocumentIncarnation grows when the document changes, and only says the same once."""
    content: dict[tuple[str, int], tuple[Shown, ...]] = {}
    for vm, seen in evidence.sightings.items():
        scope = evidence.vms[vm].scope
        for last, now in pairwise(seen):
            if now.incarnation < last.incarnation:
                yield (
                    f"DocumentIncarnation went back: {vm} saw {last.incarnation}, "
                    f"then {now.incarnation}."
                )
        for sighting in seen:
            known = content.setdefault((scope, sighting.incarnation), sighting.events)
            if known != sighting.events:
                yield (
                    f"Two documents of {scope} had the same DocumentIncarnation "
                    f"{sighting.incarnation}; one of them was seen by {vm}."
                )


def struck_when_started(evidence: Evidence, _: Promised) -> Iterator[str]:
    """No machine is touched while the document it reads next says Scheduled of all its events."""
    for vm, seen in evidence.sightings.items():
        untouched = evidence.before.get(vm)
        for sighting in seen:
            machine = sighting.machine
            if untouched is None or machine is None or machine == untouched:
                continue
            mine = [event for event in sighting.events if vm in event.resources]
            if mine and all(event.status is EventStatus.SCHEDULED for event in mine):
                yield f"{vm} was touched while {mine[0]} was only Scheduled."
            break


def one_domain_at_a_time(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """No document ever shows the platform's events on two update domains of a set."""
    if promised.recovery_seconds is None:
        return
    for sighting in _all(evidence):
        struck = {
            evidence.vms[name].update_domain: name
            for event in sighting.events
            if event.source is EventSource.PLATFORM
            for name in event.resources
        }
        if len(struck) > 1:
            names = " and ".join(struck.values())
            yield f"Two update domains at once: {sighting.vm} saw events on {names}."


def recovery_kept(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """Between two update domains of a set lies the recovery that was promised."""
    if promised.recovery_seconds is None:
        return
    for seen in evidence.sightings.values():
        last: tuple[Sighting, Shown] | None = None
        for sighting in seen:
            for event in sighting.events:
                if last is not None and last[1].id != event.id:
                    pause = sighting.at - last[0].asked_at
                    if pause < timedelta(seconds=promised.recovery_seconds):
                        yield (
                            f"Too little recovery: {event} came {_seconds(pause)} after {last[1]}, "
                            f"{promised.recovery_seconds} s were promised."
                        )
                last = (sighting, event)


# ---- When it is over ----


def seen_by_its_scope(evidence: Evidence, _: Promised) -> Iterator[str]:
    """An event is shown to all VMs of its scope that look, and to no other."""
    for event in evidence.events:
        for vm, seen in evidence.sightings.items():
            saw = any(sighting.event(event.id) for sighting in seen)
            mine = evidence.vms[vm].scope == event.scope
            if saw and not mine:
                yield f"{vm} saw {_named(event)}, which is none of its scope's."
            elif mine and not saw and _could_see(seen, event.announced_at, event.gone_at):
                yield f"{vm} never saw {_named(event)}, although it looked."


def _could_see(seen: Iterable[Sighting], since: datetime, until: datetime | None) -> bool:
    """Whether a VM looked again and again while the event was there."""
    at = [one.at for one in seen if one.asked_at >= since and (until is None or one.at <= until)]
    return bool(at) and at[-1] - at[0] > timedelta(seconds=SEEN_WITHIN_SECONDS)


def recorded(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """The control plane's own record keeps the promise, too, and is complete."""
    for event in evidence.events:
        canceled = event.id in promised.canceled
        wanted = EventStatus.CANCELED if canceled else EventStatus.COMPLETED
        if event.status is not wanted:
            yield f"{_named(event)} ended {event.status}, not {wanted}: {event.reason or 'no why'}."
        started_at = event.started_at
        if started_at is None or promised.without_notice:
            continue
        given, notice = event.notice_given_seconds or 0.0, promised.notice_of(event.type)
        if not event.approvals and started_at < event.not_before:
            yield f"{_named(event)} is recorded as started before its NotBefore, unapproved."
        if not event.approvals and given < notice:
            yield f"{_named(event)} is recorded with {given:.1f} s of notice, not {notice} s."
        if event.id in evidence.approved and not event.approvals:
            yield f"The approval of {_named(event)} is not recorded."
        # What was there for a moment only may have been gone before it was noted down.
        if given > SEEN_WITHIN_SECONDS:
            yield from _who_saw(evidence, event)


def _who_saw(evidence: Evidence, event: shapes.Event) -> Iterator[str]:
    looks = evidence.sightings.items()
    saw = {vm for vm, seen in looks if any(one.event(event.id) for one in seen)}
    for vm in event.resources:
        if vm in saw and vm in event.never_seen:
            yield f"{vm} saw {_named(event)}, and the record says it never did."
        # In a service of others somebody else may look as this VM.
        if vm not in saw and vm not in event.never_seen and evidence.before:
            yield f"{vm} never saw {_named(event)}, and the record says it did."


def impact_once(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """Each VM was struck as announced, once; nobody else was, as far as anybody recorded."""
    for vm in evidence.vms:
        impacts = [impact for impact in evidence.impacts if impact.vm == vm]
        wanted = promised.struck.get(vm)
        done = [impact.kind for impact in impacts if impact.status is ImpactStatus.DONE]
        if done != ([] if wanted is None else [wanted]):
            yield (
                f"{vm} should have had {wanted or 'no impact'}{' once' if wanted else ''}, "
                f"and had {', '.join(done) or 'none'}."
            )
        for impact in impacts:
            if impact.status is not ImpactStatus.DONE:
                yield f"{impact.kind} of {vm} ended {impact.status}: {impact.reason}."


def machines_struck_once(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """The machines say the same: boot id, node, disk generation, and how often they were hit."""
    for vm, before in evidence.before.items():
        after, wanted = evidence.after.get(vm), promised.struck.get(vm)
        if wanted is ImpactKind.DELETE or after is None:
            if wanted is not ImpactKind.DELETE or after is not None:
                yield f"{vm} is {'gone' if after is None else 'still there'}, and should not be."
            continue
        hits = after.impacts - before.impacts
        if hits != (wanted is not None):
            times = "once" if wanted is not None else "not at all"
            yield f"{vm} should have been struck {times}, and was struck {hits} times."
        changed = _changed(before, after)
        should = set[str]() if wanted is None else _CHANGED[wanted]
        for what in sorted(changed ^ should):
            yield (
                f"{what} of {vm} {'changed' if what in changed else 'did not change'}, "
                f"which is not what {wanted or 'no impact'} does."
            )


def _changed(before: Machine, after: Machine) -> set[str]:
    return {what for what in _LOOKED_AT if getattr(before, what) != getattr(after, what)}


def canceled_is_canceled(evidence: Evidence, promised: Promised) -> Iterator[str]:
    """What was taken back never starts."""
    for sighting in _all(evidence):
        for event in sighting.events:
            if event.id in promised.canceled and event.status is EventStatus.STARTED:
                yield f"{event} was taken back, and {sighting.vm} saw it Started."


def _named(event: shapes.Event) -> str:
    return f"{event.type} of {', '.join(event.resources) or 'nobody'}"


ALWAYS: tuple[Check, ...] = (
    not_before_kept,
    notice_given,
    never_earlier,
    steady,
    life_in_order,
    incarnation_grows,
    struck_when_started,
    one_domain_at_a_time,
    recovery_kept,
)
AT_THE_END: tuple[Check, ...] = (
    seen_by_its_scope,
    recorded,
    impact_once,
    machines_struck_once,
    canceled_is_canceled,
)
