"""What would happen, told before it does: it is what happens then, and nothing has changed."""

import re

import pytest

from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from tests.control.bearers import Bearers, kept
from tests.control.calling import in_minutes, restarted, serving

DEEDS = {
    "/v1/vms/web-1/restart": {},
    "/v1/vms/db/redeploy": {"not_before": in_minutes(90)},
    "/v1/vms/spot_1/evict": {},
    "/v1/vms/batch_3/delete": {},
    "/v1/vms/web-2/stop": {},
    "/v1/vms/web-2/deallocate": {},
    "/v1/nodes/node-3/maintain": {"impact": "reboot"},
    "/v1/nodes/node-3/migrate": {},
    "/v1/nodes/node-3/evacuate": {},
    "/v1/nodes/node-5/repair": {},
    "/v1/nodes/node-5/predict-failure": {"risk": "low"},
    "/v1/nodes/node-5/fail": {},
    "/v1/nodes/node-4/cordon": {},
    "/v1/scale-sets/batch/scale-in": {"count": 2},
}
# What is another each time it is asked for.
FLEETING = ("id", "operation")


@pytest.fixture
def served():
    """A service whose clock stands still: what is asked for twice has the same instants."""
    with serving(clock=ManualClock()) as there:
        yield there


def told(served, path, body=None):
    """What the law says would happen."""
    answer = served.post(f"{path}?foresee=true", body or {})
    assert answer.status == 200, answer
    return answer.json["sentences"]


def lasting(event):
    """What two events have in common that were asked for in the same way."""
    return {name: value for name, value in event.items() if name not in FLEETING}


@pytest.mark.parametrize("path", DEEDS)
def test_what_is_foreseen_is_what_happens(served, path):
    """The same events, of which the foreseen ones were never there."""
    revision = served.run.service.fleet.revision
    foreseen = served.post(f"{path}?foresee=true", DEEDS[path], Idempotency_Key="the same")
    assert foreseen.status == 200, foreseen
    assert served.run.service.fleet.revision == revision
    assert served.run.service.fleet.events == {}
    done = served.post(path, DEEDS[path], Idempotency_Key="the same")
    assert done.status == 202, done
    assert [lasting(one) for one in foreseen.json["events"]] == [
        lasting(one) for one in done.json["events"]
    ]
    assert foreseen.json["sentences"]
    assert "Nothing changes" not in foreseen.json["sentences"][0]


def test_a_restart_is_told_whole(served):
    """What, to which VM, in which scope, who sees it, with which notice."""
    said = told(served, "/v1/vms/web-0/restart")
    assert said[0] == "web-0 will be rebooted."
    assert said[1].startswith(
        "availability-set:web is told at once: Reboot of web-0, with 15 s of notice. "
        "Earliest start: 20"
    )
    assert said[1].endswith("Those who see it: web-0, web-1, web-2.")


def test_a_move_without_a_place_is_warned_of_before_it_is_announced(served):
    """All other nodes are cordoned: which is what is foreseen, and what is answered."""
    for node in served.get("/v1/nodes").json["items"]:
        if node["name"] != "node-3":
            served.post(f"/v1/nodes/{node['name']}/cordon")
    foreseen = served.post("/v1/nodes/node-3/migrate?foresee=true", {}).json["warnings"]
    answered = served.post("/v1/nodes/node-3/migrate", {}).json["warnings"]
    assert foreseen == answered
    assert foreseen[0].startswith("No node may take ")
    assert "5 are cordoned; 1 is where it is" in foreseen[0]


def test_who_is_not_told_is_said(served):
    """Nobody of a scope has asked: nothing waits."""
    body = served.get("/v1/fleet").json
    body["vm"].append({"name": "deaf", "node": "node-0"})
    assert served.call("PUT", "/v1/fleet", body).status == 200
    assert told(served, "/v1/vms/deaf/restart") == [
        "deaf will be rebooted.",
        "Of deaf nobody in vm:deaf is told: none of its VMs has asked within 24 hours.",
        "It begins at once.",
    ]


def test_where_vms_go_is_said_and_which_stay(served):
    """By the node's name; and that there is no room."""
    (vm,) = [one for one in served.get("/v1/vms").json["items"] if one["name"] == "db"]
    said = told(served, f"/v1/nodes/{vm['node']}/fail")
    assert any(re.fullmatch(r"db goes to node-\d\.", one) for one in said), said
    for node in served.get("/v1/nodes").json["items"]:
        if node["name"] != vm["node"]:
            served.post(f"/v1/nodes/{node['name']}/cordon")
    said = told(served, f"/v1/nodes/{vm['node']}/evacuate")
    assert any("db" in one and "there is no room for them elsewhere" in one for one in said), said


def test_what_was_announced_is_told_by_its_own_words(served):
    """Approve, postpone, cancel, release."""
    path = f"/v1/events/{restarted(served)}"
    of = "The Reboot of web-0 in availability-set:web"
    assert told(served, f"{path}/approve") == [f"{of} starts at once."]
    assert told(served, f"{path}/cancel") == [f"{of} is canceled: it is in no document any more."]
    (said,) = told(served, f"{path}/postpone", {"not_before": in_minutes(30)})
    assert "at the earliest, not at" in said
    assert told(served, f"{path}/release") == [
        "Nothing changes: it was asked for already, or is so."
    ]
    assert served.get(path).json["status"] == "Scheduled"


def test_an_approval_that_waits_for_others_says_so(served):
    """One operation, two scopes: both have to."""
    answer = served.post("/v1/nodes/node-3/maintain").json
    first, second = answer["events"]
    (said,) = told(served, f"/v1/events/{first['id']}/approve")
    assert f"is approved. It starts when that of {', '.join(second['resources'])}" in said


def test_a_refusal_is_the_same_before_and_then(served):
    """The law says no in the same words."""
    served.post("/v1/nodes/node-0/maintain")
    path = "/v1/nodes/node-1/maintain"
    foreseen, done = served.post(f"{path}?foresee=true").problem, served.post(path).problem
    assert foreseen["status"] == 409
    assert foreseen["detail"] == done["detail"]


def test_a_rollout_is_steered_with_foresight(served):
    """Pause, resume and cancel say what they mean."""
    rollout = served.post("/v1/rollouts", {"nodes": ["node-0", "node-1"]}).json["id"]
    assert told(served, f"/v1/rollouts/{rollout}/pause")[0].startswith("No further node is taken")
    assert any("The rollout ends" in one for one in told(served, f"/v1/rollouts/{rollout}/cancel"))
    assert served.get(f"/v1/rollouts/{rollout}").json["status"] == "running"


def test_who_may_see_a_part_is_told_of_the_others_only_how_many():
    """Neither their names, nor which nodes there are."""
    store = MemoryStore()
    with serving(store, auth=True) as there:
        asking = Bearers(there, store)
        body = asking.ask("admin", "GET", "/v1/fleet").json
        (mine,) = [vm for vm in body["vm"] if vm["name"] == "web-0"]
        mine["resource_group"] = "mine"
        body["vm"].append({"name": "deaf", "node": "node-0", "resource_group": "mine"})
        assert asking.ask("admin", "PUT", "/v1/fleet", body).status == 200
        asking.texts["mine"] = kept(store, "user-9", resource_groups=("mine",))
        said = []
        for deed in ("web-0/restart", "deaf/redeploy"):
            path = f"/v1/vms/{deed}?foresee=true"
            said += asking.ask("mine", "POST", path).json["sentences"]
        assert said[1].endswith("Those who see it: web-0 and 2 more.")
        assert not any(name in " ".join(said) for name in ("web-1", "web-2", "node-")), said
        whole = asking.ask("operator", "POST", path).json["sentences"]
        assert any(one.startswith("deaf goes to node-") for one in whole), whole


def test_the_audit_tells_what_was_done_and_not_what_was_thought_of():
    """Else it would look as if somebody had restarted a VM again and again."""
    store = MemoryStore()
    with serving(store, auth=True) as there:
        asking = Bearers(there, store)
        path = "/v1/vms/web-0/restart"
        for said in ("true", "True", "1"):
            assert asking.ask("operator", "POST", f"{path}?foresee={said}").status == 200
        assert asking.ask("reader", "POST", f"{path}?foresee=true").status == 403
        assert asking.ask("operator", "POST", f"{path}?foresee=false").status == 202
        found = asking.ask("admin", "GET", "/v1/audit").json["items"]
    assert [(one["path"], one["status"]) for one in found] == [(path, 202), (path, 403)]
