"""Packages for environments that tests make: skipped where there is no index, never in CI."""

import os
import subprocess
from pathlib import Path

import pytest


def install(python: Path, *what: object) -> None:
    """Install this with the pip of that Python."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run(  # noqa: S603
        [*pip, *(str(word) for word in what)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode and "CI" not in os.environ and "connection" in done.stdout.lower():
        pytest.skip(f"no package index can be reached: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout
