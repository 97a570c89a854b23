"""The native API, asked over HTTP: every address, what it shows and what it does."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from fairnotice.testing.manual_clock import ManualClock
from tests.control.calling import in_minutes, restarted, serving
from tests.waiting import until


@pytest.fixture(scope="module")
def looked_at():
    """A service that nobody changes."""
    with serving(clock=ManualClock()) as served:
        yield served


@pytest.fixture
def served():
    """A service of its own, whose time stands still."""
    with serving(clock=ManualClock()) as served:
        yield served


def names(answer, key="name"):
    """What a list holds, by name."""
    assert answer.status == 200, answer
    return [item[key] for item in answer.json["items"]]


# ---- Looking ----


def test_every_kind_of_thing_is_listed_and_shown(looked_at):
    """Each of the list can be asked for by its name."""
    for kind, count in (("vms", 13), ("nodes", 6), ("scopes", 5), ("scale-sets", 2)):
        found = names(looked_at.get(f"/v1/{kind}"))
        assert len(found) == count
        for name in found:
            assert looked_at.get(f"/v1/{kind}/{name}").json["name"] == name
    for kind in ("events", "operations", "rollouts"):
        assert looked_at.get(f"/v1/{kind}").json == {"items": [], "next": None}


def test_a_vm_is_shown_with_where_it_is(looked_at):
    """Node, domains, address, and what its document reads."""
    vm = looked_at.get("/v1/vms/web-1").json
    assert (vm["node"], vm["fault_domain"], vm["update_domain"]) == ("node-1", 1, 1)
    assert (vm["scope"], vm["power"], vm["events"]) == ("availability-set:web", "running", [])
    assert looked_at.get("/v1/scale-sets/batch").json["terminate_notice_minutes"] == 5
    assert looked_at.get("/v1/scopes/vm:db").json["enabled"] is True


def test_a_list_is_read_in_pages(looked_at):
    """Each names where the next begins, and the last names nothing."""
    found, after = [], ""
    while after is not None:
        answer = looked_at.get(f"/v1/vms?limit=5&after={after}")
        assert 0 < len(names(answer)) <= 5
        found += names(answer)
        after = answer.json["next"]
    assert found == names(looked_at.get("/v1/vms"))
    last = found[-1]
    assert looked_at.get(f"/v1/vms?after={last}").json == {"items": [], "next": None}
    assert looked_at.get("/v1/vms?limit=13").json["next"] is None


@pytest.mark.parametrize(
    ("query", "field", "nearest"),
    [
        ("limit=0", "limit", []),
        ("limit=1001", "limit", []),
        ("limit=many", "limit", []),
        ("limit=" + "9" * 40, "limit", []),
        ("after=web-9", "after", []),
        ("limti=5", "limti", ["limit"]),
        ("limit=5&limit=6", "limit", []),
        ("status=Scheduled", "status", []),
        ("x%00=1", "x\0", []),
    ],
)
def test_a_query_that_does_not_fit_names_its_field(looked_at, query, field, nearest):
    """An unknown one is not passed over: the answer would be to another question."""
    problem = looked_at.get(f"/v1/vms?{query}").problem
    assert (problem["status"], problem["field"]) == (422, field)
    assert problem["nearest"] == nearest


def test_a_query_where_none_is_asked_for_is_refused(looked_at):
    """On any address."""
    for path in ("/v1/vms/db?x=1", "/v1/fleet?x=1", "/v1/events/x/history?x=1"):
        assert looked_at.get(path).problem["status"] == 422
    assert looked_at.post("/v1/vms/db/stop?force=1").problem["field"] == "force"


def test_the_fleet_round_trips(looked_at):
    """What is shown can be put back, and changes nothing."""
    fleet = looked_at.get("/v1/fleet")
    assert len(fleet.json["vm"]) == 13
    difference = looked_at.post("/v1/fleet/difference", fleet.body).json
    assert difference.pop("refused") is None
    assert difference == {"added": [], "changed": [], "removed": [], "warnings": []}
    revision = looked_at.run.conductor.fleet.revision
    assert looked_at.call("PUT", "/v1/fleet", fleet.body).status == 200
    assert looked_at.run.conductor.fleet.revision == revision


@pytest.mark.parametrize("version", ["2017-03-01", "2019-08-01", "2020-07-01"])
def test_a_document_is_what_the_vm_reads_byte_for_byte(served, version):
    """In every api-version."""
    restarted(served)
    shown = served.get(f"/v1/vms/web-2/document?api-version={version}")
    assert shown.headers["content-type"] == "application/json"
    assert shown.body == served.look("web-2", version)
    assert b"web-0" in shown.body


def test_a_document_of_no_version_is_refused(looked_at):
    """Left out it is the newest."""
    problem = looked_at.get("/v1/vms/db/document?api-version=2020-07-02").problem
    assert (problem["status"], problem["field"]) == (422, "api-version")
    assert "2020-07-01" in problem["detail"]
    assert looked_at.get("/v1/vms/db/document").status == 200
    assert looked_at.get("/v1/vms/nobody/document").problem["status"] == 404


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/v1/vms", "127.0.0.1", 200),
        ("/metrics", "127.0.0.1", 200),
        ("/v1/nothing", "127.0.0.1", 404),
        ("/v1/vms", "elsewhere.example", 403),
    ],
)
def test_a_browser_is_told_to_do_little_with_an_answer(looked_at, path, host, status):
    """Good or bad: nothing is guessed, framed, loaded, or told to other sites."""
    answer = looked_at.get(path, Host=host)
    assert answer.status == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = answer.headers["content-security-policy"]
    assert policy == "default-src 'none'; frame-ancestors 'none'"


def test_head_says_what_get_would(looked_at):
    """Without the body; on the feed too, which would never end."""
    for path in ("/v1/vms", "/v1/vms/db", "/v1/openapi.json", "/healthz", "/readyz"):
        head, get = looked_at.call("HEAD", path), looked_at.get(path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(get.body))
    assert looked_at.call("HEAD", "/v1/vms/nobody").status == 404
    assert looked_at.call("HEAD", "/v1/feed").status == 200


# ---- Doing ----


def test_rule_17_several_vms_are_one_request_all_or_none(served):
    """One address for several; a VM that is refused refuses all, and is named."""
    later = {"not_before": in_minutes(60)}
    both = served.post("/v1/vms:restart", {"vms": ["web-0", "web-1"], **later}, Idempotency_Key="k")
    assert both.status == 202
    assert [event["resources"] for event in both.json["events"]] == [["web-0"], ["web-1"]]
    operations = [served.get(f"/v1/operations/{one}").json for one in both.json["operations"]]
    assert {one["request"] for one in operations} == {both.json["id"]}
    again = served.post(
        "/v1/vms:restart", {"vms": ["web-0", "web-1"], **later}, Idempotency_Key="k"
    )
    assert again.json["id"] == both.json["id"]

    served.post("/v1/vms/web-2/stop")
    refused = served.post("/v1/vms:restart", {"vms": ["db", "web-2"]}).problem
    unknown = served.post("/v1/vms:stop", {"vms": ["db", "web-9"]}).problem
    nobody = served.post("/v1/vms:delete", {"vms": []}).problem
    assert (refused["status"], refused["rule"]) == (409, 20)
    assert refused["detail"].startswith("web-2 ")
    assert (unknown["status"], unknown["nearest"][0]) == (404, "web-0")
    assert (nobody["status"], nobody["field"]) == (422, "vms")
    db = served.get("/v1/vms/db").json
    assert (db["events"], db["power"]) == ([], "running")


@pytest.mark.parametrize(
    ("path", "body", "event_type"),
    [
        ("/v1/vms/web-0/restart", None, "Reboot"),
        ("/v1/vms/web-0/restart", {"not_before": in_minutes(30)}, "Reboot"),
        ("/v1/vms/web-0/redeploy", {}, "Redeploy"),
        ("/v1/vms/spot_0/evict", None, "Preempt"),
        ("/v1/vms/batch_0/delete", None, "Terminate"),
        ("/v1/scale-sets/batch/scale-in", {"count": 1}, "Terminate"),
        ("/v1/nodes/node-1/maintain", {"impact": "freeze", "duration_seconds": 9}, "Freeze"),
        ("/v1/nodes/node-1/maintain", {"impact": "reboot"}, "Reboot"),
        ("/v1/nodes/node-1/migrate", None, "Freeze"),
        ("/v1/nodes/node-1/predict-failure", {"risk": "high"}, "Redeploy"),
        ("/v1/nodes/node-1/predict-failure", {"not_before": in_minutes(60)}, "Redeploy"),
        ("/v1/nodes/node-1/evacuate", None, "Freeze"),
        ("/v1/nodes/node-1/repair", None, "Reboot"),
    ],
)
def test_an_operation_is_accepted_with_its_id_and_events(served, path, body, event_type):
    """202, and all of it can be read at once."""
    answer = served.post(path, body)
    assert answer.status == 202, answer
    accepted = answer.json
    assert accepted["id"]
    for event in accepted["events"]:
        assert event["type"] == event_type
        assert event["status"] == "Scheduled"
        assert served.get(f"/v1/events/{event['id']}").json == event
    assert accepted["events"]
    for name in accepted["operations"]:
        operation = served.get(f"/v1/operations/{name}").json
        assert (operation["request"], operation["requested_by"]) == (accepted["id"], "operator")
    assert names(served.get("/v1/events"), "id") == [e["id"] for e in accepted["events"]]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/vms/db/stop",
        "/v1/vms/db/deallocate",
        "/v1/vms/db/delete",
        "/v1/nodes/node-1/fail",
        "/v1/nodes/node-1/cordon",
        "/v1/nodes/node-1/uncordon",
    ],
)
def test_what_nobody_is_told_of_before_is_accepted_too(served, path):
    """202, without an event that is still to come."""
    answer = served.post(path)
    assert answer.status == 202, answer
    assert all(event["status"] != "Scheduled" for event in answer.json["events"])


def test_a_vm_that_was_stopped_can_be_started(served):
    """And a node that was cordoned is seen to be."""
    served.post("/v1/vms/db/stop")
    until(lambda: served.get("/v1/nodes/node-1").json["stopped"] == ["db"])
    assert served.post("/v1/vms/db/start").status == 202
    until(lambda: served.get("/v1/nodes/node-1").json["stopped"] == [])
    served.post("/v1/nodes/node-0/cordon")
    assert served.get("/v1/nodes/node-0").json["cordoned"] is True
    served.post("/v1/nodes/node-0/uncordon")
    assert served.get("/v1/nodes/node-0").json["cordoned"] is False


def test_an_event_is_postponed_approved_and_gone(served):
    """What the API shows of it on the way."""
    event = restarted(served)
    answer = served.post(f"/v1/events/{event}/postpone", {"not_before": in_minutes(60)})
    assert answer.json["events"][0]["not_before"] == in_minutes(60)
    approved = served.post(f"/v1/events/{event.lower()}/approve")
    assert approved.status == 202
    assert approved.json["events"][0]["approvals"][0]["by"] == "operator"
    assert names(served.get("/v1/events?status=Scheduled"), "id") == []
    assert served.get(f"/v1/events/{event}").json["status"] in ("Started", "Completed")


def test_an_event_is_canceled(served):
    """It stays readable, as Canceled; a repeat changes nothing."""
    event = restarted(served)
    for _ in range(2):
        assert served.post(f"/v1/events/{event}/cancel").status == 202
    shown = served.get("/v1/events?status=Canceled").json["items"]
    assert [(one["id"], one["status"]) for one in shown] == [(event, "Canceled")]
    assert shown[0]["reason"] == "canceled by operator"


def test_an_event_is_released(served):
    """Where no endpoint has to confirm it, that changes nothing."""
    assert served.post(f"/v1/events/{restarted(served)}/release").status in (202, 409)


def test_a_rollout_is_forecast_started_and_steered(served):
    """A dry run changes nothing; pausing twice neither."""
    body = {"nodes": ["node-0", "node-1", "node-2"], "impact": "reboot", "nodes_at_once_max": 1}
    body["windows"] = [{"weekdays": list(range(7)), "start_minute": 0, "length_minutes": 1440}]
    answer = served.post("/v1/rollouts", {**body, "dry_run": True})
    forecast = answer.json
    assert answer.status == 200
    assert {node["node"] for node in forecast["order"]} == set(body["nodes"])
    assert served.get("/v1/rollouts").json["items"] == []
    rollout = served.post("/v1/rollouts", body).json["id"]
    path = f"/v1/rollouts/{rollout}"
    for what, status in (("pause", "paused"), ("pause", "paused"), ("resume", "running")):
        assert served.post(f"{path}/{what}").status == 202
        assert served.get(path).json["status"].lower() == status
    assert len(served.get(path).json["nodes"]) == 3
    assert served.get(path).json["windows"] == body["windows"]
    assert served.post(f"{path}/cancel").status == 202
    for found in (served.get("/v1/rollouts").json["items"][0], served.get(path).json):
        assert found["status"].lower() == "canceled"
        assert (found["skipped_count"], found["canceled_count"]) == (0, 3)
    refused = served.post(f"{path}/resume").problem
    assert (refused["status"], refused["rule"]) == (409, 22)


def test_sets_and_scopes_are_changed(served):
    """PATCH of what an operator may set."""
    path = "/v1/scale-sets/batch"
    for minutes in (15, None):
        assert served.call("PATCH", path, {"terminate_notice_minutes": minutes}).status == 200
        assert served.get(path).json["terminate_notice_minutes"] == minutes
    path = "/v1/scopes/vm:db"
    assert served.call("PATCH", path, {"automatically_approve": ["Reboot"]}).status == 200
    assert served.get(path).json["automatically_approve"] == ["Reboot"]


def test_a_fleet_is_put_as_a_whole_or_not_at_all(served):
    """The difference is shown first, and says the same."""
    fleet = served.get("/v1/fleet").json
    fleet["node"].append({"name": "node-6"})
    shown = served.post("/v1/fleet/difference", fleet).json
    assert shown["added"] == [{"kind": "node", "name": "node-6"}]
    assert served.get("/v1/nodes/node-6").status == 404
    assert served.call("PUT", "/v1/fleet", fleet).status == 200
    assert served.get("/v1/nodes/node-6").status == 200
    fleet["node"].append({"name": "node-6"})
    problem = served.call("PUT", "/v1/fleet", fleet).problem
    assert (problem["status"], problem["rule"], problem["field"]) == (422, 21, "node[7].name")
    assert served.post("/v1/fleet/difference", fleet).json["refused"] == problem
    restarted(served)
    without = [vm for vm in fleet["vm"] if vm["name"] != "web-0"]
    body = {**fleet, "node": fleet["node"][:7], "vm": without}
    shown = served.post("/v1/fleet/difference", body).json
    problem = served.call("PUT", "/v1/fleet", body).problem
    assert problem["status"] == 409
    assert shown["refused"] == problem
    assert served.get("/v1/vms/web-0").status == 200


# ---- Idempotency keys ----


def test_the_same_key_is_the_same_request(served):
    """One event, and the same answer, also where the body says the same in other words."""
    path = "/v1/vms/web-0/restart"
    first = served.post(path, Idempotency_Key="one")
    assert first.json == served.post(path, {}, Idempotency_Key="one").json
    assert first.json == served.post(path, {"not_before": None}, Idempotency_Key="one").json
    assert len(names(served.get("/v1/events"), "id")) == 1
    assert served.post(path, Idempotency_Key="two").json["id"] != first.json["id"]


def test_the_same_instant_in_another_time_zone_is_the_same_request(served):
    """It is kept in UTC."""
    body, path = {"not_before": "2026-01-01T02:00:00Z"}, "/v1/vms/db/restart"
    first = served.post(path, body, Idempotency_Key="k")
    body["not_before"] = "2026-01-01T03:00:00+01:00"
    assert served.post(path, body, Idempotency_Key="k").json == first.json


def test_a_key_that_stands_for_something_else_is_refused(served):
    """Another body, another VM, another verb: and nothing is done."""
    restarted(served, Idempotency_Key="k")
    event = names(served.get("/v1/events"), "id")[0]
    revision = served.run.conductor.fleet.revision
    for path, body in (
        ("/v1/vms/web-0/restart", {"not_before": in_minutes(60)}),
        ("/v1/vms/web-1/restart", None),
        ("/v1/vms/web-0/redeploy", None),
        ("/v1/nodes/node-0/cordon", None),
        (f"/v1/events/{event}/approve", None),
        ("/v1/rollouts", {"nodes": ["node-0"]}),
    ):
        problem = served.post(path, body, Idempotency_Key="k").problem
        assert (problem["status"], problem["rule"]) == (409, 19), path
    assert served.run.conductor.fleet.revision == revision


def test_a_late_repeat_does_not_undo_what_came_in_between(served):
    """Cordoned, uncordoned, and then the first answer was thought lost."""
    for what, key in (("cordon", "a"), ("uncordon", "b"), ("cordon", "a")):
        assert served.post(f"/v1/nodes/node-0/{what}", Idempotency_Key=key).status == 202
    assert served.get("/v1/nodes/node-0").json["cordoned"] is False


def test_what_was_refused_may_be_repeated_with_its_key(served):
    """A key stands for what was accepted only."""
    assert served.post("/v1/vms/db/start", Idempotency_Key="k").status in (202, 409)
    assert served.post("/v1/vms/db/evict", Idempotency_Key="e").problem["status"] == 409
    assert served.post("/v1/vms/spot_0/evict", Idempotency_Key="e").status == 202


def test_a_key_has_a_length(looked_at):
    """1 to 200 characters."""
    for key in ("", "k" * 201):
        problem = looked_at.post("/v1/vms/db/evict", Idempotency_Key=key).problem
        assert (problem["status"], problem["field"]) == (422, "Idempotency-Key")


# ---- The story of an event ----


def test_the_history_says_when_an_event_was_held_and_who_let_it_go():
    """Also while it is held; and its operation names the node for which it waits."""
    clock = ManualClock()
    with serving(clock=clock) as served:
        served.post("/v1/endpoints/node-1/join", {})
        made = served.post("/v1/vms/db/restart").json
        (event,), (operation,) = made["events"], made["operations"]

        def story():
            history = served.get(f"/v1/events/{event['id']}/history").json
            return [(step["what"], step["text"]) for step in history["steps"]][1:]

        assert story() == []
        clock.advance(seconds=event["notice_seconds"] + 1)
        held = ("EventHeld", "held: not confirmed by node-1")
        assert story() == [held]
        assert served.get(f"/v1/operations/{operation}").json["unconfirmed"] == ["node-1"]
        assert served.post(f"/v1/events/{event['id']}/release").status == 202
        assert story()[:2] == [held, ("EventConfirmed", "released by operator")]
        assert served.get(f"/v1/operations/{operation}").json["unconfirmed"] == []


def test_the_history_of_an_event_in_words(served):
    """Announced, seen, approved, started, impact, gone."""
    event = restarted(served)
    served.look("web-1")
    served.inside(served.run.serving.report())
    served.post(f"/v1/events/{event}/approve")
    history = served.get(f"/v1/events/{event.lower()}/history").json
    texts = [step["text"] for step in history["steps"]]
    assert texts[0].startswith("announced: Reboot of web-0, ")
    assert "s of notice promised" in texts[0]
    assert texts[1:4] == ["first seen by web-1", "approved by operator", "started at once"]
    assert texts[4] == "reboot of web-0 begun"
    revisions = [step["revision"] for step in history["steps"]]
    assert revisions == sorted(revisions)
    assert history["event"]["id"] == event
    assert history["event"]["never_seen"] == ["web-0"]


def test_an_event_long_gone_is_still_told_of():
    """A day later the fleet has forgotten it, and the journal has not."""
    clock = ManualClock()
    with serving(clock=clock) as served:
        event = restarted(served)
        served.post(f"/v1/events/{event}/cancel")
        clock.advance(days=2)
        served.inside(served.run.conductor.tick())
        assert served.get("/v1/events").json["items"] == []
        assert served.get(f"/v1/events/{event}").json["status"] == "Canceled"
        history = served.get(f"/v1/events/{event}/history").json
        assert history["steps"][-1]["text"] == "gone: Canceled (canceled by operator)"
        assert served.post(f"/v1/events/{event}/approve").problem["status"] == 404
        assert served.get(f"/v1/events/{uuid4()}/history").problem["status"] == 404


def test_instants_are_shown_in_utc(served):
    """With a Z, whatever they were asked in."""
    body = {"not_before": "2026-01-01T03:00:00+01:00"}
    event = served.post("/v1/vms/db/restart", body).json["events"][0]
    assert event["not_before"] == "2026-01-01T02:00:00Z"
    assert datetime.fromisoformat(event["announced_at"]).tzinfo == UTC
