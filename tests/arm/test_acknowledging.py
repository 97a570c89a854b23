"""Microsoft.Maintenance: whoever may approves an event from outside of the VM."""

import pytest

from tests.arm.calling import COMPUTE


def restarted(arm, vm="web-0"):
    """The id of the event of a restart."""
    arm.post(f"{COMPUTE}/virtualMachines/{vm}/restart")
    return arm.events(vm)[-1]["EventId"]


def acknowledge(resource, event):
    """The address at which an event of a resource is acknowledged."""
    return (
        f"{COMPUTE}/{resource}/providers/Microsoft.Maintenance/scheduledevents/{event}/acknowledge"
    )


@pytest.mark.parametrize(
    "resource", ["virtualMachines/web-0", "virtualMachines/WEB-2", "availabilitySets/web"]
)
def test_an_event_is_approved(arm, resource):
    """By each VM that sees it, or by the set; in either case, and once more."""
    event = restarted(arm)
    for name in (event, event.lower()):
        answer = arm.post(acknowledge(resource, name))
        assert (answer.status, answer.json) == (200, {"value": "Successfully Approved"})
    assert arm.fleet.events[event].approval.by == "operator"


@pytest.mark.parametrize("resource", ["virtualMachines/web-0", "availabilitySets/web"])
def test_as_the_extension_of_az_asks(arm, resource):
    """`az maintenance scheduledevent acknowledge`: resource groups in small letters, no body."""
    event = restarted(arm)
    path = acknowledge(resource, event).replace("/resourceGroups/", "/resourcegroups/")
    answer = arm.post(path, query="api-version=2023-10-01-preview", Accept="application/json")
    assert (answer.status, answer.json) == (200, {"value": "Successfully Approved"})
    assert arm.fleet.events[event].approval.by == "operator"


def test_several_at_once_are_all_or_none(arm):
    """One that is not there: nothing is approved."""
    events = [restarted(arm), restarted(arm)]
    path = acknowledge("virtualMachines/web-0", "x").removesuffix("/x/acknowledge")
    arm.refused(404, "ResourceNotFound", "POST", path, {"value": [events[0], "nothing"]})
    assert arm.fleet.events[events[0]].approval is None
    assert arm.post(path, {"Value": events}).status == 200
    assert all(arm.fleet.events[event].approval for event in events)
    for body in ({}, {"value": []}, {"value": [1]}, {"value": "x"}):
        arm.refused(400, "InvalidRequestContent", "POST", path, body)


def test_an_event_of_something_else_is_not_there(arm):
    """Of another VM, another group, another kind; or of nobody."""
    event = restarted(arm)
    for resource in (
        "virtualMachines/db",
        "virtualMachines/nobody",
        "virtualMachineScaleSets/batch",
        "availabilitySets/other",
        "disks/web-0",
    ):
        arm.refused(404, "ResourceNotFound", "POST", acknowledge(resource, event))
    other = acknowledge("virtualMachines/web-0", event).replace("/sample/", "/other/")
    arm.refused(404, "ResourceGroupNotFound", "POST", other)
    arm.refused(404, "ResourceNotFound", "POST", acknowledge("virtualMachines/web-0", "nothing"))
    assert arm.fleet.events[event].approval is None
