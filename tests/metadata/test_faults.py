"""Faults, as a VM meets them: bytes on real sockets, before, while one is on, and afterwards."""

import asyncio
import logging
import re

import pytest

from fairnotice.errors import UnknownName, UsageError
from fairnotice.metadata.faults import MEANINGS, OF_DOCUMENTS, SPOILING, STAND_INS, Fault, FaultKind
from fairnotice.metadata.metrics import exposition
from tests.engine.story import DB as DB_SCOPE
from tests.engine.story import WEB
from tests.house import ROOT
from tests.metadata.faulty import CLOSING, DB, INSTANCE, OTHER_WEB, looks_like, one_answer, told
from tests.metadata.sockets import ask, last, talk
from tests.metadata.wireless import DB_0, WEB_1, approval, get, request
from tests.waiting import soon

SLOW = (FaultKind.SLOW, FaultKind.SLOW_FIRST)
OF_HTTP = (*STAND_INS, *SPOILING)

# ---- Faults of HTTP ----


@pytest.mark.parametrize("kind", OF_HTTP)
@pytest.mark.parametrize("raw", [last(), INSTANCE], ids=["events", "instance"])
def test_a_fault_of_http_is_on_the_wire_and_gone_when_cleared(kind, raw):
    """Towards one VM, whose neighbours are answered as ever; the same bytes before and after."""

    async def story(served):
        port, faults = served.port, served.worker.faults
        vms = ("127.0.0.1", OTHER_WEB, DB)
        before = [await talk(port, raw, source=vm) for vm in vms]
        seconds = 7 if kind is FaultKind.TOO_MANY else None
        fault = faults.set(Fault(kind, "web-0", seconds)).fault
        while_on = [await talk(port, raw, source=vm) for vm in vms]
        faults.clear(fault.id)

        looks_like(kind, while_on[0], before[0])
        assert while_on[1:] == before[1:]
        assert [await talk(port, raw, source=vm) for vm in vms] == before
        assert faults.spoiled == {kind: 1}

    told(story)


@pytest.mark.parametrize("kind", OF_HTTP)
def test_a_connection_that_is_kept_meets_it_with_its_next_request(kind):
    """Polled on the fast way before; a connection that is cut ends there, others go on."""

    async def story(served):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        usual = await talk(served.port, get(), get("X: 1", "Connection: close"))
        once = usual[: usual.index(b"HTTP/1.1", 1)]
        for _ in range(2):
            writer.write(get())
            assert await reader.readexactly(len(once)) == once
        fault = served.worker.faults.set(Fault(kind)).fault
        writer.write(get())
        if kind in (FaultKind.DROPPED, FaultKind.CUT_OFF):
            raw = await reader.read()
            assert b"Connection: close" not in raw
            looks_like(kind, raw, once)
        else:
            head = await reader.readuntil(b"\r\n\r\n")
            assert not head.startswith(once.partition(b"\r\n\r\n")[0])
            length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            served.worker.faults.clear(fault.id)
            writer.write(get())
            assert await reader.readexactly(len(once)) == once
        writer.close()

    told(story)


@pytest.mark.parametrize("kind", STAND_INS)
def test_an_approval_that_is_answered_in_the_services_place_is_not_given(kind):
    """Whoever gets no 200 has approved nothing; asked again afterwards, it counts."""

    async def story(served):
        event = served.stage.only(WEB).id
        approve = approval(event, **CLOSING)
        served.worker.faults.set(Fault(kind))
        raw = await talk(served.port, approve)
        served.worker.faults.clear_all()

        assert b" 200 " not in raw
        assert served.stage.only(WEB).approval is None
        assert (await ask(served.port, approve)).status == 200
        assert served.stage.only(WEB).approval.by == "web-0"

    told(story)


@pytest.mark.parametrize("kind", SPOILING)
def test_an_approval_whose_answer_is_spoiled_counts(kind):
    """The service has done its work: only its answer is lost, and nobody may do it twice."""

    async def story(served):
        event = served.stage.only(WEB).id
        served.worker.faults.set(Fault(kind))
        raw = await talk(
            served.port, approval(event, metadata="Metadata: true\r\nConnection: close")
        )

        assert served.stage.only(WEB).approval.by == "web-0"
        if kind is FaultKind.CUT_OFF:
            assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\n\r\n" not in raw
        else:
            assert bool(one_answer(raw, 200)) is (kind is FaultKind.GARBAGE)

    told(story)


@pytest.mark.parametrize("kind", SPOILING)
def test_what_was_lost_was_not_seen_but_the_vm_listens(kind):
    """Its polls keep the scope enabled; that it knows of the event is not recorded."""

    async def story(served):
        served.worker.faults.set(Fault(kind))
        await talk(served.port, last())
        served.stage.report_served(heard_every_seconds=0)

        assert served.stage.only(WEB).seen == ()
        served.worker.faults.clear_all()
        await talk(served.port, last())
        served.stage.report_served()
        assert [seen.vm for seen in served.stage.only(WEB).seen] == ["web-0"]

    told(story)


@pytest.mark.parametrize("kind", OF_HTTP)
def test_whoever_meets_a_fault_has_asked(wireless, kind):
    """An hour between two polls, for 26 hours: the scope is enabled by the first and stays so."""
    world = wireless(listening=())
    world.worker.faults.set(Fault(kind))
    own = request("GET", "/metadata/instance?api-version=2021-02-01")
    world.run(lambda: world.connect(DB_0).feed(own))
    for _ in range(26):
        world.run(lambda: world.connect().feed(get()))
        world.advance(hours=1)
        world.run(world.stage.report_served)

    scope = world.stage.scope(WEB)
    assert (scope.enabled, scope.enablings) == (True, 1)
    assert not world.stage.scope(DB_SCOPE).enabled, "it has not asked for the document"
    world.stage.restart_vm("web-0")
    world.run(lambda: world.connect().feed(get()))
    world.run(world.stage.report_served)
    assert world.stage.only(WEB).seen == ()


@pytest.mark.parametrize("kind", [FaultKind.EMPTY_BODY, FaultKind.GARBAGE])
def test_an_answer_is_spoiled_also_where_it_would_be_304(wireless, kind):
    """Whoever knows the document already is told as little as the others."""
    world = wireless()
    known = get(f"If-None-Match: {world.ask(get()).etag}")
    assert world.ask(known).status == 304
    world.worker.faults.set(Fault(kind))
    spoiled = world.ask(known)

    assert (spoiled.status, bool(spoiled.body)) == (200, kind is FaultKind.GARBAGE)
    assert world.worker.faults.spoiled == {kind: 1}


def test_what_is_wrong_with_a_request_is_said_also_while_a_fault_is_on(wireless):
    """The client is tested by a right request of a VM that is known."""
    world = wireless()
    world.worker.faults.set(Fault(FaultKind.ERROR))

    assert world.ask(get(metadata=None)).status == 400
    assert world.ask(request("PUT")).status == 405
    assert world.ask(get(), "192.0.2.7").status == 403
    assert world.worker.faults.spoiled.total() == 0


# ---- Slow answers ----


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_answer_is_the_usual_one_and_holds_up_nobody_else(kind):
    """While one VM waits for its answer, its neighbour has several."""

    async def story(served):
        usual = await talk(served.port, last())
        others = await talk(served.port, last(), source=DB)
        served.worker.faults.set(Fault(kind, "web-0", seconds=3600))
        waiting = asyncio.create_task(talk(served.port, last()))
        await soon(lambda: served.worker.faults.spoiled[kind] == 1)
        assert [await talk(served.port, last(), source=DB) for _ in range(3)] == [others] * 3
        assert not waiting.done()
        waiting.cancel()
        served.worker.faults.set(Fault(kind, "web-0", seconds=0.01))
        assert await talk(served.port, last()) == usual

    told(story)


def test_slow_is_every_answer_and_slow_first_the_first_of_each_vm(wireless):
    """To the second, on a connection that is kept; what follows on it waits behind."""
    world = wireless()
    faults = world.worker.faults
    faults.set(Fault(FaultKind.SLOW, seconds=5))
    vm = world.connect()
    for _ in range(2):
        assert vm.send(get()) == []
        world.advance(4)
        assert vm.send(get("X: 1")) == []
        world.advance(1)
        assert [answer.status for answer in vm.read()] == [200]
        world.advance(5)
        assert [answer.status for answer in vm.read()] == [200]
    faults.clear("slow")
    faults.set(Fault(FaultKind.SLOW_FIRST, seconds=60))

    for address in (WEB_1, DB_0):
        first = world.connect(address)
        assert first.send(get()) == []
        assert world.ask(get(), address).status == 200
        world.advance(60)
        assert [answer.status for answer in first.read()] == [200]
        assert first.ask(get()).status == 200
    assert faults.spoiled == {FaultKind.SLOW: 4, FaultKind.SLOW_FIRST: 2}


def test_of_several_delays_the_longest_is_kept(wireless):
    """They are not added up."""
    world = wireless()
    world.worker.faults.set(Fault(FaultKind.SLOW, seconds=5))
    world.worker.faults.set(Fault(FaultKind.SLOW_FIRST, seconds=60))
    vm = world.connect()
    vm.send(get())
    world.advance(59)
    assert vm.read() == []
    world.advance(1)

    assert [answer.status for answer in vm.read()] == [200]


def test_a_first_answer_is_slow_again_when_the_fault_is_set_again(wireless):
    """It begins anew: each VM has a first request once more."""
    world = wireless()
    for _ in range(2):
        world.worker.faults.set(Fault(FaultKind.SLOW_FIRST, seconds=60))
        vm = world.connect()
        assert vm.send(get()) == []
        world.advance(60)
        assert [answer.status for answer in vm.read()] == [200]
        assert vm.ask(get()).status == 200


def test_what_is_asked_is_done_when_its_slow_answer_is_due(wireless):
    """Not before, and not at all for a VM whose connection was reset."""
    world = wireless()
    world.stage.restart_vm("web-0")
    world.worker.faults.set(Fault(FaultKind.SLOW, seconds=5))
    approve = approval(world.stage.only(WEB).id)
    impatient, patient = world.connect(), world.connect()
    impatient.send(approve)
    impatient.cut_off()
    world.advance(5)
    patient.send(approve)
    world.advance(4)
    assert world.stage.only(WEB).approval is None
    world.advance(1)

    assert [answer.status for answer in patient.read()] == [200]
    assert world.stage.only(WEB).approval.by == "web-0"


def test_a_vm_that_is_removed_while_it_waits_is_turned_away(wireless):
    """Its address is nobody's any more."""
    world = wireless()
    world.worker.faults.set(Fault(FaultKind.SLOW, seconds=5))
    vm = world.connect(DB_0)
    vm.send(get())
    world.run(lambda: world.worker.board.remove_caller("db"))
    world.advance(5)

    assert [answer.status for answer in vm.read()] == [403]


# ---- The registry ----


def test_of_the_same_kind_a_vms_own_counts_and_of_several_answers_the_first(wireless):
    """The order is the one of FaultKind, whichever was set last."""
    world = wireless()
    faults = world.worker.faults
    faults.set(Fault(FaultKind.TOO_MANY, "web-0", seconds=3))
    faults.set(Fault(FaultKind.TOO_MANY, seconds=9))
    assert world.ask(get()).headers["retry-after"] == "3"
    assert world.ask(get(), WEB_1).headers["retry-after"] == "9"
    faults.set(Fault(FaultKind.GONE))
    faults.set(Fault(FaultKind.ERROR, "web-0"))

    assert world.ask(get()).status == 410
    assert [on.fault.id for on in faults] == ["too-many@web-0", "too-many", "gone", "error@web-0"]


def test_a_fault_clears_itself(wireless):
    """410 for as long as an update takes; the fast way is open again afterwards."""
    world = wireless()
    faults = world.worker.faults
    world.ask(get())
    faults.set(Fault(FaultKind.GONE, for_seconds=70))
    world.advance(69)
    assert world.ask(get()).status == 410
    assert world.worker.known == {}
    world.advance(1)

    assert [world.ask(get()).status for _ in range(2)] == [200, 200]
    assert not list(faults)
    assert world.worker.known


def test_several_that_end_at_once_end_each(wireless):
    """Also where the first to be switched off makes somebody look at the others."""
    world = wireless()
    faults = world.worker.faults
    for kind in OF_DOCUMENTS:
        faults.set(Fault(kind, "web-0", for_seconds=5))
    faults.set(Fault(FaultKind.GONE, for_seconds=9))
    world.worker.faulted.answers(world.worker.board.callers["web-0"])
    world.advance(5)

    assert [on.fault.id for on in faults] == ["gone"]


def test_none_is_on_by_default_and_each_is_in_the_metrics_while_it_is(wireless):
    """With the VM's name, whatever it is, and how many answers were spoiled."""
    world = wireless()
    faults = world.worker.faults
    on = "fairnotice_metadata_faults{"
    assert on not in exposition(world.worker)
    faults.set(Fault(FaultKind.ERROR))
    faults.set(Fault(FaultKind.SLOW, "web-0", seconds=0))
    world.ask(get())
    text = exposition(world.worker)

    assert f'{on}fault="error",vm="all"}} 1\n' in text
    assert f'{on}fault="slow",vm="web-0"}} 1\n' in text
    assert 'fairnotice_metadata_spoiled_answers_total{fault="error"} 1\n' in text
    faults.clear_all()
    assert on not in exposition(world.worker)


def test_setting_and_clearing_are_logged_as_warnings(wireless, caplog):
    """Whoever reads the log of a service that misbehaves finds why."""
    world = wireless()
    with caplog.at_level(logging.WARNING, "fairnotice"):
        world.worker.faults.set(Fault(FaultKind.ERROR, "db"))
        world.worker.faults.clear("error@db")

    first, second = caplog.messages
    assert first == "the fault error@db is on: Every request is answered 500."
    assert second == "the fault error@db is off: cleared"


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (Fault(FaultKind.SLOW, "web-9"), UnknownName, "There is no VM web-9. Did you mean web-"),
        (Fault(FaultKind.ERROR, seconds=5), UsageError, "mean nothing to error"),
        (Fault(FaultKind.SLOW, seconds=-1), UsageError, "seconds is -1; give 0 to"),
        (Fault(FaultKind.SLOW, seconds=float("nan")), UsageError, "seconds is nan"),
        (Fault(FaultKind.SLOW, for_seconds=0), UsageError, "never be on"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_on(wireless, fault, error, said):
    """A fixture is told as a person is."""
    faults = wireless().worker.faults
    with pytest.raises(error, match=said):
        faults.set(fault)

    assert not faults.on


def test_a_fault_that_is_not_on_cannot_be_cleared(wireless):
    """Those that are on are named."""
    faults = wireless().worker.faults
    faults.set(Fault(FaultKind.SLOW, "db"))
    with pytest.raises(UnknownName, match="slow is not on; on are: slow@db"):
        faults.clear("slow")

    assert faults.on


def test_every_kind_has_a_sentence():
    """None is without, and each belongs to one group."""
    grouped = (*SLOW, *STAND_INS, *SPOILING, *OF_DOCUMENTS)

    assert sorted(grouped) == sorted(FaultKind) == sorted(MEANINGS)
    assert all(meaning.sentence.endswith(".") for meaning in MEANINGS.values())


def test_the_guide_has_a_row_for_each_kind_with_its_seconds():
    """In the order in which they are looked at."""
    page = (ROOT / "docs" / "guides" / "faults.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \|[^|]*?(?:\((\d+)\))? \|", page, re.MULTILINE)

    known = [(kind, meaning.seconds) for kind, meaning in MEANINGS.items()]
    assert [(kind, float(seconds) if seconds else None) for kind, seconds in rows] == known
