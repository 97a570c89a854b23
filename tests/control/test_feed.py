"""The feed over HTTP: every commit in order, a snapshot for who is behind, and an end."""

import asyncio
import json
from contextlib import contextmanager

import pytest

from fairnotice.clock import SystemClock
from fairnotice.conductor import feed as feed_module
from fairnotice.errors import Unavailable
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import Wrapped
from tests.control.calling import serving
from tests.waiting import until


@pytest.fixture
def served():
    """A service of its own, whose time stands still."""
    with serving(clock=ManualClock()) as served:
        yield served


@contextmanager
def following(served, query=""):
    """The lines of the feed as they come."""
    connection = served.connection()
    connection.request("GET", f"/v1/feed{query}")
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    try:
        yield (json.loads(line) for line in iter(response.readline, b""))
    finally:
        response.close()
        connection.close()


def waiting(served):
    """How many follow the feed: tasks of the service that wait for a commit."""

    async def count():
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
        return sum(name == "Feed.wait_beyond" for name in names)

    return served.inside(count())


def test_every_commit_is_a_line_in_order(served):
    """From the first revision on, without a gap, and then as it happens."""
    revision = served.run.conductor.fleet.revision
    with following(served) as lines:
        for expected in range(1, revision + 1):
            assert next(lines)["revision"] == expected
        accepted = served.post("/v1/vms/db/restart").json
        found = [next(lines) for _ in range(served.run.conductor.fleet.revision - revision)]
    assert [line["revision"] for line in found] == list(
        range(revision + 1, revision + 1 + len(found))
    )
    announced = next(line for line in found if line["what"] == "EventAnnounced")
    event = accepted["events"][0]
    assert (announced["kind"], announced["id"]) == ("event", event["id"])
    assert announced["at"] == event["announced_at"]
    assert (announced["removed"], announced["row"]["status"]) == (False, "Scheduled")


def test_whoever_was_away_goes_on_where_he_was(served):
    """After a revision comes the next."""
    revision = served.run.conductor.fleet.revision
    served.post("/v1/nodes/node-0/cordon")
    with following(served, f"?after={revision}") as lines:
        line = next(lines)
    assert (line["revision"], line["kind"], line["id"]) == (revision + 1, "node", "node-0")
    assert line["row"]["cordoned"] is True


def test_what_is_removed_says_so(served):
    """With the row as it was."""
    revision = served.run.conductor.fleet.revision
    fleet = served.get("/v1/fleet").json
    fleet["vm"] = [vm for vm in fleet["vm"] if vm["name"] != "db"]
    assert served.call("PUT", "/v1/fleet", fleet).status == 200
    with following(served, f"?after={revision}") as lines:
        removed = next(line for line in lines if line["removed"])
    assert removed["id"].endswith("db")


class Forgetful(Wrapped):
    """Has forgotten all lines but the last."""

    def changes_after(self, revision, limit):  # noqa: ARG002, it has nothing to say of any
        return None


class Unreadable(Wrapped):
    """Cannot be read now."""

    def changes_after(self, revision, limit):
        raise Unavailable(f"the lines after {revision}, at most {limit}, cannot be read")


def test_a_store_that_cannot_be_read_ends_the_stream(monkeypatch, caplog):
    """What was sent holds, and whoever follows asks again; nobody has made a mistake."""
    monkeypatch.setattr(feed_module, "LINES_AT_HAND_MAX", 1)
    with serving(Unreadable(), clock=ManualClock()) as served:
        with following(served, "?after=1") as lines:
            assert list(lines) == []
        assert served.get("/healthz").status == 200
    assert caplog.records == []


def snapshot_of(lines):
    """The lines of a snapshot: the last is the life of the process."""
    found = []
    for line in lines:
        found.append(line)
        if line["kind"] == "life":
            return found
    return found


def test_whoever_is_too_far_behind_gets_everything_there_is(monkeypatch):
    """All rows, closed by the revision. Then it goes on with the next commit."""
    monkeypatch.setattr(feed_module, "LINES_AT_HAND_MAX", 1)
    with serving(Forgetful(), clock=ManualClock()) as served:
        revision = served.run.conductor.fleet.revision
        with following(served) as lines:
            found = snapshot_of(lines)
            served.post("/v1/nodes/node-0/cordon")
            following_line = next(lines)
    assert {(line["what"], line["at"]) for line in found} == {("Snapshot", None)}
    # Whoever goes away in the middle has nothing that he could go on from.
    assert {line["revision"] for line in found[:-1]} == {0}
    assert found[-1]["revision"] == revision
    vms = [line["id"] for line in found if line["kind"] == "vm"]
    assert vms == list(served.run.service.fleet.vms)
    assert following_line["revision"] == revision + 1


@pytest.mark.parametrize(
    ("query", "field"),
    [("after=-1", "after"), ("after=x", "after"), (f"after={2**63}", "after"), ("form=1", "form")],
)
def test_a_place_that_is_none_is_422(served, query, field):
    """And no stream."""
    problem = served.get(f"/v1/feed?{query}").problem
    assert (problem["status"], problem["field"]) == (422, field)
    assert waiting(served) == 0


def test_head_of_the_feed_ends(served):
    """The connection may be used on."""
    connection = served.connection()
    for method, path in (("HEAD", "/v1/feed"), ("GET", "/healthz")):
        connection.request(method, path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
    connection.close()
    assert waiting(served) == 0


def test_whoever_goes_away_leaves_nothing_behind(served):
    """Also where nothing is committed that could not be sent to him."""
    for _ in range(5):
        with following(served, f"?after={served.run.conductor.fleet.revision - 1}") as lines:
            next(lines)
            until(lambda: waiting(served) == 1)
        until(lambda: waiting(served) == 0)


def test_many_follow_and_each_gets_all(served):
    """What one does not read is not another's concern."""
    revision = served.run.conductor.fleet.revision
    query = f"?after={revision}"
    with following(served, query) as one, following(served, query), following(served, query) as two:
        served.post("/v1/nodes/node-0/cordon")
        assert next(one) == next(two)


def test_a_service_that_ends_ends_its_streams():
    """At once, and cleanly: the stream is over, not broken."""
    with serving(clock=ManualClock()) as served:
        connection = served.connection()
        connection.request("GET", f"/v1/feed?after={served.run.conductor.fleet.revision}")
        response = connection.getresponse()
        began = SystemClock.monotonic()
    assert response.read() == b""
    assert SystemClock.monotonic() - began < 0.9
    connection.close()
