"""Two hosts in network namespaces of their own, an endpoint at 169.254.169.254:80 in a third.

    host a 10.77.0.2 ── veth ── 10.77.0.1 ┐
                                          ├ endpoint, 169.254.169.254 on its loopback
    host b 10.78.0.2 ── veth ── 10.78.0.1 ┘

Each host reaches 169.254.169.254 as a VM on Azure does, and the lines of Azure's documentation
are run there as they are written.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.house import ROOT
from tests.metadata.test_sockets import AZURE_GET, AZURE_POST

MISSING = [name for name in ("ip", "curl") if shutil.which(name) is None]
IN_CI = bool(os.environ.get("CI"))
LIMIT_SECONDS = 30

pytestmark = pytest.mark.skipif(
    not IN_CI and (os.geteuid() != 0 or bool(MISSING)),
    reason="needs root, ip and curl to make network namespaces",
)


def run(line, **more):
    """Run a command line; what it printed."""
    done = subprocess.run(  # noqa: S603 - our own lines
        shlex.split(line), check=True, capture_output=True, timeout=LIMIT_SECONDS, **more
    )
    return done.stdout


class Hosts:
    """The three namespaces; names are this process's own, so that tests may run side by side."""

    def __init__(self):
        self.center = f"fn-{os.getpid()}-m"
        self.names = {"a": f"fn-{os.getpid()}-a", "b": f"fn-{os.getpid()}-b"}

    def build(self):
        run(f"ip netns add {self.center}")
        run(f"ip -n {self.center} link set lo up")
        run(f"ip -n {self.center} addr add 169.254.169.254/32 dev lo")
        for (letter, name), net in zip(self.names.items(), ("10.77.0", "10.78.0"), strict=True):
            run(f"ip netns add {name}")
            inner = f"veth-{letter}"
            run(f"ip -n {self.center} link add {inner} type veth peer name eth0 netns {name}")
            run(f"ip -n {self.center} addr add {net}.1/24 dev {inner}")
            run(f"ip -n {self.center} link set {inner} up")
            run(f"ip -n {name} addr add {net}.2/24 dev eth0")
            run(f"ip -n {name} link set lo up")
            run(f"ip -n {name} link set eth0 up")
            run(f"ip -n {name} route add default via {net}.1")

    def remove(self):
        for name in (self.center, *self.names.values()):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)  # noqa: S603, S607

    def on(self, letter, line):
        """Run a line on a host, without this machine's proxies."""
        clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        return run(f"ip netns exec {self.names[letter]} {line}", env=clean)


@pytest.fixture(scope="module")
def hosts():
    """The hosts, and web-0 and db served to them."""
    hosts = Hosts()
    try:
        hosts.build()
        line = f"ip netns exec {hosts.center} {sys.executable} -m tests.metadata.served"
        line += " 169.254.169.254 80 web-0=10.77.0.2 db=10.78.0.2"
        with subprocess.Popen(  # noqa: S603
            shlex.split(line), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as served:
            assert served.stdout.readline() == "ready\n"
            yield hosts
            served.stdin.close()
            assert served.wait(LIMIT_SECONDS) == 0
    finally:
        hosts.remove()


def document(hosts, letter):
    """What a host reads by the documented line, as written."""
    return json.loads(hosts.on(letter, AZURE_GET))


def test_each_host_sees_its_own_scope_and_approves_its_own(hosts):
    """Reading and approving by the documented lines; the neighbour's event stays as it is."""
    for letter, vm in (("a", "web-0"), ("b", "db")) * 2:
        (shown,) = document(hosts, letter)["Events"]
        assert shown["Resources"] == [vm]

    foreign = document(hosts, "b")["Events"][0]["EventId"]
    line = AZURE_POST.replace("f020ba2e-3bc0-4c40-a10b-86575a9eabd5", foreign)
    assert "not found" in json.loads(hosts.on("a", line))["error"]
    own = document(hosts, "a")["Events"][0]["EventId"]
    line = AZURE_POST.replace("f020ba2e-3bc0-4c40-a10b-86575a9eabd5", own)
    assert hosts.on("a", line) == b""

    assert document(hosts, "a")["Events"][0]["EventStatus"] == "Started"
    assert document(hosts, "b")["Events"][0]["EventStatus"] == "Scheduled"


def test_a_host_cannot_ask_for_another(hosts):
    """Neither by name nor by a header that a proxy would set."""
    url = "http://169.254.169.254/vm/db/metadata/scheduledevents?api-version=2020-07-01"
    say = "curl -s -o /dev/null -w %{http_code} -H Metadata:true"

    assert hosts.on("a", f"{say} {url}") == b"404"
    url = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
    assert hosts.on("a", f"{say} -H X-Forwarded-For:10.78.0.2 {url}") == b"400"


def test_an_address_that_is_no_vms_is_told_so(hosts):
    """A second address on host a is a stranger's."""
    run(f"ip -n {hosts.names['a']} addr add 10.77.0.9/24 dev eth0")
    url = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
    answer = json.loads(hosts.on("a", f"curl -s --interface 10.77.0.9 -H Metadata:true {url}"))

    assert "10.77.0.9" in answer["error"]
