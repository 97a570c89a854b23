"""A metadata endpoint on this machine, with one VM that is restarted again and again.

.venv/bin/python examples/endpoint.py

It serves http://127.0.0.1:8169/vm/db/metadata/... until Ctrl-C. Ask as db, and a few seconds later
a reboot is announced, with 15 s of notice; approve it or wait. Nothing is stored, and the machine
is simulated.
"""

import asyncio
import contextlib
import sys

import uvloop

from fairnotice.clock import SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.serving import Serving
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.engine import DEV
from fairnotice.engine.commands import ApplyFleet, Restart
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.metadata.identity import Door
from fairnotice.metadata.server import Server
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import Role

FLEET = FleetSpec(nodes=(NodeSpec("node-0"),), vms=(VmSpec("db", "node-0"),))
REST_SECONDS = 5.0


async def serve(port: int) -> None:
    """Serve one VM, and restart it whenever it has had its rest."""
    clock = SystemClock()
    conductor = Conductor(MemoryStore(), SimulatedDriver(clock), clock, DEV)
    serving = Serving(conductor, clock)
    await conductor.start()
    await conductor.submit(ApplyFleet(spec=FLEET))
    server = Server(serving.worker())
    listener = server.listen("127.0.0.1", port, Door(prefix_allowed=True))
    print(f"serving http://127.0.0.1:{listener.port}/vm/db/metadata/scheduledevents", flush=True)
    reporting = asyncio.create_task(serving.reporting())
    try:
        await restart_again_and_again(conductor, clock)
    finally:
        reporting.cancel()
        server.close()
        await conductor.close()


async def restart_again_and_again(conductor: Conductor, clock: SystemClock) -> None:
    """As soon as db listens and nothing is announced, announce a restart."""
    ada = Requester("ada", Role.USER)
    number = 0
    while True:
        await clock.sleep(REST_SECONDS)
        listening = conductor.fleet.scopes["vm:db"].enabled
        if listening and "vm:db" not in conductor.fleet.events_in_scope:
            number += 1
            await conductor.submit(Restart(id=f"restart-{number}", by=ada, vms=("db",)))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8169))
