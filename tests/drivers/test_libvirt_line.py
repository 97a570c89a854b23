"""Nodes that do not answer: nobody else waits for them."""

import asyncio
import gc
import re
import threading

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt import line, looking
from fairnotice.drivers.libvirt.definitions import kept_in
from fairnotice.drivers.libvirt.happenings import Happenings
from fairnotice.drivers.libvirt.host import DEFINITIONS
from fairnotice.drivers.libvirt.line import Line, in_thread
from fairnotice.errors import Unavailable
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ImpactKind, Outcome, Power
from tests.drivers.libvirt_nodes import TestNodes, libvirt, order
from tests.waiting import soon

CLOCK = SystemClock()


@pytest.fixture
def answers():
    """Until it is set, whoever calls waits."""
    event = threading.Event()
    yield event
    event.set()


def line_to(opened):
    """One whose libvirtd is opened so."""
    return Line("n1", "test:///n1", CLOCK, Happenings(CLOCK, lambda _: None), opened)


class Late:
    """A connection that nobody waits for any more."""

    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()

    def __getattr__(self, _):
        return lambda *_: 1


async def refused(to):
    """How long it took to be told that nobody is there."""
    began = CLOCK.monotonic()
    with pytest.raises(Unavailable, match="n1 cannot be reached"):
        await to.ask(lambda connection: connection.getHostname())
    return CLOCK.monotonic() - began


def test_a_node_that_does_not_answer_is_waited_for_once(answers, monkeypatch):
    """By the first who asks; everybody else is told at once, until it answers."""
    monkeypatch.setattr(line, "CONNECT_SECONDS", 0.5)
    opened = []

    def opens(_):
        opened.append(1)
        answers.wait()
        return libvirt.open("test:///default")

    async def story():
        to = line_to(opens)
        first, *others = [await refused(to) for _ in range(20)]
        assert first >= 0.5
        assert sum(others) < 0.4
        assert len(opened) == 1
        answers.set()
        while True:
            try:
                host = await to.ask(lambda connection: connection.getHostname())
                break
            except Unavailable:
                await asyncio.sleep(0.01)
        await to.close()
        return host

    assert asyncio.run(asyncio.wait_for(story(), 20))
    assert len(opened) == 1


def test_a_node_that_refuses_is_asked_again(tmp_path):
    """It says so at once, so nobody has to remember it."""
    nodes = TestNodes(tmp_path, "n1")
    nodes["n1"].away = True

    async def story():
        to = line_to(lambda _: nodes["n1"].opened())
        await refused(to)
        nodes["n1"].away = False
        assert await to.ask(lambda connection: connection.getHostname())
        nodes["n1"].away = True
        with pytest.raises(Unavailable, match="n1 was lost"):
            await to.ask(lambda connection: connection.getHostname())
        nodes["n1"].away = False
        assert await to.ask(lambda connection: connection.getHostname())
        await to.close()

    asyncio.run(story())


def test_a_connection_that_is_lost_is_closed(tmp_path):
    """Its callbacks first, which hold it: a node that comes and goes would keep them all."""
    nodes = TestNodes(tmp_path, "n1")
    node = nodes["n1"]

    async def story():
        to = line_to(lambda _: node.opened())
        for times in range(1, 4):
            assert await to.ask(lambda connection: connection.getHostname())
            assert len(node.followers) == 2
            node.away = True
            with pytest.raises(Unavailable, match="n1 was lost"):
                await to.ask(lambda connection: connection.getHostname())
            node.away = False
            # A thread closes it.
            await soon(lambda times=times: node.closed >= times)
            assert not node.followers
        await to.close()

    asyncio.run(story())


def test_a_node_that_refuses_late_is_nobodys_error(answers, monkeypatch):
    """Whoever asked was told long ago that it is away."""
    monkeypatch.setattr(line, "CONNECT_SECONDS", 0.05)
    unheard = []

    def opens(_):
        answers.wait()
        raise libvirt.libvirtError("timed out")

    async def story():
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
        to = line_to(opens)
        await refused(to)
        answers.set()
        await soon(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "the late answer")
        await to.close()

    asyncio.run(story())
    gc.collect()
    assert not unheard


def test_a_node_that_takes_a_connection_and_says_nothing_is_tried_anew(answers, monkeypatch):
    """It is switched off and on: the thread that waits for it for good is left behind."""
    monkeypatch.setattr(line, "CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(line, "OPEN_SECONDS", 0.1)
    opened, late = [], Late()

    def opens(_):
        opened.append(1)
        if len(opened) == 1:
            answers.wait()
            return late
        return libvirt.open("test:///default")

    async def story():
        to = line_to(opens)
        await refused(to)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await to.ask(lambda connection: connection.getHostname())
                    break
                except Unavailable:
                    await asyncio.sleep(0.02)
        answers.set()
        # The first one's comes at last, and nobody wants it.
        assert await asyncio.to_thread(late.closed.wait, 10)
        assert await to.ask(lambda connection: connection.getHostname())
        await to.close()

    asyncio.run(story())
    assert len(opened) == 2


def test_a_node_that_says_nothing_for_hours_has_a_few_threads(answers, monkeypatch, caplog):
    """Each try has twice as long as the one before."""
    monkeypatch.setattr(line, "CONNECT_SECONDS", 0.01)
    monkeypatch.setattr(line, "OPEN_SECONDS", 0.05)
    opened = []

    def opens(_):
        opened.append(CLOCK.monotonic())
        answers.wait()
        return Late()

    async def story():
        to = line_to(opens)
        began = CLOCK.monotonic()
        async with asyncio.timeout(20):
            while len(opened) < 4:
                with pytest.raises(Unavailable):
                    await to.ask(lambda connection: connection.getHostname())
                await asyncio.sleep(0.01)
        await to.close()
        return opened[3] - began

    assert asyncio.run(story()) >= 0.05 + 0.1 + 0.2
    said = [one.getMessage() for one in caplog.records]
    assert [re.findall(r"for (.*) s\.", one) for one in said] == [["0.05"], ["0.1"], ["0.2"]]


def test_calls_that_are_never_answered_are_a_few(answers, monkeypatch):
    """Nobody waits for them any more; whoever asks then is told at once, until one is answered."""
    monkeypatch.setattr(line, "UNANSWERED_MAX", 3)
    asked = []

    def hang(connection):
        asked.append(1)
        answers.wait()
        return connection.getHostname()

    async def story():
        to = line_to(lambda _: libvirt.open("test:///default"))
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(to.ask(hang), 0.05)
        for _ in range(20):
            with pytest.raises(Unavailable, match="has not answered 3 calls"):
                await within(5, to.ask(hang))
        assert len(asked) == 3
        answers.set()
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await to.ask(hang)
                    break
                except Unavailable:
                    await asyncio.sleep(0.01)
        await to.close()

    asyncio.run(story())


def test_a_connection_that_does_not_close_holds_up_no_end(answers, monkeypatch):
    """To close it, its node is told so; and it says nothing."""
    monkeypatch.setattr(line, "CLOSE_SECONDS", 0.05)

    class Stuck(Late):
        def close(self):
            answers.wait()

    async def story():
        to = line_to(lambda _: Stuck())
        await to.ask(lambda connection: connection)
        await within(10, to.close())

    asyncio.run(story())


def test_any_number_of_long_calls_leaves_room_for_a_short_one(answers):
    """As migrations are long, and a resume must not wait for them."""

    async def story():
        long = [asyncio.create_task(in_thread(answers.wait)) for _ in range(100)]
        assert await asyncio.wait_for(in_thread(lambda: 7), 5) == 7
        assert not any(one.done() for one in long)
        answers.set()
        await asyncio.gather(*long)

    asyncio.run(story())


def test_a_connection_that_opens_after_the_end_is_closed(answers):
    """Whoever asked for it has gone."""
    late = Late()

    async def story():
        def opens():
            answers.wait()
            return late

        waiting = asyncio.create_task(in_thread(opens, given_up=lambda one: one.close()))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        answers.set()
        await asyncio.to_thread(late.closed.wait, 5)

    asyncio.run(story())
    assert late.closed.is_set()


# ---- What a slow node holds up ----


async def within(seconds, work):
    """What it comes to; it is not waited for any longer, and neither is its end."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    assert done, f"it takes longer than {seconds} s"
    return task.result()


def beside_a_slow_node(nodes, answers, story, **settings):
    """Play it while n2 does not answer, and end it whatever comes of it."""

    async def whole():
        driver = nodes.driver(**settings)
        await driver.survey(1)
        nodes["n2"].slow = answers.wait
        try:
            return await story(driver)
        finally:
            answers.set()
            await driver.close()

    return asyncio.run(whole())


@pytest.mark.parametrize("target", [None, "n2"])
@pytest.mark.parametrize("kind", [ImpactKind.FREEZE, ImpactKind.REBOOT, ImpactKind.DELETE])
def test_a_slow_node_holds_up_nothing_on_the_others(tmp_path, answers, monkeypatch, kind, target):
    """It answers at last, and is no node that an impact elsewhere has to wait for."""
    monkeypatch.setattr(looking, "SLOW_SECONDS", 0.05)
    nodes = TestNodes(tmp_path, "n1", "n2")
    nodes["n1"].run("vm")
    nodes["n2"].run("other")

    async def story(driver):
        return await within(15, driver.impact(order(kind, target=target), 1))

    assert beside_a_slow_node(nodes, answers, story).outcome is Outcome.DONE
    assert nodes["n2"].connection.lookupByName("other").isActive()


def test_a_node_that_hangs_holds_up_no_look_at_the_others(tmp_path, answers, monkeypatch):
    """Its line lives, and nothing comes: it is away, and the others are seen as they are."""
    monkeypatch.setattr(looking, "SLOW_SECONDS", 0.05)
    clock = ManualClock()
    nodes = TestNodes(tmp_path, "n1", "n2")
    nodes["n1"].run("vm")

    async def story(driver):
        await within(10, driver.survey(1))
        nodes["n1"].connection.lookupByName("vm").destroy()
        clock.advance(seconds=15)
        return await within(10, driver.survey(1))

    survey = beside_a_slow_node(nodes, answers, story, clock=clock, unreachable_after_seconds=15)
    assert [(one.vm, one.power) for one in survey.found] == [("vm", Power.STOPPED)]
    assert (survey.away, survey.whole) == ({"n2"}, False)


def test_a_look_at_many_domains_may_take_longer_than_a_question(tmp_path, monkeypatch):
    """A node that has much to tell is no node that is away."""
    monkeypatch.setattr(looking, "SLOW_SECONDS", 0.5)
    nodes = TestNodes(tmp_path, "n1")
    nodes["n1"].run("vm")
    nodes["n1"].before_look = lambda: threading.Event().wait(1)

    async def story():
        driver = nodes.driver()
        survey = await driver.survey(1)
        await driver.close()
        return survey

    assert asyncio.run(story()).whole


def test_a_node_that_hangs_when_it_is_to_keep_definitions_is_waited_for_once(
    tmp_path, answers, monkeypatch
):
    """Not once for each VM; they are kept when it answers again."""
    monkeypatch.setattr(looking, "SLOW_SECONDS", 0.2)
    nodes = TestNodes(tmp_path, "n1", "n2")
    for number in range(20):
        nodes["n1"].run(f"vm-{number}")
    waited = []

    def around(_, name, call, *given):
        if name == "setMetadata" and "<definition" in (given[1] or ""):
            waited.append(1)
            answers.wait()
        return call(*given)

    async def story():
        driver = nodes.driver()
        nodes["n2"].around = around
        try:
            hung = await within(10, driver.survey(1))
            assert len(waited) == 1
        finally:
            answers.set()
        await driver.survey(1)
        await driver.close()
        return hung

    assert len(asyncio.run(story()).found) == 20
    book = nodes["n2"].connection.lookupByName(DEFINITIONS)
    assert len(kept_in(book.XMLDesc(0))) == 20
