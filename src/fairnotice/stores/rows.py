"""Rows and changes as text, the same in every store.

A row is a JSON array of its fields in their order: `["db","vm:db","node-1",null,"running",…]`. A
field added at the end with a default needs no migration; any other change of a row's shape does,
and tests/stores/test_rows.py fails until the shape written there is changed with it.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, get_args

import msgspec

from fairnotice.engine import changes
from fairnotice.engine.changes import Change, Removal, Row
from fairnotice.model import (
    Endpoint,
    Event,
    Impact,
    Kept,
    Life,
    Node,
    Operation,
    Request,
    Rollout,
    RolloutNode,
    ScaleSet,
    Scope,
    Vm,
)

# What a row is called, and which of its fields names it.
_NAMED: dict[type, tuple[str, Callable[[Any], str]]] = {
    Node: ("node", lambda row: row.name),
    Vm: ("vm", lambda row: row.name),
    Scope: ("scope", lambda row: row.name),
    ScaleSet: ("scale-set", lambda row: row.name),
    Request: ("request", lambda row: row.id),
    Operation: ("operation", lambda row: row.id),
    Event: ("event", lambda row: row.id),
    Impact: ("impact", lambda row: row.key),
    Rollout: ("rollout", lambda row: row.id),
    RolloutNode: ("rollout-node", lambda row: f"{row.rollout}/{row.node}"),
    Endpoint: ("endpoint", lambda row: row.node),
    Life: ("life", lambda _: ""),
    Kept: ("kept", lambda row: row.resource),
}

KINDS: dict[str, type] = {kind: row_type for row_type, (kind, _) in _NAMED.items()}

# Kinds whose changes are history and kept for long; the others are only the feed's.
LASTING = frozenset({"node", "vm", "request", "operation", "event", "impact", "rollout"})


def _all_changes(base: type[Change[Any]]) -> dict[str, type[Change[Any]]]:
    found: dict[str, type[Change[Any]]] = {}
    for change in base.__subclasses__():
        if change is not Removal:
            found[change.__name__] = change
        found |= _all_changes(change)
    return found


# Every change by its name, and the type of the row that it carries.
CHANGES: dict[str, type[Change[Any]]] = _all_changes(changes.Change)
_ROW_OF_CHANGE: dict[str, type] = {
    name: get_args(change.__orig_bases__[0])[0]  # type: ignore[attr-defined]
    for name, change in CHANGES.items()
}

_encoder = msgspec.json.Encoder()
_decoders: dict[type, msgspec.json.Decoder[Any]] = {
    row_type: msgspec.json.Decoder(row_type) for row_type in _NAMED
}


def kind_of(row: Row) -> str:
    """What sort of row it is: `vm`, `event`, `rollout-node` and so on."""
    return _NAMED[type(row)][0]


def id_of(row: Row) -> str:
    """What tells it from the other rows of its kind."""
    return _NAMED[type(row)][1](row)


def about(row: Row) -> str:
    """Whose story a change of this row belongs to.

    Events and impacts belong to their `operation:ID`; all others to themselves: `request:ID`,
    `rollout:ID`, `vm:NAME`, `node:NAME`, `scope:NAME` …
    """
    if isinstance(row, Event | Impact):
        return f"operation:{row.operation}"
    if isinstance(row, RolloutNode):
        return f"rollout:{row.rollout}"
    kind, name = _NAMED[type(row)]
    return f"{kind}:{name(row)}"


def row_type_of(what: str) -> type:
    """The type of the row that a change of this name carries."""
    return _ROW_OF_CHANGE[what]


def encode(row: Row) -> str:
    """The row as text."""
    return _encoder.encode(row).decode()


def decode(kind: str, body: str) -> Row:
    """The row of this kind from its text."""
    row: Row = _decoders[KINDS[kind]].decode(body)
    return row


def decoded(found: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """The rows of these kinds and texts, as they are asked for."""
    # One look-up and one call per row: a start with a million VMs decodes two million.
    decoders = {kind: _decoders[row_type].decode for kind, row_type in KINDS.items()}
    for kind, body in found:
        yield decoders[kind](body)


def change_from(what: str, at: datetime, body: str) -> Change[Any]:
    """The change of this name, from the text of its row."""
    return CHANGES[what](at, _decoders[_ROW_OF_CHANGE[what]].decode(body))
