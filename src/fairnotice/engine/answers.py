"""What the law answers when it accepts a command."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fairnotice.engine.changes import Change
from fairnotice.engine.effects import Effect


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of the command, for whoever asked."""

    # The request, or the rollout, that the command made or that it repeats.
    request: str | None = None
    operations: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    # VMs that are left where they are (rule 23).
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InTheWay:
    """A node that a rollout cannot take at once, and what would help."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class ForecastNode:
    """When a rollout would take a node, if nobody approves anything early."""

    node: str
    announced_at: datetime
    over_at: datetime


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a rollout would do (rule 22)."""

    order: tuple[ForecastNode, ...]
    in_the_way: tuple[InTheWay, ...]
    # None where the rollout cannot end by itself.
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A command that is carried out by making these changes, then asking for these effects."""

    changes: tuple[Change[Any], ...]
    effects: tuple[Effect, ...]
    answer: Accepted | Forecast = field(default_factory=Accepted)
    # What a person should know although it was accepted.
    warnings: tuple[str, ...] = ()
