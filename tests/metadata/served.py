"""An endpoint in a process of its own, for tests that put it into a network namespace.

`python -m tests.metadata.served 169.254.169.254 80 web-0=10.77.0.2 db=10.78.0.2` listens there,
announces a restart of each of these VMs, says "ready", and ends when its standard input does.
"""

import asyncio
import sys

import uvloop

from fairnotice.metadata.identity import Door
from fairnotice.metadata.server import Server
from tests.metadata.wireless import LiveStory, served_sample


async def serve(host: str, port: int, addresses: dict[str, tuple[str, ...]]) -> None:
    """Serve the sample fleet, some of its VMs at these addresses."""
    spec = served_sample()
    vms = (vm._replace(addresses=addresses.get(vm.name, vm.addresses)) for vm in spec.vms)
    stage = LiveStory(spec._replace(vms=tuple(vms)))
    for vm in addresses:
        stage.restart_vm(vm)
    server = Server(stage.worker())
    server.listen(host, port, Door())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    _, where, number, *pairs = sys.argv
    split = (pair.split("=", 1) for pair in pairs)
    uvloop.run(serve(where, int(number), {vm: (address,) for vm, address in split}))
