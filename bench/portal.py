"""What the portal costs whoever looks: in a real browser, with 2,000 VMs and 200 live events.

The service runs in this process, on one core like everything else here; the browser is Debian's
Chromium. What is committed is stamped when it is, and the page stamps when it has drawn it.
"""

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import msgspec

from bench.numbers import LeftOut, Number
from fairnotice.clock import SystemClock
from fairnotice.control.fleet_body import FleetBody, specification
from fairnotice.control.fleet_files import read_tables
from fairnotice.control.running import Place, Plan, Running, running
from fairnotice.control.service import Who
from fairnotice.control.shapes import Accepted
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.engine import AZURE, Fleet, Refusal
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Heard, ReportServed
from fairnotice.model import Event, Requester
from fairnotice.portal.portal import portal
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import Role

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NODES, VMS_PER_NODE, VMS_PER_SET = 125, 16, 10
FEW, EVENTS = 5, 200
PATIENCE_SECONDS = 60
WHO = Who(Requester("operator", Role.OPERATOR))
ANYWHERE = Place("127.0.0.1", 0)
# When the row of an event is on the screen: after the frame that was drawn with it.
STAMP = """() => {
  window.drawn = {};
  new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
    const now = Date.now();
    for (const row of document.querySelectorAll('#events > tr')) window.drawn[row.id] ??= now;
  }))).observe(document.getElementById('events'), {childList: true});
}"""
UPDATES = "performance.getEntriesByName('update').map(one => one.duration)"
# Nobody looks, and then somebody does who has nothing of what there is.
AFRESH = """() => {
  const look = (hidden) => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
  };
  look(true);
  performance.clearMeasures('update');
  document.body.dataset.revision = '-1';
  look(false);
}"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SENT = """['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type))
  .filter(one => !one.name.includes('/live')).reduce((sum, one) => sum + one.transferSize, 0)"""


# From which number of VM to which.
Announce = Callable[[int, int], None]


class Stamps:
    """When each event was committed."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self.at: dict[str, float] = {}

    def loaded(self, fleet: Fleet) -> None:
        """Nothing is new in a fleet that was loaded."""

    def committed(self, _: Fleet, changes: Sequence[Change[Any]]) -> None:
        """Stamp the events among these."""
        now = self._clock.wall().timestamp() * 1e3
        for change in changes:
            if isinstance(change.row, Event):
                self.at.setdefault(f"event:{change.row.id}", now)


def measure(*, rounds: int, updates: int) -> Iterator[Number | LeftOut]:
    """What a page costs at first, and what it costs to stay."""
    chromium = shutil.which("chromium")
    if chromium is None:
        yield LeftOut("the portal", "chromium is not installed: scripts/test-tools")
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where there is a browser

    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with _service() as (run, stamps, announce), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        yield from _first_pages(browser, run, rounds, "/", name="first useful paint", at_most=300)
        announce(FEW, EVENTS)
        # The requirement is of what an operator opens on a usual day; these are without a limit.
        yield from _first_pages(browser, run, rounds, "/", name="the same with 200 events")
        yield from _first_pages(browser, run, rounds, "/fleet", name="Fleet with 200 events")
        yield from _updates(browser, run, stamps, updates)
        yield from _wholes(browser, run, rounds)
        browser.close()


def _first_pages(
    browser: "Browser",
    run: Running,
    rounds: int,
    path: str,
    *,
    name: str,
    at_most: float | None = None,
) -> Iterator[Number]:
    paints, sent = [], []
    for _ in range(rounds + 1):
        # A window of its own has nothing from before.
        window = browser.new_context(bypass_csp=True)
        page = window.new_page()
        page.goto(f"http://{run.control}{path}")
        page.wait_for_function(PAINT)
        paints.append(float(page.evaluate(PAINT)))
        sent.append(float(page.evaluate(SENT)) / 1e3)
        window.close()
    # The first one is the browser's own start.
    yield Number(name=f"portal: {name}", values=paints[1:], unit="ms", at_most=at_most)
    yield Number(name="portal: its transfer", values=sent[1:], unit="KB", at_most=150)


def _updates(browser: "Browser", run: Running, stamps: Stamps, updates: int) -> Iterator[Number]:
    now = _opened(browser, run, "/")
    now.evaluate(STAMP)
    fleet = _opened(browser, run, "/fleet")
    visible = []
    for number in range(updates):
        row = f"event:{_restart(run, number)}"
        now.wait_for_function("row => row in window.drawn", arg=row)
        visible.append(float(now.evaluate("row => window.drawn[row]", row)) - stamps.at[row])
    yield Number(name="portal: visible after the commit", values=visible, unit="ms", at_most=500)
    for page, name in ((now, "Now"), (fleet, "Fleet")):
        took = [float(one) for one in page.evaluate(UPDATES)]
        yield Number(
            name=f"portal: scripting per update, {name}", values=took, unit="ms", at_most=50
        )
        yield Number(name=f"portal: the longest of them, {name}", values=[max(took)], unit="ms")


def _wholes(browser: "Browser", run: Running, rounds: int) -> Iterator[Number]:
    """What a page is sent after a restart of the service: all of it, in one message."""
    for path, name in (("/", "Now"), ("/fleet", "Fleet")):
        page = _opened(browser, run, path)
        took = []
        for _ in range(rounds):
            page.evaluate(AFRESH)
            page.wait_for_function(f"{UPDATES}.length > 0")
            took.append(float(page.evaluate(UPDATES)[0]))
        yield Number(name=f"portal: scripting of a whole page, {name}", values=took, unit="ms")
        page.close()


def _opened(browser: "Browser", run: Running, path: str) -> "Page":
    # What is waited for is evaluated in the page, which its policy forbids.
    page = browser.new_page(bypass_csp=True)
    page.goto(f"http://{run.control}{path}")
    page.wait_for_selector("#connection[data-is=live]")
    return page


# ---- The service ----


@contextlib.contextmanager
def _service() -> Iterator[tuple[Running, Stamps, Announce]]:
    """A service in a thread, in which all scopes listen; and what announces more events."""
    there: list[tuple[Running, asyncio.AbstractEventLoop, Stamps]] = []
    up, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        clock = SystemClock()
        store, driver = MemoryStore(), SimulatedDriver(clock)
        plan = Plan(store, driver, clock, AZURE, ANYWHERE, ANYWHERE, fronts=portal)
        async with running(plan) as run:
            await _fill(run)
            stamps = Stamps(clock)
            run.conductor.feed.follow(stamps)
            there.append((run, asyncio.get_running_loop(), stamps))
            up.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        up.wait(PATIENCE_SECONDS)
        run, loop, stamps = there[0]
        yield run, stamps, lambda *which: _wait(loop, _announced(run, *which))
    finally:
        there[0][1].call_soon_threadsafe(over.set)
        thread.join()


async def _fill(run: Running) -> None:
    refused = await run.service.apply_fleet(specification(_body()))
    assert not isinstance(refused, Refusal), refused
    now = run.conductor.now().wall
    heard = tuple(Heard(scope, now) for scope in run.service.fleet.scopes)
    await run.conductor.submit(ReportServed(heard=heard))
    await _announced(run, 0, FEW)


async def _announced(run: Running, first: int, beyond: int) -> None:
    for number in range(first, beyond):
        await run.service.on_vms("restart", (_vm(number, 0),), WHO)


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_SECONDS)


def _body() -> FleetBody:
    vms = NODES * VMS_PER_NODE
    return read_tables(
        {
            "node": [{"name": f"node-{n}", "fault_domain": n % 5} for n in range(NODES)],
            "availability_set": [{"name": f"set-{n}"} for n in range(vms // VMS_PER_SET)],
            "vm": [
                {
                    "name": _vm(n // VMS_PER_SET, n % VMS_PER_SET),
                    "node": f"node-{n % NODES}",
                    "availability_set": f"set-{n // VMS_PER_SET}",
                }
                for n in range(vms)
            ],
        },
        "the fleet of the benchmark",
    )


def _vm(in_set: int, number: int) -> str:
    return f"vm-{in_set}-{number}"


def _restart(run: Running, number: int) -> str:
    """Restart one more VM; its event."""
    connection = HTTPConnection(*run.control)
    connection.request("POST", f"/v1/vms/{_vm(number, 1)}/restart")
    answer = msgspec.json.decode(connection.getresponse().read(), type=Accepted)
    connection.close()
    return answer.events[0].id
