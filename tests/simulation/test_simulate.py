"""The command `make simulate`: what it prints, and that what it prints can be used."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairnotice.engine.invariants import Violation
from fairnotice.testing import simulate as command
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.testing.simulator import ACTIONS, STEPS, Simulation
from fairnotice.testing.witness import LawBroken, LawWitness

ROOT = Path(__file__).resolve().parent.parent.parent
FEW = ("--steps", "20", "--jobs", "1")


def complain(*_):
    """A witness who finds five things wrong with the first commit."""
    raise LawBroken([Violation(90 + number, "planted") for number in range(5)])


def rows(printed: str) -> dict[str, str]:
    """The summary: name to value."""
    lines = printed.splitlines()[-8:]
    return {line[:17].strip(): line[17:].strip() for line in lines}


def start(*arguments: str, **options) -> subprocess.Popen:
    """The command as a shell starts it, in a process group of its own."""
    program = [sys.executable, "-m", "fairnotice.testing.simulate", *arguments]
    return subprocess.Popen(  # noqa: S603 - our own command
        program, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT, **options
    )


# ---- What it did ----


def test_it_prints_what_it_did(capsys):
    """Seeds, steps, simulated days, commands, seeds that failed; side by side or not."""
    assert command.main(["--seeds", "2", "--steps", "50", "--jobs", "1"]) == 0
    alone = rows(capsys.readouterr().out)
    assert command.main(["--seeds", "2", "--steps", "50", "--jobs", "2"]) == 0
    beside = rows(capsys.readouterr().out)

    assert alone["seeds"] == "2"
    assert alone["steps"] == "100"
    assert alone["seeds that failed"] == "0"
    assert {**alone, "took": ""} == {**beside, "took": ""}


def test_what_failed_seeds_did_is_counted(capsys, monkeypatch):
    """Seeds that fail in their seventh step have completed six, after a fleet was applied."""
    for name in ACTIONS:
        monkeypatch.setitem(ACTIONS, name, fail_in_the_seventh_step)
    assert command.main(["--seeds", "2", *FEW]) == 1

    summary = rows(capsys.readouterr().out)
    assert summary["seeds"] == "2"
    assert summary["steps"] == "12"
    assert summary["commands"] == "2 (0 refused)"
    assert summary["seeds that failed"] == "2"


def fail_in_the_seventh_step(simulation: Simulation) -> None:
    """Nothing happens, and then the law is broken."""
    if simulation.step == 6:
        complain()


def test_the_numbers_are_those_of_the_table(capsys):
    """A program gets them as numbers, which nobody has rounded."""
    words = ["--seeds", "2", *FEW]
    command.main(words)
    table = rows(capsys.readouterr().out)
    outcome = command.simulated(words, ManualClock())

    numbers = outcome.numbers
    assert (outcome.code, outcome.report) == (0, ())
    assert table["commands"] == f"{numbers.commands:,} ({numbers.refused:,} refused)"
    assert table["simulated days"] == f"{numbers.simulated_days:,.0f}"
    assert (numbers.seeds, numbers.steps, numbers.took_seconds) == (2, 40, 0.0)
    assert capsys.readouterr().out == ""


def test_progress_is_told_in_a_pipe_every_few_seconds(capsys, monkeypatch):
    """Seeds of three seconds each: after the second, and after the fourth."""
    clock = ManualClock()
    honest = command._one

    def slow(work):
        clock.advance(seconds=3)
        return honest(work)

    monkeypatch.setattr(command, "_one", slow)
    command.main(["--seeds", "5", *FEW], clock)

    assert capsys.readouterr().err == "2 of 5 seeds\n4 of 5 seeds\n"


# ---- How a seed failed ----


def test_violations_come_one_a_line_and_the_first_three(capsys, monkeypatch):
    """Of a seed among others, the rest is counted."""
    monkeypatch.setattr(LawWitness, "after", complain)
    assert command.main(["--seeds", "1", *FEW]) == 1

    assert capsys.readouterr().out.splitlines()[1:6] == [
        "seed 0 breaks the law at step 0:",
        "  rule 90: planted",
        "  rule 91: planted",
        "  rule 92: planted",
        "  and 2 more",
    ]


def test_a_seed_alone_is_reported_in_full(capsys, monkeypatch):
    """All its violations, and the command that broke the law, cut where it is very long."""
    monkeypatch.setattr(LawWitness, "after", complain)
    assert command.main(["--seed", "5", *FEW]) == 1

    printed = capsys.readouterr().out
    assert printed.count(": planted\n") == 5
    assert "last command: ApplyFleet(" in printed
    assert " more characters)" in printed
    assert "Traceback" not in printed


def test_a_crash_of_the_engine_is_called_one(capsys, monkeypatch):
    """Among other seeds in a line, with the place in the source; the law is not what broke."""
    monkeypatch.setattr("fairnotice.testing.stage.decide", lambda *_: {}["planted"])
    assert command.main(["--seeds", "2", *FEW]) == 1

    printed = capsys.readouterr().out
    assert "seed 1 crashed the engine at step 0 (" in printed
    assert "stage.py:" in printed
    assert "): KeyError: 'planted'\n" in printed
    assert "breaks the law" not in printed
    assert "Traceback" not in printed


def test_a_crash_of_a_seed_alone_shows_its_traceback(capsys, monkeypatch):
    """Whoever repeats the seed sees the way to the crash, and the command that led there."""
    monkeypatch.setattr("fairnotice.testing.stage.decide", lambda *_: {}["planted"])
    assert command.main(["--seed", "5", "--steps", "20"]) == 1

    printed = capsys.readouterr().out
    assert "Traceback (most recent call last):" in printed
    assert "in ask\n" in printed
    assert "last command: ApplyFleet(" in printed


# ---- How to repeat it ----


@pytest.mark.parametrize("steps", [20, STEPS])
def test_the_printed_command_repeats_the_seed(capsys, monkeypatch, steps):
    """Pasted into a shell, it runs the same seed for as many steps."""
    monkeypatch.chdir(ROOT)
    with monkeypatch.context() as planted:
        planted.setattr(LawWitness, "after", complain)
        command.main(["--seeds", "1", "--first", "7", "--steps", str(steps), "--jobs", "1"])
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if line.startswith("repeat it: "))
    assert ("--steps" in line) == (steps != STEPS)

    program = shlex.split(line.removeprefix("repeat it: "))
    done = subprocess.run(program, check=True, capture_output=True, text=True)  # noqa: S603

    assert rows(done.stdout)["seeds"] == "1"
    assert rows(done.stdout)["steps"] == f"{steps}"


def test_the_interpreter_is_named_as_it_is_typed_here(monkeypatch, tmp_path):
    """Below the current directory by its relative path, elsewhere by its full one."""
    python = tmp_path / ".venv" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))

    assert command._program() == f"{python} -m fairnotice.testing.simulate"
    monkeypatch.chdir(tmp_path)
    assert command._program() == ".venv/bin/python -m fairnotice.testing.simulate"


def test_help_names_the_same_command(capsys):
    """The usage line can be pasted too."""
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert " ".join(capsys.readouterr().out.split()).startswith(f"usage: {command._program()} ")


# ---- Wrong usage, interrupts, pipes ----


@pytest.mark.parametrize("seeds", ["0", "-3", "abc", "1.5", ""])
def test_a_number_that_is_none_is_refused(capsys, seeds):
    """Nothing to run is wrong usage, not success; the words are for people."""
    with pytest.raises(SystemExit, match="2"):
        command.main([f"--seeds={seeds}"])
    error = capsys.readouterr().err
    assert f"give a whole number from 1 on, not {seeds}" in error
    assert "_from_one" not in error


def test_an_interrupt_says_what_was_done(capsys, monkeypatch):
    """The first two seeds are summed up."""
    honest = command._one

    def interrupted(work):
        if work[0] == 2:
            raise KeyboardInterrupt
        return honest(work)

    monkeypatch.setattr(command, "_one", interrupted)
    assert command.main(["--seeds", "9", *FEW]) == 130

    printed = capsys.readouterr().out
    assert "interrupted after 2 of 9 seeds" in printed
    assert rows(printed)["seeds"] == "2"
    assert rows(printed)["steps"] == "40"


def test_ctrl_c_prints_no_traceback():
    """The terminal's interrupt reaches parent and workers; only a summary is seen."""
    many = ("--seeds", "100000", "--steps", "5", "--jobs", "2")
    running = start(*many, stdout=subprocess.PIPE)
    wait_for_children(running, 2)
    os.killpg(running.pid, signal.SIGINT)
    printed, complaints = running.communicate(timeout=60)

    assert running.returncode == 130
    assert "Traceback" not in complaints
    assert "interrupted after " in printed
    assert "seeds that failed 0" in printed


def wait_for_children(running: subprocess.Popen, count: int) -> None:
    """Until the process has so many children."""
    listed = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while len(listed.read_text().split()) < count:
        assert running.poll() is None


def test_nobody_reading_is_no_traceback():
    """`make simulate | head -1` ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    running = start("--seed", "1", "--steps", "5", stdout=writer)
    os.close(writer)
    _, complaints = running.communicate(timeout=60)

    assert running.returncode == 128 + signal.SIGPIPE
    assert complaints == ""
