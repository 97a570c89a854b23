"""WIRE section 1: `Prefer: wait=N`, the answer that is held until the document changes."""

import pytest

from fairnotice.engine.commands import ApplyFleet
from tests.engine.story import DB, WEB
from tests.metadata.wireless import (
    DB_0,
    WEB_0,
    WEB_1,
    Limits,
    approval,
    get,
    post,
    request,
    served_sample,
    start_requests,
)


def waiting(vm, seconds=30, *more):
    """A VM that has read the document asks to be told of the next."""
    etag = vm.ask(get()).etag
    assert vm.send(get(f"If-None-Match: {etag}", f"Prefer: wait={seconds}", *more)) == []
    return etag


def test_a_change_is_told_at_once(wireless):
    """Held while nothing happens; 200 with the new document when something does."""
    world = wireless()
    vm = world.connect()
    etag = waiting(vm)
    world.advance(seconds=7)
    assert vm.read() == []
    world.run(lambda: world.stage.restart_vm("web-0"))

    (answer,) = vm.read()
    assert (answer.status, answer.headers["preference-applied"]) == (200, "wait=30")
    assert answer.etag != etag
    assert len(answer.events) == 1
    assert world.worker.held_count == 0


def test_at_the_end_it_is_304(wireless):
    """N seconds and no change: not modified, without a body, and not before."""
    world = wireless()
    vm = world.connect()
    etag = waiting(vm, 30)
    world.advance(seconds=29.5)
    assert vm.read() == []
    world.advance(seconds=0.6)

    (answer,) = vm.read()
    assert (answer.status, answer.body, answer.etag) == (304, b"", etag)
    assert answer.headers["preference-applied"] == "wait=30"
    assert vm.ask(get()).status == 200


@pytest.mark.parametrize("seconds", ["61", "600", "99999999999999999999999"])
def test_nobody_waits_longer_than_a_minute(wireless, seconds):
    """At most 60, and it is said how long it was."""
    world = wireless()
    vm = world.connect()
    waiting(vm, seconds)
    world.advance(seconds=59)
    assert vm.read() == []
    world.advance(seconds=1.5)

    (answer,) = vm.read()
    assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=60")


def test_without_if_none_match_it_is_ignored(wireless):
    """As Azure ignores it: the document at once."""
    answer = wireless().ask(get("Prefer: wait=30"))

    assert answer.status == 200
    assert "preference-applied" not in answer.headers


@pytest.mark.parametrize(
    "target",
    [
        "/metadata/versions",
        "/metadata/instance?api-version=2021-02-01",
        "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
    ],
)
def test_only_the_document_is_waited_for(wireless, target):
    """Elsewhere the preference is not applied, so it is not said that it was."""
    answer = wireless().ask(request("GET", target, 'If-None-Match: "1-1"', "Prefer: wait=5"))

    assert answer.status == 200
    assert "preference-applied" not in answer.headers


def test_whoever_says_no_more_is_answered_at_once(wireless):
    """It may be gone, so nothing is held for it: the wait ends, and what is behind it is answered.

    That the wait was not kept is said by what is missing: Preference-Applied.
    """
    world = wireless()
    vm = world.connect()
    etag = waiting(vm, 50)
    vm.send(get(f"If-None-Match: {etag}", "Prefer: wait=50") + get())
    vm.say_no_more()

    answers = vm.read()
    assert [answer.status for answer in answers] == [304, 304, 200]
    assert not any("preference-applied" in answer.headers for answer in answers)
    assert vm.closed
    assert world.worker.held_count == 0


@pytest.mark.parametrize(
    "preference", ["wait=0", "wait=1.5", "wait=ten", "wait", "wait=-5", "respond-async"]
)
def test_what_is_no_wait_is_not_waited_for(wireless, preference):
    """304 at once."""
    world = wireless()
    etag = world.ask(get()).etag

    assert world.ask(get(f"If-None-Match: {etag}", f"Prefer: {preference}")).status == 304


@pytest.mark.parametrize(
    "lines",
    [
        ("prefer: WAIT=5",),
        ("Prefer: wait = 5",),
        ('Prefer: wait="5"',),
        ("Prefer: respond-async, wait=5",),
        ("Prefer: wait=5; x=1, handling=lenient",),
        ("Prefer: respond-async", "Prefer: wait=5"),
        ("Prefer: wait=5", "Prefer: respond-async"),
    ],
)
def test_the_preference_as_rfc_7240_writes_it(wireless, lines):
    """In any case, among others, on one line or on several."""
    world = wireless()
    vm = world.connect()
    etag = vm.ask(get()).etag

    assert vm.send(get(f"If-None-Match: {etag}", *lines)) == []
    world.advance(seconds=5.5)
    assert [answer.headers["preference-applied"] for answer in vm.read()] == ["wait=5"]


def test_a_document_that_has_changed_already_is_answered_at_once(wireless):
    """There is nothing to wait for; that waiting is understood here is said all the same."""
    world = wireless()
    etag = world.ask(get()).etag
    world.stage.restart_vm("web-0")
    answer = world.ask(get(f"If-None-Match: {etag}", "Prefer: wait=30"))

    assert answer.status == 200
    assert answer.headers["preference-applied"] == "wait=30"


def test_a_change_elsewhere_wakes_nobody(wireless):
    """Another scope's event is none of this VM's business."""
    world = wireless()
    vm = world.connect()
    waiting(vm)
    world.run(lambda: world.stage.restart_vm("db"))
    assert vm.read() == []
    world.advance(seconds=31)
    assert [answer.status for answer in vm.read()] == [304]


def test_all_who_wait_are_woken_each_in_its_own_version(wireless):
    """Three VMs, three versions, one change."""
    world = wireless()
    lines = [world.connect(address) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3")]
    for vm, version in zip(lines, ("2017-03-01", "2019-04-01", "2020-07-01"), strict=True):
        etag = vm.ask(get()).etag
        vm.send(get(f"If-None-Match: {etag}", "Prefer: wait=60", version=version))
    assert world.worker.held_count == 3
    world.run(lambda: world.stage.restart_vm("web-0"))

    (first,), (second,), (third,) = [vm.read() for vm in lines]
    assert [len(answer.events[0]) for answer in (first, second, third)] == [6, 7, 9]
    assert first.events[0]["Resources"] == ["_web-0"]


def test_a_post_does_not_wait(wireless):
    """If-None-Match is ignored on a POST, so there is nothing to wait for."""
    world = wireless()
    world.stage.restart_vm("web-0")
    etag = world.ask(get()).etag
    body = start_requests(world.stage.only(WEB).id)

    answer = world.ask(post(body, f"If-None-Match: {etag}", "Prefer: wait=30"))
    assert (answer.status, answer.body) == (200, b"")


def test_close_is_obeyed_after_the_wait(wireless):
    """`Connection: close` is said back with the answer that was held, and HTTP/1.0 too."""
    world = wireless()
    for more in ({}, {"http": "HTTP/1.0"}):
        vm = world.connect()
        etag = world.ask(get()).etag
        lines = [f"If-None-Match: {etag}", "Prefer: wait=5"]
        vm.send(get(*lines, *([] if more else ["Connection: close"]), **more))
        world.advance(seconds=6)
        (answer,) = vm.read()
        assert (answer.status, answer.headers["connection"]) == (304, "close")
        assert vm.closed


def test_what_comes_behind_a_wait_waits_too(wireless):
    """Pipelined requests are answered after it, in order."""
    world = wireless()
    vm = world.connect()
    waiting(vm)
    assert vm.send(get(version="2017-03-01") + get("Connection: close")) == []
    world.run(lambda: world.stage.restart_vm("web-0"))

    assert [len(answer.events[0]) for answer in vm.read()] == [9, 6, 9]
    assert vm.closed


def test_what_comes_behind_a_wait_does_not_shorten_it(wireless):
    """A whole request behind it, and 60 seconds are still 60 seconds."""
    world = wireless()
    vm = world.connect()
    waiting(vm, 60)
    vm.send(get())
    for _ in range(59):
        world.advance(seconds=1)
        assert vm.read() == []
        assert not vm.closed
    world.advance(seconds=2)

    assert [answer.status for answer in vm.read()] == [304, 200]


def test_half_a_request_behind_a_wait_is_not_answered_before_it(wireless):
    """A 408 for what follows never takes the place of the answer that is held."""
    world = wireless()
    vm = world.connect()
    waiting(vm, 60)
    vm.send(get()[:20])
    for _ in range(62):
        world.advance(seconds=1)
    answers = vm.read()

    assert answers[0].status == 304
    assert [answer.status for answer in answers[1:]] in ([], [408])


def test_two_waits_on_one_connection(wireless):
    """The second begins when the first is answered; neither is lost."""
    world = wireless()
    vm = world.connect()
    etag = waiting(vm, 60)
    vm.send(get(f"If-None-Match: {etag}", "Prefer: wait=60"))
    world.run(lambda: world.stage.restart_vm("web-0"))

    assert [answer.status for answer in vm.read()] == [200, 200]
    assert world.worker.held_count == 0


def test_whoever_hangs_up_is_let_go(wireless):
    """Nothing is kept for a VM that went away while its answer was held."""
    world = wireless()
    vm = world.connect()
    waiting(vm)
    vm.hang_up()
    world.run(lambda: world.stage.restart_vm("web-0"))

    assert (world.worker.held_count, vm.read()) == (0, [])
    assert not world.worker.connections


def test_a_held_answer_outlives_the_idle_limit(wireless):
    """A connection that waits is not idle."""
    world = wireless(limits=Limits(idle_seconds_max=5, request_seconds_max=5))
    vm = world.connect()
    waiting(vm, 40)
    for _ in range(39):
        world.advance(seconds=1)
    assert not vm.closed
    world.advance(seconds=2)

    assert [answer.status for answer in vm.read()] == [304]


def test_a_wait_where_nobody_can_be_enabled_is_a_wait(wireless):
    """With the control plane away the empty document does not change, so the answer is held."""
    world = wireless(listening=())
    world.stage.away = True
    vm = world.connect()
    etag = vm.ask(get()).etag

    assert vm.send(get(f"If-None-Match: {etag}", "Prefer: wait=20")) == []
    world.advance(seconds=21)
    assert [answer.status for answer in vm.read()] == [304]


def test_a_vm_that_is_removed_while_it_waits_costs_nobody_anything(wireless):
    """Its own wait ends somehow; the other VM is woken by the next change."""
    world = wireless()
    gone, other = world.connect(WEB_0), world.connect(WEB_1)
    waiting(gone, 50)
    waiting(other, 50)
    spec = served_sample()
    rest = spec._replace(vms=tuple(vm for vm in spec.vms if vm.name != "web-0"))
    world.run(lambda: world.stage.tell(ApplyFleet(spec=rest)))
    world.run(lambda: world.stage.restart_vm("web-1"))

    assert [answer.status for answer in other.read()] == [200]
    world.advance(seconds=51)
    assert world.worker.held_count == 0
    assert world.stage.only(WEB).id.encode() not in gone.received, "it is a stranger now"
    assert [answer.status for answer in gone.read()] in ([], [304], [403])


def test_an_address_that_is_another_vms_now_is_not_told_what_the_former_waited_for(wireless):
    """web-0 waits, its address becomes batch_0's, web changes: 10.0.0.1 learns nothing of web."""
    world = wireless()
    vm = world.connect(WEB_0)
    waiting(vm, 50)
    spec, now = served_sample(), {"web-0": ("10.0.0.9",), "batch_0": (WEB_0,)}
    vms = tuple(one._replace(addresses=now.get(one.name, one.addresses)) for one in spec.vms)
    world.run(lambda: world.stage.tell(ApplyFleet(spec=spec._replace(vms=vms))))
    world.run(lambda: world.stage.restart_vm("web-1"))
    world.advance(seconds=51)

    assert world.stage.only(WEB).id.encode() not in vm.received


def test_a_vm_that_changes_its_scope_while_it_waits_is_woken_by_the_new_one(wireless):
    """What it reads then is its new scope's document, told within the wait."""
    world = wireless()
    vm = world.connect(DB_0)
    waiting(vm, 50)
    spec = served_sample()
    moved = tuple(v._replace(availability_set="web") if v.name == "db" else v for v in spec.vms)
    world.run(lambda: world.stage.tell(ApplyFleet(spec=spec._replace(vms=moved))))
    world.run(lambda: world.stage.restart_vm("web-1"))

    (answer,) = vm.read()
    assert [event["Resources"] for event in answer.events] == [["web-1"]]


def put_db_into_web(world):
    """The VM db becomes one of the availability set."""
    spec = served_sample()
    moved = tuple(v._replace(availability_set="web") if v.name == "db" else v for v in spec.vms)
    world.run(lambda: world.stage.tell(ApplyFleet(spec=spec._replace(vms=moved))))


def test_a_vm_that_changes_its_scope_while_it_waits_is_told_at_once(wireless):
    """The new scope shows another document already."""
    world = wireless()
    world.stage.restart_vm("web-1")
    vm = world.connect(DB_0)
    waiting(vm, 50)
    put_db_into_web(world)

    (answer,) = vm.read()
    assert (answer.status, answer.headers["preference-applied"]) == (200, "wait=50")
    assert [event["Resources"] for event in answer.events] == [["web-1"]]
    assert world.worker.held_count == 0


def test_a_vm_that_changes_its_scope_for_one_that_shows_the_same_goes_on_waiting(wireless):
    """Nothing has changed that it could read."""
    world = wireless()
    vm = world.connect(DB_0)
    waiting(vm, 50)
    put_db_into_web(world)
    assert vm.read() == []
    world.advance(seconds=51)

    assert [answer.status for answer in vm.read()] == [304]


def test_a_vm_that_changes_its_scope_while_it_waits_enables_the_new_one(wireless):
    """Whoever waits there listens there; and it goes on waiting, to the end and no longer."""
    world = wireless(listening=(DB,))
    vm = world.connect(DB_0)
    waiting(vm, 50)
    world.advance(seconds=30)
    put_db_into_web(world)
    assert world.stage.scope(WEB).enabled
    assert vm.read() == []
    world.advance(seconds=21)

    assert [answer.status for answer in vm.read()] == [304]


def test_an_approval_wakes_its_neighbours(wireless):
    """One VM approves, the other waits: 200 with Started."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect()
    waiting(vm)
    assert world.ask(approval(world.stage.only(WEB).id), WEB_1).status == 200

    (answer,) = vm.read()
    assert answer.events[0]["EventStatus"] == "Started"
