"""A node's feed and what its endpoint may say: only what concerns the node's own VMs."""

import asyncio
import contextlib
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fairnotice.control import api, node_feeds
from fairnotice.control.endpoints import _Here
from fairnotice.control.node_feeds import FEEDS_PER_NODE_MAX, NodeFeeds
from fairnotice.endpoint.holding import Holding
from fairnotice.model import Vm
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import conducting, restart
from tests.control.calling import PATIENCE_SECONDS, restarted, serving

SOON = "2030-01-01T00:00:00Z"


class Reader:
    """Reads a node's feed line by line, up to the next `at`."""

    def __init__(self, response):
        self.response = response

    def until_at(self):
        lines = []
        while not lines or lines[-1]["kind"] != "at":
            lines.append(json.loads(self.response.readline()))
        return lines


@contextmanager
def reading(served, node):
    """A node's feed, followed until the block is left."""
    connection = served.connection()
    connection.timeout = PATIENCE_SECONDS
    connection.request("GET", f"/v1/endpoints/{node}/feed")
    try:
        yield Reader(connection.getresponse())
    finally:
        connection.close()


def names(lines, kind):
    """What the lines of this kind are about."""
    return {line["name"] for line in lines if line["kind"] == kind}


def on_node(served, node):
    """The VMs of a node, and their scopes."""
    vms = served.get(f"/v1/nodes/{node}").json["vms"]
    return set(vms), {served.get(f"/v1/vms/{vm}").json["scope"] for vm in vms}


def neighbours(served):
    """A VM, its node, and another node."""
    node = served.get("/v1/vms/web-0").json["node"]
    others = [one["name"] for one in served.get("/v1/nodes").json["items"] if one["name"] != node]
    return node, others[0]


def test_a_node_is_told_of_its_own_vms_and_of_nobody_else():
    """First all there is for this node, closed by the revision; other nodes' VMs are not in it."""
    with serving() as served:
        node, _ = neighbours(served)
        vms, scopes = on_node(served, node)
        with reading(served, node) as reader:
            hello, snapshot, *rest, at = reader.until_at()

        assert (hello["kind"], hello["protocol"], hello["node"]) == ("hello", 1, node)
        assert snapshot == {"kind": "snapshot"}
        assert names(rest, "vm") == vms
        assert names(rest, "scope") == scopes
        assert at["revision"] == served.run.service.fleet.revision
        assert at["confirm"] is True


@pytest.mark.parametrize("path", ["/v1/feed", "/v1/endpoints/node-0/feed"])
def test_nobody_is_told_what_is_older_than_he_has(monkeypatch, path):
    """Who has read more elsewhere is let wait until it is here too; where it does not come, 503."""
    with serving() as served:
        revision = served.run.service.fleet.revision
        with contextlib.closing(served.connection()) as waiting:
            waiting.request("GET", f"{path}?after={revision + 1}")
            restarted(served, "web-0")
            assert waiting.getresponse().status == 200
        monkeypatch.setattr(api, "REACH_SECONDS_MAX", 0.01)
        refused = served.get(f"{path}?after={10**9}")
        assert refused.status == 503
        assert "not yet at 1000000000" in refused.problem["detail"]


def test_what_happens_elsewhere_is_not_heard_and_what_happens_here_is():
    """A restart of another node's VM says nothing; one of this node's shows with its event."""
    with serving() as served:
        node, _ = neighbours(served)
        elsewhere = next(
            vm["name"]
            for vm in served.get("/v1/vms").json["items"]
            if vm["node"] != node and vm["scope"] not in on_node(served, node)[1]
        )
        with reading(served, node) as reader:
            reader.until_at()
            restarted(served, elsewhere)
            event = restarted(served, "web-0")
            lines = reader.until_at()

        shown = [one["id"] for line in lines if line["kind"] == "scope" for one in line["events"]]
        assert shown == [event]
        assert elsewhere not in json.dumps(lines)


def test_a_vm_that_leaves_is_taken_back_with_its_scope():
    """A VM that is deallocated is on no node; its scope goes with the last of its VMs."""
    with serving() as served:
        node = served.get("/v1/vms/db").json["node"]
        with reading(served, node) as reader:
            assert "db" in names(reader.until_at(), "vm")
            served.post("/v1/vms/db/deallocate")
            lines = []
            while "db" not in names(lines, "no-vm"):
                lines += reader.until_at()

        assert "vm:db" in names(lines, "no-scope")


def test_a_changed_fault_domain_is_told():
    """Its VMs read it about themselves."""
    with serving() as served:
        fleet = served.get("/v1/fleet").json
        (row,) = [one for one in fleet["node"] if one["name"] == "node-0"]
        row["fault_domain"] = row.get("fault_domain", 0) + 7
        with reading(served, "node-0") as reader:
            reader.until_at()
            assert served.call("PUT", "/v1/fleet", fleet).status == 200
            told = [line for line in reader.until_at() if line["kind"] == "vm"]

        assert {line["fault_domain"] for line in told} == {row["fault_domain"]}


def without(fleet, node):
    """The fleet without this node and what is on it."""
    keep = {"node": "name", "vm": "node"}
    return fleet | {
        what: [one for one in fleet[what] if one[name] != node] for what, name in keep.items()
    }


def test_who_is_taken_away_is_told_so_and_joins_again():
    """The feed of a node that is removed ends, and so does that of an endpoint that is."""
    with serving() as served:
        fleet = served.get("/v1/fleet").json
        path = "/v1/endpoints/node-5"
        removals = [
            (False, "PUT", "/v1/fleet", without(fleet, "node-5")),
            (True, "PUT", "/v1/fleet", without(fleet, "node-5")),
            (True, "DELETE", path, None),
        ]
        for joins, method, where, body in removals:
            assert not joins or served.post(f"{path}/join").json["joined"] is True
            with reading(served, "node-5") as reader:
                reader.until_at()
                assert served.call(method, where, body).status == 200
                assert reader.response.read() == b""
            assert served.call("PUT", "/v1/fleet", fleet).status == 200
            assert served.post(f"{path}/report", {"confirmed": 1}).json["joined"] is False
            assert served.get("/v1/endpoints").json["items"] == []


def test_a_node_has_a_few_feeds_and_the_newest_stay():
    """Whoever opens one after another, by mistake or with a stolen token, ends his own."""
    with serving() as served, contextlib.ExitStack() as stack:
        opened = []
        for _ in range(FEEDS_PER_NODE_MAX + 1):
            opened.append(stack.enter_context(reading(served, "node-0")))
            opened[-1].until_at()
        assert opened[0].response.read() == b""
        event = restarted(served, "web-0")
        for reader in opened[1:]:
            assert event in json.dumps(reader.until_at())
        assert len(served.run.service.endpoints.feeds) == FEEDS_PER_NODE_MAX


def test_who_takes_nothing_does_not_keep_his_place():
    """Half-open feeds of a node are counted no more when newer ones come."""

    async def story():
        async with conducting() as conductor:
            feeds = NodeFeeds(conductor.feed)
            opened = [feeds.follow("node-0") for _ in range(FEEDS_PER_NODE_MAX + 2)]
            for lines in opened:
                await anext(lines)
            assert len(feeds) == FEEDS_PER_NODE_MAX
            for lines in opened:
                await lines.aclose()
            assert len(feeds) == 0

    asyncio.run(story())


def test_a_node_that_is_gone_when_all_is_loaded_anew_has_no_feed():
    """What was removed while the journal was lost is removed all the same."""

    async def story():
        async with conducting() as conductor, conducting(declare=False) as empty:
            feeds = NodeFeeds(conductor.feed)
            lines = feeds.follow("node-0")
            await anext(lines)
            feeds.loaded(empty.fleet)
            async with asyncio.timeout(PATIENCE_SECONDS):
                rest = [line async for line in lines]
            assert rest == []

    asyncio.run(story())


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_feed_that_begins_anew_while_it_is_written_takes_nothing_back(pieces, monkeypatch):
    """Whichever piece was the last before all was loaded anew: its endpoint holds what is there.

    Also after the next beat, which has nothing to say.
    """
    monkeypatch.setattr(node_feeds, "BEAT_SECONDS", 1)
    monkeypatch.setattr(node_feeds, "TICK_SECONDS", 0.05)

    async def story():
        async with conducting() as before, conducting() as after:
            await after.submit(restart("one", "db"))
            feeds, holding = NodeFeeds(before.feed), Holding()
            lines = feeds.follow("node-0")

            async def take():
                taken = [holding.take(line) for line in (await anext(lines)).split(b"\n")]
                return any(told is not None for told in taken)

            for _ in range(pieces):
                await take()
            after.feed.follow(feeds)
            async with asyncio.timeout(PATIENCE_SECONDS):
                for _ in "now", "the next beat":
                    while not await take():
                        pass
                    assert list(holding.vms) == ["web-0"]
                    assert holding.revision == after.fleet.revision
            await lines.aclose()

    asyncio.run(story())


def test_a_confirmation_that_was_lost_is_asked_for_again(monkeypatch):
    """Nobody has said that the event is shown: every beat asks, until somebody does."""
    monkeypatch.setattr(node_feeds, "BEAT_SECONDS", 1)
    monkeypatch.setattr(node_feeds, "TICK_SECONDS", 0.05)
    with serving() as served:
        served.post("/v1/endpoints/node-0/join")
        with reading(served, "node-0") as reader:
            reader.until_at()
            restarted(served, "web-0")
            assert [reader.until_at()[-1].get("confirm") for _ in range(3)] == [True] * 3
            report = {"confirmed": served.run.service.fleet.revision}
            served.post("/v1/endpoints/node-0/report", report)
            assert "confirm" not in [reader.until_at()[-1] for _ in range(10)][-1]


def test_an_event_waits_for_the_endpoint_and_is_confirmed_by_its_report():
    """A joined endpoint holds an event until it says that it shows it; the operator sees whom."""
    with serving() as served:
        node, _ = neighbours(served)
        assert served.post(f"/v1/endpoints/{node}/join").status == 200
        event = restarted(served, "web-0")
        waiting = served.get(f"/v1/endpoints/{node}").json
        shown = served.get(f"/v1/events/{event}").json
        report = served.post(
            f"/v1/endpoints/{node}/report",
            {
                "confirmed": served.run.service.fleet.revision,
                "seen": [{"event": event, "vm": "web-0", "at": SOON}],
            },
        )
        after = served.get(f"/v1/endpoints/{node}").json

        assert waiting["unconfirmed"] == [event]
        assert shown["unconfirmed"] == [node]
        assert report.json["passed_over"] == 0
        assert after["unconfirmed"] == []
        assert after["heard_at"] is not None
        assert [one["vm"] for one in served.get(f"/v1/events/{event}").json["seen"]] == ["web-0"]


async def _passing(clock, seconds):
    clock.advance(seconds=seconds)


@pytest.mark.parametrize("seen", [True, False])
def test_notice_begins_anew_where_an_endpoint_shows_an_event_late_and_nobody_has_seen_it(seen):
    """What was seen and what is confirmed come in one report; the sighting counts first."""
    clock = ManualClock()
    with serving(clock=clock) as served:
        node, _ = neighbours(served)
        served.post(f"/v1/endpoints/{node}/join")
        event = restarted(served, "web-0")
        before = served.get(f"/v1/events/{event}").json["not_before"]
        sighting = {"event": event, "vm": "web-0", "at": clock.wall().isoformat()}
        served.inside(_passing(clock, 10))
        report = {"confirmed": served.run.service.fleet.revision}
        served.post(f"/v1/endpoints/{node}/report", report | {"seen": [sighting] if seen else []})

        after = served.get(f"/v1/events/{event}").json["not_before"]
        assert (after == before) == seen


def test_an_absence_may_be_told_twice():
    """An hour is an hour, also where the answer to the first report was lost."""
    clock = ManualClock()
    with serving(clock=clock) as served:
        served.inside(_passing(clock, 7200))
        away = {"scopes": ["availability-set:web"], "seconds": 3600}
        away["until"] = clock.wall().isoformat()
        for _ in range(2):
            report = served.post("/v1/endpoints/node-0/report", {"unserved": away})
            assert report.status == 200, report
            served.inside(_passing(clock, 60))
        (one,) = served.run.service.fleet.scopes["availability-set:web"].unserved
        assert (one.until - one.since).total_seconds() == 3600


def test_a_stolen_token_harms_its_own_node_only():
    """What an endpoint says of another node's VMs counts for nothing, and changes nothing."""
    with serving() as served:
        _, thief = neighbours(served)
        served.post(f"/v1/endpoints/{thief}/join")
        event = restarted(served, "web-0")
        before = served.run.service.fleet.revision
        path = f"/v1/endpoints/{thief}"
        approval = served.post(f"{path}/approve", {"vm": "web-0", "events": [event]})
        nobody = served.post(f"{path}/approve", {"vm": "nobody", "events": [event]})
        enabling = served.post(f"{path}/enable", {"scope": "vm:nobody"})
        report = served.post(
            f"{path}/report",
            {
                "heard": [{"scope": "vm:nobody", "at": SOON}],
                "seen": [{"event": event, "vm": "web-0", "at": SOON}],
                "unserved": {"scopes": ["vm:nobody"], "seconds": 5},
            },
        )

        assert [one.status for one in (approval, nobody, enabling)] == [403, 403, 403]
        assert approval.problem["detail"].replace("web-0", "nobody") == nobody.problem["detail"]
        assert report.json == {"revision": before, "passed_over": 3, "joined": True}
        assert served.run.service.fleet.revision == before


def test_many_scopes_are_enabled_by_one_request():
    """Those of the node; what is elsewhere is passed over, whether it exists or not."""
    with serving() as served:
        body = served.get("/v1/fleet").json
        body["vm"] += [{"name": f"new-{n}", "node": f"node-{n % 2}"} for n in range(4)]
        assert served.call("PUT", "/v1/fleet", body).status == 200
        path = "/v1/endpoints/node-1/enable"
        answer = served.post(path, {"scopes": ["vm:new-1", "vm:new-3", "vm:new-0", "vm:nobody"]})

        assert answer.json["passed_over"] == 2
        assert answer.json["elsewhere"] == ["vm:new-0", "vm:nobody"]
        scopes = served.run.service.fleet.scopes
        assert [scopes[f"vm:new-{n}"].enabled for n in range(4)] == [False, True, False, True]
        for body in ({"scopes": []}, {}, {"scopes": ["vm:new-0", "vm:nobody"]}):
            refused = served.post(path, body)
            assert refused.status == 403
            assert refused.problem["detail"].startswith("None of them is on node-1.")


def test_what_the_first_endpoints_said_is_still_understood():
    """Word for word what an endpoint of version 0.1.0 sends: one that is behind is served."""
    with serving() as served:
        body = served.get("/v1/fleet").json
        body["vm"].append({"name": "new", "node": "node-1"})
        assert served.call("PUT", "/v1/fleet", body).status == 200
        path = "/v1/endpoints/node-1"
        assert served.post(f"{path}/join", {}).json["joined"]
        enabled = served.post(f"{path}/enable", {"scope": "vm:new"})
        assert (enabled.status, enabled.json["passed_over"]) == (200, 0)
        assert served.run.service.fleet.scopes["vm:new"].enabled

        event = restarted(served, "new")
        seen = [{"event": event, "vm": "new", "at": "2026-11-18T12:00:00+00:00"}]
        heard = [{"scope": "vm:new", "at": "2026-11-18T12:00:00+00:00"}]
        at = served.run.service.fleet.revision
        report = {"heard": heard, "seen": seen, "confirmed": at}
        report["unserved"] = {"scopes": ["vm:new"], "seconds": 5.0, "until": heard[0]["at"]}
        assert served.post(f"{path}/report", report).json["passed_over"] == 0
        assert [one.vm for one in served.run.service.fleet.events[event].seen] == ["new"]
        approval = served.post(f"{path}/approve", {"vm": "new", "events": [event], "seen": []})
        assert (approval.status, approval.json["unknown"]) == (200, [])


def test_a_report_that_says_the_same_very_often_costs_no_more():
    """A stolen token: 5,000 lines of the largest scope there is, of which nothing is here."""
    vms = {
        f"vm-{number}": Vm(f"vm-{number}", "cloud-service:big", "node-0")
        for number in range(20_000)
    }

    class Counted(dict):
        looks = 0

        def __getitem__(self, key):
            self.looks += 1
            return super().__getitem__(key)

    fleet = SimpleNamespace(
        vms=Counted(vms), vms_in_scope={"cloud-service:big": tuple(vms)}, impacts={}
    )
    here = _Here(fleet, "node-1")
    assert not any(here.had_scope("cloud-service:big") for _ in range(5_000))
    assert fleet.vms.looks == len(vms)


def test_a_vm_that_has_just_left_is_still_reported():
    """What it saw on a node where an impact found it is believed of that node, for a day."""
    with serving() as served:
        node = served.get("/v1/vms/db").json["node"]
        served.post(f"/v1/endpoints/{node}/join")
        event = restarted(served, "db")
        served.post(f"/v1/events/{event}/approve")
        while served.get(f"/v1/events/{event}").json["status"] == "Scheduled":
            pass
        served.post("/v1/vms/db/deallocate")
        while served.get("/v1/vms/db").json["node"] is not None:
            pass
        body = {"seen": [{"event": event, "vm": "db", "at": SOON}]}
        report = served.post(f"/v1/endpoints/{node}/report", body)

        assert report.json["passed_over"] == 0
        assert [one["vm"] for one in served.get(f"/v1/events/{event}").json["seen"]] == ["db"]


def deleted_by(served, node, vm, **seen):
    """The event of a VM that approves its own end, once it is gone."""
    event = served.post(f"/v1/vms/{vm}/delete").json["events"][0]["id"]
    body = {"vm": vm, "events": [event]}
    body |= {name: [{"event": event, "at": at}] for name, at in seen.items()}
    assert served.post(f"/v1/endpoints/{node}/approve", body).json["unknown"] == []
    while served.get(f"/v1/vms/{vm}").status != 404:
        pass
    return event


def test_what_a_vm_saw_comes_with_its_approval_or_after_its_end():
    """A VM approves its Terminate and is gone; it is on record that it had seen it, either way."""
    with serving() as served:
        node = served.get("/v1/vms/batch_0").json["node"]
        first = deleted_by(served, node, "batch_0", seen=SOON)
        with_it = served.get(f"/v1/events/{first}").json
        later_node = served.get("/v1/vms/batch_1").json["node"]
        later = deleted_by(served, later_node, "batch_1")
        sighting = {"event": later, "vm": "batch_1", "at": SOON}
        strange = served.post(f"/v1/endpoints/{node}/report", {"seen": [sighting]})
        report = served.post(f"/v1/endpoints/{later_node}/report", {"seen": [sighting]})

        assert ([one["vm"] for one in with_it["seen"]], with_it["never_seen"]) == (["batch_0"], [])
        assert [strange.json["passed_over"], report.json["passed_over"]] == [1, 0]
        assert [one["vm"] for one in served.get(f"/v1/events/{later}").json["seen"]] == ["batch_1"]


def test_a_vms_approval_goes_through_its_own_endpoint():
    """The VM's own node approves; an id that its scope never saw is named, and nothing happens."""
    with serving() as served:
        node, _ = neighbours(served)
        event = restarted(served, "web-0")
        path = f"/v1/endpoints/{node}/approve"
        refused = served.post(path, {"vm": "web-0", "events": [event, "NOBODY"]})
        done = served.post(path, {"vm": "web-0", "events": [event]})

        assert refused.json["unknown"] == ["NOBODY"]
        assert done.json["unknown"] == []
        approvals = served.get(f"/v1/events/{event}").json["approvals"]
        assert [one["by"] for one in approvals] == ["web-0"]


def test_an_endpoint_that_is_forgotten_holds_nothing():
    """The operator takes it away: events wait for it no more."""
    with serving() as served:
        node, _ = neighbours(served)
        served.post(f"/v1/endpoints/{node}/join")
        event = restarted(served, "web-0")
        served.call("DELETE", f"/v1/endpoints/{node}")

        assert served.get(f"/v1/events/{event}").json["unconfirmed"] == []
        assert served.get(f"/v1/endpoints/{node}").status == 404
        assert served.get("/v1/endpoints").json["items"] == []
        assert served.get("/v1/endpoints/nobody/feed").status == 404
