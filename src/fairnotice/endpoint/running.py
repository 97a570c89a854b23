"""A whole endpoint: what it shows, whom it follows, what it keeps."""

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import AsyncIterator, Iterator

from fairnotice.agent.answering import Answer, Listener
from fairnotice.clock import Clock
from fairnotice.control.holders import cannot_listen
from fairnotice.endpoint import metrics
from fairnotice.endpoint.config import Config
from fairnotice.endpoint.front import Front
from fairnotice.endpoint.link import Link
from fairnotice.endpoint.one_per_node import alone_in, sockets_at
from fairnotice.endpoint.passing import Passing
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.unreported import Unreported
from fairnotice.endpoint.workers import Workers
from fairnotice.errors import Unavailable, UsageError
from fairnotice.metadata.server import Server

log = logging.getLogger(__name__)

# An absence that is shorter than this explains nobody's silence.
AWAY_SECONDS_MIN = 30.0
LAST_REPORT_SECONDS = 2.0
# A control plane that is there has so long to tell how things are, before the VMs are shown how
# they were in an earlier life.
FIRST_SECONDS = 3.0
# Each of its loops goes round at least every half minute, also where nobody answers.
STUCK_SECONDS = 180.0
METRICS_SECONDS = 5.0


class Running:
    """An endpoint that runs."""

    def __init__(self, config: Config, link: Link, port: int) -> None:
        self.link = link
        self.port = port
        self.metrics_port = 0
        # There is something to show: the last life's, or a control plane's.
        self.ready = asyncio.Event()
        self.front: Front | None = None
        self.workers: Workers | None = None
        self._config = config

    async def renew(self) -> None:
        """Read the token and whom to trust again; what cannot be read stays as it was."""
        try:
            trust = self._config.trusted()
        except UsageError as error:
            log.warning("whom to trust stays as it was: %s", error)
            trust = None
        await self.link.renew(trust)

    def stuck(self) -> list[str]:
        """What of it does not go on, and should have long ago."""
        return self.link.loops.stuck(STUCK_SECONDS)

    def exposition(self) -> str:
        """All metrics."""
        if self.front is not None:
            return metrics.exposition(self.link, self._config.node, [self.front.exposition()])
        fronts = [] if self.workers is None else self.workers.fronts
        return metrics.exposition(self.link, self._config.node, [front.metrics for front in fronts])


@contextlib.asynccontextmanager
async def running(config: Config, clock: Clock) -> AsyncIterator[Running]:
    """Run an endpoint until the block is left."""
    async with contextlib.AsyncExitStack() as stack:
        saved = Saved(config.state_directory, config.node, clock)
        stack.enter_context(alone_in(config.state_directory))
        sockets = await sockets_at(config, clock)
        for sock in itertools.chain.from_iterable(sockets):
            stack.callback(sock.close)
        link = _link(config, clock, saved)
        run = Running(config, link, sockets[0][0].getsockname()[1])
        stack.enter_context(_measured(config, run))
        has_board = _take_up(run, saved)
        # A life before may have had more workers.
        for path in saved.sightings():
            link.collect(path)
        stack.push_async_callback(_end, link, saved)
        await stack.enter_async_context(
            link.loops.beside(
                following=lambda: link.following(run.ready.set),
                reporting=link.reporting,
                saving=lambda: saved.saving(
                    link.holding, link.showed, lambda: link.loops.turned("saving")
                ),
                first=lambda: _first_shown(run, has_board=has_board),
            )
        )
        # Last, so that it ends first: what it served is reported by what still runs.
        if config.workers == 1:
            await stack.enter_async_context(_alone(run, config, clock, sockets[0]))
        else:
            await stack.enter_async_context(_with_workers(run, config, saved, sockets))
        yield run


def _link(config: Config, clock: Clock, saved: Saved) -> Link:
    passing = Passing(
        config.node, config.control_planes, token=config.token, trust=config.trusted()
    )
    return Link(passing, clock, Unreported(saved.unreported), saved)


def _take_up(run: Running, saved: Saved) -> bool:
    """Hold what the last life was told, if anything, and say for how long nobody was served."""
    if saved.load(run.link.holding) is None:
        return False
    away_seconds = saved.away_seconds()
    if away_seconds > AWAY_SECONDS_MIN:
        run.link.was_away(run.link.holding.scopes, away_seconds)
    return True


async def _first_shown(run: Running, *, has_board: bool) -> None:
    """Show what the last life was told, where no control plane says soon how things are now."""
    if not has_board:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_SECONDS):
            await run.link.asked_all.wait()
    run.link.show_saved()
    run.ready.set()


@contextlib.asynccontextmanager
async def _alone(
    run: Running, config: Config, clock: Clock, sockets: list[socket.socket]
) -> AsyncIterator[None]:
    """Serve in this process."""
    front = run.front = Front(run.link, clock, config.manner, run.link.gathered)
    server = Server(front.worker)
    run.link.add(front)

    async def serve() -> None:
        # Not before there is something to show.
        await run.ready.wait()
        for sock in sockets:
            server.listen_on(front.door, sock)

    try:
        async with run.link.loops.beside(serve=serve, gathering=front.gathering):
            yield
    finally:
        server.close()
        front.hand_on()


@contextlib.asynccontextmanager
async def _with_workers(
    run: Running, config: Config, saved: Saved, sockets: list[list[socket.socket]]
) -> AsyncIterator[None]:
    """Serve by processes of their own."""
    workers = run.workers = Workers(run.link, config.manner, saved, sockets)
    async with workers.kept():
        yield


async def _end(link: Link, saved: Saved) -> None:
    """Report what there is, if somebody is there; and keep what is left for the next life."""
    try:
        async with asyncio.timeout(LAST_REPORT_SECONDS):
            if link.connected:
                await link.report()
    except (Unavailable, TimeoutError) as error:
        log.info("what was served last is kept for the next life: %s", error)
    saved.save(link.holding)
    await link.close()


@contextlib.contextmanager
def _measured(config: Config, run: Running) -> Iterator[None]:
    """Answer who asks for the metrics, where that is wanted."""
    if config.metrics is None:
        yield
        return
    loop = asyncio.get_running_loop()

    async def exposed() -> str:
        return run.exposition()

    def answer(path: str) -> Answer:
        if path == "/metrics":
            # In the loop: what is counted there is not counted while it changes.
            text = asyncio.run_coroutine_threadsafe(exposed(), loop).result(METRICS_SECONDS)
            return Answer("200 OK", text, metrics.CONTENT_TYPE)
        if path == "/healthz":
            stuck = run.stuck()
            status = "503 Service Unavailable" if stuck else "200 OK"
            return Answer(status, f"stuck: {', '.join(stuck)}\n" if stuck else "alive\n")
        if path == "/readyz":
            ready = run.ready.is_set()
            status = "200 OK" if ready else "503 Service Unavailable"
            return Answer(status, "ready\n" if ready else "nothing to show yet\n")
        return Answer("404 Not Found", "there are /metrics, /healthz and /readyz\n")

    try:
        listener = Listener(config.metrics, answer)
    except OSError as error:
        raise cannot_listen("metrics", config.metrics, error) from error
    run.metrics_port = listener.port
    try:
        yield
    finally:
        listener.close()
