"""How long a service takes to start, and how much memory: from its exec until it serves.

All scopes are enabled, so that each has a timer. The database was written just before, so that
the system has its file in memory; on a cold disk the time to read it comes on top.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.databases import build
from bench.numbers import Number
from bench.service_process import start_service

GIGABYTE = 1e9


class Limit(NamedTuple):
    """What a start may cost."""

    seconds: float
    gigabytes: float | None = None


LIMITS = {100_000: Limit(3), 1_000_000: Limit(45, 3)}
# A start of more VMs than this is measured once or twice, not every round.
LARGE = 100_000
LARGE_STARTS = 2


def measure(folder: Path, vms: int, rounds: int) -> Iterator[Number]:
    """Seconds until ready, gigabytes resident at most."""
    path = folder / f"start-{vms}.db"
    build(f"sqlite:{path}", vms, enabled=True)
    starts = rounds if vms <= LARGE else min(rounds, LARGE_STARTS)
    seconds, gigabytes = zip(*(_start(folder, path) for _ in range(starts)), strict=True)
    path.unlink()
    limit = LIMITS[vms]
    yield Number(
        name=f"start with {vms:,} VMs, until it serves",
        values=seconds,
        unit="s",
        at_most=limit.seconds,
    )
    yield Number(name="  resident at most", values=gigabytes, unit="GB", at_most=limit.gigabytes)


def _start(folder: Path, path: Path) -> tuple[float, float]:
    began = time.perf_counter()
    service = start_service(f"sqlite:{path}", folder, None)
    try:
        service.listen()
        took = time.perf_counter() - began
        return took, service.resident_bytes_max() / GIGABYTE
    finally:
        service.end()
