"""How the native API says no, asked over HTTP: all that can be wrong, always as a problem."""

import http.client
import json
import socket

import pytest

from fairnotice.control.api import BODY_BYTES_MAX
from fairnotice.control.routes import ROUTES
from fairnotice.testing.manual_clock import ManualClock
from tests.conductor.orchestra import Failing
from tests.control.calling import in_minutes, restarted, serving

NOWHERE = "00000000-0000-0000-0000-000000000000"


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


# ---- Names and bodies ----


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("vms/web-9", "web-0"),
        ("vms/WEB-0", "web-0"),
        ("nodes/node-", "node-0"),
        ("scopes/availability-set:wbe", "availability-set:web"),
        ("scale-sets/bacth", "batch"),
    ],
)
def test_an_unknown_name_is_404_with_the_nearest(looked_at, path, nearest):
    """For people in the sentence, for programs in a list."""
    problem = looked_at.get(f"/v1/{path}").problem
    assert (problem["status"], problem["type"]) == (404, "urn:fairnotice:problem:not-found")
    assert nearest in problem["nearest"]
    assert f"Did you mean {problem['nearest'][0]}" in problem["detail"]


def test_every_address_with_a_name_says_404(looked_at):
    """Nothing is done for a name that nobody has."""
    bodies = {
        "scale-in": {"count": 1},
        "/v1/endpoints/{name}/approve": {"vm": "db", "events": [NOWHERE]},
        "enable": {"scopes": ["vm:db"]},
        "identity": {"vm": "db", "resource": "https://localhost/"},
        "postpone": {"not_before": in_minutes(60)},
        "/v1/scale-sets/{name}": {"terminate_notice_minutes": 5},
        "/v1/scopes/{name}": {"automatically_approve": []},
    }
    for route in ROUTES:
        if "{name}" not in route.path:
            continue
        body = bodies.get(route.path) or bodies.get(route.path.rpartition("/")[2])
        body = body if route.takes else None
        for name in (NOWHERE, "%F0%9F%90%A2", "%00", "%ff", "a%20b", "x" * 3000):
            answer = looked_at.call(route.method, route.path.replace("{name}", name), body)
            assert answer.problem["status"] == 404, route


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/vms/db/restart", {"not_befroe": in_minutes(60)}, "not_befroe"),
        ("/v1/vms/db/restart", {"not_before": "2026-01-01T02:00:00"}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": "tomorrow"}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": 5}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": "0001-01-01T00:00:00+14:00"}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": "9999-12-31T23:59:59-14:00"}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": "9999-12-31T23:59:59.9Z"}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": in_minutes(-60)}, "not_before"),
        ("/v1/vms/db/restart", {"not_before": in_minutes(0)}, "not_before"),
        ("/v1/vms/db/stop", {"now": True}, "now"),
        ("/v1/vms/db/restart", [], None),
        ("/v1/vms/db/restart", "now", None),
        ("/v1/nodes/node-0/maintain", {"impact": "boom"}, "impact"),
        ("/v1/nodes/node-0/maintain", {"impact": None}, "impact"),
        ("/v1/nodes/node-0/maintain", {"duration_seconds": -1}, "duration_seconds"),
        ("/v1/nodes/node-0/maintain", {"duration_seconds": 3601}, "duration_seconds"),
        ("/v1/nodes/node-0/maintain", {"duration_seconds": 10**30}, "duration_seconds"),
        ("/v1/nodes/node-0/maintain", {"duration_seconds": 1.5}, "duration_seconds"),
        ("/v1/nodes/node-0/maintain", {"duration_seconds": True}, "duration_seconds"),
        ("/v1/nodes/node-0/maintain", {"not_before": in_minutes(-1)}, "not_before"),
        ("/v1/nodes/node-0/migrate", {"force": 1}, "force"),
        ("/v1/nodes/node-0/predict-failure", {"risk": "medum"}, "risk"),
        ("/v1/scale-sets/batch/scale-in", {}, "count"),
        ("/v1/scale-sets/batch/scale-in", None, "count"),
        ("/v1/scale-sets/batch/scale-in", {"count": 0}, "count"),
        ("/v1/scale-sets/batch/scale-in", {"count": 5}, "count"),
        ("/v1/scale-sets/batch/scale-in", {"count": 2**63}, "count"),
        ("/v1/rollouts", {}, "nodes"),
        ("/v1/rollouts", {"nodes": []}, "nodes"),
        ("/v1/rollouts", {"nodes": [1]}, "nodes[0]"),
        ("/v1/rollouts", {"nodes": ["node-0"], "impact": "x"}, "impact"),
        ("/v1/rollouts", {"nodes": ["node-0"], "failure_budget": 10**20}, "failure_budget"),
        ("/v1/rollouts", {"nodes": ["node-0"], "recovery_seconds": -1}, "recovery_seconds"),
        (
            "/v1/rollouts",
            {
                "nodes": ["node-0"],
                "windows": [{"weekdays": [7], "start_minute": 0, "length_minutes": 1}],
            },
            "windows[0].weekdays[0]",
        ),
        (
            "/v1/rollouts",
            {
                "nodes": ["node-0"],
                "windows": [
                    {"weekdays": [0], "start_minute": 0, "length_minutes": 1},
                    {"weekdays": [], "start_minute": 0, "length_minutes": 1},
                ],
            },
            "windows[1].weekdays",
        ),
        (
            "/v1/rollouts",
            {"nodes": ["node-0"], "impact": "reboot", "duration_seconds": 5},
            "duration_seconds",
        ),
        ("/v1/nodes/node-0/predict-failure", {}, "not_before"),
        (
            "/v1/rollouts",
            {"nodes": ["node-0"], "windows": [{"weekdays": [0], "start_minute": 0}]},
            "windows[0].length_minutes",
        ),
        ("/v1/fleet/difference", {"vm": [{"nmae": "x"}]}, "vm[0].nmae"),
        (
            "/v1/fleet/difference",
            {"vm": [{"name": "x", "cloud_service": "s", "automatically_approve": ["Reboot"]}]},
            "vm[0].automatically_approve",
        ),
        ("/v1/fleet/difference", {"node": [{"name": "x", "capacity": 0}]}, "node[0].capacity"),
        ("/v1/fleet/difference", {"vm": [{"name": "x", "network": "?"}]}, "vm[0].network"),
    ],
)
def test_a_body_that_does_not_fit_is_422_with_the_field(looked_at, path, body, field):
    """And nothing has changed."""
    revision = looked_at.run.conductor.fleet.revision
    problem = looked_at.post(path, body).problem
    assert (problem["status"], problem["field"]) == (422, field), problem
    assert looked_at.run.conductor.fleet.revision == revision


@pytest.mark.parametrize(
    ("table", "number", "row", "field"),
    [
        ("vm", 0, {"node": "node-99"}, "node"),
        ("vm", 12, {"automatically_approve": ["Terminate"]}, "automatically_approve"),
        ("vm", 1, {"name": "web-0"}, "name"),
        ("vm", 3, {"name": "a/b"}, "name"),
        ("vm", 0, {"scale_set": "batch"}, "scale_set"),
        ("vm", 0, {"availability_set": "nobody"}, "availability_set"),
        ("vm", 3, {"placement_group": 9}, "placement_group"),
        ("vm", 12, {"update_domain": 1}, "update_domain"),
        ("vm", 2, {"addresses": ["10.9.9.9", "10.9.9.9"]}, "addresses"),
        ("scale_set", 1, {"terminate_notice_minutes": 4}, "terminate_notice_minutes"),
        ("availability_set", 0, {"automatically_approve": ["Freeze"]}, "automatically_approve"),
    ],
)
def test_a_fleet_that_cannot_be_names_the_field_of_the_row(looked_at, table, number, row, field):
    """In a list of thousands of VMs, which one and what of it; and nothing has changed."""
    revision = looked_at.run.conductor.fleet.revision
    fleet = looked_at.get("/v1/fleet").json
    fleet[table][number] |= row
    problem = looked_at.call("PUT", "/v1/fleet", fleet).problem
    assert (problem["status"], problem["field"]) == (422, f"{table}[{number}].{field}"), problem
    assert looked_at.run.conductor.fleet.revision == revision


def test_what_was_probably_meant_is_offered(looked_at):
    """For a field and for a word."""
    problem = looked_at.post("/v1/vms/db/restart", {"not_befroe": None}).problem
    assert problem["nearest"] == ["not_before"]
    problem = looked_at.post("/v1/nodes/node-0/predict-failure", {"risk": "medum"}).problem
    assert (problem["nearest"], "low, medium, high" in problem["detail"]) == (["medium"], True)
    body = {"vm": [{"name": "x", "network": "VNET"}]}
    assert looked_at.post("/v1/fleet/difference", body).problem["nearest"] == ["vnet"]


@pytest.mark.parametrize("minutes", [4, 16, 0, -5, 10**30, "5", 7.5])
def test_a_terminate_notice_is_5_to_15_minutes(looked_at, minutes):
    """Rule 2."""
    body = {"terminate_notice_minutes": minutes}
    problem = looked_at.call("PATCH", "/v1/scale-sets/batch", body).problem
    assert (problem["status"], problem["field"]) == (422, "terminate_notice_minutes")


def test_only_what_a_user_asks_for_is_approved_by_policy(looked_at):
    """Rule 18, in the law's words."""
    body = {"automatically_approve": ["Freeze"]}
    problem = looked_at.call("PATCH", "/v1/scopes/vm:db", body).problem
    assert (problem["status"], problem["rule"]) == (422, 18)
    assert problem["field"] == "automatically_approve"
    body = {"automatically_approve": ["reboot"]}
    problem = looked_at.call("PATCH", "/v1/scopes/vm:db", body).problem
    assert (problem["field"], problem["nearest"]) == ("automatically_approve[0]", ["Reboot"])


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"not json",
        b'{"not_before": }',
        b'{"a": "\xff"}',
        b'{"not_before": "\xff\xfe"}',
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b'{"x": NaN}',
        b'{"\\ud800": 1}',
        b"\x00",
        b'{"not_before": ' + b"[" * 100_000,
    ],
)
def test_a_body_that_is_not_json_is_400(looked_at, body):
    """Or 422, where it went wrong before that was known."""
    problem = looked_at.post("/v1/vms/db/restart", body).problem
    assert problem["status"] in (400, 422)
    if not body.startswith((b'{"x"', b'{"a"', b'{"not_before": [', b'{"not_before": "')):
        assert (problem["status"], problem["type"]) == (400, "urn:fairnotice:problem:not-json")


def test_text_that_is_no_text_is_400(looked_at):
    """Bytes that are not UTF-8, where a name should be."""
    for body in (b'{"nodes": ["\xff"]}', b'{"nodes": ["\xed\xa0\x80"]}', b'{"nodes": ["\\ud800"]}'):
        assert looked_at.post("/v1/rollouts", body).problem["status"] == 400


def test_a_body_that_is_too_large_is_413(looked_at):
    """Also where its length was not said before; and the connection may be used on."""
    large = b" " * (BODY_BYTES_MAX + 1)
    assert looked_at.post("/v1/vms/db/restart", large).problem["status"] == 413
    connection = looked_at.connection()
    pieces = (b" " * 65536 for _ in range(20))
    connection.request("POST", "/v1/vms/db/restart", pieces, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert looked_at.post("/v1/fleet/difference", large).status == 400


def test_a_refusal_is_409_with_the_rule_in_words(served):
    """It says why, what to do, and which event is in the way."""
    problem = served.post("/v1/vms/db/evict").problem
    assert (problem["status"], problem["rule"]) == (409, 20)
    assert problem["type"] == "urn:fairnotice:problem:conflict"
    assert problem["detail"] == (
        "db is a Regular VM and is never evicted. Evict Spot VMs only, or delete it."
    )
    event = restarted(served)
    body = {"not_before": in_minutes(-600)}
    problem = served.post(f"/v1/events/{event}/postpone", body).problem
    assert (problem["status"], problem["field"]) == (422, "not_before")
    served.post(f"/v1/events/{event}/approve")
    body = {"not_before": in_minutes(600)}
    problem = served.post(f"/v1/events/{event}/postpone", body).problem
    assert (problem["status"], problem["event"]) == (409, event)


def test_too_much_at_once_is_429(served):
    """Rule 17: so many of a user's requests may wait in a scope, however many VMs each names."""
    body = {"vms": ["web-0", "web-1"]}
    answers = [served.post("/v1/vms:restart", body) for _ in range(101)]
    assert answers[-2].status == 202
    assert answers[-1].problem["status"] == 429
    assert answers[-1].json["rule"] == 17
    assert "100 requests wait" in answers[-1].json["detail"]


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/v1/vms/", "/v1/vms/db/", "/v1/vms/a%2Fb", "/v1/nothing", "//v1/vms"],
)
def test_where_nothing_is_is_404_as_a_problem(looked_at, path):
    """No redirection, no plain text."""
    problem = looked_at.get(path).problem
    assert (problem["status"], problem["type"]) == (404, "urn:fairnotice:problem:no-address")
    assert looked_at.post(path).problem["status"] == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/vms", "GET, HEAD"),
        ("DELETE", "/v1/fleet", "GET, HEAD, PUT"),
        ("GET", "/v1/vms/db/restart", "POST"),
        ("OPTIONS", "/v1/scale-sets/batch", "GET, HEAD, PATCH"),
        ("TRACE", "/v1/rollouts", "GET, HEAD, POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PUT", "/v1/feed", "GET, HEAD"),
        ("POST", "/v1/openapi.json", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_taken_is_405_with_those_that_are(looked_at, method, path, allow):
    """As a problem too."""
    answer = looked_at.call(method, path)
    assert answer.problem["status"] == 405
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.com"},
        {"Host": "evil.com:8600"},
        {"Host": "evil.com@127.0.0.1"},
        {"Host": "localhost."},
        {"Host": ""},
        {"Origin": "http://evil.com"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_a_foreign_host_or_origin_is_403_everywhere(looked_at, headers):
    """Before anything else is looked at."""
    for method, path in (("GET", "/v1/vms"), ("POST", "/v1/x"), ("GET", "/healthz")):
        problem = looked_at.call(method, path, **headers).problem
        assert (problem["status"], problem["type"]) == (403, "urn:fairnotice:problem:foreign")


def test_our_own_page_may_ask(looked_at):
    """Its Origin is where it came from."""
    origin = f"http://{looked_at.run.control}"
    assert looked_at.get("/v1/vms", Origin=origin).status == 200


def exchange(served, sent):
    """What is answered to these bytes, as they are."""
    with socket.create_connection(served.run.control, timeout=5) as raw:
        raw.sendall(sent)
        response = http.client.HTTPResponse(raw)
        response.begin()
        return response.status


def test_bytes_that_no_client_would_send(looked_at):
    """No Host, two Hosts, bytes beyond ASCII in the path: none of it is our fault."""
    host = b"Host: localhost\r\n"
    assert exchange(looked_at, b"GET /v1/vms HTTP/1.1\r\n\r\n") == 403
    assert exchange(looked_at, b"GET /v1/vms HTTP/1.0\r\n\r\n") == 403
    assert exchange(looked_at, b"GET /v1/vms HTTP/1.1\r\n" + host * 2 + b"\r\n") in (400, 403)
    assert exchange(looked_at, b"GET /v1/vms/\xff HTTP/1.1\r\n" + host + b"\r\n") in (400, 404)
    assert exchange(looked_at, b"GET http://evil.com/v1/vms HTTP/1.1\r\n" + host + b"\r\n") < 500
    assert exchange(looked_at, b"GET * HTTP/1.1\r\n" + host + b"\r\n") < 500
    assert exchange(looked_at, b"BREW /v1/vms HTTP/1.1\r\n" + host + b"\r\n") in (400, 405)
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert exchange(looked_at, b"GET /v1/vms HTTP/1.1\r\n" + host + upgrade) == 200


def test_whoever_goes_away_in_the_middle_of_a_body_leaves_no_trace(looked_at, caplog):
    """It is not our fault, and not logged as one."""
    with socket.create_connection(looked_at.run.control, timeout=5) as raw:
        raw.sendall(b"PUT /v1/fleet HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
    assert looked_at.get("/healthz").status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# ---- Health ----


def test_health_while_all_is_well(looked_at):
    """The process lives, and commands are taken."""
    assert looked_at.get("/healthz").json == {"alive": True}
    ready = looked_at.get("/readyz").json
    assert (ready["ready"], ready["why"]) == (True, "")
    assert ready["metadata"] == str(looked_at.run.metadata)


def test_while_the_store_fails_nothing_is_accepted_and_reading_goes_on():
    """503, and when to come back; then it is as if nothing had been."""
    store = Failing()
    with serving(store) as served:
        store.broken = True
        answer = served.post("/v1/vms/db/restart", Idempotency_Key="k")
        assert answer.problem["status"] == 503
        assert "the disk is full" in answer.problem["detail"]
        assert int(answer.headers["retry-after"]) > 0
        assert served.get("/v1/events").json["items"] == []
        ready = served.get("/readyz")
        assert (ready.status, ready.json["ready"]) == (503, False)
        assert served.get("/healthz").status == 200
        store.broken = False
        assert served.post("/v1/vms/db/restart", Idempotency_Key="k").status == 202
        assert served.get("/readyz").status == 200


def test_a_fault_of_our_own_is_500_as_a_problem(served, monkeypatch):
    """With nothing of the inside in it."""
    monkeypatch.setattr(served.run.service, "vm", lambda name: 1 // 0)
    problem = served.get("/v1/vms/db").problem
    assert (problem["status"], problem["type"]) == (500, "urn:fairnotice:problem:internal")
    assert "division" not in json.dumps(problem)
