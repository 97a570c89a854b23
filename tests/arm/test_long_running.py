"""Long-running operations: 202, where to ask, and what is told there until it is over."""

import pytest

from fairnotice.control.fleet_files import sample_fleet, specification
from fairnotice.stores.opening import open_store
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import Priority
from tests.arm.calling import BATCH, COMPUTE, DB, SPOT, SUBSCRIPTION, WEB_0, asked, operation

PATIENCE = 100


def monitor(arm, answer):
    """What Location answers."""
    return arm.get(answer.headers["location"].partition(str(arm.served.run.arm))[2], query="")


def test_a_restart_is_over_when_its_impact_is(arm):
    """InProgress while the event waits; Succeeded when it is approved and done."""
    answer = arm.post(f"{WEB_0}/restart", query="api-version=2022-11-01")
    assert (answer.status, answer.body) == (202, b"")
    assert answer.headers["retry-after"] == "1"
    operation = answer.headers["azure-asyncoperation"]
    place = "/providers/Microsoft.Compute/locations/local/operations/"
    assert operation.startswith(f"http://{arm.served.run.arm}{SUBSCRIPTION}{place}")
    assert operation.endswith("&api-version=2022-11-01")
    assert arm.follow(answer)["status"] == "InProgress"
    waiting = monitor(arm, answer)
    assert (waiting.status, waiting.headers["retry-after"]) == (202, "1")
    (event,) = arm.events("web-1")
    assert (event["EventType"], event["Resources"]) == ("Reboot", ["web-0"])
    arm.approve("web-1")
    found = arm.until(answer, "Succeeded")
    assert found["endTime"] >= found["startTime"]
    assert monitor(arm, answer).status == 200


@pytest.mark.parametrize("word", ["redeploy", "performMaintenance"])
def test_what_else_waits_for_an_approval(arm, word):
    """A redeploy; and performMaintenance is the approval of what the platform has announced."""
    if word == "performMaintenance":
        arm.served.post("/v1/nodes/node-1/maintain", {"impact": "reboot"})
        view = arm.get(f"{DB}/instanceView").json
        assert view["maintenanceRedeployStatus"]["isCustomerInitiatedMaintenanceAllowed"]
    answer = arm.post(f"{DB}/{word}")
    assert answer.status == 202
    if word == "redeploy":
        node = arm.fleet.vms["db"].node
        arm.approve("db")
        arm.until(answer, "Succeeded")
        assert arm.fleet.vms["db"].node != node
    else:
        events = [one for one in arm.fleet.events.values() if one.scope == "vm:db"]
        assert [one.approval.by for one in events] == ["operator"]
        # The node is rebooted when the others there have approved too.
        assert arm.follow(answer)["status"] == "InProgress"
        for vm in ("web-0", "batch_0"):
            arm.approve(vm)
        arm.until(answer, "Succeeded")
        arm.refused(409, "OperationNotAllowed", "POST", f"{DB}/performMaintenance")


def test_a_repeat_of_perform_maintenance_approves_nothing_that_is_new(arm):
    """It is told of what it began, though other maintenance is announced by then."""

    def announce(impact):
        arm.served.post("/v1/nodes/node-1/maintain", {"impact": impact})
        return [one.id for one in arm.fleet.events.values() if one.scope == "vm:db"][-1]

    first = announce("reboot")
    began, again = (
        arm.post(f"{DB}/performMaintenance", x_ms_client_request_id="7") for _ in range(2)
    )
    arm.served.post(f"/v1/events/{first}/cancel")
    second = announce("freeze")
    late = arm.post(f"{DB}/performMaintenance", x_ms_client_request_id="7")
    assert [one.status for one in (began, again, late)] == [202, 202, 202]
    named = {operation(one, "azure-asyncoperation") for one in (began, again, late)}
    assert len(named) == 1
    assert second != first
    assert arm.fleet.events[second].approval is None


@pytest.mark.parametrize("path", [BATCH, f"{BATCH}/virtualMachines/0"])
def test_maintenance_of_a_scale_set_and_of_an_instance(arm, path):
    """PerformMaintenance approves for those that are named, and is over when their impact is."""
    arm.refused(409, "OperationNotAllowed", "POST", f"{path}/performMaintenance")
    node = arm.fleet.vms["batch_0"].node
    arm.served.post(f"/v1/nodes/{node}/maintain", {"impact": "reboot"})
    answer = arm.post(f"{path}/performMaintenance")
    assert answer.status == 202
    (event,) = [one for one in arm.fleet.events.values() if one.scope.startswith("scale-set:batch")]
    assert event.approval.by == "operator"
    for vm in [one.name for one in arm.fleet.vms.values() if one.node == node]:
        arm.approve(vm)
    arm.until(answer, "Succeeded")


def test_perform_maintenance_approves_nothing_that_a_user_has_asked_for(arm):
    """Neither alone, nor beside what the platform has announced; nor does it approve that twice."""
    # It listens: so whatever is announced waits for an approval.
    arm.events("db")
    arm.post(f"{DB}/restart")
    (asked_for,) = arm.events("db")
    path = f"{DB}/performMaintenance"
    arm.refused(409, "OperationNotAllowed", "POST", path)
    assert "maintenanceRedeployStatus" not in arm.get(f"{DB}/instanceView").json
    arm.served.post("/v1/nodes/node-1/maintain", {"impact": "reboot"})
    assert arm.post(path).status == 202
    events = [one for one in arm.fleet.events.values() if one.scope == "vm:db"]
    approved = {one.id: one.approval for one in events}
    assert approved.pop(asked_for["EventId"]) is None
    (approval,) = approved.values()
    assert approval.by == "operator"
    # It waits for the others of the node, and is approved already.
    arm.refused(409, "OperationNotAllowed", "POST", path)


def test_perform_maintenance_approves_an_eviction_too(arm):
    """A Preempt is the platform's: who approves for a whole set takes its Spot machines away."""
    arm.events("spot_1")
    arm.post(f"{SPOT}/virtualMachines/0/simulateEviction")
    view = arm.get(f"{SPOT}/virtualMachines/0/instanceView").json
    assert view["maintenanceRedeployStatus"]["isCustomerInitiatedMaintenanceAllowed"]
    arm.refused(409, "OperationNotAllowed", "POST", f"{SPOT}/virtualMachines/1/performMaintenance")
    arm.until(arm.post(f"{SPOT}/performMaintenance"), "Succeeded")
    assert not arm.fleet.vms["spot_0"].running
    assert arm.fleet.vms["spot_1"].running


def test_power_acts_at_once(arm):
    """Stop, deallocate and start: over at the first look; and again, when nothing is to be done."""
    for word, state in (
        ("powerOff", "stopped"),
        ("deallocate", "deallocated"),
        ("start", "running"),
    ):
        for _ in range(2):
            answer = arm.post(f"{DB}/{word}")
            assert answer.status == 202
            arm.until(answer, "Succeeded")
        code = arm.get(f"{DB}/instanceView").json["statuses"][1]["code"]
        assert code == f"PowerState/{state}"


@pytest.mark.parametrize(
    ("path", "body", "vm"),
    [
        (DB, None, "db"),
        (f"{BATCH}/virtualMachines/0", None, "batch_0"),
        (BATCH, {"instanceIds": ["0"]}, "batch_0"),
    ],
)
def test_each_action_is_done_to_one_and_to_no_other(arm, path, body, vm):
    """A VM, an instance by its own address, and one that is named at its scale set's."""

    def others():
        return {name: row for name, row in arm.fleet.vms.items() if name != vm}

    before = others()
    for word, event_type, power in (
        ("restart", "Reboot", "running"),
        ("redeploy", "Redeploy", "running"),
        ("powerOff", None, "stopped"),
        ("start", None, "running"),
        ("deallocate", None, "deallocated"),
    ):
        arm.events(vm)
        answer = arm.post(f"{path}/{word}", body)
        assert answer.status == 202
        announced = [one for one in arm.events(vm) if one["EventStatus"] == "Scheduled"]
        told = [(one["EventType"], one["Resources"]) for one in announced]
        assert told == ([(event_type, [vm])] if event_type else [])
        arm.approve(vm)
        arm.until(answer, "Succeeded")
        assert (arm.fleet.vms[vm].power, others()) == (power, before)


def test_deleting_a_vm_and_instances(arm):
    """A VM at once; an instance with notice, by both addresses."""
    arm.until(arm.call("DELETE", DB), "Succeeded")
    arm.refused(404, "ResourceNotFound", "GET", DB)
    one = arm.call("DELETE", f"{BATCH}/virtualMachines/0")
    two = arm.post(f"{BATCH}/delete", {"instanceIds": ["1", "2"]})
    assert [arm.follow(answer)["status"] for answer in (one, two)] == ["InProgress"] * 2
    arm.approve("batch_3")
    for answer in (one, two):
        arm.until(answer, "Succeeded")
    assert [one["instanceId"] for one in arm.get(f"{BATCH}/virtualMachines").json["value"]] == ["3"]


def test_a_repeat_of_a_delete_is_told_of_the_first(arm):
    """Also when all is over and nothing is there any more: by the tools' own retry."""
    some = {"instanceIds": ["1", "2"]}
    for method, path, body in (
        ("DELETE", DB, None),
        ("DELETE", f"{BATCH}/virtualMachines/0", None),
        ("POST", f"{BATCH}/delete", some),
    ):
        first = arm.call(method, path, body, x_ms_client_request_id="1")
        arm.approve("batch_3")
        arm.until(first, "Succeeded")
        again = arm.call(method, path, body, x_ms_client_request_id="1")
        assert again.status == 202
        for header in ("azure-asyncoperation", "location"):
            assert operation(again, header) == operation(first, header)
    assert {"batch_0", "batch_1", "batch_2", "db"}.isdisjoint(arm.fleet.vms)


@pytest.mark.parametrize(
    "path",
    [
        f"{COMPUTE}/virtualMachines/nobody",
        f"{BATCH}/virtualMachines/9",
        f"{COMPUTE}/virtualMachineScaleSets/nobody",
        f"{COMPUTE}/availabilitySets/nobody",
    ],
)
def test_what_is_not_there_need_not_be_deleted(looking, path):
    """204, as Azure answers; in a resource group that is not there, 404."""
    answer = looking.call("DELETE", path)
    assert (answer.status, answer.body) == (204, b"")
    assert "azure-asyncoperation" not in answer.headers
    elsewhere = path.replace("/sample/", "/other/")
    looking.refused(404, "ResourceGroupNotFound", "DELETE", elsewhere)


def test_instances_all_or_some(arm):
    """Restart without a body is of all of them."""
    some = arm.post(f"{BATCH}/restart", {"instanceIds": ["0", "2"]})
    assert [one["Resources"] for one in arm.events("batch_1")] == [["batch_0"], ["batch_2"]]
    arm.approve("batch_1")
    arm.until(some, "Succeeded")
    for body in (None, {"instanceIds": ["*"]}, {}, {"instanceIds": None}):
        every = arm.post(f"{BATCH}/restart", body)
        assert len(arm.events("batch_1")) == 4
        arm.approve("batch_1")
        arm.until(every, "Succeeded")
    arm.post(f"{BATCH}/restart", {"INSTANCEids": ["0"]})
    assert [one["Resources"] for one in arm.events("batch_1")] == [["batch_0"]]
    single = arm.post(f"{BATCH}/virtualMachines/1/restart")
    arm.approve("batch_1")
    arm.until(single, "Succeeded")


def test_simulating_an_eviction_is_answered_204(arm):
    """With no body, nothing to follow, and a Preempt event."""
    answer = arm.post(f"{SPOT}/virtualMachines/0/simulateEviction")
    assert (answer.status, answer.body) == (204, b"")
    assert "azure-asyncoperation" not in answer.headers
    (event,) = arm.events("spot_1")
    assert (event["EventType"], event["Resources"]) == ("Preempt", ["spot_0"])


def test_evicting_a_spot_vm_that_is_no_instance(arm):
    """By its own address; what was Regular is refused, and nothing is announced."""
    arm.refused(409, "OperationNotAllowed", "POST", f"{DB}/simulateEviction")
    assert arm.events("db") == []
    fleet = specification(sample_fleet())
    vms = [one._replace(priority=Priority.SPOT) if one.name == "db" else one for one in fleet.vms]
    arm.served.inside(arm.served.run.service.apply_fleet(fleet._replace(vms=tuple(vms))))
    assert arm.post(f"{DB}/simulateEviction").status == 204
    assert [one["EventType"] for one in arm.events("db")] == ["Preempt"]


def test_reapplying_changes_nothing(arm):
    """It is answered as done; nothing is announced, and a VM that is not there is not found."""
    before = arm.fleet.vms["web-0"]
    answer = arm.post(f"{WEB_0}/reapply")
    assert (answer.status, answer.body) == (200, b"")
    assert (arm.fleet.vms["web-0"], arm.events("web-0")) == (before, [])
    path = f"{COMPUTE}/virtualMachines/nobody/reapply"
    arm.refused(404, "ResourceNotFound", "POST", path)
    # Instances are as their set is, too: `az vmss update-instances`.
    answer = arm.post(f"{BATCH}/manualupgrade", {"instanceIds": ["*"]})
    assert (answer.status, answer.body, arm.events("batch_0")) == (200, b"", [])
    body = {"instanceIds": ["0", "77"]}
    arm.refused(400, "InvalidParameter", "POST", f"{BATCH}/manualupgrade", body)


def test_what_is_canceled_and_what_fails_says_why(arm):
    """Canceled by somebody; failed by the driver."""
    canceled = arm.post(f"{WEB_0}/restart")
    (event,) = arm.events("web-0")
    arm.served.post(f"/v1/events/{event['EventId']}/cancel")
    found = arm.until(canceled, "Canceled")
    assert "canceled by operator" in found["error"]["message"]
    assert monitor(arm, canceled).status == 409
    arm.served.run.conductor._driver.next_fails("web-0", reason="the disk is gone")
    failed = arm.post(f"{WEB_0}/restart")
    arm.approve("web-0")
    found = arm.until(failed, "Failed")
    assert "the disk is gone" in found["error"]["message"]
    # Not 500, for which azure-core asks again and again.
    assert monitor(arm, failed).status == 409


def test_a_repeat_by_the_tools_own_retry_schedules_nothing_twice(arm):
    """The same x-ms-client-request-id at the same address is the same request; and answered so."""
    one = arm.post(f"{WEB_0}/restart", x_ms_client_request_id="11-22")
    two = arm.post(f"{WEB_0}/restart", x_ms_client_request_id="11-22")
    assert one.headers["azure-asyncoperation"] == two.headers["azure-asyncoperation"]
    assert one.headers["x-ms-client-request-id"] == "11-22"
    assert len(arm.events("web-0")) == 1
    # A tool has one id for all that one command of its asks: another VM is another request.
    assert arm.post(f"{DB}/restart", x_ms_client_request_id="11-22").status == 202
    assert len(arm.events("db")) == 1
    arm.post(f"{WEB_0}/restart", x_ms_client_request_id="33")
    arm.post(f"{WEB_0}/restart")
    assert len(arm.events("web-0")) == 3


@pytest.mark.parametrize(
    ("path", "word", "status"),
    [
        (DB, "restart", 202),
        (DB, "powerOff", 202),
        (f"{SPOT}/virtualMachines/0", "redeploy", 202),
        (f"{SPOT}/virtualMachines/0", "simulateEviction", 204),
    ],
)
def test_a_repeat_is_told_of_the_first_though_the_vm_is_gone(arm, path, word, status):
    """Deleted since, by whomever: what was done is not reported as not found."""

    def ask():
        return arm.post(f"{path}/{word}", x_ms_client_request_id="9")

    first = ask()
    deleted = arm.call("DELETE", path)
    arm.approve("spot_1")
    arm.until(deleted, "Succeeded")
    assert arm.get(path).status == 404
    again = ask()
    assert first.status == again.status == status
    if status == 202:
        name = "azure-asyncoperation"
        assert operation(again, name) == operation(first, name)
    arm.refused(404, "ResourceNotFound", "POST", f"{path}/{word}")


def test_a_repeat_is_the_same_though_the_set_has_changed(arm):
    """All instances, or one that is gone since: what was asked first is followed."""
    asks = (("restart", None), ("delete", {"instanceIds": ["3"]}))
    first = []
    for word, body in asks:
        first.append(arm.post(f"{BATCH}/{word}", body, x_ms_client_request_id="5"))
        arm.approve("batch_0")
        arm.until(first[-1], "Succeeded")
    assert arm.get(f"{BATCH}/virtualMachines/3").status == 404
    for (word, body), before in zip(asks, first, strict=True):
        again = arm.post(f"{BATCH}/{word}", body, x_ms_client_request_id="5")
        assert again.status == 202, again
        assert operation(again, "azure-asyncoperation") == operation(before, "azure-asyncoperation")
    assert arm.events("batch_0") == []


def test_what_a_store_told_that_is_gone_is_not_waited_for(looking):
    """Whoever leads has read all there is: `up --store memory:`, begun anew while az asks."""
    place = f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/local/operations/gone"
    query = "api-version=2024-11-01&revision=1000000"
    looking.refused(404, "NotFound", "GET", place, query=query)


def test_what_became_of_it_is_known_after_a_restart(tmp_path):
    """By another process: from the law's own rows."""
    url = f"sqlite:{tmp_path}/it.db"
    clock = ManualClock()
    with asked(open_store(url), clock=clock) as arm:
        answer = arm.post(f"{DB}/restart")
        path = answer.headers["azure-asyncoperation"].partition(str(arm.served.run.arm))[2]
    with asked(open_store(url), clock=clock) as arm:
        assert arm.get(path, query="").json["status"] == "InProgress"
        arm.approve("db")
        arm.until(
            answer._replace(headers={"azure-asyncoperation": f"{arm.served.run.arm}{path}"}),
            "Succeeded",
        )


def test_what_became_of_it_is_known_when_the_law_has_forgotten_it(tmp_path):
    """After more than a day: from history, with the same end, and the reason of a failure."""
    clock = ManualClock()
    with asked(open_store(f"sqlite:{tmp_path}/it.db"), clock=clock) as arm:
        done = arm.post(f"{DB}/restart")
        arm.approve("db")
        ended = [arm.until(done, "Succeeded")]
        arm.served.run.conductor._driver.next_fails("db", reason="the disk is gone")
        failed = arm.post(f"{DB}/restart")
        arm.approve("db")
        ended.append(arm.until(failed, "Failed"))
        names = [one["name"] for one in ended]
        for _ in range(40):
            clock.advance(hours=1)
            arm.served.look("db")
        # Something is decided then, and what is over for long is forgotten before it.
        for _ in range(PATIENCE):
            if not set(names) & set(arm.fleet.requests):
                break
            arm.post(f"{DB}/start")
        assert not set(names) & set(arm.fleet.requests)
        assert [arm.follow(one) for one in (done, failed)] == ended


def test_what_was_approved_and_canceled_is_not_taken_for_done(tmp_path):
    """An approval makes no operation of its own: its events' is looked for, forgotten or not."""
    clock = ManualClock()
    with asked(open_store(f"sqlite:{tmp_path}/it.db"), clock=clock) as arm:
        arm.served.post("/v1/nodes/node-1/maintain", {"impact": "reboot"})
        approved = arm.post(f"{DB}/performMaintenance")
        (event,) = [one for one in arm.fleet.events.values() if one.scope == "vm:db"]
        canceled = arm.served.post(f"/v1/operations/{event.operation}/cancel")
        assert canceled.status in (200, 202), canceled
        ended = arm.until(approved, "Canceled")
        for _ in range(40):
            clock.advance(hours=1)
            arm.served.look("db")
        for _ in range(PATIENCE):
            if event.id not in arm.fleet.events:
                break
            arm.post(f"{DB}/start")
        assert event.id not in arm.fleet.events
        assert arm.follow(approved) == ended
