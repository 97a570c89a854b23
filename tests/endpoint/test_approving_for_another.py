"""Nobody approves another's event: not even by being gone when it is looked who he is."""

import json
import sys
import threading

import pytest

from tests.endpoint.bridging import (
    ADDRESSES,
    CLASSIC,
    EVENTS_URL,
    MACS,
    METADATA,
    bridged_node,
    needs_a_bridge,
)
from tests.endpoint.frames import APPROVE
from tests.house import ROOT
from tests.waiting import until

pytestmark = needs_a_bridge

# How often. More than half of them came through when only the tables were asked.
ATTEMPTS = {"hardware": 4, "patient": 2, "address": 3}
NODE_MAC = "52:54:00:00:00:01"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with an endpoint that checks, and without a packet filter."""
    with bridged_node(tmp_path_factory.mktemp("approving")) as node:
        node.on_node(f"ip addr add {METADATA}/32 dev br0")
        node.on_node(f"ip addr add {CLASSIC}/32 dev br0")
        node.control_plane()
        node.endpoint()
        for letter in node.hosts:
            node.answered(letter)
        yield node


def announced(node, letter):
    """The one event that a host is shown."""
    shown = node.on(letter, f"curl -s -m 2 -H Metadata:true {EVENTS_URL.format(METADATA)}")
    events = json.loads(shown or "{}").get("Events")
    return events[0] if events else None


def approves(node, letter, event):
    """A host approves; the status of the answer."""
    body = json.dumps({"StartRequests": [{"EventId": event}]})
    words = ["curl", "-s", "-m", "2", "-o", "/dev/null", "-w", "%{http_code}", "-d", body]
    words += ["-H", "Metadata: true", EVENTS_URL.format(METADATA)]
    return int(node.on(letter, words, check=False).stdout or 0)


def test_an_approval_of_somebody_who_is_gone_is_nobodys(node):
    """He was in the tables when he asked, and the VM itself is when they are looked at."""
    node.on_node([sys.executable, "-m", "fairnotice", "vm", "restart", "a"], cwd=ROOT)
    event = until(lambda: announced(node, "a"), "an event")["EventId"]
    liar = (MACS["b"], MACS["a"], NODE_MAC, ADDRESSES["a"], ADDRESSES["b"], METADATA)
    for way, attempts in ATTEMPTS.items():
        for _ in range(attempts):
            # Nobody is disputed any more, and a has been heard from.
            node.on("a", "busybox ping -c 1 -W 1 10.79.0.1")
            threading.Event().wait(1.1)
            said = node.on("b", [sys.executable, "-c", APPROVE, way, event, *liar], check=False)
            assert (said.stdout, announced(node, "c")) == ("sent\n", None), (way, said.stderr)
            found = until(lambda: announced(node, "a"), "the event")
            assert found["EventStatus"] == "Scheduled", way

    # The VM itself is believed, a moment after the last lie.
    assert until(lambda: approves(node, "a", event) == 200, "an approval", seconds=5)
    assert until(lambda: announced(node, "a")["EventStatus"] == "Started", "the start")


def test_whose_hardware_the_file_does_not_say_approves_a_moment_later(node):
    """It is known from the first check on; until then nothing of it was listened for."""
    places = json.loads(node.vms.read_text())
    del places["vms"]["c"][0]["mac"]
    new = node.vms.with_suffix(".new")
    new.write_text(json.dumps(places))
    new.replace(node.vms)
    node.on_node([sys.executable, "-m", "fairnotice", "vm", "restart", "c"], cwd=ROOT)
    event = until(lambda: announced(node, "c"), "an event")["EventId"]
    assert approves(node, "c", event) == 403
    assert until(lambda: approves(node, "c", event) == 200, "an approval", seconds=5)
