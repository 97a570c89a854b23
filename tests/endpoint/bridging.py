"""A node with a bridge, and hosts that are plugged in, each in a network namespace of its own.

    host a 10.79.0.11 ── port fn-a ┐
    host b 10.79.0.12 ── port fn-b ┼ br0, 10.79.0.1, and what answers at 169.254.169.254
    host c 10.79.0.13 ── port fn-c ┘

A control plane runs in the node's namespace, so that nothing of it is anybody else's.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from fairnotice.clock import SystemClock
from tests.house import ROOT
from tests.waiting import until

NEEDED = ("ip", "bridge", "nft", "dnsmasq", "busybox", "curl")
PATIENCE_SECONDS = 15
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
MISSING = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
CLOCK = SystemClock()

needs_a_bridge = pytest.mark.skipif(
    not os.environ.get("CI") and (os.geteuid() != 0 or bool(MISSING)),
    reason=f"needs root, and to be installed: {', '.join(MISSING)}",
)

MACS = {letter: f"52:54:00:00:00:1{number}" for number, letter in enumerate("abc", 1)}
ADDRESSES = {letter: f"10.79.0.1{number}" for number, letter in enumerate("abc", 1)}
EVENTS_URL = "http://{}/metadata/scheduledevents?api-version=2020-07-01"
METADATA = "169.254.169.254"
CLASSIC = "168.63.129.16"

FLEET_NODE = '[[node]]\nname = "node-0"\n'
FLEET_VM = '[[vm]]\nname = "{}"\nnode = "node-0"\naddresses = ["{}"]\n'
CONFIG = """
node = "node-0"
control_planes = ["http://127.0.0.1:8600"]
state_directory = "{state}"
workers = {workers}
[metadata]
listen = "{listen}"
routable = true
classic_listen = "168.63.129.16:80"
rate_limit = "off"
{network}
[metrics]
listen = "127.0.0.1:9169"
[log]
level = "info"
"""
CHECKED = """[network]
bridge = "{bridge}"
vms = "{vms}"
"""
# Asks again and again over one connection, and prints the status of each answer.
KEEPS_ASKING = """
import http.client, sys, time
connection = http.client.HTTPConnection("169.254.169.254", 80, timeout=5)
for line in sys.stdin:
    try:
        connection.request("GET", "/metadata/scheduledevents?api-version=2020-07-01",
                           headers={"Metadata": "true"})
        answer = connection.getresponse()
        answer.read()
        print(answer.status, flush=True)
        if connection.sock is None:
            break
    except OSError:
        print(0, flush=True)
        break
"""


def run(line, *, check=True, wanted=True, **more):
    """Run a command line; what it printed."""
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(  # noqa: S603 - our own lines
        shlex.split(line) if isinstance(line, str) else line,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**clean, "PATH": PATH},
        **more,
    )
    assert not check or not wanted or done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout if check else done


class BridgedNode:
    """The node, its hosts, and what runs there."""

    def __init__(self, folder):
        self.folder = folder
        self.name = f"fn-{os.getpid()}-{id(self) % 997}"
        self.hosts = {letter: f"{self.name}-{letter}" for letter in "abc"}
        self.bridge = "br0"
        self.vms = folder / "vms.json"
        self.processes = []
        self._links = 0

    # ---- Made and removed ----

    def build(self):
        run(f"ip netns add {self.name}")
        self.on_node("ip link set lo up")
        self.on_node("ip link add br0 address 52:54:00:00:00:01 type bridge")
        self.on_node("ip addr add 10.79.0.1/24 dev br0")
        self.on_node("ip link set br0 up")
        for letter, name in self.hosts.items():
            run(f"ip netns add {name}")
            self.plug_in(letter, f"fn-{letter}")
        self.place()
        return self

    def plug_in(self, letter, port):
        """Give a host its interface, at a port of this name."""
        name, address, mac = self.hosts[letter], ADDRESSES[letter], MACS[letter]
        self.on_node(f"ip link add {port} type veth peer name eth0 netns {name}")
        self.on_node(f"ip link set {port} master br0 up")
        run(f"ip -n {name} link set eth0 address {mac}")
        run(f"ip -n {name} addr add {address}/24 dev eth0")
        run(f"ip -n {name} link set lo up")
        run(f"ip -n {name} link set eth0 up")
        run(f"ip -n {name} route add default via 10.79.0.1")

    def place(self, **ports):
        """Say where each VM is: at the port of its letter, unless another is named."""
        vms = {
            letter: [
                {
                    "port": ports.get(letter, f"fn-{letter}"),
                    "mac": MACS[letter],
                    "addresses": [ADDRESSES[letter]],
                }
            ]
            for letter in self.hosts
            if ports.get(letter, "there")
        }
        new = self.vms.with_suffix(".new")
        new.write_text(json.dumps({"vms": vms}))
        new.replace(self.vms)

    def end_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)

    def remove(self):
        self.end_all()
        for name in (self.name, *self.hosts.values()):
            run(f"ip netns del {name}", check=False)

    # ---- The node ----

    def on_node(self, line, **more):
        """Run a line on the node."""
        words = shlex.split(line) if isinstance(line, str) else line
        return run(["ip", "netns", "exec", self.name, *words], **more)

    def start(self, *words, ready):
        """Start a program of ours on the node, and wait until it says so."""
        log = (self.folder / f"log-{len(self.processes)}").open("w+")
        process = subprocess.Popen(  # noqa: S603 - our own
            ["ip", "netns", "exec", self.name, sys.executable, "-m", "fairnotice", *words],  # noqa: S607
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PATH": PATH, "HOME": str(self.folder)},
        )
        self.processes.append(process)

        def said():
            log.seek(0)
            text = log.read()
            assert process.poll() is None, text
            return ready in text

        until(said, f"{words}: {ready}")
        log.close()
        return process

    def control_plane(self, addresses=ADDRESSES):
        fleet = self.folder / "fleet.toml"
        vms = (FLEET_VM.format(letter, address) for letter, address in addresses.items())
        fleet.write_text(FLEET_NODE + "".join(vms))
        words = ("up", "--store", "memory:", "--fleet", str(fleet), "--timing", "azure")
        return self.start(*words, ready="8600")

    def endpoint(self, *, checked=True, workers=1, listen=f"{METADATA}:80"):
        network = CHECKED.format(vms=self.vms, bridge=self.bridge) if checked else ""
        file = self.folder / "endpoint.toml"
        state = self.folder / f"state-{len(self.processes)}"
        state.mkdir()
        text = CONFIG.format(state=state, network=network, workers=workers, listen=listen)
        file.write_text(text)
        process = self.start("endpoint", "--config", str(file), ready="serving the VMs")
        self.folder.joinpath("pid").write_text(str(process.pid))
        return process

    def end(self, process):
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0

    def refused(self, verdict):
        """How many checks came to this, as Prometheus is told."""
        text = self.on_node("curl -s http://127.0.0.1:9169/metrics")
        of_it = [
            line
            for line in text.splitlines()
            if line.startswith("fairnotice_endpoint_identity_checks_total{")
            and f'verdict="{verdict}"' in line
        ]
        return sum(int(line.split()[-1]) for line in of_it)

    def setup(self, *words, check=True):
        """`fairnotice node-setup` on the node."""
        line = [sys.executable, "-m", "fairnotice", "node-setup", *words]
        return self.on_node(line, check=check, cwd=ROOT)

    # ---- A host ----

    def on(self, letter, line, **more):
        """Run a line on a host."""
        words = shlex.split(line) if isinstance(line, str) else line
        return run(["ip", "netns", "exec", self.hosts[letter], *words], **more)

    def status(self, letter, source="", seconds=2, where=METADATA):
        """What a host is answered, if it says that it is at another's address: 0 for nothing."""
        line = f"curl -g -s -m {seconds} -o /dev/null -w %{{http_code}} -H Metadata:true"
        if source:
            line += f" --interface {source}"
        return int(self.on(letter, f"{line} {EVENTS_URL.format(where)}", check=False).stdout or 0)

    def answered(self, letter, where=METADATA):
        """Wait until a host is answered; it was, in the end."""
        return until(
            lambda: self.status(letter, seconds=1, where=where) == 200, f"an answer for {letter}"
        )

    def take(self, letter, *, address="", mac=""):
        """Let a host take this for its own, beside or in place of what it has."""
        name = self.hosts[letter]
        if mac:
            run(f"ip -n {name} link set eth0 address {mac}")
        if address:
            run(f"ip -n {name} addr replace {address}/24 dev eth0")

    def lie(self, letter, address):
        """Let a host say to everybody, unasked, that an address is its own."""
        self.on(letter, f"busybox arping -U -c 2 -w 2 -I eth0 {address}", check=False)
        self.on(letter, f"busybox arping -A -c 1 -w 1 -I eth0 {address}", check=False)

    @contextlib.contextmanager
    def keeps_asking(self, letter):
        """A connection of a host that stays; call it for the status of its next answer."""
        asking = subprocess.Popen(  # noqa: S603 - our own
            ["ip", "netns", "exec", self.hosts[letter], sys.executable, "-c", KEEPS_ASKING],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

        def ask():
            asking.stdin.write("\n")
            asking.stdin.flush()
            return int(asking.stdout.readline())

        try:
            yield ask
        finally:
            asking.kill()
            asking.wait(PATIENCE_SECONDS)
            asking.stdin.close()
            asking.stdout.close()


@contextlib.contextmanager
def bridged_node(folder):
    """A node that is there until the block is left."""
    node = BridgedNode(folder)
    try:
        yield node.build()
    finally:
        node.remove()
