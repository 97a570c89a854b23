"""Names that Azure could not tell apart: nothing is done to one where another may be meant."""

import msgspec
import pytest

from fairnotice.control.fleet_body import ScaleSetBody, SetBody, VmBody, specification
from fairnotice.control.fleet_files import sample_fleet
from fairnotice.stores.memory import MemoryStore
from tests.arm.calling import BATCH, BATCH_0, COMPUTE, DB, SUBSCRIPTION, asked
from tests.control.bearers import Bearers

OTHER = f"{SUBSCRIPTION}/resourceGroups/other/providers/Microsoft.Compute"
SCALE_SET = {"scale_set": "batch", "resource_group": "sample"}
MORE = (
    VmBody("DB", "node-4", resource_group="sample"),
    VmBody("Db2", "node-4", resource_group="sample"),
    VmBody("db2", "node-4", resource_group="other"),
    VmBody("0", "node-3", **SCALE_SET),
    VmBody("batch_x", "node-3", **SCALE_SET),
    VmBody("WEB-0", "node-5", **SCALE_SET),
)


@pytest.fixture(scope="module")
def alike():
    """A service of such a fleet, for tests that leave it as it was."""
    sample = sample_fleet()
    sets = [*sample.availability_set, SetBody("Web", resource_group="sample")]
    fleet = msgspec.structs.replace(sample, vm=[*sample.vm, *MORE], availability_set=sets)
    with asked() as arm:
        arm.served.inside(arm.served.run.service.apply_fleet(specification(fleet)))
        yield arm


@pytest.mark.parametrize(
    ("method", "path", "either"),
    [
        ("DELETE", f"{COMPUTE}/virtualMachines/Db", "DB or db"),
        ("GET", f"{COMPUTE}/virtualMachines/dB", "DB or db"),
        ("PATCH", f"{COMPUTE}/availabilitySets/WEB", "Web or web"),
        ("DELETE", BATCH_0, "0 or batch_0"),
        ("POST", f"{BATCH}/delete", "0 or batch_0"),
    ],
)
def test_where_two_may_be_meant_nothing_is_done(alike, method, path, either):
    """409, with both names; what is written exactly is meant."""
    body = {"instanceIds": ["0"]} if method == "POST" else {} if method == "PATCH" else None
    said = alike.refused(409, "OperationNotAllowed", method, path, body)
    assert either in said
    # An instance has no other id to be named by.
    assert ("Name one exactly as it is." in said) == (either != "0 or batch_0")
    assert not alike.fleet.operations
    for name in ("db", "DB"):
        assert alike.get(f"{COMPUTE}/virtualMachines/{name}").json["name"] == name


def test_only_what_is_in_the_group_of_the_address_is_meant(alike):
    """The db2 of another group is nobody's there, however it is written; nor is what is no VM."""
    for name in ("db2", "DB2"):
        assert alike.get(f"{OTHER}/virtualMachines/{name}").json["name"] == "db2"
        assert alike.get(f"{COMPUTE}/virtualMachines/{name}").json["name"] == "Db2"
    assert alike.get(f"{COMPUTE}/virtualMachines/Web-0").json["name"] == "web-0"
    alike.refused(404, "ResourceNotFound", "GET", DB.replace("sample", "OTHER"))


def test_an_instance_without_a_number_is_called_by_its_whole_name(alike):
    """All of them are meant by `*`; those whose number nobody else has by it, as ever."""
    listed = alike.get(f"{BATCH}/virtualMachines").json["value"]
    ids = {one["name"]: one["instanceId"] for one in listed}
    assert (ids["batch_x"], ids["WEB-0"], ids["batch_1"]) == ("batch_x", "WEB-0", "1")
    for id_ in ("batch_x", "BATCH_X", "WEB-0", "1"):
        found = alike.get(f"{BATCH}/virtualMachines/{id_}").json
        assert found["instanceId"].lower() == id_.lower()
    view = alike.get(f"{BATCH}/instanceView").json["virtualMachine"]["statusesSummary"]
    assert {"code": "PowerState/running", "count": 7} in view


def test_an_event_is_acknowledged_on_its_own_vm(alike):
    """Written in whatever case: what is approved is named by its id."""
    alike.events("DB")
    alike.post(f"{COMPUTE}/virtualMachines/DB/restart")
    (event,) = alike.events("DB")
    where = "providers/Microsoft.Maintenance/scheduledevents"
    for group, name, status in ((OTHER, "DB", 404), (COMPUTE, "nobody", 404), (COMPUTE, "DB", 200)):
        path = f"{group}/virtualMachines/{name}/{where}/{event['EventId']}/acknowledge"
        assert alike.post(path).status == status


def test_who_may_not_see_them_is_not_told_that_there_are_two():
    """As of one that he may not see, and of one that is not there."""
    sample, store = sample_fleet(), MemoryStore()
    more = ScaleSetBody("BATCH", resource_group="sample")
    fleet = msgspec.structs.replace(sample, scale_set=[*sample.scale_set, more])
    with asked(store, auth=True) as arm:
        arm.served.inside(arm.served.run.service.apply_fleet(specification(fleet)))
        bearers = Bearers(arm, store)
        for name in ("Batch", "batch", "nobody"):
            path = f"{COMPUTE}/virtualMachineScaleSets/{name}/virtualMachines"
            assert bearers.ask("limited reader", "get", path).status == 403
        assert bearers.ask("reader", "get", path.replace("nobody", "Batch")).status == 409
