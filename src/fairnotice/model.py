"""The nouns of fairnotice, frozen. What they mean is in docs/glossary.md.

Rows are named tuples: they cannot change, they are small (a fleet holds a million of them) and a
changed copy costs a quarter of a frozen dataclass's. Instants are aware datetimes in UTC.
"""

from datetime import datetime
from typing import NamedTuple

from fairnotice.words import (
    EventSource,
    EventStatus,
    EventType,
    EvictionPolicy,
    ImpactKind,
    ImpactStatus,
    Network,
    NodeHealth,
    NodeState,
    OperationKind,
    OperationStatus,
    Power,
    Priority,
    Role,
    RolloutNodeStatus,
    RolloutStatus,
    ScopeKind,
)


class Moment(NamedTuple):
    """One instant on both clocks: the wall clock for people, the monotonic one for waiting."""

    wall: datetime
    monotonic: float


class Requester(NamedTuple):
    """Who asks for something, and in what capacity."""

    name: str
    role: Role


class Node(NamedTuple):
    """A hypervisor machine."""

    name: str
    fault_domain: int = 0
    capacity: int = 16
    cordoned: bool = False
    health: NodeHealth = NodeHealth.REACHABLE

    @property
    def state(self) -> NodeState:
        """The one word a person reads; the worst that is true."""
        if self.health is NodeHealth.FAILED:
            return NodeState.FAILED
        if self.health is NodeHealth.UNREACHABLE:
            return NodeState.UNREACHABLE
        return NodeState.CORDONED if self.cordoned else NodeState.IN_SERVICE


class Vm(NamedTuple):
    """A virtual machine. Its fault domain is its node's."""

    name: str
    scope: str
    node: str | None
    update_domain: int | None = None
    power: Power = Power.RUNNING
    priority: Priority = Priority.REGULAR
    eviction_policy: EvictionPolicy = EvictionPolicy.DEALLOCATE
    addresses: tuple[str, ...] = ()
    network: Network = Network.VNET
    resource_group: str = "default"
    zone: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    # The revision at which it was declared: it tells this VM from an earlier one of its name, whose
    # identity is not its own.
    declared_revision: int = 0

    @property
    def running(self) -> bool:
        """Whether it runs, and so can be told and hit."""
        return self.power is Power.RUNNING


class ScaleSet(NamedTuple):
    """What is said once for all instances of a scale set."""

    name: str
    priority: Priority = Priority.REGULAR
    terminate_notice_minutes: int | None = None
    placement_groups: int = 1
    resource_group: str = "default"


class Kept(NamedTuple):
    """What somebody said of a VM or a set that means nothing to the law: given back as it was."""

    # `vm:NAME`, `availability-set:NAME` or `scale-set:NAME`.
    resource: str
    # JSON, which the law does not read.
    body: str = "{}"


class LastTouched(NamedTuple):
    """An update domain of a scope that a platform operation has left, and when."""

    update_domain: int
    ended_at: datetime


class Unserved(NamedTuple):
    """A time in which nobody could ask."""

    since: datetime
    until: datetime


class Scope(NamedTuple):
    """The VMs that see an event and may approve it."""

    name: str
    kind: ScopeKind
    of: str
    placement_group: int = 0
    resource_group: str = "default"
    automatically_approve: tuple[EventType, ...] = ()
    enabled_at: datetime | None = None
    # The last request that counted, and the service's unserved seconds at that time (rule 8).
    heard_at: datetime | None = None
    heard_unserved_seconds: float = 0.0
    incarnation: int = 1
    # How often it was enabled: with the incarnation it makes an ETag that never repeats.
    enablings: int = 0
    # The last two update domains whose turn ended, the later one first.
    last_touched: tuple[LastTouched, ...] = ()
    # The revision at which it was created: it tells this scope from all others, also from an
    # earlier one of the same name.
    declared_revision: int = 0
    # When it was served by nobody since it was last heard: in order, and none of it twice (rule 8).
    unserved: tuple[Unserved, ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether somebody listens here."""
        return self.enabled_at is not None


def scope_name(kind: ScopeKind, of: str, placement_group: int = 0) -> str:
    """How a scope is called: `vm:db`, `availability-set:web`, `scale-set:batch:0`."""
    if kind is ScopeKind.PLACEMENT_GROUP:
        return f"{kind}:{of}:{placement_group}"
    return f"{kind}:{of}"


class Request(NamedTuple):
    """What one command asked for: one or more operations that were accepted together."""

    id: str
    # None where nothing but a key is remembered, of what made no operation.
    kind: OperationKind | None
    requester: Requester
    asked_at: datetime
    operations: tuple[str, ...]
    node: str | None = None
    # VMs of an evacuation that had no place and were not announced.
    left: tuple[str, ...] = ()
    # An evacuation that is over, and whether it left VMs on its node: it may be repeated.
    ended_at: datetime | None = None
    incomplete: bool = False
    # Operations of earlier requests that this one only asked for again (rule 19).
    repeats: tuple[str, ...] = ()
    idempotency_key: str | None = None
    # What the key stands for: a digest of the command.
    fingerprint: str = ""
    # Where nothing but the key is remembered: the events, and the rollout, that the answer named.
    events: tuple[str, ...] = ()
    rollout: str | None = None


class Operation(NamedTuple):
    """What is going to happen to these VMs. It makes an event per scope and update domain."""

    id: str
    request: str
    kind: OperationKind
    vms: tuple[str, ...]
    revision: int
    asked_at: datetime
    # When it starts if nobody approves; what its requester asked for, if anything.
    not_before: datetime
    asked_not_before: datetime | None = None
    node: str | None = None
    fault_domain: int | None = None
    status: OperationStatus = OperationStatus.PENDING
    duration_seconds: int = -1
    events: tuple[str, ...] = ()
    # (scope, update domain) of each VM it named when it was planned.
    touches: tuple[tuple[str, int | None], ...] = ()
    automatic: bool = False
    forced: bool = False
    rollout: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""

    @property
    def live(self) -> bool:
        """Announced or started, and not over."""
        return self.ended_at is None

    @property
    def pending(self) -> bool:
        """Not started yet."""
        return self.status is OperationStatus.PENDING


class Approval(NamedTuple):
    """The go-ahead for an event: the first one counts."""

    by: str
    at: datetime


class Seen(NamedTuple):
    """When a VM was first served an event."""

    vm: str
    at: datetime


class Event(NamedTuple):
    """An operation as one scope sees it."""

    id: str
    operation: str
    scope: str
    type: EventType
    source: EventSource
    status: EventStatus
    resources: tuple[str, ...]
    revision: int
    announced_at: datetime
    not_before: datetime
    # The notice promised when it was announced.
    notice_seconds: float
    description: str = ""
    duration_seconds: int = -1
    update_domain: int | None = None
    node: str | None = None
    approval: Approval | None = None
    seen: tuple[Seen, ...] = ()
    # Nodes whose endpoint has not confirmed that it shows this event (rule 5).
    unconfirmed: tuple[str, ...] = ()
    # The first revision whose confirmation counts; an operator's word that none is needed.
    unconfirmed_since: int = 0
    released: bool = False
    # The life of the process that promised the notice, and when it has elapsed there (rule 25).
    life: int = 0
    elapsed_at: float = 0.0
    notice_renewed: bool = False
    settling_since: datetime | None = None
    started_at: datetime | None = None
    gone_at: datetime | None = None
    reason: str = ""
    # Whose word it was that no confirmation is needed.
    released_by: str = ""

    def __str__(self) -> str:
        # NotBefore means something only until the start, so only then a person is shown it.
        words = f"{self.type} of {', '.join(self.resources) or 'nobody'}, {self.status}"
        if self.scheduled:
            words += f", not before {self.not_before:%Y-%m-%d %H:%M:%S} UTC"
        return words

    @property
    def visible(self) -> bool:
        """Whether the document shows it."""
        return self.gone_at is None

    @property
    def scheduled(self) -> bool:
        """Announced and not started."""
        return self.status is EventStatus.SCHEDULED

    @property
    def notice_given_seconds(self) -> float | None:
        """From the announcement to the start; None while it has not started."""
        if self.started_at is None:
            return None
        return (self.started_at - self.announced_at).total_seconds()


class Impact(NamedTuple):
    """What is done to one VM by one operation; its key is what makes it happen once."""

    key: str
    operation: str
    vm: str
    kind: ImpactKind
    begun_at: datetime
    limit_at: datetime
    status: ImpactStatus = ImpactStatus.BEGUN
    source: str | None = None
    target: str | None = None
    # The driver was asked what became of it, and has not answered.
    asked: bool = False
    ended_at: datetime | None = None
    reason: str = ""

    @property
    def live(self) -> bool:
        """Under way."""
        return self.ended_at is None


class Window(NamedTuple):
    """A weekly maintenance window, in UTC. Monday is 0; it may run past midnight."""

    weekdays: tuple[int, ...]
    start_minute: int
    length_minutes: int


class Rollout(NamedTuple):
    """The same node operation on many nodes, one after another."""

    id: str
    kind: OperationKind
    requester: Requester
    asked_at: datetime
    node_count: int
    nodes_at_once_max: int
    failure_budget: int
    recovery_seconds: int
    duration_seconds: int = -1
    windows: tuple[Window, ...] = ()
    status: RolloutStatus = RolloutStatus.RUNNING
    live_count: int = 0
    done_count: int = 0
    failed_count: int = 0
    # Nodes that are still live and will count as failed.
    failing_count: int = 0
    skipped_count: int = 0
    # Failures before the last resume: the budget counts anew from there.
    forgiven_count: int = 0
    ended_at: datetime | None = None
    reason: str = ""
    idempotency_key: str | None = None
    fingerprint: str = ""


class RolloutNode(NamedTuple):
    """One node's place and state in a rollout."""

    rollout: str
    node: str
    position: int
    status: RolloutNodeStatus = RolloutNodeStatus.PENDING
    request: str | None = None
    # While pending: the scope that has to be left in peace before this node can be taken.
    waits_for: str = ""
    # While live: one of its impacts has failed already.
    failing: bool = False
    reason: str = ""


class Endpoint(NamedTuple):
    """A metadata endpoint of a node, and the revision that it confirmed it serves."""

    node: str
    confirmed_revision: int = 0
    # When it last said anything; written down once in a while.
    heard_at: datetime | None = None


class Life(NamedTuple):
    """One life of the process that keeps the law, and how long nobody was served in all."""

    number: int = 0
    began_at: datetime | None = None
    unserved_seconds: float = 0.0


class Document(NamedTuple):
    """What a VM reads."""

    incarnation: int
    events: tuple[Event, ...] = ()
