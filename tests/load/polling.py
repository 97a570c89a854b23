"""Very many VMs that poll: `python -m tests.load.polling HOST:PORT --vms 10000 --seconds 300`.

Each VM comes from an address of its own in 127.69.0.0/16, on a connection that it keeps, and asks
once a second, unless it still waits for an answer; their turns are spread evenly over the second.
One line of JSON says that all are connected. At the end another says what was asked and answered,
what went wrong, how long answers took, and, in the file `--seen`, which VM was shown which event.
"""

import argparse
import json
import random
import re
import resource
import select
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

REQUEST = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
)
ANSWERED = b"HTTP/1.1 200 "
LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
EVENT_ID = re.compile(rb'"EventId": ?"([^"]+)"')
RECEIVE_BYTES = 65_536
# An answer that takes longer has failed, whenever it comes.
LATE_SECONDS = 5.0
# Of so many answers one is timed, chosen by chance: a fixed beat might fall in with another one.
TIMED_ONE_IN = 50
ENDING_SECONDS = 5.0


def address_of(number: int) -> str:
    """The address that only the VM of this number has."""
    return f"127.69.{number >> 8}.{number & 255}"


class Vm:
    """One VM: its connection, what it waits for, what it has been shown."""

    __slots__ = ("asked_at", "body", "number", "pending", "received", "seen", "sock", "turn")

    def __init__(self, number: int, turn: int, sock: socket.socket) -> None:
        self.number = number
        self.turn = turn
        self.sock = sock
        self.asked_at = 0.0
        # Requests that are not answered yet, and what has come of the next answer.
        self.pending = 0
        self.received = b""
        self.body = b""
        self.seen: set[str] = set()


class Polling:
    """All of them, in one loop."""

    def __init__(self, place: tuple[str, int], numbers: range) -> None:
        self.place = place
        self.poller = select.epoll()
        self.vms: dict[int, Vm] = {}
        self.turns: list[Vm] = []
        self.asked = self.answered = self.left_out = self.waited = 0
        self.errors: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self._chance = random.Random(numbers.start)
        for number in numbers:
            self.turns.append(self._connect(number, len(self.turns)))

    def _connect(self, number: int, turn: int) -> Vm:
        sock = socket.socket()
        # Without this the kernel looks for a port among those of all addresses.
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((address_of(number), 0))
        sock.connect(self.place)
        sock.setblocking(False)  # noqa: FBT003 - the socket module's own
        vm = self.vms[sock.fileno()] = Vm(number, turn, sock)
        self.poller.register(sock.fileno(), select.EPOLLIN)
        return vm

    def poll_for(self, seconds: float, per_second: float) -> None:
        """So many polls a second in all, for so long; then wait for the last answers."""
        began = time.perf_counter()
        turn = 0
        while (passed := time.perf_counter() - began) < seconds:
            due = int(passed * per_second)
            # No VM asks twice at once because this machine had no time for it: what was not
            # asked is counted apart.
            late = max(0, due - turn - len(self.turns))
            self.left_out += late
            for one in range(turn + late, due):
                self._ask(self.turns[one % len(self.turns)])
            turn = due
            self._take_answers(0.001)
        ends_at = time.perf_counter() + ENDING_SECONDS
        while any(vm.pending for vm in self.turns) and time.perf_counter() < ends_at:
            self._take_answers(0.01)
        self.errors["unanswered"] += sum(vm.pending for vm in self.turns)

    def _ask(self, vm: Vm) -> None:
        if vm.pending:
            # As a client does: it has no answer yet. Only the first may take its time.
            self.waited += bool(vm.body)
            return
        self.asked += 1
        vm.pending += 1
        vm.asked_at = time.perf_counter()
        try:
            vm.sock.send(REQUEST)
        except OSError as error:
            self._lost(vm, type(error).__name__)

    def _take_answers(self, wait_seconds: float) -> None:
        for fileno, _ in self.poller.poll(wait_seconds):
            vm = self.vms[fileno]
            try:
                data = vm.sock.recv(RECEIVE_BYTES)
            except OSError as error:
                self._lost(vm, type(error).__name__)
                continue
            if data:
                self._received(vm, data)
            else:
                self._lost(vm, "closed by the server")

    def _lost(self, vm: Vm, why: str) -> None:
        """Count it, and begin anew: one connection must not spoil the rest of the run."""
        self.errors[why] += 1
        self.poller.unregister(vm.sock.fileno())
        del self.vms[vm.sock.fileno()]
        vm.sock.close()
        anew = self.turns[vm.turn] = self._connect(vm.number, vm.turn)
        anew.seen = vm.seen

    def _received(self, vm: Vm, data: bytes) -> None:
        data = vm.received + data
        while data:
            end = _end_of_answer(data)
            if end is None:
                break
            self._answer(vm, data[:end])
            data = data[end:]
        vm.received = data

    def _answer(self, vm: Vm, answer: bytes) -> None:
        self.answered += 1
        vm.pending -= 1
        if not answer.startswith(ANSWERED):
            self.errors[answer.split(b"\r\n", 1)[0].decode("latin-1")] += 1
            return
        if self._chance.randrange(TIMED_ONE_IN) == 0:
            self.milliseconds.append((time.perf_counter() - vm.asked_at) * 1e3)
        if vm.body and time.perf_counter() - vm.asked_at > LATE_SECONDS:
            self.errors["late"] += 1
        body = answer[answer.index(b"\r\n\r\n") + 4 :]
        if body != vm.body:
            vm.body = body
            vm.seen.update(one.decode("ascii") for one in EVENT_ID.findall(body))

    def summary(self) -> dict[str, object]:
        """What came of it."""
        cuts = quantiles(self.milliseconds, n=100) if len(self.milliseconds) > 1 else [0.0] * 99
        return {
            "asked": self.asked,
            "left_out": self.left_out,
            "still_waited": self.waited,
            "answered": self.answered,
            "errors": {what: count for what, count in self.errors.items() if count},
            "median_ms": round(cuts[49], 3),
            "p99_ms": round(cuts[98], 3),
        }


# Linux' number of it, which the socket module lacks before Python 3.12.
IP_BIND_ADDRESS_NO_PORT = 24


def _end_of_answer(data: bytes) -> int | None:
    """Where the first answer ends; None while some of it is missing."""
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return None
    found = LENGTH.search(data, 0, head + 2)
    end = head + 4 + (int(found[1]) if found else 0)
    return end if end <= len(data) else None


def main() -> None:
    """Poll."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.polling", description=__doc__)
    parser.add_argument("place", metavar="HOST:PORT")
    parser.add_argument("--vms", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seen", type=Path, help="write what was seen here, a line per VM")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, _, port = options.place.rpartition(":")
    numbers = range(options.first, options.first + options.vms)
    polling = Polling((host, int(port)), numbers)
    _say({"connected": len(numbers)})
    polling.poll_for(options.seconds, per_second=options.vms)
    if options.seen is not None:
        lines = (f"{vm.number} {' '.join(sorted(vm.seen))}\n" for vm in polling.turns if vm.seen)
        options.seen.write_text("".join(lines), "ascii")
    _say(polling.summary())


def _say(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
