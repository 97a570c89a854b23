"""The lines of a node's feed, read by an endpoint that is older than who wrote them."""

import json
import typing

import msgspec

from fairnotice.control.node_lines import (
    Known,
    VmIs,
    decode,
    document_of,
    scope_of,
    vm_line,
    vm_of,
)
from fairnotice.metadata.board import Board
from fairnotice.model import Node, Vm
from fairnotice.wire.document import render_all
from fairnotice.wire.instance import facts_of

EVENT = {
    "id": "E",
    "type": "Resize",
    "source": "Moon",
    "status": "Paused",
    "resources": ["a"],
    "not_before": "2030-01-01T00:00:00Z",
}
SCOPE = {
    "kind": "scope",
    "name": "fleet:a",
    "scope_kind": "fleet",
    "of": "a",
    "enabled": True,
    "enablings": 1,
    "incarnation": 2,
    "declared_revision": 1,
    "document_incarnation": 2,
    "events": [EVENT],
}
VM = {
    "kind": "vm",
    "name": "a",
    "scope": "fleet:a",
    "priority": "Low",
    "eviction_policy": "Hibernate",
}


def read(line):
    """The line, as an endpoint has it."""
    return decode(json.dumps(line).encode())


def test_words_of_a_later_version_are_shown_as_they_are():
    """A type, source, status, priority, policy or kind that is new costs nobody his feed."""
    line, vm = read(SCOPE), read(VM)
    scope, document = scope_of(line), document_of(line)
    shown = render_all(document, scope.kind)
    facts = facts_of(vm_of(vm, "n"), Node("n"), scope, subscription_id="s", location="l")

    (event,) = json.loads(shown["2020-07-01"])["Events"]
    assert [event[name] for name in ("EventType", "EventSource", "EventStatus")] == [
        "Resize",
        "Moon",
        "Paused",
    ]
    assert facts.priority == "Low"
    board = Board()
    board.publish(scope, document)
    assert board.pages["fleet:a"].answers


def test_no_line_is_lost_for_a_word():
    """No field of any line is an enumeration: what comes later is a word like any other."""
    for kind in typing.get_args(Known):
        for shape in msgspec.json.schema(kind)["$defs"].values():
            fields = {name: one for name, one in shape["properties"].items() if name != "kind"}
            assert "enum" not in json.dumps(fields), kind


def test_what_is_usual_is_left_out():
    """A VM's line is short: words that are the default are not sent, and are there again."""
    vm = Vm("a", "vm:a", "n")
    line = vm_line(vm, Node("n"))
    assert json.loads(msgspec.json.encode(line)) == {"kind": "vm", "name": "a", "scope": "vm:a"}
    found = decode(msgspec.json.encode(line))
    assert isinstance(found, VmIs)
    assert vm_of(found, "n") == vm
