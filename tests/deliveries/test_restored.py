"""What receivers hear of a service that was restored from a backup."""

import io
from contextlib import closing

from fairnotice.clock import SystemClock
from fairnotice.stores.backups import Backup, restore, written
from fairnotice.stores.opening import open_store
from tests.control.calling import restarted, serving


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
