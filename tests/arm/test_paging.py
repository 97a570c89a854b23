"""Lists by the page: whoever follows nextLink sees everything once."""

from urllib.parse import urlsplit

import pytest

from fairnotice.arm.paging import PAGE_ROWS
from tests.arm.calling import BATCH, COMPUTE, SUBSCRIPTION, VERSION, asked

EVERYWHERE = f"{SUBSCRIPTION}/providers/Microsoft.Compute"
MORE = PAGE_ROWS + 3


def declare(arm, table, rows):
    """The sample fleet with these too, and room for them."""
    fleet = arm.served.get("/v1/fleet").json
    fleet["node"] = [{**one, "capacity": 1000} for one in fleet["node"]]
    fleet[table] += rows
    answer = arm.served.call("PUT", "/v1/fleet", fleet)
    assert answer.status == 200, answer


@pytest.fixture(scope="module")
def many():
    """A service with more than a page of each: VMs, instances, scale sets and availability sets."""
    with asked() as arm:
        group = {"resource_group": "sample"}
        declare(arm, "vm", [{"name": f"x{n}", "node": "node-1", **group} for n in range(MORE)])
        declare(arm, "scale_set", [{"name": f"y{n}", **group} for n in range(MORE)])
        declare(arm, "availability_set", [{"name": f"z{n}", **group} for n in range(MORE)])
        for capacity in (4 + MORE, 4 + 2 * MORE):
            answer = arm.call("PATCH", BATCH, {"sku": {"capacity": capacity}})
            assert answer.status == 200, answer
        yield arm


def pages(arm, path, query=VERSION):
    """Each page of a list, as a tool reads it: where the one before said that it is."""
    while True:
        answer = arm.get(path, query=query)
        assert answer.status == 200, answer
        yield answer.json
        if "nextLink" not in answer.json:
            return
        link = urlsplit(answer.json["nextLink"])
        assert f"{link.scheme}://{link.netloc}" == f"http://{arm.served.run.arm}"
        path, query = link.path, link.query


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (f"{EVERYWHERE}/virtualMachines", 4 + MORE),
        (f"{COMPUTE}/virtualMachines", 4 + MORE),
        (f"{COMPUTE}/virtualMachineScaleSets", 2 + MORE),
        (f"{EVERYWHERE}/availabilitySets", 1 + MORE),
        (f"{BATCH}/virtualMachines", 4 + 2 * MORE),
    ],
)
def test_a_list_is_read_page_by_page(many, path, count):
    """Full ones and a rest; each row once, instances by their numbers, and all that was asked."""
    more = "&$expand=instanceView&statusOnly=true"
    read = list(pages(many, path, VERSION + more))
    assert [len(page["value"]) for page in read[:-1]] == [PAGE_ROWS] * (len(read) - 1)
    rows = [row for page in read for row in page["value"]]
    assert len(read) > 1
    assert len({row["id"] for row in rows}) == len(rows) == count
    if path.endswith("/virtualMachines"):
        assert all("instanceView" in row["properties"] for row in rows)
    if path.startswith(BATCH):
        assert [row["instanceId"] for row in rows] == [str(number) for number in range(count)]


def test_what_comes_and_goes_meanwhile(arm):
    """Also the last row of a page: no other is left out for it, or shown twice."""
    path = f"{COMPUTE}/virtualMachines"
    declare(arm, "vm", [{"name": f"x{n}", "resource_group": "sample"} for n in range(MORE)])
    reading = pages(arm, path)
    first = [row["name"] for row in next(reading)["value"]]
    last = first[-1]
    fleet = arm.served.get("/v1/fleet").json
    gone = {"db", last}
    fleet["vm"] = [row for row in fleet["vm"] if row["name"] not in gone]
    fleet["vm"].append({"name": "y", "resource_group": "sample"})
    assert arm.served.call("PUT", "/v1/fleet", fleet).status == 200
    second = [row["name"] for page in reading for row in page["value"]]
    there = {vm.name for vm in arm.fleet.vms.values() if vm.scope.startswith(("vm:", "avail"))}
    assert {*first, *second} == there | gone
    assert not {*first} & {*second}


def test_the_next_page_is_where_the_first_one_was_asked(many):
    """By the name of whoever asks, and with a name behind which nothing is there is no more."""
    host = {"Host": "localhost:8643"}
    link = many.get(f"{COMPUTE}/virtualMachines", **host).json["nextLink"]
    assert link.startswith("http://localhost:8643/subscriptions/")
    query = f"{VERSION}&%24SkipToken=zzz"
    assert many.get(f"{COMPUTE}/virtualMachines", query=query).json == {"value": []}
