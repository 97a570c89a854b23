"""From a command to its answer: decided, durable, applied, shown, carried out."""

import asyncio
from datetime import timedelta
from threading import Event

import pytest

from fairnotice.conductor.conductor import Conductor
from fairnotice.engine import Decision, Fleet, Refusal
from fairnotice.engine.changes import EventAnnounced, NodeDeclared
from fairnotice.engine.invariants import check, check_indexes
from fairnotice.errors import LeadLost, Unavailable, UsageError
from fairnotice.model import Node
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus, ImpactStatus
from tests.conductor.orchestra import (
    Counting,
    Failing,
    approve,
    conducting,
    events,
    restart,
    settled,
    simulated,
)


def remembered(store):
    """The fleet as the store would give it to the next process."""
    loaded = store.load()
    conductor_timing = Fleet().timing
    return Fleet.load(loaded.rows, conductor_timing, loaded.revision, loaded.recorded_at)


def test_an_answered_command_is_durable_and_in_force():
    """When the answer comes, the store has it, the fleet shows it and followers were told."""

    async def story():
        store = MemoryStore()
        told = []

        class Told:
            def loaded(self, fleet):
                told.append(fleet.revision)

            def committed(self, fleet, changes):
                told.append((fleet.revision, changes))

        async with conducting(store) as conductor:
            conductor.feed.follow(Told())
            decision = await conductor.submit(restart("one", "db"))
            assert isinstance(decision, Decision)
            (event,) = decision.answer.events
            assert conductor.fleet.events[event].status is EventStatus.SCHEDULED
            assert remembered(store).events == conductor.fleet.events
            revision, changes = told[-1]
            assert revision == conductor.fleet.revision
            assert any(isinstance(change, EventAnnounced) for change in changes)

    asyncio.run(story())


def test_commands_that_arrive_together_are_committed_together():
    """Sixty-four at once: two commits, for the first finds nobody beside it."""

    async def story():
        store = Counting()
        async with conducting(store) as conductor:
            store.commits.clear()
            asked = [conductor.submit(restart(f"r{n}", "db")) for n in range(64)]
            answers = await asyncio.gather(*asked)
            assert all(isinstance(answer, Decision) for answer in answers)
            assert len(store.commits) == 1
            assert len({answer.answer.events for answer in answers}) == 64
            assert not check(conductor.fleet)
            assert not check_indexes(conductor.fleet)
            assert remembered(store).events == conductor.fleet.events

    asyncio.run(story())


def test_the_later_of_two_together_sees_the_earlier():
    """The same idempotency key twice at once is one operation; a limit is counted."""

    async def story():
        async with conducting() as conductor:
            first, second = await asyncio.gather(
                conductor.submit(restart("a", "db", idempotency_key="k")),
                conductor.submit(restart("b", "db", idempotency_key="k")),
            )
            assert first.answer.operations == second.answer.operations
            assert len(events(conductor)) == 1
            many = [conductor.submit(restart(f"m{n}", "db")) for n in range(120)]
            answers = await asyncio.gather(*many)
            assert sum(isinstance(answer, Refusal) for answer in answers) == 21

    asyncio.run(story())


def test_a_refusal_is_answered_and_changes_nothing():
    """Nothing is written for it."""

    async def story():
        store = Counting()
        async with conducting(store) as conductor:
            before = len(store.commits), conductor.fleet.revision
            assert isinstance(await conductor.submit(restart("one", "nobody")), Refusal)
            assert (len(store.commits), conductor.fleet.revision) == before

    asyncio.run(story())


def test_a_commit_that_fails_has_changed_nothing():
    """All who asked are told; the fleet, the timers and the machines know nothing of it."""

    async def story():
        store = Failing()
        async with conducting(store) as conductor:
            revision, timers = conductor.fleet.revision, len(conductor.timers)
            store.broken = True
            asked = [conductor.submit(restart(f"r{n}", "db")) for n in range(5)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(answer, Unavailable) for answer in answers)
            assert len(set(map(id, answers))) == 5
            assert (conductor.fleet.revision, len(conductor.timers)) == (revision, timers)
            assert conductor.trouble is not None
            store.broken = False
            assert isinstance(await conductor.submit(restart("r0", "db")), Decision)
            assert conductor.trouble is None

    asyncio.run(story())


def test_trouble_ends_by_itself():
    """Nobody asks for anything: the store is tried every second until it is well."""

    async def story():
        store, clock = Failing(), ManualClock()
        async with conducting(store, clock=clock) as conductor:
            store.broken = True
            with pytest.raises(Unavailable):
                await conductor.submit(restart("one", "db"))
            for _ in range(3):
                clock.advance(seconds=1)
                await settled(turns=5)
            assert conductor.trouble is not None
            store.broken = False
            clock.advance(seconds=1)
            await settled(turns=5)
            assert conductor.trouble is None

    asyncio.run(story())


def test_a_commit_whose_answer_was_lost_is_found_again():
    """The connection broke after COMMIT: the next command finds it, and what it meant is done."""

    async def story():
        store, clock = Failing(), ManualClock()
        driver = simulated(clock)
        async with conducting(store, driver, clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            store.lost = True
            with pytest.raises(Unavailable):
                await conductor.submit(approve_as_db(event))
            store.lost = False
            assert conductor.fleet.events[event].status is EventStatus.SCHEDULED
            # The next command finds it, and is decided on what there really is.
            assert isinstance(await conductor.submit(restart("two", "web-0")), Decision)
            await settled()
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED
            (impact,) = conductor.fleet.impacts.values()
            assert impact.status is ImpactStatus.DONE
            assert driver.machine("db").impacts == 1

    asyncio.run(story())


def approve_as_db(event):
    """The VM db itself approves."""
    command = approve(event)
    return type(command)(events=command.events, by=command.by._replace(name="db"))


def test_whoever_lost_the_lead_can_commit_nothing():
    """A second conductor on the same store takes over; the first says so, and rests."""

    async def story():
        store = MemoryStore()
        async with (
            conducting(store) as first,
            conducting(store, declare=False, takeover=True) as second,
        ):
            assert second.epoch == first.epoch + 1
            with pytest.raises(LeadLost):
                await first.submit(restart("one", "db"))
            with pytest.raises(LeadLost):
                await first.submit(restart("two", "db"))
            assert not events(first)
            assert isinstance(await second.submit(restart("three", "db")), Decision)

    asyncio.run(story())


def test_a_command_that_breaks_the_law_fails_alone():
    """A bug in one decision costs nobody else his answer."""

    async def story():
        async with conducting() as conductor:
            answers = await asyncio.gather(
                conductor.submit(restart("one", "db")),
                conductor.submit(object()),
                conductor.submit(restart("two", "db")),
                return_exceptions=True,
            )
            assert isinstance(answers[1], KeyError)
            assert isinstance(answers[0], Decision)
            assert isinstance(answers[2], Decision)
            assert len(events(conductor)) == 2

    asyncio.run(story())


def test_whoever_asked_may_go_away():
    """The command is carried out all the same."""

    async def story():
        async with conducting() as conductor:
            asking = asyncio.create_task(conductor.submit(restart("one", "db")))
            await asyncio.sleep(0)
            asking.cancel()
            await settled(turns=5)
            assert len(events(conductor)) == 1

    asyncio.run(story())


def test_before_the_start_and_after_the_end_nothing_is_taken():
    """It says so."""

    async def story():
        async with conducting() as conductor:
            pass
        with pytest.raises(Unavailable):
            await conductor.submit(restart("one", "db"))

    asyncio.run(story())


def test_now_never_goes_back():
    """The wall clock is stepped back an hour: commands are decided at the last known instant."""

    async def story():
        clock = ManualClock()
        async with conducting(clock=clock) as conductor:
            before = conductor.now().wall
            clock.advance(minutes=1)
            later = conductor.now().wall
            clock.set_wall(before)
            assert conductor.now().wall == later
            assert isinstance(await conductor.submit(restart("one", "db")), Decision)
            clock.advance(minutes=3)
            assert conductor.now().wall > later

    asyncio.run(story())


def test_another_process_wrote_to_the_journal():
    """What it wrote is loaded and made good as a takeover, until that is durable."""

    async def story():
        store, clock = Failing(), ManualClock()
        async with conducting(store, clock=clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            foreign = NodeDeclared(clock.wall(), Node("node-9"))
            store.store.commit(conductor.epoch, conductor.fleet.revision, [foreign])
            life = conductor.fleet.life.number
            store.broken = True
            with pytest.raises(Unavailable):
                await conductor.submit(restart("two", "db"))
            store.broken = False
            assert isinstance(await conductor.submit(restart("three", "db")), Decision)
            assert "node-9" in conductor.fleet.nodes
            assert conductor.fleet.life.number == life + 1
            assert remembered(store).nodes == conductor.fleet.nodes
            # Timers were set anew with the new life.
            clock.advance(minutes=16)
            await settled(turns=10)
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED

    asyncio.run(story())


def test_a_foreign_journal_is_made_good_however_often_that_fails():
    """The new life cannot be recorded at first: nothing is taken before it is."""

    async def story():
        store, clock = Failing(), ManualClock()
        async with conducting(store, clock=clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            foreign = NodeDeclared(clock.wall(), Node("node-9"))
            store.store.commit(conductor.epoch, conductor.fleet.revision, [foreign])
            conductor._doubts.behind = True
            store.broken = True
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await conductor.submit(restart("two", "db"))
            store.broken = False
            clock.advance(seconds=1)
            await settled(turns=10)
            assert conductor.trouble is None
            clock.advance(minutes=16)
            await settled(turns=10)
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED

    asyncio.run(story())


def test_more_than_are_decided_in_one_go_are_all_answered():
    """Three hundred at once: nobody is forgotten."""

    async def story():
        store = Counting()
        async with conducting(store) as conductor:
            store.commits.clear()
            asked = [conductor.submit(restart(f"r{n}", "db")) for n in range(300)]
            answers = await asyncio.wait_for(asyncio.gather(*asked), 10)
            assert len(answers) == 300
            # 100 may wait in a scope (rule 17); those of the last commits are all refused.
            assert sum(isinstance(answer, Decision) for answer in answers) == 100

    asyncio.run(story())


class Gated(Counting):
    """Commits only while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Event()
        self.gate.set()

    def commit(self, *what):
        self.gate.wait()
        super().commit(*what)


def test_at_the_end_everybody_is_answered():
    """What is being committed is answered as done, all that wait are told to come back."""

    async def story():
        store = Gated()
        async with conducting(store) as conductor:
            store.gate.clear()
            first = asyncio.create_task(conductor.submit(restart("first", "db")))
            await settled(turns=3)
            asked = [
                asyncio.create_task(conductor.submit(restart(f"r{n}", "db"))) for n in range(300)
            ]
            await settled(turns=3)
            closing = asyncio.create_task(conductor.close())
            await settled(turns=3)
            store.gate.set()
            await asyncio.wait_for(closing, 10)
            assert isinstance(await first, Decision)
            answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
            assert all(isinstance(answer, Unavailable) for answer in answers)
            assert "first" in remembered(store).requests
            await conductor.close()

    asyncio.run(story())


def test_a_start_that_fails_has_not_begun():
    """The new life could not be recorded: no command is taken, and the next process may start."""

    async def story():
        store, clock = Failing(), ManualClock()
        async with conducting(store, clock=clock):
            pass
        store.broken = True
        failed = Conductor(store, simulated(clock), clock)
        with pytest.raises(Unavailable):
            await failed.start()
        with pytest.raises(Unavailable):
            await failed.submit(restart("one", "db"))
        await failed.close()
        store.broken = False
        async with conducting(store, clock=clock, declare=False) as conductor:
            assert conductor.fleet.life.number == 2
            with pytest.raises(UsageError):
                await conductor.start()

    asyncio.run(story())


def test_a_follower_that_fails_costs_nothing_but_itself():
    """The commit takes effect, and the follower is shown everything anew."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        shown = []

        class Clumsy:
            def loaded(self, fleet):
                shown.append(fleet.revision)

            def committed(self, *_):
                raise ZeroDivisionError

        async with conducting(driver=driver, clock=clock) as conductor:
            conductor.feed.follow(Clumsy())
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            await conductor.submit(approve_as_db(event))
            await settled(turns=10)
            assert driver.begun() == ("one/db",)
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED
            assert shown[-1] == conductor.fleet.revision

    asyncio.run(story())


def test_an_error_that_takes_arguments_ends_nothing():
    """Whatever a store raises, those who asked are told, and the next command is taken."""

    class Odd(Exception):
        def __init__(self, code, words):
            super().__init__(code, words)

    class Strange(Counting):
        odd = False

        def commit(self, *what):
            if self.odd:
                raise Odd(1, "two")
            super().commit(*what)

    async def story():
        store = Strange()
        async with conducting(store) as conductor:
            store.odd = True
            with pytest.raises(Odd):
                await conductor.submit(restart("one", "db"))
            store.odd = False
            assert isinstance(await conductor.submit(restart("two", "db")), Decision)

    asyncio.run(story())


def test_what_cannot_be_recorded_says_why():
    """The cause is kept for whoever looks for it."""

    async def story():
        store = Failing()
        async with conducting(store) as conductor:
            store.broken = True
            with pytest.raises(Unavailable, match="disk is full") as told:
                await conductor.submit(restart("one", "db"))
            assert isinstance(told.value.__cause__, Unavailable)

    asyncio.run(story())


def test_warnings_of_the_law_are_logged(caplog):
    """A clock that is behind the last record is said so."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        async with conducting(store, clock=clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            before = conductor.fleet.events[event].not_before
        clock.set_wall(clock.wall() - timedelta(hours=1))
        async with conducting(store, clock=clock, declare=False) as conductor:
            # Rule 25: everything Scheduled has its notice from now on, on this clock.
            assert conductor.fleet.events[event].not_before >= before - timedelta(hours=1)
            assert conductor.fleet.recorded_at == clock.wall()

    asyncio.run(story())
    assert "behind the last record" in caplog.text
