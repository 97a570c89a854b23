"""Draws docs/pictures/event-watch.svg from a real service (`make picture`)."""

import asyncio
import io
import re
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console

from fairnotice.cli.watch import View
from fairnotice.clock import SystemClock
from fairnotice.control.bodies import Maintain
from fairnotice.control.feeding import feed_lines
from fairnotice.control.fleet_body import specification
from fairnotice.control.fleet_files import sample_fleet
from fairnotice.control.running import Place, Plan, Running, running
from fairnotice.control.service import Who
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.model import Requester
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import Role

PAGE = Path(__file__).parent.parent / "docs" / "pictures" / "event-watch.svg"
COLUMNS = 100
ANYWHERE = Place("127.0.0.1", 0)
OPERATOR = Who(Requester("olga", Role.OPERATOR))
# rich names fonts on the network, and itself; a picture needs neither.
EXTRAS = re.compile(r"@font-face \{.*?\}\s*|<!-- Generated .*? -->\s*", re.DOTALL)


async def main() -> None:
    """Let things happen to the sample fleet, and draw what `event watch` shows of it."""
    clock = SystemClock()
    plan = Plan(MemoryStore(), SimulatedDriver(clock), clock, metadata=ANYWHERE, control=ANYWHERE)
    async with running(plan) as run:
        await run.service.apply_fleet(specification(sample_fleet()))
        await happen(run, clock)
        view = View("http://127.0.0.1:8600", None)
        view.take([msgspec.to_builtins(line) async for line in so_far(run)])
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
        console.print(view.picture(clock.wall()))
    PAGE.parent.mkdir(exist_ok=True)
    drawn = console.export_svg(title="fairnotice event watch")
    PAGE.write_text(EXTRAS.sub("", drawn), encoding="utf-8")


async def happen(run: Running, clock: SystemClock) -> None:
    """Some VMs look, some do not; one approves."""
    for vm in ("web-0", "db", "FrontEnd_IN_0", "spot_0"):
        await look(run, vm)
    service = run.service
    await service.on_node("freeze", "node-3", OPERATOR, Maintain(duration_seconds=9))
    await clock.sleep(3)
    await service.on_vms("redeploy", ("db",), OPERATOR)
    await service.on_vms("restart", ("web-0",), OPERATOR)
    await asyncio.gather(*(look(run, vm) for vm in ("FrontEnd_IN_0", "db", "web-0")))
    await clock.sleep(2)
    (event,) = run.service.fleet.events_in_scope["vm:db"]
    assert run.serving is not None
    await run.serving.approve("db", (event,))
    await clock.sleep(3)


async def look(run: Running, vm: str) -> None:
    """The VM reads its document."""

    def get() -> None:
        connection = HTTPConnection(*run.metadata)
        target = f"/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
        connection.request("GET", target, headers={"Metadata": "true"})
        connection.getresponse().read()
        connection.close()

    await asyncio.to_thread(get)


async def so_far(run: Running):  # type: ignore[no-untyped-def]  # noqa: ANN201 - an iterator of lines
    """Every line until now."""
    async for line in feed_lines(run.conductor.feed, 0):
        yield line
        if line.revision >= run.conductor.feed.revision:
            return


if __name__ == "__main__":
    uvloop.run(main())
