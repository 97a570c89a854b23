"""Print every number with its limit; the exit code says whether all limits hold."""

import argparse
import platform
import sys
from collections.abc import Iterator

from bench import memory, rollouts, single_vm
from bench.numbers import Number


def numbers(*, quick: bool) -> Iterator[Number]:
    """Every number, each as soon as it is measured."""
    if quick:
        yield from single_vm.measure(vms=10_000, rounds=5, batches=10)
        yield from memory.measure(vms=10_000)
        yield from rollouts.measure(vms=10_000, settings=(1, 10, 100))
    else:
        yield from single_vm.measure(vms=100_000, rounds=9, batches=25)
        yield from memory.measure(vms=100_000)
        yield from rollouts.measure(vms=100_000, settings=(1, 100, 1_000))
    yield from rollouts.measure_one_by_one(vms=10_000, nodes_at_once=100)


def main() -> int:
    """Measure and print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the fleet, fewer rounds")
    quick = parser.parse_args().quick
    print(f"Python {platform.python_version()}, {platform.machine()}; median, lowest to highest")
    if quick:
        print("a tenth of the fleet, to try out: the limits are those of the whole")
    missed = []
    for number in numbers(quick=quick):
        print(number, flush=True)
        if not number.holds:
            missed.append(number.name)
    print(f"missed: {', '.join(missed)}" if missed else "all limits hold")
    return 1 if missed else 0


sys.exit(main())
