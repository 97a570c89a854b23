"""The front: help with examples, mistakes, exit codes, completion, doctor, missing extras."""

import json
import shutil
import socket
import subprocess
import sys

import pytest

from fairnotice.cli import completion, main
from fairnotice.engine.invariants import Violation
from fairnotice.testing.witness import LawBroken, LawWitness
from tests.cli.typed import environment, typed

PLACES = [place for place in completion.places(main.all_commands()) if place.words]
LIGHT = """
import sys
from fairnotice.cli import main
main.parser(["--help"])
print(sorted({"rich", "msgspec", "starlette", "uvicorn", "uvloop"} & set(sys.modules)))
"""
WITHOUT = """
import sys
sys.modules["{}"] = None
sys.argv = ["fairnotice", *sys.argv[1:]]
from fairnotice.cli.main import command
sys.exit(command())
"""


def python(text, *words, **more):
    """Run this with the same Python."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", text, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(None, more),
    )


# ---- Help ----


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " ".join(place.words))
def test_the_help_of_every_command_has_an_example(capsys, place):
    """A line to copy, which begins with the command itself."""
    with pytest.raises(SystemExit) as ended:
        main.main([*place.words, "--help"])
    shown = capsys.readouterr().out

    assert ended.value.code == 0
    assert f"fairnotice {' '.join(place.words)}" in shown.partition("examples:")[2]


def test_the_program_needs_nothing_to_say_what_it_can():
    """`fairnotice --help` imports no package: inside a VM there is none."""
    assert python(LIGHT).stdout == "[]\n"


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [("rich", ("vm", "list"), "server"), ("libvirt", ("libvirt", "label", "web-0"), "libvirt")],
)
def test_a_command_says_which_extra_it_needs(missing, words, extra):
    """Where what it needs is not installed, the command line says how to get it."""
    ended = python(WITHOUT.format(missing), *words)

    assert ended.returncode == 1
    assert ended.stderr.endswith(f"pip install 'fairnotice[{extra}]'\n")


def test_the_version_is_said():
    """For bug reports."""
    assert typed("--version").out.startswith("fairnotice 0.")


# ---- Mistakes ----


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("vmm", "list"), "Did you mean vm?"),
        (("vm", "lst"), "Did you mean list?"),
        (("vm", "explode"), "Choose among list, show"),
        (("vm", "list", "--jsn"), "Did you mean --json? See: fairnotice vm list --help"),
        (("vm", "list", "--colour=red"), "There is no --colour here. See: fairnotice vm list"),
        (("vm", "list", "web-0"), "'web-0' is too much. See: fairnotice vm list --help"),
        (("--jsn", "vm", "list"), "There is no --jsn here. See: fairnotice --help"),
        (("vm", "show", ""), "give a name or an id, not ''"),
        (("vm", "restart", "web-0", " "), "give a name or an id, not ' '"),
        (("event", "approve", ""), "give a name or an id, not ''"),
        (("event", "watch", "--vm", ""), "give a name or an id, not ''"),
        (("vm", "list", "--url", "http://[::1"), "Give http://HOST:PORT"),
        (("vm", "list", "--url", "http://127.0.0.1:99999"), "Give http://HOST:PORT"),
        (("scenario", "run", "all", "--url", "http://[::1"), "Give http://HOST:PORT"),
        (("vm", "restart"), "NAME"),
        (("vm", "restart", "db", "--not-before", "soon"), "+15m"),
        (("vm", "restart", "db", "--not-before", "2026-01-31T22:00"), "time zone"),
        (("event", "postpone", "1", "--by", "later"), "90s"),
        (("rollout", "start", "node-0", "--window", "sometimes"), "Sat,Sun 22:00-04:00"),
        (("vm", "list", "--url", "ftp://here"), "Give http://HOST:PORT"),
        (("completion",), "bash, zsh or fish"),
        (("vm", "reboot", "web-0"), "Did you mean restart?"),
        (("node", "drain", "node-0"), "Did you mean evacuate?"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(words, told):
    """One sentence or two, on stderr."""
    ended = typed(*words)

    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_whoever_names_no_command_is_shown_which_there_are():
    """The help, on stderr, since nothing was done."""
    ended = typed("event")

    assert ended.code == 2
    assert "postpone" in ended.err


def test_no_control_plane_ends_with_4_and_how_to_start_one():
    """Nobody listens there."""
    ended = typed("vm", "list", url="http://127.0.0.1:1")

    assert (ended.code, ended.out) == (4, "")
    assert ended.err.endswith("Is it running? Start one with: fairnotice up\n")


def test_of_another_machine_nobody_is_told_to_start_one_here():
    """A second, empty service would answer instead, and ask nobody who he is."""
    ended = typed("vm", "list", url="https://127.0.0.1:1")

    assert ended.err.endswith("Look on 127.0.0.1: systemctl status fairnotice\n")


def test_what_is_no_control_plane_is_said_to_be_none(service):
    """The metadata endpoint is not the control plane."""
    ended = typed("vm", "list", url=service.metadata)

    assert ended.code == 4
    assert "is no control plane" in ended.err


def test_whoever_stops_reading_gets_no_traceback(service):
    """`fairnotice vm list | head -1`."""
    command = f"{sys.executable} -m fairnotice fleet export | head -1"
    ended = subprocess.run(  # noqa: S602
        command,
        shell=True,
        env=environment(service.url),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.stdout, ended.stderr) == ("[[node]]\n", "")


# ---- Completion ----


def test_bash_completes_commands_options_and_names(service, tmp_path):
    """The script parses, and offers what there is."""
    script = typed("completion", "bash").out
    program = tmp_path / "fairnotice"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fairnotice "$@"\n', "utf-8")
    program.chmod(0o755)
    ask = """
    offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fairnotice; echo "${COMPREPLY[@]}"; }
    offer fairnotice ev
    offer fairnotice event app
    offer fairnotice node maintain --im
    offer fairnotice vm restart FrontEnd
    offer fairnotice completion f
    offer fairnotice scenario run spot
    """
    ended = subprocess.run(  # noqa: S603
        ["bash", "-c", script + ask],  # noqa: S607
        env=environment(service.url, {"PATH": f"{tmp_path}:/usr/bin:/bin"}),
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "event",
        "approve",
        "--impact",
        "FrontEnd_IN_0 FrontEnd_IN_1",
        "fish",
        "spot-eviction",
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_parse(shell):
    """Where that shell is installed it reads the script; anywhere every group is in it."""
    script = typed("completion", shell).out

    assert [name for name in main.GROUPS if name not in script] == []
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)  # noqa: S603


# ---- Doctor ----


def test_doctor_finds_nothing_wrong(service):
    """All that is looked at is fine, and says what it was."""
    where = {"FAIRNOTICE_METADATA_URL": service.metadata, "FAIRNOTICE_STORE": "memory:"}
    ended = typed("doctor", url=service.url, env=where)

    assert ended.code == 0, ended.out
    # An extra that is not installed is good to know, where somebody needs it.
    assert ended.out.splitlines()[-1].startswith(("All is well.", "Nothing is wrong; "))
    found = typed("doctor", "--json", url=service.url, env=where).json
    assert {one["state"] for one in found} <= {"fine", "note"}


def test_doctor_says_what_is_wrong(tmp_path):
    """A port that is taken, a folder that is not ours, a variable that is none, nobody there."""
    folder = tmp_path / "file"
    folder.write_text("", "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {
            "FAIRNOTICE_STORE": f"sqlite:{folder}/up.db",
            "FAIRNOTICE_CONTROL": f"127.0.0.1:{port}",
            "FAIRNOTICE_TIMNG": "dev",
        }
        ended = typed("doctor", url="http://127.0.0.1:1", env=env)

    assert ended.code == 1
    assert "Did you mean FAIRNOTICE_TIMING?" in ended.out
    assert "fairnotice up" in ended.out
    assert f"Another program listens at 127.0.0.1:{port}" in ended.out
    assert "cannot be written" in ended.out


def test_doctor_survives_a_broken_file(tmp_path):
    """The file is what is wrong, and is said so."""
    file = tmp_path / "config.toml"
    file.write_text("timng = 1\n", "utf-8")
    ended = typed("doctor", "--config", str(file))

    assert ended.code == 1
    assert "Did you mean timing?" in ended.out


# ---- The simulator ----


def test_the_simulator_runs():
    """One seed keeps the law."""
    ended = typed("simulate", "--seeds", "1", "--steps", "20")

    assert ended.code == 0
    assert "seeds that failed 0" in ended.out


def test_the_simulator_counts_for_programs():
    """The same numbers as JSON."""
    ended = typed("simulate", "--seeds", "2", "--steps", "20", "--json")
    numbers = ended.json

    assert ended.code == 0
    assert (numbers["seeds"], numbers["seeds_that_failed"], numbers["report"]) == (2, 0, [])
    assert 0 <= numbers["refused"] <= numbers["commands"]
    assert {"steps", "simulated_days", "events", "impacts", "took_seconds"} <= numbers.keys()


def test_the_simulator_fails_for_programs_too(monkeypatch, capsys):
    """A law that is broken is exit code 1, with the report in the JSON."""

    def complain(*_):
        raise LawBroken([Violation(90, "planted")])

    monkeypatch.setattr(LawWitness, "after", complain)
    code = main.main(["simulate", "--seed", "3", "--steps", "20", "--json"])

    assert code == 1
    assert json.loads(capsys.readouterr().out)["seeds_that_failed"] == 1


@pytest.mark.parametrize("many", [("--seeds", "5"), ("--first", "5")])
def test_one_seed_or_many(many):
    """Nothing that was typed is ignored."""
    ended = typed("simulate", "--seed", "3", *many, "--steps", "20")

    assert ended.code == 2
    assert "give one or the other" in ended.err
