"""When a delivery is tried again, and when it is given up: Azure Event Grid's schedule."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from fairnotice.deliveries import courier, delivering, retries
from fairnotice.deliveries.delivering import Delivering
from fairnotice.deliveries.sending import Answer, Sender
from fairnotice.deliveries.webhooks import Webhooks
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.webhooks import Delivery, Webhook
from fairnotice.testing.manual_clock import DEFAULT_START as START
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventSchema, EventStatus
from tests.conductor.orchestra import conducting, restart, settled
from tests.waiting import soon

# The page of Azure: "Event Grid message delivery and retry".
LADDER = [10, 30, 60, 300, 600, 1800, 3600, 3600]
HOUR = timedelta(hours=1)


def webhook(**more):
    """One that is told of everything."""
    given = {"id": "1", "name": "ops", "url": "https://example.org/", "created_by": "u"}
    given |= {"schema": EventSchema.CLOUDEVENTS, "created_at": START}
    return Webhook(**(given | more))


def letter(**more):
    """A delivery that is queued now."""
    given = {"id": "1", "event": "E", "status": EventStatus.SCHEDULED, "content": "{}"}
    return Delivery(**(given | {"queued_at": START, "next_at": START} | more))


def pause_seconds(delivery, **more):
    """How long it waits after a try that failed now."""
    after = retries.failed(webhook(), delivery, START, "no", **more)
    return (after.next_at - START).total_seconds()


def test_a_webhook_of_which_nothing_is_said_is_tried_for_as_long_as_may_be():
    """The store says so in numbers of its own: it may not ask the room that delivers."""
    made = webhook()
    longest = retries.ATTEMPTS_MAX, retries.KEEP_MINUTES_MAX
    assert (made.attempts_max, made.keep_minutes) == longest


def test_every_step_of_the_ladder():
    """Longer and longer, then every hour."""
    assert [pause_seconds(letter(attempts=tries)) for tries in range(8)] == LADDER


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120),
        ("5", 10),
        ("0", 10),
        ("999999", 3600),
        ("9" * 5000, 3600),
        ("-120", 10),
        ("1.5e9", 10),
        ("²", 10),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 10),
    ],
)
def test_a_receiver_may_ask_for_a_longer_pause(said, seconds):
    """By Retry-After in seconds: never shorter than the ladder, never beyond an hour."""
    assert pause_seconds(letter(), status=503, retry_after=said) == seconds


def test_it_is_given_up_when_its_time_is_over():
    """At the last instant it is tried again; the next try that fails is the last."""
    hook = webhook(keep_minutes=5)
    just_before = START + timedelta(minutes=5, microseconds=-1)
    assert retries.failed(hook, letter(), just_before, "no").dead_at is None
    dead = retries.failed(hook, letter(), START + timedelta(minutes=5), "no")
    assert dead.dead_at == START + timedelta(minutes=5)
    assert dead.error == "no; given up after 5 minutes"
    # Whoever could not try meanwhile does not count from anew.
    tried = letter(attempts=1, error="no")
    assert retries.expired(hook, tried, just_before) is None
    assert retries.expired(hook, tried, dead.dead_at) == replace(dead, next_at=START)
    # And whoever could not try at all has one try.
    assert retries.expired(hook, letter(), dead.dead_at + HOUR) is None


@pytest.mark.parametrize(("attempts", "said"), [(1, "1 try"), (2, "2 tries")])
def test_a_letter_says_how_often_it_was_tried(attempts, said):
    """In words that people read."""
    dead = retries.failed(
        webhook(attempts_max=attempts), letter(attempts=attempts - 1), START, "no"
    )
    assert dead.error == f"no; given up after {said}"


def test_what_is_delivered_again_has_all_its_tries_before_it():
    """And all its time, and is due at once."""
    dead = retries.failed(webhook(), letter(attempts=29), START + HOUR, "no")
    assert dead.error == "no; given up after 30 tries"
    again = retries.anew(dead, START + 9 * HOUR)
    assert (again.attempts, again.queued_at, again.dead_at) == (0, START + 9 * HOUR, None)
    assert again.error == ""
    assert retries.is_due(again, START + 9 * HOUR)


def test_a_clock_that_is_set_back_keeps_nothing_waiting():
    """What was never tried is due; what was waits no longer than any pause."""
    assert retries.is_due(letter(), START - 9 * HOUR)
    tried = letter(attempts=1)
    assert retries.is_due(tried, START)
    assert not retries.is_due(tried, START - timedelta(seconds=1))
    assert not retries.is_due(tried, START - HOUR)
    assert retries.is_due(tried, START - HOUR - timedelta(seconds=1))


class Refusing:
    """A receiver in memory that answers the same to all; it notes when it was asked."""

    def __init__(self, clock, status=500):
        self.clock = clock
        self.status = status
        self.asked_at = []

    async def ask(self, *_):
        self.asked_at.append(self.clock.wall())
        return Answer(self.status, {}, b"")


@asynccontextmanager
async def delivering_to(receiver, hook, clock, store):
    """A service that delivers to this receiver; its conductor, and what is asked of webhooks."""
    async with conducting(store, clock=clock, waking=False) as conductor:
        store.add_webhook(hook, conductor.feed.revision)
        webhooks = Webhooks(conductor, subscription="s", location="l")
        webhooks.sender = receiver
        whole = Delivering(conductor, clock, webhooks, subscription="s", location="l")
        webhooks.changed = whole.look_again
        task = asyncio.ensure_future(whole.deliver())
        try:
            yield conductor, webhooks
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def day_of(hook, monkeypatch):
    """Seconds at which a receiver that is down is asked, and what becomes of the letter."""
    # Its turns are those of the letter alone.
    monkeypatch.setattr(courier, "LOOK_SECONDS", HOUR.total_seconds())
    monkeypatch.setattr(delivering, "LOOK_SECONDS", 48 * HOUR.total_seconds())
    clock, store = ManualClock(), MemoryStore()
    receiver = Refusing(clock)
    async with delivering_to(receiver, hook, clock, store) as (conductor, _):
        await conductor.submit(restart("one", "db"))
        begin = clock.wall()

        def asleep():
            return clock.next_wake is not None and clock.next_wake - clock.wall() <= HOUR

        def tried(number):
            """Its try is noted, or there was none, since the letter is dead."""
            (one,) = [*store.deliveries("1", 9), *store.deliveries("1", 9, dead=True)]
            return one.delivery.attempts == number or one.delivery.dead_at is not None

        for number in range(1, 100):
            await soon(lambda: len(receiver.asked_at) > 0)
            await soon(lambda n=number: tried(n))
            if store.deliveries_count("1", dead=True):
                break
            await soon(asleep)
            clock.advance(seconds=(clock.next_wake - clock.wall()).total_seconds())
    seconds = [round((at - begin).total_seconds(), 3) for at in receiver.asked_at]
    return seconds, store.deliveries("1", 1, dead=True)[0].delivery


def test_a_receiver_that_is_down_for_a_day(monkeypatch):
    """Thirty tries, at the instants of the ladder; then a dead letter."""
    hook = webhook(statuses=(EventStatus.SCHEDULED,))
    seconds, dead = asyncio.run(day_of(hook, monkeypatch))
    assert seconds == [sum([*LADDER, *[3600] * 22][:tries]) for tries in range(30)]
    assert dead.error == "it answered 500; given up after 30 tries"


def test_a_webhook_that_keeps_letters_for_minutes(monkeypatch):
    """When the next try would be after them there is none, and it is given up in time."""
    hook = webhook(statuses=(EventStatus.SCHEDULED,), keep_minutes=5)
    seconds, dead = asyncio.run(day_of(hook, monkeypatch))
    assert seconds == [0, 10, 40, 100]
    assert (dead.dead_at - dead.queued_at).total_seconds() == 300
    assert dead.error == "it answered 500; given up after 5 minutes"


@pytest.mark.parametrize(
    ("status", "is_taken"),
    [(200, True), (201, True), (204, True), (205, False), (206, False), (304, False)],
)
def test_which_answers_say_that_it_was_taken(status, is_taken):
    """200 to 204, as for Azure Event Grid; after any other it is tried again."""

    async def story():
        clock, store = ManualClock(), MemoryStore()
        receiver = Refusing(clock, status)
        async with delivering_to(receiver, webhook(), clock, store) as (conductor, _):
            await conductor.submit(restart("one", "db"))
            await soon(lambda: receiver.asked_at)
            await soon(lambda: store.deliveries_count("1") == 0 or tried(store) == 1)
            return store.deliveries_count("1")

    def tried(store):
        return store.deliveries("1", 1)[0].delivery.attempts

    assert asyncio.run(story()) == (0 if is_taken else 1)


def test_an_address_that_cannot_be_looked_up_is_the_receivers_fault(caplog):
    """One that was taken by an earlier release: its tries fail, and nothing is said of a fault."""

    async def story():
        clock, store = ManualClock(), MemoryStore()
        hook = webhook(url="https://a..b/")
        async with delivering_to(Sender(), hook, clock, store) as (conductor, _):
            await conductor.submit(restart("one", "db"))
            await soon(lambda: any(one.delivery.attempts for one in store.deliveries("1", 1)))
            return store.deliveries("1", 1)[0].delivery.error

    assert "names no host" in asyncio.run(story())
    assert "a fault of fairnotice" not in caplog.text


def test_one_that_leads_no_more_notes_nothing():
    """Stopped and continued, it hears of its last try: the letter is another's by now."""

    class Late(Refusing):
        def __init__(self, clock):
            super().__init__(clock)
            self.answers = asyncio.Event()

        async def ask(self, *given):
            answer = await super().ask(*given)
            await self.answers.wait()
            return answer

    async def story():
        clock, store = ManualClock(), MemoryStore()
        receiver = Late(clock)
        async with delivering_to(receiver, webhook(), clock, store) as (conductor, _):
            await conductor.submit(restart("one", "db"))
            await soon(lambda: receiver.asked_at)
            before = store.deliveries("1", 9)
            conductor._leads = False
            receiver.answers.set()
            await settled()
            assert store.deliveries("1", 9) == before
            # Where it leads again, it is delivered again.
            conductor._leads = True
            clock.advance(seconds=2)
            await soon(lambda: len(receiver.asked_at) == 2)

    asyncio.run(story())
