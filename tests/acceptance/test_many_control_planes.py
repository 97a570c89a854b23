"""Two or three control planes on one PostgreSQL, as processes: whatever befalls the one that leads.

While somebody restarts VMs and approves, through whichever of them, the leader is killed, stopped,
or cut off from the database, or the database is restarted. Another leads, or the same one again;
nothing happens twice, and nothing is lost that was answered with success.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from random import Random
from urllib.parse import urlsplit

import psutil
import pytest

from fairnotice.clock import SystemClock
from fairnotice.control.peers import Peer
from fairnotice.drivers.driver import Order
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.model import Operation
from fairnotice.stores.opening import open_store
from fairnotice.words import ImpactKind
from tests.conductor.killing import LINES, VMS, Promises, hold_to_account
from tests.conductor.member import driver
from tests.conductor.requests import Visitor
from tests.conductor.victim import FLEET
from tests.relay import Relay
from tests.waiting import soon

# `make soak` repeats them.
ROUNDS = int(os.environ.get("TAKEOVER_ROUNDS", "1"))
SEED = int(os.environ.get("TAKEOVER_SEED", "1"))
LEADS_WITHIN_SECONDS = 10.0
LIMIT_SECONDS = 60
CLOCK = SystemClock()


class Member:
    """One control plane, in a process of its own."""

    def __init__(self, folder, relay, database, number):
        line = [sys.executable, "-m", "tests.conductor.member", str(folder)]
        self.line = [*line, relay.url(database), str(number)]
        self.relay = relay
        self.folder = folder
        self.said = (folder / f"said-{number}").open("ab+")

    async def start(self):
        """Begin a life; returns when it can be asked."""
        self.process = await asyncio.create_subprocess_exec(
            *self.line, stdout=asyncio.subprocess.PIPE, stderr=self.said
        )
        line = await asyncio.wait_for(self.process.stdout.readline(), LIMIT_SECONDS)
        assert line, f"it did not start: {self.last_words()}"
        ports = json.loads(line)
        self.visitor = Visitor(ports["metadata"])
        self.peer = Peer(f"http://127.0.0.1:{ports['control']}")

    def signal(self, which):
        """Send it a signal."""
        self.process.send_signal(which)

    async def ask(self, method, path, body=None, *, key=None, seconds=5.0):
        """Ask its API: status and document."""
        headers = [("Content-Type", "application/json")]
        headers += [("Idempotency-Key", key)] if key else []
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self.peer.ask(method, path, headers=headers, body=data, seconds=seconds)
        # A process that is ending may say nothing more.
        return answer.status, json.loads(answer.body or b"{}")

    async def standing(self):
        """What it says of itself; None while it cannot be asked."""
        with suppress(Unavailable):
            return (await self.ask("GET", "/readyz", seconds=0.5))[1]
        return None

    async def close(self, *, calmly=True):
        """End it: calmly, or by kill -9 as a machine ends."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM if calmly else signal.SIGKILL)
        await asyncio.wait_for(self.process.wait(), LIMIT_SECONDS)
        await self.peer.close()
        self.visitor.hang_up()

    def last_words(self):
        """What it has said on its standard error."""
        self.said.seek(0)
        return self.said.read().decode()[-3000:]


class Cloud:
    """All of them, and those who ask them."""

    def __init__(self, members, chance):
        self.members = members
        self.chance = chance
        self.promises = Promises()
        self.operations = set()
        self.tasks = []
        self.refusals = Counter()

    async def leader(self, beyond=0):
        """Whoever leads in an epoch beyond this one, and that epoch."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                for member in self.members:
                    said = await member.standing()
                    if said and said["leading"] and said["epoch"] > beyond:
                        return member, said["epoch"]
                await asyncio.sleep(0.02)

    async def begin(self):
        """Declare the fleet through one that does not lead, and have all its scopes listen."""
        leader, _ = await self.leader()
        other = next(member for member in self.members if member is not leader)
        fleet = {
            "node": [{"name": one.name, "fault_domain": one.fault_domain} for one in FLEET.nodes],
            "availability_set": [{"name": "web"}],
            "vm": [
                {"name": vm.name, "node": vm.node}
                | ({"availability_set": "web"} if vm.availability_set else {})
                for vm in FLEET.vms
            ],
        }
        status, said = await self.changed(other, "PUT", "/v1/fleet", fleet)
        assert status == 200, said
        # What was changed is to be seen at once, where it was asked for.
        assert (await other.ask("GET", "/v1/vms/web-5"))[0] == 200
        for vm in VMS:
            assert (await leader.visitor.get(vm)).status == 200
        work = [self.restart, self.restart, self.restart, self.approve, self.poll]
        self.tasks = [asyncio.ensure_future(one()) for one in work]

    async def changed(self, member, method, path, body):
        """Ask until somebody leads."""
        async with asyncio.timeout(LIMIT_SECONDS):
            answer = await member.ask(method, path, body)
            while answer[0] == 503:
                await asyncio.sleep(0.05)
                answer = await member.ask(method, path, body)
        return answer

    async def takes_commands(self):
        """Wait until one is carried out, whoever is asked."""
        async with asyncio.timeout(LIMIT_SECONDS):
            status = 503
            while status != 202:
                with suppress(Unavailable):
                    member = self.chance.choice(self.members)
                    path = "/v1/nodes/node-7/cordon"
                    status, _ = await member.ask("POST", path, {}, seconds=0.5)
                await asyncio.sleep(0.02)

    async def restart(self):
        """Restart one VM after another; what is not answered is repeated under its key."""
        while True:
            key, vm = f"{self.chance.getrandbits(64):x}", self.chance.choice(VMS)
            status = 503
            while status == 503:
                member = self.chance.choice(self.members)
                try:
                    path = f"/v1/vms/{vm}/restart"
                    status, said = await member.ask("POST", path, {}, key=key, seconds=2.0)
                except Unavailable:
                    await asyncio.sleep(0.05)
                    continue
                if status == 202:
                    self.operations |= set(said["operations"])
                    self.promises.accepted.add(said["id"])
                elif status == 503:
                    self.refusals[said["detail"].partition(":")[0]] += 1
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.02)

    async def approve(self):
        """Approve some of what is announced, as whoever follows shows it."""
        while True:
            await asyncio.sleep(0.02)
            with suppress(Unavailable):
                member = self.chance.choice(self.members)
                _, said = await member.ask("GET", "/v1/events?status=Scheduled", seconds=2.0)
                for event in said.get("items", ())[:3]:
                    path = f"/v1/events/{event['id']}/approve"
                    status, _ = await member.ask("POST", path, {}, seconds=2.0)
                    if status == 202:
                        self.promises.approved[event["id"]] = CLOCK.wall()

    async def poll(self):
        """Read documents, whoever serves them: one process never goes back."""
        latest = {}
        while True:
            await asyncio.sleep(0.01)
            number = self.chance.randrange(len(self.members))
            member, vm = self.members[number], self.chance.choice(("web-0", "db-0"))
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    status, _, document = await member.visitor.get(vm)
                if status != 200:
                    continue
                incarnation = document["DocumentIncarnation"]
                # A new life of a process has a port of its own.
                place = vm, member.visitor.port
                assert incarnation >= latest.get(place, 0)
                latest[place] = incarnation
                scope = "availability-set:web" if vm == "web-0" else "vm:db-0"
                told = self.promises.incarnations
                told[scope] = max(told.get(scope, 0), incarnation)
                self.promises.polls += 1

    async def end(self):
        """Nobody asks any more; what is under way ends."""
        for task in self.tasks:
            task.cancel()
        for error in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(error, AssertionError):
                raise error
        leader, _ = await self.leader()
        async with asyncio.timeout(LIMIT_SECONDS):
            live = True
            while live:
                await asyncio.sleep(0.1)
                live = await self._live(leader)

    async def _live(self, leader):
        found, after = [], ""
        while after is not None:
            _, said = await leader.ask("GET", f"/v1/operations?limit=1000&after={after}")
            found += said["items"]
            after = said["next"]
        return [one for one in found if one["status"] in ("Pending", "Started", "Scheduled")]

    async def one_leads(self):
        """All of them can be asked, and say of the same one that it leads."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                said = [await member.standing() for member in self.members]
                if all(said) and all(one["ready"] for one in said):
                    leaders = {(one["leader"], one["epoch"]) for one in said}
                    if len(leaders) == 1 and sum(one["leading"] for one in said) == 1:
                        return
                await asyncio.sleep(0.05)

    async def all_level(self):
        """All of them show the same, and one of them leads."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                said = [await member.standing() for member in self.members]
                if all(said) and all(one["ready"] for one in said):
                    leading = [one for one in said if one["leading"]]
                    if len(leading) == 1 and len({one["revision"] for one in said}) == 1:
                        assert {one["leader"] for one in said} == {leading[0]["leader"]}
                        return
                await asyncio.sleep(0.05)


# ---- What befalls the leader, and how it is undone ----


class Killed:
    """Its process ends at once; a new one is started later."""

    async def befall(self, leader, _):
        await leader.close(calmly=False)

    async def undo(self, leader, _):
        await leader.start()


class Stopped:
    """It is stopped just before it orders an impact, and later goes on as if nothing had been."""

    async def befall(self, leader, _):
        (leader.folder / "stop").touch()
        process = psutil.Process(leader.process.pid)
        await soon(lambda: process.status() == psutil.STATUS_STOPPED)
        self.epoch = max(epochs_of(leader.folder), default=0)

    async def undo(self, leader, _):
        # Where impacts happen it is known by then that another leads.
        await soon(lambda: max(epochs_of(leader.folder), default=0) > self.epoch)
        leader.signal(signal.SIGCONT)


def epochs_of(folder):
    """In which epochs impacts were ordered."""
    file = folder / "epochs"
    return {int(epoch) for epoch in file.read_text().split()} if file.exists() else set()


class CutOff:
    """Nothing comes through to the database, and later everything that was sent does."""

    async def befall(self, leader, _):
        leader.relay.cut()

    async def undo(self, leader, _):
        leader.relay.mend()


class DatabaseRestarted:
    """The database ends by kill -9 and is started anew."""

    async def befall(self, _, server):
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    async def undo(self, *_):
        """It is back already."""


async def befallen(folder, server, url, trouble, *, chance, count):
    """A cloud of so many whose leader meets with this, and is what it was before afterwards."""
    async with AsyncExitStack() as stack:
        members = []
        for number in range(count):
            relay = await stack.enter_async_context(Relay(server.folder / ".s.PGSQL.5432"))
            members.append(Member(folder, relay, urlsplit(url).path[1:], number))
            stack.callback(members[-1].said.close)
        cloud = Cloud(members, chance)
        try:
            await asyncio.gather(*(member.start() for member in members))
            for member in members:
                stack.push_async_callback(member.close)
            await cloud.begin()
            for _ in range(ROUNDS):
                await asyncio.sleep(chance.uniform(0.5, 1.0))
                leader, epoch = await cloud.leader()
                await trouble.befall(leader, server)
                # From here on: a database may take long to come back by itself.
                began = CLOCK.monotonic()
                await cloud.takes_commands()
                took = CLOCK.monotonic() - began
                assert took < LEADS_WITHIN_SECONDS, f"nobody led for {took:.1f} s"
                if not isinstance(trouble, DatabaseRestarted):
                    await cloud.leader(beyond=epoch)
                await asyncio.sleep(chance.uniform(0.3, 0.6))
                await trouble.undo(leader, server)
                await cloud.one_leads()
            await cloud.end()
            await cloud.all_level()
        except BaseException as error:
            for member in members:
                error.add_note(member.last_words())
            raise
        return cloud


@pytest.mark.parametrize(
    ("trouble", "count"), [(Killed, 2), (Stopped, 3), (CutOff, 3), (DatabaseRestarted, 2)]
)
def test_another_leads_and_nothing_is_lost_or_done_twice(
    tmp_path, postgres_server, postgres_url, trouble, count
):
    """Whatever befalls the leader: within ten seconds there is one, and it knows everything."""
    chance = Random(SEED)
    work = befallen(tmp_path, postgres_server, postgres_url, trouble(), chance=chance, count=count)
    cloud = asyncio.run(work)
    assert cloud.promises.accepted
    assert cloud.promises.approved
    assert cloud.promises.polls > 10
    hold_to_account(tmp_path, postgres_url, "answers", cloud.promises)
    store = open_store(postgres_url)
    lines = store.changes_after(0, LINES)
    store.close()
    known = {line.change.row.id for line in lines if isinstance(line.change.row, Operation)}
    assert cloud.operations <= known
    if trouble is not DatabaseRestarted:
        epochs = epochs_of(tmp_path)
        assert len(epochs) > 1, "only one leader had anything done: nothing was proved"
        with pytest.raises(LeadLost):
            asyncio.run(driver_call(tmp_path, epoch=min(epochs)))
        assert (tmp_path / "ledger").read_text().count("stale") == 0
    if trouble is Stopped:
        # What the stale leader itself ordered when it went on.
        late = [line.split() for line in (tmp_path / "late").read_text().splitlines()]
        assert [said for _, said in late] == ["LeadLost"] * ROUNDS


async def driver_call(folder, epoch):
    """What a leader of this epoch would have done to a VM that nobody has asked for."""
    order = Order("stale/db-0", "db-0", ImpactKind.REBOOT, "node-0", None, None, 0.0, 60.0)
    hands = driver(folder)
    try:
        await hands.impact(order, epoch)
    finally:
        await hands.close()
