"""From what an operator writes to a store: `memory:`, `sqlite:PATH`, `postgresql://…`."""

from pathlib import Path

from fairnotice.errors import UsageError
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.sqlite.store import SqliteStore
from fairnotice.stores.store import Store


def open_store(url: str) -> Store:
    """The store that this URL names, ready for use: made or migrated where need be.

    errors.UsageError for what is no such URL or no database of ours, errors.Unavailable where it
    cannot be reached now.
    """
    if url == "memory:":
        return MemoryStore()
    if path := sqlite_file(url):
        return SqliteStore(path)
    if url.startswith(("postgresql://", "postgres://")):
        return _open_postgres(url)
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


def _open_postgres(url: str) -> Store:
    try:
        # Imported only when asked for: psycopg is an extra of its own.
        from fairnotice.stores.postgres.store import PostgresStore  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise UsageError(
            "PostgreSQL needs psycopg, which is not installed: pip install 'fairnotice[postgres]'"
        ) from error
    return PostgresStore(url)
