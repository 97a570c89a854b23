"""A control plane and ten nodes, each in a network namespace of its own; links cut at random.

    ip netns exec CENTER python -m tests.endpoint.ten_nodes SEED SECONDS FOLDER CENTER NODE …

It runs in the namespace of the control plane. On each node runs `fairnotice endpoint`; its VMs ask
from addresses on that namespace's loopback, by a thread that has joined it. It prints what every VM
was answered and what the control plane knows in the end, and judges nothing.
"""

import asyncio
import ctypes
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from fairnotice.clock import SystemClock
from fairnotice.control.fleet_body import specification
from fairnotice.control.fleet_files import read_toml
from fairnotice.control.running import Place, Plan, control_plane, listening, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE
from fairnotice.engine import DEV
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import EventType

CENTER_ADDRESS = "10.77.0.1"
CONTROL_PORT = 8600
VMS_PER_NODE = 3
# Long enough to be cut off in the middle of it, and over before the test is.
NOTICE = dict.fromkeys(EventType, 2)
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
CONFIG = """
node = "{node}"
control_planes = ["http://{center}:{port}"]
state_directory = "{state}"
workers = {workers}
[metadata]
listen = "169.254.169.254:80"
rate_limit = "off"
[metrics]
listen = "off"
[log]
level = "info"
"""
# Politely, and not.
ENDS = ((signal.SIGTERM, "restarted"), (signal.SIGKILL, "killed"))
ROUND_SECONDS = 0.25
SETTLED_SECONDS_MAX = 30
CLONE_NEWNET = 0x40000000
CLOCK = SystemClock()


def vm_address(number):
    """Where a VM asks from, on whichever node it is."""
    return f"10.99.{number // 250}.{number % 250 + 1}"


def fleet(nodes):
    """Three VMs on each node: one alone, one in a set of two nodes, one in a scale set of all.

    Those of the scale set are told of their own deletion.
    """
    tables = [f'[[availability_set]]\nname = "pair-{n}"' for n in range(0, len(nodes), 2)]
    tables.append('[[scale_set]]\nname = "all"\nterminate_notice_minutes = 5')
    for number, node in enumerate(nodes):
        tables.append(f'[[node]]\nname = "{node}"\nfault_domain = {number}')
        pair = f'availability_set = "pair-{number - number % 2}"'
        sets = (None, pair, 'scale_set = "all"')
        for place, member in enumerate(sets):
            one = number * VMS_PER_NODE + place
            lines = [f'name = "vm-{one}"', f'node = "{node}"', f'address = "{vm_address(one)}"']
            if member is not None:
                lines += [member, f"update_domain = {number % 5}"]
            tables.append("[[vm]]\n" + "\n".join(lines))
    return read_toml("\n\n".join(tables), "fleet")


class Node:
    """One node: its endpoint, its link, and a thread in which its VMs ask."""

    def __init__(self, name, folder, workers):
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.process = None
        config = CONFIG.format(
            node=name,
            center=CENTER_ADDRESS,
            port=CONTROL_PORT,
            state=self.folder / "state",
            workers=workers,
        )
        (self.folder / "endpoint.toml").write_text(config)
        self.up = True

    def start(self):
        command = ["ip", "netns", "exec", self.name, sys.executable, "-m", "fairnotice"]
        command += ["endpoint", "--config", str(self.folder / "endpoint.toml")]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(  # noqa: S603
                command, stdout=subprocess.DEVNULL, stderr=log
            )

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait(10)

    def kill_a_worker(self, chance):
        """Whether there was one."""
        pid = self.process.pid
        try:
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            os.kill(int(chance.choice(found)), signal.SIGKILL)
        except (OSError, IndexError):
            return False
        return True

    def link(self, state):
        # The end of the cable that is in the center.
        name = f"v{self.name.rpartition('-')[2]}"
        subprocess.run(["ip", "link", "set", name, state], check=True)  # noqa: S603, S607
        self.up = state == "up"


class Vms(threading.Thread):
    """All VMs that are on a node now, asking from inside of its namespace."""

    def __init__(self, node, where, chance):
        super().__init__(daemon=True)
        self.node = node
        self._where = where
        self._chance = chance
        self.over = threading.Event()
        self.answers = []
        self.approvals = []
        self.asked = set()
        # In order: which VM read which incarnation of its document here.
        self.incarnations = []

    def run(self):
        with open(f"/run/netns/{self.node.name}") as namespace:  # noqa: PTH123
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.setns(namespace.fileno(), CLONE_NEWNET) == 0
        while not self.over.wait(ROUND_SECONDS):
            for vm, address in self._where(self.node.name):
                self._ask(vm, address)

    def _ask(self, vm, address):
        status, body = self._request(address, "GET")
        if status != 200:
            return
        document = json.loads(body)
        self.incarnations.append((self.node.name, vm, document["DocumentIncarnation"]))
        events = document["Events"]
        for event in events:
            self.answers.append((vm, event["EventId"], event["Resources"]))
            mine = vm in event["Resources"] and event["EventStatus"] == "Scheduled"
            first = (vm, event["EventId"]) not in self.asked
            self.asked.add((vm, event["EventId"]))
            if mine and first and self._chance.random() < 0.5:
                start = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
                status, _ = self._request(address, "POST", start)
                if status == 200:
                    self.approvals.append((vm, event["EventId"], _text(CLOCK.wall())))

    def _request(self, address, method, body=None):
        connection = http.client.HTTPConnection(
            "169.254.169.254", 80, timeout=8, source_address=(address, 0)
        )
        try:
            connection.request(method, EVENTS, body, {"Metadata": "true"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()


async def trouble(run, nodes, chance, seconds):
    """Cut and mend links, restart endpoints, and have things done to VMs, for so long."""
    ends = CLOCK.monotonic() + seconds
    deeds = {"cut": 0, "restarted": 0, "killed": 0, "asked": 0}
    while CLOCK.monotonic() < ends:
        node = chance.choice(nodes)
        deed = chance.random()
        if deed < 0.30:
            node.link("down" if node.up else "up")
            deeds["cut"] += not node.up
        elif deed < 0.35:
            number, how = chance.choice(ENDS)
            await asyncio.to_thread(node.end, number)
            node.start()
            deeds[how] += 1
        elif deed < 0.40:
            # The first has some.
            deeds["killed"] += nodes[0].kill_a_worker(chance)
        else:
            await something(run, node.name, chance)
            deeds["asked"] += 1
        await asyncio.sleep(0.08)
    # However few turns there were: some are killed, with what they have shown and not said.
    for node in nodes[:3]:
        await asyncio.to_thread(node.end, signal.SIGKILL)
        node.start()
        deeds["killed"] += 1
    for node in nodes:
        node.link("up")
    return deeds


async def something(run, node, chance):
    """Ask the control plane for something that VMs are told of."""
    vms = run.service.fleet.vms
    vm = chance.choice(sorted(vms))
    told_of_its_end = [one for one in sorted(vms) if vms[one].scope.startswith("scale-set:")]
    may_be_asked = [
        (f"/v1/vms/{vm}/restart", {}),
        (f"/v1/vms/{vm}/redeploy", {}),
        (f"/v1/nodes/{node}/maintain", {"impact": "freeze"}),
    ]
    # Only these, so that somebody is left however long it takes.
    if told_of_its_end:
        may_be_asked.append((f"/v1/vms/{chance.choice(told_of_its_end)}/delete", {}))
    await asyncio.to_thread(post, *chance.choice(may_be_asked))


def post(path, body):
    """Ask as an operator; a refusal is an answer too."""
    connection = http.client.HTTPConnection(CENTER_ADDRESS, CONTROL_PORT, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body))
        return connection.getresponse().read()
    finally:
        connection.close()


async def settled(run, vms):
    """Wait until all that was seen is known, and nothing is announced any more."""
    ends = CLOCK.monotonic() + SETTLED_SECONDS_MAX
    while CLOCK.monotonic() < ends:
        fleet = run.service.fleet
        seen = {(one.vm, event.id) for event in fleet.events.values() for one in event.seen}
        told = {(vm, event) for one in vms for vm, event, _ in list(one.answers)}
        if told <= seen and not any(event.scheduled for event in fleet.events.values()):
            return
        await asyncio.sleep(0.1)


async def play(seed, seconds, folder, names):
    """The whole story."""
    chance = random.Random(seed)
    driver = SimulatedDriver(CLOCK, durations=AT_ONCE)
    timing = replace(DEV, notice_seconds={**DEV.notice_seconds, **NOTICE})
    here = Place("127.0.0.1", 0)
    plan = Plan(MemoryStore(), driver, CLOCK, timing=timing, metadata=here, control=here)
    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(running(plan))
        sock = listening(Place(CENTER_ADDRESS, CONTROL_PORT), "control")
        stack.callback(sock.close)
        await stack.enter_async_context(control_plane(run, sock))
        await run.service.apply_fleet(specification(fleet(names)))
        for vm in run.service.vms():
            driver.declare(vm.name, vm.node, vm.power)
        nodes = [Node(name, folder, 2 if n == 0 else 1) for n, name in enumerate(names)]
        vms = [
            Vms(node, lambda n: on_node(run, n), random.Random(f"{seed}{node}")) for node in nodes
        ]
        for node in nodes:
            stack.callback(node.end, signal.SIGKILL)
            node.start()
        for one in vms:
            one.start()
        await enabled(run)
        scopes = {vm.name: vm.scope for vm in run.service.fleet.vms.values()}
        deeds = await trouble(run, nodes, chance, seconds)
        await settled(run, vms)
        for one in vms:
            one.over.set()
        return {**report(run, vms, deeds), "scopes": scopes}


def on_node(run, node):
    """The VMs of a node now, and where each asks from."""
    fleet = run.service.fleet
    return [(vm, fleet.vms[vm].addresses[0]) for vm in tuple(fleet.vms_on_node.get(node, ()))]


async def enabled(run):
    """Wait until every VM has asked: from here on they are told."""
    ends = CLOCK.monotonic() + SETTLED_SECONDS_MAX
    while not all(scope.enabled for scope in run.service.fleet.scopes.values()):
        assert CLOCK.monotonic() < ends, "the endpoints did not come up"
        await asyncio.sleep(0.05)


def report(run, vms, deeds):
    """All there is to judge."""
    fleet = run.service.fleet
    return {
        "deeds": deeds,
        "told": [answer for one in vms for answer in one.answers],
        "incarnations": [one for all_here in vms for one in all_here.incarnations],
        # Those who were told of their own end, and are gone.
        "gone": [
            event.id
            for event in fleet.events.values()
            if event.type is EventType.TERMINATE and not event.scheduled and event.seen
        ],
        "approved": [answer for one in vms for answer in one.approvals],
        "events": [
            {
                "id": event.id,
                "scope": event.scope,
                "not_before": event.not_before.isoformat(),
                "started_at": _text(event.started_at),
                "unconfirmed": event.unconfirmed,
                "scheduled": event.scheduled,
                "gone_at": _text(event.gone_at),
                "approval": None if event.approval is None else event.approval.by,
                "approved_at": _text(event.approval.at) if event.approval else None,
                "seen": [one.vm for one in event.seen],
            }
            for event in fleet.events.values()
        ],
        "joined": sorted(fleet.endpoints),
    }


def _text(instant: datetime | None):
    return None if instant is None else instant.isoformat()


if __name__ == "__main__":
    _, which, long, where, *node_names = sys.argv
    told = asyncio.run(play(int(which), float(long), Path(where), node_names))
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    # Threads that still ask are of no interest.
    os._exit(0)
