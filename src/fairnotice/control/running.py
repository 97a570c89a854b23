"""A whole service in one process: conductor, metadata endpoint, control plane."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Address
from starlette.types import ASGIApp

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.conductor.leading import why_nobody_leads
from fairnotice.control.admission import Auth
from fairnotice.control.api import application
from fairnotice.control.auth import Gate
from fairnotice.control.certificates import Certificates
from fairnotice.control.guard import LOCAL_NAMES, Guard
from fairnotice.control.headers import Headers
from fairnotice.control.holders import cannot_listen, is_loopback
from fairnotice.control.metrics import CONTENT_TYPE, Tally, exposition
from fairnotice.control.passing_on import Cluster, HandingOver, PassingOn
from fairnotice.control.publishing import LOCATION, SUBSCRIPTION
from fairnotice.control.service import Service
from fairnotice.control.serving import Serving
from fairnotice.control.shapes import Health
from fairnotice.control.watching import Watchman
from fairnotice.control.webhook_metrics import of_webhooks
from fairnotice.deliveries.delivering import Delivering
from fairnotice.drivers.driver import Driver, Watching
from fairnotice.engine import DEV, Timing
from fairnotice.errors import UsageError
from fairnotice.metadata.identity import Door
from fairnotice.metadata.rate import DEFAULT, Rate
from fairnotice.metadata.server import Server
from fairnotice.metadata.worker import Worker
from fairnotice.stores.lease import Lease
from fairnotice.stores.store import Store

LOOPBACK = "127.0.0.1"
# At an end, how long it is waited for what VMs have asked, and for what they were shown.
LAST_REPORT_SECONDS = 5.0
UNTAKEN_MILLISECONDS = 30_000
# For whoever starts a second service on one machine: neither its ports nor its store are shared.
BESIDE = (
    "To run another beside it: "
    "fairnotice up --store memory: "
    "--metadata 127.0.0.1:0 --control 127.0.0.1:0 --arm 127.0.0.1:0"
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
    # None: metadata is served elsewhere.
    metadata: Place | None = Place(LOOPBACK, 8169)
    control: Place = Place(LOOPBACK, 8600)
    prefix_allowed: bool = True
    rate_limit: Rate | None = DEFAULT
    first_answer_delay_seconds: float = 0.0
    # Where the store is, as it may be shown to anybody.
    store_url: str = ""
    # Whether everybody has to show a token. Without, whoever reaches the API may do everything.
    auth: bool = False
    # Addresses of other fronts, once there is a service to show.
    fronts: Callable[["Running"], list[Address]] = lambda _: []
    # Where it is one of several control planes.
    cluster: Cluster | None = None
    # Where it leads alone a store that others may share.
    lease: Lease | None = None
    entrance: "Entrance | None" = None
    # A port of another front, once there is a service to show.
    beside: "Beside | None" = None


class Entrance(NamedTuple):
    """How the control plane is entered. Without authentication there is a guard (guard.py)."""

    certificates: Certificates | None = None
    # A proxy in front does what is left out: TLS, and where need be, asking who somebody is.
    behind_proxy: bool = False
    # By which names the guard lets others ask, besides those of this machine.
    names: frozenset[str] = frozenset()
    # How long an end waits for what is under way.
    patience_seconds: int = 1

    @property
    def scheme(self) -> str:
        """How it is spoken to."""
        return "http" if self.certificates is None else "https"


class Running:
    """A service that runs, and where."""

    def __init__(
        self, conductor: Conductor, serving: Serving | None, worker: Worker | None, clock: Clock
    ) -> None:
        self.conductor = conductor
        self.tally = Tally(conductor, clock)
        self.auth = Auth(conductor.ask_store, clock)
        faults = None if worker is None else worker.faults
        self.service = Service(conductor, faults=faults, auth=self.auth)
        self.auth.tokens.vm_is_there = self._vm_is_there
        webhooks = self.service.webhooks
        self.delivering = Delivering(
            conductor, clock, webhooks, subscription=SUBSCRIPTION, location=LOCATION
        )
        webhooks.changed = self.delivering.look_again
        self.tally.followers = self.service.endpoints.feeds.__len__
        self.tally.faults = lambda: self.auth.loops.faults_count
        # None where no VM is answered in this process.
        self.serving = serving
        self.worker = worker
        self.metadata = Place("", 0)
        self.control = Place("", 0)
        # Where Azure's tools ask, if anywhere.
        self.arm: Place | None = None
        # What answers there: others pass on to us what they are asked at their own such port.
        self.for_tools: ASGIApp | None = None
        # Where somebody is asked who he is, there is none.
        self.guard: Guard | None = None
        # Whether `/vm/NAME` is believed.
        self.prefix_allowed = False
        # The URL of the store, as it may be shown.
        self.store = ""
        # What a front puts before everything else, the gate too; it asks browsers to sign in.
        self.in_front: Callable[[ASGIApp], ASGIApp] = lambda app: app
        # Set when the service ends: what streams must not keep it.
        self.ending = asyncio.Event()
        self.cluster: Cluster | None = None

    def _vm_is_there(self, name: str, revision: int) -> bool:
        """Whether this very VM is there, and not another that was given its name later."""
        vm = self.service.fleet.vms.get(name)
        return vm is not None and vm.declared_revision == revision

    def health(self) -> Health:
        """Whether commands are taken."""
        conductor = self.conductor
        trouble, leader = conductor.trouble, conductor.leader
        why = "" if trouble is None else str(trouble)
        if not why and conductor.shares:
            # Whoever asks for a change here could not be served.
            why = why_nobody_leads(leader)
        return Health(
            ready=not why,
            why=why,
            metadata="" if self.worker is None else str(self.metadata),
            arm="" if self.arm is None else str(self.arm),
            store=self.store,
            revision=conductor.feed.revision,
            leading=conductor.leading,
            leader=leader.address if leader else "",
            epoch=leader.epoch if leader else conductor.epoch,
            lag_seconds=round(conductor.lag_seconds, 3),
        )


Beside = Callable[[Running], contextlib.AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def running(plan: Plan) -> AsyncIterator[Running]:
    """Run the service until the block is left."""
    entrance = plan.entrance or Entrance()
    _must_not_be_exposed(plan, entrance)
    async with contextlib.AsyncExitStack() as stack:
        conductor = Conductor(plan.store, plan.driver, plan.clock, plan.timing)
        serving = None if plan.metadata is None else Serving(conductor, plan.clock)
        stack.push_async_callback(conductor.close)
        # Taken before anything is begun: a port that is taken is said at once.
        control = stack.enter_context(contextlib.closing(listening(plan.control, "control")))
        if plan.cluster is None:
            await conductor.start(lease=plan.lease)
        else:
            await conductor.join(plan.cluster.lease)
        run = _made(plan, conductor, serving)
        run.cluster = plan.cluster
        run.control = plan.control._replace(port=control.getsockname()[1])
        if plan.metadata is not None:
            run.metadata = await stack.enter_async_context(_answering(plan, plan.metadata, run))
        if entrance.certificates is not None:
            await stack.enter_async_context(
                run.auth.loops.beside(certificates=entrance.certificates.watching)
            )
        if isinstance(plan.driver, Watching):
            watchman = Watchman(conductor, plan.driver, plan.clock)
            await stack.enter_async_context(run.auth.loops.beside(machines=watchman.watching))
        if plan.auth:
            await stack.enter_async_context(run.auth.on_duty())
        run.service.webhooks.public_url = _public_url(plan, run, entrance)
        await stack.enter_async_context(run.auth.loops.beside(webhooks=run.delivering.deliver))
        fronts = plan.fronts(run)
        await stack.enter_async_context(control_plane(run, control, fronts, entrance))
        if plan.beside is not None:
            await stack.enter_async_context(plan.beside(run))
        yield run


def _public_url(plan: Plan, run: Running, entrance: Entrance) -> str:
    """Where others reach the control plane; "" where nobody has said."""
    if plan.cluster is not None:
        return plan.cluster.lease.address.rstrip("/")
    anywhere = run.control.host in ("0.0.0.0", "::")  # noqa: S104 - nothing is bound here
    return "" if anywhere or entrance.behind_proxy else f"{entrance.scheme}://{run.control}"


def _made(plan: Plan, conductor: Conductor, serving: Serving | None) -> Running:
    worker = None
    if serving is not None:
        worker = serving.worker(
            rate_limit=plan.rate_limit,
            first_answer_delay_seconds=plan.first_answer_delay_seconds,
        )
    run = Running(conductor, serving, worker, plan.clock)
    run.prefix_allowed = plan.prefix_allowed
    run.store = plan.store_url
    return run


@contextlib.asynccontextmanager
async def _answering(plan: Plan, place: Place, run: Running) -> AsyncIterator[Place]:
    """The metadata endpoint, where it is; ended when what VMs were answered is recorded."""
    assert run.worker is not None
    assert run.serving is not None
    server = Server(run.worker)
    try:
        door = Door(prefix_allowed=plan.prefix_allowed)
        listener = server.listen(place.host, place.port, door)
    except OSError as error:
        raise cannot_listen("metadata", place, error) from error
    try:
        async with beside(run.serving.reporting()):
            yield place._replace(port=listener.port)
        server.close_doors()
        await run.worker.settled(LAST_REPORT_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                await run.serving.report_quietly()
    finally:
        server.close()


def listening(place: Place, what: str) -> socket.socket:
    """A socket bound there; CannotListen that says by what it is taken."""
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
        raise cannot_listen(what, place, error) from error
    return sock


def _must_not_be_exposed(plan: Plan, entrance: Entrance) -> None:
    """Whoever reaches a control plane that asks nobody who he is may do everything."""
    is_for_others = entrance.behind_proxy or (plan.auth and entrance.certificates is not None)
    if not (is_loopback(plan.control.host) or is_for_others):
        raise UsageError(
            f"{plan.control} can be reached from outside, and nobody is asked who he is there. "
            "Choose an address of this machine's own: --control 127.0.0.1:PORT."
        )


@contextlib.asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have these done meanwhile, and end them with the block."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _metrics(run: Running, entrance: Entrance) -> Callable[[Request], Response]:
    certificates = entrance.certificates

    def metrics(_: Request) -> Response:
        more = () if certificates is None else certificates.metrics()
        every = (*more, *of_webhooks(run.delivering))
        return Response(exposition(run.tally, run.worker, every), media_type=CONTENT_TYPE)

    return metrics


@contextlib.asynccontextmanager
async def control_plane(
    run: Running,
    sock: socket.socket,
    fronts: Sequence[Address] = (),
    entrance: Entrance = Entrance(),  # noqa: B008 - it does not change
) -> AsyncIterator[None]:
    """The control plane's HTTP server; its end answers what is under way, and ends streams."""
    fronts = [Address("/metrics", _metrics(run, entrance)), *fronts]
    app: ASGIApp = application(run.service, run.health, fronts, run.ending)
    passing_on = None
    if run.cluster is not None:
        # Behind the entrance: whoever may not ask here is not passed on either.
        app = passing_on = PassingOn(app, run.conductor, run.cluster)
    try:
        entered = _entered(run, app, sock, entrance)
        if run.cluster is not None:
            entered = HandingOver(entered, lambda: run.for_tools)
        async with answering(entered, sock, entrance):
            try:
                yield
            finally:
                run.ending.set()
    finally:
        if passing_on is not None:
            await passing_on.close()


@contextlib.asynccontextmanager
async def answering(app: ASGIApp, sock: socket.socket, entrance: Entrance) -> AsyncIterator[None]:
    """An HTTP server for this application; its end answers what is under way."""
    server = uvicorn.Server(_served(Headers(app), entrance))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[sock])
    loop = asyncio.ensure_future(server.main_loop())
    try:
        yield
    finally:
        server.should_exit = True
        await loop
        await server.shutdown(sockets=[sock])


def _entered(run: Running, app: ASGIApp, sock: socket.socket, entrance: Entrance) -> ASGIApp:
    """The application behind whatever decides who may ask."""
    if run.auth.required:
        # A page of another site has no token to show, and a token is good by whatever name.
        return run.in_front(Gate(app, run.auth))
    run.guard = Guard(app, LOCAL_NAMES | {sock.getsockname()[0]}, entrance.names)
    return run.guard


def _served(app: ASGIApp, entrance: Entrance) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=entrance.patience_seconds,
    )
    certificates = entrance.certificates
    if certificates is not None:
        config.ssl_context_factory = lambda *_: certificates.context
    return config
