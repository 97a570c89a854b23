"""Situations about whom an event names: the client's VM, others of its scope, or both."""

from collections.abc import Callable, Sequence
from functools import partial

from fairnotice.testing.conform.scene import Scene
from fairnotice.testing.conform.situation import Situation
from fairnotice.words import EventType

NOT_NAMED = "which does not name it"


def _fleet() -> str:
    """Three VMs on one node and in one update domain, so that one event names all; and neighbours.

    Their names hold each other. There are nodes to spare, so that each may be redeployed.
    """
    nodes = "".join(
        f'[[node]]\nname = "node-{number}"\nfault_domain = {number % 3}\ncapacity = 16\n'
        for number in range(5)
    )
    vms = "".join(
        f'[[vm]]\nname = "{name}"\nnode = "node-{number}"\n'
        f'availability_set = "web"\nupdate_domain = {number}\n'
        for name, number in (
            ("web-0", 0),
            ("web-02", 0),
            ("web-03", 0),
            ("web-01", 1),
            ("web", 2),
        )
    )
    return f'{nodes}[[availability_set]]\nname = "web"\n{vms}'


NEIGHBOURS = _fleet()


def _beside(*others: tuple[str, EventType | None]) -> Callable[[Scene], None]:
    """Events that name others are left alone, and its own is still seen meanwhile."""
    return partial(_play_beside, others=others)


def _play_beside(scene: Scene, others: Sequence[tuple[str, EventType | None]]) -> None:
    scene.begin()
    for vm, kind in others:
        event = scene.announce(vm, kind)
        scene.tell(f"a {event.type} was announced that names {vm} alone")
        scene.leaves_alone(event, NOT_NAMED)
    scene.tell("an event was announced that names it")
    scene.recovers()
    # It may take its time to acknowledge its own, so also what it should not.
    scene.looks_on()


def _own_among_others(scene: Scene) -> None:
    scene.begin()
    for vm in ("web-1", "web-2"):
        scene.forbid(scene.announce(vm), NOT_NAMED)
    scene.tell("an event that names it was announced together with others")
    scene.recovers()


def _five(scene: Scene) -> None:
    scene.begin()
    for vm in ("web-1", "web-2"):
        for kind in (EventType.REBOOT, EventType.REDEPLOY):
            scene.forbid(scene.announce(vm, kind), NOT_NAMED)
    scene.tell("five events were shown, of which the last names it")
    scene.recovers()


def _shared(scene: Scene) -> None:
    scene.begin()
    [event] = scene.cloud.node("node-0").maintain()
    scene.tell(f"an event was announced that names {' and '.join(event.resources)}")
    if scene.declared.first_leads and event.resources[0] != scene.vm:
        scene.leaves_alone(event, "which it was said to leave to the first of them")
    else:
        scene.decides(event)


BY_NAME = "Acknowledge only events with its own name in Resources; all of a scope see all of them."

SITUATIONS = (
    Situation(
        "of-another",
        "A Reboot, a Redeploy and a Freeze name another VM of its availability set.",
        BY_NAME,
        "The document",
        _beside(
            ("web-1", EventType.REBOOT),
            ("web-1", EventType.REDEPLOY),
            ("web-1", EventType.FREEZE),
        ),
    ),
    Situation(
        "preempt-of-another",
        "Another Spot VM of its scale set is taken away.",
        BY_NAME,
        "The document",
        _beside(("spot_1", EventType.PREEMPT)),
        vm="spot_0",
    ),
    Situation(
        "own-among-others",
        "Events for it and for two others are announced at once.",
        BY_NAME,
        "The document",
        _own_among_others,
    ),
    Situation(
        "five-events",
        "Four events that name others stand before its own.",
        "Go through all of Events, and acknowledge those that name it.",
        "The document",
        _five,
    ),
    Situation(
        "shared",
        "One event names it, first, and two other VMs on the same node.",
        "Look for its name anywhere in Resources; one approval counts for all who are named.",
        "Approving",
        _shared,
        acknowledging=True,
        fleet=NEIGHBOURS,
    ),
    Situation(
        "shared-not-first",
        "One event names three VMs on the same node: it is neither the first nor the last.",
        "Look for its name anywhere in Resources; or say that the first leads.",
        "Approving",
        _shared,
        acknowledging=True,
        vm="web-02",
        fleet=NEIGHBOURS,
    ),
    Situation(
        "similar-names",
        "Events name web-01 and web while it is web-0.",
        "Compare whole names, not parts of them.",
        "a client in use looks for a part of the name",
        _beside(("web-01", None), ("web", None)),
        fleet=NEIGHBOURS,
    ),
    Situation(
        "in-a-scale-set",
        "It is batch_0 of a scale set: the host name is another. batch_1 is going to be deleted.",
        "Take its name from /metadata/instance/compute/name, not from the host name.",
        "The instance document",
        _beside(("batch_1", EventType.TERMINATE)),
        vm="batch_0",
    ),
    Situation(
        "in-a-cloud-service",
        "It is FrontEnd_IN_0 of a cloud service. An event names FrontEnd_IN_1.",
        "Take its name from /metadata/instance/compute/name, not from the host name.",
        "The instance document",
        _beside(("FrontEnd_IN_1", None)),
        vm="FrontEnd_IN_0",
    ),
)
