"""Situations about whom an event names: the client's VM, others of its scope, or both."""

from fairnotice.testing.conform.scene import Scene
from fairnotice.testing.conform.situation import Situation
from fairnotice.words import EventType

NOT_NAMED = "which does not name it"


def _fleet() -> str:
    """Two VMs on one node and in one update domain, so that one event names both; and neighbours.

    Their names hold each other. There are nodes to spare, so that each may be redeployed.
    """
    nodes = "".join(
        f'[[node]]\nname = "node-{number}"\nfault_domain = {number % 3}\ncapacity = 16\n'
        for number in range(5)
    )
    vms = "".join(
        f'[[vm]]\nname = "{name}"\nnode = "node-{number}"\n'
        f'availability_set = "web"\nupdate_domain = {number}\n'
        for name, number in (("web-0", 0), ("web-03", 0), ("web-01", 1), ("web", 2))
    )
    return f'{nodes}[[availability_set]]\nname = "web"\n{vms}'


NEIGHBOURS = _fleet()


def _other(scene: Scene, *others: str) -> None:
    """Events that name others are left alone, and its own is still seen afterwards."""
    scene.begin()
    for other in others:
        scene.tell(f"an event was announced that names {other} alone")
        scene.leaves_alone(scene.announce(other), NOT_NAMED)
    scene.tell("an event was announced that names it")
    scene.recovers()


def _of_another(scene: Scene) -> None:
    _other(scene, "web-1")


def _similar(scene: Scene) -> None:
    _other(scene, "web-01", "web")


def _in_a_scale_set(scene: Scene) -> None:
    _other(scene, "batch_1")


def _in_a_cloud_service(scene: Scene) -> None:
    _other(scene, "FrontEnd_IN_1")


def _own_among_others(scene: Scene) -> None:
    scene.begin()
    others = [scene.announce("web-1"), scene.announce("web-2")]
    scene.tell("an event that names it was announced together with others")
    scene.recovers()
    for event in others:
        scene.has_left_alone(event, NOT_NAMED)


def _five(scene: Scene) -> None:
    scene.begin()
    others = [
        scene.announce(vm, kind)
        for vm in ("web-1", "web-2")
        for kind in (EventType.REBOOT, EventType.REDEPLOY)
    ]
    scene.tell("five events were shown, of which the last names it")
    scene.recovers()
    for event in others:
        scene.has_left_alone(event, NOT_NAMED)


def _shared(scene: Scene) -> None:
    scene.begin()
    [event] = scene.cloud.node("node-0").maintain()
    scene.tell("an event was announced that names it and another")
    scene.decides(event)


BY_NAME = "Acknowledge only events with its own name in Resources; all of a scope see all of them."

SITUATIONS = (
    Situation(
        "of-another",
        "An event names another VM of its availability set.",
        BY_NAME,
        "The document",
        _of_another,
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
        "One event names it, first, and another VM on the same node.",
        "Look for its name anywhere in Resources; one approval counts for all who are named.",
        "Approving",
        _shared,
        acknowledging=True,
        fleet=NEIGHBOURS,
    ),
    Situation(
        "similar-names",
        "Events name web-01 and web while it is web-0.",
        "Compare whole names, not parts of them.",
        "a client in use looks for a part of the name",
        _similar,
        fleet=NEIGHBOURS,
    ),
    Situation(
        "in-a-scale-set",
        "It is batch_0 of a scale set: the host name is another. An event names batch_1.",
        "Take its name from /metadata/instance/compute/name, not from the host name.",
        "The instance document",
        _in_a_scale_set,
        vm="batch_0",
    ),
    Situation(
        "in-a-cloud-service",
        "It is FrontEnd_IN_0 of a cloud service. An event names FrontEnd_IN_1.",
        "Take its name from /metadata/instance/compute/name, not from the host name.",
        "The instance document",
        _in_a_cloud_service,
        vm="FrontEnd_IN_0",
    ),
)
