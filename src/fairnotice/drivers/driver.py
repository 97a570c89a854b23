"""The port to whatever touches machines. `fairnotice.testing.check_driver` is its proof.

The conductor commits an impact's intent first and then hands it over, once. If it dies in
between, or before it hears how it ended, the driver is asked for the outcome of the same key.
Every call carries the epoch of the control plane that makes it; the highest one is kept where the
impact happens, and an older one is refused there with errors.LeadLost.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from fairnotice.words import ImpactKind, Outcome, Power


class Order(NamedTuple):
    """An impact to carry out: what, on which VM, under which key."""

    key: str
    vm: str
    kind: ImpactKind
    # Where the VM is, and where it goes if it moves or is started.
    node: str | None = None
    target: str | None = None
    # The event that announced it, if any did.
    event: str | None = None
    # How long a pause is announced to take; -1 where nobody knows.
    duration_seconds: int = -1
    # When the law gives up on it, from now.
    limit_seconds: float = 600.0
    # All nodes that were declared failed: nothing runs there, even if nobody there can be asked.
    # Else a VM is started elsewhere only once it is known to be off.
    failed_nodes: frozenset[str] = frozenset()

    @property
    def node_failed(self) -> bool:
        """Whether the node where the VM is has failed."""
        return self.node in self.failed_nodes


class Report(NamedTuple):
    """What became of an impact, and whatever a person should read about it."""

    outcome: Outcome
    reason: str = ""


class Capabilities(NamedTuple):
    """What a driver can do."""

    name: str
    kinds: frozenset[ImpactKind]
    # Whether it can say what became of a key after this process, not it, has died.
    answers: bool
    # Whether it can say which VMs there are.
    discovers: bool
    # Whether a VM that the law has placed is there by that alone: nobody has to make it.
    makes: bool = False


class Found(NamedTuple):
    """A VM as the driver sees it."""

    vm: str
    node: str | None
    power: Power


class Survey(NamedTuple):
    """All machines as the driver sees them at this moment."""

    found: tuple[Found, ...]
    # The nodes that were asked, and those that cannot be reached, and could not for a while.
    reached: frozenset[str]
    away: frozenset[str]
    # Whether every node was asked that has not failed: only then one that was not found is gone,
    # unless it may have been where one has failed.
    whole: bool
    # VMs of which it cannot be told where and how they are, nor that they are gone.
    unsure: frozenset[str] = frozenset()


class Driver(Protocol):
    """What carries out impacts."""

    def capabilities(self) -> Capabilities:
        """What it can do; the same for as long as it lives."""
        ...

    async def impact(self, order: Order, epoch: int) -> Report:
        """Carry the order out; return when it has ended, done or failed.

        A key that is known already is not carried out again: its outcome is returned, when it has
        one; unknown is returned where it was begun and nobody saw it end. Canceled, it stops
        waiting, and the impact goes on where it can.

        Raises errors.Unavailable when it could not be begun, or when it cannot be told now how it
        ended: ask for its outcome, which says which.
        """
        ...

    async def outcome(
        self, key: str, epoch: int, failed_nodes: frozenset[str] = frozenset()
    ) -> Report:
        """What became of this key, as far as is known now.

        Not begun is said only where it is certain, and where no older epoch can begin it any
        more; a driver that does not answer says unknown of what it has not seen itself. On nodes
        that were declared failed it neither is under way nor will be: nobody has to be asked there.
        Raises errors.Unavailable when it cannot be told now, and may be later.
        """
        ...

    async def discover(self, epoch: int) -> tuple[Found, ...]:
        """The VMs that there are; none where the driver cannot tell."""
        ...

    async def close(self) -> None:
        """Let go of everything; impacts that are under way go on where they can."""
        ...


@runtime_checkable
class Watching(Protocol):
    """A driver that sees what happens to machines without its doing."""

    async def survey(self, epoch: int, failed_nodes: frozenset[str] = frozenset()) -> Survey:
        """What there is now. Raises errors.LeadLost to an older epoch.

        Nodes that were declared failed are not missed; what one of them says counts all the same.
        """
        ...

    async def news(self) -> None:
        """Return when it may be worth another look."""
        ...
