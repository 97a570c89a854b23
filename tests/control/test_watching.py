"""What befalls machines without our doing, told to the law once it is sure."""

import asyncio

from fairnotice.control.watching import Watchman
from fairnotice.drivers.driver import Found, Survey
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import NodeHealth, Power
from tests.conductor.orchestra import FLEET, conducting

NODES = frozenset(node.name for node in FLEET.nodes)
ALL = {vm.name: Found(vm.name, vm.node, Power.RUNNING) for vm in FLEET.vms}


class Eyes:
    """A driver that sees what a test says."""

    def __init__(self):
        self.seen = dict(ALL)
        self.away = frozenset()

    async def survey(self, epoch):  # noqa: ARG002
        return Survey(tuple(self.seen.values()), NODES - self.away, self.away, not self.away)

    async def news(self):
        await asyncio.sleep(0)


def test_what_is_seen_of_machines_is_in_the_fleet(caplog):
    """Stopped; gone when it is missed twice, and nobody is away; what is unknown is said once."""

    async def story():
        clock = ManualClock()
        async with conducting(MemoryStore(), clock=clock) as conductor:
            eyes = Eyes()
            watchman = Watchman(conductor, eyes, clock)
            await watchman.look()
            before = conductor.fleet.revision
            eyes.seen["db"] = Found("db", "node-3", Power.STOPPED)
            await watchman.look()
            assert conductor.fleet.vms["db"].power is Power.STOPPED
            del eyes.seen["db"]
            eyes.away = frozenset({"node-1"})
            await watchman.look()
            await watchman.look()
            assert conductor.fleet.nodes["node-1"].health is NodeHealth.UNREACHABLE
            assert "db" in conductor.fleet.vms
            eyes.away = frozenset()
            await watchman.look()
            assert conductor.fleet.nodes["node-1"].health is NodeHealth.REACHABLE
            assert "db" in conductor.fleet.vms
            eyes.seen["new"] = Found("new", "node-9", Power.RUNNING)
            eyes.seen["web-0"] = Found("web-0", "node-9", Power.RUNNING)
            await watchman.look()
            await watchman.look()
            assert "db" not in conductor.fleet.vms
            assert conductor.fleet.vms["web-0"].node == "node-0"
            return before

    asyncio.run(story())
    assert caplog.text.count("new runs on node-9, and the fleet does not have it") == 1
    assert caplog.text.count("is no node of this fleet") == 1
