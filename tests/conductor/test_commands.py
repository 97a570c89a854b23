"""From a command to its answer: decided, durable, applied, shown, carried out."""

import asyncio

import pytest

from fairnotice.engine import Decision, Fleet, Refusal
from fairnotice.engine.changes import EventAnnounced
from fairnotice.engine.invariants import check, check_indexes
from fairnotice.errors import LeadLost, Unavailable
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
            with pytest.raises(Unavailable):
                await conductor.submit(restart("two", "web-0"))
            await settled()
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED
            (impact,) = conductor.fleet.impacts.values()
            assert impact.status is ImpactStatus.DONE
            assert driver.machine("db").impacts == 1
            assert isinstance(await conductor.submit(restart("two", "web-0")), Decision)

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
