"""Boards to measure with: the fleets of fleets.py as an endpoint shows them, all scopes enabled."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from bench.fleets import LISTENING, START, carry_out, specification
from fairnotice.control.publishing import publish
from fairnotice.engine import Fleet
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import ApplyFleet
from fairnotice.metadata.board import Board
from fairnotice.model import Document, Event, Scope
from fairnotice.words import EventSource, EventStatus, EventType, ScopeKind

NOTICE = timedelta(minutes=15)

Changes = tuple[Change[Any], ...]


def board_of(vms: int) -> Board:
    """The board of a fleet of so many VMs, nothing pending; the fleet itself is let go."""
    return board_on(*fleet_of(vms))


def fleet_of(vms: int) -> tuple[Fleet, Changes]:
    """A fleet of so many VMs, and the changes that made it."""
    fleet = Fleet(LISTENING)
    decision = carry_out(fleet, ApplyFleet(spec=specification(vms)), START)
    return fleet, decision.changes


def board_on(fleet: Fleet, changes: Changes) -> Board:
    """The board that such a fleet feeds, everybody listening."""
    board = Board()
    publish(board, fleet, changes)
    for scope in fleet.scopes.values():
        board.publish(enabled(scope), Document(scope.incarnation))
    return board


def enabled(scope: Scope) -> Scope:
    """The scope once somebody has asked."""
    return scope._replace(enabled_at=START.wall, enablings=1)


def scope_of(name: str) -> Scope:
    """An enabled scope of any number of VMs."""
    return enabled(Scope(f"cloud-service:{name}", ScopeKind.CLOUD_SERVICE, name))


def document_of(scope: Scope, incarnation: int, resources: Sequence[str]) -> Document:
    """A document with one event, another one in each incarnation, that hits these VMs."""
    event = Event(
        id=str(uuid5(NAMESPACE_URL, f"{scope.name}/{incarnation}")).upper(),
        operation=f"operation-{incarnation}",
        scope=scope.name,
        type=EventType.FREEZE,
        source=EventSource.PLATFORM,
        status=EventStatus.SCHEDULED,
        resources=tuple(resources),
        revision=1,
        announced_at=START.wall,
        not_before=START.wall + NOTICE,
        notice_seconds=NOTICE.total_seconds(),
        description="Host server is undergoing maintenance.",
        duration_seconds=9,
    )
    return Document(incarnation, (event,))
