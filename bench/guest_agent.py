"""What an agent costs that has nothing to do, and how soon its first handler runs.

The agent is a process of its own, as `fairnotice agent run` starts it; its endpoint is a cloud in
this one. Where the endpoint is not to wait, a fault is on that changes the document: then answers
come at once, and the agent asks once a second.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.numbers import Number
from bench.processes import Process
from fairnotice.agent import journal
from fairnotice.testing import Cloud

RESIDENT_MB_MAX = 28
CORE_PERCENT_MAX = 0.3
WAITING_MILLISECONDS_MAX = 50
POLL_MILLISECONDS = 1_000
VM = "web-0"
SETTLING_SECONDS = 3.0
CONFIG = """
state = "{folder}/state"
ready_file = "{folder}/ready"

[[rule]]
prepare = ["first"]
acknowledge = "never"

[handler.first]
kind = "command"
prepare = ["sh", "-c", "echo > {folder}/runs"]
"""


def measure(idle_seconds: float, rounds: int) -> Iterator[Number]:
    """Idle at 1 Hz, and from the announcement to the first handler, with and without waiting."""
    with _agent(waiting=False) as (process, cloud, folder):
        process.still_runs(SETTLING_SECONDS)
        used, began = process.cpu_seconds(), time.perf_counter()
        polls = len(cloud.requests)
        process.still_runs(idle_seconds)
        seconds = time.perf_counter() - began
        share = (process.cpu_seconds() - used) / seconds
        yield Number(
            name="agent, idle: polls of its VM",
            values=[(len(cloud.requests) - polls) / seconds],
            unit="per s",
        )
        yield Number(
            name="  CPU",
            values=[share * 100],
            unit="% of core",
            at_most=CORE_PERCENT_MAX,
        )
        yield Number(
            name="  resident memory, at its most",
            values=[process.resident_bytes_max() / 1e6],
            unit="MB",
            at_most=RESIDENT_MB_MAX,
        )
        yield Number(
            name="announced to first handler running, polling at 1 Hz",
            values=[_first_handler(cloud, folder) for _ in range(rounds)],
            unit="ms",
            at_most=POLL_MILLISECONDS + WAITING_MILLISECONDS_MAX,
        )
    with _agent(waiting=True) as (process, cloud, folder):
        process.still_runs(SETTLING_SECONDS)
        yield Number(
            name="announced to first handler running, waiting",
            values=[_first_handler(cloud, folder) for _ in range(rounds)],
            unit="ms",
            at_most=WAITING_MILLISECONDS_MAX,
        )


@contextmanager
def _agent(*, waiting: bool) -> Iterator[tuple[Process, Cloud, Path]]:
    with tempfile.TemporaryDirectory() as made, Cloud() as cloud:
        folder = Path(made)
        os.mkfifo(folder / "runs")
        (folder / "agent.toml").write_text(CONFIG.format(folder=folder), "utf-8")
        if not waiting:
            cloud.fault("control-characters", vm=VM)
        where = ["env", f"FAIRNOTICE_METADATA_URL={cloud.url_for(VM)}"]
        agent = [sys.executable, "-m", "fairnotice", "agent", "run", "--config"]
        process = Process([*where, *agent, str(folder / "agent.toml")], None, folder / "complaints")
        try:
            cloud.wait_until((folder / "ready").exists)
            yield process, cloud, folder
        finally:
            process.end()


def _first_handler(cloud: Cloud, folder: Path) -> float:
    """Milliseconds from asking for a restart to the handler's first command."""
    began = time.perf_counter()
    event = cloud.vm(VM).restart()
    with (folder / "runs").open("rb") as runs:
        runs.read()
    took = (time.perf_counter() - began) * 1_000
    event.cancel()
    cloud.wait_until(lambda: all(one.over for one in journal.read(folder / "state").values()))
    return took
