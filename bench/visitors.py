"""Many VMs in one process: `python -m bench.visitors waiting|slow|polling --port 80 --count 1000`.

Each VM comes from its own loopback address. `waiting`: told an ETag, all ask to be held until it
changes, and the last answer's instant is said. `slow`: each sends a byte of a request a second,
and connects anew when it is sent away. `polling`: they take turns, 200 polls a second in all, on
connections they keep, and every latency is said. The instants are those of the monotonic clock,
which the endpoint's process shares.
"""

import argparse
import json
import select
import socket
import sys
import time
from collections import deque
from pathlib import Path

from bench.endpoint_process import ADDRESS, address_of, allow_many_connections
from bench.processes import Process

POLL = b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
HEADERS = b"Host: 169.254.169.254\r\nMetadata: true\r\n"
WAIT_SECONDS = 60
POLLS_PER_SECOND = 200


def start_visitors(kind: str, *, port: int, count: int, core: int, complaints: Path) -> Process:
    """Such a process, on this core."""
    command = [sys.executable, "-m", "bench.visitors", kind]
    command += ["--port", str(port), "--count", str(count)]
    return Process(command, core, complaints)


def _connect(port: int, number: int) -> socket.socket:
    return socket.create_connection((ADDRESS, port), source_address=(address_of(number), 0))


def _is_whole(answer: bytes) -> bool:
    """Whether the answer has the length that it says."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    assert head.startswith(b"HTTP/1.1 200 "), f"not the document: {answer!r}"
    length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    return len(body) >= int(length)


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


# ---- Waiting ----


def wait(port: int, count: int) -> None:
    """For each ETag that comes in: be held `count` times, and say when the last was answered."""
    sockets: dict[int, socket.socket] = {}
    for line in sys.stdin:
        etag = json.loads(line)["etag"].encode()
        wish = b'If-None-Match: "%s"\r\nPrefer: wait=%d\r\n\r\n' % (etag, WAIT_SECONDS)
        request = POLL + HEADERS + wish
        for number in range(len(sockets), count):
            sock = _connect(port, number)
            sockets[sock.fileno()] = sock
            # An ETag counts only for a VM that has read the document.
            _ask(sock)
        for sock in sockets.values():
            sock.sendall(request)
        _say(asked=count)
        _say(last_at=_read_all(sockets))


def _read_all(sockets: dict[int, socket.socket]) -> float:
    """Read one whole answer from each; the instant of the last."""
    poller = select.epoll()
    for fileno in sockets:
        poller.register(fileno, select.EPOLLIN)
    answers = dict.fromkeys(sockets, b"")
    while answers:
        for fileno, _ in poller.poll():
            answers[fileno] += sockets[fileno].recv(65536)
            if _is_whole(answers[fileno]):
                del answers[fileno]
                poller.unregister(fileno)
    last_at = time.perf_counter()
    poller.close()
    return last_at


# ---- Slow ----


def be_slow(port: int, count: int) -> None:
    """One byte a second on each connection, evenly spread over the second, until ended."""
    request = POLL + HEADERS
    places = deque((number, _slow_one(port, number, request), 1) for number in range(count))
    _say(connected=count)
    began = time.perf_counter()
    sent = 0
    while True:
        number, sock, position = places.popleft()
        _sleep_until(began + sent / count)
        sent += 1
        if _is_sent_away(sock):
            sock.close()
            sock, position = _slow_one(port, number, request), 0
        else:
            sock.send(request[position : position + 1])
        places.append((number, sock, position + 1))


def _slow_one(port: int, number: int, request: bytes) -> socket.socket:
    sock = _connect(port, number)
    sock.send(request[:1])
    return sock


def _is_sent_away(sock: socket.socket) -> bool:
    """Whether there is an answer, to a request that was never finished, or the end."""
    try:
        sock.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def _sleep_until(instant: float) -> None:
    remaining = instant - time.perf_counter()
    if remaining > 0:
        select.select([], [], [], remaining)


# ---- Polling ----


def poll(port: int, count: int) -> None:
    """For each number of polls that comes in: poll so often, and say how long each took."""
    sockets = [_connect(port, number) for number in range(count)]
    for sock in sockets:
        _ask(sock)
    for line in sys.stdin:
        began = time.perf_counter()
        seconds = []
        for turn in range(json.loads(line)["polls"]):
            _sleep_until(began + turn / POLLS_PER_SECOND)
            asked_at = time.perf_counter()
            _ask(sockets[turn % count])
            seconds.append(time.perf_counter() - asked_at)
        _say(seconds=seconds)


def _ask(sock: socket.socket) -> None:
    sock.sendall(POLL + HEADERS + b"\r\n")
    answer = b""
    while not _is_whole(answer):
        answer += sock.recv(65536)


def main() -> None:
    """Visit."""
    parser = argparse.ArgumentParser(prog="python -m bench.visitors", description=__doc__)
    kinds = {"waiting": wait, "slow": be_slow, "polling": poll}
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    allow_many_connections()
    kinds[options.kind](options.port, options.count)


if __name__ == "__main__":
    main()
