"""How long tests with a cloud take: its set-up, a thousand tests, a simulated week."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from bench.numbers import Number
from fairnotice.testing import Cloud

TESTS = 1_000
NODES, VMS = 20, 100
DAYS = 7
RESTARTS_A_DAY = 10

# A test as people write them: a client asks over HTTP, time passes, the end is checked.
TEST = """
import json
import urllib.request
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_it(fairnotice_cloud, number):
    event = fairnotice_cloud.vm("web-0").restart()
    url = fairnotice_cloud.url_for("web-0") + "/metadata/scheduledevents?api-version=2020-07-01"
    asked = urllib.request.Request(url, headers={{"Metadata": "true"}})
    with urllib.request.urlopen(asked) as answer:
        assert [one["EventId"] for one in json.load(answer)["Events"]] == [event.id]
    fairnotice_cloud.advance(minutes=15)
    assert event.status == "Started"
    fairnotice_cloud.run_until(event, "Completed")
    assert fairnotice_cloud.seen_by("web-0") == [event]
"""


def measure(*, rounds: int, tests: int = TESTS) -> Iterator[Number]:
    """All three."""
    set_ups = [_set_up() for _ in range(rounds * 20)]
    yield Number(name="set-up of a cloud", values=set_ups, unit="ms", at_most=25)
    runs = [_tests(tests) * TESTS / tests for _ in range(max(1, rounds // 3))]
    yield Number(name="1,000 tests with a cloud each, one core", values=runs, unit="s", at_most=60)
    weeks = [_week() for _ in range(rounds)]
    yield Number(
        name="a week of 100 VMs, 7 rollouts, 70 restarts", values=weeks, unit="s", at_most=2
    )


def _set_up() -> float:
    began = perf_counter()
    with Cloud():
        return (perf_counter() - began) * 1e3


def _tests(tests: int) -> float:
    """Seconds of a whole run of pytest, its own start included, on one core."""
    with tempfile.TemporaryDirectory(prefix="fairnotice-kit-") as name:
        (Path(name) / "test_it.py").write_text(TEST.format(tests=tests))
        core = min(os.sched_getaffinity(0))
        began = perf_counter()
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
            cwd=name,
            check=True,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        return perf_counter() - began


def _week() -> float:
    nodes = [{"name": f"node-{n}", "fault_domain": n % 3} for n in range(NODES)]
    vms = [
        {"name": f"vm-{n}", "node": f"node-{n % NODES}", "availability_set": f"set-{n % 7}"}
        for n in range(VMS)
    ]
    sets = [{"name": f"set-{n}"} for n in range(7)]
    with Cloud({"node": nodes, "availability_set": sets, "vm": vms}) as cloud:
        began = perf_counter()
        for day in range(DAYS):
            # Somebody of each scope has asked within a day, so all of it is announced.
            cloud.listen()
            rollout = cloud.rollout([f"node-{(day * 3 + n) % NODES}" for n in range(3)])
            for n in range(RESTARTS_A_DAY):
                cloud.vm(f"vm-{(day * RESTARTS_A_DAY + n) % VMS}").restart()
            cloud.advance(days=1)
            assert rollout.look().done_count == 3
        return perf_counter() - began
