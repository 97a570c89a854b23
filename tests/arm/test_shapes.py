"""What is shown: subscriptions, groups, VMs, sets and instances, as Azure shows them."""

import pytest

from tests.arm.calling import COMPUTE, GROUP, SUBSCRIPTION

PROVIDER = f"{SUBSCRIPTION}/providers/Microsoft.Compute"


def names(answer):
    """The names of a list."""
    assert answer.status == 200, answer
    assert set(answer.json) == {"value"}
    return [one["name"] for one in answer.json["value"]]


def test_there_is_one_subscription_and_one_tenant(looking):
    """Whoever signs in is shown both, in this order."""
    (one,) = looking.get("/subscriptions").json["value"]
    assert one["id"] == SUBSCRIPTION
    assert one["state"] == "Enabled"
    assert looking.get(SUBSCRIPTION).json == one
    (tenant,) = looking.get("/tenants").json["value"]
    assert tenant["tenantId"] == one["tenantId"]


def test_there_is_one_location_and_two_providers(looking):
    """Where everything is, and what is registered; another provider is named as not here."""
    assert names(looking.get(f"{SUBSCRIPTION}/locations")) == ["local"]
    providers = looking.get(f"{SUBSCRIPTION}/providers").json["value"]
    known = {one["namespace"]: one["registrationState"] for one in providers}
    assert known == {"Microsoft.Compute": "Registered", "Microsoft.Maintenance": "Registered"}
    path = f"{SUBSCRIPTION}/providers/microsoft.compute"
    assert looking.get(path).json == providers[0]
    path = f"{SUBSCRIPTION}/providers/Microsoft.Network"
    assert "Microsoft.Network" in looking.refused(404, "InvalidResourceNamespace", "GET", path)


def test_a_resource_group_is_there_by_what_is_in_it(looking):
    """One of the sample fleet; another is not found."""
    assert names(looking.get(f"{SUBSCRIPTION}/resourceGroups")) == ["sample"]
    assert looking.get(GROUP).json["properties"] == {"provisioningState": "Succeeded"}
    # `az group exists` takes nothing else.
    assert looking.call("HEAD", GROUP).status == 204
    assert looking.call("HEAD", f"{SUBSCRIPTION}/resourceGroups/other").status == 404


def test_vms_are_those_that_are_no_instances(looking):
    """Neither instances of scale sets nor of cloud services; and without network interfaces."""
    everywhere = looking.get(f"{PROVIDER}/virtualMachines")
    assert names(everywhere) == ["db", "web-0", "web-1", "web-2"]
    assert looking.get(f"{COMPUTE}/virtualMachines").json == everywhere.json
    assert not [one for one in everywhere.json["value"] if "networkProfile" in one["properties"]]
    for name in ("batch_0", "FrontEnd_IN_0"):
        looking.refused(404, "ResourceNotFound", "GET", f"{COMPUTE}/virtualMachines/{name}")


def test_a_vm_is_the_same_whatever_the_case_of_its_address(looking):
    """Azure's own tools write resourcegroups and resourceGroups, and `az resource` two slashes."""
    path = f"{COMPUTE}/virtualMachines/web-0"
    found = looking.get(path)
    assert found.json["id"] == path
    assert found.json["properties"]["availabilitySet"]["id"] == f"{COMPUTE}/availabilitySets/web"
    assert found.headers["etag"] == found.json["etag"]
    for other in (path.upper(), path.lower(), f"{path}/", path.replace("Compute/", "Compute//")):
        assert looking.get(other).json == found.json


@pytest.mark.parametrize("query", ["$expand=instanceView", "%24expand=INSTANCEVIEW"])
def test_a_view_is_of_how_a_vm_is_now(looking, query):
    """By its own address, or as a part of the VM."""
    path = f"{COMPUTE}/virtualMachines/web-1"
    expanded = looking.get(path, query=f"{query}&api-version=2019-03-01")
    view = looking.get(f"{path}/instanceView").json
    assert expanded.json["properties"]["instanceView"] == view
    assert [one["code"] for one in view["statuses"]] == [
        "ProvisioningState/succeeded",
        "PowerState/running",
    ]
    assert (view["platformUpdateDomain"], view["platformFaultDomain"]) == (1, 1)
    assert (
        "platformUpdateDomain" not in looking.get(f"{COMPUTE}/virtualMachines/db/instanceView").json
    )


def test_scale_sets_and_their_instances(looking):
    """An instance is called by the number behind its name."""
    assert names(looking.get(f"{PROVIDER}/virtualMachineScaleSets")) == ["batch", "spot"]
    path = f"{COMPUTE}/virtualMachineScaleSets/batch"
    batch = looking.get(path).json
    assert batch["sku"]["capacity"] == 4
    profile = batch["properties"]["virtualMachineProfile"]
    assert profile["scheduledEventsProfile"] == {
        "terminateNotificationProfile": {"notBeforeTimeout": "PT5M", "enable": True}
    }
    instances = looking.get(f"{path}/virtualMachines").json["value"]
    assert [one["instanceId"] for one in instances] == ["0", "1", "2", "3"]
    one = looking.get(
        f"{path}/virtualMachines/2", query="api-version=2024-11-01&$expand=instanceView"
    )
    assert one.json["id"] == f"{path}/virtualMachines/2"
    assert (
        one.json["properties"]["instanceView"]
        == looking.get(f"{path}/virtualMachines/2/instanceView").json
    )
    summary = looking.get(f"{path}/instanceView").json["virtualMachine"]["statusesSummary"]
    assert {"code": "PowerState/running", "count": 4} in summary
    spot = looking.get(f"{COMPUTE}/virtualMachineScaleSets/spot").json
    assert spot["properties"]["virtualMachineProfile"]["priority"] == "Spot"


def test_availability_sets_name_their_vms(looking):
    """All three of them."""
    assert names(looking.get(f"{PROVIDER}/availabilitySets")) == ["web"]
    found = looking.get(f"{COMPUTE}/availabilitySets/web").json
    assert [one["id"].rpartition("/")[2] for one in found["properties"]["virtualMachines"]] == [
        "web-0",
        "web-1",
        "web-2",
    ]
