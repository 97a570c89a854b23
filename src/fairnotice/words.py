"""The words: every value that a noun, a command or a document can take, one meaning each."""

from enum import StrEnum


class EventType(StrEnum):
    """What will happen to the VM, in Azure's words."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"


class EventStatus(StrEnum):
    """Where an event is in its life. A document shows only the first two."""

    SCHEDULED = "Scheduled"
    STARTED = "Started"
    COMPLETED = "Completed"
    CANCELED = "Canceled"


class EventSource(StrEnum):
    """Who wanted it."""

    PLATFORM = "Platform"
    USER = "User"


class Priority(StrEnum):
    """Whether a VM may be evicted."""

    REGULAR = "Regular"
    SPOT = "Spot"


class EvictionPolicy(StrEnum):
    """What an eviction leaves of a Spot VM."""

    DELETE = "Delete"
    DEALLOCATE = "Deallocate"


class Power(StrEnum):
    """A stopped VM keeps its place on its node, a deallocated one has none."""

    RUNNING = "running"
    STOPPED = "stopped"
    DEALLOCATED = "deallocated"


class Network(StrEnum):
    """How a VM finds its metadata endpoint: at 169.254.169.254, or by DHCP option 245."""

    VNET = "vnet"
    CLASSIC = "classic"


class ScopeKind(StrEnum):
    """The four kinds of scope."""

    STANDALONE = "vm"
    AVAILABILITY_SET = "availability-set"
    PLACEMENT_GROUP = "scale-set"
    CLOUD_SERVICE = "cloud-service"


class NodeHealth(StrEnum):
    """What is known of a node. Only an operator or a fencing command calls one failed."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


class NodeState(StrEnum):
    """What a person calls the state of a node."""

    IN_SERVICE = "in service"
    CORDONED = "cordoned"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


class Risk(StrEnum):
    """How soon a predicted failure is expected."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Role(StrEnum):
    """In what capacity somebody asks."""

    USER = "user"
    OPERATOR = "operator"
    PLATFORM = "platform"
    VM = "vm"


class TokenRole(StrEnum):
    """What a token is for. Each of the first three may do all that the one before it may."""

    READER = "reader"
    OPERATOR = "operator"
    ADMIN = "admin"
    ENDPOINT = "endpoint"


class EventSchema(StrEnum):
    """In what form a webhook is told of an event."""

    CLOUDEVENTS = "cloudevents"
    EVENTGRID = "eventgrid"


class OperationKind(StrEnum):
    """What is going to happen. The table of all that follows from it is engine/kinds.py."""

    HOST_UPDATE = "host-update"
    HOST_REBOOT = "host-reboot"
    REPAIR = "repair"
    MIGRATION = "migration"
    EVACUATION = "evacuation"
    PREDICTED_FAILURE = "predicted-failure"
    FAILURE = "failure"
    RESTART = "restart"
    REDEPLOY = "redeploy"
    EVICTION = "eviction"
    DELETE = "delete"
    STOP = "stop"
    START = "start"
    DEALLOCATE = "deallocate"


class OperationStatus(StrEnum):
    """Where an operation is in its life."""

    PENDING = "Pending"
    STARTED = "Started"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    RESOLVED = "Resolved"


class ImpactKind(StrEnum):
    """What a driver does to one VM."""

    FREEZE = "freeze"
    REBOOT = "reboot"
    REDEPLOY = "redeploy"
    MIGRATE = "migrate"
    DELETE = "delete"
    STOP = "stop"
    START = "start"
    DEALLOCATE = "deallocate"


class ImpactStatus(StrEnum):
    """An impact is begun from the commit of its intent on."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class Outcome(StrEnum):
    """What a driver answers when it is asked what became of an impact."""

    NOT_BEGUN = "not begun"
    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class RolloutStatus(StrEnum):
    """Where a rollout is in its life."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELED = "canceled"


class RolloutNodeStatus(StrEnum):
    """Where one node of a rollout is."""

    PENDING = "pending"
    LIVE = "live"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELED = "canceled"
