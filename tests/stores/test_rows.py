"""Rows and changes as text: what is written today is read tomorrow.

tests/stores/row_shapes.json holds the fields of every row in their order. A row that differs from
it needs a migration, unless a field with a default was added at its end, or one that was always
there may be None from now on: what was written can be read. Then change the file too.
"""

import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairnotice import model
from fairnotice.engine.changes import Row
from fairnotice.stores import rows
from fairnotice.stores.rows import CHANGES, KINDS
from fairnotice.testing.sample_rows import ROWS, START

GOLDEN = Path(__file__).parent / "row_shapes.json"
# Tuples that stand inside rows.
PARTS = {
    part.__name__: part
    for part in (model.Requester, model.LastTouched, model.Approval, model.Seen, model.Window)
}


def shape(row_type):
    """The fields of a row or of a part of one, each with its type."""
    return [f"{name}: {_word(hint)}" for name, hint in get_type_hints(row_type).items()]


def _word(hint):
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def shapes():
    """Every row by its kind, and every part by its name."""
    return {name: shape(row_type) for name, row_type in (KINDS | PARTS).items()}


def needs_migration(written, now):
    """Whether rows of the one shape cannot be read as rows of the other."""
    return now[: len(written)] != written


def test_rows_have_the_shape_that_is_written():
    """A field removed, inserted, moved or of another type needs a migration."""
    written = json.loads(GOLDEN.read_text("utf-8"))
    wrong = [name for name, fields in written.items() if needs_migration(fields, shapes()[name])]

    assert wrong == [], f"{wrong} changed so that old rows cannot be read: write a migration"
    assert written == shapes(), "a field was added at the end: add it to row_shapes.json too"


def test_the_proof_can_fail():
    """What needs a migration is told from what does not."""
    before = ["name: str", "zone: str", "tags: str"]

    assert needs_migration(before, before[1:])
    assert needs_migration(before, [*before[:1], "new: str", *before[1:]])
    assert needs_migration(before, [before[1], before[0], before[2]])
    assert needs_migration(before, ["name: str", "zone: int", "tags: str"])
    assert not needs_migration(before, [*before, "new: str"])


@pytest.mark.parametrize("row", ROWS, ids=rows.kind_of)
def test_a_field_added_later_may_be_missing(row):
    """An older fairnotice wrote fewer fields: those with a default take it."""
    optional = len(type(row)._field_defaults)
    fields = json.loads(rows.encode(row))
    required = fields[: len(fields) - optional]
    if optional == 0 or not required:
        return
    read = rows.decode(rows.kind_of(row), json.dumps(required))
    assert read == type(row)(*row[: len(required)])


def test_every_row_has_a_kind_and_every_change_a_row():
    """Nothing that the law can write is unknown here."""
    assert set(KINDS.values()) == set(get_args(Row)) == {type(row) for row in ROWS}
    assert {rows.row_type_of(name) for name in CHANGES} == set(get_args(Row))
    assert set(KINDS) >= rows.LASTING


# ---- Any row at all ----

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = {
    str: some.text(),
    int: some.integers(-(2**53), 2**53),
    float: some.floats(allow_nan=False, allow_infinity=False),
    bool: some.booleans(),
    NoneType: some.none(),
    datetime: some.integers(0, 2**52).map(lambda us: EPOCH + timedelta(microseconds=us)),
}


def any_of(hint):
    """Any value of this type."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) is UnionType:
        return some.one_of(*map(any_of, get_args(hint)))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if inner[-1] is Ellipsis:
            return some.lists(any_of(inner[0]), max_size=3).map(tuple)
        return some.tuples(*map(any_of, inner))
    if issubclass(hint, StrEnum):
        return some.sampled_from(hint)
    fields = get_type_hints(hint)
    return some.builds(hint, **{name: any_of(inner) for name, inner in fields.items()})


@given(some.one_of(*map(any_of, KINDS.values())))
def test_any_row_comes_back(row):
    """Whatever its fields hold, and of the same types."""
    read = rows.decode(rows.kind_of(row), rows.encode(row))

    assert read == row
    assert repr(read) == repr(row)
    assert list(rows.decoded([(rows.kind_of(row), rows.encode(row))])) == [row]


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_every_change_comes_back(what):
    """By its name and the text of its row."""
    (row,) = (row for row in ROWS if type(row) is rows.row_type_of(what))
    change = CHANGES[what](START, row)

    assert rows.change_from(what, START, rows.encode(row)) == change


def test_what_is_no_row_is_not_taken_for_one():
    """A body of another kind is an error, and no wrong row."""
    with pytest.raises(msgspec.ValidationError):
        rows.decode("vm", rows.encode(ROWS[0]))
