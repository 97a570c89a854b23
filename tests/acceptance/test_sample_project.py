"""A project of somebody else's, with the wheel that is built from here and nothing else of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import install

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "examples" / "draining-worker"


def run(folder: Path, *command: object, **environment: str) -> str:
    """What a command says that succeeds."""
    # Nothing of this checkout is to be found by chance.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHONPATH"))
    }
    done = subprocess.run(  # noqa: S603
        [str(word) for word in command],
        check=False,
        cwd=folder,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with our wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    run(
        ROOT, sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", folder, ROOT,
    )  # fmt: skip
    return folder


def test_a_sample_project_passes_its_tests_with_the_built_wheel(tmp_path, wheels):
    """Sync, with pytest-asyncio, with pytest-xdist and with a program of its own."""
    project = tmp_path / "project"
    shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    run(tmp_path, sys.executable, "-m", "venv", "environment")
    python = tmp_path / "environment" / "bin" / "python"

    install(
        python, "--find-links", wheels, "--constraint", ROOT / "requirements-dev.lock",
        "--constraint", SAMPLE / "requirements.lock", f"{project}[test]",
    )  # fmt: skip
    said = run(project, python, "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider")

    assert "13 passed" in said
    where = run(project, python, "-c", "import fairnotice; print(fairnotice.__file__)")
    assert Path(where).is_relative_to(tmp_path)


def test_without_the_server_extra_the_fixture_says_what_is_missing(tmp_path, wheels):
    """The plugin is there with every installation, and costs nothing until it is asked for."""
    run(tmp_path, sys.executable, "-m", "venv", "environment")
    python = tmp_path / "environment" / "bin" / "python"
    install(
        python, "--find-links", wheels, "--constraint", ROOT / "requirements-dev.lock",
        "fairnotice", "pytest",
    )  # fmt: skip
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_nothing_is_loaded():\n"
        "    ours = [name for name in sys.modules if name.startswith('fairnotice')]\n"
        "    assert ours == ['fairnotice', 'fairnotice.testing', 'fairnotice.testing.plugin']\n"
        "def test_it(fairnotice_cloud): pass\n"
    )
    done = subprocess.run(  # noqa: S603
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed, 1 error" in done.stdout
    assert "pip install 'fairnotice[server]'" in done.stdout
