"""The fleet of the load test."""

from collections.abc import Iterator

from tests.load.polling import address_of

BIG_NODE = "big"
SMALL_NODES = tuple(f"small-{number}" for number in range(50))
VMS_IN_SET = 20


def fleet(vms: int) -> dict[str, object]:
    """Sets of twenty VMs on one node and one more elsewhere."""
    sets = vms // VMS_IN_SET
    room = sets // len(SMALL_NODES) + 1
    return {
        "node": [
            {"name": BIG_NODE, "capacity": vms},
            *({"name": name, "capacity": room} for name in SMALL_NODES),
        ],
        "availability_set": [{"name": f"set-{number}"} for number in range(sets)],
        "vm": [*_polling(vms), *_others(sets)],
    }


def name_of(number: int) -> str:
    """The VM whose address tests.load.polling gives this number."""
    return f"vm-{number}"


def _polling(vms: int) -> Iterator[dict[str, object]]:
    for number in range(vms):
        yield {
            "name": name_of(number),
            "node": BIG_NODE,
            "availability_set": f"set-{number // VMS_IN_SET}",
            "update_domain": 0,
            "address": address_of(number),
        }


def _others(sets: int) -> Iterator[dict[str, object]]:
    for number in range(sets):
        yield {
            "name": f"other-{number}",
            "node": SMALL_NODES[number % len(SMALL_NODES)],
            "availability_set": f"set-{number}",
            "update_domain": 1,
        }
