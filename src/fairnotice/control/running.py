"""A whole service in one process: conductor, metadata endpoint, control plane."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Address

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.api import application
from fairnotice.control.guard import LOCAL_NAMES, Guard
from fairnotice.control.headers import Headers
from fairnotice.control.holders import is_loopback, listener_at
from fairnotice.control.metrics import CONTENT_TYPE, Tally, exposition
from fairnotice.control.service import Service
from fairnotice.control.serving import Serving
from fairnotice.control.shapes import Health
from fairnotice.drivers.driver import Driver
from fairnotice.engine import DEV, Timing
from fairnotice.errors import UsageError
from fairnotice.metadata.identity import Door
from fairnotice.metadata.rate import DEFAULT, Rate
from fairnotice.metadata.server import Server
from fairnotice.metadata.worker import Worker
from fairnotice.stores.store import Store

LOOPBACK = "127.0.0.1"
UNTAKEN_MILLISECONDS = 30_000
# For whoever starts a second service on one machine: neither its ports nor its store are shared.
BESIDE = (
    "To run another beside it: "
    "fairnotice up --store memory: --metadata 127.0.0.1:0 --control 127.0.0.1:0"
)


class Place(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Plan(NamedTuple):
    """What a service is made of."""

    store: Store
    driver: Driver
    clock: Clock
    timing: Timing = DEV
    metadata: Place = Place(LOOPBACK, 8169)
    control: Place = Place(LOOPBACK, 8600)
    prefix_allowed: bool = True
    rate_limit: Rate | None = DEFAULT
    # Where the store is, as it may be shown to anybody.
    store_url: str = ""
    # Addresses of other fronts, once there is a service to show.
    fronts: Callable[["Running"], list[Address]] = lambda _: []


class Running:
    """A service that runs, and where."""

    def __init__(
        self, conductor: Conductor, serving: Serving, worker: Worker, clock: Clock
    ) -> None:
        self.conductor = conductor
        self.tally = Tally(conductor, clock)
        self.service = Service(conductor, faults=worker.faults)
        self.tally.followers = self.service.endpoints.feeds.__len__
        self.serving = serving
        self.worker = worker
        self.metadata = Place("", 0)
        self.control = Place("", 0)
        # Whether `/vm/NAME` is believed.
        self.prefix_allowed = False
        # The URL of the store, as it may be shown.
        self.store = ""

    def health(self) -> Health:
        """Whether commands are taken."""
        trouble = self.conductor.trouble
        return Health(
            ready=trouble is None,
            why="" if trouble is None else str(trouble),
            metadata=str(self.metadata),
            store=self.store,
        )


@contextlib.asynccontextmanager
async def running(plan: Plan) -> AsyncIterator[Running]:
    """Run the service until the block is left."""
    _must_be_loopback(plan.control)
    async with contextlib.AsyncExitStack() as stack:
        conductor = Conductor(plan.store, plan.driver, plan.clock, plan.timing)
        serving = Serving(conductor, plan.clock)
        stack.push_async_callback(conductor.close)
        # Taken before anything is begun: a port that is taken is said at once.
        control = stack.enter_context(contextlib.closing(listening(plan.control, "control")))
        await conductor.start()
        worker = serving.worker(rate_limit=plan.rate_limit)
        run = Running(conductor, serving, worker, plan.clock)
        server = Server(run.worker)
        stack.callback(server.close)
        door = Door(prefix_allowed=plan.prefix_allowed)
        try:
            listener = server.listen(plan.metadata.host, plan.metadata.port, door)
        except OSError as error:
            raise _taken(plan.metadata, "metadata", error) from error
        run.metadata = plan.metadata._replace(port=listener.port)
        run.prefix_allowed = plan.prefix_allowed
        run.store = plan.store_url
        run.control = plan.control._replace(port=control.getsockname()[1])
        await stack.enter_async_context(_task(serving.reporting()))
        await stack.enter_async_context(control_plane(run, control, plan.fronts(run)))
        yield run


def listening(place: Place, what: str) -> socket.socket:
    """A socket bound there; UsageError that says by what it is taken."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    # The protocol is named, or asyncio does not switch off Nagle's algorithm on its connections,
    # and whoever keeps one waits 40 ms for each answer after the first.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Its connections have it too: whoever follows a feed and takes nothing of it is let go.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MILLISECONDS)
    try:
        sock.bind(place)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise _taken(place, what, error) from error
    return sock


def _must_be_loopback(place: Place) -> None:
    """Whoever reaches the control plane may do everything: so far, only this machine may."""
    if not is_loopback(place.host):
        raise UsageError(
            f"{place} can be reached from outside, and nobody is asked who he is there. "
            "Choose an address of this machine's own: --control 127.0.0.1:PORT."
        )


def _taken(place: Place, what: str, error: OSError) -> UsageError:
    holder = listener_at(place.port) if error.errno == errno.EADDRINUSE else None
    by = f"it is taken by {holder}" if holder else error.strerror
    beside = f" {BESIDE}" if error.errno == errno.EADDRINUSE else ""
    return UsageError(
        f"{place} cannot be listened on: {by}. "
        f"Choose another with --{what} {place.host}:PORT.{beside}"
    )


@contextlib.asynccontextmanager
async def _task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _metrics(run: Running) -> Callable[[Request], Response]:
    def metrics(_: Request) -> Response:
        return Response(exposition(run.tally, run.worker), media_type=CONTENT_TYPE)

    return metrics


@contextlib.asynccontextmanager
async def control_plane(
    run: Running, sock: socket.socket, fronts: Sequence[Address] = ()
) -> AsyncIterator[None]:
    """The control plane's HTTP server, ended with its connections."""
    ending = asyncio.Event()
    fronts = [Address("/metrics", _metrics(run)), *fronts]
    app = application(run.service, run.health, fronts, ending)
    config = uvicorn.Config(
        Headers(Guard(app, LOCAL_NAMES | {sock.getsockname()[0]})),
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[sock])
    loop = asyncio.ensure_future(server.main_loop())
    try:
        yield
    finally:
        ending.set()
        server.should_exit = True
        await loop
        await server.shutdown(sockets=[sock])
