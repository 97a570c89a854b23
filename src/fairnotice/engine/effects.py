"""What the law asks the outside world to do once its changes are durable."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from fairnotice.model import Impact


class Matter(StrEnum):
    """What kind of thing wants to be looked at."""

    REQUEST = "request"
    OPERATION = "operation"
    IMPACT = "impact"
    EVENT = "event"
    SCOPE = "scope"
    ROLLOUT = "rollout"
    # Nodes of a rollout that wait for a scope; the id is "rollout/scope".
    PARKED = "parked"


class Subject(NamedTuple):
    """One thing that wants to be looked at when its time has come."""

    matter: Matter
    id: str


@dataclass(frozen=True, slots=True)
class BeginImpact:
    """Hand this impact to the driver; its intent is committed."""

    impact: Impact
    duration_seconds: int


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """Ask the driver what became of this impact, and submit ReportOutcome."""

    impact: Impact


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Submit Tick for this subject at this time or later. Too often does no harm."""

    at: datetime
    subject: Subject


Effect = BeginImpact | AskOutcome | WakeAt
