"""A control plane to follow: `python -m bench.nodes_process --nodes 500 --vms-per-node 10`.

One line of JSON says where it listens. Nothing is remembered, so that only the feed is measured.
"""

import argparse
import asyncio
import json

import uvloop

from bench.endpoint_process import address_of
from fairnotice.clock import SystemClock
from fairnotice.control.running import Place, Plan, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine.specs import FleetSpec, NodeSpec, VmSpec
from fairnotice.stores.memory import MemoryStore

ANYWHERE = Place("127.0.0.1", 0)


def fleet(nodes: int, vms_per_node: int) -> FleetSpec:
    """So many nodes, and VMs that stand alone: each has a scope of its own, which is the most."""
    return FleetSpec(
        nodes=tuple(NodeSpec(f"node-{n}", n % 3, vms_per_node) for n in range(nodes)),
        vms=tuple(
            VmSpec(f"vm-{n:06}", f"node-{n // vms_per_node}", addresses=(address_of(n),))
            for n in range(nodes * vms_per_node)
        ),
    )


async def serve(nodes: int, vms_per_node: int) -> None:
    """Serve until the process is ended."""
    clock = SystemClock()
    driver = SimulatedDriver(clock, durations=AT_ONCE)
    async with running(
        Plan(MemoryStore(), driver, clock, metadata=ANYWHERE, control=ANYWHERE)
    ) as r:
        await r.service.apply_fleet(fleet(nodes, vms_per_node))
        print(json.dumps({"port": r.control.port}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--vms-per-node", type=int, required=True)
    options = parser.parse_args()
    uvloop.run(serve(options.nodes, options.vms_per_node))


if __name__ == "__main__":
    main()
