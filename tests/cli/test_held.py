"""Events that wait for a node's endpoint: who is told of them, and how one lets them go."""

from datetime import UTC, datetime
from urllib.request import Request, urlopen

from fairnotice.cli.reports import in_a_word


def joined(service, node):
    """Have a node's endpoint join that shows nothing."""
    target = f"{service.url}/v1/endpoints/{node}/join"
    with urlopen(Request(target, data=b"{}", method="POST")) as answer:  # noqa: S310 - our service
        assert answer.status == 200


def test_an_operator_sees_for_whom_an_event_waits_and_lets_it_go(service, fairnotice):
    """List, show and node show name the endpoint; release and forget-endpoint end the wait."""
    joined(service, "node-0")
    (event,) = fairnotice("vm", "restart", "web-0", "--json").json["events"]
    listed = fairnotice("event", "list")
    shown = fairnotice("event", "show", event["id"])
    node = fairnotice("node", "show", "node-0")
    released = fairnotice("event", "release", event["id"][:6])
    after = fairnotice("event", "show", event["id"], "--json").json

    assert "1 event not confirmed by node-0" in listed.err
    assert "not confirmed by" in shown.out
    assert "does not follow" in node.out
    assert "has not confirmed 1 event" in node.out
    assert "released" in released.out
    assert after["unconfirmed"] == []
    assert fairnotice("node", "forget-endpoint", "node-0").code == 0
    assert fairnotice("node", "show", "node-0", "--json").json["endpoint"] is False
    assert fairnotice("node", "forget-endpoint", "node-0").code == 3


def test_the_list_of_nodes_says_which_endpoints_report(service, fairnotice):
    """One has reported, one was silent too long; the others have none."""
    joined(service, "node-0")
    lines = {line.split()[0]: line for line in fairnotice("node", "list").out.splitlines()[1:]}
    late = in_a_word({"heard_at": "2026-01-01T00:00:00Z"}, datetime(2026, 1, 1, 0, 2, tzinfo=UTC))

    assert " follows " in lines["node-0"]
    assert " follows " not in lines["node-1"]
    assert late == "silent"
    assert in_a_word({"heard_at": None}, datetime(2026, 1, 1, tzinfo=UTC)) == "not heard yet"
