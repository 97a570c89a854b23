"""Watching: each change once and in order, resumed anywhere, through everything a service does."""

import asyncio
import threading
from contextlib import ExitStack
from datetime import timedelta
from itertools import product

import pytest

from fairnotice.client import (
    AsyncScheduledEvents,
    ChangeKind,
    Document,
    Missed,
    Position,
    ScheduledEvents,
)
from fairnotice.errors import RequestRefused, UsageError
from fairnotice.metadata.faults import SPOILING, STAND_INS, FaultKind
from fairnotice.testing import Cloud
from tests.client.bodies import GOOD, six
from tests.client.kinds import KINDS, Sync, missed
from tests.client.scripted import answer, header, serving
from tests.client.test_changes import walked

# Who is hit, by what, and a neighbour who sees it all.
LIVES = {
    "Freeze": ("web-0", lambda cloud: cloud.node("node-0").maintain()),
    "Reboot": ("web-0", lambda cloud: cloud.vm("web-0").restart()),
    "Redeploy": ("web-0", lambda cloud: cloud.vm("web-0").redeploy()),
    "Preempt": ("spot_1", lambda cloud: cloud.vm("spot_0").evict()),
    "Terminate": ("batch_1", lambda cloud: cloud.vm("batch_0").delete()),
}


def seen_by(cloud, vm):
    """The one event that this VM is shown."""
    (shown,) = cloud.document(vm)["Events"]
    return cloud.event(shown["EventId"])


def words(changes):
    """What became of which type, in order."""
    return [(change.kind.value, change.event.type) for change in changes]


def live_through(cloud, type_, looked):
    """Announce, postpone, start and end an event of this type; look after each."""
    vm, begin = LIVES[type_]
    begin(cloud)
    event = seen_by(cloud, vm)
    looked(1)
    event.postpone(event.not_before + timedelta(minutes=1))
    looked(2)
    cloud.run_until(event, "Started")
    looked(3)
    cloud.run_until(event, "Completed")
    looked(4)


@pytest.mark.parametrize("type_", LIVES)
def test_a_whole_life(kind, cloud, type_):
    """Announced, changed, started, gone: each once, as it happens."""
    with kind(cloud.url_for(LIVES[type_][0])).following("watch") as got:
        live_through(cloud, type_, lambda count: cloud.wait_until(lambda: len(got) == count))
    assert words(got) == [(it.value, type_) for it in ChangeKind]


@pytest.mark.parametrize("type_", LIVES)
def test_killed_after_each_change_and_resumed(cloud, type_):
    """A program that saves each position and is ended: nothing is lost, nothing comes twice."""
    saved, told = None, []

    def look(_):
        nonlocal saved
        since = None if saved is None else Position.from_json(saved)
        change = next(ScheduledEvents(cloud.url_for(LIVES[type_][0])).watch(since))
        told.append(change)
        saved = change.position.to_json()

    live_through(cloud, type_, look)
    assert words(told) == [(it.value, type_) for it in ChangeKind]


def test_killed_between_two_changes_of_one_document(kind, cloud):
    """While nobody watched one was announced and another is over; the second is told afterwards."""
    url = cloud.url_for("web-0")
    first = cloud.vm("web-0").restart()
    with kind(url).following("watch") as got:
        cloud.wait_until(lambda: got)
    cloud.run_until(first, "Completed")
    second = cloud.vm("web-1").redeploy()
    with kind(url).following("watch", got[0].position) as later:
        cloud.wait_until(lambda: len(later) == 2)
    with kind(url).following("watch", later[0].position) as again:
        cloud.wait_until(lambda: again)

    assert [(it.kind, it.event.id) for it in later] == [
        ("gone", first.id),
        ("announced", second.id),
    ]
    assert again == later[1:]


def test_an_incarnation_that_goes_back(kind, cloud):
    """The number starts anew while an event is live: it is not announced again, nor is it gone."""
    event = cloud.vm("web-0").restart()
    with kind(cloud.url_for("web-0")).following("watch") as got:
        cloud.wait_until(lambda: got)
        with cloud.fault("incarnation-reset", vm="web-0"):
            asked = len(cloud.requests)
            cloud.wait_until(lambda: len(cloud.requests) > asked + 1)
        cloud.run_until(event, "Started")
        cloud.wait_until(lambda: len(got) == 2)
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: len(got) == 3)
    assert [change.kind for change in got] == ["announced", "started", "gone"]


# ---- Waiting and polling ----


def test_a_service_that_waits_is_asked_twice_for_one_event(kind, cloud):
    """Once for the document; the second answer is held until there is something new."""
    with kind(cloud.url_for("web-0")).following("watch") as got:
        cloud.wait_until(lambda: len(cloud.requests) == 1)
        cloud.vm("web-0").restart()
        cloud.wait_until(lambda: got)
        assert len(cloud.requests) == 2


def test_a_service_that_does_not_wait_is_polled(kind):
    """It ignores the wish, as Azure does, and has an event at the fourth look."""

    def says(request):
        changed = len(service.asked) > 3
        etag = b'"2"' if changed else b'"1"'
        if header(request, b"If-None-Match") == etag:
            return answer(b"", 304, b"ETag: " + etag)
        return answer(six() if changed else GOOD["no events"][0], 200, b"ETag: " + etag)

    with serving(says) as service, kind(service.url).following("watch") as got:
        while not got:
            threading.Event().wait(0.01)
        first, *others = service.asked
    assert words(got) == [("announced", "Reboot")]
    assert header(first, b"Prefer") is None
    assert {header(request, b"Prefer") for request in others} == {b"wait=10"}
    assert service.connections == 1


def test_a_service_without_etags_is_polled(kind):
    """There is nothing to wait with."""
    with serving(lambda _: answer(six() if len(service.asked) > 1 else GOOD["no events"][0])) as (
        service
    ):
        with kind(service.url).following("watch") as got:
            while not got:
                threading.Event().wait(0.01)
        assert {header(request, b"Prefer") for request in service.asked} == {None}


def test_a_connection_that_was_closed_meanwhile_is_no_failure(kind):
    """The service lets go of it after each answer, without a word."""
    said = lambda _: answer(six() if len(service.asked) > 1 else GOOD["no events"][0])  # noqa: E731
    with serving(said, keeps=False) as service, kind(service.url).following("documents") as got:
        while len(got) < 2:
            threading.Event().wait(0.01)
    assert missed(got) == []
    assert service.connections >= 2


# ---- What the caller may do ----


def test_a_heartbeat_gives_the_caller_a_turn(cloud):
    """Nothing is new, and the document comes again."""
    client = ScheduledEvents(cloud.url_for("web-0"))
    documents = client.documents(heartbeat_seconds=0.5)

    first = next(documents)
    assert next(documents) is first
    documents.close()


def test_a_closed_client_ends_its_watches(cloud):
    """In another thread, in the middle of a held answer."""
    with ScheduledEvents(cloud.url_for("web-0")) as client:
        ended = threading.Thread(target=lambda: list(client.watch()))
        ended.start()
        cloud.wait_until(lambda: cloud.requests)
    ended.join(10)
    assert not ended.is_alive()


def test_a_closed_client_with_a_loop_ends_its_watches(cloud):
    """The same; its own task may close it, too."""

    async def watch_and_close():
        async with AsyncScheduledEvents(cloud.url_for("web-0")) as client:
            documents = client.documents()
            await anext(documents)
            held = asyncio.ensure_future(anext(documents, None))
            await cloud.wait_until_async(lambda: client._lines)
        return await held

    missed = asyncio.run(watch_and_close())
    assert missed is None or isinstance(missed, Missed)


def test_an_approval_goes_by_while_an_answer_is_held(cloud):
    """From the thread that prepared, on a connection of its own."""
    client = Sync(cloud.url_for("web-0"))
    with client.following("watch") as got:
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: got)
        client.call("approve", got[0].event)
        cloud.wait_until(lambda: len(got) == 2)
    assert (got[1].kind, event.approved_by) == ("started", "web-0")


def test_a_request_that_is_wrong_from_the_first_is_raised(cloud):
    """An api-version that there is not: nobody would ever be told."""
    client = ScheduledEvents(cloud.url_for("web-0"), api_version="2000-01-01")
    with pytest.raises(RequestRefused, match="api-version"):
        next(client.watch())


def test_a_failure_is_logged_and_waited_out(cloud, caplog):
    """The service is being updated; the watch says so and goes on."""
    with ExitStack() as update:
        update.enter_context(cloud.fault("gone", vm="web-0"))
        with Sync(cloud.url_for("web-0")).following("watch") as got:
            cloud.wait_until(lambda: "answered 410" in caplog.text)
            update.close()
            cloud.vm("web-0").restart()
            cloud.wait_until(lambda: got)
    assert words(got) == [("announced", "Reboot")]


# ---- Every fault there is ----

FAULT_SECONDS = {FaultKind.SLOW: 0.3, FaultKind.SLOW_FIRST: 0.5}
# These give no document while they last, and these none with the event.
NOTHING = {*STAND_INS, *SPOILING}
HIDING = {FaultKind.SHORT_NOTICE, FaultKind.STRAIGHT_TO_STARTED}
LIFE = ["announced", "started", "gone"]
# What a client is told where the document itself was wrong: that, and then the truth.
TOLD = {
    FaultKind.CONTROL_CHARACTERS: ["announced", "changed", "started", "gone"],
    FaultKind.FREEZE_FOR_REBOOT: ["announced", "changed", "started", "gone"],
    FaultKind.TWO_EVENTS: ["announced", "announced", "gone", "started", "gone"],
}


def vm_name(kind, fault):
    """A VM for each fault and kind of client."""
    return f"{kind}-{fault}"


FLEET = {
    "node": [{"name": "node-0", "capacity": 100}],
    "vm": [
        {"name": vm_name(kind, fault), "node": "node-0"} for kind in KINDS for fault in FaultKind
    ],
}


def test_every_fault_is_survived():
    """Each meets one VM of each kind of client from the start, and is over after the announcement.

    Then the event starts and ends, and each has been told its whole life, once.
    """
    with Cloud(FLEET) as cloud, Follow(cloud) as follow:
        with ExitStack() as faults:
            for kind, fault in product(KINDS, FaultKind):
                how = {"vm": vm_name(kind, fault), "seconds": FAULT_SECONDS.get(fault)}
                faults.enter_context(cloud.fault(fault, **how))
                follow.begin(kind, fault)
            follow.until(lambda fault, items: fault not in NOTHING or missed(items))
            events = [cloud.vm(vm).restart() for vm in follow.vms]
            unseen = NOTHING | HIDING
            follow.until(lambda fault, items: fault in unseen or latest(items).events)
        follow.until(lambda _, items: shows_the_truth(latest(items)))
        cloud.advance(minutes=15)
        follow.until(lambda _, items: "started" in kinds_of(items))
        for event in events:
            cloud.run_until(event, "Completed")
        follow.until(lambda _, items: "gone" in kinds_of(items)[-1:])
        for fault, items in follow.items():
            assert kinds_of(items) == TOLD.get(fault, LIFE), fault


class Follow:
    """A client for each fault, all at once."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.vms = {}
        self.open = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.open:
            one.__exit__(None, None, None)

    def begin(self, kind, fault):
        vm = vm_name(kind, fault)
        following = KINDS[kind](self.cloud.url_for(vm)).following("documents")
        self.vms[vm] = (fault, following.__enter__())
        self.open.append(following)

    def items(self):
        return list(self.vms.values())

    def until(self, true):
        """Wait until it is so for each; say for whom it is not."""
        left = lambda: [fault for fault, got in self.items() if not true(fault, list(got))]  # noqa: E731
        try:
            self.cloud.wait_until(lambda: not left(), seconds=30)
        except AssertionError:
            assert left() == []


def latest(items):
    """The last document of a stream."""
    documents = [item for item in items if not isinstance(item, Missed)]
    return documents[-1] if documents else Document(0)


def shows_the_truth(document):
    """Whether it has the one restart, and nothing odd about it."""
    events = [(event.type, event.description.isprintable()) for event in document.events]
    return events == [("Reboot", True)]


def kinds_of(items):
    """What became of events, by the documents of a stream."""
    return [change.kind for change in walked(i for i in items if isinstance(i, Document))]


def test_a_position_that_is_none_is_said_to_be():
    """In a sentence, with the way to one that was saved; nobody is asked for that."""
    nowhere = "http://127.0.0.1:9"
    with pytest.raises(UsageError, match=r"not at 'junk'.*Position.from_json"):
        next(ScheduledEvents(nowhere).watch("junk"))
    with pytest.raises(UsageError, match=r"not at 'junk'.*Position.from_json"):
        asyncio.run(anext(AsyncScheduledEvents(nowhere).watch("junk")))
