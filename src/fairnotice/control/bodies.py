"""What the control plane takes: bodies of requests, beside what it shows in shapes.py."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from fairnotice.control.shapes import Body, WindowBody
from fairnotice.engine.notice import (
    DAY,
    TERMINATE_NOTICE_MINUTES_MAX,
    TERMINATE_NOTICE_MINUTES_MIN,
)
from fairnotice.metadata.faults import SECONDS_MAX, FaultKind
from fairnotice.words import EventType, Risk

# An instant of the law has a time zone; without one nobody knows which instant is meant.
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
# Far above any fleet, and far below what a database or another program cannot hold.
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=30 * DAY)]
FaultSeconds = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
Named = Annotated[list[str], msgspec.Meta(min_length=1)]
TerminateNotice = Annotated[
    int, msgspec.Meta(ge=TERMINATE_NOTICE_MINUTES_MIN, le=TERMINATE_NOTICE_MINUTES_MAX)
]


class Nothing(Body):
    """Nothing needs to be said."""


class Planned(Body):
    """What may be asked for a certain instant, which is kept in UTC."""

    not_before: Instant | None = None

    def __post_init__(self) -> None:
        """The same instant, written in any time zone, is the same request."""
        if self.not_before is None:
            return
        try:
            self.not_before = self.not_before.astimezone(UTC)
        except OverflowError as error:
            # The first and the last day of the calendar, in a time zone beyond them.
            raise ValueError("That is beyond the calendar - at `$.not_before`") from error


class OnVm(Planned):
    """Restart and redeploy: not before this instant, or the notice, whichever is later."""


class OnVms(Body):
    """Several VMs at once: all of them, or none."""

    vms: Named


class PlannedOnVms(Planned, kw_only=True):
    """Several VMs to restart or redeploy; not before this instant, or the notice where longer."""

    vms: Named


class OnNode(Planned):
    """Migrate, repair or evacuate a node."""

    force: bool = False


class Maintain(OnNode):
    """Maintain a node: freeze its VMs, or reboot it."""

    impact: Literal["freeze", "reboot"] = "freeze"
    duration_seconds: Seconds | None = None


class PredictFailure(Planned):
    """How soon the node is expected to fail: a risk, or an instant."""

    risk: Risk | None = None


class ScaleIn(Body):
    """How many instances go, the newest first."""

    count: Positive


class ChangeScaleSet(Body):
    """A scale set's terminate notification; null switches it off."""

    terminate_notice_minutes: TerminateNotice | None


class ChangeScope(Body):
    """Which user-initiated events of a scope are approved automatically."""

    automatically_approve: list[EventType]


class Postpone(Planned, kw_only=True):
    """Give more notice."""

    not_before: Instant


class SetFault(Body):
    """Which fault, towards which VM (none named: all), how much of it, and for how long."""

    fault: FaultKind
    vm: str | None = None
    seconds: FaultSeconds | None = None
    for_seconds: FaultSeconds | None = None


class StartRollout(Body):
    """The same operation on many nodes; limits left out are those of the timing profile."""

    nodes: list[str]
    impact: Literal["freeze", "reboot", "migrate", "repair", "evacuate"] = "freeze"
    duration_seconds: Seconds | None = None
    windows: list[WindowBody] = msgspec.field(default_factory=list)
    recovery_seconds: Seconds | None = None
    nodes_at_once_max: Positive | None = None
    failure_budget: Count | None = None
    dry_run: bool = False
