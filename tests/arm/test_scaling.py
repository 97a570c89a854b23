"""The addresses of new instances: near those that there are, and never somebody else's."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fairnotice.arm.scaling import free_addresses
from tests.arm.calling import BATCH, SPOT, Holding, asked


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ([], ["127.69.0.10", "127.69.0.11"]),
        (["127.69.0.10", "127.69.0.12"], ["127.69.0.13", "127.69.0.14"]),
        (["10.0.0.253"], ["10.0.0.254", "10.0.1.1"]),
        # At the end of its network, those that are free before it.
        (["10.0.0.1", "10.255.255.254"], ["10.0.0.2", "10.0.0.3"]),
        (["127.69.0.11", "127.255.255.253"], ["127.255.255.254", "127.69.0.10"]),
        # Addresses that are nobody's here lead nowhere.
        (["10.0.0.1", "203.0.113.7"], ["10.0.0.2", "10.0.0.3"]),
        (["255.255.255.254"], ["127.69.0.10", "127.69.0.11"]),
        (["255.255.255.255", "fd00::1"], ["127.69.0.10", "127.69.0.11"]),
    ],
)
def test_free_addresses_follow_the_highest(taken, free):
    """In its own network: at the end of it from the beginning, and never beyond."""
    assert free_addresses(taken, 2) == tuple(free)


def test_a_network_that_is_full():
    """As many as there are left: two of all that begin with 192.168."""
    taken = [f"192.168.{high}.{low}" for high in range(256) for low in range(1, 255)]
    left = [taken.pop(5), taken.pop(7_000)]
    assert free_addresses(taken, 3) == tuple(left)


# ---- By Azure's tools ----


def test_more_instances_are_placed_by_the_law(arm):
    """New names, free addresses, running; and read as the others are."""
    assert arm.call("PATCH", BATCH, {"sku": {"capacity": 6}}).json["sku"]["capacity"] == 6
    new = [arm.fleet.vms[name] for name in ("batch_4", "batch_5")]
    assert all(vm.node and vm.running for vm in new)
    addresses = [one for vm in arm.fleet.vms.values() for one in vm.addresses]
    assert len(set(addresses)) == len(addresses)
    assert arm.get(f"{BATCH}/virtualMachines/5").json["name"] == "batch_5"
    assert (
        arm.call("PUT", BATCH, {"sku": {"capacity": 6}}).headers.get("azure-asyncoperation") is None
    )


def test_fewer_instances_are_a_scale_in(arm):
    """The newest go, with notice: the operation is over when they are gone."""
    answer = arm.call("PATCH", BATCH, {"sku": {"capacity": 2}})
    assert (answer.status, answer.json["properties"]["provisioningState"]) == (200, "Updating")
    assert arm.follow(answer)["status"] == "InProgress"
    # az takes what stands at Location for the scale set: without one, it reads the set anew.
    assert "location" not in answer.headers
    assert [one["Resources"] for one in arm.events("batch_0")] == [["batch_2"], ["batch_3"]]
    arm.approve("batch_0")
    arm.until(answer, "Succeeded")
    assert arm.get(BATCH).json["sku"]["capacity"] == 2


def test_who_asks_again_for_as_many_deletes_no_more(arm):
    """Those that are about to go are not counted: not by a second tool, nor by four at once."""
    body = {"sku": {"capacity": 3}}
    with ThreadPoolExecutor(4) as writers:
        told = list(writers.map(lambda _: arm.call("PATCH", BATCH, body).status, range(4)))
    assert {200} <= set(told) <= {200, 409}
    assert [one["Resources"] for one in arm.events("batch_0")] == [["batch_3"]]
    assert arm.get(BATCH).json["sku"]["capacity"] == 3
    # What was read is sent back: nothing is deleted, and nothing made.
    assert arm.call("PUT", BATCH, arm.get(BATCH).json).status == 200
    again = [arm.call("PATCH", BATCH, body, x_ms_client_request_id="7") for _ in range(2)]
    assert [one.headers.get("azure-asyncoperation") for one in again] == [None, None]
    down = [
        arm.call("PATCH", BATCH, {"sku": {"capacity": 2}}, x_ms_client_request_id="8")
        for _ in range(2)
    ]
    assert len({one.headers["azure-asyncoperation"] for one in down}) == 1
    assert len(arm.events("batch_0")) == 2
    assert len(arm.get(f"{BATCH}/virtualMachines").json["value"]) == 4


@pytest.mark.parametrize("count", [-1, "3", True, 2.5, 5000, 200])
def test_a_capacity_that_cannot_be(looking, count):
    """No number, too many at once, or more than there is room for: nothing is changed."""
    code = "AllocationFailed" if count == 200 else "InvalidParameter"
    body = {"tags": {"a": "b"}, "sku": {"capacity": count}}
    looking.refused(409 if count == 200 else 400, code, "PATCH", BATCH, body)
    assert looking.get(BATCH).json["tags"] == {}


def test_two_scale_sets_that_grow_at_once():
    """Both have looked for addresses before either has instances with them: each gets its own."""
    store = Holding()
    with asked(store) as arm:
        with store.holding(arm) as ask:
            grown = [
                ask(arm.call, "PATCH", path, {"tags": {"a": "b"}, "sku": {"capacity": capacity}})
                for path, capacity in ((BATCH, 6), (SPOT, 3))
            ]
        assert [one.result().status for one in grown] == [200, 200]
        addresses = [one for vm in arm.fleet.vms.values() for one in vm.addresses]
        assert len(set(addresses)) == len(addresses) == 13 + 3


def test_machines_that_cannot_be_made(arm):
    """Where the driver's machines are real, somebody has to make them: it is said so."""
    conductor = arm.served.run.conductor
    conductor._driver._capabilities = conductor.driver._replace(name="command", makes=False)
    said = arm.refused(409, "OperationNotAllowed", "PATCH", SPOT, {"sku": {"capacity": 3}})
    assert "command" in said
