"""Ten endpoints in network namespaces, links cut and endpoints killed at random.

    node-0 ── veth ──┐
    …                ├ bridge, 10.77.0.1: the control plane
    node-9 ── veth ──┘      169.254.169.254 and the VMs' addresses are on each node's loopback

ENDPOINTS_SECONDS makes it longer, ENDPOINTS_SEED another one.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.endpoint.ten_nodes import CENTER_ADDRESS, VMS_PER_NODE, vm_address
from tests.house import ROOT

NODES = 10
SECONDS = float(os.environ.get("ENDPOINTS_SECONDS", "4"))
SEED = int(os.environ.get("ENDPOINTS_SEED", "8"))
LIMIT_SECONDS = 90 + SECONDS
IN_CI = bool(os.environ.get("CI"))

pytestmark = pytest.mark.skipif(
    not IN_CI and (os.geteuid() != 0 or shutil.which("ip") is None),
    reason="needs root and ip to make network namespaces",
)


def batch(lines, namespace=None):
    """Many lines of `ip` in one go."""
    where = [] if namespace is None else ["-n", namespace]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(  # noqa: S603 - our own lines
        ["ip", *where, "-batch", "-"],  # noqa: S607
        input=text,
        text=True,
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def namespaces():
    """The control plane's, and those of the nodes; names are this process's own."""
    mark = f"fn{os.getpid()}"
    center, nodes = f"{mark}-center", [f"{mark}-{number}" for number in range(NODES)]
    try:
        batch([f"netns add {name}" for name in (center, *nodes)])
        inside = ["link set lo up", "link add br0 type bridge", "link set br0 up"]
        inside.append(f"addr add {CENTER_ADDRESS}/16 dev br0")
        for number, node in enumerate(nodes):
            inside.append(f"link add v{number} type veth peer name eth0 netns {node}")
            inside += [f"link set v{number} master br0", f"link set v{number} up"]
        batch(inside, center)
        addresses = [vm_address(number) for number in range(NODES * VMS_PER_NODE)]
        for number, node in enumerate(nodes):
            lines = ["link set lo up", "addr add 169.254.169.254/32 dev lo"]
            lines += [f"addr add {address}/32 dev lo" for address in addresses]
            lines += [f"addr add 10.77.1.{number + 1}/16 dev eth0", "link set eth0 up"]
            batch(lines, node)
        yield center, nodes
    finally:
        for name in (center, *nodes):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)  # noqa: S603, S607


def test_ten_endpoints_with_links_that_are_cut_and_mended(namespaces, tmp_path):
    """Nobody sees another's scope, nothing starts too early, no document goes back.

    All that was seen is known at last, also what those saw who are gone.
    """
    center, nodes = namespaces
    command = ["ip", "netns", "exec", center, sys.executable, "-m", "tests.endpoint.ten_nodes"]
    command += [str(SEED), str(SECONDS), str(tmp_path), *nodes]
    done = subprocess.run(  # noqa: S603 - our own program
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    events = {event["id"]: event for event in told["events"]}
    judged = f"seed {SEED}: {told['deeds']}"

    # It was worth the while: cuts, kills, events, sightings, and an approval that was taken.
    assert told["joined"] == sorted(nodes), judged
    deeds = told["deeds"]
    assert min(deeds["cut"], deeds["killed"], len(events), len(told["told"])) > 2, judged
    assert told["approved"], judged
    assert told["gone"], judged
    for vm, event, resources in told["told"]:
        assert {told["scopes"][name] for name in resources} <= {told["scopes"][vm]}, judged
        assert events[event]["scope"] == told["scopes"][vm], judged
    newest = {}
    for node, vm, incarnation in told["incarnations"]:
        assert incarnation >= newest.get((node, vm), 0), (judged, node, vm)
        newest[node, vm] = incarnation
    for event in events.values():
        assert not event["scheduled"], (judged, event)
        if event["started_at"] is not None and event["approval"] is None:
            assert event["started_at"] >= event["not_before"], (judged, event)
            assert event["unconfirmed"] == [], (judged, event)
    unreported = {(vm, event) for vm, event, _ in told["told"] if vm not in events[event]["seen"]}
    assert unreported == set(), judged
    # A node that was cut off shows for a moment what has started meanwhile: approved too late.
    lost = [
        event
        for _, name, at in told["approved"]
        if (event := events[name])["approval"] is None
        and at < (event["started_at"] or event["gone_at"])
    ]
    assert lost == [], judged
