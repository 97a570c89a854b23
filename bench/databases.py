"""Databases to start from: `python -m bench.databases --store sqlite:PATH --vms 1000 [--enabled]`.

A fleet as bench/fleets.py has it, declared now and written through the store in one commit, and
in a second one every scope enabled. In a process of its own, whose memory is gone afterwards.
Every VM has an address of its own in 127/8, so that one machine can be all of them.
"""

import argparse
import subprocess
import sys

from bench.endpoint_process import address_of
from bench.fleets import LISTENING, carry_out, specification
from fairnotice.clock import SystemClock
from fairnotice.engine import Fleet
from fairnotice.engine.commands import ApplyFleet, Command, Heard, ReportServed
from fairnotice.engine.specs import FleetSpec
from fairnotice.model import Moment
from fairnotice.stores.opening import open_store


def addressed(vms: int) -> FleetSpec:
    """The fleet's specification, on the loopback addresses."""
    spec = specification(vms)
    return spec._replace(
        vms=tuple(
            vm._replace(addresses=(address_of(number),)) for number, vm in enumerate(spec.vms)
        )
    )


def build(url: str, vms: int, *, enabled: bool) -> None:
    """Write such a fleet into the store of this URL, which must be empty."""
    line = [sys.executable, "-m", "bench.databases", "--store", url, "--vms", str(vms)]
    subprocess.run(line + ["--enabled"] * enabled, check=True)  # noqa: S603 - this file


def main() -> None:
    """Write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.databases", description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--vms", type=int, required=True)
    parser.add_argument("--enabled", action="store_true")
    options = parser.parse_args()
    clock, fleet = SystemClock(), Fleet(LISTENING)
    store = open_store(options.store)
    epoch = store.lead()

    def commit(command: Command) -> None:
        after = fleet.revision
        decision = carry_out(fleet, command, Moment(clock.wall(), clock.monotonic()))
        store.commit(epoch, after, decision.changes)

    commit(ApplyFleet(spec=addressed(options.vms)))
    if options.enabled:
        now = clock.wall()
        commit(ReportServed(heard=tuple(Heard(scope, now) for scope in fleet.scopes)))
    store.close()


if __name__ == "__main__":
    main()
