"""How much memory a fleet takes at rest, per VM, by tracemalloc: all that the fleet keeps alive.

Names and addresses count too, since the fleet alone holds them once the specification is gone.
"""

import gc
import tracemalloc
from collections.abc import Iterator

from bench.fleets import declared, listen
from bench.numbers import Number

KILOBYTES_AT_MOST = 1.5


def measure(vms: int) -> Iterator[Number]:
    """Kilobytes per VM with no scope enabled, then with all."""
    tracemalloc.start()
    before = _bytes_alive()
    fleet = declared(vms)
    yield _number("none", vms, _bytes_alive() - before)
    listen(fleet)
    yield _number("all", vms, _bytes_alive() - before)
    tracemalloc.stop()


def _bytes_alive() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _number(enabled: str, vms: int, held: int) -> Number:
    return Number(
        name=f"memory per VM, {vms:,} VMs, {enabled} of the scopes enabled",
        values=[held / vms / 1024],
        unit="KB",
        at_most=KILOBYTES_AT_MOST,
    )
