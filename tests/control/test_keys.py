"""Idempotency keys mean the same before and after a restart of the process, as far as is said."""

import pytest

from fairnotice.stores.opening import open_store
from fairnotice.testing.manual_clock import ManualClock
from tests.control.calling import restarted, serving

ONE = ("/v1/vms/web-0/restart", None)
CORDON = ("/v1/nodes/node-0/cordon", None)
THE_SAME = ("/v1/vms:restart", {"vms": ["web-0"]})


@pytest.fixture
def served():
    """A service of its own, whose time stands still."""
    with serving(clock=ManualClock()) as served:
        yield served


def in_two_lives(tmp_path, first, second):
    """What is answered to the second of two requests, the process having restarted in between."""
    store = f"sqlite:{tmp_path}/fairnotice.db"
    with serving(open_store(store), clock=ManualClock()) as served:
        assert served.post(*first, Idempotency_Key="k").status == 202
    with serving(open_store(store), clock=ManualClock()) as served:
        return served.post(*second, Idempotency_Key="k")


def in_one_life(_, first, second):
    """The same without a restart."""
    with serving(clock=ManualClock()) as served:
        assert served.post(*first, Idempotency_Key="k").status == 202
        return served.post(*second, Idempotency_Key="k")


@pytest.mark.parametrize("lives", [in_one_life, in_two_lives])
@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (ONE, ONE, 202),
        (ONE, THE_SAME, 202),
        (ONE, ("/v1/vms/web-1/restart", None), 409),
        (ONE, ("/v1/nodes/node-0/cordon", None), 409),
        (ONE, ("/v1/faults", {"fault": "slow", "vm": "db"}), 409),
        (CORDON, CORDON, 202),
        (CORDON, ONE, 409),
        (CORDON, ("/v1/nodes/node-0/uncordon", None), 409),
    ],
)
def test_rule_19_what_the_law_remembers_does_not_depend_on_the_process(
    tmp_path, lives, first, second, status
):
    """The law knows the key, at whatever address and in whichever life it comes again."""
    assert lives(tmp_path, first, second).status == status


def test_a_late_repeat_does_not_undo_what_was_asked_for_in_between(tmp_path):
    """Also where another process has taken over since."""
    store = f"sqlite:{tmp_path}/fairnotice.db"
    with serving(open_store(store), clock=ManualClock()) as served:
        first = served.post(*CORDON, Idempotency_Key="k").json
        served.post("/v1/nodes/node-0/uncordon")
    with serving(open_store(store), clock=ManualClock()) as served:
        assert served.post(*CORDON, Idempotency_Key="k").json == first
        assert not served.get("/v1/nodes/node-0").json["cordoned"]


def test_a_key_of_one_event_does_not_answer_for_another(served):
    """The body is the same, nothing at all; the address is not."""
    first, second = restarted(served, "web-0"), restarted(served, "db")
    assert served.post(f"/v1/events/{first}/approve", Idempotency_Key="k").status == 202
    problem = served.post(f"/v1/events/{second}/approve", Idempotency_Key="k").problem
    assert (problem["status"], problem["rule"]) == (409, 19)
    assert served.get(f"/v1/events/{second}").json["approvals"] == []


def test_what_changes_nothing_is_asked_anew_whatever_the_key(served):
    """A difference and a dry run are of now; the key is still free for the deed."""
    fleet = served.get("/v1/fleet").json
    body = {"nodes": ["node-4"], "dry_run": True}
    assert served.post("/v1/rollouts", body, Idempotency_Key="k").status == 200
    for _ in range(2):
        fleet["node"].append({"name": f"node-{len(fleet['node'])}"})
        found = served.post("/v1/fleet/difference", fleet, Idempotency_Key="k")
        assert len(found.json["added"]) == len(fleet["node"]) - 6
    assert served.post("/v1/rollouts", {"nodes": ["node-4"]}, Idempotency_Key="k").status == 202
