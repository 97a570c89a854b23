"""Where a scenario is played: in a service of its own, thrown away afterwards, or in a running one.

The service of its own is the default, because it always works and disturbs nobody: the sample
fleet in memory, simulated machines that take about a second for what takes real ones minutes,
ports that are free.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from fairnotice.clock import Clock
from fairnotice.control.fleet_files import sample_fleet, specification
from fairnotice.control.running import LOOPBACK, Place, Plan, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import Durations
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.engine import DEV, Refusal, Timing
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.memory import MemoryStore

# An announced pause lasts as long as it was announced to, times the scale.
BRIEF = Durations(
    reboot=6.0, redeploy=8.0, delete=5.0, stop=5.0, start=5.0, deallocate=5.0, scale=0.2
)
# How long a scenario waits for something beyond its NotBefore. Real machines take their time.
PATIENCE_SECONDS = 30.0
PATIENCE_WITH_OTHERS_SECONDS = 1_800.0
ANSWER_SECONDS_MAX = 15.0

Driving = Callable[[Clock], SimulatedDriver]


class Answer(NamedTuple):
    """What an HTTP server said."""

    status: int
    body: bytes


class Site(NamedTuple):
    """A service that a scenario is played in."""

    control: Place
    metadata: Place
    # What it promises.
    timing: Timing = DEV
    patience_seconds: float = PATIENCE_SECONDS
    # Nobody else's: it is thrown away, and its machines can be looked at.
    machines: Callable[[], Mapping[str, Machine]] | None = None
    # Goes with every request to the control plane; empty where none is wanted.
    token: str = ""

    @property
    def own(self) -> bool:
        """Whether nobody needs it any more afterwards."""
        return self.machines is not None


def brief_driver(clock: Clock) -> SimulatedDriver:
    """Machines that are quick about everything."""
    return SimulatedDriver(clock, durations=BRIEF)


@asynccontextmanager
async def throw_away(
    clock: Clock,
    timing: Timing = DEV,
    *,
    kept: Timing | None = None,
    driving: Driving = brief_driver,
) -> AsyncIterator[Site]:
    """A service that promises this timing; a test may have it keep another, or drive badly."""
    driver = driving(clock)
    plan = Plan(
        MemoryStore(),
        driver,
        clock,
        timing=kept or timing,
        metadata=Place(LOOPBACK, 0),
        control=Place(LOOPBACK, 0),
    )
    async with running(plan) as run:
        applied = await run.service.apply_fleet(specification(sample_fleet()))
        assert not isinstance(applied, Refusal), applied
        for vm in run.service.vms():
            driver.declare(vm.name, vm.node, vm.power)
        yield Site(
            run.control,
            run.metadata,
            timing,
            machines=lambda: {machine.vm: machine for machine in driver.machines()},
        )


def running_site(
    control_url: str, metadata_url: str, timing: Timing = DEV, token: str = ""
) -> Site:
    """A service that runs already, by its two addresses."""
    control, metadata = place_of(control_url), place_of(metadata_url)
    return Site(control, metadata, timing, PATIENCE_WITH_OTHERS_SECONDS, token=token)


def place_of(url: str) -> Place:
    """Where this URL leads to; UsageError where it is none of ours."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise UsageError(f"{url} is no URL: {error}. Give http://HOST:PORT.") from error
    if parts.scheme != "http" or not host or parts.path.strip("/"):
        raise UsageError(f"{url} is no address of a service. Give http://HOST:PORT.")
    return Place(host, port)


async def exchange(
    place: Place,
    method: str,
    target: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] = {},
) -> Answer:
    """One request on a connection of its own, and its answer; Unavailable where there is none."""
    named = {
        **headers,
        "Host": str(place),
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(*place)
            try:
                writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
                received = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        why = str(error) or "no answer in time"
        raise Unavailable(f"Nobody answers at http://{place}: {why}.") from error
    return _answer(place, received)


def _answer(place: Place, received: bytes) -> Answer:
    head, separator, body = received.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if not separator or len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004, HTTP/1.1 200
        raise Unavailable(f"What answers at http://{place} does not speak HTTP.")
    return Answer(int(words[1]), body)
