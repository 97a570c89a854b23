"""What the guest side costs: how long `from fairnotice.client import ScheduledEvents` takes.

Compared with what any client of the standard library imports, `http.client` and `json`, each in a
fresh interpreter whose own modules are not counted (`python -X importtime`).
"""

import subprocess
import sys
from collections.abc import Iterator

from bench.numbers import Number

CLIENT = "from fairnotice.client import ScheduledEvents"
PLAIN = "import http.client, json"
RATIO_MAX = 2
_MILLISECOND = 1_000


def measure_import(rounds: int) -> Iterator[Number]:
    """Milliseconds of the import, and how many times those of the standard library's client."""
    # Once before, so that all is compiled and in the system's memory.
    for text in (CLIENT, PLAIN):
        _import_milliseconds(text)
    pairs = [(_import_milliseconds(CLIENT), _import_milliseconds(PLAIN)) for _ in range(rounds)]
    yield Number(
        name="import of fairnotice.client",
        values=[client for client, _ in pairs],
        unit="ms",
    )
    yield Number(
        name="  in imports of http.client and json",
        values=[client / plain for client, plain in pairs],
        unit="times",
        at_most=RATIO_MAX,
    )


def _import_milliseconds(text: str) -> float:
    """What the modules take that this text imports and the interpreter itself does not."""
    own = _import_microseconds("pass")
    took = _import_microseconds(text)
    return sum(took[name] for name in took.keys() - own.keys()) / _MILLISECOND


def _import_microseconds(text: str) -> dict[str, int]:
    """Each module that was imported, with what it took itself."""
    done = subprocess.run(  # noqa: S603 - our own line
        [sys.executable, "-X", "importtime", "-c", text],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line.removeprefix("import time:").split("|") for line in done.stderr.splitlines())
    rows = (parts for parts in lines if len(parts) == 3 and parts[0].strip().isdigit())
    return {name.strip(): int(own) for own, _, name in rows}
