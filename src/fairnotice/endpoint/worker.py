"""One worker process: it serves the VMs that the kernel sends it, and passes on what they ask for.

    python -m fairnotice.endpoint.worker CHANNEL LISTENER …      # numbers of open descriptors

It ends when its parent has gone.
"""

import asyncio
import itertools
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from fairnotice.clock import SystemClock
from fairnotice.control.loops import Loops
from fairnotice.endpoint.channel import Channel
from fairnotice.endpoint.diary import Diary
from fairnotice.endpoint.front import Front, Manner, Served
from fairnotice.endpoint.holding import Holding, Told
from fairnotice.endpoint.unreported import written
from fairnotice.endpoint.vouching import Network
from fairnotice.errors import Unavailable
from fairnotice.metadata.board import FirstSeen
from fairnotice.metadata.rate import Rate
from fairnotice.metadata.server import Server

log = logging.getLogger(__name__)

METRICS_SECONDS = 1.0
# What is seen in one moment is said together: many VMs look at once.
TOGETHER_SECONDS = 0.25


class Desk:
    """Passes on to the parent what VMs ask for."""

    def __init__(self, channel: Channel, say_seen: Callable[[], None]) -> None:
        self._channel = channel
        self._say_seen = say_seen
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        """The events that the VM's scope never saw."""
        # Whoever approves has looked, and the parent passes on both together.
        self._say_seen()
        answer = await self._ask("approve", vm=vm, events=list(events))
        return tuple(answer["unknown"])

    async def enable(self, scope: str) -> None:
        """Return when the enabling is durable."""
        await self._ask("enable", scope=scope)

    async def identify(self, vm: str, resource: str, identity: str) -> tuple[int, bytes]:
        """What a VM that asks for the token of its identity is to be answered."""
        answer = await self._ask("identity", vm=vm, resource=resource, identity=identity)
        return answer["status"], answer["body"].encode()

    async def _ask(self, kind: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send(kind, id=number, **more)
            answer = await self._asked[number]
        finally:
            del self._asked[number]
        if "away" in answer:
            raise Unavailable(answer["away"])
        return answer

    def answered(self, line: dict[str, Any]) -> None:
        """The parent has an answer."""
        waiting = self._asked.get(line["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result(line)


class Serving:
    """The worker, from its settings on."""

    def __init__(self, channel: Channel, listeners: list[socket.socket]) -> None:
        self._channel = channel
        self._listeners = listeners
        self._desk = Desk(channel, self._say_seen)
        self._front: Front | None = None
        self._server: Server | None = None
        self._holding = Holding()
        self._tasks: list[asyncio.Task[None]] = []
        # What was shown for the first time and is not said yet. It is on disk already.
        self._seen: list[FirstSeen] = []
        self._diary: Diary | None = None

    async def serve(self) -> None:
        """Serve until the parent is gone."""
        async for line in self._channel.lines():
            told = self._holding.take(line)
            if told is not None:
                self._show(told)
            elif not self._heard(line):
                break
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        if self._front is not None:
            self._front.hand_on()
        self._say_seen()
        self._channel.close()
        await self._channel.closed()

    def _begin(self, settings: dict[str, Any]) -> None:
        rate = settings["rate"]
        manner = Manner(
            None if rate is None else Rate(*rate),
            settings["first_answer_delay"],
            _network(settings["network"]),
        )
        self._diary = Diary(Path(settings["sighting"]))
        clock = SystemClock()
        front = self._front = Front(self._desk, clock, manner, self._served)
        loops = Loops(clock)
        self._tasks = [
            asyncio.create_task(loops.endure("gathering", front.gathering)),
            asyncio.create_task(loops.endure("measuring", lambda: self._measuring(front))),
        ]

    def _heard(self, line: bytes) -> bool:
        """Take what is no line of the feed, if it is none; False where this is the end."""
        if line.startswith(b'{"kind": "settings"'):
            self._begin(json.loads(line))
        elif line.startswith(b'{"kind": "answer"'):
            self._desk.answered(json.loads(line))
        elif line.startswith(b'{"kind": "kept"'):
            self._kept(json.loads(line)["written"])
        return not line.startswith(b'{"kind": "end"')

    def _show(self, told: Told) -> None:
        assert self._front is not None  # the settings come first
        try:
            self._front.show(told)
        except Exception:
            # Its VMs are served all the same; nothing more is confirmed.
            log.exception("what was told could not be shown")
            self._channel.send("fault")
        if self._server is None:
            # Not before there is something to show.
            self._server = Server(self._front.worker)
            for listener in self._listeners:
                self._server.listen_on(self._front.door, listener)
        self._channel.send("shown", revision=self._front.revision)

    def _served(self, served: Served) -> None:
        if served.heard:
            self._channel.send("served", **written(Served([], served.heard)))
        if served.seen:
            assert self._diary is not None  # it is there before the front is
            self._diary.write(written(served))
            if not self._seen:
                asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._say_seen)
            self._seen += served.seen

    def _say_seen(self) -> None:
        if self._seen and self._diary is not None:
            said = written(Served(self._seen, []))
            self._channel.send("served", **said, written=self._diary.bytes)
            self._seen = []

    def _kept(self, written_bytes: int) -> None:
        """The parent has what was written up to here: where that is all, it need not be here."""
        if self._diary is not None and self._diary.bytes == written_bytes:
            self._diary.empty()

    async def _measuring(self, front: Front) -> None:
        while True:
            self._channel.send("metrics", text=front.exposition())
            await asyncio.sleep(METRICS_SECONDS)


def _network(told: list[Any] | None) -> Network | None:
    if told is None:
        return None
    bridge, interface, vlan, file = told
    return Network(bridge, interface, vlan, Path(file))


async def _main(channel: int, *listeners: int) -> None:
    pair = socket.socket(fileno=channel)
    sockets = [socket.socket(fileno=listener) for listener in listeners]
    serving = Serving(await Channel.over(pair), sockets)
    await serving.serve()


if __name__ == "__main__":
    # The parent is told to end, and its workers end with it; also where all of them are told.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    uvloop.run(_main(*map(int, sys.argv[1:])))
