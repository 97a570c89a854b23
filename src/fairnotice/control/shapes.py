"""What the control plane shows: with bodies.py the one contract of API, command line and portal.

Names are in snake_case, instants in ISO 8601 UTC, lengths of time in seconds. The OpenAPI document
is made from these types.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from fairnotice.metadata.faults import FaultKind
from fairnotice.words import (
    EventSource,
    EventStatus,
    EventType,
    EvictionPolicy,
    ImpactKind,
    ImpactStatus,
    Network,
    NodeState,
    OperationKind,
    OperationStatus,
    Power,
    Priority,
    RolloutNodeStatus,
    RolloutStatus,
    ScopeKind,
)


class Shape(msgspec.Struct):
    """What is shown."""


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What is taken: a field that nobody knows is refused, since it is a typing mistake."""


# ---- What is taken as it is shown ----

Weekday = Annotated[int, msgspec.Meta(ge=0, le=6)]
MinuteOfDay = Annotated[int, msgspec.Meta(ge=0, le=24 * 60 - 1)]
MinutesOfWeek = Annotated[int, msgspec.Meta(ge=1, le=7 * 24 * 60)]


class WindowBody(Body):
    """A weekly maintenance window, in UTC; Monday is 0."""

    weekdays: list[Weekday]
    start_minute: MinuteOfDay
    length_minutes: MinutesOfWeek


# ---- What is shown ----


class Vm(Shape):
    """A virtual machine."""

    name: str
    # What the system inside is called, which in a scale set is not the VM's name.
    computer_name: str
    scope: str
    node: str | None
    fault_domain: int | None
    update_domain: int | None
    power: Power
    priority: Priority
    eviction_policy: EvictionPolicy
    addresses: list[str]
    network: Network
    resource_group: str
    zone: str | None
    tags: dict[str, str]
    # What is done to it now, and the events that name it.
    impact: ImpactKind | None
    events: list[str]


class Node(Shape):
    """A hypervisor machine."""

    name: str
    state: NodeState
    cordoned: bool
    fault_domain: int
    capacity: int
    used: int
    vms: list[str]
    # Those of them that do not run: they keep their places.
    stopped: list[str]
    operations: list[str]
    # Whether it has an endpoint of its own, for which events wait.
    endpoint: bool


class Scope(Shape):
    """The VMs that see an event and may approve it."""

    name: str
    kind: ScopeKind
    resource_group: str
    vms: list[str]
    enabled: bool
    heard_at: datetime | None
    incarnation: int
    automatically_approve: list[EventType]
    events: list[str]


class ScaleSet(Shape):
    """What is said once for all instances of a scale set."""

    name: str
    priority: Priority
    terminate_notice_minutes: int | None
    # What its instances are given: a minute is shorter where the timing profile says so.
    terminate_notice_seconds: int | None
    placement_groups: int
    resource_group: str
    vms: list[str]


class Approval(Shape):
    """Who gave the go-ahead, and when."""

    by: str
    at: datetime


class Seen(Shape):
    """When a VM was first served the event."""

    vm: str
    at: datetime


class Event(Shape):
    """An event: what the document shows of it, and what only the control plane knows."""

    id: str
    type: EventType
    status: EventStatus
    source: EventSource
    resources: list[str]
    not_before: datetime
    description: str
    duration_seconds: int
    scope: str
    operation: str
    node: str | None
    update_domain: int | None
    announced_at: datetime
    started_at: datetime | None
    gone_at: datetime | None
    # The notice that is promised, more after it was postponed; and what was given in the end.
    notice_seconds: float
    notice_given_seconds: float | None
    approvals: list[Approval]
    seen: list[Seen]
    never_seen: list[str]
    reason: str
    # Nodes whose endpoint has not said that it shows the event: unapproved, it waits for them.
    unconfirmed: list[str]
    # The VMs to which it could not be done, as far as is still known.
    failed: list[str]


class Impact(Shape):
    """What is done to one VM by an operation."""

    vm: str
    kind: ImpactKind
    status: ImpactStatus
    source: str | None
    target: str | None
    begun_at: datetime
    ended_at: datetime | None
    reason: str


class Operation(Shape):
    """What is going to happen, happens, or has happened."""

    id: str
    request: str
    kind: OperationKind
    status: OperationStatus
    requested_by: str
    vms: list[str]
    node: str | None
    asked_at: datetime
    not_before: datetime
    started_at: datetime | None
    ended_at: datetime | None
    events: list[str]
    impacts: list[Impact]
    rollout: str | None
    reason: str
    # Nodes whose endpoint has to confirm one of its events before it starts.
    unconfirmed: list[str]


class RolloutNode(Shape):
    """One node's place and state in a rollout."""

    node: str
    status: RolloutNodeStatus
    waits_for: str
    reason: str


class Rollout(Shape):
    """The same operation on many nodes."""

    id: str
    kind: OperationKind
    status: RolloutStatus
    requested_by: str
    asked_at: datetime
    ended_at: datetime | None
    node_count: int
    live_count: int
    done_count: int
    failed_count: int
    skipped_count: int
    canceled_count: int
    nodes_at_once_max: int
    failure_budget: int
    recovery_seconds: int
    windows: list[WindowBody]
    reason: str
    # Left out where many rollouts are listed.
    nodes: list[RolloutNode] = []


class Step(Shape):
    """One line of a story: what happened when, in words."""

    at: datetime
    what: str
    text: str
    revision: int


class History(Shape):
    """The story of an event, and how its promise was kept."""

    event: Event
    steps: list[Step]


class Accepted(Shape):
    """What came of a command. `id` names the request, or the rollout."""

    id: str | None
    operations: list[str]
    events: list[Event]
    # VMs that an evacuation leaves where they are.
    left: list[str]
    warnings: list[str]


class Foresight(Accepted):
    """What would come of a command that is given now, and the same in words; nothing is done."""

    sentences: list[str]


class ForecastNode(Shape):
    """When a rollout would take a node."""

    node: str
    announced_at: datetime
    over_at: datetime


class InTheWay(Shape):
    """A node that a rollout cannot take at once, and what would help."""

    node: str
    why: str


class Forecast(Shape):
    """What a rollout would do, if nobody approves anything early."""

    order: list[ForecastNode]
    in_the_way: list[InTheWay]
    ends_at: datetime | None
    warnings: list[str]


class FaultOn(Shape):
    """A fault that is on: the endpoint misbehaves on purpose, towards one VM or towards all."""

    id: str
    fault: FaultKind
    vm: str | None
    # What they mean depends on the kind; null where they mean nothing.
    seconds: float | None
    since: datetime
    # When it clears itself; null where it stays until somebody does.
    ends_at: datetime | None


class FaultMeaning(Shape):
    """A kind of fault that there is."""

    fault: FaultKind
    sentence: str
    # What its seconds are where they are left out, and what they mean.
    seconds: float | None
    seconds_mean: str
    # Answers that it has spoiled since the process began.
    spoiled: int


class Faults(Shape):
    """What is on now, and what there is."""

    items: list[FaultOn]
    next: str | None
    kinds: list[FaultMeaning]


class Cleared(Shape):
    """Faults that were on and are not any more."""

    cleared: list[str]


class Problem(Shape):
    """Why not, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    # The field of the request that is wrong; the rule of SPECIFICATION.md that says no; the event
    # and the operation in the way; names that may have been meant.
    field: str | None = None
    rule: int | None = None
    event: str | None = None
    operation: str | None = None
    nearest: list[str] = []


class Health(Shape):
    """Whether the service can do its work, and why not; and what belongs to it."""

    ready: bool
    why: str = ""
    # Where metadata and Azure's tools are served, HOST:PORT, and its store's URL; or empty.
    metadata: str = ""
    arm: str = ""
    store: str = ""
    # The last revision that it shows, and whether it takes commands itself.
    revision: int = 0
    leading: bool = False
    # Of several control planes: where the one that leads is reached (empty where none is known),
    # its epoch, and for how long this one has not known where the journal ends.
    leader: str = ""
    epoch: int = 0
    lag_seconds: float = 0.0


class Line(Shape):
    """One line of the feed: a change, with the whole row as it is afterwards."""

    # Where to go on from; 0 within a snapshot, whose last line has it.
    revision: int
    # When it happened; of a snapshot, nothing is said.
    at: datetime | None
    what: str
    kind: str
    id: str
    removed: bool
    row: dict[str, Any]
