"""Two real `serve` on one PostgreSQL: kill -9 of the one that delivers loses nothing."""

import asyncio
import threading
from collections import Counter
from contextlib import ExitStack

from fairnotice.deliveries.courier import AT_ONCE_MAX
from tests.cli.serves import ON_POSTGRES, serves
from tests.deliveries.receivers import receiving
from tests.deliveries.test_crashes import enable, member, put
from tests.ports import own_port
from tests.waiting import soon, until

VMS = [f"vm-{number}" for number in range(12)]
FLEET = {
    "node": [{"name": "n"}],
    "availability_set": [{"name": "web"}],
    "vm": [{"name": name, "node": "n", "availability_set": "web"} for name in VMS],
}
CLUSTER = """
[cluster]
address = "http://127.0.0.1:{port}"
lease_seconds = 2
"""


async def declare(url):
    """Have the set there, and listening: `serve` beside others answers no VM itself."""
    async with member(url) as (run, peer):
        await soon(lambda: run.conductor.leading)
        await put(peer, "PUT", "/v1/fleet", FLEET)
        await enable(run)


def ask(serve, method, path, body=None):
    """What it answers in JSON, with success."""
    answer = serve.call(method, path, body)
    assert answer.status < 300, answer
    return answer.json


def standing(serve):
    """What it says of itself, also while it is not ready."""
    return serve.call("GET", "/readyz").json


def members(stack, folder, url):
    """The one that leads, and the one that follows it."""
    found = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        text = (ON_POSTGRES + CLUSTER).format(url=url, port=own_port())
        found.append(stack.enter_context(serves(folder / name, text)))
        until(lambda: standing(found[0])["leading"])
    until(lambda: standing(found[1])["leader"])
    return found


def restarted(serve, vm):
    """The event that announces the restart of a VM, in the letters in which it is told."""
    return ask(serve, "POST", f"/v1/vms/{vm}/restart", {})["events"][0]["id"].lower()


def told(received):
    """Which event, and as what."""
    return received.properties["EventId"], received.properties["EventStatus"]


def test_what_is_under_way_when_the_leader_is_killed_the_next_one_delivers(tmp_path, postgres_url):
    """Some had arrived, some waited; each comes, in the order of its event, with its id."""
    asyncio.run(declare(postgres_url))
    with receiving() as receiver, ExitStack() as stack:
        leader, other = members(stack, tmp_path, postgres_url)
        ask(other, "POST", "/v1/webhooks", {"name": "ops", "url": receiver.url})
        taken = restarted(other, VMS[0])
        assert told(receiver.next()) == (taken, "Scheduled")
        until(lambda: ask(other, "GET", "/v1/webhooks/ops")["waiting"] == 0)

        arrived, killed = [], threading.Event()

        def answer(asked):
            # It has arrived, and nobody hears the answer.
            arrived.append(asked)
            killed.wait()
            return 200

        receiver.answers = answer
        events = [restarted(other, vm) for vm in VMS[1:]]
        ask(other, "POST", f"/v1/events/{events[0]}/cancel", {})
        until(lambda: len(arrived) == AT_ONCE_MAX)
        unheard = {told(one): one.event["id"] for one in arrived}
        leader.process.kill()
        leader.process.wait()
        killed.set()

        until(lambda: standing(other)["leading"])
        until(lambda: ask(other, "GET", "/v1/webhooks/ops")["waiting"] == 0)
        again = arrived[AT_ONCE_MAX:]
        seen = Counter(map(told, again))
        assert seen == Counter(
            [*((event, "Scheduled") for event in events), (events[0], "Canceled")]
        )
        assert unheard.items() <= {told(one): one.event["id"] for one in again}.items()
        of_one = [status for event, status in map(told, again) if event == events[0]]
        assert of_one == ["Scheduled", "Canceled"]
        assert ask(other, "GET", "/v1/webhooks/ops")["dead_letters"] == 0
