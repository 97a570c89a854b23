"""A PostgreSQL database as a copy, and from one."""

from collections.abc import Iterator
from typing import Any

import psycopg

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
from fairnotice.stores.postgres import schema

_QUERIES = {name: text.encode() for name, text in sql.read_queries(__package__).items()}
_FILLING: dict[type, bytes] = {
    FleetRow: _QUERIES["fill_rows"],
    JournalRow: _QUERIES["fill_lines"],
    TokenRow: _QUERIES["fill_tokens"],
    AuditRow: _QUERIES["fill_audit"],
    WebhookRow: _QUERIES["fill_webhooks"],
    DeliveryRow: _QUERIES["fill_deliveries"],
}
# Rows that a copy has in hand at a time.
COPY_ROWS = 5_000

Connection = psycopg.Connection[Any]


def copied(connection: Connection) -> Copy:
    """All that this connection sees now; it is closed with the pieces."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.autocommit = False
    found = connection.execute(_QUERIES["service"]).fetchone()
    assert found is not None
    epoch, revision, recorded_at, _ = found
    pieces = Pieces(_rows(connection), connection.close)
    return Copy(schema.VERSION, epoch, revision, recorded_at, pieces)


def _rows(connection: Connection) -> Iterator[AnyRow]:
    for row in _table(connection, _QUERIES["copy_rows"]):
        yield FleetRow(*row)
    for revision, at, *rest in _table(connection, _QUERIES["copy_lines"]):
        yield JournalRow(revision, sql.instant(at), *rest)
    for row in _table(connection, _QUERIES["copy_tokens"]):
        yield TokenRow(*row)
    for at, body in _table(connection, _QUERIES["copy_audit"]):
        yield AuditRow(sql.instant(at), body)
    for row in _table(connection, _QUERIES["copy_webhooks"]):
        yield WebhookRow(*row)
    for webhook, dead_at, body in _table(connection, _QUERIES["copy_deliveries"]):
        yield DeliveryRow(webhook, dead_at and sql.instant(dead_at), body)


def _table(connection: Connection, query: bytes) -> Iterator[tuple[Any, ...]]:
    with connection.cursor("copy") as cursor:
        cursor.itersize = COPY_ROWS
        yield from cursor.execute(query)


def fill(connection: Connection, name: str, copy: Copy) -> None:
    """Write a copy, into tables that are empty."""
    with connection.transaction():
        # Nobody takes the lead or commits meanwhile: he waits for this row.
        connection.execute(_QUERIES["hold_service"])
        found = connection.execute(_QUERIES["holds_something"]).fetchone()
        if found is None or found[0]:
            raise sql.not_empty(name)
        for table, values in sql.batches(copy.pieces):
            with connection.cursor().copy(_FILLING[table]) as rows:
                for row in values:
                    rows.write_row(row)
        ends = {
            "epoch": copy.epoch,
            "revision": copy.revision,
            "recorded_at": copy.recorded_at,
        }
        connection.execute(_QUERIES["fill_service"], ends)
