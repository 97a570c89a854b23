"""Listening: on an address, or on a unix socket per VM; and the connection that lasts one poll."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from pathlib import Path

from fairnotice.metadata.identity import Door, address_of, caller_at
from fairnotice.metadata.protocol import Connection
from fairnotice.metadata.worker import Worker

log = logging.getLogger(__name__)

BACKLOG = 4_096
SWEEP_SECONDS = 1.0
# How many waiting connections are taken in one go before others get their turn.
ACCEPT_AT_ONCE = 64
# How long no connection is taken when there is no descriptor left for one.
REST_SECONDS = 0.1
RECEIVE_BYTES = 64 * 1024
# As many descriptors as a process can use; some systems allow a thousand times that, and then
# programs it starts are slow to close them all.
DESCRIPTORS_MAX = 2**20
# What the buffer of a new connection takes at once in any case.
SEND_BYTES = 4 * 1024


class Listener:
    """A listening socket, and what comes in through it.

    Most clients open a connection for each poll. The kernel hands such a connection over when its
    request is there (TCP_DEFER_ACCEPT), so it is accepted, read, answered and closed in one go,
    without a transport and a protocol of its own. Measured: 17 instead of 30 µs of CPU a poll.
    Everything else becomes an ordinary asyncio connection.
    """

    def __init__(self, worker: Worker, door: Door, sock: socket.socket) -> None:
        self.worker = worker
        self.door = door
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._short = False
        sock.setblocking(False)  # noqa: FBT003 - the socket module's own
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        sock.listen(BACKLOG)
        self._loop.add_reader(sock.fileno(), self._accept)

    @property
    def port(self) -> int:
        """The port it listens on; 0 for a unix socket."""
        name = self.sock.getsockname()
        return int(name[1]) if isinstance(name, tuple) else 0

    def close(self) -> None:
        """Listen no more."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self.sock.fileno())
        self.sock.close()

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                connection, peer = self.sock.accept()
            except (BlockingIOError, ConnectionError):
                # Nobody is waiting, or he has left already.
                return
            except OSError as error:
                self._rest(error)
                return
            self._short = False
            self._welcome(connection, address_of(peer))

    def _rest(self, error: OSError) -> None:
        """Out of descriptors: whoever is waiting would wake us for ever, so look away a moment."""
        if not self._short:
            log.warning("cannot take connections now: %s", error)
        self._short = True
        self.worker.crowd.make_room()
        self._loop.remove_reader(self.sock.fileno())
        self._resting = self._loop.call_later(REST_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._resting = None
        self._loop.add_reader(self.sock.fileno(), self._accept)

    def _welcome(self, connection: socket.socket, address: str) -> None:
        try:
            data = connection.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            data = b""
        except OSError:
            connection.close()
            return
        if data:
            answer = self._answer_once(data, address)
            if answer is not None:
                with contextlib.suppress(OSError):
                    connection.send(answer, socket.MSG_DONTWAIT)
                connection.close()
                return
        task = self._loop.create_task(self._keep(connection, data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer_once(self, data: bytes, address: str) -> bytes | None:
        """The answer to a plain poll that wants its connection closed; None for all else."""
        worker = self.worker
        request = worker.known.get(data)
        if request is None or not (request.plain and request.close):
            return None
        caller = caller_at(worker.board, self.door, address)
        if caller is None or not caller.page.enabled:
            return None
        if len(caller.page.answers[request.version].full.tail_close) > SEND_BYTES:
            return None
        answer = worker.poll(request, caller)
        return None if answer is None else answer.head + worker.date + answer.tail_close

    async def _keep(self, connection: socket.socket, data: bytes) -> None:
        """Make an ordinary connection of it, and give it what was already received."""
        connection.setblocking(False)  # noqa: FBT003
        protocol = Connection(self.worker, self.door, data)
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:
            connection.close()


class Server:
    """All listeners of one endpoint process, and what it does every now and then."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.listeners: list[Listener] = []
        self._sweeper: asyncio.TimerHandle | None = None
        _take_all_descriptors()

    def listen(self, host: str, port: int, door: Door) -> Listener:
        """Listen on an address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return self.listen_on(door, _bound(sock, (host, port)))

    def listen_unix(self, path: str, vm: str) -> Listener:
        """Listen on a unix socket that belongs to one VM; OSError where somebody does already."""
        if _is_left_behind(path):
            Path(path).unlink()
        sock = _bound(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)
        return self.listen_on(Door(vm=vm), sock)

    def listen_on(self, door: Door, sock: socket.socket) -> Listener:
        """Listen on a socket that is bound already."""
        listener = Listener(self.worker, door, sock)
        self.listeners.append(listener)
        if self._sweeper is None:
            self._sweep()
        return listener

    def _sweep(self) -> None:
        self.worker.sweep()
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def close_doors(self) -> None:
        """Listen no more."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()

    def close(self) -> None:
        """Listen no more, and end every connection."""
        self.close_doors()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self.worker.connections):
            connection.end()


def _is_left_behind(path: str) -> bool:
    """Whether there is a socket at whose other end nobody listens any more."""
    if not Path(path).is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.setblocking(False)  # noqa: FBT003
        return visitor.connect_ex(path) == errno.ECONNREFUSED


def _take_all_descriptors() -> None:
    """Each connection takes a descriptor: have as many as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _bound(sock: socket.socket, address: tuple[str, int] | str) -> socket.socket:
    """The socket, bound to this address; closed where that cannot be."""
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
