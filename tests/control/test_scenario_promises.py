"""Whatever promise is broken, its check finds it: each planted once, in what VMs have seen."""

from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.control import scenario_promises as promises
from fairnotice.control import shapes
from fairnotice.control.scenario_sightings import Evidence, Promised, Shown, Sighting
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.engine import DEV
from fairnotice.words import (
    EventSource,
    EventStatus,
    EventType,
    EvictionPolicy,
    ImpactKind,
    ImpactStatus,
    Network,
    Power,
    Priority,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCOPE = "availability-set:web"


def after(seconds):
    """An instant of the story."""
    return NOON + timedelta(seconds=seconds)


def shown(not_before=None, name="E", vm="web-0", **more):
    """An event of a document: Scheduled where it has a NotBefore."""
    status = EventStatus.STARTED if not_before is None else EventStatus.SCHEDULED
    at = None if not_before is None else after(not_before)
    source = more.pop("source", EventSource.PLATFORM)
    return Shown(name, EventType.REBOOT, status, source, (vm,), at, **more)


def seen(*looks, vm="web-0", machines=()):
    """What a VM saw: (second, incarnation, events…)."""
    looked_at = dict(machines)
    return [
        Sighting(vm, after(at), after(at + 0.01), number, tuple(events), looked_at.get(at))
        for at, number, *events in looks
    ]


def a_vm(name, update_domain):
    """A VM of the set."""
    return shapes.Vm(
        name=name,
        computer_name=name,
        scope=SCOPE if name.startswith("web") else f"vm:{name}",
        node="node-0",
        fault_domain=0,
        update_domain=update_domain,
        power=Power.RUNNING,
        priority=Priority.REGULAR,
        eviction_policy=EvictionPolicy.DEALLOCATE,
        addresses=[],
        network=Network.VNET,
        resource_group="sample",
        zone=None,
        tags={},
        impact=None,
        events=[],
    )


VMS = {name: a_vm(name, number) for number, name in enumerate(("web-0", "web-1", "db"))}
BEFORE = Machine("web-0", "node-0", "one")
GOOD = seen(
    (0, 1), (1, 2, shown(16)), (15, 2, shown(16)), (17, 3, shown()), (18, 3, shown()), (19, 4)
)


def an_event(**more):
    """What the control plane remembers of it."""
    row = {
        "id": "E",
        "type": EventType.REBOOT,
        "status": EventStatus.COMPLETED,
        "source": EventSource.PLATFORM,
        "resources": ["web-0"],
        "not_before": after(16),
        "description": "",
        "duration_seconds": -1,
        "scope": SCOPE,
        "operation": "O",
        "node": "node-0",
        "update_domain": 0,
        "announced_at": after(0.5),
        "started_at": after(16),
        "gone_at": after(18.5),
        "notice_seconds": 15.5,
        "notice_given_seconds": 15.5,
        "approvals": [],
        "seen": [],
        "never_seen": [],
        "unconfirmed": [],
        "failed": [],
        "reason": "",
    }
    return shapes.Event(**{**row, **more})


def an_impact(status=ImpactStatus.DONE):
    """What the control plane remembers of the impact."""
    return shapes.Impact(
        vm="web-0",
        kind=ImpactKind.REBOOT,
        status=status,
        source="node-0",
        target=None,
        begun_at=after(16),
        ended_at=after(18),
        reason="",
    )


def evidence(looks=GOOD, approved=(), others=(), **more):
    """All that is known of a reboot of web-0, by default a good one."""
    row = {
        "events": [an_event()],
        "impacts": [an_impact()],
        "before": {"web-0": BEFORE},
        "after": {"web-0": BEFORE._replace(boot_id="two", impacts=1)},
        **more,
    }
    sightings = {"web-0": looks, **dict(others)}
    return Evidence(sightings, dict(approved), VMS, **row)


PROMISED = Promised(DEV, struck={"web-0": ImpactKind.REBOOT})
ROLLED_OUT = PROMISED._replace(recovery_seconds=5)
CANCELED = PROMISED._replace(canceled=frozenset({"E"}))
# By its story: the check, the evidence, the promise, and what is said of it.
PLANTED = {
    "started early": (
        promises.not_before_kept,
        evidence(seen((0, 1), (1, 2, shown(16)), (10, 3, shown()), (11, 3, shown()))),
        PROMISED,
        "NotBefore was not kept: Reboot of web-0 was Started 6.0 s before it",
    ),
    "approved after it had started": (
        promises.not_before_kept,
        evidence(seen((0, 1), (1, 2, shown(16)), (10, 3, shown())), {"E": after(11)}),
        PROMISED,
        "NotBefore was not kept",
    ),
    "short notice": (
        promises.notice_given,
        evidence(seen((0, 1), (1, 2, shown(14)))),
        PROMISED,
        "Too little notice: web-0 had at most 14.0 s",
    ),
    "brought forward": (
        promises.never_earlier,
        evidence(seen((0, 1), (1, 2, shown(17)), (2, 3, shown(16)))),
        PROMISED,
        "brought forward",
    ),
    "another event under the same id": (
        promises.steady,
        evidence(seen((1, 2, shown(16)), (2, 3, shown(16, description="other")))),
        PROMISED,
        "became another one",
    ),
    "more resources": (
        promises.steady,
        evidence(seen((1, 2, shown(16)), (2, 3, shown(16, vm="web-1")))),
        PROMISED,
        "An event grew",
    ),
    "back from the dead": (
        promises.life_in_order,
        evidence(seen((1, 2, shown(16)), (2, 3), (3, 4, shown(16)))),
        PROMISED,
        "came back",
    ),
    "Scheduled again": (
        promises.life_in_order,
        evidence(seen((1, 2, shown(16)), (17, 3, shown()), (18, 4, shown(30)))),
        PROMISED,
        "went backwards",
    ),
    "never announced": (
        promises.life_in_order,
        evidence(seen((0, 1), (1, 2, shown()))),
        PROMISED,
        "was never announced",
    ),
    "incarnation went back": (
        promises.incarnation_grows,
        evidence(seen((0, 3), (1, 2, shown(16)))),
        PROMISED,
        "DocumentIncarnation went back: web-0 saw 3, then 2",
    ),
    "another document, same incarnation": (
        promises.incarnation_grows,
        evidence(seen((0, 2), (1, 2, shown(16)))),
        PROMISED,
        "the same DocumentIncarnation 2",
    ),
    "two VMs, two documents": (
        promises.incarnation_grows,
        evidence(others={"web-1": seen((1, 2), vm="web-1")}),
        PROMISED,
        "the same DocumentIncarnation 2; one of them was seen by web-1",
    ),
    "touched while Scheduled": (
        promises.struck_when_started,
        evidence(
            seen((1, 2, shown(16)), (2, 2, shown(16)), machines={2: BEFORE._replace(paused=True)})
        ),
        PROMISED,
        "web-0 was touched while Reboot of web-0 was only Scheduled",
    ),
    "two update domains": (
        promises.one_domain_at_a_time,
        evidence(seen((1, 2, shown(16), shown(17, "F", "web-1")))),
        ROLLED_OUT,
        "Two update domains at once: web-0 saw events on web-0 and web-1",
    ),
    "no recovery": (
        promises.recovery_kept,
        evidence(seen((1, 2, shown()), (2, 3), (4, 4, shown(20, "F", "web-1")))),
        ROLLED_OUT,
        "Too little recovery: Reboot of web-1 came 3.0 s after Reboot of web-0",
    ),
    "shown to a stranger": (
        promises.seen_by_its_scope,
        evidence(others={"db": seen((1, 2, shown(16)), vm="db")}),
        PROMISED,
        "db saw Reboot of web-0, which is none of its scope's",
    ),
    "hidden from one of its own": (
        promises.seen_by_its_scope,
        evidence(others={"web-1": seen((1, 1), (5, 1), (9, 1), vm="web-1")}),
        PROMISED,
        "web-1 never saw Reboot of web-0, although it looked",
    ),
    "canceled by nobody": (
        promises.recorded,
        evidence(events=[an_event(status=EventStatus.CANCELED)]),
        PROMISED,
        "ended Canceled, not Completed",
    ),
    "recorded as early": (
        promises.recorded,
        evidence(events=[an_event(started_at=after(15), notice_given_seconds=15.0)]),
        PROMISED,
        "recorded as started before its NotBefore",
    ),
    "recorded with little notice": (
        promises.recorded,
        evidence(events=[an_event(notice_given_seconds=14.0)]),
        PROMISED,
        "recorded with 14.0 s of notice, not 15 s",
    ),
    "approval forgotten": (
        promises.recorded,
        evidence(approved={"E": after(2)}),
        PROMISED,
        "The approval of Reboot of web-0 is not recorded",
    ),
    "seen and not noted": (
        promises.recorded,
        evidence(events=[an_event(never_seen=["web-0"])]),
        PROMISED,
        "the record says it never did",
    ),
    "noted and not seen": (
        promises.recorded,
        evidence(looks=[]),
        PROMISED,
        "the record says it did",
    ),
    "no impact": (
        promises.impact_once,
        evidence(impacts=[]),
        PROMISED,
        "web-0 should have had reboot once, and had none",
    ),
    "impact recorded twice": (
        promises.impact_once,
        evidence(impacts=[an_impact(), an_impact()]),
        PROMISED,
        "and had reboot, reboot",
    ),
    "impact failed": (
        promises.impact_once,
        evidence(impacts=[an_impact(), an_impact(ImpactStatus.FAILED)]),
        PROMISED,
        "reboot of web-0 ended failed",
    ),
    "memory kept": (
        promises.machines_struck_once,
        evidence(after={"web-0": BEFORE._replace(impacts=1)}),
        PROMISED,
        "boot_id of web-0 did not change",
    ),
    "struck twice": (
        promises.machines_struck_once,
        evidence(after={"web-0": BEFORE._replace(boot_id="three", impacts=2)}),
        PROMISED,
        "web-0 should have been struck once, and was struck 2 times",
    ),
    "struck by mistake": (
        promises.machines_struck_once,
        evidence(after={"web-0": BEFORE._replace(impacts=1)}),
        PROMISED._replace(struck={}),
        "web-0 should have been struck not at all, and was struck 1 times",
    ),
    "machine vanished": (
        promises.machines_struck_once,
        evidence(after={}),
        PROMISED,
        "web-0 is gone, and should not be",
    ),
    "canceled and started": (
        promises.canceled_is_canceled,
        evidence(),
        CANCELED,
        "was taken back, and web-0 saw it Started",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_broken_promise_is_found(name):
    """By its own check, once, in a sentence that says what was broken."""
    check, planted, promised, sentence = PLANTED[name]

    (found,) = dict.fromkeys(check(planted, promised))
    assert sentence in found
    assert found in promises.broken(planted, promised)


def test_a_kept_promise_is_left_alone():
    """The reboot from which the planted ones differ."""
    assert promises.broken(evidence(), PROMISED) == []


def test_every_check_has_a_planted_fault():
    """No check is there that cannot fail."""
    planted = {check for check, *_ in PLANTED.values()}

    assert planted == {*promises.ALWAYS, *promises.AT_THE_END}


def test_an_early_start_is_fine_when_it_was_approved():
    """The approval was sent before the start was seen."""
    early = seen((0, 1), (1, 2, shown(16)), (10, 3, shown()))

    assert not list(promises.not_before_kept(evidence(early, {"E": after(9)}), PROMISED))
