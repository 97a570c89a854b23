"""VMs that ask a service: `python -m bench.pollers steady|passing|changing --port 80 --count 1000`.

Each VM comes from its own loopback address, on a connection that it keeps; before anything else
each asks once. `steady`: they take turns, 5,000 polls a second in all, and for each line that
comes in it is said how many were answered since the last. `passing`: for each line, every VM asks
once. `changing`: for each line, one VM after the other is restarted, or its restart taken back, by
a command on the service's socket, and from the answer on the VM asks until it is served the new
document.
"""

import argparse
import json
import re
import select
import socket
import sys
import time
from pathlib import Path

from bench.endpoint_process import ADDRESS, address_of, allow_many_connections
from bench.processes import Process
from bench.service_process import Commands

POLL = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
)
ANSWERED = b"HTTP/1.1 200 "
POLLS_PER_SECOND = 5_000
# A little more is asked than is promised, because the last few are still on their way.
ASKED_PER_SECOND = POLLS_PER_SECOND * 1.02
# So many ask at the same time when all do.
TOGETHER = 250
RECEIVE_BYTES = 65_536
# Commands a second, at most: others want to be heard as well.
CHANGES_PER_SECOND = 50


def start_pollers(
    kind: str, *, port: int, vms: range, core: int, folder: Path, commands: Path | None = None
) -> Process:
    """Such a process, on this core."""
    command = [sys.executable, "-m", "bench.pollers", kind, "--port", str(port)]
    command += ["--first", str(vms.start), "--count", str(len(vms))]
    if commands is not None:
        command += ["--commands", str(commands)]
    return Process(command, core, folder / f"{kind}.log")


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Pollers:
    """The VMs, each on its connection."""

    def __init__(self, port: int, vms: range) -> None:
        self.vms = vms
        self.sockets = [
            socket.create_connection((ADDRESS, port), source_address=(address_of(number), 0))
            for number in vms
        ]
        self.ask_all()
        _say(connected=len(vms))

    def ask_all(self) -> None:
        """Each asks once."""
        for start in range(0, len(self.sockets), TOGETHER):
            together = self.sockets[start : start + TOGETHER]
            for one in together:
                one.sendall(POLL)
            for one in together:
                _read(one)


def _read(sock: socket.socket) -> bytes:
    """One answer, and nothing after it."""
    answer = sock.recv(RECEIVE_BYTES)
    assert answer.startswith(ANSWERED), f"not the document: {answer!r}"
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += sock.recv(RECEIVE_BYTES)
    return body


# ---- Steady ----


def be_steady(pollers: Pollers) -> None:
    """So many polls a second, until standard input ends."""
    sockets = {one.fileno(): one for one in pollers.sockets}
    turns = list(sockets.values())
    poller = select.epoll()
    for fileno in (*sockets, sys.stdin.fileno()):
        poller.register(fileno, select.EPOLLIN)
    began = since = time.perf_counter()
    asked = answered = 0
    while True:
        due = int((time.perf_counter() - began) * ASKED_PER_SECOND)
        for number in range(asked, due):
            turns[number % len(turns)].send(POLL)
        asked = due
        for fileno, _ in poller.poll(0.001):
            if fileno in sockets:
                answered += sockets[fileno].recv(RECEIVE_BYTES).count(ANSWERED)
            elif sys.stdin.readline():
                now = time.perf_counter()
                _say(per_second=answered / (now - since))
                since, answered = now, 0
            else:
                return


# ---- Passing ----


def pass_by(pollers: Pollers) -> None:
    """Once each, as often as a line comes in."""
    for _ in sys.stdin:
        pollers.ask_all()
        _say(asked=len(pollers.sockets))


# ---- Changing ----


def change(pollers: Pollers, commands: Commands) -> None:
    """For each number that comes in, so many changes: milliseconds to the answer, and from it."""
    number = 0
    for line in sys.stdin:
        until_answer, until_shown = [], []
        began = time.perf_counter()
        for turn in range(json.loads(line)["changes"]):
            _sleep_until(began + turn / CHANGES_PER_SECOND)
            place = number // 2 % len(pollers.vms)
            what = {"id": f"change-{number // 2}", "vm": f"vm-{pollers.vms[place]:06}"}
            asked_at = time.perf_counter()
            answer = commands.ask(do="cancel" if number % 2 else "restart", **what)
            answered_at = time.perf_counter()
            shown_at = _shown_at(pollers.sockets[place], answer["incarnation"])
            until_answer.append((answered_at - asked_at) * 1e3)
            until_shown.append((shown_at - answered_at) * 1e3)
            number += 1
        _say(until_answer=until_answer, until_shown=until_shown)


def _shown_at(sock: socket.socket, incarnation: int) -> float:
    """When the first byte of this document, or a later one, was here."""
    while True:
        sock.sendall(POLL)
        select.select([sock], [], [])
        first_byte_at = time.perf_counter()
        found = re.search(rb'"DocumentIncarnation": ?(\d+)', _read(sock))
        assert found is not None
        if int(found[1]) >= incarnation:
            return first_byte_at


def _sleep_until(instant: float) -> None:
    remaining = instant - time.perf_counter()
    if remaining > 0:
        select.select([], [], [], remaining)


def main() -> None:
    """Ask."""
    parser = argparse.ArgumentParser(prog="python -m bench.pollers", description=__doc__)
    parser.add_argument("kind", choices=("steady", "passing", "changing"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--commands", type=Path)
    options = parser.parse_args()
    allow_many_connections()
    pollers = Pollers(options.port, range(options.first, options.first + options.count))
    if options.kind == "steady":
        be_steady(pollers)
    elif options.kind == "passing":
        pass_by(pollers)
    else:
        change(pollers, Commands(options.commands))


if __name__ == "__main__":
    main()
