"""docs/reference/metadata.md says what the wire does."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from fairnotice.model import Scope, Vm
from fairnotice.wire import error_bodies
from fairnotice.wire.instance import facts_of, tree
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import EventType, ScopeKind
from tests.wire.documents import NOON, event, rendered

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metadata.md").read_text("utf-8")
EXAMPLES = re.findall(r"```json\n(.*)\n```", PAGE)


def cells(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, each as its cells."""
    chapter = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in chapter.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_examples_are_the_wires_own_bytes():
    """The document and the refusal on the page are rendered, not written."""
    document, refusal = EXAMPLES

    assert document.encode() == rendered(event(not_before=NOON + timedelta(minutes=15)))
    assert refusal.encode() == error_bodies.API_VERSION


def test_the_table_of_versions_names_all_seven():
    """In order, the newest last."""
    assert tuple(row[0].strip("*") for row in cells("Versions")) == SCHEDULED_EVENTS


def test_the_table_of_keys_is_in_the_order_of_the_wire():
    """DocumentIncarnation, then the nine keys of an event."""
    (shown,) = json.loads(rendered(event()))["Events"]
    keys = [row[0].strip("`") for row in cells("The document")]

    assert keys == ["DocumentIncarnation", *shown]


@pytest.mark.parametrize("event_type", EventType)
def test_every_event_type_is_explained(event_type):
    """The five of them."""
    assert f"`{event_type}` (" in PAGE or f"`{event_type}`," in PAGE


def test_every_element_named_is_there():
    """What the page says the instance document has, it has."""
    scope = Scope("vm:db", ScopeKind.STANDALONE, "db")
    facts = facts_of(Vm("db", "vm:db", None), None, scope, subscription_id="s", location="l")
    written = json.dumps(tree(facts._replace(addresses=("10.0.0.4",)), "2025-04-07"))
    names = [
        name.rpartition(".")[2].removesuffix("[]")
        for row in cells("The instance document")
        for name in re.findall(r"`([\w.\[\]]+)`", row[0])
    ]

    assert len(names) > 25
    assert [name for name in names if f'"{name}"' not in written] == []
