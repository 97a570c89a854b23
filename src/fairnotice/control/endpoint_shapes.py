"""What a node's endpoint says to the control plane, and what is shown of it."""

from datetime import datetime
from typing import Annotated

import msgspec

from fairnotice.control.bodies import Instant
from fairnotice.control.shapes import Body, Shape

Revision = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# So much in one report; whoever has more to say says it in several.
REPORTED_MAX = 5_000
APPROVED_MAX = 1_000


class HeardAt(Body):
    """A VM of this scope was answered at this instant."""

    scope: str
    at: Instant


class SeenAt(Body):
    """A VM was first shown an event at this instant."""

    event: str
    vm: str
    at: Instant


class Unserved(Body):
    """For so long this endpoint served nobody, so the silence of these scopes says nothing."""

    scopes: Annotated[list[str], msgspec.Meta(max_length=REPORTED_MAX)]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=366 * 86_400)]
    # When it served again; left out, it did so just now.
    until: Instant | None = None


class Report(Body):
    """What an endpoint shows by now, and what it served lately."""

    # It shows everything up to this revision of its feed.
    confirmed: Revision | None = None
    heard: Annotated[list[HeardAt], msgspec.Meta(max_length=REPORTED_MAX)] = msgspec.field(
        default_factory=list
    )
    seen: Annotated[list[SeenAt], msgspec.Meta(max_length=REPORTED_MAX)] = msgspec.field(
        default_factory=list
    )
    unserved: Unserved | None = None


class SeenHere(Body):
    """The VM that approves was first shown this event at this instant."""

    event: str
    at: Instant


class ApproveHere(Body):
    """A VM of the node approves these events."""

    vm: str
    events: Annotated[list[str], msgspec.Meta(min_length=1, max_length=APPROVED_MAX)]
    # What it saw and was not reported yet: the approval may be the end of it.
    seen: Annotated[list[SeenHere], msgspec.Meta(max_length=REPORTED_MAX)] = msgspec.field(
        default_factory=list
    )


class EnableHere(Body):
    """VMs of the node, of these scopes, ask for their document for the first time."""

    # One alone, as endpoints said it at first.
    scope: str = ""
    scopes: Annotated[list[str], msgspec.Meta(max_length=REPORTED_MAX)] = msgspec.field(
        default_factory=list
    )


class IdentifyHere(Body):
    """A VM of the node asks for the token of its identity."""

    vm: str
    resource: str
    identity: str = ""


class IdentifiedHere(Shape):
    """What the VM is to be answered."""

    status: int
    body: str


class Heeded(Shape):
    """It is durable, at this revision."""

    revision: int
    # What of it was passed over, because it concerns no VM that is or was lately on the node.
    passed_over: int = 0
    # Whether its node has an endpoint by now. One that was taken away is not waited for: if it is
    # there all the same, it has to join again.
    joined: bool = True


class EnabledHere(Heeded):
    """Those of the node are enabled, durably."""

    # Of these no VM is on the node: nothing has happened to them.
    elsewhere: list[str] = msgspec.field(default_factory=list)


class ApprovedHere(Shape):
    """What came of an approval: the events that the VM's scope never saw, and then none."""

    revision: int
    unknown: list[str]


class Endpoint(Shape):
    """A node's endpoint, as far as this control plane knows."""

    node: str
    # It shows everything up to here; and the announced events that still wait for its word.
    confirmed_revision: int
    unconfirmed: list[str]
    # Whether it follows the feed of this control plane, and when this one last had its report:
    # reports go to the one that leads.
    connected: bool
    heard_at: datetime | None
    # Whether it follows any; null where it may follow another of several, and that one knows.
    followed: bool | None
