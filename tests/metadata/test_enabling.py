"""WIRE section 5: which requests enable a scope, and what the first answer waits for."""

import asyncio

import pytest

from fairnotice.errors import Unavailable
from fairnotice.metadata.identity import Door
from fairnotice.testing.manual_clock import DEFAULT_START
from tests.engine.story import DB, WEB
from tests.metadata.wireless import (
    DB_0,
    STRANGER,
    VERSIONS,
    WEB_1,
    LiveStory,
    approval,
    get,
    post,
    request,
    served_sample,
)


def heard_count(stage):
    """How often it was written down that somebody asked."""
    names = [type(change).__name__ for decision in stage.decisions for change in decision.changes]
    return names.count("ScopeHeard") + names.count("ScopeEnabled")


# ---- What enables ----


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_poll_enables_its_scope_and_no_other(wireless, version):
    """200 with the empty document, and the scope is enabled from then on."""
    world = wireless(listening=())
    answer = world.ask(get(version=version))

    assert (answer.status, answer.incarnation, answer.events) == (200, 1, [])
    assert world.stage.scope(WEB).enabled
    assert not world.stage.scope(DB).enabled


def test_a_304_enables_too(wireless):
    """A client that knows the empty document asks with its ETag."""
    world = wireless(listening=())
    world.stage.away = True
    etag = world.ask(get()).etag
    world.stage.away = False

    assert world.ask(get(f"If-None-Match: {etag}")).status == 304
    assert world.stage.scope(WEB).enabled


def test_a_post_that_is_taken_enables_too(wireless):
    """The event is gone, the scope was disabled since, the approval is answered 200."""
    world = wireless()
    stage = world.stage
    world.advance(hours=19)
    stage.restart_vm("web-0")
    event = stage.only(WEB).id
    stage.approve("web-1")
    stage.done()
    world.advance(hours=8)
    assert not stage.scope(WEB).enabled

    assert world.ask(approval(event)).status == 200
    assert stage.scope(WEB).enabled, "the answer waits for it"


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/metadata/instance?api-version=2021-02-01"),
        request("GET", "/metadata/versions"),
        request("GET", "/metadata/nothing"),
        request("PUT"),
        get(metadata=None),
        get(version="latest"),
        get(version="2024-07-09"),
        get("X-Forwarded-For: x"),
        get("Origin: x"),
        post(b"nonsense"),
        approval("00000000-1111-2222-3333-444444444444"),
        b"rubbish\r\n\r\n",
        get()[:40],
    ],
    ids=lambda raw: raw[:70].decode(),
)
def test_nothing_else_does(wireless, raw):
    """Other paths, and whatever is not answered 200 or 304."""
    world = wireless(listening=())
    world.connect().send(raw)
    world.stage.report_served(0)

    assert not world.stage.scope(WEB).enabled


def test_a_stranger_enables_nothing(wireless):
    """Nor does a name that is not believed."""
    world = wireless(listening=())
    world.ask(get(), STRANGER)
    world.ask(request("GET", "/vm/db/metadata/scheduledevents?api-version=2020-07-01"))

    assert not any(scope.enabled for scope in world.stage.fleet.scopes.values())


def test_a_name_that_is_believed_enables_its_own_scope(wireless):
    """Not the scope of the VM it came from."""
    world = wireless(listening=())
    raw = request("GET", "/vm/db/metadata/scheduledevents?api-version=2020-07-01")
    world.ask(raw, WEB_1, Door(prefix_allowed=True))

    assert world.stage.scope(DB).enabled
    assert not world.stage.scope(WEB).enabled


def test_what_was_asked_before_is_shown_by_the_first_answer(wireless):
    """An operation that is still far enough away is announced by the enabling."""
    world = wireless(listening=())
    world.stage.restart_vm("db", not_before=world.stage.at(hours=1))
    answer = world.ask(get(), DB_0)

    assert [event["Resources"] for event in answer.events] == [["db"]]


# ---- What the first answer waits for ----


class Deaf(LiveStory):
    """A control plane that takes approvals, and cannot record now who asks."""

    deaf = True

    async def _enable(self, scope):
        if self.deaf:
            raise Unavailable("not now")
        await super()._enable(scope)


def test_a_post_whose_enabling_cannot_be_recorded_is_reported_later(wireless):
    """The approval is durable, so it is 200; the scope is heard of with the next report."""
    stage = Deaf(served_sample())
    world = wireless(stage=stage)
    world.advance(hours=19)
    stage.restart_vm("web-0")
    event = stage.only(WEB).id
    stage.approve("web-1")
    stage.done()
    world.advance(hours=8)

    assert world.ask(approval(event)).status == 200
    assert not stage.scope(WEB).enabled
    world.run(stage.report_served)
    assert stage.scope(WEB).enabled


def test_a_scope_that_is_disabled_while_an_answer_is_held_is_enabled_by_it(wireless):
    """The silence ends a scope in the middle of a wait: the 200 comes when it is enabled anew."""
    world = wireless()
    world.advance(hours=25, seconds=-20)
    vm = world.connect()
    etag = vm.ask(get()).etag
    vm.send(get(f"If-None-Match: {etag}", "Prefer: wait=60"))
    world.advance(seconds=30)

    (answer,) = vm.read()
    assert answer.status == 200
    assert answer.etag != etag
    assert (world.stage.scope(WEB).enabled, world.stage.scope(WEB).enablings) == (True, 2)


def test_what_the_enabling_recorded_is_not_reported_again(wireless):
    """One commit for the first poll of a scope, and no other for an hour."""
    world = wireless(listening=())
    world.advance(hours=30)
    world.ask(get())
    before = world.stage.commands_count
    for _ in range(59):
        world.ask(get())
        world.stage.report_served()
        world.advance(seconds=60)

    assert world.stage.commands_count == before


class Slow(LiveStory):
    """A control plane that commits when it is told to."""

    gate = None

    async def _enable(self, scope):
        self.gate = self.gate or asyncio.Event()
        await self.gate.wait()
        await super()._enable(scope)


def test_the_first_answer_waits_for_the_commit(wireless):
    """Nobody of the scope is answered before; other scopes are."""
    stage = Slow(served_sample(), listening=(DB,))
    world = wireless(stage=stage)
    first, second = world.connect(), world.connect(WEB_1)
    assert first.send(get()) == second.send(get()) == []
    assert first.send(request("GET", "/nowhere")) == [], "answers keep their order"
    assert world.ask(get(), DB_0).status == 200
    world.run(stage.gate.set)

    assert [answer.status for answer in first.read()] == [200, 404]
    assert [answer.status for answer in second.read()] == [200]
    assert stage.scope(WEB).enablings == 1


def test_whoever_hangs_up_before_the_first_answer_costs_nothing(wireless):
    """No traceback, nothing kept."""
    stage = Slow(served_sample(), listening=())
    world = wireless(stage=stage)
    vm = world.connect()
    vm.send(get())
    vm.hang_up()
    world.run(stage.gate.set)

    assert not world.worker.connections


def test_an_enabling_is_carried_through_although_nobody_waits_for_it(wireless):
    """The connection is reset in the middle of the commit: the scope is enabled, nobody served."""
    stage = Slow(served_sample(), listening=())
    stage.restart_vm("db", not_before=stage.at(hours=1))
    world = wireless(stage=stage)
    vm = world.connect(DB_0)
    vm.send(get())
    vm.cut_off()
    world.run(stage.gate.set)

    assert stage.scope(DB).enabled
    assert world.worker.board.take_first_seen() == []
    assert world.worker.board.callers["db"].asked_at < 0


def test_nothing_is_held_for_whoever_left_before_the_first_answer(wireless):
    """The same where the answer would have been held."""
    stage = Slow(served_sample(), listening=())
    world = wireless(stage=stage)
    vm = world.connect()
    vm.send(get('If-None-Match: "1-1"', "Prefer: wait=60"))
    vm.cut_off()
    world.run(stage.gate.set)

    assert stage.scope(WEB).enabled
    assert world.worker.held_count == 0


def test_an_address_handed_on_during_the_commit_learns_nothing(wireless):
    """The VM db asks, its address becomes web-2's, db's scope is enabled: not for web-2."""
    stage = Slow(served_sample(), listening=())
    stage.restart_vm("db", not_before=stage.at(hours=1))
    world = wireless(stage=stage)
    vm = world.connect(DB_0)
    vm.send(get())
    world.worker.board.put_caller("db", DB, ("10.0.4.9",))
    world.worker.board.put_caller("web-2", WEB, (DB_0,))
    world.run(stage.gate.set)

    assert [answer.status for answer in vm.read()] == [403]


def test_a_slow_commit_is_not_an_idle_connection(wireless):
    """Two minutes, and the answer comes."""
    stage = Slow(served_sample(), listening=())
    world = wireless(stage=stage)
    vm = world.connect()
    vm.send(get())
    for _ in range(12):
        world.advance(seconds=10)
    world.run(stage.gate.set)

    assert [answer.status for answer in vm.read()] == [200]


def test_the_delay_of_the_first_answer_can_be_set(wireless):
    """Two minutes as on Azure: the first waits, the next does not, and no other scope does."""
    world = wireless(listening=(DB,), first_answer_delay_seconds=120)
    vm = world.connect()
    assert vm.send(get()) == []
    assert world.stage.scope(WEB).enabled, "the delay comes after it"
    for _ in range(119):
        world.advance(seconds=1)
    assert vm.read() == []
    assert world.ask(get(), DB_0).status == 200
    world.advance(seconds=1.5)

    assert [answer.status for answer in vm.read()] == [200]
    assert vm.ask(get()).status == 200
    assert world.ask(get(), WEB_1).status == 200


def test_without_a_delay_the_first_answer_is_as_quick_as_any(wireless):
    """0 by default."""
    assert wireless(listening=()).ask(get()).status == 200


# ---- With the control plane away ----


def test_with_the_control_plane_away_the_empty_document_is_answered(wireless):
    """200 at once, also with a delay set; nothing is enabled, and reading goes on."""
    world = wireless(listening=(), first_answer_delay_seconds=60)
    world.stage.away = True
    for raw in (get(), get(), get(version="2017-03-01")):
        answer = world.ask(raw)
        assert (answer.status, answer.body) == (200, b'{"DocumentIncarnation":1,"Events":[]}')

    assert not world.stage.scope(WEB).enabled


def test_it_is_reported_later(wireless):
    """When the control plane is back the scope is enabled, without another poll."""
    world = wireless(listening=())
    world.stage.away = True
    world.ask(get())
    world.stage.away = False
    world.advance(seconds=60)
    world.run(world.stage.report_served)

    assert world.stage.scope(WEB).enabled


@pytest.mark.parametrize("ends_first", [False, True])
def test_an_answer_that_is_held_meanwhile_is_reported_later(wireless, ends_first):
    """Known already, so held, with the control plane away: the report says when it asked."""
    world = wireless(listening=())
    world.advance(hours=30)
    world.stage.away = True
    vm = world.connect()
    assert vm.send(get('If-None-Match: "1-1"', "Prefer: wait=50")) == []
    if ends_first:
        world.advance(seconds=51)
        assert [answer.status for answer in vm.read()] == [304]
    world.stage.away = False
    world.run(world.stage.report_served)

    assert world.stage.scope(WEB).enabled


def test_what_is_reported_a_day_late_enables_nothing(wireless):
    """The report says when the scope asked: it has been silent for too long since."""
    world = wireless(listening=())
    world.stage.away = True
    world.ask(get())
    world.advance(hours=30)
    world.stage.away = False
    world.run(world.stage.report_served)

    assert not world.stage.scope(WEB).enabled


def test_the_next_poll_enables_when_it_is_back(wireless):
    """And it shows what was pending."""
    world = wireless(listening=())
    world.stage.restart_vm("db", not_before=world.stage.at(hours=1))
    world.stage.away = True
    vm = world.connect(DB_0)
    assert vm.ask(get()).events == []
    world.stage.away = False

    assert len(vm.ask(get()).events) == 1


# ---- The 24 hours ----


def test_polls_keep_a_scope_enabled_without_a_write_for_each(wireless):
    """A poll a minute for three days: enabled to the end, an hour at least between two records."""
    world = wireless(listening=())
    vm = world.connect()
    reports = 0
    for minute in range(3 * 24 * 60):
        assert vm.ask(get()).status == 200
        world.stage.advance(seconds=60)
        if minute % 5 == 0:
            before = world.stage.commands_count
            world.stage.report_served()
            reports += world.stage.commands_count > before

    assert world.stage.scope(WEB).enabled
    assert world.stage.scope(WEB).enablings == 1
    assert heard_count(world.stage) <= 3 * 24 + 1
    assert reports <= 3 * 24 + 1, "nothing is handed on when there is nothing new"


@pytest.mark.parametrize("way", ["200", "304", "wait", "close", "post"])
def test_every_answer_that_counts_keeps_it_enabled(wireless, way):
    """Once in 20 hours, whichever way."""
    world = wireless()
    stage = world.stage
    stage.restart_vm("web-0")
    event = stage.only(WEB).id
    stage.approve("web-0")
    stage.done()
    etag = world.ask(get()).etag
    stage.report_served(0)
    raws = {
        "200": get(),
        "304": get(f"If-None-Match: {etag}"),
        "wait": get(f"If-None-Match: {etag}", "Prefer: wait=5"),
        "close": get("Connection: close"),
        "post": approval(event),
    }
    for _ in range(1 if way == "post" else 5):
        world.advance(hours=20)
        vm = world.connect()
        vm.send(raws[way])
        world.advance(seconds=6)
        stage.report_served()
    world.advance(hours=20)

    assert stage.scope(WEB).enabled
    assert stage.scope(WEB).enablings == 1


@pytest.mark.parametrize(
    "raw", [get(metadata=None), request("GET", "/metadata/versions"), post(b"x")]
)
def test_no_other_answer_keeps_it_enabled(wireless, raw):
    """A VM that only ever asks wrongly is silent."""
    world = wireless()
    for _ in range(30):
        world.ask(raw)
        world.advance(hours=1)
        world.stage.report_served()

    assert not world.stage.scope(WEB).enabled


def test_after_a_day_of_silence_the_next_poll_enables_anew(wireless):
    """Incarnation 1 again, a second enabling."""
    world = wireless()
    world.advance(hours=30)
    assert not world.stage.scope(WEB).enabled
    answer = world.ask(get())

    assert (answer.status, answer.incarnation) == (200, 1)
    assert world.stage.scope(WEB).enablings == 2
    assert world.now > DEFAULT_START
