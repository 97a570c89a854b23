"""The load test: `python -m tests.load --seconds 300`, part of `make soak`.

A control plane and an endpoint with two workers, as an operator runs them, and 20,000 VMs of one
node, each polling once a second, while a rollout goes over fifty other nodes. The VMs are in a
thousand availability sets, of which each has one more VM on one of those nodes: so every event of
the rollout is seen by twenty of the VMs that poll. At the end: no error, no event that a VM of its
scope was not shown, and no more memory than in the middle.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from tests.load.fleets import BIG_NODE, SMALL_NODES, fleet
from tests.load.service import Service

GENERATORS = 2
# What a process may have grown by between the middle of the run and its end.
GROWTH_MAX = 0.05


# How long before the end nothing new is begun: everybody has seen what was announced.
QUIET_SECONDS = 20.0

# Nobody sets it: it is waited for.
PAUSE = Event()


class Missed(Exception):
    """The load test found something."""


def main() -> int:
    """Run it; 0 where nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--vms", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairnotice-load-") as folder, ExitStack() as stack:
        run = Run(Path(folder), options.vms, options.seconds, stack)
        try:
            run.run()
        except Missed as missed:
            _say(f"FOUND: {missed}")
            return 1
    _say("nothing was missed")
    return 0


class Run:
    """One run, and what it watches."""

    def __init__(self, folder: Path, vms: int, seconds: float, stack: ExitStack) -> None:
        self.folder = folder
        self.vms = vms
        self.seconds = seconds
        self.stack = stack
        self.service = stack.enter_context(Service(folder, workers=2))

    def run(self) -> None:
        """Begin everything, watch, and look at what came of it."""
        self.service.apply(fleet(self.vms))
        self.service.start_endpoint(BIG_NODE)
        generators = [self._generator(number) for number in range(GENERATORS)]
        for generator in generators:
            _say(f"connected: {json.loads(generator.stdout.readline())['connected']:,} VMs")
        began = time.perf_counter()
        rollout = self._start_rollout()
        middle = self._watch(began, self.seconds / 2)
        self._watch(began, self.seconds - QUIET_SECONDS, rollout)
        end = self.service.resident_bytes()
        self._must_be_flat(middle, end)
        summaries = [json.loads(generator.stdout.readline()) for generator in generators]
        for summary in summaries:
            _say(json.dumps(summary))
        for summary in summaries:
            self._must_be_clean(summary)
        self._must_have_seen()

    def _generator(self, number: int) -> subprocess.Popen[bytes]:
        each = self.vms // GENERATORS
        line = [sys.executable, "-m", "tests.load.polling", self.service.metadata]
        line += ["--first", str(number * each), "--vms", str(each)]
        line += ["--seconds", str(self.seconds), "--seen", str(self._seen(number))]
        generator = subprocess.Popen(line, stdout=subprocess.PIPE)  # noqa: S603 - our own line
        self.stack.callback(generator.kill)
        return generator

    def _seen(self, number: int) -> Path:
        return self.folder / f"seen-{number}"

    def _start_rollout(self) -> str:
        # Nobody is known to listen before the first poll of each was recorded.
        PAUSE.wait(5)
        body = {"nodes": list(SMALL_NODES), "impact": "freeze", "duration_seconds": 1}
        body |= {"nodes_at_once_max": 5, "recovery_seconds": 1}
        started = self.service.ask("POST", "/v1/rollouts", body)
        return started["id"]

    def _watch(self, began: float, until: float, rollout: str = "") -> dict[str, int]:
        """Wait, and keep the fleet busy: when one rollout is over, the next begins."""
        while (passed := time.perf_counter() - began) < until:
            PAUSE.wait(min(5.0, until - passed))
            if rollout and self.service.ask("GET", f"/v1/rollouts/{rollout}")["ended_at"]:
                rollout = self._start_rollout()
        return self.service.resident_bytes()

    # ---- What must hold ----

    def _must_be_flat(self, middle: dict[str, int], end: dict[str, int]) -> None:
        for name, size in end.items():
            _say(f"{name}: {middle[name] / 1e6:.0f} MB in the middle, {size / 1e6:.0f} at the end")
            if size > middle[name] * (1 + GROWTH_MAX):
                raise Missed(f"{name} grows: {middle[name]} bytes, later {size}")

    def _must_be_clean(self, summary: dict[str, object]) -> None:
        unanswered = summary["answered"] != summary["asked"] or summary["still_waited"]
        if summary["errors"] or unanswered:
            raise Missed(f"errors: {summary}")

    def _must_have_seen(self) -> None:
        """Every VM that polled was shown every event of its scope."""
        seen: dict[str, set[int]] = {}
        for number in range(GENERATORS):
            for line in self._seen(number).read_text("ascii").splitlines():
                vm, *events = line.split()
                for event in events:
                    seen.setdefault(event, set()).add(int(vm))
        events = self.service.events()
        polling = self.service.polling_by_scope(self.vms)
        for event in events:
            missing = polling.get(event["scope"], set()) - seen.get(event["id"], set())
            if missing:
                raise Missed(f"{event['id']} of {event['scope']} was not shown to {missing}")
        unknown = seen.keys() - {event["id"] for event in events}
        if unknown:
            raise Missed(f"events that the control plane does not know: {unknown}")
        shown = sum(map(len, seen.values()))
        _say(f"{len(events):,} events, shown {shown:,} times")
        if not events:
            raise Missed("there was no event at all")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
