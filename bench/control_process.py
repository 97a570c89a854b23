"""One of several control planes, with its API: `python -m bench.control_process --store URL …`.

What it says and which commands it takes on its Unix socket is as in bench/service_process.py.
"""

import argparse
import asyncio
import json
from pathlib import Path

import uvloop

from bench.fleets import LISTENING
from bench.service_process import LEASE_SECONDS, Clerk
from fairnotice.clock import SystemClock
from fairnotice.control.passing_on import Cluster
from fairnotice.control.running import LOOPBACK, Place, Plan, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.stores.opening import open_lease, open_store


async def serve(url: str, port: int, socket_path: str) -> None:
    """Serve until the process is ended."""
    clock = SystemClock()
    plan = Plan(
        open_store(url),
        SimulatedDriver(clock, durations=AT_ONCE),
        clock,
        timing=LISTENING,
        metadata=None,
        control=Place(LOOPBACK, port),
        cluster=Cluster(open_lease(url, f"http://{LOOPBACK}:{port}", LEASE_SECONDS)),
    )
    async with running(plan) as run:
        clerk = Clerk(run.conductor)
        async with await asyncio.start_unix_server(clerk.take_commands, socket_path):
            print(json.dumps({"port": port}), flush=True)
            await asyncio.Event().wait()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.control_process", description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--socket", required=True)
    options = parser.parse_args()
    Path(options.socket).unlink(missing_ok=True)
    uvloop.run(serve(options.store, options.port, options.socket))


if __name__ == "__main__":
    main()
