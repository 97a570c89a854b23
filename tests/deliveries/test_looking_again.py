"""What waits in the store is found, whatever comes while the store is being asked."""

import asyncio
import json

import pytest

from fairnotice.deliveries import retries
from fairnotice.deliveries.courier import AGAIN_SECONDS
from fairnotice.deliveries.sending import Answer
from fairnotice.engine.commands import Cancel
from fairnotice.errors import Unavailable
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.webhooks import Queued
from fairnotice.testing.manual_clock import DEFAULT_START as START
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import USER, restart
from tests.deliveries.test_retries import delivering_to, letter, webhook
from tests.waiting import soon

CONTENT = '{"topic": "", "subject": "", "time": "", "data": {}}'
DEAD = letter(id="dead", event="OLD", content=CONTENT, dead_at=START, attempts=1, error="no")


class Taking:
    """A receiver in memory that takes everything, until it is told otherwise."""

    def __init__(self):
        self.status = 200
        self.asked = []

    async def ask(self, _, __, ___, body):
        self.asked.append(json.loads(body)["id"])
        return Answer(self.status, {}, b"")


class Watched(MemoryStore):
    """Has something happen just before it is asked what waits."""

    def __init__(self):
        super().__init__()
        self.before = lambda _: None

    def deliveries(self, webhook, limit, *, dead=False, after=0):
        self.before(after)
        return super().deliveries(webhook, limit, dead=dead, after=after)


@pytest.fixture
def store():
    """One that has a letter which was given up."""
    store = Watched()
    store.add_webhook(webhook(), 0)
    store.queue_deliveries("1", 0, 0, [DEAD])
    return store


def test_a_letter_that_is_put_back_while_newer_ones_are_read_is_delivered(store):
    """It is older than those, and its word comes before the answer to the question for them.

    Nor is it left until the next look: no time passes here.
    """

    async def story():
        clock, receiver = ManualClock(), Taking()
        loop = asyncio.get_running_loop()
        async with delivering_to(receiver, webhook(), clock, store) as (conductor, webhooks):

            def put_back(after):
                if after:
                    store.before = lambda _: None
                    store.settle_deliveries([], [Queued(1, retries.anew(DEAD, clock.wall()))])
                    loop.call_soon_threadsafe(webhooks.changed)

            await conductor.submit(restart("one", "db"))
            await soon(lambda: len(receiver.asked) == 1)
            receiver.status = 500
            await conductor.submit(restart("two", "web-0"))
            await soon(lambda: len(receiver.asked) == 2)
            store.before = put_back
            # Of the same event: it waits for what was refused, so nothing is sent that wakes.
            await conductor.submit(Cancel(target="two", by=USER))
            await soon(lambda: receiver.asked[2:] == ["dead"])

    asyncio.run(story())


@pytest.mark.parametrize("put_back", [True, False])
def test_what_could_not_be_read_is_read_when_the_store_can_be_asked_again(store, put_back):
    """Letters put back, and those that were just queued: no later one is needed for that."""
    failures = []

    def fail(_):
        if not failures:
            failures.append("once")
            raise Unavailable("planted")

    async def story():
        clock, receiver = ManualClock(), Taking()
        async with delivering_to(receiver, webhook(), clock, store) as (conductor, webhooks):
            await conductor.submit(restart("one", "db"))
            await soon(lambda: len(receiver.asked) == 1)
            store.before = fail
            if put_back:
                store.settle_deliveries([], [Queued(1, retries.anew(DEAD, clock.wall()))])
                webhooks.changed()
            else:
                await conductor.submit(restart("two", "web-0"))
            await soon(lambda: failures)
            await soon(lambda: clock.next_wake is not None)
            clock.advance(seconds=AGAIN_SECONDS)
            await soon(lambda: len(receiver.asked) == 2)

    asyncio.run(story())
