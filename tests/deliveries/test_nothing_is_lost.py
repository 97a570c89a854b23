"""For random journals and random failures: all of it is told, in the order of each event."""

import asyncio
import json
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fairnotice.clock import SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.deliveries import courier, queueing, shapes
from fairnotice.deliveries.delivering import Delivering
from fairnotice.deliveries.sending import Answer
from fairnotice.deliveries.webhooks import Webhooks
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine import DEV
from fairnotice.engine import commands as law
from fairnotice.errors import Unavailable
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.webhooks import Webhook
from fairnotice.words import EventSchema, Role
from tests.engine.story import DB, WEB, sample
from tests.waiting import soon

USER = Requester("u", Role.OPERATOR)
VMS = ("web-0", "web-1", "web-2", "db")


class Kept(MemoryStore):
    """Outlives every life of the service."""

    failures = iter(())

    def settle_deliveries(self, done, kept):
        if next(self.failures, False):
            raise Unavailable("planted")
        super().settle_deliveries(done, kept)

    def queue_deliveries(self, *given):
        if next(self.failures, False):
            raise Unavailable("planted")
        return super().queue_deliveries(*given)


class Chancy:
    """A receiver in memory: takes, fails, or takes and is not heard."""

    def __init__(self, chance):
        self.chance = chance
        self.taken = []

    async def ask(self, _, __, ___, body, ____=0):
        await asyncio.sleep(0)
        lot = self.chance.random()
        if lot < 0.3:
            return Answer(500, {}, b"")
        if lot < 0.4:
            raise Unavailable("planted")
        self.taken.append(json.loads(body))
        if lot < 0.5:
            raise Unavailable("the answer was lost")
        return Answer(200, {}, b"")


@asynccontextmanager
async def life(store, receiver):
    """One life of the service, ended at any moment."""
    clock = SystemClock()
    conductor = Conductor(
        store, SimulatedDriver(clock, durations=AT_ONCE), clock, DEV, in_memory=True
    )
    await conductor.start()
    webhooks = Webhooks(conductor, subscription="s", location="l")
    webhooks.sender = receiver
    delivering = Delivering(conductor, clock, webhooks, subscription="s", location="l")
    delivering.retry_seconds = (0.001,)
    task = asyncio.ensure_future(delivering.deliver())
    try:
        yield conductor
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await conductor.close()


async def step(conductor, chance, number):
    """Something happens to some VM."""
    events = [one for one in conductor.fleet.events.values() if one.scheduled]
    lot = chance.random()
    if events and lot < 0.4:
        approval = Requester("web-0", Role.VM)
        await conductor.submit(law.Approve(events=(chance.choice(events).id,), by=approval))
    elif events and lot < 0.6:
        await conductor.submit(law.Cancel(target=chance.choice(events).operation, by=USER))
    elif events and lot < 0.7:
        event = chance.choice(events)
        later = event.not_before + timedelta(minutes=1)
        await conductor.submit(law.Postpone(event=event.id, not_before=later, by=USER))
    else:
        vm = chance.choice(VMS)
        await conductor.submit(law.Restart(id=f"r{number}", by=USER, vms=(vm,)))


def journal(store):
    """What is to be told of each event, in its order: the ids."""
    wanted = {}
    for line in store.changes_after(0, 100_000):
        if isinstance(line.change, queueing.TOLD):
            told = wanted.setdefault(line.change.row.id.lower(), [])
            told.append(shapes.delivery_id(line.change.row))
    return wanted


async def story(seed, steps):
    """A fleet that lives and dies, and a receiver that is seldom well."""
    chance = random.Random(seed)
    store, receiver = Kept(), Chancy(chance)
    hook = Webhook(
        id="1",
        name="ops",
        url="https://example.org/",
        schema=EventSchema.CLOUDEVENTS,
        created_at=SystemClock().wall(),
        created_by="u",
    )
    store.add_webhook(hook, 0)
    async with life(store, receiver) as conductor:
        await conductor.submit(law.ApplyFleet(spec=sample()))
        now = SystemClock().wall()
        heard = tuple(law.Heard(scope, now) for scope in (WEB, DB))
        await conductor.submit(law.ReportServed(heard=heard))
    store.failures = iter([chance.random() < 0.2 for _ in range(30)])
    for begin in range(0, steps, 4):
        async with life(store, receiver) as conductor:
            for number in range(begin, min(begin + 4, steps)):
                await step(conductor, chance, number)
                for _ in range(chance.randrange(6)):
                    await asyncio.sleep(0)
    async with life(store, receiver) as conductor, asyncio.timeout(20):
        fleet = conductor.fleet
        await soon(lambda: not any(one.status == "Started" for one in fleet.events.values()))
        await soon(lambda: _all_told(store, receiver))
        await soon(lambda: not store.deliveries_count("1"))
    return store, receiver


def _all_told(store, receiver):
    ids = {one["id"] for one in receiver.taken}
    return all(id_ in ids for told in journal(store).values() for id_ in told)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Small pages, little room, and no pauses: so that every boundary is met."""
    monkeypatch.setattr(courier, "WAITING_MAX", 5)
    monkeypatch.setattr(courier, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(courier, "TOGETHER_SECONDS", 0.0)
    monkeypatch.setattr(queueing, "PAGE_LINES", 7)


@settings(max_examples=25, deadline=None)
@given(seed=some.integers(0, 2**32), steps=some.integers(4, 24))
def test_nothing_is_lost_and_every_event_is_told_in_its_order(seed, steps):
    """Of each event: all that the journal says, in its order; repeated at most."""
    store, receiver = asyncio.run(story(seed, steps))
    assert store.deliveries_count("1", dead=True) == 0
    for event, wanted in journal(store).items():
        told = [one["id"] for one in receiver.taken if one["data"]["resourceInfo"]["name"] == event]
        # Told again is told: the first of each has to be in order.
        assert list(dict.fromkeys(told)) == wanted
        # And nothing goes back, not even by repeating.
        places = [wanted.index(id_) for id_ in told]
        assert places == sorted(places)
