"""PUT and PATCH: what is obeyed, what is kept, what is refused."""

import pytest

from fairnotice.arm.merging import merged
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import EventType
from tests.arm.calling import BATCH, BATCH_0, DB, SPOT, WEB, WEB_0, asked, notice, policy


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
@pytest.mark.parametrize("minutes", [5, 10, 15])
def test_terminate_notice_is_obeyed(arm, method, minutes):
    """From 5 to 15 minutes, and off."""
    answer = arm.call(method, BATCH, notice(f"PT{minutes}M"))
    assert answer.status == 200
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == minutes
    arm.call(method, BATCH, notice(None, enable=False))
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes is None
    # The time counts when it is switched on again; what a PUT does not say of it is forgotten.
    left = {"notBeforeTimeout": f"PT{minutes}M"} if method == "PATCH" else {}
    assert arm.get(BATCH).json["properties"]["virtualMachineProfile"]["scheduledEventsProfile"] == {
        "terminateNotificationProfile": {"enable": False, **left}
    }
    arm.call("PATCH", BATCH, notice(None))
    wanted = minutes if left else 5
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == wanted


def test_a_spot_scale_set_only_keeps_its_terminate_notice(arm):
    """It is given back as it was said; no instance is told before it is deleted."""
    said = arm.call("PATCH", SPOT, notice("PT10M")).json["properties"]
    profile = said["virtualMachineProfile"]["scheduledEventsProfile"]
    kept = {"notBeforeTimeout": "PT10M", "enable": True}
    assert profile["terminateNotificationProfile"] == kept
    arm.events("spot_1")
    deleted = arm.call("DELETE", f"{SPOT}/virtualMachines/0")
    assert arm.events("spot_1") == []
    arm.until(deleted, "Succeeded")


@pytest.mark.parametrize("time", ["PT20M", "PT4M", "PT16M", "PT600S", "10", "PT5M ", "", 5, [], {}])
def test_any_other_terminate_notice_is_refused(looking, time):
    """20 minutes, seconds, or a number: 400, and it stays as it was."""
    said = looking.refused(400, "InvalidParameter", "PATCH", BATCH, notice(time))
    assert "PT5M to PT15M" in said
    assert looking.fleet.scale_sets["batch"].terminate_notice_minutes == 5


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_null_is_no_time_or_no_notice(arm, method):
    """As SDKs send what is not set: without a time it is Azure's, without a profile off."""

    def write(profile, of="terminateNotificationProfile"):
        body = notice(None)
        events = body["properties"]["virtualMachineProfile"]["scheduledEventsProfile"]
        if of == "scheduledEventsProfile":
            body["properties"]["virtualMachineProfile"][of] = profile
        else:
            events[of] = profile
        assert arm.call(method, BATCH, body).status == 200
        return arm.fleet.scale_sets["batch"].terminate_notice_minutes

    arm.call(method, BATCH, notice("PT10M"))
    assert write({"enable": True, "notBeforeTimeout": None}) == 5
    assert write({"enable": None, "notBeforeTimeout": None}) is None
    for of in ("terminateNotificationProfile", "scheduledEventsProfile"):
        arm.call(method, BATCH, notice("PT10M"))
        assert write(None, of) is None
    arm.call(method, BATCH, notice("PT10M"))
    # Who does not speak of it leaves it as it is.
    assert arm.call(method, BATCH, {"tags": {"a": "b"}}).status == 200
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == 10


def test_what_is_off_is_given_back_as_it_was_said(arm):
    """A time while notice is off, and an approval that is not automatic; true is not remembered."""
    off = notice("PT12M", enable=False)["properties"]["virtualMachineProfile"]
    for path, part in (
        (BATCH, {"virtualMachineProfile": off}),
        (BATCH, policy(userInitiatedReboot=False)["properties"]),
        (WEB, policy(userInitiatedRedeploy=False)["properties"]),
        (DB, {**policy(userInitiatedReboot=False)["properties"], **off}),
    ):
        before = arm.get(path).json["properties"]
        found = arm.call("PATCH", path, {"properties": part}).json["properties"]
        assert found == merged(before, part)
        assert arm.call("PUT", path, arm.get(path).json).json["properties"] == found
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes is None
    arm.call("PATCH", WEB, policy(userInitiatedReboot=True))
    scope = "/v1/scopes/availability-set:web"
    assert arm.served.call("PATCH", scope, {"automatically_approve": []}).status == 200
    said = policy(userInitiatedRedeploy=False)["properties"]["scheduledEventsPolicy"]
    assert arm.get(WEB).json["properties"]["scheduledEventsPolicy"] == said


@pytest.mark.parametrize(("path", "vm"), [(DB, "db"), (WEB, "web-0"), (BATCH, "batch_0")])
def test_automatic_approval_is_obeyed(arm, path, vm):
    """Of user-initiated Reboot and Redeploy: the event appears already Started."""
    scope = arm.fleet.scopes[arm.fleet.vms[vm].scope].name
    body = policy(userInitiatedReboot=True, userInitiatedRedeploy=True)
    answer = arm.call("PATCH", path, body)
    assert (
        answer.json["properties"]["scheduledEventsPolicy"]
        == body["properties"]["scheduledEventsPolicy"]
    )
    approved = arm.fleet.scopes[scope].automatically_approve
    assert approved == (EventType.REBOOT, EventType.REDEPLOY)
    # A part of it is left as it is by PATCH.
    arm.call("PATCH", path, policy(userInitiatedReboot=False))
    assert arm.fleet.scopes[scope].automatically_approve == (EventType.REDEPLOY,)
    arm.call("PUT", path, {"properties": {"scheduledEventsPolicy": None}} if path == BATCH else {})
    assert arm.fleet.scopes[scope].automatically_approve == ()


@pytest.mark.parametrize(("path", "vm"), [(DB, "db"), (WEB, "web-0"), (BATCH, "batch_0")])
def test_what_stands_beside_what_is_obeyed_is_only_kept(arm, path, vm):
    """Azure's other words on scheduled events: given back, and nothing is done by them."""
    targets = {"eventGridAndResourceGraph": {"enable": True}}
    events = {
        "allInstancesDown": {"automaticallyApprove": True},
        "scheduledEventsAdditionalPublishingTargets": targets,
    }
    image = {"osImageNotificationProfile": {"enable": True, "notBeforeTimeout": "PT15M"}}
    said = {"scheduledEventsPolicy": events}
    if path == DB:
        said["scheduledEventsProfile"] = image
    elif path == BATCH:
        said["virtualMachineProfile"] = {"scheduledEventsProfile": image}
    before = arm.get(path).json["properties"]
    rows = (arm.fleet.scopes[arm.fleet.vms[vm].scope], arm.fleet.scale_sets["batch"])
    found = arm.call("PATCH", path, {"properties": said}).json
    assert found["properties"] == merged(before, said)
    assert arm.call("PUT", path, found).json["properties"] == found["properties"]
    assert (arm.fleet.scopes[rows[0].name], arm.fleet.scale_sets["batch"]) == rows


def test_a_policy_is_of_the_set_that_a_vm_is_in(looking):
    """And one that is no policy is refused; as is terminate notice of a VM."""
    body = policy(userInitiatedReboot=True)
    for path in (WEB_0, BATCH_0):
        looking.refused(400, "InvalidParameter", "PATCH", path, body)
    looking.refused(400, "InvalidParameter", "PATCH", DB, policy(userInitiatedReboot="yes"))
    body = {"properties": {"scheduledEventsPolicy": 7}}
    looking.refused(400, "InvalidRequestContent", "PATCH", DB, body)
    profile = {"terminateNotificationProfile": {"enable": True}}
    body = {"properties": {"scheduledEventsProfile": profile}}
    for path in (DB, BATCH_0):
        assert "scale set" in looking.refused(400, "InvalidParameter", "PATCH", path, body)


@pytest.mark.parametrize("web", [WEB_0, BATCH_0])
def test_a_vm_of_a_set_is_sent_back_as_it_was_read(arm, web):
    """Whatever was kept of its policy, and however it is taken away again."""
    targets = {"scheduledEventsAdditionalPublishingTargets": {"eventGridAndResourceGraph": {}}}
    said = {"properties": {"scheduledEventsPolicy": targets}}
    for body in ({"location": "local"}, {"properties": {"scheduledEventsPolicy": None}}):
        assert arm.call("PATCH", web, said).status == 200
        read = arm.get(web).json
        assert read["properties"]["scheduledEventsPolicy"] == targets
        assert arm.call("PUT", web, read).json["properties"] == read["properties"]
        assert arm.call("PATCH", web, policy(userInitiatedReboot=False)).status == 200
        method = "PATCH" if "properties" in body else "PUT"
        assert "scheduledEventsPolicy" not in arm.call(method, web, body).json["properties"]


def test_other_properties_are_kept_and_given_back():
    """Whatever they are; and they are there after a restart. PUT forgets what it does not say."""
    store = MemoryStore()
    body = {
        "tags": {"team": "red"},
        "properties": {
            "licenseType": "RHEL_BYOS",
            "osProfile": {"secrets": []},
            "networkProfile": {"x": 1},
        },
    }
    with asked(store) as arm:
        before = arm.get(DB).json
        patched = arm.call("PATCH", DB, body).json
        assert patched["tags"] == {"team": "red"}
        assert patched["properties"]["licenseType"] == "RHEL_BYOS"
        assert patched["properties"]["osProfile"]["computerName"] == "db"
        assert "networkProfile" not in patched["properties"]
        again = arm.call("PATCH", DB, {"tags": {"cost": "12"}, "properties": {"licenseType": None}})
        assert again.json["tags"] == {"team": "red", "cost": "12"}
        assert "licenseType" not in again.json["properties"]
        # What was read is sent back as it was: nothing changes by it.
        assert arm.call("PUT", DB, again.json).json["tags"] == again.json["tags"]
        rows = [row for row in store.load().rows if type(row).__name__ == "Kept"]
        assert [row.resource for row in rows] == ["vm:db"]
        emptied = arm.call("PUT", DB, {"location": "local"}).json
        assert emptied["tags"] == before["tags"] == {}
        assert "vm:db" not in arm.fleet.kept


@pytest.mark.parametrize("path", [BATCH, BATCH_0, WEB, WEB_0])
def test_sets_and_the_vms_in_them_keep_other_properties_too(arm, path):
    """Given back beside what is ours, until a PUT does not say them; of a scale set, null does.

    `az vmss scale` puts a capacity, and nothing else of it shall change.
    """
    before = arm.get(path).json
    body = {"tags": {"team": "red"}, "properties": {"proximityPlacementGroup": {"id": "/x"}}}
    assert arm.call("PATCH", path, body).status == 200
    found = arm.get(path).json
    assert found["tags"] == {"team": "red"}
    assert found["properties"] == {**before["properties"], **body["properties"]}
    arm.call("PUT", path, {"location": "local"})
    if path == BATCH:
        assert arm.get(path).json["properties"] == found["properties"]
        arm.call("PUT", path, {"properties": {"proximityPlacementGroup": None}})
    assert arm.get(path).json["properties"] == before["properties"]


def test_a_put_of_a_scale_set_replaces_what_it_names(arm):
    """A tag, a part of a property or a policy that is left out of it is gone; all else stays."""
    both = policy(userInitiatedReboot=True, userInitiatedRedeploy=True)["properties"]
    said = {**both, "upgradePolicy": {"mode": "Rolling", "rollingUpgradePolicy": {}}}
    arm.call("PATCH", BATCH, {"tags": {"a": "1", "b": "2"}, "properties": said})
    arm.call("PATCH", BATCH, notice("PT10M"))
    read = arm.get(BATCH).json
    # Both of them: what `az vmss scale` puts, and what it puts of the properties.
    for body in ({"location": "local", "sku": {"capacity": 4}}, {"properties": {}}):
        assert arm.call("PUT", BATCH, body).json["properties"] == read["properties"]
    assert arm.call("PUT", BATCH, {"tags": {"b": "2"}}).json["tags"] == {"b": "2"}
    one = {**policy(userInitiatedReboot=True)["properties"], "upgradePolicy": {"mode": "Rolling"}}
    put = arm.call("PUT", BATCH, {"properties": one}).json
    assert put["properties"] == {**read["properties"], **one}
    assert arm.fleet.scopes["scale-set:batch:0"].automatically_approve == (EventType.REBOOT,)
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == 10
    assert arm.call("PUT", BATCH, {"tags": {}}).json["tags"] == {}


def test_what_cannot_be_another_is_refused(looking):
    """Where it is, whether it is Spot, and in which set: 409, as Azure says it."""
    for path, body in (
        (DB, {"location": "westeurope"}),
        (DB, {"zones": ["2"]}),
        (DB, {"identity": {"type": "SystemAssigned"}}),
        (DB, {"properties": {"priority": "Spot"}}),
        (DB, {"properties": {"hardwareProfile": {"vmSize": "Standard_D64s_v5"}}}),
        (DB, {"properties": {"virtualMachineScaleSet": {"id": "/x"}}}),
        (BATCH_0, {"sku": {"name": "Standard_D64s_v5"}}),
        (BATCH_0, {"location": "westeurope"}),
        (BATCH, {"sku": {"name": "Standard_D64s_v5"}}),
        (BATCH, {"properties": {"virtualMachineProfile": {"priority": "Spot"}}}),
        (WEB_0, {"properties": {"availabilitySet": {"id": "/x"}}}),
        (DB, {"properties": {"evictionPolicy": "Delete"}}),
        (SPOT, {"properties": {"virtualMachineProfile": {"evictionPolicy": "Nothing"}}}),
        (BATCH, {"properties": {"orchestrationMode": "Flexible"}}),
        (BATCH, {"properties": {"singlePlacementGroup": False}}),
    ):
        looking.refused(409, "PropertyChangeNotAllowed", "PATCH", path, body)
    assert looking.call("PATCH", DB, {"location": "LOCAL"}).status == 200


def test_an_instance_that_shall_be_protected_is_deleted_all_the_same(arm):
    """Protection from a scale-in is given back without effect, and forgotten with its instance."""
    last = f"{BATCH}/virtualMachines/3"
    protection = {"protectionPolicy": {"protectFromScaleIn": True}}
    found = arm.call("PUT", last, {**arm.get(last).json, "properties": protection})
    assert found.json["properties"]["protectionPolicy"] == protection["protectionPolicy"]
    listed = arm.get(f"{BATCH}/virtualMachines").json["value"]
    assert [one for one in listed if "protectionPolicy" in one["properties"]] == [found.json]
    assert "protectionPolicy" not in arm.get(BATCH_0).json["properties"]
    fewer = arm.call("PATCH", BATCH, {"sku": {"capacity": 3}})
    arm.approve("batch_0")
    arm.until(fewer, "Succeeded")
    assert "vm:batch_3" not in arm.fleet.kept
    arm.refused(404, "ResourceNotFound", "PATCH", last, {"tags": {"a": "b"}})
    # Nor is one made by saying what it shall be.
    said = arm.refused(409, "OperationNotAllowed", "PUT", last, found.json)
    assert "fleet file" in said
