"""What is different after a command: what the journal holds and the history is told from (rule 26).

Each change names what happened, says when, and carries the whole row as it is afterwards. So a
store writes the row, a follower needs no other row to understand it, and applying it twice does
no harm.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from fairnotice.model import (
    Endpoint,
    Event,
    Impact,
    Kept,
    Life,
    Node,
    Operation,
    Request,
    Rollout,
    RolloutNode,
    ScaleSet,
    Scope,
    Vm,
)

Row = (
    Node
    | Vm
    | Scope
    | ScaleSet
    | Request
    | Operation
    | Event
    | Impact
    | Rollout
    | RolloutNode
    | Endpoint
    | Life
    | Kept
)
AnyRow_co = TypeVar("AnyRow_co", bound=Row, covariant=True)


@dataclass(frozen=True, slots=True)
class Change(Generic[AnyRow_co]):
    """At this time this happened, and the row is now like this."""

    at: datetime
    row: AnyRow_co


class Removal(Change[AnyRow_co]):
    """The row, shown as it was last, is there no more."""

    __slots__ = ()


# ---- The fleet ----


class NodeDeclared(Change[Node]):
    """A node was added or described anew."""

    __slots__ = ()


class NodeCordoned(Change[Node]):
    """Nothing is put on this node any more."""

    __slots__ = ()


class NodeReturned(Change[Node]):
    """The node is back in service."""

    __slots__ = ()


class NodeReached(Change[Node]):
    """What is known of the node's health changed: reachable, or not."""

    __slots__ = ()


class NodeFailed(Change[Node]):
    """The node failed."""

    __slots__ = ()


class NodeRemoved(Removal[Node]):
    """The node is no longer part of the fleet."""

    __slots__ = ()


class VmDeclared(Change[Vm]):
    """A VM was added or described anew."""

    __slots__ = ()


class VmMoved(Change[Vm]):
    """The VM is on another node, or on none."""

    __slots__ = ()


class VmPowerChanged(Change[Vm]):
    """The VM runs, is stopped, or is deallocated."""

    __slots__ = ()


class VmRemoved(Removal[Vm]):
    """The VM is gone for good."""

    __slots__ = ()


class ScaleSetDeclared(Change[ScaleSet]):
    """A scale set was added or described anew."""

    __slots__ = ()


class ScaleSetRemoved(Removal[ScaleSet]):
    """The scale set is no longer part of the fleet."""

    __slots__ = ()


class PropertiesKept(Change[Kept]):
    """Something was said of a VM or a set that has no effect."""

    __slots__ = ()


class PropertiesForgotten(Removal[Kept]):
    """The VM or the set is gone, or nothing more is said of it."""

    __slots__ = ()


# ---- Scopes ----


class ScopeDeclared(Change[Scope]):
    """A scope was added, or its policy changed."""

    __slots__ = ()


class ScopeRemoved(Removal[Scope]):
    """The scope is no longer part of the fleet."""

    __slots__ = ()


class ScopeEnabled(Change[Scope]):
    """Somebody listens here from now on."""

    __slots__ = ()


class ScopeHeard(Change[Scope]):
    """A later request, or time that does not count as silence, keeps the scope enabled."""

    __slots__ = ()


class ScopeDisabled(Change[Scope]):
    """Nobody has asked for too long."""

    __slots__ = ()


class ScopeTouched(Change[Scope]):
    """A platform operation on one of its update domains is over."""

    __slots__ = ()


class DocumentChanged(Change[Scope]):
    """The scope's document is another one, and so its incarnation."""

    __slots__ = ()


# ---- Operations and events ----


class RequestAccepted(Change[Request]):
    """Somebody asked for something, and it was accepted."""

    __slots__ = ()


class EvacuationEnded(Change[Request]):
    """An evacuation is over: the node is empty, or it is incomplete and may be repeated."""

    __slots__ = ()


class RequestForgotten(Removal[Request]):
    """The request is history."""

    __slots__ = ()


class OperationPlanned(Change[Operation]):
    """This is going to happen."""

    __slots__ = ()


class OperationChanged(Change[Operation]):
    """It names fewer VMs, more events, or a later time."""

    __slots__ = ()


class OperationStarted(Change[Operation]):
    """It happens now."""

    __slots__ = ()


class OperationEnded(Change[Operation]):
    """It is over: completed, failed, canceled or resolved."""

    __slots__ = ()


class OperationForgotten(Removal[Operation]):
    """The operation is history."""

    __slots__ = ()


class EventAnnounced(Change[Event]):
    """A scope can see it from now on."""

    __slots__ = ()


class EventSeen(Change[Event]):
    """A VM was served it for the first time."""

    __slots__ = ()


class EventApproved(Change[Event]):
    """Somebody gave the go-ahead."""

    __slots__ = ()


class EventPostponed(Change[Event]):
    """NotBefore is later now."""

    __slots__ = ()


class EventResourcesChanged(Change[Event]):
    """A VM left it."""

    __slots__ = ()


class EventConfirmed(Change[Event]):
    """An endpoint confirmed it, need not any more, or must now."""

    __slots__ = ()


class EventStarted(Change[Event]):
    """Its impact begins."""

    __slots__ = ()


class EventSettling(Change[Event]):
    """All its impacts have ended; it goes when things have settled."""

    __slots__ = ()


class EventGone(Change[Event]):
    """It is over: Completed, or Canceled with the reason."""

    __slots__ = ()


class EventForgotten(Removal[Event]):
    """The event is history."""

    __slots__ = ()


# ---- Impacts ----


class ImpactBegun(Change[Impact]):
    """The intent: from here on it may have happened."""

    __slots__ = ()


class ImpactAsked(Change[Impact]):
    """After a restart the driver is asked what became of it, or has answered: not begun."""

    __slots__ = ()


class ImpactEnded(Change[Impact]):
    """Done, failed or timed out."""

    __slots__ = ()


class ImpactForgotten(Removal[Impact]):
    """The impact is history."""

    __slots__ = ()


# ---- Rollouts, endpoints, lives ----


class RolloutChanged(Change[Rollout]):
    """A rollout began, moved on, paused, went on or ended."""

    __slots__ = ()


class RolloutNodeChanged(Change[RolloutNode]):
    """A node's place in a rollout is another."""

    __slots__ = ()


class RolloutForgotten(Removal[Rollout]):
    """The rollout is history."""

    __slots__ = ()


class RolloutNodeForgotten(Removal[RolloutNode]):
    """The node's part in a rollout is history."""

    __slots__ = ()


class EndpointChanged(Change[Endpoint]):
    """An endpoint joined, confirmed a revision, or was heard of."""

    __slots__ = ()


class EndpointRemoved(Removal[Endpoint]):
    """An endpoint was taken away."""

    __slots__ = ()


class LifeBegan(Change[Life]):
    """A new life of the process."""

    __slots__ = ()
