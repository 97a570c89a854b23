"""An endpoint with few descriptors, and a VM that opens connections without end.

`python -m tests.metadata.greedy SOFT HARD COUNT` allows itself so many descriptors and serves. A
process of its own opens so many connections from 127.0.0.3, says one letter on each, and then
polls from 127.0.0.2. What came of it is said: the status of that poll, how many connections there
are then, and how many descriptors the endpoint has allowed itself.
"""

import asyncio
import resource
import socket
import subprocess
import sys

import uvloop

from tests.metadata.sockets import ask, endpoint, last


def beset(count: int) -> None:
    """Told the port, open many connections, poll as another VM, and stay until told to go."""
    port = int(sys.stdin.readline())
    opened = []
    for _ in range(count):
        vm = socket.socket()
        vm.bind(("127.0.0.3", 0))
        vm.connect(("127.0.0.1", port))
        vm.send(b"G")
        opened.append(vm)

    async def poll() -> None:
        answer = await asyncio.wait_for(ask(port, last(), source="127.0.0.2"), 8)
        sys.stdout.write(f"{answer.status}\n")

    uvloop.run(poll())
    sys.stdout.flush()
    sys.stdin.readline()


async def story(crowd: subprocess.Popen[str]) -> None:
    """Serve, be beset, serve on."""
    async with endpoint() as served:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        crowd.stdin.write(f"{served.port}\n")
        crowd.stdin.flush()
        status = await asyncio.to_thread(crowd.stdout.readline)
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        sys.stdout.write(f"{status.strip()} {len(served.worker.connections)} {allowed}\n")
        crowd.stdin.write("go\n")
        crowd.stdin.flush()
        await asyncio.to_thread(crowd.wait)


def main(soft: int, hard: int, count: int) -> None:
    """The crowd first: it has as many descriptors as it needs."""
    line = [sys.executable, "-m", "tests.metadata.greedy", str(count)]
    with subprocess.Popen(  # noqa: S603 - our own line
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as crowd:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        uvloop.run(story(crowd))


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    if len(numbers) == 1:
        beset(*numbers)
    else:
        main(*numbers)
