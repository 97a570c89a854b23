"""The draft: a fleet under decision, laid over the real one, which it never writes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.engine.changes import NodeDeclared, NodeRemoved
from fairnotice.engine.draft import Draft, Overlay
from fairnotice.engine.tables import Tables
from fairnotice.model import Node, RolloutNode
from tests.engine.story import Story

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(("set", "del", "pop")), KEYS, st.integers()))


@given(st.dictionaries(KEYS, st.integers()), STEPS)
def test_an_overlay_is_a_dict_that_leaves_its_base_alone(base, steps):
    """Whatever is written to it, it reads like a dict with the same history."""
    before = dict(base)
    overlay, plain = Overlay(base), dict(base)
    for step, key, value in steps:
        if step == "set":
            overlay[key] = plain[key] = value
        elif step == "del" and key in plain:
            del overlay[key], plain[key]
        elif step == "pop":
            assert overlay.pop(key, None) == plain.pop(key, None)
    assert dict(overlay) == plain
    assert len(overlay) == len(plain)
    assert base == before
    for key in "abcdef":
        assert (key in overlay) == (key in plain)
        assert overlay.get(key) == plain.get(key)
        assert overlay.get(key, "none") == plain.get(key, "none")


def test_an_overlay_knows_no_key_that_is_gone_or_never_was():
    """Both are a KeyError, as in a dict."""
    overlay = Overlay({"a": 1})
    del overlay["a"]
    for key in ("a", "b"):
        with pytest.raises(KeyError):
            overlay[key]
    assert list(overlay) == []


def test_an_overlay_shows_a_row_that_came_back():
    """Deleted and written again it is there, once."""
    overlay = Overlay({"a": 1, "b": 2})
    del overlay["a"]
    overlay["a"] = 3
    overlay["c"] = 4
    assert sorted(overlay.items()) == [("a", 3), ("b", 2), ("c", 4)]


def test_a_draft_sees_its_own_changes_and_the_fleet_does_not():
    """A node is added and another removed; the fleet has both as they were."""
    story = Story()
    before = story.snapshot()
    draft = Draft(story.fleet, story.now)
    revision = draft.revision
    draft.record(NodeDeclared(draft.now, Node("node-9")))
    draft.record(NodeRemoved(draft.now, story.node("node-5")))
    assert "node-9" in draft.nodes
    assert "node-5" not in draft.nodes
    assert draft.revision == revision + 2
    assert [type(change) for change in draft.changes] == [NodeDeclared, NodeRemoved]
    assert story.snapshot() == before


def test_a_draft_has_the_tables_of_a_fleet_and_nothing_else():
    """A table that does not exist is an AttributeError, not an empty table."""
    story = Story()
    draft = Draft(story.fleet, story.now)
    assert dict(draft.vms) == story.fleet.vms
    with pytest.raises(AttributeError, match="guests"):
        _ = draft.guests


def test_tables_alone_keep_no_index_of_nodes():
    """Whoever holds tables says what a touched node or a rollout's node means to it."""
    with pytest.raises(NotImplementedError):
        Tables().node_touched("node-0")
    with pytest.raises(NotImplementedError):
        Tables().rollout_node_touched(RolloutNode("rollout", "node-0", 0))
