"""What receivers hear of a service that was restored from a backup."""

import io
from contextlib import closing

from fairnotice.clock import SystemClock
from fairnotice.stores.backups import Backup, restore, written
from fairnotice.stores.opening import open_store
from tests.control.calling import restarted, serving
from tests.waiting import until


def test_a_copy_tells_again_and_goes_on_though_its_webhook_was_deleted(tmp_path, receiver):
    """What is known comes with the id that it had; a deletion after the backup is not in it."""
    clock, copy = SystemClock(), f"sqlite:{tmp_path}/copy.db"
    store = open_store(f"sqlite:{tmp_path}/it.db")
    with serving(store) as served:
        served.post("/v1/webhooks", {"name": "ops", "url": receiver.url, "signed": True})
        restarted(served, "web-0")
        first = receiver.next()
        backup = b"".join(written(store.copy(), clock.wall()))
        served.call("DELETE", "/v1/webhooks/ops")
        restarted(served, "web-1")
        assert receiver.nothing_within(0.3)
    with closing(open_store(copy)) as filled:
        restore(Backup(io.BytesIO(backup), "it"), filled, clock.wall())
    with serving(open_store(copy)) as served:
        assert receiver.next().event["id"] == first.event["id"]
        event = restarted(served, "db")
        # What had been taken and was not yet written down comes once more.
        told = (one.properties["EventId"] for one in iter(receiver.next, None))
        assert event.lower() in told


def test_a_copy_without_webhooks_tells_nobody_of_anything(tmp_path, receiver):
    """Neither what waited for them, nor what happens there."""
    clock, copy = SystemClock(), f"sqlite:{tmp_path}/copy.db"
    store = open_store(f"sqlite:{tmp_path}/it.db")
    receiver.answers = lambda _: 503
    with serving(store) as served:
        served.post("/v1/webhooks", {"name": "ops", "url": receiver.url, "signed": True})
        restarted(served, "web-0")
        # The question whether it agrees, and a letter that is not taken.
        until(lambda: len(receiver.tried) > 1, "a try")
        backup = b"".join(written(store.copy(), clock.wall()))
    with closing(open_store(copy)) as filled:
        restore(Backup(io.BytesIO(backup), "it"), filled, clock.wall(), webhooks=False)
    receiver.answers, tried = lambda _: 200, len(receiver.tried)
    with serving(open_store(copy)) as served:
        restarted(served, "db")
        assert receiver.nothing_within(0.5)
        assert len(receiver.tried) == tried
        assert served.get("/v1/webhooks").json["items"] == []
