"""Print every number with its limit; the exit code says whether all limits hold."""

import argparse
import platform
import sys
from collections.abc import Iterator

from bench import (
    board,
    cloud,
    durability,
    endpoint,
    guest,
    guest_agent,
    kit,
    memory,
    nodes,
    rollouts,
    single_vm,
)
from bench import front_door as up
from bench.numbers import LeftOut, Number


def law(*, quick: bool) -> Iterator[Number]:
    """The numbers of the law."""
    if quick:
        yield from single_vm.measure(vms=10_000, rounds=5, batches=10)
        yield from memory.measure(vms=10_000)
        yield from rollouts.measure(vms=10_000, settings=(1, 10, 100))
    else:
        yield from single_vm.measure(vms=100_000, rounds=9, batches=25)
        yield from memory.measure(vms=100_000)
        yield from rollouts.measure(vms=100_000, settings=(1, 100, 1_000))
    yield from rollouts.measure_one_by_one(vms=10_000, nodes_at_once=100)


def metadata_endpoint(*, quick: bool) -> Iterator[Number | LeftOut]:
    """The numbers of the metadata endpoint."""
    if quick:
        yield from board.measure(vms=10_000, publications=200)
        yield from endpoint.measure(vms=10_000, rounds=3, seconds=1, waits=1_000)
    else:
        yield from board.measure(vms=100_000, publications=1_000)
        yield from endpoint.measure(vms=100_000, rounds=9, seconds=3, waits=10_000)


def durable_service(*, quick: bool) -> Iterator[Number | LeftOut]:
    """The numbers of the service that remembers: conductor, stores, drivers."""
    if quick:
        yield from durability.measure(
            durability.Sizes(
                rounds=3, commanding_seconds=3, changes=200, starts=(100_000,), idle_seconds=5
            )
        )
        yield LeftOut("start with 1,000,000 VMs", "takes three minutes, not with --quick")
    else:
        yield from durability.measure(
            durability.Sizes(
                rounds=5,
                commanding_seconds=5,
                changes=500,
                starts=(100_000, 1_000_000),
                idle_seconds=30,
            )
        )


def front_door(*, quick: bool) -> Iterator[Number]:  # noqa: ARG001 - it is short anyway
    """How long a person waits for `make up`."""
    yield from up.measure()


def test_kit(*, quick: bool) -> Iterator[Number]:
    """How long tests with a cloud take."""
    yield from kit.measure(rounds=3, tests=200) if quick else kit.measure(rounds=9)


def guest_side(*, quick: bool) -> Iterator[Number]:
    """What the programs in a VM cost."""
    yield from guest.measure_import(rounds=5 if quick else 15)
    if quick:
        yield from guest_agent.measure(idle_seconds=10, rounds=9)
    else:
        yield from guest_agent.measure(idle_seconds=60, rounds=25)


def several(*, quick: bool) -> Iterator[Number | LeftOut]:
    """The numbers of several processes on one database."""
    if quick:
        yield from cloud.measure(rounds=3, changes=200, takeovers=3)
    else:
        yield from cloud.measure(rounds=5, changes=500, takeovers=11)


def endpoints_of_nodes(*, quick: bool) -> Iterator[Number | LeftOut]:
    """What one endpoint per node costs, there and at the control plane."""
    if quick:
        yield from nodes.measure(vms=10_000, rounds=3, followers=100, seconds=10)
    else:
        yield from nodes.measure(vms=100_000, rounds=5, followers=500, seconds=30)


PARTS = {
    "law": law,
    "endpoint": metadata_endpoint,
    "durability": durable_service,
    "up": front_door,
    "kit": test_kit,
    "guest": guest_side,
    "cloud": several,
    "nodes": endpoints_of_nodes,
}


def numbers(part: str | None, *, quick: bool) -> Iterator[Number | LeftOut]:
    """Every number, or those of one part, each as soon as it is measured."""
    for name, measure in PARTS.items():
        if part in (None, name):
            yield from measure(quick=quick)


def main() -> int:
    """Measure and print; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=list(PARTS), help="only this; all if none")
    parser.add_argument("--quick", action="store_true", help="smaller fleets, fewer rounds")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}; median, lowest to highest")
    if options.quick:
        print("smaller and shorter, to try out: the limits are those of the whole")
    missed, left_out = [], []
    for number in numbers(options.part, quick=options.quick):
        print(number, flush=True)
        if isinstance(number, LeftOut):
            left_out.append(number.name)
        elif not number.holds:
            missed.append(number.name)
    print(f"missed: {', '.join(missed)}" if missed else "all limits hold")
    if left_out:
        print(f"not measured: {', '.join(left_out)}")
    return 1 if missed else 0


sys.exit(main())
