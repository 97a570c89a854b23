"""From what an operator writes to a store: `memory:`, `sqlite:PATH`, `postgresql://…`."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairnotice.errors import UsageError
from fairnotice.stores.lease import Lease
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.sqlite.store import SqliteStore
from fairnotice.stores.store import Store

# For so long at most, whoever leads alone and dies keeps the next one waiting.
ALONE_SECONDS = 2.5


def open_store(url: str) -> Store:
    """The store that this URL names, ready for use: made or migrated where need be.

    errors.UsageError for what is no such URL or no database of ours, errors.Unavailable where it
    cannot be reached now.
    """
    if url == "memory:":
        return MemoryStore()
    if path := sqlite_file(url):
        return SqliteStore(path)
    if is_shared(url):
        store: Store = _imported("store").PostgresStore(url)
        return store
    # Only what stands in front is repeated: a URL may hold a password.
    raise UsageError(
        f"A store is memory:, sqlite:PATH or postgresql://USER@ADDRESS/DATABASE; "
        f"{url.partition(':')[0]!r} is none of them."
    )


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite store; None for every other URL."""
    scheme, _, path = url.partition(":")
    path = path.removeprefix("//")
    return Path(path) if scheme == "sqlite" and path else None


def open_lease(url: str, address: str, seconds: float) -> Lease:
    """The lead among the control planes that share this store, for the one at this address.

    errors.UsageError for a store that only one process may have.
    """
    if not is_shared(url):
        raise UsageError("Several control planes share a PostgreSQL database: no other store.")
    lease: Lease = _imported("lease").PostgresLease(url, address, seconds)
    return lease


def open_lease_alone(url: str) -> Lease | None:
    """The lead for who shares the store with nobody; None where nobody else could have it."""
    return open_lease(url, "", ALONE_SECONDS) if is_shared(url) else None


def is_shared(url: str) -> bool:
    """Whether the store is a server's, which comes and goes by itself, and others may use."""
    return url.startswith(("postgresql://", "postgres://"))


def check_installed(url: str) -> None:
    """errors.UsageError where what this store needs is not installed."""
    # An extra of its own.
    if is_shared(url) and find_spec("psycopg") is None:
        raise UsageError(
            "PostgreSQL needs psycopg, which is not installed: "
            "pip install 'fairnotice[server,postgres]'"
        )


def _imported(name: str) -> Any:  # noqa: ANN401 - a module of the PostgreSQL store
    check_installed("postgresql://")
    # Imported only when asked for.
    return import_module(f"fairnotice.stores.postgres.{name}")
