"""What tests of the control plane share: a whole service in a thread, and a plain HTTP client."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from fairnotice.clock import SystemClock
from fairnotice.control.fleet_files import sample_fleet, specification
from fairnotice.control.running import Place, Plan, Running, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock

PATIENCE_SECONDS = 10
ANYWHERE = Place("127.0.0.1", 0)
# One VM of each scope: when it has asked for its document, all of the scope are told of events.
LISTENERS = ("web-0", "batch_0", "spot_0", "FrontEnd_IN_0", "db")


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> dict[str, Any]:
        """A problem as RFC 9457 has it; whatever was wrong, it looks alike."""
        assert self.headers["content-type"] == "application/problem+json", self
        found = self.json
        assert found["status"] == self.status
        assert found["type"].startswith("urn:fairnotice:problem:")
        assert found["title"]
        assert found["detail"].endswith((".", "?"))
        return found


class Served:
    """A service that runs in a thread with its own loop."""

    def __init__(self, run: Running, loop: asyncio.AbstractEventLoop) -> None:
        self.run = run
        self.loop = loop

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.run.control, timeout=PATIENCE_SECONDS)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self.connection()
        try:
            connection.request(method, path, body, names)
            return _read(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.call("POST", path, body, **headers)

    def look(self, vm: str, api_version: str = "2020-07-01") -> bytes:
        """The document as this VM reads it."""
        connection = http.client.HTTPConnection(*self.run.metadata, timeout=PATIENCE_SECONDS)
        try:
            path = f"/vm/{vm}/metadata/scheduledevents?api-version={api_version}"
            connection.request("GET", path, headers={"Metadata": "true"})
            answer = _read(connection.getresponse())
        finally:
            connection.close()
        assert answer.status == 200, answer
        return answer.body

    def inside(self, work: Any) -> Any:
        """Have a coroutine of the service run in its loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)


def _read(response: http.client.HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


@contextmanager
def serving(store: Any = None, clock: Any = None, **more: Any) -> Iterator[Served]:
    """The sample fleet, all of whose scopes listen; impacts take no time."""
    there: list[Served] = []
    up, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        time = clock or SystemClock()
        driver = SimulatedDriver(time, durations=AT_ONCE)
        plan = Plan(store or MemoryStore(), driver, time, metadata=ANYWHERE, control=ANYWHERE)
        async with running(plan._replace(rate_limit=None, **more)) as run:
            await run.service.apply_fleet(specification(sample_fleet()))
            for vm in run.service.vms():
                driver.declare(vm.name, vm.node, vm.power)
            there.append(Served(run, asyncio.get_running_loop()))
            up.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(PATIENCE_SECONDS)
        for vm in LISTENERS:
            there[0].look(vm)
        yield there[0]
    finally:
        if there:
            there[0].loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def in_minutes(minutes):
    """An instant of the service's clock, as a client writes it."""
    instant = ManualClock().wall() + timedelta(minutes=minutes)
    return instant.isoformat().replace("+00:00", "Z")


def restarted(served, vm="web-0", **headers):
    """The event of a restart."""
    answer = served.post(f"/v1/vms/{vm}/restart", **headers)
    assert answer.status == 202, answer
    return answer.json["events"][0]["id"]
