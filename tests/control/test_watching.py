"""What befalls machines without our doing, told to the law once it is sure."""

import asyncio

from fairnotice.control.watching import PAUSE_SECONDS, Watchman
from fairnotice.drivers.driver import Found, Survey
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.engine.commands import (
    ApplyFleet,
    Approve,
    Deallocate,
    FailNode,
    Redeploy,
    ReportOutcome,
    Start,
    Stop,
)
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import NodeHealth, OperationStatus, Outcome, Power, Role
from tests.conductor.orchestra import FLEET, USER, conducting, restart, settled

NODES = frozenset(node.name for node in FLEET.nodes)
OPERATOR = Requester("olga", Role.OPERATOR)
ALL = {vm.name: Found(vm.name, vm.node, Power.RUNNING) for vm in FLEET.vms}
WITHOUT_DB = FLEET._replace(vms=tuple(vm for vm in FLEET.vms if vm.name != "db"))


async def nothing():
    """Nothing happens."""


class Eyes:
    """A driver that sees what a test says, and then takes as long as the test says."""

    def __init__(self):
        self.seen = dict(ALL)
        self.away = frozenset()
        self.unsure = frozenset()
        self.meanwhile = nothing
        # How often it was asked what there is, and whether there is news.
        self.surveys = self.waits = 0

    async def survey(self, epoch, failed_nodes=frozenset()):  # noqa: ARG002
        self.surveys += 1
        seen, reached = tuple(self.seen.values()), NODES - self.away
        survey = Survey(seen, reached, self.away, self.away <= failed_nodes, self.unsure)
        await self.meanwhile()
        return survey

    async def news(self):
        self.waits += 1
        await asyncio.Event().wait()


class Machines:
    """A fleet with a watchman, and impacts that end when a test says so."""

    def __init__(self, conductor, store, clock):
        self.conductor, self.store, self.clock = conductor, store, clock
        self.eyes = Eyes()
        self.watchman = Watchman(conductor, self.eyes, clock)

    async def announce(self, command):
        """Ask for it; what its VM has to say so that it begins."""
        decision = await self.conductor.submit(command)
        (vm,) = command.vms
        return Approve(events=decision.answer.events, by=Requester(vm, Role.VM))

    async def begin(self, command):
        """Ask for it, and approve it."""
        approval = await self.announce(command)
        if approval.events:
            await self.conductor.submit(approval)
        assert set(command.vms) <= set(self.conductor.fleet.impact_on_vm)

    async def end(self, vm, outcome=Outcome.DONE):
        """What is under way on this VM is over."""
        key = self.conductor.fleet.impact_on_vm[vm]
        await self.conductor.submit(ReportOutcome(key=key, outcome=outcome))

    def sees(self, vm, node, power):
        """From now on this VM is seen so."""
        self.eyes.seen[vm] = Found(vm, node, power)

    async def look(self, *meanwhile):
        """Look, while these happen one after another; whether to look again soon."""

        async def happen():
            for one in meanwhile:
                await one

        self.eyes.meanwhile = happen
        again = await self.watchman.look()
        self.eyes.meanwhile = nothing
        return again

    def power(self, vm):
        """As the law has it."""
        return self.conductor.fleet.vms[vm].power


def told(story):
    """Have this happen to a fleet whose impacts end when the story says so."""

    async def tell():
        clock = ManualClock()
        driver = SimulatedDriver(clock)
        driver.next_hangs(standing=True)
        store = MemoryStore()
        async with conducting(store, driver, clock) as conductor:
            await story(Machines(conductor, store, clock))

    asyncio.run(tell())


def test_what_is_seen_of_machines_is_in_the_fleet(caplog):
    """Stopped; gone when it is missed twice, and nobody is away; what is unknown is said once."""

    async def story(machines):
        fleet, eyes = machines.conductor.fleet, machines.eyes
        before = fleet.revision
        await machines.look()
        assert fleet.revision == before
        machines.sees("db", "node-3", Power.STOPPED)
        await machines.look()
        assert machines.power("db") is Power.STOPPED
        del eyes.seen["db"]
        eyes.away = frozenset({"node-1"})
        await machines.look()
        await machines.look()
        assert fleet.nodes["node-1"].health is NodeHealth.UNREACHABLE
        assert "db" in fleet.vms
        eyes.away = frozenset()
        await machines.look()
        assert fleet.nodes["node-1"].health is NodeHealth.REACHABLE
        assert "db" in fleet.vms
        machines.sees("new", "node-9", Power.RUNNING)
        machines.sees("web-0", "node-9", Power.RUNNING)
        await machines.look()
        await machines.look()
        assert "db" not in fleet.vms
        assert fleet.vms["web-0"].node == "node-0"

    told(story)
    assert caplog.text.count("new runs on node-9, and the fleet does not have it") == 1
    assert caplog.text.count("is no node of this fleet") == 1


# ---- What is done to a VM while it is looked at ----


def test_a_vm_that_was_off_during_its_reboot_is_not_told_to_be_stopped():
    """The reboot ends while another node is slow: what waits for the VM goes on waiting."""

    async def story(machines):
        await machines.begin(restart("first", "db"))
        await machines.conductor.submit(restart("second", "db"))
        machines.sees("db", "node-3", Power.STOPPED)
        await machines.look(machines.end("db"))
        assert machines.power("db") is Power.RUNNING
        assert machines.conductor.fleet.operations["second"].status is OperationStatus.PENDING

    told(story)


def test_a_vm_that_was_rebooted_during_a_look_is_not_told_to_be_stopped():
    """Nothing was done to it before the look, nor after it; in between it was off."""

    async def story(machines):
        machines.sees("db", "node-3", Power.STOPPED)
        await machines.look(machines.begin(restart("first", "db")), machines.end("db"))
        assert machines.power("db") is Power.RUNNING

    told(story)


def test_a_vm_that_was_off_before_it_was_started_is_not_told_to_be_stopped():
    """To the law it runs as soon as its start begins, before the look as after it."""

    async def story(machines):
        await machines.begin(Stop(id="stop", by=USER, vms=("db",)))
        await machines.end("db")
        await machines.begin(Start(id="start", by=USER, vms=("db",)))
        machines.sees("db", "node-3", Power.STOPPED)
        await machines.look(machines.end("db"))
        assert machines.power("db") is Power.RUNNING

    told(story)


def test_a_vm_whose_start_fails_during_a_look_is_not_told_to_run():
    """It ran for a moment; to the law it is stopped before the look as after it."""

    async def story(machines):
        await machines.begin(Stop(id="stop", by=USER, vms=("db",)))
        await machines.end("db")
        machines.sees("db", "node-3", Power.RUNNING)
        start = machines.begin(Start(id="start", by=USER, vms=("db",)))
        await machines.look(start, machines.end("db", Outcome.FAILED))
        assert machines.power("db") is Power.STOPPED

    told(story)


def test_a_vm_that_goes_back_from_a_redeploy_is_not_told_to_have_moved():
    """It was seen where it was put first, and where it could not stay."""

    async def story(machines):
        await machines.begin(Redeploy(id="redeploy", by=USER, vms=("db",)))
        machines.sees("db", "node-0", Power.RUNNING)
        await machines.look(machines.end("db", Outcome.FAILED))
        assert machines.conductor.fleet.vms["db"].node == "node-3"

    told(story)


def test_what_is_done_to_a_vm_while_the_law_is_told_of_others_counts():
    """Four were off; until the law is told of the last one, that has been rebooted."""

    async def story(machines):
        for vm in FLEET.vms:
            machines.sees(vm.name, vm.node, Power.STOPPED)
        approval = await machines.announce(restart("first", "db"))

        async def reboot():
            await machines.conductor.submit(approval)
            await machines.end("db")

        class Hasty:
            """Has the last one rebooted as soon as the law was told of the first."""

            rebooting = None

            def loaded(self, fleet):
                """It was told of none yet."""

            def committed(self, fleet, changes):  # noqa: ARG002
                """It was told of one."""
                self.rebooting = self.rebooting or asyncio.ensure_future(reboot())

        hasty = Hasty()
        machines.conductor.feed.follow(hasty)
        await machines.look()
        await hasty.rebooting
        assert machines.power("web-2") is Power.STOPPED
        assert machines.power("db") is Power.RUNNING

    told(story)


def test_a_vm_that_is_deleted_during_a_look_is_not_said_to_be_unknown(caplog):
    """It was in the fleet when it was seen."""

    async def story(machines):
        await machines.look(machines.conductor.submit(ApplyFleet(spec=WITHOUT_DB)))
        assert "db" not in machines.conductor.fleet.vms

    told(story)
    assert "does not have it" not in caplog.text


# ---- And yet it is told ----


def test_a_vm_that_is_stopped_by_hand_during_a_reboot_is_told_of():
    """Another one's reboot holds nothing up; its own only those looks that overlap it."""

    async def story(machines):
        await machines.begin(restart("first", "db"))
        machines.sees("db", "node-3", Power.STOPPED)
        machines.sees("web-0", "node-0", Power.STOPPED)
        # The reboot goes on, and when it is over there is news.
        assert not await machines.look()
        assert machines.power("web-0") is Power.STOPPED
        assert machines.power("db") is Power.RUNNING
        # Stopped by hand as soon as it is over: this look cannot tell that from the reboot.
        assert await machines.look(machines.end("db"))
        assert machines.power("db") is Power.RUNNING
        assert not await machines.look()
        assert machines.power("db") is Power.STOPPED

    told(story)


def test_what_a_look_left_out_is_looked_at_again_without_waiting_for_news():
    """The news that it was stopped by hand led to the look that could not believe it."""

    async def story(machines):
        machines.sees("db", "node-3", Power.STOPPED)
        approval = await machines.announce(restart("first", "db"))

        async def reboot():
            machines.eyes.meanwhile = nothing
            await machines.conductor.submit(approval)
            await machines.end("db")

        machines.eyes.meanwhile = reboot
        watching = asyncio.ensure_future(machines.watchman.watching())
        while not machines.eyes.waits:
            machines.clock.advance(seconds=PAUSE_SECONDS)
            await settled(turns=1)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert machines.eyes.surveys == 2
        assert machines.power("db") is Power.STOPPED

    told(story)


# ---- Gone ----


def test_a_vm_that_is_missed_before_and_after_an_impact_is_not_gone_yet():
    """A node that is asked before a move and one that is asked after it both have it not."""

    async def story(machines):
        del machines.eyes.seen["db"]
        await machines.look()
        await machines.begin(restart("first", "db"))
        await machines.look()
        await machines.end("db")
        await machines.look()
        assert "db" in machines.conductor.fleet.vms
        await machines.look()
        assert "db" not in machines.conductor.fleet.vms

    told(story)


def test_a_vm_that_was_removed_by_hand_is_gone_though_a_node_has_failed():
    """It is not waited for; but who was there, or has given up a place, is to come back with it."""

    async def story(machines):
        vms, eyes = machines.conductor.fleet.vms, machines.eyes
        await machines.begin(Deallocate(id="off", by=USER, vms=("web-1",)))
        await machines.end("web-1")
        await machines.conductor.submit(FailNode(id="fail", by=OPERATOR, node="node-3"))
        await machines.end("db", Outcome.FAILED)
        eyes.away, eyes.seen = frozenset({"node-3", "node-2"}), {"web-2": eyes.seen["web-2"]}
        for _ in range(3):
            await machines.look()
        assert sorted(vms) == ["db", "web-0", "web-1", "web-2"]
        eyes.away = frozenset({"node-3"})
        for _ in range(3):
            await machines.look()
        assert sorted(vms) == ["db", "web-1", "web-2"]
        # It is switched on, and has nobody.
        eyes.away = frozenset()
        await machines.look()
        assert "db" in vms
        await machines.look()
        assert sorted(vms) == ["web-2"]

    told(story)


def test_a_vm_that_is_declared_anew_was_not_missed_yet():
    """Whoever declares it makes it next."""

    async def story(machines):
        del machines.eyes.seen["db"]
        await machines.look()
        await machines.conductor.submit(ApplyFleet(spec=WITHOUT_DB))
        await machines.conductor.submit(ApplyFleet(spec=FLEET))
        await machines.look()
        assert "db" in machines.conductor.fleet.vms

    told(story)


def test_what_was_missed_before_another_led_is_not_missed_again():
    """Hours may be between the two looks, and in them it was seen by the other."""

    async def story(machines):
        del machines.eyes.seen["db"]
        await machines.look()
        machines.store.lead()
        machines.conductor.epoch = machines.store.lead()
        await machines.look()
        assert "db" in machines.conductor.fleet.vms
        await machines.look()
        assert "db" not in machines.conductor.fleet.vms

    told(story)


def test_a_vm_of_which_nothing_can_be_told_is_not_gone():
    """Two machines claim to be it. What was missed before is to be missed anew."""

    async def story(machines):
        vms, eyes = machines.conductor.fleet.vms, machines.eyes
        del eyes.seen["db"]
        await machines.look()
        eyes.unsure = frozenset({"db"})
        await machines.look()
        await machines.look()
        assert machines.power("db") is Power.RUNNING
        eyes.unsure = frozenset()
        await machines.look()
        assert "db" in vms
        await machines.look()
        assert "db" not in vms

    told(story)
