"""What an endpoint says to a control plane, and what it does about the answers."""

import asyncio
import contextlib
import json
import re

import pytest

from fairnotice.clock import SystemClock
from fairnotice.control.node_lines import At, Hello, SnapshotBegins, encode
from fairnotice.endpoint import link as link_module
from fairnotice.endpoint.link import REPORT_SECONDS_MAX, Link
from fairnotice.endpoint.passing import Passing, Refused
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.unreported import Unreported
from fairnotice.errors import Unavailable
from tests.control.test_peers import Far
from tests.endpoint.test_keeping import NOON, served
from tests.waiting import soon

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"revision":7}'
WRONG = b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 2\r\n\r\n{}"
STRANGER = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
FORGOTTEN = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"joined": false}'
FORBIDDEN = b'HTTP/1.1 403 Forbidden\r\nContent-Length: 17\r\n\r\n{"detail": "No."}'
AWAY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"


class Front:
    """Somebody who shows what he is told, up to a revision."""

    def __init__(self, revision):
        self.revision = revision

    def show(self, told):
        del told


@contextlib.asynccontextmanager
async def linked(folder, *plays):
    """A link to a server of the test, and that one."""
    clock = SystemClock()
    async with Far(*plays) as far:
        saved = Saved(folder, "n", clock)
        link = Link(Passing("n", [far.url]), clock, Unreported(None), saved)
        try:
            yield link, far
        finally:
            await link.close()
            # The server's side of each connection ends a moment later.
            await soon(lambda: not any("_serve" in repr(one) for one in asyncio.all_tasks()))


@contextlib.asynccontextmanager
async def meanwhile(work):
    """Have this done until the block is left."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(story, folder, *plays):
    """Play a story with a link; the bodies that its server was sent."""

    async def whole():
        async with linked(folder, *plays) as (link, far):
            await story(link)
            said = [one.partition(b"\r\n\r\n")[2] for one in far.heard]
            return [json.loads(one) for one in said if one]

    return asyncio.run(asyncio.wait_for(whole(), 20))


def tell(link, revision):
    """A control plane wants a word about this revision."""
    for line in (Hello(1, "n"), SnapshotBegins(), At(revision, confirm=True)):
        told = link.holding.take(encode(line).rstrip(b"\n"))
    link.tell(told)


def test_only_what_every_worker_shows_is_confirmed(tmp_path):
    """Nothing before it is on disk; and of what is, no more than both of them show."""
    fronts = [Front(9), Front(0)]

    async def story(link):
        for front in fronts:
            link.add(front)
        tell(link, 9)
        await link.report()
        link.saved.save(link.holding)
        for fronts[1].revision in (0, 7, 9):
            await link.report()

    said = run(story, tmp_path, [OK, OK, OK, OK])

    assert said == [{}, {}, {"confirmed": 7}, {"confirmed": 9}]


def test_what_cannot_be_reported_is_kept(tmp_path):
    """A control plane that is in trouble is told the same later."""

    async def story(link):
        link.gathered(served("E1"))
        with pytest.raises(Unavailable, match="503"):
            await link.report()
        assert len(link.unreported) == 1
        await link.report()
        assert len(link.unreported) == 0

    first, second = run(story, tmp_path, [AWAY, OK])

    assert first == second


def test_what_is_never_taken_holds_up_nothing(tmp_path):
    """A report that makes no sense over there is dropped, and counted."""

    async def story(link):
        link.gathered(served("E1"))
        await link.report()
        assert len(link.unreported) == 0
        assert link.unreported.dropped_count == 1

    assert len(run(story, tmp_path, [WRONG])) == 1


def test_cut_off_for_long_nobody_is_asked(tmp_path):
    """The VM is told to come back at once, instead of after a timeout."""

    async def story(link):
        link.cut_off_since -= 60
        with pytest.raises(Unavailable, match="no control plane"):
            await link.approve("a", ("E1",))
        with pytest.raises(Unavailable, match="no control plane"):
            await link.enable("vm:a")

    assert run(story, tmp_path, [OK]) == []


def test_a_token_that_was_renewed_in_its_file_is_said_without_a_restart():
    """401, and there is another token: it is asked with that one; and once only where there is."""
    tokens = ["old", "new", "new"]

    async def whole():
        async with Far([STRANGER, OK, STRANGER]) as far:
            passing = Passing("n", [far.url], token=lambda: tokens.pop(0))
            try:
                assert await passing.say("join", {}) == {"revision": 7}
                with pytest.raises(Refused, match="401"):
                    await passing.say("join", {})
            finally:
                await passing.close()
            return [re.search(rb"Bearer (\w+)", one)[1] for one in far.heard]

    assert asyncio.run(asyncio.wait_for(whole(), 20)) == [b"old", b"new", b"new"]
    assert tokens == []


def test_who_may_not_join_is_told_to_look_at_its_token():
    """The control plane does not say for which node the token is; the log says where to look."""

    async def whole():
        async with Far([FORBIDDEN, FORBIDDEN]) as far:
            passing = Passing("kvm-1", [far.url], token=lambda: "kvm-0s")
            try:
                with pytest.raises(Refused, match=r"403 to join: No. Look whether .* for kvm-1 "):
                    await passing.say("join", {})
                with pytest.raises(Refused, match=r"403 to report: No.$"):
                    await passing.say("report", {})
            finally:
                await passing.close()

    asyncio.run(asyncio.wait_for(whole(), 20))


def feed(*revisions):
    """A feed with a snapshot and what follows it, each with a wish for a word; and its end."""
    first, *more = (encode(At(revision, confirm=True)) for revision in revisions)
    begin = encode(Hello(1, "n")) + encode(SnapshotBegins()) + first
    return [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + begin, *more]


class Fails(Front):
    """Somebody who fails to show one revision, once."""

    def show(self, told):
        if told.at.revision == 8 and not self.failed:
            self.failed = True
            raise ValueError("nobody has thought of this")
        self.revision = told.at.revision

    failed = False


@contextlib.asynccontextmanager
async def followed(link, connections):
    """A link that follows, once it has done so for so many times."""
    async with meanwhile(link.following(lambda: None)):
        await soon(lambda: link.connections_count == connections)
        yield


def test_a_fault_does_not_end_the_following(tmp_path):
    """What is told cannot be shown: that is counted, and all of it is told anew."""
    front = Fails(0)

    async def story(link):
        link.add(front)
        async with followed(link, 2):
            assert link.connected
            assert link.loops.faults_count == 1
            assert front.revision == 8

    run(story, tmp_path, [OK, OK], [feed(7, 8), OK], [feed(8), OK])


def test_a_confirmation_is_said_again_with_the_next_feed(tmp_path):
    """It may have been lost: the control plane asks for it anew, and has it."""

    async def story(link):
        link.add(Front(9))
        async with followed(link, 1):
            link.saved.save(link.holding)
            await link.report()
            await soon(lambda: link.connections_count == 2)
            await link.report()

    said = run(story, tmp_path, [OK] * 4, [feed(7)], [feed(7), OK])

    assert [one["confirmed"] for one in said if one] == [7, 7]


class Late(Passing):
    """The answer to the first report comes when the second feed has begun."""

    def __init__(self, *given):
        super().__init__(*given)
        self.joins = 0
        self.reported, self.answered = asyncio.Event(), asyncio.Event()

    async def say(self, what, body):
        self.joins += what == "join"
        if self.joins > 1:
            await self.reported.wait()
        answer = await super().say(what, body)
        if what == "report":
            self.reported.set()
            await self.answered.wait()
        return answer


def test_a_confirmation_whose_answer_comes_after_the_next_feed_is_said_again(tmp_path):
    """That feed has asked for it anew, and may be another control plane's."""

    async def whole():
        async with linked(tmp_path, [OK] * 4, [feed(7)], [feed(7), OK]) as (link, far):
            link._passing = passing = Late("n", [far.url])
            link.add(Front(9))
            async with followed(link, 1):
                link.saved.save(link.holding)
                async with meanwhile(link.report()):
                    await soon(lambda: link.connections_count == 2)
                    passing.answered.set()
                    await asyncio.sleep(0)
                    await link.report()
            return [json.loads(one.partition(b"\r\n\r\n")[2] or b"{}") for one in far.heard]

    said = asyncio.run(asyncio.wait_for(whole(), 20))

    assert [one["confirmed"] for one in said if one] == [7, 7]


def test_somebody_who_has_nothing_to_report_is_heard_of_all_the_same(tmp_path, monkeypatch):
    """Empty reports, every now and then: the law must know that the endpoint is there (rule 8)."""
    monkeypatch.setattr(link_module, "REPORT_SECONDS_MAX", 0.01)
    assert REPORT_SECONDS_MAX <= 15 * 60

    async def story():
        async with linked(tmp_path, [OK] * 99) as (link, far), meanwhile(link.reporting()):
            await soon(lambda: len(far.heard) == 3)

    asyncio.run(asyncio.wait_for(story(), 20))


def test_what_a_vm_saw_goes_with_its_approval(tmp_path):
    """It may be its end; and it is not told twice."""

    async def story(link):
        link.gathered(served("E1", "E2"))
        link.cut_off_since = None
        await link.approve("b", ("E1",))
        assert len(link.unreported) == 2
        await link.approve("a", ("E1",))
        assert len(link.unreported) == 0

    other, own = run(story, tmp_path, [OK, OK])

    at = NOON.isoformat()
    assert other == {"vm": "b", "events": ["E1"], "seen": []}
    assert own["seen"] == [{"event": "E1", "at": at}, {"event": "E2", "at": at}]


def test_one_that_is_not_known_any_more_joins_again(tmp_path):
    """And says anew what it shows: it is waited for from then on."""

    async def story(link):
        link.add(Front(9))
        tell(link, 9)
        link.saved.save(link.holding)
        await link.report()
        await link.report()

    said = run(story, tmp_path, [FORGOTTEN, OK, OK])

    assert said == [{"confirmed": 9}, {}, {"confirmed": 9}]
