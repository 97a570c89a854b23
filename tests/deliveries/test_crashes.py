"""Whoever is killed, or loses the lead, has told nobody too little."""

import asyncio
import json
import re
import signal
import urllib.request
from contextlib import AsyncExitStack

from fairnotice.control.running import Place
from tests.cli.test_up import control, started
from tests.control.test_passing_on import FLEET, control_plane
from tests.deliveries.receivers import receiving
from tests.ports import own_port
from tests.waiting import soon, until


def ask(url, method="GET", body=None, **headers):
    """What is answered in JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - our own
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
        return json.load(answer)


def test_what_was_delivered_when_it_was_killed_is_delivered_again(tmp_path):
    """A kill -9 between the delivery and the note of it: the same ids again, and none is lost."""
    store = ("--store", f"sqlite:{tmp_path / 'fleet.db'}")
    with receiving() as receiver:
        with started(tmp_path, *store) as (process, said):
            api = control(said)
            metadata = re.search(r"(http://127\.0\.0\.1:\d+)/vm/", said)[1]
            document = f"{metadata}/vm/db/metadata/scheduledevents?api-version=2020-07-01"
            ask(document, Metadata="true")
            ask(f"{api}/v1/webhooks", "POST", {"name": "ops", "url": receiver.url})

            def kill(_):
                process.send_signal(signal.SIGKILL)
                process.wait()
                return 200

            receiver.answers = kill
            made = ask(f"{api}/v1/vms/db/restart", "POST", {})
            first = receiver.next()
        receiver.answers = lambda _: 200
        with started(tmp_path, *store) as (_, said):
            again = receiver.next()
            assert again.event == first.event
            assert again.properties["EventId"] == made["events"][0]["id"].lower()
            ask(f"{control(said)}/v1/events/{made['events'][0]['id']}/approve", "POST", {})
            # It was seen by nobody before the restart: its notice begins anew (rule 24), which
            # is told again if it now ends in another second.
            told = receiver.next().properties["EventStatus"]
            if told == "Scheduled":
                told = receiver.next().properties["EventStatus"]
            assert told == "Started"
            until(lambda: ask(f"{control(said)}/v1/webhooks/ops")["waiting"] == 0)


def test_whoever_leads_next_goes_on_with_what_waits(postgres_url):
    """On PostgreSQL: only the leader tells; after a takeover nothing is missing."""

    async def story(receiver):
        async with AsyncExitStack() as leaders, AsyncExitStack() as others:
            first, _ = await leaders.enter_async_context(member(postgres_url))
            await soon(lambda: first.conductor.leading)
            second, peer = await others.enter_async_context(member(postgres_url))
            await soon(lambda: second.conductor.leader is not None)
            for run in (first, second):
                run.delivering.retry_seconds = (0.1,)
            await put(peer, "PUT", "/v1/fleet", FLEET)
            await enable(first)
            # Asked of one that follows, it is made by the one that leads.
            await put(peer, "POST", "/v1/webhooks", {"name": "ops", "url": receiver.url})
            receiver.answers = lambda _: 500
            made = await put(peer, "POST", "/v1/vms/vm-0/restart", {})
            await soon(lambda: len(receiver.tried) > 2)
            assert second.delivering.waiting() == {}
            await leaders.aclose()
            await soon(lambda: second.conductor.leading)
            receiver.answers = lambda _: 200
            event = made["events"][0]["id"]
            await put(peer, "POST", f"/v1/events/{event}/cancel", {})
            told = await asyncio.to_thread(receiver.several, 2)
            statuses = [one.properties["EventStatus"] for one in told]
            assert statuses == ["Scheduled", "Canceled"]
            assert {one.properties["EventId"] for one in told} == {event.lower()}

    with receiving() as receiver:
        asyncio.run(story(receiver))


def member(url):
    """One of several control planes."""
    port = own_port()
    return control_plane(url, f"http://127.0.0.1:{port}", Place("127.0.0.1", port))


async def put(peer, method, path, body):
    """What is answered in JSON."""
    answer = await peer.ask(method, path, body=json.dumps(body).encode())
    assert answer.status < 300, answer
    return json.loads(answer.body)


async def enable(run):
    """Have the VM's scope listen."""
    url = f"http://{run.metadata}/vm/vm-0/metadata/scheduledevents?api-version=2020-07-01"
    await asyncio.to_thread(ask, url, Metadata="true")
