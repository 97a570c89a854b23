"""One of several control planes in a process of its own, for tests that stop and kill it.

`python -m tests.conductor.member FOLDER STORE_URL NUMBER` joins the others on this store. FOLDER is
a disk that they share: each impact adds its key to FOLDER/ledger, and the epoch of whoever ordered
it to FOLDER/epochs. It says its ports when it is ready to be asked:

    {"control": 40001, "metadata": 40002}

Where FOLDER/stop is, it stops itself just before the next impact, which it orders when it goes on;
FOLDER/late has a line for each of those: its epoch, and what its driver said.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

import uvloop

from fairnotice.clock import SystemClock
from fairnotice.control.passing_on import Cluster
from fairnotice.control.running import LOOPBACK, Place, Plan, running
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.command.settings import CommandSettings
from fairnotice.stores.opening import open_lease, open_store
from fairnotice.words import ImpactKind
from tests.conductor.victim import TIMING
from tests.ports import own_port

LEASE_SECONDS = 2.5


class Stopping(CommandDriver):
    """Stops its process, where it is told to, between the decision and the deed."""

    def __init__(self, folder, settings, clock):
        super().__init__(settings, clock)
        self._stop, self._late = folder / "stop", folder / "late"

    async def impact(self, order, epoch):
        if not self._stop.exists():
            return await super().impact(order, epoch)
        self._stop.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
        # Not to be taken back by whoever has noticed meanwhile that the lead is lost.
        late = asyncio.ensure_future(super().impact(order, epoch))
        late.add_done_callback(lambda done: self._tell(epoch, done.exception()))
        return await asyncio.shield(late)

    def _tell(self, epoch, error):
        with self._late.open("a") as file:
            file.write(f"{epoch} {type(error).__name__}\n")


def driver(folder):
    """The operator's command writes down for whom it is done, takes a moment, and is done."""
    deed = 'cd "$0"; echo "$FAIRNOTICE_KEY" >>ledger; echo "$FAIRNOTICE_EPOCH" >>epochs; sleep 0.05'
    settings = CommandSettings(
        commands=dict.fromkeys(ImpactKind, ("sh", "-c", deed, str(folder))),
        state_directory=folder / "state",
    )
    return Stopping(folder, settings, SystemClock())


async def live(folder, url):
    """Serve until told to end, and then resign."""
    # Known before anything listens there: the others are told of it.
    control = Place(LOOPBACK, own_port())
    address = f"http://{control}"
    plan = Plan(
        open_store(url),
        driver(folder),
        SystemClock(),
        TIMING,
        metadata=Place(LOOPBACK, 0),
        control=control,
        rate_limit=None,
        cluster=Cluster(open_lease(url, address, LEASE_SECONDS)),
    )
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    async with running(plan) as run:
        said = {"control": run.control.port, "metadata": run.metadata.port}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        await ending.wait()


if __name__ == "__main__":
    _, where, store_url, number = sys.argv
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s {number} %(name)s %(message)s", stream=sys.stderr
    )
    uvloop.run(live(Path(where), store_url))
