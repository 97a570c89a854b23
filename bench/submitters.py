"""Those who command: `python -m bench.submitters --store URL --rounds 5 --seconds 5`.

64 tasks tell the stories of bench/stories.py to a conductor on this store, each command when the
one before is answered; machines do at once what they are told, and their outcomes are commands
too. A board is filled besides, as in a service. After each round one line of JSON says how many
commands were answered, each of them durable, and how long that took.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import uvloop

from bench.fleets import LISTENING
from bench.processes import Process
from bench.stories import (
    Story,
    Tale,
    delete_taken_back,
    fits,
    redeployed,
    restart_postponed,
    restart_taken_back,
    restarted,
    stopped_and_started,
)
from fairnotice.clock import SystemClock
from fairnotice.conductor.conductor import Conductor
from fairnotice.control.serving import Serving
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine import Decision, Refusal
from fairnotice.engine.commands import Command, ReportOutcome
from fairnotice.stores.opening import open_store

SUBMITTERS = 64

# Those of bench/stories.py that wait for no timer, in about the same proportions.
MIX: tuple[Callable[[Tale], Story], ...] = (
    *(restarted,) * 6,
    *(restart_taken_back, restart_postponed, stopped_and_started) * 2,
    *(redeployed,) * 3,
    delete_taken_back,
)


class CountingConductor(Conductor):
    """Counts commands that changed something, and tells who waits for an outcome that it is in."""

    answered = 0
    outcomes: dict[str, asyncio.Event] = {}  # noqa: RUF012 - there is one of them

    async def submit(self, command: Command) -> Decision | Refusal:
        """As any conductor does."""
        decision = await super().submit(command)
        assert isinstance(decision, Decision), f"refused: {decision}"
        # A tick that finds nothing to do has nothing to make durable.
        self.answered += bool(decision.changes)
        if isinstance(command, ReportOutcome):
            self.outcomes.setdefault(command.key, asyncio.Event()).set()
        return decision


class Submitters:
    """All of them, and the fleet that they command."""

    def __init__(self, conductor: CountingConductor) -> None:
        self.conductor = conductor
        self.chance = random.Random(1)
        self.names = list(conductor.fleet.vms)
        self.busy: set[str] = set()
        self.told: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self.until = 0.0

    async def round(self, seconds: float) -> dict[str, object]:
        """Command for so long; how many commands were answered, and in what time."""
        began, before = time.perf_counter(), self.conductor.answered
        self.until = began + seconds
        self.milliseconds.clear()
        await asyncio.gather(*(self._tell_stories() for _ in range(SUBMITTERS)))
        took = time.perf_counter() - began
        return {
            "commands": self.conductor.answered - before,
            "seconds": took,
            "median_ms": median(self.milliseconds),
            "p99_ms": quantiles(self.milliseconds, n=100)[-1],
        }

    async def _tell_stories(self) -> None:
        while time.perf_counter() < self.until:
            teller = self.chance.choice(MIX)
            vm = self._choose(teller)
            self.busy.add(vm)
            fleet = self.conductor.fleet
            await self._tell(teller(Tale(fleet, fleet.vms[vm], self.chance)))
            self.busy.discard(vm)

    def _choose(self, teller: Callable[[Tale], Story]) -> str:
        """Any VM that nobody tells a story of."""
        fleet = self.conductor.fleet
        while True:
            name = self.chance.choice(self.names)
            if name not in self.busy and fits(teller, fleet, fleet.vms[name]):
                return name

    async def _tell(self, story: Story) -> None:
        step = next(story)
        while step is not None:
            label, command = step
            self.told[label] += 1
            decision = None
            if isinstance(command, ReportOutcome):
                outcomes = self.conductor.outcomes
                await outcomes.setdefault(command.key, asyncio.Event()).wait()
                del outcomes[command.key]
            else:
                asked_at = time.perf_counter()
                answer = await self.conductor.submit(command)
                self.milliseconds.append((time.perf_counter() - asked_at) * 1e3)
                assert isinstance(answer, Decision)
                decision = answer
            try:
                step = story.send(decision)
            except StopIteration:
                return


async def conduct(url: str, rounds: int, seconds: float) -> None:
    """All rounds, after a short one that warms up."""
    clock = SystemClock()
    driver = SimulatedDriver(clock, durations=AT_ONCE)
    conductor = CountingConductor(open_store(url), driver, clock, LISTENING)
    Serving(conductor, clock)
    await conductor.start()
    submitters = Submitters(conductor)
    await submitters.round(seconds / 5)
    for _ in range(rounds):
        print(json.dumps(await submitters.round(seconds)), flush=True)
    print(json.dumps(submitters.told), file=sys.stderr)
    await conductor.close()


def start_submitters(url: str, rounds: int, seconds: float, complaints: Path) -> Process:
    """Such a process, on no core in particular: the store has work for another."""
    command = [sys.executable, "-m", "bench.submitters", "--store", url]
    command += ["--rounds", str(rounds), "--seconds", str(seconds)]
    return Process(command, None, complaints)


def main() -> None:
    """Command."""
    parser = argparse.ArgumentParser(prog="python -m bench.submitters", description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(conduct(options.store, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
