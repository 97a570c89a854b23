"""Faults over the native API: set, seen on the wire and in the metrics, listed, cleared."""

import http.client
from datetime import timedelta

import pytest

from fairnotice.control.service import Service
from fairnotice.errors import Unavailable
from fairnotice.metadata.faults import FaultKind
from fairnotice.testing.manual_clock import ManualClock
from tests.control.calling import serving


@pytest.fixture
def served():
    """A service of its own, whose time stands still."""
    with serving(clock=ManualClock()) as served:
        yield served


def ids(served):
    """What is on."""
    return [fault["id"] for fault in served.get("/v1/faults").json["items"]]


def status_for(served, vm):
    """What a poll of this VM is answered."""
    connection = http.client.HTTPConnection(*served.run.metadata, timeout=10)
    target = f"/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
    connection.request("GET", target, headers={"Metadata": "true"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_fault_is_set_for_one_vm_listed_and_cleared(served):
    """On the wire of that VM alone, and in the metrics for as long as it is on."""
    assert served.get("/v1/faults").json["items"] == []
    answer = served.post("/v1/faults", {"fault": "gone", "vm": "web-0", "for_seconds": 70})
    since = ManualClock().wall()

    assert (answer.status, answer.json) == (
        200,
        {
            "id": "gone@web-0",
            "fault": "gone",
            "vm": "web-0",
            "seconds": None,
            "since": since.isoformat().replace("+00:00", "Z"),
            "ends_at": (since + timedelta(seconds=70)).isoformat().replace("+00:00", "Z"),
        },
    )
    assert [status_for(served, vm) for vm in ("web-0", "web-1")] == [410, 200]
    assert ids(served) == ["gone@web-0"]
    gauge = b'fairnotice_metadata_faults{fault="gone",vm="web-0"} 1\n'
    assert gauge in served.get("/metrics").body
    cleared = served.call("DELETE", "/v1/faults/gone@web-0")
    assert (cleared.status, cleared.json) == (200, {"cleared": ["gone@web-0"]})
    assert (ids(served), status_for(served, "web-0")) == ([], 200)
    assert gauge not in served.get("/metrics").body


def test_what_there_is_says_what_it_does_and_what_it_did(served):
    """Every kind with a sentence, its seconds and how many answers it has spoiled."""
    served.post("/v1/faults", {"fault": "error"})
    status_for(served, "db")
    kinds = {one["fault"]: one for one in served.get("/v1/faults").json["kinds"]}

    assert list(kinds) == list(FaultKind)
    assert kinds["error"] == {
        "fault": "error",
        "sentence": "Every request is answered 500.",
        "seconds": None,
        "seconds_mean": "",
        "spoiled": 1,
    }
    assert kinds["slow"]["seconds"] == 10.0


def test_all_are_cleared_at_once_and_lists_come_in_pages(served):
    """In the order in which they were set."""
    for fault in ("slow", "error", "garbage"):
        assert served.post("/v1/faults", {"fault": fault, "vm": "db"}).status == 200
    first = served.get("/v1/faults?limit=2").json
    second = served.get(f"/v1/faults?limit=2&after={first['next']}").json

    assert [one["fault"] for one in first["items"] + second["items"]] == [
        "slow",
        "error",
        "garbage",
    ]
    assert second["next"] is None
    assert "begin anew" in served.get("/v1/faults?after=gone").problem["detail"]
    assert served.call("DELETE", "/v1/faults").json["cleared"] == [
        "slow@db",
        "error@db",
        "garbage@db",
    ]
    assert served.call("DELETE", "/v1/faults").json == {"cleared": []}


@pytest.mark.parametrize(
    ("body", "status", "said", "nearest"),
    [
        ({"fault": "slow", "vm": "web-9"}, 404, "There is no VM web-9.", "web-0"),
        ({"fault": "slwo"}, 422, "'slwo' is none of", "slow"),
        ({"fault": "slow", "second": 5}, 422, "Nobody knows `second`.", "seconds"),
        ({"fault": "slow", "seconds": -1}, 422, "It must be 0 or more.", None),
        ({"fault": "error", "seconds": 5}, 422, "mean nothing to error", None),
        ({}, 422, "`fault` is missing.", None),
    ],
)
def test_what_cannot_be_set_is_refused_with_what_was_meant(served, body, status, said, nearest):
    """And nothing is on."""
    answer = served.post("/v1/faults", body)

    assert answer.status == status
    assert said in answer.problem["detail"]
    assert nearest is None or nearest in answer.problem["nearest"]
    assert ids(served) == []


def test_a_fault_that_is_not_on_is_not_found(served):
    """Those that are on are named."""
    served.post("/v1/faults", {"fault": "slow"})
    answer = served.call("DELETE", "/v1/faults/slow@db")

    assert (answer.status, answer.problem["nearest"]) == (404, ["slow"])
    assert ids(served) == ["slow"]


def test_without_an_endpoint_there_is_nothing_to_misbehave(served):
    """A control plane whose endpoints are elsewhere says so."""
    service = Service(served.run.conductor)

    with pytest.raises(Unavailable, match="no metadata endpoint"):
        service.faults_on()
