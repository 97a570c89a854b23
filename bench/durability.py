"""What it costs that nothing is lost: commands, documents, starts, and doing nothing."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import commits, idling, showing, starting
from bench.numbers import LeftOut, Number

VMS = 10_000


class Sizes(NamedTuple):
    """How much is measured."""

    rounds: int
    commanding_seconds: float
    changes: int
    # So many VMs are there when it starts.
    starts: tuple[int, ...]
    idle_seconds: float


def measure(sizes: Sizes) -> Iterator[Number | LeftOut]:
    """Every number of the service, each in processes of its own and on databases of its own."""
    with tempfile.TemporaryDirectory(prefix="fairnotice-bench-") as name:
        folder = Path(name)
        yield from commits.measure(folder, VMS, sizes.rounds, sizes.commanding_seconds)
        yield from showing.measure(folder, VMS, sizes.rounds, sizes.changes)
        for vms in sizes.starts:
            yield from starting.measure(folder, vms, sizes.rounds)
        yield from idling.measure(folder, VMS, sizes.idle_seconds)
