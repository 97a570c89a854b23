"""What is remembered of the journal while it is followed."""

import asyncio
import json
from contextlib import suppress

import pytest

from fairnotice.deliveries import queueing
from fairnotice.deliveries.queueing import Journal
from fairnotice.engine.commands import ApplyFleet, Heard, ReportServed
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.errors import Unavailable
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import Wrapped, conducting, restart
from tests.deliveries.test_retries import webhook


def fleet(*vms):
    """A node with these VMs, each a scope of its own."""
    return FleetSpec(nodes=(NodeSpec("n"),), vms=tuple(VmSpec(name, "n") for name in vms))


def test_scopes_that_come_and_go_for_years_are_not_all_remembered(monkeypatch):
    """The last that went are: an event may outlive its scope."""
    monkeypatch.setattr(queueing, "SCOPES_MAX", 3)

    async def story():
        clock, store = ManualClock(), MemoryStore()
        async with conducting(store, clock=clock, waking=False, declare=False) as conductor:
            store.add_webhook(webhook(), 0)
            journal = Journal(conductor, webhook(), 0, subscription="s", location="l")
            for number in range(10):
                await conductor.submit(ApplyFleet(spec=fleet("stays", f"vm-{number}")))
                await journal.queue(clock.wall(), clock.monotonic())
            assert journal.level
            return list(journal._scopes)

    assert asyncio.run(story()) == ["vm:vm-6", "vm:vm-7", "vm:vm-8"]


class FullAtFirst(Wrapped):
    """Cannot queue the first time."""

    def __init__(self, store):
        super().__init__(store)
        self.full = True

    def queue_deliveries(self, *given):
        if self.full:
            self.full = False
            raise Unavailable("the disk is full")
        return self.store.queue_deliveries(*given)


def in_group(group):
    """A VM in this resource group."""
    return ApplyFleet(spec=FleetSpec((NodeSpec("n"),), (VmSpec("db", "n", resource_group=group),)))


@pytest.mark.parametrize(
    ("lines", "from_the_middle"),
    [(lines, middle) for lines in (1, 2, 3, 1_000) for middle in (False, True)],
)
def test_what_befell_a_vm_is_told_of_the_group_it_was_in_then(monkeypatch, lines, from_the_middle):
    """Though it is read when the VM is in another, from wherever, and a write failed meanwhile."""
    monkeypatch.setattr(queueing, "PAGE_LINES", lines)

    async def story():
        clock, store = ManualClock(), FullAtFirst(MemoryStore())
        async with conducting(store, clock=clock, waking=False, declare=False) as conductor:
            await conductor.submit(in_group("old"))
            await conductor.submit(ReportServed(heard=(Heard("vm:db", clock.wall()),)))
            begin = conductor.feed.revision if from_the_middle else 0
            await conductor.submit(restart("first", "db"))
            for group in ("new", "newest"):
                await conductor.submit(in_group(group))
            told = webhook(resource_groups=("OLD", "newest"))
            store.add_webhook(told, begin)
            journal = Journal(conductor, told, begin, subscription="s", location="l")
            while not journal.level:
                with suppress(Unavailable):
                    await journal.queue(clock.wall(), clock.monotonic())
            assert journal._scopes == {}
            return [json.loads(one.content)["subject"] for _, one in store.deliveries("1", 9)]

    (subject,) = asyncio.run(story())
    assert subject.startswith("/subscriptions/s/resourceGroups/old/")
