"""A SQLite file as a copy, and from one."""

import sqlite3
from collections.abc import Iterator
from datetime import datetime

from fairnotice.stores import sql
from fairnotice.stores.copies import (
    AnyRow,
    AuditRow,
    Copy,
    DeliveryRow,
    FleetRow,
    JournalRow,
    Pieces,
    TokenRow,
    WebhookRow,
)
from fairnotice.stores.sqlite import schema

_QUERIES = sql.read_queries(__package__)
_FILLING: dict[type, str] = {
    FleetRow: _QUERIES["keep_row"],
    JournalRow: _QUERIES["add_line"],
    TokenRow: _QUERIES["keep_token"],
    AuditRow: _QUERIES["add_audit"],
    WebhookRow: _QUERIES["add_webhook"],
    DeliveryRow: _QUERIES["add_delivery"],
}


def copied(connection: sqlite3.Connection) -> Copy:
    """All that this connection sees now; it is closed with the pieces."""
    connection.execute("BEGIN")
    epoch, revision, recorded_at, _ = connection.execute(_QUERIES["service"]).fetchone()
    at = recorded_at and datetime.fromisoformat(recorded_at)
    pieces = Pieces(_rows(connection), connection.close)
    return Copy(schema.VERSION, epoch, revision, at or None, pieces)


def _rows(connection: sqlite3.Connection) -> Iterator[AnyRow]:
    for row in connection.execute(_QUERIES["copy_rows"]):
        yield FleetRow(*row)
    for revision, at, what, kind, id_, about, lasting, body in connection.execute(
        _QUERIES["copy_lines"]
    ):
        yield JournalRow(revision, at, what, kind, id_, about, bool(lasting), body)
    for row in connection.execute(_QUERIES["copy_tokens"]):
        yield TokenRow(*row)
    for row in connection.execute(_QUERIES["copy_audit"]):
        yield AuditRow(*row)
    for row in connection.execute(_QUERIES["copy_webhooks"]):
        yield WebhookRow(*row)
    for row in connection.execute(_QUERIES["copy_deliveries"]):
        yield DeliveryRow(*row)


def fill(connection: sqlite3.Connection, name: str, copy: Copy) -> None:
    """Write a copy in this transaction, into tables that are empty."""
    if connection.execute(_QUERIES["holds_something"]).fetchone()[0]:
        raise sql.not_empty(name)
    for table, values in sql.batches(copy.pieces):
        connection.executemany(_FILLING[table], values)
    recorded_at = copy.recorded_at and sql.instant(copy.recorded_at)
    ends = {"epoch": copy.epoch, "revision": copy.revision, "recorded_at": recorded_at}
    connection.execute(_QUERIES["fill_service"], ends)
