"""Time passes, whatever else goes wrong."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from fairnotice.conductor.conductor import Conductor
from fairnotice.engine import AZURE, decide
from fairnotice.engine.commands import Tick
from fairnotice.errors import Unavailable
from fairnotice.stores.access import Audited
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus
from tests.conductor.orchestra import Failing, Wrapped, conducting, restart, settled, simulated


def test_what_was_due_while_nothing_could_be_recorded_is_looked_at_then():
    """NotBefore passes while the disk is full; the event starts as soon as it can."""

    async def story():
        store, clock = Failing(), ManualClock()
        async with conducting(store, clock=clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            store.broken = True
            clock.advance(minutes=16)
            await settled(turns=5)
            assert conductor.fleet.events[event].status is EventStatus.SCHEDULED
            store.broken = False
            clock.advance(seconds=1)
            await settled(turns=10)
            assert conductor.fleet.events[event].status is EventStatus.COMPLETED

    asyncio.run(story())


def test_a_bug_in_one_look_does_not_stop_time():
    """One subject cannot be looked at; the others are, and that one again in an hour."""
    trouble = []

    def clumsy(fleet, command, now):
        bad = [one for one in getattr(command, "subjects", ()) if one.id == "one"]
        if isinstance(command, Tick) and bad and not trouble:
            raise KeyError("one")
        return decide(fleet, command, now)

    async def story():
        clock = ManualClock()
        conductor = Conductor(MemoryStore(), simulated(clock), clock, decide=clumsy)
        async with conducting(conductor=conductor, clock=clock):
            first = (await conductor.submit(restart("one", "db"))).answer.events[0]
            second = (await conductor.submit(restart("two", "web-0"))).answer.events[0]
            clock.advance(minutes=16)
            await settled(turns=10)
            assert conductor.fleet.events[first].status is EventStatus.SCHEDULED
            assert conductor.fleet.events[second].status is EventStatus.COMPLETED
            trouble.append("repaired")
            clock.advance(minutes=61)
            await settled(turns=10)
            assert conductor.fleet.events[first].status is EventStatus.COMPLETED

    asyncio.run(story())


def test_an_earlier_timer_is_not_waited_for_a_second():
    """Whoever sleeps until something later is woken."""

    async def story():
        clock = ManualClock()
        async with conducting(clock=clock) as conductor:
            await settled(turns=3)
            sleeping = conductor._waking.sleeper
            await conductor.submit(restart("one", "db"))
            await settled(turns=3)
            assert sleeping.cancelled()

    asyncio.run(story())


class Forgetting(Wrapped):
    """Notes what is to be forgotten; fails at first."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.pieces = 3

    def forget(self, *, journal_before, history_before):
        self.asked.append((journal_before, history_before))
        if len(self.asked) == 1:
            raise Unavailable("forget: the disk is full")
        self.pieces -= 1
        return max(self.pieces, 0)


def test_once_a_day_what_is_kept_no_longer_is_deleted():
    """Piece by piece, by the days of the timing profile, also after a failure."""

    async def story():
        store, clock = Forgetting(), ManualClock()
        async with conducting(store, clock=clock):
            await settled(turns=5)
            assert len(store.asked) == 1
            clock.advance(days=1)
            await settled(turns=5)
            assert len(store.asked) == 4
            journal_before, history_before = store.asked[-1]
            assert clock.wall() - journal_before == timedelta(days=AZURE.journal_days)
            assert clock.wall() - history_before == timedelta(days=AZURE.history_days)
            clock.advance(days=1)
            await settled(turns=5)
            assert len(store.asked) == 5

    asyncio.run(story())


def test_the_audit_is_kept_for_a_year():
    """What is older is deleted with the rest, what is a day younger is not."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        old, young = (clock.wall() - timedelta(days=AZURE.audit_days + days) for days in (1, -1))
        line = Audited(at=old, token=None, name="", source="", method="PUT", path="/", status=401)
        store.add_audit([line, replace(line, at=young)])
        async with conducting(store, clock=clock):
            await settled(turns=5)
        assert [one.audited.at for one in store.audit(10)] == [young]

    asyncio.run(story())


def test_a_clock_behind_the_last_record_begins_where_it_is():
    """Rule 25: the new life is begun at what the clock says, not at the last record."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        async with conducting(store, clock=clock):
            pass
        behind = clock.wall() - timedelta(hours=2)
        clock.set_wall(behind)
        async with conducting(store, clock=clock, declare=False) as conductor:
            assert conductor.fleet.life.began_at == behind
            assert conductor.now().wall == behind

    asyncio.run(story())


def test_ticking_by_hand_says_what_went_wrong():
    """Whoever owns the clock is told that nothing can be recorded, and nothing is lost."""

    async def story():
        store, clock = Failing(), ManualClock()
        async with conducting(store, clock=clock, waking=False) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            clock.advance(minutes=16)
            store.broken = True
            with pytest.raises(Unavailable):
                await conductor.tick()
            store.broken = False
            await conductor.tick()
            assert conductor.fleet.events[event].started_at is not None

    asyncio.run(story())
