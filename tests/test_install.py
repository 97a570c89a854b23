"""The set-up and the Makefile: what they say to somebody for whom they do not work at once."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Stands in for an interpreter of version 3.NN. Asked for a venv, it copies itself there; asked
# for packages, it notes that it was, and obeys unless there is no network.
PYTHON = """#!/bin/sh
case "$*" in
    --version) echo "Python 3.{minor}.0" ;;
    "-c print"*) echo yes ;;
    "-c "*) exit {too_old} ;;
    "-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo 3.{minor} >> made ;;
    *install*--requirement*) [ ! -e no-network ] ;;
    *) exit 0 ;;
esac
"""


@pytest.fixture
def house(tmp_path):
    """A repository with nothing in it but what the set-up needs."""
    (tmp_path / "scripts").mkdir()
    for name in ("Makefile", "scripts/install", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def python(house: Path, minor: int) -> Path:
    """A stand-in for Python 3.minor."""
    path = house / f"python3.{minor}"
    path.write_text(PYTHON.format(minor=minor, too_old=int(minor < 11)))
    path.chmod(0o755)
    return path


def make(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a make, and all that it says."""
    # A make that runs these tests hands down its own arguments; they are not ours.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ours.pop("PYTHON", None)
    done = subprocess.run(  # noqa: S603 - our own Makefile
        ["make", *arguments],  # noqa: S607 - whichever make there is
        check=False,
        cwd=folder,
        env=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_the_set_up_says_that_it_has_begun_and_that_it_is_ready(house):
    """Nobody looks at a silent terminal for twenty seconds."""
    code, said = make(house, "install", f"PYTHON={python(house, 11)}")

    assert code == 0
    assert said.splitlines() == [
        "setting up .venv (about 20 s) ...",
        "ready: .venv has Python 3.11.0, the packages of requirements-dev.lock and fairnotice",
    ]


def test_another_python_makes_the_environment_anew(house):
    """PYTHON of another version counts, once; without PYTHON what is there is kept."""
    for minor in (11, 11, 13, 13):
        assert make(house, "install", f"PYTHON={python(house, minor)}")[0] == 0
    code, said = make(house, "install")

    assert (house / "made").read_text().split() == ["3.11", "3.13"]
    assert code == 0
    assert "Nothing to be done" in said


def test_without_a_network_it_says_what_is_missing(house):
    """And the next make tries again, with the environment that is there."""
    (house / "no-network").touch()
    code, said = make(house, "install", f"PYTHON={python(house, 12)}")
    assert code != 0
    assert "could not fetch the packages of requirements-dev.lock; is there a network" in said
    assert "run make again" in said

    (house / "no-network").unlink()
    code, said = make(house, "install")
    assert code == 0
    assert "ready: .venv has Python 3.12.0" in said
    assert (house / "made").read_text().split() == ["3.12"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-such-python", "no no-such-python found"),
        ("echo", "echo does not answer as Python"),
        ("false", "false does not answer as Python"),
    ],
)
def test_what_is_no_python_is_refused(house, name, said):
    """Before anything is made."""
    code, printed = make(house, "install", f"PYTHON={name}")

    assert code != 0
    assert printed.startswith(said)
    assert not (house / ".venv").exists()


def test_an_old_python_is_refused(house):
    """With the version that is asked for."""
    code, said = make(house, "install", f"PYTHON={python(house, 10)}")

    assert code != 0
    assert said.startswith("Python 3.10.0 is too old: fairnotice needs 3.11 or later")


def test_one_seed_or_many_are_simulated():
    """`make simulate SEED=17` repeats a seed; SEEDS says how many otherwise."""
    assert "testing.simulate --seed 17\n" in make(ROOT, "-n", "simulate", "SEED=17")[1]
    assert "testing.simulate --seed 0\n" in make(ROOT, "-n", "simulate", "SEED=0")[1]
    assert "testing.simulate --seeds 30\n" in make(ROOT, "-n", "simulate", "SEEDS=30")[1]


def test_help_fits_into_a_terminal():
    """Each target is one line of at most eighty columns."""
    code, said = make(ROOT, "help")

    assert code == 0
    assert len(said.splitlines()) > 5
    assert [line for line in said.splitlines() if len(line) > 80] == []


def test_whoever_is_not_root_is_told_how_to_see_real_vms_before_anything_is_set_up(house):
    """Not after 40 seconds of it."""
    somebody = house / "bin"
    somebody.mkdir()
    (somebody / "id").write_text("#!/bin/sh\necho 1000\n")
    (somebody / "id").chmod(0o755)
    path = f"PATH={somebody}:{os.environ['PATH']}"
    code, said = make(house, "demo-vms", path, f"PYTHON={python(house, 12)}")

    assert code != 0
    assert said.startswith("VMs need root here: sudo make demo-vms\n")
    assert not (house / ".venv").exists()
