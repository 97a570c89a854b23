"""WIRE section 3: what a POST approves, and what it is told."""

import asyncio
import json

import pytest

from fairnotice.engine.commands import ApplyFleet
from fairnotice.words import OperationKind
from tests.engine.story import BATCH, DB, WEB
from tests.metadata.wireless import (
    DB_0,
    PATH,
    VERSIONS,
    WEB_0,
    WEB_1,
    LiveStory,
    approval,
    get,
    post,
    request,
    served_sample,
    start_requests,
)

UNKNOWN = "00000000-1111-2222-3333-444444444444"


def announced(world):
    """A restart of web-0 is announced; its event's id."""
    world.stage.restart_vm("web-0")
    return world.stage.only(WEB).id


def is_taken(answer):
    """200, empty, and its length said."""
    return (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


# ---- What is taken ----


def test_any_vm_of_the_scope_approves(wireless):
    """200, empty body, Content-Length 0; the event has started when the answer comes."""
    world = wireless()
    event = announced(world)
    answer = world.ask(approval(event), WEB_1)

    assert is_taken(answer)
    assert world.ask(get()).events[0]["EventStatus"] == "Started"
    assert world.stage.event(event).approval.by == "web-1"


def test_twice_is_as_good_as_once(wireless):
    """Already approved, then Started: 200, and nothing changes."""
    world = wireless()
    event = announced(world)
    assert is_taken(world.ask(approval(event, event)))
    before = world.stage.snapshot()

    assert is_taken(world.ask(approval(event)))
    assert is_taken(world.ask(approval(event.lower()), WEB_1))
    assert world.stage.snapshot() == before


def test_what_is_gone_is_known_for_a_day(wireless):
    """200 while the scope saw it within 24 hours, 400 after that."""
    world = wireless()
    event = announced(world)
    world.ask(approval(event))
    world.run(world.stage.done)
    assert world.ask(get()).events == []

    world.advance(hours=23.9)
    assert is_taken(world.ask(approval(event)))
    world.advance(hours=0.2)
    assert world.ask(approval(event)).status == 400


def test_what_is_gone_is_forgotten_although_its_operation_goes_on(wireless):
    """An event whose VM left a day ago is unknown, while the operation still waits for others."""
    world = wireless()
    stage = world.stage
    later = stage.at(hours=72)
    stage.on_node(OperationKind.HOST_REBOOT, "node-0", not_before=later)
    event = stage.only(WEB).id
    world.run(lambda: stage.delete("web-0"))
    world.run(stage.done)
    assert (stage.events(WEB), len(stage.events(BATCH))) == ((), 1)
    for _ in range(13):
        world.advance(hours=2)
        world.ask(get(), WEB_1)

    answer = world.ask(approval(event), WEB_1)
    assert answer.status == 400
    assert event in answer.error


def test_the_version_of_the_post_need_not_be_that_of_the_get(wireless):
    """Pacemaker reads with one and approves with another; a version that hides an event too."""
    for version in VERSIONS:
        world = wireless()
        world.stage.evict("spot_0")
        (event,) = world.ask(get(), "10.0.2.1").events
        assert is_taken(world.ask(approval(event["EventId"], version=version), "10.0.2.1"))


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Content-Type: application/json",),
        ("Content-Type: application/x-www-form-urlencoded",),
        ("Content-Type: text/plain; charset=utf-16",),
        ("Content-Type: nonsense",),
        ("Content-Type:",),
    ],
)
def test_any_content_type_or_none(wireless, lines):
    """What curl says is a form, .NET says JSON, Go says nothing."""
    world = wireless()

    assert is_taken(world.ask(post(start_requests(announced(world)), *lines)))


@pytest.mark.parametrize(
    "more",
    [
        {"DocumentIncarnation": 0},
        {"DocumentIncarnation": "5"},
        {"DocumentIncarnation": 10**400},
        {"DocumentIncarnation": None},
        {"Extra": {"deep": [1, 2, {"x": None}]}},
    ],
)
def test_other_keys_are_ignored(wireless, more):
    """Also a DocumentIncarnation that is stale, a number or a string."""
    world = wireless()
    body = {**more, "StartRequests": [{"EventId": announced(world), "Extra": 1}]}

    assert is_taken(world.ask(post(json.dumps(body).encode())))


def test_a_body_in_chunks(wireless):
    """Transfer-Encoding: chunked, in odd sizes, with an extension and a trailer."""
    world = wireless()
    body = start_requests(announced(world))
    chunks = b"%x;a=b\r\n%s\r\n%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (
        7,
        body[:7],
        len(body) - 7,
        body[7:],
    )
    vm = world.connect()

    assert is_taken(
        vm.ask(
            request("POST", f"{PATH}?api-version=2020-07-01", "Transfer-Encoding: chunked") + chunks
        )
    )
    assert vm.ask(get()).status == 200


def test_a_hundred_ids_and_one_more(wireless):
    """At most 100; one more is 400 and approves nothing."""
    world = wireless()
    event = announced(world)

    refused = world.ask(approval(*[event] * 101))
    assert (refused.status, world.stage.event(event).approval) == (400, None)
    assert "100" in refused.error
    assert is_taken(world.ask(approval(*[event] * 100)))


# ---- What is not ----


def test_all_or_nothing(wireless):
    """One id that the scope never saw, and nothing of the request takes effect."""
    world = wireless()
    event = announced(world)
    before = world.stage.snapshot()
    for ids in ((event, UNKNOWN), (UNKNOWN, event), (event, "")):
        answer = world.ask(approval(*ids))
        assert answer.status == 400
        assert answer.error.startswith("Bad request. EventId not found: ")
        assert event not in answer.error

    assert world.stage.snapshot() == before


def test_another_scopes_id_is_as_good_as_unknown(wireless):
    """The answer tells an event of a neighbour from no event by nothing but the id itself."""
    world = wireless()
    event = announced(world)
    foreign = world.ask(approval(event), DB_0)
    unknown = world.ask(approval(UNKNOWN), DB_0)

    assert foreign.status == unknown.status == 400
    assert foreign.error.replace(event, UNKNOWN) == unknown.error
    assert world.stage.event(event).approval is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe{\x00}\x00",
        b"\0",
        b"null",
        b"[]",
        b'"StartRequests"',
        b"1",
        b"{}",
        b'{"startrequests":[{"EventId":"x"}]}',
        b'{"StartRequests":null}',
        b'{"StartRequests":{}}',
        b'{"StartRequests":{"EventId":"x"}}',
        b'{"StartRequests":"x"}',
        b'{"StartRequests":[]}',
        b'{"StartRequests":[null]}',
        b'{"StartRequests":["x"]}',
        b'{"StartRequests":[{}]}',
        b'{"StartRequests":[{"EventId":null}]}',
        b'{"StartRequests":[{"EventId":1}]}',
        b'{"StartRequests":[{"EventId":["x"]}]}',
        b'{"StartRequests":[{"EventId":"x"}]}{}',
        b'{"StartRequests":[{"EventId":"x"}],"a":NaN}',
        b"[" * 30_000,
        b'{"a":' * 10_000,
        b'{"StartRequests":[{"EventId":"\\ud800"}]}',
        b'{"StartRequests":[{"EventId":"\\u0000\\r\\nX: y"}]}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_a_wrong_body_is_told_what_is_wrong(wireless, body):
    """400 in words, nothing has changed, and the connection goes on."""
    world = wireless()
    announced(world)
    before = world.stage.snapshot()
    vm = world.connect()
    answer = vm.ask(post(body))

    assert answer.status == 400
    assert len(answer.error) > len("Bad request. ")
    assert world.stage.snapshot() == before
    assert vm.ask(get()).status == 200


def test_a_post_without_a_length_has_no_body(wireless):
    """400: an empty body is not JSON."""
    assert wireless().ask(request("POST")).status == 400


def test_a_body_of_64_kib_and_one_byte_more(wireless):
    """64 KiB are read; one byte more is 413, and approves nothing."""
    world = wireless()
    event = announced(world)
    body = start_requests(event)

    answer = world.connect().send(post(body.ljust(65_537)))[0]
    assert answer.status == 413
    assert answer.error
    assert world.stage.event(event).approval is None
    assert is_taken(world.ask(post(body.ljust(65_536))))


@pytest.mark.parametrize("piece", [1_000, 65_536, 70_000])
def test_too_large_in_pieces_is_too_large(wireless, piece):
    """However it is cut, and in chunks too: one 413, and the end where it says so."""
    body = b" " * 70_000
    raw = post(body)
    head = request("POST", f"{PATH}?api-version=2020-07-01", "Transfer-Encoding: chunked")
    chunked = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part)
        for part in (body[i : i + piece] for i in range(0, len(body), piece))
    )
    for data in (raw, head + chunked + b"0\r\n\r\n"):
        vm = wireless().connect()
        (answer,) = vm.send(*(data[i : i + piece] for i in range(0, len(data), piece)))
        assert answer.status == 413
        assert vm.closed == (answer.headers.get("connection") == "close")


# ---- Durable, or not now ----


class Slow(LiveStory):
    """A control plane that commits when it is told to."""

    gate = None

    async def _approve(self, vm, events):
        self.gate = asyncio.Event()
        await self.gate.wait()
        return await super()._approve(vm, events)


def test_the_200_waits_until_the_approval_is_durable(wireless):
    """Not a byte before the commit; other connections are served meanwhile."""
    stage = Slow(served_sample())
    world = wireless(stage=stage)
    event = announced(world)
    vm = world.connect()
    assert vm.send(approval(event)) == []
    assert vm.send(get()) == []
    assert world.ask(get(), WEB_1).events[0]["EventStatus"] == "Scheduled"
    world.advance(seconds=30)
    assert not vm.closed
    world.run(stage.gate.set)

    approved, document = vm.read()
    assert is_taken(approved)
    assert document.events[0]["EventStatus"] == "Started"


def test_an_approval_is_carried_through_although_nobody_waits_for_it(wireless):
    """The connection is reset in the middle of the commit: it is approved, nobody was served."""
    stage = Slow(served_sample())
    world = wireless(stage=stage)
    event = announced(world)
    vm = world.connect()
    vm.send(approval(event))
    vm.cut_off()
    assert not world.worker.connections
    world.run(stage.gate.set)

    assert stage.event(event).approval.by == "web-0"
    assert world.worker.board.callers["web-0"].asked_at < 0


class Broken(LiveStory):
    """A control plane with a bug."""

    gate = None

    async def _approve(self, vm, events):
        self.gate = asyncio.Event()
        await self.gate.wait()
        raise ZeroDivisionError(vm, events)


@pytest.mark.parametrize("waits", [True, False])
def test_a_commit_that_fails_is_logged_once(wireless, waits):
    """The VM is told 500 if it still waits."""
    stage = Broken(served_sample())
    world = wireless(stage=stage)
    vm = world.connect()
    vm.send(approval(announced(world)))
    if not waits:
        vm.cut_off()
    world.run(stage.gate.set)

    (fault,) = world.mishaps.found
    assert "ZeroDivisionError" in fault
    world.mishaps.found.clear()
    assert [answer.status for answer in vm.read()] == [500] * waits
    assert vm.closed


def test_a_vm_that_is_removed_while_it_approves_costs_no_traceback(wireless):
    """Its answer is whatever it is; the endpoint goes on."""
    stage = Slow(served_sample())
    world = wireless(stage=stage)
    stage.restart_vm("web-1")
    vm = world.connect(WEB_0)
    vm.send(approval(stage.only(WEB).id))
    spec = served_sample()
    rest = spec._replace(vms=tuple(v for v in spec.vms if v.name != "web-0"))
    world.run(lambda: stage.tell(ApplyFleet(spec=rest)))
    world.run(stage.gate.set)

    assert [answer.status for answer in vm.read()] in ([], [200], [400], [403])
    assert world.ask(get(), WEB_1).status == 200


def test_with_the_control_plane_away_an_approval_is_put_off(wireless):
    """503 with Retry-After; reading goes on; afterwards it is taken."""
    world = wireless()
    event = announced(world)
    world.stage.away = True
    answer = world.ask(approval(event))

    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.error
    assert [shown["EventId"] for shown in world.ask(get()).events] == [event]
    assert world.stage.event(event).approval is None
    world.stage.away = False
    assert is_taken(world.ask(approval(event)))


def test_with_the_control_plane_away_a_wrong_body_is_still_wrong(wireless):
    """400: waiting would not help."""
    world = wireless()
    world.stage.away = True

    assert world.ask(post(b"{}")).status == 400


def test_with_the_control_plane_away_nobody_knows_which_ids_there_are(wireless):
    """503 also for an id that was never seen; when the control plane is back, 400."""
    world = wireless()
    world.stage.away = True
    answer = world.ask(approval("X"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    world.stage.away = False

    assert world.ask(approval("X")).status == 400


def test_an_approval_is_for_its_own_event_alone(wireless):
    """Two scopes, two events; each VM approves its own."""
    world = wireless()
    event = announced(world)
    world.stage.restart_vm("db")
    assert is_taken(world.ask(approval(world.stage.only(DB).id), DB_0))

    assert world.stage.event(event).approval is None
