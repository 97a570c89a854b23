"""First-seen records: which VM was first served which event when, in batches."""

from tests.engine.story import SPOT, WEB
from tests.metadata.wireless import DB_0, SPOT_0, STRANGER, WEB_0, WEB_1, approval, get, request


def records(world):
    """What was gathered since the last look: (VM, event)."""
    return sorted((first.vm, first.event) for first in world.worker.board.take_first_seen())


def test_once_for_each_vm_and_event(wireless):
    """However often it polls, on one connection or on many, fast or slow, close or not."""
    world = wireless()
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    vm = world.connect()
    for raw in (get(), get(), get("X: 1"), get(version="2017-03-01"), get("Connection: close")):
        vm.send(raw)
    world.ask(get(), WEB_1)

    assert records(world) == [("web-0", event), ("web-1", event)]
    world.ask(get())
    assert records(world) == []


def test_the_record_says_when(wireless):
    """The instant of the first answer, not of the batch."""
    world = wireless()
    world.stage.restart_vm("web-0")
    world.advance(seconds=10)
    at = world.now
    world.ask(get())
    world.advance(seconds=30)
    world.ask(get())

    assert [first.at for first in world.worker.board.take_first_seen()] == [at]


def test_it_reaches_the_event_in_a_batch(wireless):
    """One command for all that was gathered; the event's row names each VM and its time."""
    world = wireless()
    world.stage.restart_vm("web-0")
    world.ask(get(), WEB_0)
    world.advance(seconds=5)
    world.ask(get(), WEB_1)
    before = world.stage.commands_count
    world.stage.report_served()

    assert world.stage.commands_count == before + 1
    seen = world.stage.only(WEB).seen
    assert [(first.vm, (first.at - world.stage.began).seconds) for first in seen] == [
        ("web-0", 0),
        ("web-1", 5),
    ]


def test_a_version_that_hides_an_event_has_not_shown_it(wireless):
    """Preempt is first seen when it is read with 2017-11-01 or later."""
    world = wireless()
    world.stage.evict("spot_0")
    event = world.stage.only(SPOT).id
    world.ask(get(version="2017-08-01"), SPOT_0)
    assert records(world) == []
    world.ask(get(version="2017-11-01"), SPOT_0)
    assert records(world) == [("spot_0", event)]
    for version in ("2017-08-01", "2020-07-01", "2017-08-01", "2017-11-01"):
        world.ask(get(version=version), SPOT_0)

    assert records(world) == []


def test_a_second_event_is_a_second_record(wireless):
    """The first is not recorded again when the document changes."""
    world = wireless()
    world.stage.restart_vm("web-0")
    first = world.stage.only(WEB).id
    world.ask(get())
    assert records(world) == [("web-0", first)]
    world.stage.restart_vm("web-1")
    (second,) = {event.id for event in world.stage.events(WEB)} - {first}
    world.ask(get())
    assert records(world) == [("web-0", second)]
    world.ask(approval(first))
    world.ask(get())

    assert records(world) == []


def test_the_first_answer_of_a_scope_counts(wireless):
    """What the enabling announced was seen by whoever enabled it."""
    world = wireless(listening=())
    world.stage.restart_vm("db", not_before=world.stage.at(hours=1))
    world.ask(get(), DB_0)

    assert [vm for vm, _ in records(world)] == ["db"]


def test_an_answer_that_was_held_counts(wireless):
    """Woken by the change, it has seen the event."""
    world = wireless()
    vm = world.connect()
    etag = vm.ask(get()).etag
    vm.send(get(f"If-None-Match: {etag}", "Prefer: wait=60"))
    world.run(lambda: world.stage.restart_vm("web-0"))

    assert records(world) == [("web-0", world.stage.only(WEB).id)]


def test_nothing_else_counts(wireless):
    """A 304, a fault, a POST, another path, a stranger: nobody was shown anything."""
    world = wireless()
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    etag = world.ask(get(), WEB_1).etag
    world.worker.board.take_first_seen()
    world.ask(get(f"If-None-Match: {etag}"))
    world.ask(get(metadata=None))
    world.ask(request("GET", "/metadata/instance?api-version=2021-02-01"))
    world.ask(get(), STRANGER)
    world.ask(approval(event))

    assert records(world) == []


def test_a_batch_that_could_not_be_handed_on_is_kept(wireless):
    """Given back, it comes first in the next."""
    world = wireless()
    world.stage.restart_vm("web-0")
    world.ask(get())
    board = world.worker.board
    batch = board.take_first_seen()
    world.ask(get(), WEB_1)
    board.give_back(batch, [])

    assert [first.vm for first in board.take_first_seen()] == ["web-0", "web-1"]
