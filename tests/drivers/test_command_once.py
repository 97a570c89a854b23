"""The command driver: exactly once, whatever is killed, and what it remembers for that."""

import asyncio
import os
import resource
import signal
import subprocess
import sys

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.command.settings import CommandSettings
from fairnotice.drivers.command.state import file_name
from fairnotice.drivers.driver import Report
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.commands import REBOOT, begun, number_in, parent_of
from tests.house import ROOT
from tests.waiting import soon

DONE = Report(Outcome.DONE)


# --- Once -----------------------------------------------------------------------------------


def test_who_gave_up_waiting_leaves_it_running(bench):
    """Canceled in the middle: it is under way, then done, and a second order waits for it."""
    driver = bench.driver("sleep 0.5")

    async def story():
        carrying = asyncio.create_task(driver.impact(REBOOT, 1))
        await soon(begun(bench))
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        assert (await driver.outcome(REBOOT.key, 1)).outcome is Outcome.UNDER_WAY
        assert await driver.impact(REBOOT, 1) == DONE
        assert bench.count(REBOOT.key) == 1

        def buried():
            driver._wrappers.bury()
            return not driver._wrappers._abandoned

        await soon(buried)

    asyncio.run(story())


CONTROL_PLANE = """
import asyncio, sys
from pathlib import Path
from tests.drivers.commands import REBOOT, Bench

asyncio.run(Bench(Path(sys.argv[1])).driver("sleep 0.6").impact(REBOOT, 1))
"""


def test_a_killed_control_plane_leaves_the_impact_going_on_once(bench, tmp_path):
    """Killed with -9 in the middle of it: the next life finds it under way, then done, once."""
    words = [sys.executable, "-c", CONTROL_PLANE, str(tmp_path)]
    child = subprocess.Popen(words, cwd=ROOT)  # noqa: S603

    async def story():
        await soon(begun(bench))
        child.kill()
        assert child.wait() == -signal.SIGKILL
        driver = bench.driver("sleep 0.6")
        assert (await driver.outcome(REBOOT.key, 2)).outcome is Outcome.UNDER_WAY
        assert await driver.impact(REBOOT, 2) == DONE
        assert await driver.outcome(REBOOT.key, 2) == DONE

    asyncio.run(story())

    assert bench.ledger.read_text("utf-8") == f"{REBOOT.key}\n"


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.004, 0.006, 0.01, 0.02])
def test_killed_at_any_moment_it_happens_once(bench, tmp_path, moment):
    """Killed with -9 at the beginning: asked, begun if it is not, it has happened once."""
    ready = tmp_path / "ready"
    words = [sys.executable, "-c", f"from pathlib import Path\n{_READY}{CONTROL_PLANE}"]
    child = subprocess.Popen([*words, str(tmp_path), str(ready)], cwd=ROOT)  # noqa: S603

    async def story():
        await soon(ready.exists)
        await asyncio.sleep(moment)
        child.kill()
        child.wait()
        driver = bench.driver()
        report = await driver.outcome(REBOOT.key, 2)
        assert report.outcome in (Outcome.NOT_BEGUN, Outcome.UNDER_WAY, Outcome.DONE)
        assert await driver.impact(REBOOT, 2) == DONE

    asyncio.run(story())

    assert bench.count(REBOOT.key) == 1


_READY = """
import sys
from tests.drivers import commands
_driver = commands.Bench.driver
def driver(*given, **named):
    made = _driver(*given, **named)
    Path(sys.argv[2]).touch()
    return made
commands.Bench.driver = driver
"""


def test_a_race_for_one_key_has_one_winner(bench):
    """Ten control planes with the same epoch and key: one runs it, all hear of it."""
    drivers = [bench.driver("sleep 0.1; echo $$") for _ in range(10)]

    async def story():
        return await asyncio.gather(*(driver.impact(REBOOT, 1) for driver in drivers))

    reports = asyncio.run(story())

    assert len(set(reports)) == 1
    assert reports[0].outcome is Outcome.DONE
    assert bench.count(REBOOT.key) == 1


def test_a_slow_wrapper_of_an_older_life_does_not_begin(bench):
    """The new life was told "not begun"; the old one's wrapper comes too late for its epoch."""
    old, new = bench.driver(), bench.driver()

    async def story():
        await old._check_epoch(1)
        assert (await new.outcome(REBOOT.key, 2)).outcome is Outcome.NOT_BEGUN
        with pytest.raises(LeadLost):
            await old._run(REBOOT, 1, ("true",))
        assert (await new.outcome(REBOOT.key, 2)).outcome is Outcome.NOT_BEGUN

    asyncio.run(story())


def test_a_killed_wrapper_leaves_the_outcome_unknown(bench):
    """Nobody saw it end: unknown, unless the operator's command knows; never run again."""
    driver = bench.driver('echo $PPID >"$LEDGER.timeout"; sleep 60')

    async def story():
        carrying = asyncio.create_task(driver.impact(REBOOT, 1))
        await soon(begun(bench))
        await soon(lambda: number_in(f"{bench.ledger}.timeout"))
        stopped = number_in(f"{bench.ledger}.timeout")
        os.kill(parent_of(stopped), signal.SIGKILL)
        assert (await carrying).outcome is Outcome.UNKNOWN
        os.killpg(stopped, signal.SIGKILL)
        assert (await driver.impact(REBOOT, 1)).outcome is Outcome.UNKNOWN
        wise = bench.driver(outcome=("printf", "failed\nit never came up\n"))
        assert await wise.outcome(REBOOT.key, 1) == Report(Outcome.FAILED, "it never came up")

    asyncio.run(story())

    assert bench.count(REBOOT.key) == 1


def test_what_the_operator_knows_was_not_begun_may_be_begun(bench):
    """What ran it died before it did anything, and only the operator can tell: it is new again."""
    bench.driver()
    begun_here = bench.state / f"{file_name(REBOOT.key)}.begun"
    begun_here.write_text("1 600\n")

    async def story():
        driver = bench.driver(outcome=("echo", "not begun"))
        assert (await driver.outcome(REBOOT.key, 1)).outcome is Outcome.NOT_BEGUN
        assert not begun_here.exists()
        assert await driver.impact(REBOOT, 1) == DONE

    asyncio.run(story())
    assert bench.count(REBOOT.key) == 1


def test_a_command_that_keeps_epochs_itself_may_refuse(bench):
    """It ends with 76: the lead is lost, and the key is as new."""
    driver = bench.driver("exit 76")

    async def story():
        with pytest.raises(LeadLost):
            await driver.impact(REBOOT, 1)
        assert (await driver.outcome(REBOOT.key, 1)).outcome is Outcome.NOT_BEGUN
        assert await bench.driver().impact(REBOOT, 2) == DONE

    asyncio.run(story())


# --- Where it remembers ---------------------------------------------------------------------


def test_keys_never_share_a_file():
    """Slashes, dots, percent signs, other alphabets, and keys that are very long."""
    keys = [
        "",
        ".",
        "..",
        "a/b",
        "a%2Fb",
        "a%2fb",
        "A/b",
        "lock",
        "epoch",
        "ä",
        "x" * 900,
        "x" * 901,
    ]
    keys += [f"%sha256-{number}" for number in range(3)]

    names = [file_name(key) for key in keys]

    assert len(set(names)) == len(keys)
    assert all("/" not in name and len(name) < 240 for name in names)


@pytest.mark.parametrize("key", ["op/" + "web_0" * 100, "op/wéb 0\n'$HOME", "..", "op/a;b"])
def test_odd_keys_are_keys(bench, key):
    """Each is run once and remembered."""
    driver = bench.driver()
    order = REBOOT._replace(key=key)

    async def story():
        assert await driver.impact(order, 1) == DONE
        assert await bench.driver().outcome(key, 2) == DONE

    asyncio.run(story())

    assert bench.ledger.read_text("utf-8") == f"{key}\n"


def test_what_ended_long_ago_is_forgotten_but_not_in_the_first_day(bench):
    """After eight days down it is still known; a day into the new life it is tidied away."""
    clock = ManualClock(SystemClock().wall())
    settings = CommandSettings({ImpactKind.REBOOT: ("true",)}, state_directory=bench.state)

    async def story():
        assert await CommandDriver(settings, clock).impact(REBOOT, 1) == DONE
        clock.advance(days=8)
        driver = CommandDriver(settings, clock)
        assert await driver.impact(REBOOT._replace(key="b"), 2) == DONE
        assert await driver.outcome(REBOOT.key, 2) == DONE
        clock.advance(days=1)
        assert await driver.impact(REBOOT._replace(key="c"), 2) == DONE
        assert (await driver.outcome(REBOOT.key, 2)).outcome is Outcome.NOT_BEGUN

    asyncio.run(story())

    assert sorted(path.name for path in bench.state.iterdir()) == [
        "c.begun",
        "c.ended",
        "c.lock",
        "c.out",
        "epoch",
        "lock",
    ]


def test_a_directory_that_cannot_be_written_begins_nothing(bench):
    """It went away: unavailable, nothing was run, and it works again when it is back."""
    driver = bench.driver()
    away = bench.state.rename(f"{bench.state}.away")

    async def story():
        with pytest.raises(Unavailable, match="state: No such file"):
            await driver.outcome(REBOOT.key, 1)
        with pytest.raises(Unavailable, match=r"state cannot be written: No such file"):
            await driver._run(REBOOT, 1, ("true",))
        assert bench.count(REBOOT.key) == 0
        away.rename(bench.state)
        assert await driver.impact(REBOOT, 1) == DONE

    asyncio.run(story())


def test_a_full_disk_begins_nothing(bench):
    """No byte may be written to any file: unavailable, and not begun."""
    driver = bench.driver()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def story():
        await driver.outcome(REBOOT.key, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            with pytest.raises(Unavailable, match="cannot be written: File too large"):
                await driver.impact(REBOOT, 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (await driver.outcome(REBOOT.key, 1)).outcome is Outcome.NOT_BEGUN
        assert await driver.impact(REBOOT, 1) == DONE

    asyncio.run(story())

    assert bench.count(REBOOT.key) == 1


def test_a_closed_driver_says_so(bench):
    """After close, nothing is begun."""
    driver = bench.driver(durable=False)
    directory = driver._state.directory

    asyncio.run(driver.close())

    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(driver.impact(REBOOT, 1))
    assert not directory.exists()
