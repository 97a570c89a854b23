"""Several conductors on one PostgreSQL: one leads, the others follow and take over."""

import asyncio
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from threading import Event

import psycopg
import pytest

from fairnotice.clock import SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine import Decision
from fairnotice.engine.commands import ApplyFleet, Heard, ReportServed
from fairnotice.engine.specs import FleetSpec, NodeSpec
from fairnotice.errors import LeadLost, NotLeading, StoreInUse, Unavailable
from fairnotice.stores.postgres.lease import PostgresLease
from fairnotice.stores.postgres.store import PostgresStore
from fairnotice.testing.conducted import same_fleet
from tests.conductor.orchestra import FLEET, restart
from tests.waiting import soon

LEASE_SECONDS = 1.0
LIMIT_SECONDS = 20
CLOCK = SystemClock()


class Pausing(PostgresLease):
    """A lease whose thread may be stopped, as all of a process may be."""

    def __init__(self, *about):
        super().__init__(*about)
        self.goes_on = Event()
        self.goes_on.set()
        # Each time that it was asked in vain.
        self.away = False
        self.in_vain = 0

    def renew(self):
        self.goes_on.wait()
        return super().renew()

    def look(self):
        self.goes_on.wait()
        if self.away:
            self.in_vain += 1
            raise Unavailable("look at the lease: it is away")
        return super().look()


class Stopping(PostgresStore):
    """A store that may be stopped in the middle of a commit, with the journal's row in hand."""

    def __init__(self, url):
        super().__init__(url)
        self.stop_next = False
        self.stopped, self.goes_on = Event(), Event()
        self.reads = Event()
        self.reads.set()

    def changes_after(self, revision, limit):
        assert self.reads.wait(LIMIT_SECONDS)
        return super().changes_after(revision, limit)

    def hang_up(self):
        # A process that is stopped hangs up on nobody.
        if self.goes_on.is_set() or not self.stopped.is_set():
            super().hang_up()

    def _write(self, connection, epoch, after, changes):
        if not self.stop_next:
            super()._write(connection, epoch, after, changes)
            return
        self.stop_next = False
        # In the middle of a pipeline: for the server this session is active, and not idle.
        with connection.pipeline(), connection.transaction():
            held = "UPDATE fairnotice.service SET revision = revision RETURNING revision"
            assert connection.execute(held).fetchone() is not None
            self.stopped.set()
            assert self.goes_on.wait(LIMIT_SECONDS)
            super()._write(connection, epoch, after, changes)


class Slow(SystemClock):
    """A clock that is behind the others, as clocks of two machines are."""

    def wall(self):
        return super().wall() - timedelta(seconds=3)


class HourLater(SystemClock):
    """A clock after an hour in which nobody was there."""

    def wall(self):
        return super().wall() + timedelta(hours=1)


class Member:
    """One of the control planes, all of it in this process."""

    def __init__(self, url, name, clock=CLOCK):
        self.store = Stopping(url)
        self.lease = Pausing(url, name, LEASE_SECONDS)
        self.driver = SimulatedDriver(clock, durations=AT_ONCE)
        self.conductor = Conductor(self.store, self.driver, clock)

    def stop(self):
        """Nothing moves in it from its next commit on."""
        self.lease.goes_on.clear()
        self.store.stop_next = True

    def go_on(self):
        """As if nothing had been."""
        self.lease.goes_on.set()
        self.store.goes_on.set()


@asynccontextmanager
async def several(url, count):
    """So many; the first of them leads, on the small fleet."""
    clocks = CLOCK, Slow()
    members = [Member(url, f"http://{'ab'[n]}", clocks[n]) for n in range(count)]
    try:
        for member in members:
            await member.conductor.join(member.lease)
            await soon(lambda: members[0].conductor.leading)
        first = members[0].conductor
        await first.submit(ApplyFleet(spec=FLEET))
        heard = tuple(Heard(scope, CLOCK.wall()) for scope in first.fleet.scopes)
        await first.submit(ReportServed(heard=heard))
        yield members
    finally:
        for member in members:
            member.go_on()
            await member.conductor.close()


async def level(one, other):
    """Wait until both show the same, and see that they do."""
    await soon(lambda: one.conductor.feed.revision == other.conductor.feed.revision)
    same_fleet(one.conductor.fleet, other.conductor.fleet)


def test_who_follows_shows_what_is_committed_and_says_who_leads(postgres_url):
    """The fleet, the feed and those who follow it are current; commands are another's."""

    async def story():
        async with several(postgres_url, 2) as (one, two):
            await soon(lambda: two.conductor.leader is not None)
            await one.conductor.submit(restart("one", "db"))
            await level(one, two)
            lines = await two.conductor.feed.after(0)
            assert [line.revision for line in lines] == list(range(1, len(lines) + 1))
            with pytest.raises(NotLeading, match="http://a leads") as told:
                await two.conductor.submit(restart("two", "db"))
            assert told.value.leader == "http://a"
            assert two.conductor.trouble is None

    asyncio.run(story())


def test_who_follows_and_lags_leads_nobody_back(postgres_url):
    """Somebody has read at the leader what is not here yet: he waits until it is, and goes on."""

    async def story():
        async with several(postgres_url, 2) as (one, two):
            await level(one, two)
            two.store.reads.clear()
            await one.conductor.submit(restart("one", "db"))
            revision = one.conductor.feed.revision
            asking = asyncio.ensure_future(two.conductor.feed.after(revision))
            done, _ = await asyncio.wait({asking}, timeout=0.1)
            two.store.reads.set()
            assert not done
            assert await asking == []
            assert two.conductor.feed.revision == revision

    asyncio.run(story())


def test_whoever_ends_in_peace_is_followed_at_once(postgres_url, caplog):
    """The lease is resigned; what was announced keeps its NotBefore, whosever clock is behind."""

    async def story():
        async with several(postgres_url, 2) as (one, two):
            decision = await one.conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            before = one.conductor.fleet.events[event].not_before
            epoch = one.conductor.epoch
            await one.conductor.close()
            with closing(PostgresLease(postgres_url, "", 1)) as lease:
                assert lease.look().free or lease.look().address == "http://b"
            await soon(lambda: two.conductor.leading)
            assert two.conductor.epoch == epoch + 1
            assert two.conductor.fleet.events[event].not_before == before
            assert two.conductor.fleet.life.unserved_seconds == 0
            assert "behind the last record" not in caplog.text
            await two.conductor.submit(restart("two", "web-0"))

    asyncio.run(story())


def test_rule_24_after_an_hour_without_anybody_notice_begins_anew(postgres_url):
    """That is no takeover: nobody has served, and nobody has seen what was announced."""

    async def story():
        async with several(postgres_url, 1) as (one,):
            decision = await one.conductor.submit(restart("one", "db"))
            (event,) = decision.answer.events
            before = one.conductor.fleet.events[event].not_before
        with psycopg.connect(postgres_url, autocommit=True) as operator:
            operator.execute("UPDATE fairnotice.lease SET expires_at = expires_at - interval '1h'")
        two = Member(postgres_url, "http://b", HourLater())
        await two.conductor.join(two.lease)
        try:
            await soon(lambda: two.conductor.leading)
            found = two.conductor.fleet.events[event]
            assert found.scheduled
            assert found.not_before >= before + timedelta(hours=1)
        finally:
            await two.conductor.close()

    asyncio.run(story())


def test_a_leader_stopped_in_the_middle_of_a_commit_keeps_nobody_from_leading(postgres_url):
    """Its session is ended, its commit is none, and when it goes on it follows by itself."""

    async def story():
        async with several(postgres_url, 2) as (one, two):
            await level(one, two)
            one.stop()
            lost = asyncio.ensure_future(one.conductor.submit(restart("lost", "db")))
            assert await asyncio.to_thread(one.store.stopped.wait, LIMIT_SECONDS)
            await soon(lambda: two.conductor.leading)
            await two.conductor.submit(restart("two", "web-0"))

            one.go_on()
            with pytest.raises(Unavailable):
                await lost
            await soon(lambda: one.conductor.leader == two.conductor.leader)
            assert not one.conductor.leading
            await level(one, two)
            assert "lost" not in one.conductor.fleet.requests
            assert len(one.conductor.timers) == 0

            await two.conductor.close()
            await soon(lambda: one.conductor.leading)
            await one.conductor.submit(restart("again", "db"))

    asyncio.run(story())


def test_a_stale_leader_commits_nothing(postgres_url):
    """It finds out by its commit, before its lease tells it."""

    async def story():
        async with several(postgres_url, 1) as (one,):
            one.lease.goes_on.clear()
            with closing(PostgresLease(postgres_url, "http://other", LEASE_SECONDS)) as other:
                assert other.take(other.look()) == one.conductor.epoch + 1
                revision = one.conductor.fleet.revision
                with pytest.raises(NotLeading):
                    await one.conductor.submit(restart("one", "db"))
                await soon(lambda: not one.conductor.leading)
                assert one.store.load().revision == revision
                with pytest.raises(StoreInUse, match="lead: several control planes"):
                    one.store.lead()

    asyncio.run(story())


def test_of_two_who_try_at_once_one_leads(postgres_url):
    """What was found is not there any more for the second, and a renewal takes it from both."""
    PostgresStore(postgres_url).close()
    with (
        closing(PostgresLease(postgres_url, "http://a", LEASE_SECONDS)) as one,
        closing(PostgresLease(postgres_url, "http://b", LEASE_SECONDS)) as two,
    ):
        found = one.look()
        assert found.free
        assert (one.take(found), two.take(found)) == (1, None)
        found = two.look()
        assert (found.epoch, found.address, found.free) == (1, "http://a", False)
        assert one.renew()
        assert two.take(found) is None
        one.resign()
        found = two.look()
        assert found.free
        assert two.take(found) == 2
        assert not one.renew()
        one.resign()
        assert not two.look().free


def test_whoever_is_deposed_by_another_epoch_does_not_renew(postgres_url):
    """The lead is gone with its epoch, even while the lease has nobody else's name on it."""
    PostgresStore(postgres_url).close()
    with (
        closing(PostgresLease(postgres_url, "http://a", LEASE_SECONDS)) as lease,
        psycopg.connect(postgres_url, autocommit=True) as operator,
    ):
        assert lease.take(lease.look()) == 1
        assert lease.renew()
        operator.execute("UPDATE fairnotice.service SET epoch = epoch + 1")
        assert not lease.renew()


def test_a_commit_under_way_is_waited_for_a_moment(postgres_url):
    """What is about to be committed is there when another leads; nothing is lost needlessly."""
    PostgresStore(postgres_url).close()
    with (
        closing(PostgresLease(postgres_url, "http://a", LEASE_SECONDS)) as lease,
        psycopg.connect(postgres_url) as stale,
    ):
        stale.execute("UPDATE fairnotice.service SET revision = revision + 7")
        found = lease.look()

        async def story():
            taking = asyncio.to_thread(lease.take, found)
            taken = asyncio.ensure_future(taking)
            await asyncio.sleep(0.05)
            stale.commit()
            return await taken

        assert asyncio.run(story()) == 1
        revision, epoch = stale.execute("SELECT revision, epoch FROM fairnotice.service").fetchone()
        assert (revision, epoch) == (7, 1)


def test_a_clock_of_the_database_that_went_back_keeps_no_dead_leader(postgres_url):
    """A lease that nobody renews is over, whatever it says."""

    async def story():
        async with several(postgres_url, 2) as (one, two):
            one.lease.goes_on.clear()
            with psycopg.connect(postgres_url, autocommit=True) as operator:
                operator.execute(
                    "UPDATE fairnotice.lease SET renewed_at = renewed_at + interval '1 hour', "
                    "expires_at = expires_at + interval '1 hour'"
                )
            await soon(lambda: two.conductor.leading)

    asyncio.run(story())


def test_who_is_far_behind_loads_anew(postgres_url, monkeypatch):
    """Lines that are forgotten, or too many, are not needed."""
    monkeypatch.setattr("fairnotice.conductor.following.LINES_MAX", 2)

    async def story():
        async with several(postgres_url, 2) as (one, two):
            spec = FleetSpec(
                nodes=(*FLEET.nodes, *(NodeSpec(f"more-{n}", fault_domain=0) for n in range(5))),
                availability_sets=FLEET.availability_sets,
                vms=FLEET.vms,
            )
            await one.conductor.submit(ApplyFleet(spec=spec))
            await level(one, two)
            assert "more-4" in two.conductor.fleet.nodes

    asyncio.run(story())


def test_without_the_database_nobody_reads_here(postgres_server, postgres_url, monkeypatch):
    """Whoever follows the feed is let go, until the database is back; then one leads again."""
    monkeypatch.setattr("fairnotice.conductor.following.LOST_SECONDS", 0.2)

    async def story():
        async with several(postgres_url, 2) as (one, two):
            await level(one, two)
            feed = two.conductor.feed
            waiting = asyncio.ensure_future(feed.wait_beyond(feed.revision))
            postgres_server.kill()
            try:
                await soon(lambda: two.conductor.trouble is not None and feed.cut_off)
                assert await waiting == feed.revision
                await soon(lambda: not one.conductor.leading and one.conductor.leader is None)
                with pytest.raises(NotLeading, match="no control plane leads"):
                    await one.conductor.submit(restart("one", "db"))
            finally:
                await asyncio.to_thread(postgres_server.start)
            await soon(lambda: one.conductor.leading or two.conductor.leading)
            await soon(lambda: two.conductor.trouble is None and not feed.cut_off)
            await level(one, two)

    asyncio.run(story())


@asynccontextmanager
async def alone(url):
    """A control plane that knows of no others, at work on the small fleet."""
    lease = Pausing(url, "", LEASE_SECONDS)
    conductor = Conductor(PostgresStore(url), SimulatedDriver(CLOCK, durations=AT_ONCE), CLOCK)
    try:
        await conductor.start(lease=lease)
        await conductor.submit(ApplyFleet(spec=FLEET))
        yield conductor, lease
    finally:
        lease.goes_on.set()
        await conductor.close()


def test_one_of_several_waits_for_one_that_is_alone_and_leads_when_it_ends(postgres_url):
    """It is not deposed, nobody is asked for anything in vain, and a second one is refused."""

    async def story():
        joins = Member(postgres_url, "http://a")
        async with alone(postgres_url) as (first, _):
            await joins.conductor.join(joins.lease)
            await soon(lambda: joins.conductor.leader is not None)
            with pytest.raises(NotLeading, match=r"no table \[cluster\]. End it") as told:
                await joins.conductor.submit(restart("one", "db"))
            assert told.value.leader is None
            with pytest.raises(StoreInUse, match="End it first"):
                async with alone(postgres_url):
                    pytest.fail("two lead, each of them alone")
            await asyncio.sleep(LEASE_SECONDS * 2)
            assert isinstance(await first.submit(restart("two", "db")), Decision)
        await soon(lambda: joins.conductor.leading)
        await joins.conductor.close()

    asyncio.run(story())


def test_one_that_was_alone_and_lost_the_lead_shows_and_does_nothing(postgres_url):
    """Cut off for longer than its lease, beside one that waits: it ends feeds, and says so."""

    async def story():
        joins = Member(postgres_url, "http://a")
        async with alone(postgres_url) as (first, lease):
            await joins.conductor.join(joins.lease)
            follows = asyncio.create_task(first.feed.wait_beyond(first.feed.revision))
            lease.goes_on.clear()
            await soon(lambda: joins.conductor.leading)
            lease.goes_on.set()
            await soon(lambda: not first.leading)
            assert await follows == first.feed.revision
            assert first.feed.cut_off
            with pytest.raises(LeadLost, match="http://a leads on this database"):
                await first.submit(restart("one", "db"))
            assert isinstance(await joins.conductor.submit(restart("two", "db")), Decision)
        await joins.conductor.close()

    asyncio.run(story())


def test_trouble_with_the_lease_is_said_when_it_begins_and_when_it_ends(postgres_url, caplog):
    """Not four times a second for as long as it lasts; and meanwhile nobody is known to lead."""

    async def story():
        async with several(postgres_url, 2) as (_, two):
            await soon(lambda: two.conductor.leader is not None)
            two.lease.away = True
            await soon(lambda: two.lease.in_vain > 3)
            assert two.conductor.leader is None
            two.lease.away = False
            await soon(lambda: two.conductor.leader is not None)
            await soon(lambda: "the lease can be asked again" in caplog.text)

    asyncio.run(story())
    assert caplog.text.count("who leads cannot be told") == 1
    assert caplog.text.count("the lease can be asked again") == 1
