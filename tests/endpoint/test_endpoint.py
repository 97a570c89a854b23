"""An endpoint as a process of its own, fed by a real control plane over HTTP."""

import asyncio
import contextlib
import os
import signal
import socket
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fairnotice.cli.endpoint import telling
from fairnotice.endpoint.config import Config
from fairnotice.endpoint.link import Link
from fairnotice.endpoint.passing import Passing
from fairnotice.endpoint.running import STUCK_SECONDS, Running
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.unreported import Unreported
from fairnotice.testing.manual_clock import ManualClock
from tests.control.calling import restarted, serving
from tests.endpoint.noding import (
    EVENTS,
    PATIENCE_SECONDS,
    EndpointProcess,
    endpoint,
    relay,
)
from tests.waiting import until

# Of the sample fleet: web-0 is there, db is not.
NODE = "node-0"
WEB = "127.69.0.10"


def url(served):
    """Where the control plane is."""
    return f"http://{served.run.control}"


def address(served, vm):
    """Where a VM asks from."""
    return served.get(f"/v1/vms/{vm}").json["addresses"][0]


def event_of(served, event):
    """An event as the operator sees it."""
    return served.get(f"/v1/events/{event}").json


@pytest.fixture(params=[1, 2], ids=["alone", "two workers"])
def workers(request):
    """In one process, and in three."""
    return request.param


def test_a_vm_reads_approves_and_is_seen(tmp_path, workers):
    """What the control plane announces is read at the node; what the VM does comes back."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served), workers=workers) as node:
        event = restarted(served, "web-0")
        (shown,) = node.shows(WEB, event)
        until(lambda: event_of(served, event)["unconfirmed"] == [], "its confirmation")
        until(lambda: event_of(served, event)["seen"], "first seen")
        unknown = node.approve(WEB, "00000000-0000-0000-0000-000000000000")
        approval = node.approve(WEB, event)

        assert shown["Resources"] == ["web-0"]
        assert [one["vm"] for one in event_of(served, event)["seen"]] == ["web-0"]
        assert unknown.status == 400
        assert approval.status == 200
        assert event_of(served, event)["approvals"][0]["by"] == "web-0"


def test_it_answers_as_the_service_itself_does(tmp_path):
    """Document, ETag and instance document are byte for byte those of the endpoint inside."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served)) as node:
        event = restarted(served, "web-0")
        node.shows(WEB, event)
        answers = {}
        for path in (EVENTS, "/metadata/instance?api-version=2021-02-01"):
            inside = EndpointProcess(tmp_path, NODE, [])
            inside.port = served.run.metadata.port
            for name, asked in (("inside", inside), ("node", node)):
                answer = asked.ask(WEB, path=path)
                answers.setdefault(path, {})[name] = (answer.body, answer.headers.get("etag"))
        other = node.ask(address(served, "db"))

        for path, pair in answers.items():
            assert pair["inside"] == pair["node"], path
        assert other.status not in (200, 304)


def test_cut_off_it_serves_on_and_reports_when_it_is_mended(tmp_path, workers):
    """The last board is served and approvals are 503; what was seen meanwhile is told at last."""
    with serving() as served, relay(served) as link:
        event = restarted(served, "web-0")
        with endpoint(tmp_path / "e", NODE, link.url, workers=workers) as node:
            link.cut()
            until(lambda: not node.connected(), "the cut")
            (shown,) = node.ask(WEB).events
            refused = node.approve(WEB, event)
            later = restarted(served, "web-0")
            still = [one["EventId"] for one in node.ask(WEB).events]
            seen_before = event_of(served, event)["seen"]
            unconfirmed = event_of(served, later)["unconfirmed"]
            link.mend()
            node.shows(WEB, later)
            until(lambda: event_of(served, event)["seen"], "what was seen while cut off")
            approval = node.approve(WEB, event)

        assert shown["EventId"] == event
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert still == [event]
        assert seen_before == []
        assert unconfirmed == [NODE]
        assert approval.status == 200


def test_an_event_that_nobody_shows_is_held_until_it_is_released(tmp_path):
    """The operator sees for whom an event waits, and may let it go."""
    with serving() as served, relay(served) as link:
        with endpoint(tmp_path / "e", NODE, link.url) as node:
            link.cut()
            until(lambda: not node.connected(), "the cut")
            event = restarted(served, "web-0")
            waiting = served.get(f"/v1/endpoints/{NODE}").json["unconfirmed"]
            served.post(f"/v1/events/{event}/release")

        assert waiting == [event]
        assert event_of(served, event)["unconfirmed"] == []


def test_killed_and_started_without_a_control_plane_it_serves_what_it_had(tmp_path, workers):
    """The board is on disk, and what was served before the VM had its answer."""
    with serving() as served, relay(served) as link:
        event = restarted(served, "web-0")
        with endpoint(tmp_path / "e", NODE, link.url, workers=workers) as node:
            saved = tmp_path / "e" / "state" / "board.jsonl"
            until(lambda: saved.exists() and event in saved.read_text(), "the saved board")
            link.cut()
            until(lambda: not node.connected(), "the cut")
            node.ask(WEB)
            node.kill()
            written = tmp_path / "e" / "state" / "unreported.jsonl"
            node.start()
            (shown,) = node.ask(WEB).events
            connected = node.connected()
            link.mend()
            until(lambda: event_of(served, event)["seen"], "what the life before had served")
            until(lambda: written.read_text() == "", "the end of the queue")

        assert shown["EventId"] == event
        assert not connected


def test_it_goes_to_another_control_plane(tmp_path):
    """The first in the list is not there: the next one is asked."""
    with serving() as served:
        urls = ("http://127.0.0.1:1", url(served))
        with endpoint(tmp_path / "e", NODE, *urls) as node:
            event = restarted(served, "web-0")

            assert node.shows(WEB, event)


def test_a_vm_is_always_on_the_same_worker_and_a_dead_one_is_replaced(tmp_path):
    """The kernel chooses by address; who was served by a worker that dies is served again."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served), workers=2) as node:
        before = children(node)
        for _ in range(20):
            node.ask(WEB)
        counts = until(lambda: polls(node), "the counts of the workers")
        event = restarted(served, "web-0")
        node.shows(WEB, event)
        for number in before:
            os.kill(number, signal.SIGKILL)
        (shown,) = node.ask(WEB).events
        after = children(node)

        assert len(before) == len(after) == 2
        assert not set(before) & set(after)
        assert sorted(counts) == [0, 20]
        assert shown["EventId"] == event


def test_what_a_worker_served_before_it_was_killed_is_reported(tmp_path):
    """Nobody asks again: what the dead one had written down is taken up by its parent."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served), workers=2) as node:
        event = restarted(served, "web-0")
        saved = tmp_path / "e" / "state" / "board.jsonl"
        until(lambda: saved.exists() and event in saved.read_text(), "the event at the node")
        (shown,) = node.ask(WEB).events
        for number in children(node):
            os.kill(number, signal.SIGKILL)
        until(lambda: event_of(served, event)["seen"], "what the dead worker had served")
        written = [tmp_path / "e" / "state" / f"sightings-{number}.jsonl" for number in range(2)]
        until(lambda: not any(one.read_text() for one in written), "files that are empty again")

        assert shown["EventId"] == event


def children(node):
    """The processes that it has started."""
    pid = node.process.pid
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def polls(node):
    """Polls by worker, once all twenty are counted."""
    name = "fairnotice_metadata_requests_total"
    found = []
    for worker in "01":
        try:
            label = f'{{worker="{worker}",status="200",api_version="2020-07-01"}}'
            found.append(node.metric(name, label))
        except AssertionError:
            found.append(0)
    return found if sum(found) == 20 else None


def test_a_polite_end_reports_what_was_served_last(tmp_path, workers):
    """Whoever was answered a moment ago is in the report that the end sends."""
    with serving() as served:
        event = restarted(served, "web-0")
        with endpoint(tmp_path / "e", NODE, url(served), workers=workers) as node:
            node.shows(WEB, event)
            node.stop()

        assert [one["vm"] for one in event_of(served, event)["seen"]] == ["web-0"]


def test_a_control_plane_that_lags_is_not_believed(tmp_path):
    """It has not read of an event that is shown: the VM goes on to read it."""
    with (
        serving() as ahead,
        serving() as behind,
        relay(ahead) as link,
        endpoint(tmp_path / "e", NODE, link.url, url(behind)) as node,
    ):
        event = restarted(ahead, "web-0")
        node.shows(WEB, event)
        before = node.ask(WEB).body
        link.cut()
        log = tmp_path / "e" / "log"
        until(lambda: "no control plane tells anything" in log.read_text(), "the refusal")

        assert node.ask(WEB).body == before
        assert not node.connected()


def test_rule_05_what_was_confirmed_is_shown_by_the_next_life(tmp_path):
    """Killed in the moment of its confirmation, and started while it is cut off."""
    with (
        serving() as served,
        relay(served) as link,
        endpoint(tmp_path / "e", NODE, link.url) as node,
    ):
        event = restarted(served, "web-0")
        until(lambda: event_of(served, event)["unconfirmed"] == [], "its confirmation")
        node.kill()
        link.cut()
        node.start()

        assert [one["EventId"] for one in node.ask(WEB).events] == [event]
        assert node.metric("fairnotice_endpoint_board_age_seconds") > 0


def test_rule_07_a_restart_does_not_lead_vms_back(tmp_path, workers):
    """The board on its disk is older than what a control plane says at once: nobody is shown it."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served), workers=workers) as node:
        saved = tmp_path / "e" / "state" / "board.jsonl"
        old = until(lambda: saved.exists() and saved.read_bytes(), "the first board")
        event = restarted(served, "web-0")
        node.shows(WEB, event)
        node.kill()
        saved.write_bytes(old)
        node.start()

        assert [one["EventId"] for one in node.ask(WEB).events] == [event]


def refused_start(node):
    """Start one that must not run; its exit code, and what it says."""
    node.start(wait=False)
    try:
        code = node.process.wait(PATIENCE_SECONDS)
    finally:
        node.kill()
    return code, (node.folder / "log").read_text()


def test_there_is_no_second_endpoint_beside_one(tmp_path):
    """Neither in its state directory nor at its address, and the first serves on."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served), workers=2) as node:
        same_state = EndpointProcess(tmp_path / "e", NODE, [url(served)])
        same_address = EndpointProcess(tmp_path / "f", NODE, [url(served)], workers=2)
        same_address.port = node.port

        code, says = refused_start(same_state)
        assert (code, "Another endpoint runs with the state_directory" in says) == (2, True)
        code, says = refused_start(same_address)
        assert (code, f"127.0.0.1:{node.port} cannot be listened on" in says) == (1, True)
        assert node.ask(WEB).status == 200


@contextlib.contextmanager
def systemd(folder):
    """The other end of a notify socket; what makes a process speak to it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listens:
        listens.bind(str(folder / "notify"))
        listens.settimeout(PATIENCE_SECONDS)
        # Half of it is how often it wants to hear of one that goes on.
        yield listens, {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "400000"}


def test_systemd_hears_that_it_is_ready_goes_on_and_ends(tmp_path, workers):
    """READY when there is something to show; WATCHDOG again and again; STOPPING at the end."""
    with (
        serving() as served,
        systemd(tmp_path) as (listens, environment),
        endpoint(
            tmp_path / "e", NODE, url(served), workers=workers, environment=environment
        ) as node,
    ):
        heard = [listens.recv(4096).decode() for _ in range(4)]
        node.stop()
        while "STOPPING=1" not in heard:
            heard.append(listens.recv(4096).decode())

    assert heard.count("READY=1") == 1
    assert heard.count("WATCHDOG=1") >= 3


def test_systemd_hears_nothing_of_one_that_is_stuck(tmp_path, monkeypatch):
    """A loop that goes round no more is not vouched for: the endpoint is started anew."""

    async def story(listens):
        clock = ManualClock()
        config = Config(NODE, ("http://127.0.0.1:1",), state_directory=tmp_path)
        passing = Passing(NODE, config.control_planes)
        saved = Saved(tmp_path, NODE, clock)
        run = Running(config, Link(passing, clock, Unreported(None), saved), 0)
        run.link.loops.turned("following")
        work = asyncio.create_task(telling(run, clock))
        heard = []
        for _ in range(3):
            await asyncio.sleep(0.01)
            listens.setblocking(False)  # noqa: FBT003 - it has no name
            with contextlib.suppress(BlockingIOError):
                heard.append(listens.recv(4096))
            clock.advance(seconds=STUCK_SECONDS)
        work.cancel()
        return heard

    with systemd(tmp_path) as (listens, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        heard = asyncio.run(story(listens))

    assert heard == [b"WATCHDOG=1", b"WATCHDOG=1"]


def test_rule_26_what_a_vm_saw_of_its_own_end_is_on_record(tmp_path, workers):
    """It approves, and is gone: with the approval it is known that it had looked."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served), workers=workers) as node:
        batch = address(served, "batch_0")
        answer = served.post("/v1/vms/batch_0/delete").json
        event = answer["events"][0]["id"]
        node.shows(batch, event)
        approval = node.approve(batch, event)
        found = event_of(served, event)

        assert approval.status == 200
        assert [one["vm"] for one in found["seen"]] == ["batch_0"]


def test_rule_08_an_absence_explains_silence(tmp_path):
    """Nobody was served for two hours, as the last life's word says: the law is told."""
    with serving() as served, endpoint(tmp_path / "e", NODE, url(served)) as node:
        scopes = served.run.conductor.fleet.scopes
        until(lambda: served.get(f"/v1/endpoints/{NODE}").status == 200, "the endpoint")
        node.stop()
        before = scopes["availability-set:web"].unserved
        alive = tmp_path / "e" / "state" / "alive"
        last = datetime.fromisoformat(alive.read_text().partition("\n")[0])
        alive.write_text((last - timedelta(hours=2)).isoformat())
        node.start()
        until(lambda: scopes["availability-set:web"].unserved, "the excuse")

        assert before == ()
        until(lambda: node.metric("fairnotice_endpoint_unreported") == 0, "the end of the queue")


def test_rule_05_a_node_that_was_away_is_waited_for_again(tmp_path):
    """Taken out of the fleet and put back: its endpoint, which never ended, joins again."""
    with serving() as served:
        full = served.get("/v1/fleet").json
        less = {
            **full,
            "node": [one for one in full["node"] if one["name"] != "node-5"],
            "vm": [one for one in full["vm"] if one["node"] != "node-5"],
        }
        with endpoint(tmp_path / "e", "node-5", url(served)) as node:
            for fleet in (less, full):
                assert served.call("PUT", "/v1/fleet", fleet).status == 200
            until(lambda: served.get("/v1/endpoints/node-5").status == 200, "its endpoint")
            until(node.connected, "its feed")
