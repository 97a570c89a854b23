"""An endpoint in the conductor's process: what it shows, and what it passes on in batches."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Event

import pytest

from fairnotice.control import serving as serving_module
from fairnotice.control.serving import Serving
from fairnotice.engine import document
from fairnotice.engine.changes import EventApproved, EventSeen, ScopeHeard
from fairnotice.engine.commands import ApplyFleet
from fairnotice.errors import Unavailable
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus
from tests.conductor.orchestra import FLEET, Counting, Failing, conducting, events, restart, settled

VMS = tuple(vm.name for vm in FLEET.vms)


class Readers:
    """Every VM, reading its page as the endpoint does."""

    def __init__(self, serving, clock):
        self.board = serving.board
        self.clock = clock

    def poll(self, vm):
        """What this VM is shown now."""
        caller = self.board.callers[vm]
        answer = caller.page.answers[-1]
        caller.page.asked_at = self.clock.monotonic()
        if caller.served is not answer:
            self.board.note(caller, answer, self.clock.wall())
        return answer


@asynccontextmanager
async def serving_fleet(store=None, **more):
    """A conductor, its serving and its readers, on a clock that the test owns."""
    clock = ManualClock()
    clock.advance(hours=1)
    async with conducting(store, clock=clock, **more) as conductor:
        serving = Serving(conductor, clock)
        yield conductor, serving, Readers(serving, clock), clock


def shown(board, fleet):
    """The board shows exactly this fleet."""
    assert set(board.pages) == set(fleet.scopes)
    assert set(board.callers) == set(fleet.vms)
    for name, page in board.pages.items():
        wanted = document(fleet, name)
        assert b'"DocumentIncarnation":%d,' % wanted.incarnation in page.answers[-1].full.tail
        assert page.answers[-1].events == {event.id for event in wanted.events}


def test_what_is_committed_is_shown_before_it_is_answered():
    """The board has the new document when the command's answer comes."""

    async def story():
        async with serving_fleet() as (conductor, serving, readers, _):
            shown(serving.board, conductor.fleet)
            await conductor.submit(restart("one", "db"))
            shown(serving.board, conductor.fleet)
            assert len(readers.poll("db").events) == 1
            assert not readers.poll("web-0").events

    asyncio.run(story())


def test_a_fleet_that_is_loaded_is_shown_and_nothing_else():
    """Whatever was on the board before."""

    async def story():
        async with serving_fleet() as (conductor, serving, _, _):
            smaller = FLEET._replace(vms=FLEET.vms[:2])
            before = dict(serving.board.callers)
            await conductor.submit(ApplyFleet(spec=smaller))
            shown(serving.board, conductor.fleet)
            assert set(serving.board.callers) < set(before)
            async with serving_fleet() as (other, _, _, _):
                serving.loaded(other.fleet)
                shown(serving.board, other.fleet)
            # And back: what the smaller one does not have is gone.
            serving.loaded(conductor.fleet)
            shown(serving.board, conductor.fleet)
            assert "vm:db" not in serving.board.pages

    asyncio.run(story())


def test_first_seen_is_recorded_in_one_batch():
    """Three VMs read the same event; one command records it, once."""

    async def story():
        store = Counting()
        async with serving_fleet(store) as (conductor, serving, readers, _):
            decision = await conductor.submit(restart("one", "web-0"))
            (event,) = decision.answer.events
            store.commits.clear()
            for vm in ("web-0", "web-1", "web-2", "web-0"):
                readers.poll(vm)
            await serving.report()
            await serving.report()
            assert len(store.commits) == 1
            seen = {one.vm for one in conductor.fleet.events[event].seen}
            assert seen == {"web-0", "web-1", "web-2"}

    asyncio.run(story())


def test_polls_are_written_at_most_once_an_hour_and_scope():
    """A day of polls every minute: no more than 25 commits, and nobody is disabled."""

    async def story():
        store = Counting()
        async with serving_fleet(store, waking=False) as (conductor, serving, readers, clock):
            store.commits.clear()
            for _ in range(24 * 60):
                clock.advance(minutes=1)
                for vm in VMS:
                    readers.poll(vm)
                await serving.report()
                await conductor.tick()
            assert len(store.commits) <= 25
            assert sum(store.commits) <= 25 * len(conductor.fleet.scopes)
            assert all(scope.enabled for scope in conductor.fleet.scopes.values())

    asyncio.run(story())


def test_nobody_polling_nothing_is_written():
    """Idle for twelve hours: not one commit."""

    async def story():
        store = Counting()
        async with serving_fleet(store, waking=False) as (conductor, serving, _, clock):
            store.commits.clear()
            for _ in range(12 * 60):
                clock.advance(minutes=1)
                await serving.report()
                await conductor.tick()
            assert not store.commits

    asyncio.run(story())


def test_what_cannot_be_recorded_is_kept_for_later():
    """The store is away when it is handed on; nothing of it is lost."""

    async def story():
        store = Failing()
        async with serving_fleet(store) as (conductor, serving, readers, clock):
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            readers.poll("db")
            first_at = clock.wall()
            store.broken = True
            reporting = asyncio.create_task(serving.reporting())
            for _ in range(3):
                clock.advance(seconds=1)
                await settled(turns=3)
            assert not conductor.fleet.events[event].seen
            store.broken = False
            clock.advance(seconds=1)
            await settled(turns=5)
            ((vm, at),) = conductor.fleet.events[event].seen
            assert (vm, at) == ("db", first_at)
            reporting.cancel()

    asyncio.run(story())


def test_enabling_is_durable_before_it_is_answered():
    """And refused while nothing can be recorded."""

    async def story():
        store = Failing()
        async with serving_fleet(store, declare=False) as (conductor, serving, _, _):
            await conductor.submit(ApplyFleet(spec=FLEET))
            assert not conductor.fleet.scopes["vm:db"].enabled
            store.broken = True
            with pytest.raises(Unavailable):
                await serving.enable("vm:db")
            store.broken = False
            await serving.enable("vm:db")
            assert conductor.fleet.scopes["vm:db"].enabled
            assert serving.board.pages["vm:db"].enabled

    asyncio.run(story())


def test_an_approval_is_durable_before_it_is_answered():
    """Unknown events are named, and then nothing is approved."""

    async def story():
        store = MemoryStore()
        async with serving_fleet(store) as (conductor, serving, _, _):
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            assert await serving.approve("db", (event, "nothing")) == ("nothing",)
            assert conductor.fleet.events[event].status is EventStatus.SCHEDULED
            # An event of another scope is as unknown as none.
            assert await serving.approve("web-0", (event,)) == (event,)
            assert await serving.approve("db", (event,)) == ()
            assert not events(conductor)[0].scheduled
            told = {type(line.change) for line in store.changes_after(0, 10_000)}
            assert EventSeen not in told
            assert ScopeHeard not in told

    asyncio.run(story())


def test_whoever_approves_has_looked_and_that_is_recorded_first():
    """Nobody is shown an event that somebody approved and nobody has seen."""

    async def story():
        async with serving_fleet() as (conductor, serving, readers, _):
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            readers.poll("db")
            assert await serving.approve("db", (event,)) == ()
            assert [one.vm for one in conductor.fleet.events[event].seen] == ["db"]
            told = [type(line.change) for line in await conductor.history(f"event:{event}")]
            assert told.index(EventSeen) < told.index(EventApproved)

    asyncio.run(story())


def test_heard_says_when_it_was():
    """A report that comes late says when the VM asked, not when it was handed on."""

    async def story():
        async with serving_fleet(waking=False) as (conductor, serving, readers, clock):
            clock.advance(hours=2)
            asked_at = clock.wall()
            readers.poll("db")
            clock.advance(minutes=10)
            await serving.report()
            assert conductor.fleet.scopes["vm:db"].heard_at == asked_at

    asyncio.run(story())


def test_a_store_that_hangs_keeps_nobody_waiting(monkeypatch):
    """The approval is refused after a while; it is recorded all the same when the store goes on."""
    monkeypatch.setattr(serving_module, "ANSWER_SECONDS_MAX", 0.05)

    class Hanging(Counting):
        gate = Event()

        def commit(self, *what):
            self.gate.wait()
            super().commit(*what)

    async def story():
        store = Hanging()
        store.gate.set()
        async with serving_fleet(store) as (conductor, serving, _, _):
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            store.gate.clear()
            with pytest.raises(Unavailable, match="too long"):
                await serving.approve("db", (event,))
            store.gate.set()
            await settled(turns=10)
            assert conductor.fleet.events[event].approval is not None

    asyncio.run(story())


def test_a_bug_in_a_report_loses_nothing():
    """It is logged, what was gathered is kept, and the next report says it."""

    class Clumsy(Counting):
        bug = False

        def commit(self, *what):
            if self.bug:
                raise KeyError("bug")
            super().commit(*what)

    async def story():
        store = Clumsy()
        async with serving_fleet(store) as (conductor, serving, readers, clock):
            decision = await conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            clock.advance(hours=2)
            readers.poll("db")
            readers.poll("web-0")
            reporting = asyncio.create_task(serving.reporting())
            store.bug = True
            clock.advance(seconds=1)
            await settled(turns=5)
            store.bug = False
            clock.advance(seconds=1)
            await settled(turns=5)
            assert conductor.fleet.events[event].seen
            # Those who were heard are kept as well as what they saw.
            heard_at = conductor.fleet.scopes["availability-set:web"].heard_at
            assert clock.wall() - heard_at < timedelta(minutes=1)
            reporting.cancel()

    asyncio.run(story())
