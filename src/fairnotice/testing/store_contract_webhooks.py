"""The proof of a store's part about webhooks (stores/webhooks.py)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from fairnotice.stores.store import Store
from fairnotice.stores.webhooks import Delivery, Queued, Webhook
from fairnotice.testing.sample_rows import START
from fairnotice.testing.store_contract_access import promise
from fairnotice.words import EventSchema, EventStatus, EventType


@contextmanager
def _open(make_store: Callable[[], Store]) -> Iterator[Store]:
    store = make_store()
    try:
        yield store
    finally:
        store.close()


def _webhook(number: int, **more: object) -> Webhook:
    given: dict[str, object] = {
        "id": f"{number:016x}",
        "name": f"hook {number}",
        "url": "https://example.org/in?code=☃",
        "schema": EventSchema.EVENTGRID,
        "created_at": START + timedelta(seconds=number),
        "created_by": 'admin "☃" \\',
        "statuses": (EventStatus.COMPLETED,),
        "types": (EventType.FREEZE,),
        "scopes": ("vm:db",),
        "resource_groups": ("shop",),
        "secret": "whsec_a",
    }
    return Webhook(**{**given, **more})  # type: ignore[arg-type]


def _delivery(number: int, **more: object) -> Delivery:
    given: dict[str, object] = {
        "id": f"{number}",
        "event": "E",
        "status": EventStatus.STARTED,
        "queued_at": START,
        "content": '{"a": "☃ \\" \\\\"}',
        "next_at": START,
    }
    return Delivery(**{**given, **more})  # type: ignore[arg-type]


def _webhooks_come_back(make_store: Callable[[], Store]) -> None:
    # The younger first: they are told in the order of their age.
    hooks = [_webhook(2), _webhook(1)]
    with _open(make_store) as store:
        promise(store.webhooks() == [], "there is no webhook before one is added")
        added = [store.add_webhook(hook, number) for number, hook in enumerate(hooks)]
        promise(all(added), "a webhook with a new name is kept")
        for again in (_webhook(3, name="HOOK 1"), _webhook(1, name="another")):
            promise(not store.add_webhook(again, 9), "no second webhook has a name or an id")
    with _open(make_store) as store:
        promise(
            store.webhooks() == [(hooks[1], 1), (hooks[0], 0)],
            "webhooks come back as they were with their cursors, the oldest first",
        )
        changed = _webhook(1, validation_code="code")
        promise(store.change_webhook(changed), "a webhook that is there is changed")
        promise(not store.change_webhook(_webhook(7)), "one that is not there is not")
        promise(store.webhooks()[0] == (changed, 1), "a change leaves the cursor where it was")


def _what_is_queued_waits_in_its_order(make_store: Callable[[], Store]) -> None:
    hook, other = _webhook(1).id, _webhook(2).id
    several = [_delivery(number) for number in range(5)]
    with _open(make_store) as store:
        promise(store.queue_deliveries(hook, 1, 7, several[:3]), "the cursor was where it was said")
        promise(not store.queue_deliveries(hook, 1, 8, several), "a cursor that moved is noticed")
        promise(not store.queue_deliveries("nobody", 0, 8, several), "nobody is told nothing")
        promise(store.queue_deliveries(hook, 7, 9, ()), "the cursor moves without a delivery")
        promise(store.queue_deliveries(other, 0, 9, several[:1]), "each has a queue of its own")
        promise(store.queue_deliveries(hook, 9, 12, several[3:]), "a queue goes on")
    with _open(make_store) as store:
        promise([cursor for _, cursor in store.webhooks()] == [12, 9], "cursors are durable")
        found = store.deliveries(hook, 9)
        promise([one.delivery for one in found] == several, "deliveries wait in their order")
        promise(store.deliveries(hook, 2) == found[:2], "no more are told than were asked for")
        rest = store.deliveries(hook, 9, after=found[1].number)
        promise(rest == found[2:], "they are read on after a number")
        promise(store.deliveries_count(hook) == len(several), "it is known how many wait")


def _what_was_taken_leaves_the_queue(make_store: Callable[[], Store]) -> None:
    hook = _webhook(1).id
    with _open(make_store) as store:
        first, second, third, *_ = store.deliveries(hook, 9)
        failed = msgspec.structs.replace(second.delivery, attempts=1, error="no ☃")
        dead = msgspec.structs.replace(third.delivery, attempts=2, dead_at=START)
        kept = [Queued(second.number, failed), Queued(third.number, dead)]
        store.settle_deliveries([first.number], kept)
    with _open(make_store) as store:
        waiting = store.deliveries(hook, 9)
        promise(waiting[0] == (second.number, failed), "what came of a try is noted")
        promise(first not in waiting, "what was taken is gone")
        letters = store.deliveries(hook, 9, dead=True)
        promise(letters == [(third.number, dead)], "what is given up is a dead letter")
        promise(store.deliveries_count(hook, dead=True) == 1, "it is known how many are dead")
        store.settle_deliveries([], [first])
        promise(store.deliveries(hook, 9) == waiting, "what is gone does not come back")
        promise(store.forget_dead_letters(START) == 0, "a dead letter is kept for its time")
        later = START + timedelta(seconds=1)
        promise(store.forget_dead_letters(later) == 1, "and then forgotten")
        promise(store.deliveries(hook, 9) == waiting, "and nothing else is")


def _of_dead_letters_the_oldest_go_first(make_store: Callable[[], Store]) -> None:
    hook, other = _webhook(1).id, _webhook(2).id
    several = [_delivery(number) for number in range(4)]
    with _open(make_store) as store:
        waiting = store.deliveries(hook, 9)
        cursors = {one.webhook.id: one.cursor for one in store.webhooks()}
        for whose in (hook, other):
            store.queue_deliveries(whose, cursors[whose], cursors[whose], several)
            # Whatever was given up first: their order is that of what happened.
            dead = [
                Queued(number, msgspec.structs.replace(one, dead_at=START - timedelta(place)))
                for place, (number, one) in enumerate(store.deliveries(whose, 9)[-4:])
            ]
            store.settle_deliveries([], dead)
        letters = store.deliveries(other, 9, dead=True)
        promise(store.forget_dead_letters_beyond(other, 4) == 0, "so many are kept")
        promise(store.forget_dead_letters_beyond(other, 1) == 3, "and what is beyond is not")
        promise(store.deliveries(other, 9, dead=True) == letters[3:], "the newest is kept")
        promise(store.deliveries_count(hook, dead=True) == 4, "those of others are kept")
        promise(store.forget_dead_letters_beyond(hook, 0) == 4, "also none may be kept")
        promise(store.deliveries(hook, 9) == waiting, "what waits is no dead letter")


def _a_webhook_goes_with_all_that_it_waits_for(make_store: Callable[[], Store]) -> None:
    hook, other = _webhook(1).id, _webhook(2).id
    with _open(make_store) as store:
        promise(store.remove_webhook(hook), "a webhook that is there is removed")
        promise(not store.remove_webhook(hook), "once")
        promise(store.deliveries(hook, 9) == [], "its deliveries are gone with it")
        promise(store.deliveries_count(other) == 1, "those of others are not")
        promise(store.add_webhook(_webhook(1), 20), "its name may be given again")
    with _open(make_store) as store:
        promise(len(store.webhooks()) == 2, "all of that is durable")


PROMISES: tuple[Callable[[Callable[[], Store]], None], ...] = (
    _webhooks_come_back,
    _what_is_queued_waits_in_its_order,
    _what_was_taken_leaves_the_queue,
    _of_dead_letters_the_oldest_go_first,
    _a_webhook_goes_with_all_that_it_waits_for,
)
