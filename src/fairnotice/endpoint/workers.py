"""The worker processes of an endpoint: started, fed, listened to, and started again."""

import asyncio
import contextlib
import functools
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from fairnotice.endpoint.channel import Channel
from fairnotice.endpoint.front import Manner
from fairnotice.endpoint.holding import Told
from fairnotice.endpoint.link import Link
from fairnotice.endpoint.saved import Saved
from fairnotice.endpoint.unreported import parsed
from fairnotice.errors import Unavailable

log = logging.getLogger(__name__)

# Before a worker that died is started again: doubled while it dies at once.
RESTART_SECONDS = 0.1
RESTART_SECONDS_MAX = 5.0
# It has lived for so long: it was not its start that killed it.
LIVED_SECONDS = 10.0
END_SECONDS = 3.0


class WorkerFront:
    """One worker, as its parent knows it: whichever process it is now."""

    def __init__(
        self,
        number: int,
        link: Link,
        manner: Manner,
        sighting: Path,
        listeners: Sequence[socket.socket],
    ) -> None:
        self.number = number
        self.name = f"worker {number}"
        # What it shows; nothing while it is not there, so that nothing is confirmed meanwhile.
        self.revision = 0
        self.metrics = ""
        self.process: asyncio.subprocess.Process | None = None
        self._link = link
        self._manner = manner
        self._sighting = sighting
        self._listeners = listeners
        self._channel: Channel | None = None
        self._asking: set[asyncio.Task[None]] = set()

    def show(self, told: Told) -> None:
        """Have it show this; one that is not there is told everything when it is."""
        if self._channel is not None:
            self._channel.send_lines(told.lines)

    def end(self) -> None:
        """Have it finish."""
        if self._channel is not None:
            self._channel.send("end")

    async def live(self) -> None:
        """One life of the process, from its start to its end."""
        ours, its = socket.socketpair()
        with its:
            command = (sys.executable, "-m", "fairnotice.endpoint.worker")
            numbers = (its.fileno(), *(sock.fileno() for sock in self._listeners))
            self.process = await asyncio.create_subprocess_exec(
                *command, *map(str, numbers), pass_fds=numbers, stdin=asyncio.subprocess.DEVNULL
            )
        channel = await Channel.over(ours)
        try:
            rate, network = self._manner.rate_limit, self._manner.network
            channel.send(
                "settings",
                rate=None if rate is None else list(rate),
                network=None if network is None else [*network[:-1], str(network.places)],
                first_answer_delay=self._manner.first_answer_delay_seconds,
                sighting=str(self._sighting),
            )
            self._channel = channel
            if self._link.showing:
                channel.send_lines(self._link.holding.whole())
            async for line in channel.lines():
                self._link.loops.turned(self.name)
                self._heard(json.loads(line))
        finally:
            self._channel = None
            self.revision = 0
            channel.close()
            await self._end()
            self._link.collect(self._sighting)

    async def _end(self) -> None:
        """Wait until it is gone; not for ever."""
        assert self.process is not None
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def _heard(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind == "shown":
            self.revision = line["revision"]
            self._link.showed()
        elif kind == "served":
            self._link.gathered(parsed(line["seen"], line["heard"]))
            if line["seen"] and self._channel is not None:
                self._channel.send("kept", written=line["written"])
        elif kind == "metrics":
            self.metrics = line["text"]
        elif kind == "fault":
            self._link.loops.faults_count += 1
        elif kind == "approve":
            asked = self._link.approve(line["vm"], tuple(line["events"]))
            self._answer(line["id"], asked, lambda unknown: {"unknown": list(unknown)})
        elif kind == "identity":
            asked_for = self._link.identify(line["vm"], line["resource"], line["identity"])
            self._answer(
                line["id"],
                asked_for,
                lambda found: {"status": found[0], "body": found[1].decode()},
            )
        elif kind == "enable":
            self._answer(line["id"], self._link.enable(line["scope"]), lambda _: {})

    def _answer(
        self, number: int, asked: Awaitable[Any], said: Callable[[Any], dict[str, Any]]
    ) -> None:
        task = asyncio.ensure_future(self._answered(number, asked, said))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answered(
        self, number: int, asked: Awaitable[Any], said: Callable[[Any], dict[str, Any]]
    ) -> None:
        try:
            answer = said(await asked)
        except Unavailable as error:
            answer = {"away": str(error)}
        except Exception:
            log.exception("what a VM asked for could not be passed on")
            answer = {"away": "a fault of the endpoint itself"}
        if self._channel is not None:
            self._channel.send("answer", id=number, **answer)


class Workers:
    """All of them."""

    def __init__(
        self,
        link: Link,
        manner: Manner,
        saved: Saved,
        listeners: Sequence[Sequence[socket.socket]],
    ) -> None:
        self._link = link
        self._clock = saved.clock
        self._ending = False
        self._living: set[asyncio.Task[None]] = set()
        self.fronts = [
            WorkerFront(number, link, manner, saved.sighting(number), of_it)
            for number, of_it in enumerate(listeners)
        ]
        for front in self.fronts:
            link.add(front)

    async def _end(self) -> None:
        """Let them finish, and hand on what they served last."""
        self._ending = True
        for front in self.fronts:
            front.end()
        if self._living:
            await asyncio.wait(self._living, timeout=END_SECONDS)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep all of them alive, until the block is left."""
        works = {front.name: functools.partial(self._keeping, front) for front in self.fronts}
        async with self._link.loops.beside(**works):
            try:
                yield
            finally:
                await self._end()

    async def _keeping(self, front: WorkerFront) -> None:
        """Keep this one alive, for ever."""
        pause_seconds = RESTART_SECONDS
        while not self._ending:
            self._link.loops.turned(front.name)
            began = self._clock.monotonic()
            life = asyncio.create_task(front.live())
            self._living.add(life)
            life.add_done_callback(self._living.discard)
            try:
                await life
            except OSError as error:
                log.warning("worker %d cannot be started: %s", front.number, error)
            if not self._ending:
                code = None if front.process is None else front.process.returncode
                log.warning("worker %d has ended (%s) and is started again", front.number, code)
            if self._clock.monotonic() - began > LIVED_SECONDS:
                pause_seconds = RESTART_SECONDS
            await self._clock.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, RESTART_SECONDS_MAX)
