"""A whole service in a process of its own, for tests that kill it.

`python -m tests.conductor.victim FOLDER STORE_URL answers|cannot|careless` serves metadata on a
free port and takes commands on a Unix socket, one JSON line each, answered when durable:

    {"do": "restart", "id": "r1", "vms": ["web-0"]}      ->   {"id": "r1", "accepted": true}
    {"do": "count"}                                      ->   {"live": ["r1"]}

It says its port when it is ready, and ends when it is killed. Each impact adds its key to
FOLDER/ledger, which no process of ours ever holds open.
"""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

import uvloop

from fairnotice.clock import SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.serving import Serving
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.command.settings import CommandSettings
from fairnotice.engine import DEV, Decision
from fairnotice.engine.commands import ApplyFleet, NodeOperation, Redeploy, Restart
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.metadata.identity import Door
from fairnotice.metadata.server import Server
from fairnotice.model import Requester
from fairnotice.stores.opening import open_store
from fairnotice.words import EventType, ImpactKind, OperationKind, Role

# So short that in the second of a life everything happens: announced, approved or not, over.
TIMING = replace(
    DEV,
    notice_seconds=dict.fromkeys(EventType, 1),
    recovery_seconds=0,
    user_operations_max=10_000,
)
FLEET = FleetSpec(
    nodes=tuple(NodeSpec(f"node-{n}", fault_domain=n % 3) for n in range(8)),
    availability_sets=(SetSpec("web"),),
    vms=(
        *(VmSpec(f"web-{n}", f"node-{n % 6}", availability_set="web") for n in range(6)),
        *(VmSpec(f"db-{n}", f"node-{n}") for n in range(6)),
    ),
)
USER = Requester("ada", Role.USER)
OPERATOR = Requester("olga", Role.OPERATOR)

COMMANDS = {
    "restart": lambda asked: Restart(id=asked["id"], by=USER, vms=tuple(asked["vms"])),
    "redeploy": lambda asked: Redeploy(id=asked["id"], by=USER, vms=tuple(asked["vms"])),
    "maintain": lambda asked: NodeOperation(
        id=asked["id"], by=OPERATOR, node=asked["node"], kind=OperationKind.HOST_REBOOT
    ),
}


class Careless(Conductor):
    """Answers first and makes it durable a little later: the proof has to find it out."""

    async def _commit(self, changes):
        epoch, after = self.epoch, self.fleet.revision

        def late():
            Event().wait(0.05)
            self._store.commit(epoch, after, changes)

        if changes:
            self._in_store(late)


def driver(folder, mode):
    """The operator's command writes the key down, takes a moment, and is done."""
    deed = ("sh", "-c", 'echo "$FAIRNOTICE_KEY" >>"$0"; sleep 0.05', str(folder / "ledger"))
    settings = CommandSettings(
        commands=dict.fromkeys(ImpactKind, deed),
        state_directory=None if mode == "cannot" else folder / "state",
    )
    return CommandDriver(settings, SystemClock())


async def take_commands(conductor, reader, writer):
    """Answer each line when what it asks for is durable, or refused."""
    async for line in reader:
        asked = json.loads(line)
        if asked["do"] == "count":
            operations = conductor.fleet.operations.values()
            answer = {"live": [one.id for one in operations if one.live]}
        else:
            decision = await conductor.submit(COMMANDS[asked["do"]](asked))
            answer = {"id": asked["id"], "accepted": isinstance(decision, Decision)}
        writer.write(json.dumps(answer).encode() + b"\n")


async def live(folder, url, mode):
    """Serve until killed."""
    clock = SystemClock()
    conducting = Careless if mode == "careless" else Conductor
    conductor = conducting(open_store(url), driver(folder, mode), clock, TIMING)
    serving = Serving(conductor, clock)
    await conductor.start()
    if not conductor.fleet.vms:
        await conductor.submit(ApplyFleet(spec=FLEET))
    listener = Server(serving.worker(rate_limit=None)).listen(
        "127.0.0.1", 0, Door(prefix_allowed=True)
    )
    path = str(folder / "commands.sock")
    Path(path).unlink(missing_ok=True)  # noqa: ASYNC240 - before anything is served
    taking = await asyncio.start_unix_server(lambda *ends: take_commands(conductor, *ends), path)
    async with taking:
        sys.stdout.write(f"{listener.port}\n")
        sys.stdout.flush()
        await serving.reporting()


if __name__ == "__main__":
    _, where, store_url, behaviour = sys.argv
    uvloop.run(live(Path(where), store_url, behaviour))
