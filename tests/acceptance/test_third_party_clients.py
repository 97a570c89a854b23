"""Clients that others wrote, as they are published, go through events of a running service.

From a Python index: ai4s-jobq and the worker plugin of dask-cloudprovider, which watch for
evictions. From Debian: the agent azure-events-az of resource-agents, in a real Pacemaker cluster of
two nodes. Each has 169.254.169.254 built in, and runs under `fairnotice as`.
"""

import json
import os
import re
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from urllib.request import Request, urlopen

import psutil
import pytest

from fairnotice.clock import SystemClock
from tests.cli.test_up import FAIRNOTICE, control, started
from tests.house import ROOT

PATIENCE_SECONDS = 60
IN_CI = bool(os.environ.get("CI"))
THEIRS = ROOT / ".venv-clients"
CLUSTER = ROOT / "examples" / "pacemaker"
AGENT = Path("/usr/lib/ocf/resource.d/heartbeat/azure-events-az")
CLUSTER_PROGRAMS = ("ip", "nsenter", "unshare", "corosync", "pacemakerd", "crm_simulate")

needs_root = pytest.mark.skipif(
    not IN_CI and os.geteuid() != 0, reason="needs root to make namespaces"
)
needs_theirs = pytest.mark.skipif(
    not IN_CI and not (THEIRS / "installed").exists(),
    reason="needs the packages of requirements-clients.lock: scripts/test-tools",
)
needs_cluster = pytest.mark.skipif(
    not IN_CI and not (AGENT.exists() and all(map(shutil.which, CLUSTER_PROGRAMS))),
    reason="needs Debian's pacemaker, corosync and resource-agents: scripts/test-tools",
)
pytestmark = needs_root


# ---- The service, and a client in it ----


class Service:
    """A `fairnotice up`, asked and told over HTTP."""

    def __init__(self, said):
        self.api = control(said)
        self.metadata = re.search(r"http://127\.0\.0\.1:\d+(?=/vm)", said)[0]

    def get(self, path):
        with urlopen(f"{self.api}/v1/{path}") as answer:  # noqa: S310 - our own service
            return json.load(answer)

    def post(self, path, **body):
        headers = {"Content-Type": "application/json"}
        asked = Request(f"{self.api}/v1/{path}", json.dumps(body).encode(), headers)  # noqa: S310
        with urlopen(asked) as answer:  # noqa: S310
            return json.load(answer)

    def listens(self, vm):
        """Whether somebody has asked in this VM's scope, so that it is told of events."""
        scope = self.get(f"vms/{vm}")["scope"]
        return any(one["name"] == scope and one["enabled"] for one in self.get("scopes")["items"])

    @contextmanager
    def client(self, vm, *command, **more):
        """A program that runs as this VM until the end."""
        environment = {**os.environ, "FAIRNOTICE_URL": self.api, **more}
        environment["FAIRNOTICE_METADATA_URL"] = self.metadata
        process = subprocess.Popen(  # noqa: S603 - programs of this test
            [*FAIRNOTICE, "as", vm, "--", *map(str, command)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            # What has namespaces of its own ends with it, to the last process.
            process.kill()
            process.wait(PATIENCE_SECONDS)
            process.stdout.close()


@contextmanager
def service(tmp_path, *options):
    """A running service of this test's own."""
    with started(tmp_path, "--store", "memory:", *options) as (_, said):
        yield Service(said)


def wait_until(true):
    """Ask again until it is so; what was answered."""
    clock = SystemClock()
    limit = clock.monotonic() + PATIENCE_SECONDS
    while not (answer := true()):
        assert clock.monotonic() < limit
        Event().wait(0.2)
    return answer


# ---- From a Python index ----

# As the page of ai4s-jobq says: shut down when the event is set; it is cleared when that was wrong.
JOBQ = """
import asyncio
from ai4s.jobq.scheduled_events import PreemptionEventHandler

async def work():
    shutdown = asyncio.Event()
    async with PreemptionEventHandler(shutdown):
        await shutdown.wait()
        print("shutting down", flush=True)
        while shutdown.is_set():
            await asyncio.sleep(0.1)
        print("going on", flush=True)

asyncio.run(work())
"""

# A cluster of one worker with the plugin, as the page of dask-cloudprovider says.
DASK = """
import time
from dask_cloudprovider.azure import AzurePreemptibleWorkerPlugin
from distributed import Client, LocalCluster

if __name__ == "__main__":
    where = {"host": "127.0.0.1", "protocol": "tcp://", "dashboard_address": None}
    with LocalCluster(n_workers=1, processes=False, **where) as cluster, Client(cluster) as client:
        client.register_plugin(AzurePreemptibleWorkerPlugin())
        print(client.submit(sum, (20, 22)).result(), flush=True)
        while cluster.scheduler.workers:
            time.sleep(0.1)
        print("no worker is left", flush=True)
"""


@needs_theirs
def test_ai4s_jobq_stops_for_an_eviction_and_goes_on_when_it_is_canceled(tmp_path):
    """It takes the nine fields of an event and no other, and believes an event that is gone."""
    batch = {"AZ_BATCH_TASK_ID": "on Azure, it asks for this to be set"}
    # Azure's 30 s of notice: long enough to cancel, however slow this machine is.
    with (
        service(tmp_path, "--timing", "azure") as cloud,
        cloud.client("spot_0", THEIRS / "bin" / "python", "-c", JOBQ, **batch) as jobq,
    ):
        wait_until(lambda: cloud.listens("spot_0"))
        (event,) = cloud.post("vms/spot_0/evict")["events"]
        assert jobq.stdout.readline() == "shutting down\n"

        cloud.post(f"events/{event['id']}/cancel")
        assert jobq.stdout.readline() == "going on\n"
        assert jobq.wait(PATIENCE_SECONDS) == 0


@needs_theirs
def test_a_dask_worker_with_the_plugin_closes_when_its_vm_is_evicted(tmp_path):
    """It works, it polls, and at NotBefore or Started it leaves the cluster in order."""
    program = tmp_path / "work.py"
    program.write_text(DASK, "utf-8")
    with (
        service(tmp_path) as cloud,
        cloud.client("spot_0", THEIRS / "bin" / "python", program) as dask,
    ):
        assert dask.stdout.readline() == "42\n", dask.poll()
        wait_until(lambda: cloud.listens("spot_0"))
        (event,) = cloud.post("vms/spot_0/evict")["events"]
        assert event["type"] == "Preempt"

        assert dask.stdout.readline() == "no worker is left\n"
        assert dask.wait(PATIENCE_SECONDS) == 0
        assert cloud.get(f"events/{event['id']}")["approvals"] == []


# ---- From Debian ----


class Cluster:
    """Pacemaker on two VMs, joined by a cable; asked with its own tools, on db-0."""

    def __init__(self, cloud, ends):
        nodes = {
            vm: ends.enter_context(cloud.client(vm, CLUSTER / "node", address))
            for vm, address in (("db-0", "10.77.0.2"), ("db-1", "10.77.0.3"))
        }
        for node in nodes.values():
            assert node.stdout.readline() == "ready\n"
        first, second = (node.pid for node in nodes.values())
        cable = f"ip link add eth0 netns {first} type veth peer name eth0 netns {second}"
        subprocess.run(cable.split(), check=True)  # noqa: S603 - our own line
        (self._inside,) = psutil.Process(first).children()

    def says(self, *command):
        """What one of its tools prints; empty while it is not there to be asked."""
        line = ["nsenter", "--all", f"--target={self._inside.pid}", *command]
        done = subprocess.run(line, check=False, capture_output=True, text=True)  # noqa: S603
        return done.stdout.strip()

    def runs_on(self):
        """The VM that the database runs on; empty where it runs nowhere."""
        return self.says("crm_resource", "--quiet", "--locate", "--resource", "database")

    def state(self, vm):
        """How the agent has marked a VM."""
        name = "azure-events-az_curNodeState"
        return self.says("crm_attribute", "--quiet", "--query", "--name", name, "--node", vm)


@needs_cluster
def test_pacemaker_moves_a_database_away_and_approves(tmp_path):
    """azure-events-az empties the node, approves, and takes it back when the event is gone."""
    with service(tmp_path, "--fleet", str(CLUSTER / "fleet.toml")) as cloud, ExitStack() as ends:
        cluster = Cluster(cloud, ends)
        vm = wait_until(cluster.runs_on)
        (other,) = {"db-0", "db-1"} - {vm}
        wait_until(lambda: cloud.listens(vm))

        node = cloud.get(f"vms/{vm}")["node"]
        (event,) = cloud.post(f"nodes/{node}/maintain", duration_seconds=1)["events"]
        assert (event["type"], event["resources"]) == ("Freeze", [vm])

        approvals = wait_until(lambda: cloud.get(f"events/{event['id']}")["approvals"])
        assert [one["by"] for one in approvals] == [vm]
        assert cluster.runs_on() == other

        wait_until(lambda: cluster.state(vm) == "AVAILABLE")
        assert cloud.get(f"events/{event['id']}")["status"] == "Completed"


# ---- In another language ----


@pytest.mark.skipif(
    not IN_CI and not all(map(shutil.which, ("curl", "jq"))), reason="needs curl and jq"
)
def test_the_client_in_a_shell_prepares_approves_and_goes_on(tmp_path):
    """examples/client.sh, as docs/guides/another-language.md has it run."""
    fleet = str(CLUSTER / "fleet.toml")
    with (
        service(tmp_path, "--fleet", fleet) as cloud,
        cloud.client("db-0", ROOT / "examples" / "client.sh") as client,
    ):
        assert client.stdout.readline() == "db-0 listens\n"
        wait_until(lambda: cloud.listens("db-0"))
        (event,) = cloud.post("nodes/node-0/maintain", duration_seconds=1)["events"]

        assert client.stdout.readline().startswith("Freeze is Scheduled, not before ")
        assert client.stdout.readline().startswith("preparing: ")
        assert client.stdout.readline() == "approved\n"
        assert client.stdout.readline() == "over: take work again\n"
        assert client.wait(PATIENCE_SECONDS) == 0
        approvals = cloud.get(f"events/{event['id']}")["approvals"]
        assert [one["by"] for one in approvals] == ["db-0"]
