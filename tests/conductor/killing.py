"""Lives with a service, kills it again and again, and remembers what it was promised."""

import asyncio
import json
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import psutil

from fairnotice.clock import SystemClock
from fairnotice.engine import Fleet
from fairnotice.engine.changes import ImpactBegun, ImpactEnded
from fairnotice.engine.invariants import check, check_indexes
from fairnotice.model import Event, Request
from fairnotice.stores.opening import open_store
from fairnotice.words import ImpactStatus
from tests.conductor.requests import Visitor
from tests.conductor.victim import FLEET, TIMING

VMS = tuple(vm.name for vm in FLEET.vms)
NODES = tuple(node.name for node in FLEET.nodes)
START_LIMIT_SECONDS = 30
QUIET_LIMIT_SECONDS = 60
LINES = 10_000_000
CLOCK = SystemClock()


class Promises:
    """What the service has said while it lived."""

    def __init__(self):
        # Commands answered with success; events whose approval was answered 200, and when.
        self.accepted = set()
        self.approved = {}
        # Per scope the highest DocumentIncarnation that was served.
        self.incarnations = {}
        self.polls = 0


class Clients:
    """Those who talk to one life of the service, until it is killed."""

    def __init__(self, socket_path, promises, chance):
        self.visitor = Visitor(0)
        self.socket_path = socket_path
        self.promises = promises
        self.chance = chance
        self.writers = []
        self.tasks = []

    async def commands(self):
        """A connection that takes commands."""
        reader, writer = await asyncio.open_unix_connection(self.socket_path)
        self.writers.append(writer)
        return reader, writer

    async def ask(self, number):
        """Ask for one thing after another."""
        reader, writer = await self.commands()
        while True:
            number += 1
            name = f"{self.chance.getrandbits(48):x}-{number}"
            what = self.chance.choice(("restart", "restart", "redeploy", "maintain"))
            vms = self.chance.sample(VMS, self.chance.choice((1, 1, 2)))
            asked = {"do": what, "id": name, "vms": vms, "node": self.chance.choice(NODES)}
            writer.write(json.dumps(asked).encode() + b"\n")
            line = await reader.readline()
            if not line:
                return
            if json.loads(line)["accepted"]:
                self.promises.accepted.add(name)

    async def poll(self, vm):
        """Read the document again and again, and approve some of what it announces."""
        promises = self.promises
        scope = "availability-set:web" if vm.startswith("web") else f"vm:{vm}"
        while True:
            before = promises.incarnations.get(scope, 0)
            status, _, document = await self.visitor.get(vm)
            assert status == 200, status
            incarnation = document["DocumentIncarnation"]
            assert incarnation >= before, f"{scope} went back from {before} to {incarnation}"
            # Another VM of the scope may have been told of a later one meanwhile.
            promises.incarnations[scope] = max(promises.incarnations.get(scope, 0), incarnation)
            promises.polls += 1
            ids = [event["EventId"] for event in document["Events"] if self.chance.random() < 0.5]
            if ids:
                answer = await self.visitor.approve(vm, *ids[:100])
                # 400: one of them was forgotten meanwhile.
                if answer.status == 200:
                    promises.approved |= dict.fromkeys(ids[:100], CLOCK.wall())
            await asyncio.sleep(0.01)

    async def live(self, seconds):
        """All at once, for so long."""
        work = [self.ask(n) for n in range(3)]
        work += [self.poll(vm) for vm in ("web-0", "web-5", "db-0", "db-3")]
        self.tasks = [asyncio.ensure_future(one) for one in work]
        await asyncio.sleep(seconds)
        # What goes wrong for a client while the service lives is a finding.
        for task in self.tasks:
            if task.done():
                task.result()

    async def end(self):
        """Stop, hang up, and say what was found."""
        for task in self.tasks:
            task.cancel()
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        self.visitor.hang_up()
        for writer in self.writers:
            writer.close()
        for error in ended:
            if isinstance(error, AssertionError):
                raise error


class Life:
    """One life of the service."""

    def __init__(self, folder, url, mode):
        self.line = [sys.executable, "-m", "tests.conductor.victim", str(folder), url, mode]
        self.said = (folder / "said").open("ab+")

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            *self.line, stdout=asyncio.subprocess.PIPE, stderr=self.said
        )
        port = await asyncio.wait_for(self.process.stdout.readline(), START_LIMIT_SECONDS)
        assert port, f"the service did not start: {self.last_words()}"
        self.port = int(port)
        return self

    async def __aexit__(self, _, error, __):
        if error is not None:
            error.add_note(f"{psutil.Process(self.process.pid)}: {self.last_words()}")
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self.said.close()

    def last_words(self):
        """What it has said on its standard error."""
        self.said.seek(0)
        return self.said.read().decode()[-2000:]


async def kill_again_and_again(folder, url, mode, times, seed):
    """So many lives, each killed at a random moment; then one that ends in peace."""
    chance, promises = Random(seed), Promises()
    for _ in range(times):
        async with one_life(folder, url, mode, promises, chance) as clients:
            await clients.live(chance.uniform(0.02, 0.5))
    async with one_life(folder, url, mode, promises, chance) as clients:
        await quiet(clients)
    return promises


@asynccontextmanager
async def one_life(folder, url, mode, promises, chance):
    """A life of the service and its clients; it is killed while they are talking to it."""
    clients = Clients(str(folder / "commands.sock"), promises, chance)
    try:
        async with Life(folder, url, mode) as life:
            clients.visitor = Visitor(life.port)
            yield clients
    finally:
        await clients.end()


async def quiet(clients):
    """Wait until nothing is announced or under way any more."""
    reader, writer = await clients.commands()
    for _ in range(QUIET_LIMIT_SECONDS * 10):
        writer.write(b'{"do": "count"}\n')
        live = json.loads(await reader.readline())["live"]
        if not live:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"never quiet: {live}")


def hold_to_account(folder, url, mode, promises):
    """Everything that was promised is there, and nothing happened twice."""
    store = open_store(url)
    try:
        loaded = store.load()
        fleet = Fleet.load(loaded.rows, TIMING, loaded.revision, loaded.recorded_at)
        changes = [line.change for line in store.changes_after(0, LINES)]
    finally:
        store.close()
    assert not [*check(fleet), *check_indexes(fleet)]
    rows = [change.row for change in changes]
    requests = {row.id for row in rows if isinstance(row, Request)}
    assert promises.accepted <= requests
    events = {}
    for row in rows:
        if isinstance(row, Event):
            events[row.id] = row
    for name, answered_at in promises.approved.items():
        event = events[name]
        # Approving what has started or is gone is fine and changes nothing (rule 3).
        moments = (event.approval and event.approval.at, event.started_at, event.gone_at)
        assert any(moment and moment <= answered_at for moment in moments), event
    for scope, incarnation in promises.incarnations.items():
        assert fleet.scopes[scope].incarnation >= incarnation
    happened_once(folder, mode, changes)


def happened_once(folder, mode, changes):
    """The ledger against the journal."""
    ledger = Counter(Path(folder / "ledger").read_text().split())
    begun = {change.row.key for change in changes if isinstance(change, ImpactBegun)}
    ended = {change.row.key: change.row for change in changes if isinstance(change, ImpactEnded)}
    assert set(ledger) <= begun, "something happened that was never intended"
    twice = [key for key, times in ledger.items() if times > 1]
    assert not twice, f"happened twice: {twice}"
    done = {key for key, impact in ended.items() if impact.status is ImpactStatus.DONE}
    assert done <= set(ledger), "something is said to be done that never happened"
    if mode == "answers":
        assert begun == done == set(ledger), _difference(begun, done, set(ledger), ended)


def _difference(begun, done, ledger, ended):
    odd = (begun | done | ledger) - (begun & done & ledger)
    return [(key, key in begun, key in done, key in ledger, ended.get(key)) for key in odd]
