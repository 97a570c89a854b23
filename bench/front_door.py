"""How long `make up` takes until it serves: in a fresh clone, and when it is set up."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from bench.numbers import Number

ROOT = Path(__file__).parent.parent
LINE = ["make", "up", "UP=--store memory: --control 127.0.0.1:0 --metadata 127.0.0.1:0"]
SAID = "fairnotice is up"
STARTS = 5


def measure() -> Iterator[Number]:
    """One set-up, then some starts."""
    with tempfile.TemporaryDirectory(prefix="fairnotice-clone-") as name:
        clone = Path(name) / "fairnotice"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)  # noqa: S603, S607
        first = _until_up(clone)
        later = [_until_up(clone) for _ in range(STARTS)]
    yield Number(name="make up in a fresh clone", values=[first], unit="s", at_most=90)
    yield Number(name="make up when set up", values=later, unit="s", at_most=2)


def _until_up(clone: Path) -> float:
    began = perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own line
        LINE, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        while SAID not in process.stdout.readline():
            if process.poll() is not None:
                raise RuntimeError("make up ended by itself")
        took = perf_counter() - began
        process.terminate()
    return took
