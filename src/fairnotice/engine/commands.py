"""What may be asked of the law. Ids and instants come in with the command."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from fairnotice.engine.effects import Subject
from fairnotice.engine.specs import FleetSpec
from fairnotice.model import Requester, Window
from fairnotice.words import (
    EventType,
    OperationKind,
    Outcome,
    Power,
    Risk,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every command that makes operations carries."""

    # Becomes the id of the request; unique for ever, a GUID in practice.
    id: str
    by: Requester
    idempotency_key: str | None = None


# ---- VMs (rules 15 to 20) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class OnVms(Asked):
    """One operation per VM, all or none."""

    vms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(OnVms):
    """Reboot these VMs."""

    not_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeploy(OnVms):
    """Move these VMs to other nodes, losing their ephemeral disks."""

    not_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(OnVms):
    """Take these Spot VMs away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(OnVms):
    """Delete these VMs, with notice where their scale set asks for it."""

    # As who asks has read the one that he names (engine.describing.version).
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(OnVms):
    """Stop these VMs where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(OnVms):
    """Start these VMs, placing those that have no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocate(OnVms):
    """Stop these VMs and give up their places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleIn(Asked):
    """Delete `count` instances of a scale set, the newest first."""

    scale_set: str
    count: int


# ---- Nodes (rules 4, 13, 22, 23) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class OnNode(Asked):
    """What every command on one node carries."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOperation(OnNode):
    """Maintain, migrate, repair or evacuate one node; `kind` is one of kinds.ROLLED_OUT."""

    kind: OperationKind
    duration_seconds: int | None = None
    not_before: datetime | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictFailure(OnNode):
    """The node is going to fail: move its VMs away in time, by risk or by an instant."""

    risk: Risk | None = None
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailNode(OnNode):
    """The node has failed, and its VMs surely do not run any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """Put no VM on this node."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncordon:
    """Return this node to service."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReachable:
    """A driver or a health feed can, or cannot, reach this node."""

    node: str
    reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVm:
    """A driver has found this VM elsewhere, or in another state, than is recorded."""

    vm: str
    # None where it has no place; and no power where it is gone for good.
    node: str | None = None
    power: Power | None = None


# ---- Rollouts (rule 22) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRollout(Asked):
    """The same operation on these nodes. Limits left out are those of the timing profile.

    A dry run changes nothing and is answered by a Forecast.
    """

    nodes: tuple[str, ...]
    kind: OperationKind
    duration_seconds: int | None = None
    windows: tuple[Window, ...] = ()
    recovery_seconds: int | None = None
    nodes_at_once_max: int | None = None
    failure_budget: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRollout:
    """Announce nothing new; keep what was promised."""

    rollout: str
    by: Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRollout:
    """Go on. The failure budget counts anew from here."""

    rollout: str
    by: Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRollout:
    """Withdraw what is Scheduled, let Started end."""

    rollout: str
    by: Requester


# ---- Events (rules 2, 3, 5, 15) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """A VM, or somebody in the control plane, gives the go-ahead: for all events, or none."""

    events: tuple[str, ...]
    by: Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    """Give more notice."""

    event: str
    not_before: datetime
    by: Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Take back an operation, named by its own id or by one of its events."""

    target: str
    by: Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Do not wait for endpoints that have not confirmed this event."""

    event: str
    by: Requester


# ---- Under a key (rule 19) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Asked):
    """What makes no operation, asked under a key: repeated, it changes nothing."""

    command: "Steering"


# ---- Who listens (rules 8, 9, 26) ----


class Heard(NamedTuple):
    """A VM of this scope was answered at this time.

    A scope is called `vm:NAME`, `availability-set:NAME`, `scale-set:NAME:GROUP` (GROUP is the
    placement group, from 0) or `cloud-service:NAME`; model.scope_name makes these names. A scope
    that is not there is passed over, because an endpoint may report after its last VM is gone.
    """

    scope: str
    at: datetime


class SeenBy(NamedTuple):
    """This VM was first served this event at this time."""

    event: str
    vm: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportServed:
    """What the endpoints served lately, gathered."""

    heard: tuple[Heard, ...] = ()
    seen: tuple[SeenBy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportUnserved:
    """For so long no endpoint served these scopes, so their silence says nothing.

    It may be said twice: what is excused already is not excused again.
    """

    scopes: tuple[str, ...]
    seconds: float
    # When somebody served them again; None stands for now.
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinEndpoint:
    """A node has a metadata endpoint of its own from now on."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveEndpoint:
    """The node's endpoint is taken away for good; nobody waits for it any more."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HearEndpoint:
    """The node's endpoint has said something: whom it served until now is known."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The node's endpoint shows everything up to this revision."""

    node: str
    revision: int


# ---- Impacts, time and memory (rules 10, 11, 24, 25) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOutcome:
    """What a driver says became of an impact."""

    key: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The time that these subjects waited for has come."""

    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """A new life of the process begins. In a takeover the endpoints went on serving."""

    takeover: bool = False
    # When endpoints are last known to have served; left out, the last record.
    served_until: datetime | None = None


# ---- The fleet (rules 4, 18, 21) ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyFleet:
    """Make the fleet what the specification says: all of it, or nothing."""

    spec: FleetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """Which user-initiated events of this scope are approved automatically."""

    scope: str
    automatically_approve: tuple[EventType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTerminateNotice:
    """How many minutes of terminate notice a scale set gives; None for none."""

    scale_set: str
    minutes: int | None


class Notice(NamedTuple):
    """How much terminate notice is asked for; None for none."""

    minutes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """What is said of a VM or a set: all of it, or nothing.

    `resource` is `vm:NAME`, `availability-set:NAME` or `scale-set:NAME`. What is left out stays.
    """

    resource: str
    # JSON, which the law keeps and does not read.
    kept: str
    automatically_approve: tuple[EventType, ...] | None = None
    terminate_notice: Notice | None = None
    # As who asks has read it (engine.describing.version); None where he did not look.
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOut:
    """A new instance of a scale set for each of these addresses, which nobody has yet.

    With no address it changes nothing; under a key, a repeat of it changes nothing later either.
    """

    scale_set: str
    addresses: tuple[str, ...]


# What changes the course of what there is, and makes no operation.
Steering = (
    Cordon
    | Uncordon
    | PauseRollout
    | ResumeRollout
    | CancelRollout
    | Approve
    | Postpone
    | Cancel
    | Release
    | Describe
    | ScaleOut
)
Command = (
    Restart
    | Redeploy
    | Evict
    | Delete
    | Stop
    | Start
    | Deallocate
    | ScaleIn
    | NodeOperation
    | PredictFailure
    | FailNode
    | ReportReachable
    | ReportVm
    | StartRollout
    | Steering
    | Keyed
    | ReportServed
    | ReportUnserved
    | JoinEndpoint
    | LeaveEndpoint
    | Confirm
    | HearEndpoint
    | ReportOutcome
    | Tick
    | Restarted
    | ApplyFleet
    | SetPolicy
    | SetTerminateNotice
)
