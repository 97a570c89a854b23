"""`$filter` of a list: those of Azure's tools are obeyed, and no other is passed over."""

from urllib.parse import quote

import pytest

from tests.arm.calling import BATCH, COMPUTE, GROUP, SUBSCRIPTION, VERSION

EVERYWHERE = f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines"
VMS = f"{COMPUTE}/virtualMachines"
INSTANCES = f"{BATCH}/virtualMachines"
# As `az vm list --vmss batch` sends it (list_vm in its custom.py).
OF_BATCH = f"'virtualMachineScaleSet/id' eq '{BATCH}'"
POWER = "startswith(instanceView/statuses/code, 'PowerState/{}') eq true"


def filtered(text):
    """The query that asks for this."""
    return f"{VERSION}&%24filter={quote(text)}"


@pytest.mark.parametrize("path", [EVERYWHERE, VMS])
@pytest.mark.parametrize("text", [OF_BATCH, OF_BATCH.replace("'", ""), OF_BATCH.upper()])
def test_vms_of_a_uniform_scale_set_are_none(looking, path, text):
    """Its instances are in no list of VMs, as on Azure; and whoever asks is not shown all VMs."""
    assert looking.get(path, query=filtered(text)).json == {"value": []}


def test_instances_are_chosen_by_how_they_are(arm):
    """By the beginning of a status, or whether they are as their set is: these always are."""

    def ids(text):
        answer = arm.get(INSTANCES, query=filtered(text))
        return [one["instanceId"] for one in answer.json["value"]]

    arm.until(arm.post(f"{INSTANCES}/2/powerOff"), "Succeeded")
    assert ids(POWER.format("stopped")) == ["2"]
    assert ids(POWER.format("RUNNING")) == ["0", "1", "3"]
    assert ids(POWER.format("")) == ids("properties/latestModelApplied eq true")
    assert ids("properties/latestModelApplied eq true") == ["0", "1", "2", "3"]
    assert ids("properties/latestModelApplied eq false") == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (EVERYWHERE, "name eq 'web-0'"),
        (VMS, f"{OF_BATCH} or name eq 'web-0'"),
        (VMS, POWER.format("running")),
        (INSTANCES, OF_BATCH),
        (INSTANCES, POWER.format("running") + " and properties/latestModelApplied eq true"),
        (f"{COMPUTE}/virtualMachineScaleSets", OF_BATCH),
        (f"{COMPUTE}/availabilitySets", OF_BATCH),
        # `az group list --tag`
        (f"{SUBSCRIPTION}/resourceGroups", "tagname eq 'team'"),
        (GROUP, "x"),
    ],
)
def test_any_other_filter_is_refused(looking, path, text):
    """Passed over, it would show more than was asked for, to somebody who deletes what he sees."""
    said = looking.refused(400, "InvalidParameter", "GET", path, query=filtered(text))
    assert "filter" in said
    assert looking.get(path, query=f"{VERSION}&%24filter=").status == 200
