"""Random fleets for the simulator: all kinds of scopes, crowded and roomy, of any size."""

from random import Random

from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.words import EventType, EvictionPolicy, Priority

VMS_MAX = 200
NODES_MAX = 20

POLICIES: tuple[tuple[EventType, ...], ...] = (
    (),
    (),
    (EventType.REBOOT,),
    (EventType.REBOOT, EventType.REDEPLOY),
)


def random_fleet(chance: Random) -> FleetSpec:
    """A fleet of up to 20 nodes and 200 VMs in scopes of all four kinds."""
    nodes = tuple(
        NodeSpec(f"node-{number}", number % chance.randint(1, 4), chance.randint(4, 16))
        for number in range(chance.randint(3, NODES_MAX))
    )
    sets = tuple(
        SetSpec(f"set-{number}", automatically_approve=chance.choice(POLICIES))
        for number in range(chance.randint(1, 4))
    )
    scale_sets = tuple(_scale_set(chance, number) for number in range(chance.randint(1, 4)))
    services = tuple(SetSpec(f"service-{number}") for number in range(chance.randint(0, 2)))
    return FleetSpec(
        nodes=nodes,
        availability_sets=sets,
        scale_sets=scale_sets,
        cloud_services=services,
        vms=_vms(chance, nodes, (sets, scale_sets, services)),
    )


def _scale_set(chance: Random, number: int) -> ScaleSetSpec:
    spot = chance.random() < 0.4
    return ScaleSetSpec(
        f"scale-{number}",
        priority=Priority.SPOT if spot else Priority.REGULAR,
        terminate_notice_minutes=chance.choice((None, 5, 5, 10, 15)),
        placement_groups=chance.randint(1, 2),
        automatically_approve=chance.choice(POLICIES),
    )


Sets = tuple[tuple[SetSpec, ...], tuple[ScaleSetSpec, ...], tuple[SetSpec, ...]]


def _vms(chance: Random, nodes: tuple[NodeSpec, ...], sets: Sets) -> tuple[VmSpec, ...]:
    """VMs on random nodes with room, most nodes holding one update domain of a set."""
    room = {node.name: node.capacity for node in nodes}
    fill = chance.uniform(0.2, 0.9)
    wanted = min(VMS_MAX, int(sum(room.values()) * fill))
    careful = chance.random() < 0.8
    held: dict[tuple[str, str], int | None] = {}
    vms: list[VmSpec] = []
    for number in range(wanted):
        vm = _vm(chance, number, sets)
        belongs = vm.availability_set or vm.scale_set or vm.cloud_service or vm.name
        open_nodes = [
            name
            for name, slots in room.items()
            if slots and (not careful or held.get((name, belongs), vm.update_domain) == vm[6])
        ]
        if open_nodes:
            node = chance.choice(open_nodes)
            room[node] -= 1
            held[node, belongs] = vm.update_domain
            vms.append(vm._replace(node=node))
    return tuple(vms)


def _vm(chance: Random, number: int, sets: Sets) -> VmSpec:
    availability_sets, scale_sets, services = sets
    vm = VmSpec(
        f"vm-{number}",
        eviction_policy=chance.choice(tuple(EvictionPolicy)),
        addresses=(f"127.69.{number // 250}.{number % 250 + 1}",),
    )
    kind = chance.random()
    if kind < 0.2:
        spot = chance.random() < 0.3
        return vm._replace(
            priority=Priority.SPOT if spot else Priority.REGULAR,
            automatically_approve=chance.choice(POLICIES),
        )
    vm = vm._replace(update_domain=chance.randrange(3))
    if kind < 0.5:
        return vm._replace(availability_set=chance.choice(availability_sets).name)
    if kind < 0.85 or not services:
        scale_set = chance.choice(scale_sets)
        group = chance.randrange(scale_set.placement_groups)
        return vm._replace(scale_set=scale_set.name, placement_group=group)
    return vm._replace(cloud_service=chance.choice(services).name)
