"""From the law to the machines and back."""

import asyncio
from datetime import timedelta

import pytest

from fairnotice.drivers.driver import Report
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine.commands import FailNode, NodeOperation
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus, ImpactStatus, OperationKind, Outcome, Role
from tests.conductor.orchestra import (
    Failing,
    approve,
    conducting,
    only_impact,
    restart,
    settled,
    simulated,
    started,
)

OPERATOR = Requester("olga", Role.OPERATOR)


def test_time_passes_and_the_event_starts_and_ends():
    """Nobody approves: at NotBefore the machine reboots, and the event is gone."""

    async def story():
        clock = ManualClock()
        driver = SimulatedDriver(clock)
        async with conducting(driver=driver, clock=clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            clock.advance(minutes=14, seconds=59)
            await settled(turns=10)
            assert conductor.fleet.events[event].status is EventStatus.SCHEDULED
            clock.advance(seconds=2)
            await settled(turns=10)
            assert conductor.fleet.events[event].status is EventStatus.STARTED
            clock.advance(minutes=2)
            await settled(turns=10)
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED
            assert driver.machine("db").impacts == 1

    asyncio.run(story())


def test_the_order_says_what_the_driver_needs():
    """Key, VM, kind, node, event, duration and limit; and that its node has failed."""

    async def story():
        clock = ManualClock()
        orders = []

        class Listening(SimulatedDriver):
            async def impact(self, order, epoch):
                orders.append((order, epoch))
                return await super().impact(order, epoch)

        async with conducting(driver=Listening(clock), clock=clock) as conductor:
            command = NodeOperation(
                id="upd",
                by=OPERATOR,
                node="node-3",
                kind=OperationKind.HOST_UPDATE,
                duration_seconds=9,
            )
            decision = await conductor.submit(command)
            clock.advance(minutes=16)
            await settled(turns=10)
            ((order, epoch),) = orders
            assert epoch == conductor.epoch == 1
            assert order.vm == "db"
            assert order.node == "node-3"
            assert order.kind.value == "freeze"
            assert order.duration_seconds == 9
            assert (order.event,) == decision.answer.events
            assert order.key == f"{decision.answer.operations[0]}/db"
            assert order.limit_seconds == 69
            assert not order.failed_nodes
            await conductor.submit(FailNode(id="f", by=OPERATOR, node="node-3"))
            await settled(turns=10)
            moved = orders[-1][0]
            assert (moved.vm, moved.node, moved.kind.value) == ("db", "node-3", "redeploy")
            assert moved.node_failed
            assert moved.failed_nodes == {"node-3"}

    asyncio.run(story())


def test_a_node_that_fails_while_a_driver_cannot_say_is_told_with_the_next_question():
    """A second one is declared failed a moment later: then nobody has to be asked there."""
    told = []

    class Blind(SimulatedDriver):
        async def impact(self, order, epoch):
            told.append(order.failed_nodes)
            if "node-2" not in order.failed_nodes:
                raise Unavailable("node-2 does not answer")
            return await super().impact(order, epoch)

        async def outcome(self, _, __, failed_nodes=frozenset()):
            told.append(failed_nodes)
            if "node-2" not in failed_nodes:
                raise Unavailable("node-2 does not answer")
            return Report(Outcome.NOT_BEGUN)

    async def story():
        clock = ManualClock()
        async with conducting(driver=Blind(clock, durations=AT_ONCE), clock=clock) as conductor:
            await conductor.submit(FailNode(id="first", by=OPERATOR, node="node-3"))
            for _ in range(3):
                await settled(turns=10)
                clock.advance(seconds=1)
            assert set(told) == {frozenset({"node-3"})}
            await conductor.submit(FailNode(id="second", by=OPERATOR, node="node-2"))
            for _ in range(4):
                await settled(turns=10)
                clock.advance(seconds=1)
            assert told[-1] == {"node-2", "node-3"}
            assert conductor.fleet.impacts["first/db"].status is ImpactStatus.DONE

    asyncio.run(story())


def test_a_driver_that_fails_is_believed():
    """The impact ends failed, with the reason, and frees its VM."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_fails("web-0", "no power")
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            impact = only_impact(conductor)
            assert impact.status is ImpactStatus.FAILED
            assert "no power" in impact.reason

    asyncio.run(story())


def test_a_driver_that_breaks_leaves_the_outcome_unknown():
    """An exception of its own says nothing about the machine."""

    async def story():
        clock = ManualClock()

        class Broken(SimulatedDriver):
            async def impact(self, *_):
                raise ZeroDivisionError

        async with conducting(driver=Broken(clock), clock=clock) as conductor:
            await started(conductor)
            impact = only_impact(conductor)
            assert impact.status is ImpactStatus.FAILED
            assert impact.reason == "outcome unknown"

    asyncio.run(story())


def test_a_driver_that_hangs_is_given_up_on():
    """After the limit of its kind the impact has timed out and its VM is free."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_hangs("web-0")
        async with conducting(driver=driver, clock=clock) as conductor:
            event = await started(conductor)
            clock.advance(minutes=11)
            await settled(turns=10)
            assert only_impact(conductor).status is ImpactStatus.TIMED_OUT
            assert not conductor.fleet.events[event].visible

    asyncio.run(story())


def test_a_driver_that_was_away_is_asked_first_and_begins_what_was_not_begun():
    """It refuses once, says "not begun", and then carries it out, once."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_refuses("web-0")
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            assert only_impact(conductor).live
            for _ in range(3):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert only_impact(conductor).status is ImpactStatus.DONE
            assert driver.machine("web-0").impacts == 1

    asyncio.run(story())


def test_what_the_law_has_given_up_on_is_not_begun_any_more():
    """The driver is away for longer than the limit; when it is back, nothing happens."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_refuses("web-0", standing=True)
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            for _ in range(12):
                clock.advance(minutes=1)
                await settled(turns=3)
            assert only_impact(conductor).status is ImpactStatus.TIMED_OUT
            driver.clear_faults()
            clock.advance(minutes=1)
            await settled(turns=10)
            assert not driver.begun()

    asyncio.run(story())


@pytest.mark.parametrize("answers", [True, False])
def test_after_a_restart_the_driver_is_asked(tmp_path, answers):
    """One that can answer says it is under way, then done; one that cannot leaves it unknown."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        path = tmp_path / "machines" if answers else None
        async with conducting(store, SimulatedDriver(clock, path=path), clock) as first:
            event = await started(first)
            assert only_impact(first).live
        driver = SimulatedDriver(clock, path=path)
        async with conducting(store, driver, clock, declare=False) as second:
            await settled(turns=10)
            if not answers:
                assert only_impact(second).reason == "outcome unknown"
                return
            assert only_impact(second).live
            assert not only_impact(second).asked
            clock.advance(minutes=2)
            await settled(turns=10)
            assert only_impact(second).status is ImpactStatus.DONE
            assert not second.fleet.events[event].visible
            assert driver.machine("web-0").impacts == 1

    asyncio.run(story())


def test_after_a_restart_what_was_not_begun_is_begun_once(tmp_path):
    """The intent is durable, the process died before the driver heard of it."""

    async def story():
        store, clock = MemoryStore(), ManualClock()

        class Deaf(SimulatedDriver):
            async def impact(self, *_):
                await asyncio.Event().wait()

        path = tmp_path / "machines"
        async with conducting(store, Deaf(clock, path=path), clock) as first:
            await started(first)
        driver = simulated(clock, path=path)
        async with conducting(store, driver, clock, declare=False) as second:
            await settled(turns=20)
            assert only_impact(second).status is ImpactStatus.DONE
            assert driver.machine("web-0").impacts == 1

    asyncio.run(story())


def test_an_outcome_is_reported_until_it_is_durable():
    """The store is away when the machine is done: the report comes again when it is back."""

    async def story():
        store, clock = Failing(), ManualClock()
        driver = SimulatedDriver(clock)
        async with conducting(store, driver, clock) as conductor:
            event = await started(conductor)
            store.broken = True
            clock.advance(minutes=2)
            await settled(turns=10)
            assert conductor.fleet.events[event].visible
            store.broken = False
            for _ in range(3):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED

    asyncio.run(story())


def test_a_driver_that_cannot_say_is_asked_again():
    """Unavailable when asked for the outcome: again a second later."""

    async def story():
        store, clock = MemoryStore(), ManualClock()

        class Shy(SimulatedDriver):
            asked = 0

            async def outcome(self, key, epoch, failed_nodes=frozenset()):
                Shy.asked += 1
                if Shy.asked < 3:
                    raise Unavailable("the hypervisor does not answer")
                return (await super().outcome(key, epoch, failed_nodes))._replace(
                    outcome=Outcome.DONE
                )

        async with conducting(store, SimulatedDriver(clock), clock) as first:
            await started(first)
        async with conducting(store, Shy(clock), clock, declare=False) as second:
            for _ in range(3):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert only_impact(second).status is ImpactStatus.DONE

    asyncio.run(story())


def test_what_the_law_has_ended_meanwhile_is_not_begun():
    """The driver refuses, the node fails, the VM is redeployed: the reboot never comes."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_refuses("web-0")
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            await conductor.submit(FailNode(id="f", by=OPERATOR, node="node-0"))
            for _ in range(5):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert driver.begun() == ("f/web-0",)

    asyncio.run(story())


def test_an_impact_that_ends_in_the_commit_that_began_it_is_not_begun():
    """Approved and its node failed, both in one commit."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        async with conducting(driver=driver, clock=clock) as conductor:
            decision = await conductor.submit(restart("r", "web-0"))
            (event,) = decision.answer.events
            await asyncio.gather(
                conductor.submit(approve(event)),
                conductor.submit(FailNode(id="f", by=OPERATOR, node="node-0")),
            )
            await settled(turns=10)
            assert driver.begun() == ("f/web-0",)

    asyncio.run(story())


def test_the_wall_clock_is_stepped_while_the_driver_is_away():
    """The law gives up at its limit on the wall clock, and so does whoever hands orders over."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_refuses("web-0")
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            clock.set_wall(clock.wall() + timedelta(minutes=20))
            for _ in range(5):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert only_impact(conductor).status is ImpactStatus.TIMED_OUT
            assert not driver.begun()

    asyncio.run(story())


@pytest.mark.parametrize("said", [Outcome.NOT_BEGUN, Outcome.UNDER_WAY])
def test_a_driver_that_ends_an_impact_without_an_end_is_asked_again(said):
    """Not in a hurry: a second later; and the end is recorded when there is one."""

    class Vague(SimulatedDriver):
        calls = 0

        async def impact(self, order, epoch):
            Vague.calls += 1
            if Vague.calls == 1:
                return Report(said)
            return await super().impact(order, epoch)

        async def outcome(self, *_):
            Vague.calls += 1
            return Report(Outcome.DONE if Vague.calls > 2 else Outcome.UNDER_WAY)

    async def story():
        clock = ManualClock()
        async with conducting(driver=Vague(clock, durations=AT_ONCE), clock=clock) as conductor:
            await started(conductor)
            assert Vague.calls <= 2
            for _ in range(3):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert only_impact(conductor).status is ImpactStatus.DONE

    asyncio.run(story())


def test_a_driver_that_is_canceled_inside_leaves_the_outcome_unknown():
    """Not everything that says "canceled" is us."""

    class Canceled(SimulatedDriver):
        async def impact(self, *_):
            raise asyncio.CancelledError

    async def story():
        clock = ManualClock()
        async with conducting(driver=Canceled(clock), clock=clock) as conductor:
            await started(conductor)
            assert only_impact(conductor).reason == "outcome unknown"

    asyncio.run(story())


def test_a_driver_with_a_later_epoch_is_believed():
    """A new database beside an old machine room: it is failed, and says why."""

    class Older(SimulatedDriver):
        async def impact(self, *_):
            raise LeadLost("Epoch 1 is over: 57 has begun.")

    async def story():
        clock = ManualClock()
        async with conducting(driver=Older(clock), clock=clock) as conductor:
            await started(conductor)
            impact = only_impact(conductor)
            assert impact.status is ImpactStatus.FAILED
            assert "57 has begun" in impact.reason

    asyncio.run(story())


def test_nobody_is_asked_about_what_has_timed_out():
    """A driver that is never reached again is left alone once the law has given up."""
    asked = []

    class Gone(SimulatedDriver):
        async def impact(self, *_):
            raise Unavailable("the hypervisor is gone")

        async def outcome(self, *given):
            asked.append(given)
            raise Unavailable("the hypervisor is gone")

    async def story():
        clock = ManualClock()
        async with conducting(driver=Gone(clock), clock=clock) as conductor:
            await started(conductor)
            for _ in range(12):
                clock.advance(minutes=1)
                await settled(turns=3)
            assert only_impact(conductor).status is ImpactStatus.TIMED_OUT
            asked.clear()
            for _ in range(5):
                clock.advance(seconds=2)
                await settled(turns=3)
            assert not asked

    asyncio.run(story())
