"""Asks a real endpoint, and writes down what it answers: by itself, or for a client in front."""

import socket
import threading
from collections.abc import Callable
from io import BytesIO
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

from fairnotice import __version__
from fairnotice.clock import Clock
from fairnotice.errors import Unavailable, UsageError
from fairnotice.testing.recordings.answering import (
    AnsweringServer,
    Call,
    Said,
    is_chunked,
    said,
    unchunked,
)
from fairnotice.testing.recordings.private_names import PrivateNames
from fairnotice.testing.recordings.recording import (
    Answer,
    Asked,
    Exchange,
    Failure,
    Opening,
    Writer,
)

PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"
# The newest that every endpoint has had for years.
INSTANCE_VERSION = "2021-02-01"
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_RECEIVE_BYTES = 64 * 1024
_CONTINUE = 100
_NO_BODY = (204, 304)
_BEGINNING = b"HTTP/"
_END = b"\r\n\r\n"
# Of a client's request: these belong to its connection, and with these an answer would not be
# whole (304) or not readable (gzip).
_NOT_PASSED_ON = frozenset(
    b"accept-encoding connection content-length expect host if-none-match keep-alive prefer "
    b"proxy-connection te trailer transfer-encoding upgrade".split()
)


class Endpoint(NamedTuple):
    """Where the real endpoint is: `http://HOST[:PORT][/PREFIX]`."""

    host: str
    port: int
    prefix: str
    authority: str

    @classmethod
    def of(cls, url: str) -> "Endpoint":
        """The endpoint of a URL; UsageError where it is none that can be asked."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        fits = url.isascii() and url.isprintable() and " " not in url
        if host is None or parts.scheme != "http" or parts.query or not fits:
            raise UsageError(f"{url!r} is no address of an endpoint. Give http://HOST:PORT.")
        return cls(host, port or 80, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2])


# ---- One request ----


def ask(endpoint: Endpoint, asked: Asked, seconds_max: float, clock: Clock) -> Answer:
    """What the endpoint answers, as it comes; whatever fails is an answer too. No proxy is asked.

    Only the connection is ours; the answer may take so many seconds in all.
    """
    limit = clock.monotonic() + seconds_max
    try:
        connection = socket.create_connection((endpoint.host, endpoint.port), seconds_max)
    except TimeoutError:
        return Answer(failure=Failure.TIMED_OUT)
    except ConnectionRefusedError:
        return Answer(failure=Failure.REFUSED)
    except (OSError, UnicodeError):
        return Answer(failure=Failure.UNREACHABLE)
    with connection:
        return _received(connection, _request(endpoint, asked), asked.method, limit, clock)


def _request(endpoint: Endpoint, asked: Asked) -> bytes:
    target = (endpoint.prefix + asked.target).encode("latin-1", "replace")
    first = b"%s %s HTTP/1.1" % (asked.method.encode("latin-1"), target)
    lines = [first, b"Host: " + endpoint.authority.encode(), *asked.head]
    return b"\r\n".join((*lines, b"", asked.body))


def _received(
    connection: socket.socket, request: bytes, method: str, limit: float, clock: Clock
) -> Answer:
    raw = bytearray()
    try:
        connection.sendall(request)
        while len(raw) <= _ANSWER_BYTES_MAX:
            connection.settimeout(max(limit - clock.monotonic(), 0.001))
            part = connection.recv(_RECEIVE_BYTES)
            raw += part
            answer = read_answer(bytes(raw), method, ended=not part)
            if answer is not None:
                return answer
        failure = Failure.TOO_LARGE
    except TimeoutError:
        failure = Failure.TIMED_OUT
    except OSError:
        failure = Failure.DROPPED
    broken = read_answer(bytes(raw), method, ended=True) or Answer()
    return broken._replace(failure=failure)


def read_answer(raw: bytes, method: str, *, ended: bool) -> Answer | None:
    """The answer that these bytes are; None while more may come. `ended`: nothing more comes."""
    head, end, rest = raw.partition(_END)
    if not end or not raw.startswith(_BEGINNING):
        if not ended:
            return None
        # Also nothing at all is the beginning of an answer.
        begun = raw[: len(_BEGINNING)] == _BEGINNING[: len(raw)]
        return Answer((), raw, Failure.DROPPED if begun else Failure.GARBAGE)
    answer = Answer(tuple(head.split(b"\r\n")))
    if answer.status == _CONTINUE:
        return read_answer(rest, method, ended=ended)
    if method == "HEAD" or answer.status in _NO_BODY:
        return answer
    body, whole = _body(answer, rest, ended=ended)
    if not whole and not ended:
        return None
    return answer._replace(body=body, failure=Failure.NONE if whole else Failure.DROPPED)


def _body(answer: Answer, rest: bytes, *, ended: bool) -> tuple[bytes, bool]:
    if is_chunked(answer.header("transfer-encoding")):
        return unchunked(BytesIO(rest), _ANSWER_BYTES_MAX)
    length = answer.header("content-length") or b""
    if not length.isdigit():
        # It goes on until the connection ends.
        return rest, ended
    return rest[: int(length)], len(rest) >= int(length)


# ---- The recorder ----


class Counted(NamedTuple):
    """What a recording has so far."""

    answers: int = 0
    changes: int = 0
    failures: int = 0


class Recorder:
    """Writes exchanges into a file as they happen; each line is on its way before the next."""

    def __init__(
        self,
        endpoint: Endpoint,
        file: BinaryIO,
        clock: Clock,
        *,
        names: PrivateNames | None = None,
        only_changes: bool = False,
        seconds_max: float = 150.0,
    ) -> None:
        self.counted = Counted()
        self._endpoint = endpoint
        self._file = file
        self._clock = clock
        self._names = names or PrivateNames()
        self._writer = Writer(only_changes=only_changes)
        self._seconds_max = seconds_max
        self._began = clock.monotonic()
        # Set when nothing can be written any more.
        self.stopped = threading.Event()
        # A proxy's clients write from several threads.
        self._lock = threading.Lock()
        self._before: dict[Asked, tuple[bytes, Failure]] = {}

    @property
    def seconds(self) -> float:
        """How long it has been recording."""
        return self._clock.monotonic() - self._began

    def begin(self, url: str) -> None:
        """Write the first line."""
        self._began = self._clock.monotonic()
        opening = Opening(self._clock.wall(), self._names.url(url), f"fairnotice {__version__}")
        self._write(self._writer.opening(opening))

    def end(self) -> None:
        """Write the last line."""
        with self._lock:
            self._write(self._writer.end(self.seconds))

    def exchange(self, asked: Asked) -> Exchange:
        """Ask, and write down what came of it; what came, as it came."""
        at = self._clock.monotonic()
        answer = ask(self._endpoint, asked, self._seconds_max, self._clock)
        took = self._clock.monotonic() - at
        exchange = Exchange(at - self._began, took, asked, answer)
        with self._lock:
            cleaned = self._names.clean(exchange)
            self._count(cleaned)
            self._write(self._writer.line(cleaned))
        return exchange

    def _count(self, exchange: Exchange) -> None:
        answers, changes, failures = self.counted
        now = (exchange.answer.body, exchange.answer.failure)
        key = exchange.asked._replace(head=())
        changed = self._before.get(key) != now
        if exchange.asked.method == "GET":
            self._before[key] = now
        self.counted = Counted(
            answers + 1, changes + changed, failures + bool(exchange.answer.failure)
        )

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self.stopped.set()
            raise Unavailable(f"The recording cannot be written: {error.strerror}.") from error


# ---- By itself ----


def polls(version: str, *, instance: bool) -> list[Asked]:
    """What a client asks: the document of events; before it, the VM's own."""
    head = (b"Metadata: true", b"Accept: */*", f"User-Agent: fairnotice/{__version__}".encode())
    events = Asked("GET", f"{PATH}?api-version={quote(version)}", head)
    own = Asked("GET", f"{INSTANCE_PATH}?api-version={INSTANCE_VERSION}", head)
    return [own, events] if instance else [events]


def poll(
    recorder: Recorder,
    asked: list[Asked],
    *,
    every_seconds: float,
    clock: Clock,
    for_seconds: float | None = None,
    tell: Callable[[Exchange], None] = lambda _: None,
) -> None:
    """Ask for the last of these again and again; for those before it once."""
    *once, again = asked
    began = clock.monotonic()
    pause = threading.Event()
    for request in once:
        tell(recorder.exchange(request))
    due = clock.monotonic()
    while for_seconds is None or due - began < for_seconds:
        pause.wait(max(due - clock.monotonic(), 0))
        tell(recorder.exchange(again))
        # A slow answer makes the next request late; it does not make several at once.
        due = max(due + every_seconds, clock.monotonic())


# ---- For a client ----


def recording_proxy(
    recorder: Recorder,
    place: tuple[str, int],
    clock: Clock,
    tell: Callable[[Exchange], None] = lambda _: None,
) -> AnsweringServer:
    """A server that passes on what a client asks, and the answer; both are written down."""

    def respond(call: Call) -> Said:
        exchange = recorder.exchange(_passed_on(call))
        tell(exchange)
        return said(exchange.answer, call.raw)

    return AnsweringServer(place, respond, clock)


def _passed_on(call: Call) -> Asked:
    parts = urlsplit(call.raw.target)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    head = [
        b"%s: %s" % (name, value) for name, value in call.raw.headers if name not in _NOT_PASSED_ON
    ]
    if call.body or call.raw.method == "POST":
        head.append(b"Content-Length: %d" % len(call.body))
    return Asked(call.raw.method, target, tuple(head), call.body)
