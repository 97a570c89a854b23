"""PUT and PATCH: what is obeyed, what is kept, what is refused; and two who write at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fairnotice.arm.merging import merged
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import EventType
from tests.arm.calling import COMPUTE, Holding, asked

VM = f"{COMPUTE}/virtualMachines/db"
WEB = f"{COMPUTE}/availabilitySets/web"
BATCH = f"{COMPUTE}/virtualMachineScaleSets/batch"
SPOT = f"{COMPUTE}/virtualMachineScaleSets/spot"


def notice(time, *, enable=True):
    """A body that asks for so much terminate notice."""
    profile = {"enable": enable} if time is None else {"enable": enable, "notBeforeTimeout": time}
    events = {"terminateNotificationProfile": profile}
    return {"properties": {"virtualMachineProfile": {"scheduledEventsProfile": events}}}


def policy(**words):
    """A body that asks for automatic approval."""
    said = {name: {"automaticallyApprove": word} for name, word in words.items()}
    return {"properties": {"scheduledEventsPolicy": said}}


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
        (VM, {**policy(userInitiatedReboot=False)["properties"], **off}),
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


@pytest.mark.parametrize(("path", "vm"), [(VM, "db"), (WEB, "web-0"), (BATCH, "batch_0")])
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


@pytest.mark.parametrize(("path", "vm"), [(VM, "db"), (WEB, "web-0"), (BATCH, "batch_0")])
def test_what_stands_beside_what_is_obeyed_is_only_kept(arm, path, vm):
    """Azure's other words on scheduled events: given back, and nothing is done by them."""
    targets = {"eventGridAndResourceGraph": {"enable": True}}
    events = {
        "allInstancesDown": {"automaticallyApprove": True},
        "scheduledEventsAdditionalPublishingTargets": targets,
    }
    image = {"osImageNotificationProfile": {"enable": True, "notBeforeTimeout": "PT15M"}}
    said = {"scheduledEventsPolicy": events}
    if path == VM:
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
    web = f"{COMPUTE}/virtualMachines/web-0"
    body = policy(userInitiatedReboot=True)
    looking.refused(400, "InvalidParameter", "PATCH", web, body)
    looking.refused(400, "InvalidParameter", "PATCH", VM, policy(userInitiatedReboot="yes"))
    body = {"properties": {"scheduledEventsPolicy": 7}}
    looking.refused(400, "InvalidRequestContent", "PATCH", VM, body)
    profile = {"terminateNotificationProfile": {"enable": True}}
    body = {"properties": {"scheduledEventsProfile": profile}}
    said = looking.refused(400, "InvalidParameter", "PATCH", VM, body)
    assert "scale set" in said


def test_a_vm_of_a_set_is_sent_back_as_it_was_read(arm):
    """Whatever was kept of its policy, and however it is taken away again."""
    web = f"{COMPUTE}/virtualMachines/web-0"
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
        before = arm.get(VM).json
        patched = arm.call("PATCH", VM, body).json
        assert patched["tags"] == {"team": "red"}
        assert patched["properties"]["licenseType"] == "RHEL_BYOS"
        assert patched["properties"]["osProfile"]["computerName"] == "db"
        assert "networkProfile" not in patched["properties"]
        again = arm.call("PATCH", VM, {"tags": {"cost": "12"}, "properties": {"licenseType": None}})
        assert again.json["tags"] == {"team": "red", "cost": "12"}
        assert "licenseType" not in again.json["properties"]
        # What was read is sent back as it was: nothing changes by it.
        assert arm.call("PUT", VM, again.json).json["tags"] == again.json["tags"]
        rows = [row for row in store.load().rows if type(row).__name__ == "Kept"]
        assert [row.resource for row in rows] == ["vm:db"]
        emptied = arm.call("PUT", VM, {"location": "local"}).json
        assert emptied["tags"] == before["tags"] == {}
        assert "vm:db" not in arm.fleet.kept


@pytest.mark.parametrize("path", [BATCH, WEB, f"{COMPUTE}/virtualMachines/web-0"])
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
        (VM, {"location": "westeurope"}),
        (VM, {"zones": ["2"]}),
        (VM, {"identity": {"type": "SystemAssigned"}}),
        (VM, {"properties": {"priority": "Spot"}}),
        (VM, {"properties": {"hardwareProfile": {"vmSize": "Standard_D64s_v5"}}}),
        (VM, {"properties": {"virtualMachineScaleSet": {"id": "/x"}}}),
        (BATCH, {"sku": {"name": "Standard_D64s_v5"}}),
        (BATCH, {"properties": {"virtualMachineProfile": {"priority": "Spot"}}}),
        (f"{COMPUTE}/virtualMachines/web-0", {"properties": {"availabilitySet": {"id": "/x"}}}),
        (VM, {"properties": {"evictionPolicy": "Delete"}}),
        (SPOT, {"properties": {"virtualMachineProfile": {"evictionPolicy": "Nothing"}}}),
        (BATCH, {"properties": {"orchestrationMode": "Flexible"}}),
        (BATCH, {"properties": {"singlePlacementGroup": False}}),
    ):
        looking.refused(409, "PropertyChangeNotAllowed", "PATCH", path, body)
    assert looking.call("PATCH", VM, {"location": "LOCAL"}).status == 200


# ---- Two who write ----


def test_who_has_read_something_else_is_told(arm):
    """If-Match with an ETag that is no longer so: 412, and nothing is overwritten."""
    etag = arm.get(BATCH).headers["etag"]
    assert arm.call("PUT", BATCH, notice("PT10M"), If_Match=etag).status == 200
    arm.refused(412, "PreconditionFailed", "PUT", BATCH, notice("PT15M"), If_Match=etag)
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == 10
    assert arm.call("PUT", BATCH, notice("PT15M"), If_Match="*").status == 200
    arm.refused(412, "PreconditionFailed", "PATCH", BATCH, {"tags": {}}, If_Match='""')
    arm.refused(412, "PreconditionFailed", "PUT", BATCH, {}, If_None_Match="*")
    arm.refused(412, "PreconditionFailed", "PUT", VM, {}, If_None_Match="*")
    arm.refused(412, "PreconditionFailed", "PUT", WEB, {}, If_None_Match="*")


def test_one_of_several_etags_will_do(arm):
    """As If-Match may have them; `*` among them is whatever there is."""

    def put(match):
        return arm.call("PUT", VM, {"tags": {"a": match}}, If_Match=match).status

    etag = arm.get(VM).headers["etag"]
    assert put(f'"x", {etag}') == 200
    assert put(f'"x", {etag}') == put('"x","y"') == put('""') == 412
    assert put(f'W/{arm.get(VM).headers["etag"]},"x"') == 200
    assert put('"x", *') == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("path", [VM, WEB, BATCH])
def test_a_repeat_whose_answer_was_lost_is_not_told_of_itself(arm, method, path):
    """What If-Match names was changed by the first one: 200 again, and nothing is overwritten."""

    def write(tags, key, etag):
        body = {"tags": tags}
        return arm.call(method, path, body, x_ms_client_request_id=key, If_Match=etag).status

    etag = arm.get(path).headers["etag"]
    assert write({"a": "1"}, "7", etag) == write({"a": "1"}, "7", etag) == 200
    # Something else under it, and the same under another, are no repeats.
    assert write({"a": "2"}, "7", etag) == write({"a": "1"}, "8", etag) == 412
    assert write({"a": "3"}, "9", arm.get(path).headers["etag"]) == 200
    assert write({"a": "1"}, "7", etag) == 200
    assert arm.get(path).json["tags"] == {"a": "3"}


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_who_has_read_another_number_of_instances_is_told(arm, method):
    """Else he would delete those that somebody else has added: 412, and nobody is told to go."""
    read = arm.get(BATCH)
    etag = {"If_Match": read.headers["etag"]}
    assert arm.call("PATCH", BATCH, {"sku": {"capacity": 6}}, **etag).status == 200
    body = {**read.json, "tags": {"mine": "x"}}
    arm.refused(412, "PreconditionFailed", method, BATCH, body, **etag)
    assert arm.events("batch_0") == []
    now = arm.get(BATCH)
    assert (now.json["sku"]["capacity"], now.json["tags"]) == (6, {})
    # And who has read of instances that go since.
    arm.call("DELETE", f"{BATCH}/virtualMachines/0")
    etag = {"If_Match": now.headers["etag"]}
    arm.refused(412, "PreconditionFailed", method, BATCH, now.json, **etag)


def test_of_two_who_scale_what_both_have_read_one_is_told(arm):
    """However close they come: the second is looked at when the first has its instances."""
    etag = arm.get(BATCH).headers["etag"]

    def scale(count):
        return arm.call("PATCH", BATCH, {"sku": {"capacity": count}}, If_Match=etag).status

    with ThreadPoolExecutor(2) as writers:
        told = dict(zip((6, 3), writers.map(scale, (6, 3)), strict=True))
    assert sorted(told.values()) == [200, 412]
    (wanted,) = [count for count, status in told.items() if status == 200]
    assert arm.get(BATCH).json["sku"]["capacity"] == wanted


@pytest.mark.parametrize("match", [True, False])
@pytest.mark.parametrize("capacity", [3, 4, 5])
def test_a_repeat_does_not_undo_what_others_have_scaled_since(arm, match, capacity):
    """By the tool's own retry, whether fewer, as many or more were wanted than there were."""
    once = {"x_ms_client_request_id": "7"}
    once |= {"If_Match": arm.get(BATCH).headers["etag"]} if match else {}
    body = {"sku": {"capacity": capacity}}
    assert arm.call("PATCH", BATCH, body, **once).status == 200
    assert arm.call("PATCH", BATCH, {"sku": {"capacity": 7}}).status == 200
    before = arm.events("batch_0")
    again = arm.call("PATCH", BATCH, body, **once)
    assert (again.status, again.json["sku"]["capacity"]) == (200, 7)
    assert arm.events("batch_0") == before


def test_who_has_not_read_the_tags_of_the_fleet_file_is_told(arm):
    """Declared since: a PUT without them would take them away."""
    read = arm.get(VM)
    fleet = arm.served.get("/v1/fleet").json
    (row,) = [one for one in fleet["vm"] if one["name"] == "db"]
    row["tags"] = {"owner": "bob"}
    assert arm.served.call("PUT", "/v1/fleet", fleet).status == 200
    etag = read.headers["etag"]
    arm.refused(412, "PreconditionFailed", "PUT", VM, read.json, If_Match=etag)
    assert arm.get(VM).json["tags"] == {"owner": "bob"}


def test_what_was_changed_since_it_was_read_is_not_deleted(arm):
    """DELETE with an If-Match that no longer fits; an instance has no ETag, so none fits it."""
    etag = arm.get(VM).headers["etag"]
    arm.call("PATCH", VM, {"tags": {"keep": "me"}})
    arm.refused(412, "PreconditionFailed", "DELETE", VM, If_Match=etag)
    instance = f"{BATCH}/virtualMachines/0"
    arm.refused(412, "PreconditionFailed", "DELETE", instance, If_Match=etag)
    assert not arm.fleet.operations
    nobody = f"{COMPUTE}/virtualMachines/nobody"
    assert arm.call("DELETE", nobody, If_Match=etag).status == 204
    again = {"If_Match": f'"x", {arm.get(VM).headers["etag"]}', "x_ms_client_request_id": "7"}
    assert [arm.call("DELETE", VM, **again).status for _ in range(2)] == [202, 202]
    assert arm.call("DELETE", instance, If_Match="*").status == 202


def test_of_two_who_write_at_once_nothing_is_lost():
    """Somebody else's tag lands between the read and the write: 409, and 200 when tried anew."""
    store = Holding()
    with asked(store) as arm:
        first, second = {"tags": {"other": "x"}}, {"tags": {"mine": "x"}}
        with store.holding(arm) as ask:
            other = ask(arm.call, "PATCH", VM, first)
            mine = ask(arm.call, "PATCH", VM, second)
        assert (other.result().status, mine.result().status) == (200, 409)
        assert mine.result().json["error"]["code"] == "Conflict"
        assert arm.get(VM).json["tags"] == {"other": "x"}
        assert arm.call("PATCH", VM, second).status == 200
        assert arm.get(VM).json["tags"] == {"other": "x", "mine": "x"}


@pytest.mark.parametrize("path", [VM, WEB, BATCH])
def test_what_is_gone_when_it_was_written_is_not_found(path):
    """Taken out of the fleet between the write and the answer: 404."""
    store = Holding()
    with asked(store) as arm:
        fleet = arm.served.get("/v1/fleet").json
        fleet["vm"] = [one for one in fleet["vm"] if one["name"] != "db"]
        fleet["vm"] = [one for one in fleet["vm"] if not {"scale_set", "availability_set"} & {*one}]
        fleet["scale_set"] = fleet["availability_set"] = []
        with store.holding(arm) as ask:
            written = ask(arm.call, "PATCH", path, {"tags": {"a": "b"}})
            emptied = ask(arm.served.call, "PUT", "/v1/fleet", fleet)
        assert emptied.result().status == 200, emptied.result()
        assert written.result().status == 404
        # With the last that was in it, the group is gone too.
        assert written.result().json["error"]["code"] == "ResourceGroupNotFound"


# ---- How many ----


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
