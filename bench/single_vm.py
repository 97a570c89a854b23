"""How long decide + apply of single-VM commands take, and whether that grows with the fleet.

Only `decide` and `apply` are under the stopwatch; choosing the command is not. The garbage
collector runs as Python ships it, and its pauses count. For the ratio both fleets are frozen out
of its sight (gc.freeze), so that the small one does not pay for the large one beside it.
"""

import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from statistics import median

from bench.fleets import listening, moment_after
from bench.numbers import Number
from bench.stories import MIX, Step, Story, Tale, fits
from fairnotice.engine import Decision, Fleet, decide
from fairnotice.engine.commands import Asked, Command, Tick
from fairnotice.engine.effects import Matter, Subject
from fairnotice.model import Moment, Vm

AT_LEAST_PER_SECOND = 10_000
RATIO_AT_MOST = 1.5
SMALL = 1_000

# So many VMs have something announced or under way at once.
STORIES_AT_ONCE = 40


class Timed:
    """A fleet, its clock, and how long each kind of command took in this round."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.now = moment_after(fleet)
        self.chance = random.Random(seed)
        self.names = list(fleet.vms)
        self.nanoseconds: defaultdict[str, list[int]] = defaultdict(list)

    def let_pass(self, passed: timedelta) -> None:
        """Time passes on both clocks."""
        wall, monotonic = self.now
        self.now = Moment(wall + passed, monotonic + passed.total_seconds())

    def carry_out(self, label: str, command: Command) -> Decision:
        """Decide and apply under the stopwatch."""
        fleet, now = self.fleet, self.now
        began = time.perf_counter_ns()
        decision = decide(fleet, command, now)
        if isinstance(decision, Decision):
            for change in decision.changes:
                fleet.apply(change)
        ended = time.perf_counter_ns()
        assert isinstance(decision, Decision), f"{label} was refused: {decision}"
        self.nanoseconds[label].append(ended - began)
        return decision

    def round(self, batches: int) -> dict[str, list[int]]:
        """Tell so many batches of stories; how many nanoseconds each command took, by label."""
        self.nanoseconds.clear()
        for _ in range(batches):
            self._forget(self._tell_all(list(self._stories())))
        return dict(self.nanoseconds)

    def _stories(self) -> Iterator[Story]:
        """A batch of stories of different VMs, in the proportions of the mix."""
        told = [story for story, times in MIX for _ in range(times)]
        told *= STORIES_AT_ONCE // len(told)
        chosen: set[str] = set()
        for story in told:
            vm = self._choose(story, chosen)
            chosen.add(vm.name)
            yield story(Tale(self.fleet, vm, self.chance))

    def _choose(self, story: Callable[[Tale], Story], chosen: set[str]) -> Vm:
        """Any VM that has no story yet and that this one can happen to."""
        while True:
            vm = self.fleet.vms[self.chance.choice(self.names)]
            if vm.name not in chosen and fits(story, self.fleet, vm):
                return vm

    def _tell_all(self, stories: list[Story]) -> list[str]:
        """Each story one command at a time, five minutes apart; the requests they made."""
        requests: list[str] = []
        turns: list[tuple[Story, Step]] = [(story, next(story)) for story in stories]
        while turns:
            self.chance.shuffle(turns)
            turns = [
                (story, following)
                for story, step in turns
                if (following := self._turn(story, step, requests)) is not _OVER
            ]
            self.let_pass(timedelta(minutes=5))
        return requests

    def _turn(self, story: Story, step: Step, requests: list[str]) -> Step:
        decision = None
        if step is not None:
            label, command = step
            decision = self.carry_out(label, command)
            if isinstance(command, Asked):
                requests.append(command.id)
        try:
            return story.send(decision)
        except StopIteration:
            return _OVER

    def _forget(self, requests: Iterable[str]) -> None:
        """A day later each operation is history: one more command each."""
        self.let_pass(timedelta(hours=25))
        for request in requests:
            subject = Subject(Matter.OPERATION, request)
            self.carry_out("Tick, forgets it", Tick(subjects=(subject,)))


# What a story yields when it has no more to say; no story yields an empty Tick itself.
_OVER: Step = ("over", Tick(subjects=()))


def measure(vms: int, rounds: int, batches: int) -> Iterator[Number]:
    """Commands a second in a large fleet, by kind too, and the ratio to a small one."""
    large = Timed(listening(vms), seed=1)
    gc.collect()
    large.round(batches)  # warms up
    times = [large.round(batches) for _ in range(rounds)]
    yield Number(
        name=f"single-VM commands, {vms:,} VMs",
        values=[_per_second(spent) for spent in times],
        unit="per s",
        at_least=AT_LEAST_PER_SECOND,
    )
    yield from _by_label(times)
    yield _ratio(large, Timed(listening(SMALL), seed=1), rounds, batches)


def _ratio(large: Timed, small: Timed, rounds: int, batches: int) -> Number:
    gc.collect()
    gc.freeze()
    small.round(batches)  # warms up
    ratios = [
        _per_second(small.round(batches)) / _per_second(large.round(batches)) for _ in range(rounds)
    ]
    gc.unfreeze()
    return Number(
        name=f"cost per command, {len(large.names):,} VMs to {SMALL:,} VMs",
        values=ratios,
        unit="times",
        at_most=RATIO_AT_MOST,
    )


def _per_second(spent: dict[str, list[int]]) -> float:
    commands = sum(len(times) for times in spent.values())
    return commands / sum(sum(times) for times in spent.values()) * 1e9


def _by_label(rounds: list[dict[str, list[int]]]) -> Iterator[Number]:
    """Of each kind of command, the median in each round."""
    for label in sorted(rounds[0]):
        count = len(rounds[0][label])
        yield Number(
            name=f"  {label} ({count:,} a round)",
            values=[median(spent[label]) / 1e3 for spent in rounds],
            unit="µs",
        )
