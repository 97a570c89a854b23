"""What is remembered of the journal while it is followed."""

import asyncio

from fairnotice.deliveries import queueing
from fairnotice.deliveries.queueing import Journal
from fairnotice.engine.commands import ApplyFleet
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import conducting
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
