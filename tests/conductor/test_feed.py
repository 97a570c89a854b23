"""Followers ask for what came after a revision; who is too far behind is given everything."""

import asyncio
from datetime import timedelta

import pytest

from fairnotice.cli import remote
from fairnotice.conductor import feed as feed_module
from fairnotice.conductor.feed import FROM_NOW, Snapshot
from fairnotice.engine import Fleet
from fairnotice.errors import Unavailable
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.conducted import same_fleet
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import Failing, conducting, restart, settled


def fleet_from(snapshot, like):
    """The fleet that a follower makes of a snapshot."""
    return Fleet.load(snapshot.rows, like.timing, snapshot.revision, like.recorded_at)


def test_a_follower_that_keeps_up_gets_every_change_once():
    """Asking after what it has, it has the same fleet as the conductor in the end."""

    async def story():
        async with conducting() as conductor:
            feed = conductor.feed
            follower = fleet_from(await feed.after(-1), conductor.fleet)
            for n in range(5):
                await conductor.submit(restart(f"r{n}", "db"))
                while lines := await feed.after(follower.revision, limit=3):
                    for line in lines:
                        assert line.revision == follower.revision + 1
                        follower.apply(line.change)
            same_fleet(conductor.fleet, follower)
            assert await feed.after(feed.revision) == []

    asyncio.run(story())


def test_older_lines_come_from_the_store(monkeypatch):
    """Few lines are at hand: the others are read, without a gap in between."""
    monkeypatch.setattr(feed_module, "LINES_AT_HAND_MAX", 4)

    async def story():
        async with conducting() as conductor:
            feed = conductor.feed
            first = feed.revision
            follower = fleet_from(feed.snapshot(), conductor.fleet)
            for n in range(4):
                await conductor.submit(restart(f"r{n}", "db"))
            assert feed.revision - first > 4
            while lines := await feed.after(follower.revision, limit=2):
                assert not isinstance(lines, Snapshot)
                for line in lines:
                    assert line.revision == follower.revision + 1
                    follower.apply(line.change)
            same_fleet(conductor.fleet, follower)

    asyncio.run(story())


def test_who_is_too_far_behind_is_given_a_snapshot():
    """Eight days later the journal is forgotten; the state is not."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        async with conducting(store, clock=clock):
            pass
        clock.advance(days=8)
        async with conducting(store, clock=clock, declare=False) as conductor:
            await settled(turns=5)
            everything = await conductor.feed.after(1)
            assert isinstance(everything, Snapshot)
            same_fleet(conductor.fleet, fleet_from(everything, conductor.fleet))
            assert store.changes_after(1, 10) is None

    asyncio.run(story())


def test_a_follower_that_is_ahead_is_not_led_back(monkeypatch):
    """It has read elsewhere what is not here yet: it waits for that, and not for ever."""

    async def story():
        async with conducting() as conductor:
            feed, before = conductor.feed, conductor.feed.revision
            waiting = asyncio.create_task(feed.after(before + 1))
            await settled(turns=3)
            assert not waiting.done()
            await conductor.submit(restart("one", "db"))
            lines = await asyncio.wait_for(waiting, 5)
            assert [line.revision for line in lines][:1] == [before + 2]
            monkeypatch.setattr(feed_module, "REACH_SECONDS_MAX", 0.01)
            with pytest.raises(Unavailable, match="not yet at 1000000000"):
                await feed.after(10**9)

    asyncio.run(story())


def test_who_wants_the_state_as_it_is_now_is_given_it():
    """Whoever watches begins with what there is; the command line says the same number."""

    async def story():
        async with conducting() as conductor:
            found = await conductor.feed.after(FROM_NOW)
            assert isinstance(found, Snapshot)
            assert found.revision == conductor.feed.revision

    asyncio.run(story())
    assert remote.FROM_NOW == FROM_NOW


def test_a_follower_waits_until_something_happens():
    """It is woken by the next commit, and not before."""

    async def story():
        async with conducting() as conductor:
            waiting = asyncio.create_task(conductor.feed.wait_beyond(conductor.feed.revision))
            await settled(turns=3)
            assert not waiting.done()
            await conductor.submit(restart("one", "db"))
            assert await waiting == conductor.fleet.revision

    asyncio.run(story())


def test_history_tells_the_story_of_an_operation():
    """Announced, started, begun, ended, gone: in this order."""

    async def story():
        clock = ManualClock()
        async with conducting(clock=clock) as conductor:
            decision = await conductor.submit(restart("one", "db"))
            clock.advance(minutes=16)
            await settled(turns=10)
            (operation,) = decision.answer.operations
            lines = await conductor.history(f"operation:{operation}")
            told = [type(line.change).__name__ for line in lines]
            assert told == [
                "OperationPlanned",
                "EventAnnounced",
                "OperationStarted",
                "EventStarted",
                "ImpactBegun",
                "ImpactEnded",
                "EventGone",
                "OperationEnded",
            ]
            passed = lines[-1].change.at - lines[0].change.at
            assert passed >= timedelta(minutes=15)

    asyncio.run(story())


def test_the_feed_never_leads_a_follower_ahead_of_us():
    """The answer to a commit was lost: its lines are not given before it has taken effect."""

    async def story():
        store = Failing()
        async with conducting(store) as conductor:
            feed = conductor.feed
            feed._lines.clear()
            before = feed.revision
            store.lost = True
            with pytest.raises(Unavailable):
                await conductor.submit(restart("one", "db"))
            store.lost = False
            lines = await feed.after(before - 2)
            assert [line.revision for line in lines] == [before - 1, before]

    asyncio.run(story())


def test_a_state_that_is_loaded_anew_begins_a_new_feed():
    """Whoever waits is woken, and lines of the old state are not given for the new one."""

    async def story():
        async with conducting() as conductor, conducting() as other:
            await other.submit(restart("one", "db"))
            waiting = asyncio.create_task(conductor.feed.wait_beyond(conductor.feed.revision))
            await settled(turns=3)
            conductor.feed.begin(other.fleet)
            assert await asyncio.wait_for(waiting, 5) == other.fleet.revision
            assert not conductor.feed._lines

    asyncio.run(story())


def test_at_the_end_whoever_waits_may_go():
    """Nothing comes any more."""

    async def story():
        async with conducting() as conductor:
            revision = conductor.feed.revision
            waiting = asyncio.create_task(conductor.feed.wait_beyond(revision))
            await settled(turns=3)
            conductor.feed.end()
            assert await asyncio.wait_for(waiting, 5) == revision

    asyncio.run(story())
