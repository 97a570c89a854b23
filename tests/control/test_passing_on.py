"""One control plane of several, over HTTP: what it passes on, and what it says when it cannot."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, closing

from fairnotice.clock import SystemClock
from fairnotice.control.auth import PASSED_ON
from fairnotice.control.passing_on import REVISION, Cluster
from fairnotice.control.peers import Peer
from fairnotice.control.running import LOOPBACK, Place, Plan, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.stores.opening import open_lease, open_store
from tests.control.bearers import kept
from tests.ports import own_port
from tests.waiting import soon

LONG_SECONDS = 600.0
FLEET = {"node": [{"name": "node-0"}], "vm": [{"name": "vm-0", "node": "node-0"}]}
# Nobody listens there.
NOWHERE = "http://127.0.0.1:1"
ANYWHERE = Place(LOOPBACK, 0)


@asynccontextmanager
async def control_plane(url, address, place=ANYWHERE, **more):
    """One of several on this database, reached by a peer; impacts take no time."""
    clock = SystemClock()
    plan = Plan(
        open_store(url),
        SimulatedDriver(clock, durations=AT_ONCE),
        clock,
        metadata=Place(LOOPBACK, 0),
        control=place,
        cluster=Cluster(open_lease(url, address, 1.0)),
        **more,
    )
    async with running(plan) as run:
        peer = Peer(f"http://{run.control}")
        try:
            yield run, peer
        finally:
            await peer.close()


@asynccontextmanager
async def deaf(*, hangs_up=True):
    """Somebody who listens and answers nothing; whether he hangs up at once, or in the end."""
    ending = asyncio.Event()

    async def listen(reader, writer):
        await reader.read(1)
        if not hangs_up:
            await ending.wait()
        writer.close()

    async with await asyncio.start_server(listen, LOOPBACK, 0) as server:
        yield f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        ending.set()


async def put(peer, *headers, **more):
    """Declare a fleet: the answer, and what it says in words."""
    body = json.dumps(FLEET).encode()
    answer = await peer.ask("PUT", "/v1/fleet", headers=headers, body=body, **more)
    return answer, json.loads(answer.body).get("detail", "")


def test_what_cannot_be_passed_on_is_told_honestly(postgres_url):
    """Nothing was done where that is known; where it is not, that is said too."""

    async def story():
        open_store(postgres_url).close()
        with closing(open_lease(postgres_url, NOWHERE, LONG_SECONDS)) as other:
            assert other.take(other.look()) == 1
            async with control_plane(postgres_url, "http://here") as (run, peer):
                await soon(lambda: run.conductor.leader is not None)
                health = json.loads((await peer.ask("GET", "/readyz")).body)
                assert health["ready"]
                assert (health["leading"], health["leader"]) == (False, NOWHERE)
                assert (await peer.ask("GET", "/v1/vms")).status == 200

                answer, said = await put(peer)
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
                assert f"at {NOWHERE} leads and cannot be reached. Nothing was done" in said
                _, said = await put(peer, (PASSED_ON, "1"))
                assert "passed on to one that does not lead. Nothing was done" in said

                # Less is known here than by the leader; where that does not answer, it will do.
                assert (await peer.ask("GET", "/v1/endpoints")).status == 200

                other.address = ""
                epoch = other.take(other.look())
                await soon(lambda: run.conductor.leader.epoch == epoch)
                health = await peer.ask("GET", "/readyz")
                assert (health.status, "no table [cluster]" in json.loads(health.body)["why"]) == (
                    503,
                    True,
                )
                _, said = await put(peer)
                assert "leads that have. Nothing was done. Try again later." in said

                async with deaf() as address:
                    other.address = address
                    assert other.take(other.look()) == 3
                    await soon(lambda: run.conductor.leader.address == address)
                    _, said = await put(peer)
                    assert "It may have been done: look before you repeat it" in said
                    _, said = await put(peer, ("Idempotency-Key", "k"))
                    assert "same Idempotency-Key, it is not done twice" in said

                async with deaf(hangs_up=False) as address:
                    other.address = address
                    assert other.take(other.look()) == 4
                    await soon(lambda: run.conductor.leader.address == address)
                    asked = asyncio.ensure_future(put(peer, seconds=60.0))
                    await asyncio.sleep(0.1)
                    other.resign()
                    answer, said = await asked
                    assert answer.status == 503
                    assert f"{address} leads and cannot be reached. It may have been done" in said
                await soon(lambda: run.conductor.leading)
                answer, _ = await put(peer)
                assert answer.status == 200
                assert int(answer.headers[REVISION]) == run.conductor.feed.revision
                text = (await peer.ask("GET", "/metrics")).body.decode()
                assert "fairnotice_leading 1\n" in text
                assert "fairnotice_epoch 5\n" in text

    asyncio.run(story())


def test_how_the_endpoints_are_is_asked_of_the_one_that_leads(postgres_url):
    """Each reports to it, through whichever control plane: so all of them say the same."""

    async def story():
        places = [Place(LOOPBACK, own_port()) for _ in range(2)]
        async with AsyncExitStack() as stack:
            runs, peers = [], []
            for place in places:
                member = control_plane(postgres_url, f"http://{place}", place)
                run, peer = await stack.enter_async_context(member)
                runs.append(run)
                peers.append(peer)
                await soon(lambda: runs[0].conductor.leading)
            await soon(lambda: runs[1].conductor.leader is not None)
            assert (await put(peers[1]))[0].status == 200
            joined = await peers[1].ask("POST", "/v1/endpoints/node-0/join", body=b"{}")
            assert joined.status == 200
            told = [
                json.loads((await peer.ask("GET", path)).body)
                for path in ("/v1/endpoints", "/v1/endpoints/node-0")
                for peer in peers
            ]
        assert told[0] == told[1]
        assert told[2] == told[3]
        assert told[3]["heard_at"] is not None

    asyncio.run(story())


def test_who_may_not_and_what_is_too_large_is_not_passed_on(postgres_url):
    """It is refused where it is asked, as the leader would, and the body is not waited for."""
    store = open_store(postgres_url)
    tokens = {role: kept(store, f"{role}-1", role) for role in ("reader", "operator", "admin")}
    store.close()

    async def story():
        with closing(open_lease(postgres_url, NOWHERE, LONG_SECONDS)) as other:
            assert other.take(other.look()) == 1
            async with control_plane(postgres_url, "http://here", auth=True) as (run, peer):
                await soon(lambda: run.conductor.leader is not None)

                async def ask(role, method, path, size):
                    headers = [("Authorization", f"Bearer {tokens[role]}")]
                    answer = await peer.ask(method, path, headers=headers, body=b" " * size)
                    return answer.status

                megabyte = 1024 * 1024
                assert await ask("reader", "POST", "/v1/vms/vm-0/restart", megabyte + 1) == 403
                assert await ask("operator", "POST", "/v1/tokens", 2) == 403
                assert await ask("operator", "POST", "/v1/vms/vm-0/restart", megabyte + 1) == 413
                assert await ask("operator", "POST", "/v1/nothing", megabyte + 1) == 404
                # These would have been: nobody is there to take them.
                assert await ask("operator", "POST", "/v1/vms/vm-0/restart", megabyte) == 503
                assert await ask("admin", "PUT", "/v1/fleet", megabyte + 1) == 503

    asyncio.run(story())


def test_two_of_the_same_address_are_told_apart(postgres_url, caplog):
    """Who copies a file of settings is told so by the one that follows, wherever he looks."""
    said = "the cluster.address of this one, http://same. Give each its own"

    async def story():
        open_store(postgres_url).close()
        former = open_lease(postgres_url, "http://same", LONG_SECONDS)
        assert former.take(former.look()) == 1
        async with control_plane(postgres_url, "http://same") as (one, peer):
            # Of a life of its own that was killed there is a lease too, which nobody renews.
            await soon(lambda: one.conductor.leader is not None)
            assert "no control plane leads at the moment" in (await put(peer))[1]
            former.resign()
            former.close()
            await soon(lambda: one.conductor.leading)
            async with control_plane(postgres_url, "http://same") as (two, second):
                await soon(lambda: two.conductor.leader and two.conductor.leader.namesake)
                health = await second.ask("GET", "/readyz")
                assert health.status == 503
                assert said in json.loads(health.body)["why"]
                answer, detail = await put(second)
                assert answer.status == 503
                assert said in detail
                assert one.health().ready

    asyncio.run(story())
    told = [record.message for record in caplog.records if said in record.message]
    assert [one.startswith("nothing can be passed on from here") for one in told] == [True]
