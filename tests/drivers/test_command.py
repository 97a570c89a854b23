"""The driver that runs the operator's commands."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.command.settings import CommandSettings, readable
from fairnotice.drivers.driver import Found, Order, Report
from fairnotice.errors import Unavailable, UsageError
from fairnotice.words import ImpactKind, Outcome, Power
from tests.drivers.commands import REBOOT, is_running
from tests.waiting import until

DONE = Report(Outcome.DONE)


# --- What it is told ------------------------------------------------------------------------


def test_the_command_finds_all_it_needs_in_its_environment(bench, monkeypatch):
    """Key, VM, kind, nodes, event, duration, epoch; of the service's own, nothing."""
    monkeypatch.setenv("FAIRNOTICE_TOKEN", "fairnotice_secret")
    driver = bench.driver("env | grep ^FAIRNOTICE_ | sort")
    order = Order("op/w", "w", ImpactKind.MIGRATE, "node-a", "node-b", "event-1", 5)

    report = asyncio.run(driver.impact(order, 7))

    assert report.outcome is Outcome.DONE
    assert report.reason.splitlines() == [
        "FAIRNOTICE_DURATION_SECONDS=5",
        "FAIRNOTICE_EPOCH=7",
        "FAIRNOTICE_EVENT=event-1",
        "FAIRNOTICE_KEY=op/w",
        "FAIRNOTICE_KIND=migrate",
        "FAIRNOTICE_NODE=node-a",
        "FAIRNOTICE_TARGET=node-b",
        "FAIRNOTICE_VM=w",
    ]


def test_its_signals_are_as_new(bench):
    """Python ignores SIGPIPE; a command does not inherit that."""
    driver = bench.driver("grep SigIgn /proc/self/status")

    report = asyncio.run(driver.impact(REBOOT, 1))

    assert not int(report.reason.split()[1], 16) & 1 << (signal.SIGPIPE - 1)


def test_no_shell_reads_its_words(bench):
    """Dollars, quotes and semicolons arrive as they are."""
    words = ("printf", "%s|", "$HOME; `id`", "a b", "*")
    driver = bench.driver(commands={ImpactKind.REBOOT: words})

    assert asyncio.run(driver.impact(REBOOT, 1)) == Report(Outcome.DONE, "$HOME; `id`|a b|*|")


# --- How it ends ----------------------------------------------------------------------------


def test_an_exit_code_is_respected(bench):
    """Code 3 is a failure, with the code and what was printed; it is the same when asked."""
    driver = bench.driver("echo trying; echo no such domain >&2; exit 3")
    failed = Report(Outcome.FAILED, "exit code 3: trying\nno such domain")

    async def story():
        assert await driver.impact(REBOOT, 1) == failed
        assert await driver.impact(REBOOT, 1) == failed
        assert await driver.outcome(REBOOT.key, 1) == failed
        assert bench.count(REBOOT.key) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("/nowhere/reboot-vm",), r"exit code 127 \(there is no such command\): .*reboot-vm"),
        (("/etc/passwd",), r"exit code 126 \(it cannot be executed\): .*passwd"),
    ],
)
def test_a_command_that_cannot_be_run_fails_clearly(bench, words, reason):
    """The reason names it."""
    driver = bench.driver(commands={ImpactKind.REBOOT: words})

    report = asyncio.run(driver.impact(REBOOT, 1))

    assert report.outcome is Outcome.FAILED
    assert re.match(reason, report.reason)


def test_a_kind_without_a_command_fails_clearly(bench):
    """It is not among the capabilities, and says so when asked all the same."""
    driver = bench.driver(commands={ImpactKind.FREEZE: ("true",)})

    report = asyncio.run(driver.impact(REBOOT, 1))

    assert report == Report(Outcome.FAILED, "no command is configured for reboot")
    assert driver.capabilities().kinds == {ImpactKind.FREEZE}


def test_the_end_of_the_output_is_kept(bench):
    """Of much output the last bytes, without what would trouble a terminal or a database."""
    driver = bench.driver("seq 1 5000; printf '\\033[31mred\\000'", output_bytes_max=40)

    report = asyncio.run(driver.impact(REBOOT, 1))

    assert report.reason.startswith("… ")
    assert report.reason.endswith("4999\n5000\n[31mred")
    assert len(report.reason) <= 42


def test_output_is_made_readable():
    """Control characters go, bytes that are no UTF-8 are shown as such."""
    assert readable(b"a\x00b\x1bc\r\nd\te \xff\n", 100) == "ab" + "c\nd\te \ufffd"
    assert readable(b"abcdef", 3) == "… def"
    assert readable(b"abcdef", 0) == ""


@pytest.mark.parametrize("limits", [{"limit_seconds": 0.3}, {"order": 0.3}])
def test_a_time_limit_stops_the_whole_process_group(bench, limits):
    """The shorter of the two limits; a child in the background is stopped too."""
    order = REBOOT._replace(limit_seconds=limits.pop("order", 600))
    driver = bench.driver('echo here; sleep 60 & echo $! >"$LEDGER.child"; wait', **limits)

    report = asyncio.run(driver.impact(order, 1))

    assert report.outcome is Outcome.FAILED
    assert report.reason == "stopped when its time limit of 0.3 s had passed: here"
    child = int(Path(f"{bench.ledger}.child").read_text())
    until(lambda: not is_running(child))


def test_a_command_that_does_not_listen_is_killed(bench):
    """TERM is ignored; KILL follows."""
    driver = bench.driver("trap '' TERM; sleep 60", limit_seconds=0.2, kill_after_seconds=0.2)

    report = asyncio.run(driver.impact(REBOOT, 1))

    assert report.outcome is Outcome.FAILED
    assert report.reason.startswith("stopped when its time limit of 0.2 s had passed")


def test_a_code_of_its_own_is_not_taken_for_the_limit(bench):
    """A command that ends with 124 by itself has not run into its limit."""
    driver = bench.driver("exit 124")

    assert asyncio.run(driver.impact(REBOOT, 1)) == Report(Outcome.FAILED, "exit code 124")


def test_a_daemon_left_behind_does_not_hold_the_impact(bench):
    """The command ends; what it has left running in a session of its own goes on."""
    driver = bench.driver('setsid sleep 60 & echo $! >"$LEDGER.child"; sleep 0.1')

    async def story():
        async with asyncio.timeout(5):
            assert await driver.impact(REBOOT, 1) == DONE
            assert await driver.outcome(REBOOT.key, 1) == DONE

    asyncio.run(story())

    child = int(Path(f"{bench.ledger}.child").read_text())
    assert is_running(child)
    os.kill(child, signal.SIGKILL)


# --- Questions ------------------------------------------------------------------------------


def test_what_is_discovered(bench):
    """A line for each VM."""
    lines = "web_0 node-a running\nweb_1 - deallocated\n\nweb_2 node-b stopped"
    driver = bench.driver(discover=("printf", lines))

    assert asyncio.run(driver.discover(1)) == (
        Found("web_0", "node-a", Power.RUNNING),
        Found("web_1", None, Power.DEALLOCATED),
        Found("web_2", "node-b", Power.STOPPED),
    )
    assert driver.capabilities().discovers
    assert not bench.driver().capabilities().discovers


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("printf", "web_0 node-a asleep"), "said 'web_0 node-a asleep'"),
        (("sh", "-c", "echo no route >&2; exit 4"), "ended with 4: no route"),
        (("/nowhere/list",), "cannot be run"),
        (("sleep", "60"), r"took over 0\.2 s"),
    ],
)
def test_a_question_without_an_answer_is_unavailable(bench, words, sentence):
    """It may have one later."""
    driver = bench.driver(discover=words, question_limit_seconds=0.2)

    with pytest.raises(Unavailable, match=sentence):
        asyncio.run(driver.discover(1))


def test_an_outcome_command_has_to_speak_clearly(bench):
    """Any other word is no answer."""
    driver = bench.driver(durable=False, outcome=("echo", "perhaps"))

    with pytest.raises(Unavailable, match=r"said 'perhaps': it may say not begun, under way"):
        asyncio.run(driver.outcome("a", 1))
    asyncio.run(driver.close())


def test_without_any_memory_it_does_not_answer(bench):
    """A key of another life is unknown; one of its own it knows."""
    driver = bench.driver(durable=False)

    async def story():
        assert await driver.impact(REBOOT, 1) == DONE
        assert await driver.outcome(REBOOT.key, 1) == DONE
        assert (await driver.outcome("op-0/web_0", 1)).outcome is Outcome.UNKNOWN
        assert not driver.capabilities().answers
        await driver.close()

    asyncio.run(story())


# --- Settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"commands": {"explode": ("true",)}}, r"commands\.explode"),
        ({"commands": {ImpactKind.STOP: "virsh shutdown"}}, r"commands\.stop .*list of words"),
        ({"commands": {ImpactKind.STOP: ()}}, r"commands\.stop is empty"),
        ({"commands": {ImpactKind.STOP: ("a", 1)}}, r"commands\.stop has 1"),
        ({"outcome": "virsh"}, "outcome"),
        ({"discover": ("a\0b",)}, "discover"),
        ({"limit_seconds": 0}, "limit_seconds"),
        ({"kept_days": float("nan")}, "kept_days"),
        ({"output_bytes_max": -1}, "output_bytes_max"),
        ({"state_directory": Path("state")}, "state_directory"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings, field):
    """The message begins with the field."""
    with pytest.raises(UsageError, match=f"^{field}"):
        CommandSettings(**settings)


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path):
    """A file is in the way."""
    (tmp_path / "file").touch()
    settings = CommandSettings(state_directory=tmp_path / "file" / "state")

    with pytest.raises(UsageError, match="state_directory"):
        CommandDriver(settings, SystemClock())
