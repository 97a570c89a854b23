"""From the fleet's rows to the board's ready bytes."""

from collections.abc import Iterable, Sequence
from typing import Any

from fairnotice.engine import Fleet, document
from fairnotice.engine.changes import Change, Removal
from fairnotice.metadata.board import Board
from fairnotice.metadata.respond import About
from fairnotice.model import Document, Scope, Vm

# What a VM is told of where it is, until the service is told otherwise.
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
LOCATION = "local"


def publish(board: Board, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:
    """Put on the board what these changes, already applied, have made different."""
    scopes: dict[str, None] = {}
    vms: dict[str, None] = {}
    for change in changes:
        row = change.row
        if isinstance(row, Scope):
            if isinstance(change, Removal):
                board.remove_page(row.name)
            else:
                scopes[row.name] = None
        elif isinstance(row, Vm):
            vms[row.name] = None
    _publish(board, fleet, scopes, vms)


def publish_all(board: Board, fleet: Fleet) -> None:
    """Make the board show this fleet and nothing else, whatever it showed before."""
    for name in [name for name in board.pages if name not in fleet.scopes]:
        board.remove_page(name)
    _publish(
        board, fleet, fleet.scopes, {**dict.fromkeys(board.callers), **dict.fromkeys(fleet.vms)}
    )


def _publish(board: Board, fleet: Fleet, scopes: Iterable[str], vms: Iterable[str]) -> None:
    for name in scopes:
        if name in fleet.scopes:
            board.publish(fleet.scopes[name], document(fleet, name))
    for name in vms:
        vm = fleet.vms.get(name)
        if vm is None:
            board.remove_caller(name)
        else:
            board.put_caller(name, vm.scope, vm.addresses)


def describe(fleet: Fleet, name: str) -> About | None:
    """What the instance document of a VM is made of."""
    vm = fleet.vms.get(name)
    if vm is None:
        return None
    node = None if vm.node is None else fleet.nodes[vm.node]
    return About(vm, node, fleet.scopes[vm.scope], SUBSCRIPTION, LOCATION)


def shown_in(fleet: Fleet, scope: str) -> Document | None:
    """The document of a scope as the law has it."""
    return document(fleet, scope) if scope in fleet.scopes else None
