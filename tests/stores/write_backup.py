"""Writes tests/fixtures/backup-1.gz: what the first release with backups wrote.

    PYTHONPATH=. .venv/bin/python tests/stores/write_backup.py tests/fixtures

It holds the older database of write_older.py, migrated, with a token and an audit beside it.
Written once, as every release of this format has to read it.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from fairnotice.stores import backups
from fairnotice.stores.opening import open_store
from tests.stores.test_backups import AUDITED, TAKEN_AT, TOKEN


def main(folder):
    """Write it."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "fleet.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript((folder / "schema-3-sqlite.sql").read_text("utf-8"))
        with closing(open_store(f"sqlite:{path}")) as store:
            store.add_token(TOKEN)
            store.add_audit(AUDITED)
            data = b"".join(backups.written(store.copy(), TAKEN_AT))
    (folder / "backup-1.gz").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
