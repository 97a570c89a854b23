"""What `doctor` says of a control plane that is served for real: with tokens and endpoints."""

import asyncio

from fairnotice.engine.commands import ReportReachable
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from tests.cli.serves import FLEET, PLAIN, serves
from tests.cli.typed import typed
from tests.control.bearers import Bearers
from tests.control.calling import serving


def diagnosed(url, **env):
    """What was found: states and sentences by what was looked at; and the exit code."""
    ended = typed("doctor", "--json", url=url, env={"FAIRNOTICE_STORE": "memory:", **env})
    found = {}
    for one in ended.json:
        found.setdefault(one["what"], []).append((one["state"], one["sentence"]))
    return found, ended.code


def test_one_that_answers_no_vm_itself_is_well_once_its_nodes_do(tmp_path):
    """Nothing is wrong with that by itself, and faults are not asked for; a bare node is."""
    with serves(tmp_path, PLAIN.partition("[metadata]")[0]) as it:
        url = "http://{}:{}".format(*it.control)
        it.call("PUT", "/v1/fleet", FLEET)
        bare, failed = diagnosed(url)
        it.call("POST", "/v1/endpoints/n/join", {})
        joined, well = diagnosed(url)

    assert failed == 1
    assert bare["endpoints"][0][1].startswith("Nobody answers the VMs on n: no endpoint has joined")
    assert well == 0
    assert joined["metadata"] == [("fine", "VMs are answered by the endpoints of their nodes.")]
    assert joined["endpoints"] == [("fine", "Those of 1 of 1 nodes report.")]
    assert "faults" not in joined


def test_with_a_limited_token_only_what_it_may_see_is_looked_at():
    """And neither the store nor the ports of an `up` that nobody runs here."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        url = f"http://{served.run.control}"
        limited, code = diagnosed(url, FAIRNOTICE_TOKEN=asking.texts["limited"])
        admin, _ = diagnosed(url, FAIRNOTICE_TOKEN=asking.texts["admin"])

    assert code == 0
    assert limited["fleet"][0][0] == "fine"
    assert limited["token"][0][0] == "note"
    assert not {"store", "ports", "metadata", "faults"} & set(limited)
    assert admin["metadata"][0][1].startswith("It answers VMs at 127.0.0.1:")
    assert admin["faults"] == [("fine", "None is on.")]
    assert "store" not in admin


def test_a_silent_endpoint_and_what_waits_for_it_are_found():
    """By the clock here it reported long ago, and the notice is over."""
    with serving(clock=ManualClock()) as served:
        served.post("/v1/endpoints/node-1/join", {})
        (event,) = served.post("/v1/vms/db/restart").json["events"]
        found, code = diagnosed(f"http://{served.run.control}")

    assert code == 1
    assert found["endpoints"][0][1].startswith("Nothing is heard of the endpoint of node-1")
    ((state, sentence),) = found["events"]
    assert state == "wrong"
    assert "Reboot of db is held: not confirmed by node-1." in sentence
    assert sentence.endswith(f"fairnotice event release {event['id'][:8]}")


def test_nodes_that_are_away_are_found_each_with_what_to_do_about_it():
    """One is unreachable and one has failed; a third is cordoned, which is nobody's fault."""
    with serving() as served:
        url = f"http://{served.run.control}"
        fresh, _ = diagnosed(url)
        away = served.run.service.conductor.submit(ReportReachable(node="node-1", reachable=False))
        asyncio.run_coroutine_threadsafe(away, served.loop).result(10)
        served.post("/v1/nodes/node-2/fail", {})
        served.post("/v1/nodes/node-3/cordon")
        found, code = diagnosed(url)

    assert fresh["nodes"] == [("fine", "All 6 are in service.")]
    assert code == 1
    (unreachable, failed, cordoned) = found["nodes"]
    assert unreachable[0] == failed[0] == "wrong"
    assert unreachable[1].startswith("node-1 cannot be reached")
    assert unreachable[1].endswith("switched off: fairnotice node fail node-1")
    assert failed[1].endswith("Once it is repaired: fairnotice node uncordon node-2")
    assert cordoned == ("note", "Nothing is put on node-3: cordoned.")


def test_of_many_nodes_that_are_away_five_are_named():
    """A whole rack: what is to be done is the same for each."""
    with serving() as served:
        for number in range(6):
            served.post(f"/v1/nodes/node-{number}/fail", {})
        found, _ = diagnosed(f"http://{served.run.control}")

    assert len(found["nodes"]) == 6
    assert found["nodes"][-1] == ("wrong", "1 more are like that: fairnotice node list")


def test_the_extras_that_only_some_need_are_looked_at_and_never_wrong():
    """Whoever has no such hypervisors, or no PostgreSQL, needs none of them."""
    found, _ = diagnosed("http://127.0.0.1:1")
    for extra in ("postgres", "libvirt"):
        (state,) = [state for state, sentence in found["extras"] if extra in sentence]
        assert state in ("fine", "note")
