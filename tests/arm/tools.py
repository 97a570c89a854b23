"""Azure's own tools against a service, where nothing but loopback is: run in such a namespace.

    unshare --net sh -c 'ip link set lo up; exec .venv/bin/python -m tests.arm.tools FOLDER'

Prints what each of them came to, as JSON. tests/arm/test_tools.py reads it.

No impact ends before a tool was told that it is not over: whoever waits must ask again, and whoever
is told at once that it is over returns before it is.
"""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec

from fairnotice.arm import paging, serving
from fairnotice.arm.api import Arm
from fairnotice.arm.signing import TENANT
from fairnotice.clock import SystemClock
from fairnotice.control.fleet_body import VmBody, specification
from fairnotice.control.fleet_files import sample_fleet
from fairnotice.words import Power, Priority
from tests.arm.calling import COMPUTE, Asking
from tests.control.calling import ANYWHERE
from tests.control.calling import serving as served_here
from tests.waiting import until

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-azure" / "bin"
SECONDS_MAX = 120
POLL_SECONDS = 0.2
CLOCK = SystemClock()
# What happens to this one is approved by Microsoft.Maintenance (sdk.py).
LEFT = ["web-2"]
FAIRNOTICE = (sys.executable, "-m", "fairnotice")
IDENTIFIED, ANONYMOUS = "spot_1", "web-2"
BEYOND = "vm restart -g sample -n db"
RESTART = "vmss restart -g sample -n spot --instance-ids 1"
# A Spot VM that is in no scale set: the sample fleet has none.
CHEAP = VmBody("cheap", "node-4", priority=Priority.SPOT, resource_group="sample")
REDEPLOY = (
    f"rest --method post --url {COMPUTE}/virtualMachineScaleSets/batch/redeploy"
    '?api-version=2024-11-01 --body {"instanceIds":["1"]}'
)
MACHINES = "Microsoft.Compute/virtualMachines"
NOTICE = (
    "vmss update -g sample -n batch --enable-terminate-notification true "
    "--terminate-notification-time"
)


class Waits(NamedTuple):
    """What a command does that waits: as which event it is shown, of whom, and what then is."""

    event: str
    vm: str
    became: str


WAITING = {
    "az vm restart -g sample -n web-0": Waits("Reboot", "web-0", "booted"),
    "az vm redeploy -g sample -n web-0": Waits("Redeploy", "web-0", "moved"),
    "az vm stop -g sample -n db": Waits("", "db", "stopped"),
    "az vm start -g sample -n db": Waits("", "db", "running"),
    "az vm deallocate -g sample -n db": Waits("", "db", "deallocated"),
    "az vm delete -g sample -n db --yes": Waits("", "db", "gone"),
    "az vmss restart -g sample -n batch --instance-ids 0": Waits("Reboot", "batch_0", "booted"),
    "az vmss delete-instances -g sample -n batch --instance-ids 4": Waits(
        "Terminate", "batch_4", "gone"
    ),
    "az vmss scale -g sample -n batch --new-capacity 3": Waits("Terminate", "batch_3", "gone"),
    "az vmss stop -g sample -n batch --instance-ids 2": Waits("", "batch_2", "stopped"),
    "az vmss deallocate -g sample -n batch --instance-ids 2": Waits("", "batch_2", "deallocated"),
    "az vmss start -g sample -n batch --instance-ids 2": Waits("", "batch_2", "running"),
    f"{IDENTIFIED}: az {RESTART}": Waits("Reboot", IDENTIFIED, "booted"),
}
# What is asked for without waiting: by --no-wait, by `az rest`, or answered 204.
UNAWAITED = frozenset(
    {
        ("reboot", "web-1"),
        ("reboot", LEFT[0]),
        ("deallocate", CHEAP.name),
        ("deallocate", "spot_0"),
        ("redeploy", "batch_1"),
    }
)
# Side by side; what is of one VM or set stands in one lane, in its order.
LANES = (
    (
        "vm list",
        "vm list -d",
        "vm list-ip-addresses",
        "vm list -g sample --vmss batch",
        "vm show -g sample -n web-0",
        "vm get-instance-view -g sample -n web-0",
        "vm restart -g sample -n web-0",
        "vm redeploy -g sample -n web-0",
        "vm restart -g sample -n web-1 --no-wait",
        "vm stop -g sample -n db",
        "vm start -g sample -n db",
        "vm deallocate -g sample -n db",
        "vm delete -g sample -n db --yes",
        "vm restart -g sample -n nobody",
        "vm perform-maintenance -g sample -n web-2",
        "vm simulate-eviction -g sample -n web-2",
        "vm simulate-eviction -g sample -n cheap",
        "vm update -g sample -n web-2 --set tags.team=red",
    ),
    (
        "vmss list",
        "vmss show -g sample -n batch",
        "vmss get-instance-view -g sample -n batch",
        "vmss list-instances -g sample -n batch",
        "vmss update-instances -g sample -n batch --instance-ids *",
        "vmss update -g sample -n batch --instance-id 1 --set tags.team=red",
        "vmss update -g sample -n batch --instance-id 1 --protect-from-scale-in true",
        "vmss show -g sample -n batch --instance-id 1",
        "vmss perform-maintenance -g sample -n batch",
        "vmss restart -g sample -n batch --instance-ids 0",
        f"{NOTICE} 10",
        f"{NOTICE} 20",
        "vmss scale -g sample -n batch --new-capacity 5",
        "vmss delete-instances -g sample -n batch --instance-ids 4",
        "vmss scale -g sample -n batch --new-capacity 3",
        "vmss stop -g sample -n batch --instance-ids 2",
        "vmss deallocate -g sample -n batch --instance-ids 2",
        "vmss start -g sample -n batch --instance-ids 2",
        "vmss simulate-eviction -g sample -n spot --instance-id 0",
        REDEPLOY,
    ),
    (
        f"resource show -g sample -n web-2 --resource-type {MACHINES}",
        f"resource invoke-action -g sample -n web-2 --resource-type {MACHINES} --action reapply",
        "group list",
        "group show -n sample",
        "group exists -n sample",
        "vm availability-set list -g sample",
        "vm availability-set show -g sample -n web",
        "group create -n new -l local",
        "group delete -n sample --yes",
        "account list-locations",
        "provider list",
        "provider show -n Microsoft.Compute",
        "vm create -g sample -n new --image Canonical:ubuntu:server:latest",
        "login --use-device-code",
    ),
)


def environment(folder, url):
    """What az and the SDKs are told by: a folder of their own, and whom to trust."""
    config = folder / "azure"
    config.mkdir(parents=True, exist_ok=True)
    (config / "clouds.config").write_text(
        f"[Local]\nendpoint_resource_manager = {url}\nendpoint_management = {url}/\n"
        f"endpoint_active_directory = {url}/adfs\n"
        f"endpoint_active_directory_resource_id = {url}/\n"
    )
    (config / "config").write_text("[cloud]\nname = Local\n[core]\ncollect_telemetry = no\n")
    ca = str(folder / "tools" / "ca.pem")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AZURE_CONFIG_DIR": str(config),
        "AZURE_CORE_NO_COLOR": "1",
        "AZURE_EXTENSION_USE_DYNAMIC_INSTALL": "no",
        "AZURE_CORE_LOGIN_EXPERIENCE_V2": "off",
        "REQUESTS_CA_BUNDLE": ca,
        "SSL_CERT_FILE": ca,
        "NODE_EXTRA_CA_CERTS": ca,
        "AZURE_TENANT_ID": "adfs",
        "AZURE_CLIENT_ID": "operator",
        "AZURE_CLIENT_SECRET": "anything",
        "AZURE_AUTHORITY_HOST": url,
        "ARM_URL": url,
    }


class Watched(Arm):
    """Resource Manager's front; remembers which requests somebody was told are not over."""

    told: ClassVar = set()

    async def __call__(self, scope, receive, send):
        """An ASGI application."""
        path, _, name = scope["path"].rpartition("/")

        async def sent(message):
            # By Location and by Azure-AsyncOperation.
            if message.get("status") == 202 or b'"InProgress"' in message.get("body", b""):
                self.told.add(name)
            await send(message)

        await super().__call__(scope, receive, sent if path.endswith("/operations") else send)


class Tools:
    """The service, who polls in its VMs, and the tools."""

    def __init__(self, asking, folder):
        self.asking = asking
        self.driver = asking.served.run.conductor._driver
        self.driver.next_hangs(standing=True)
        self.holding, self.unawaited = True, UNAWAITED
        self.url = f"https://localhost:{asking.served.run.arm.port}"
        self.environment = environment(folder, self.url)
        self.environment["CONTROL_URL"] = f"http://{asking.served.run.control}"
        self.found = {}
        self.seen = []
        self._over = threading.Event()

    def poll(self):
        """In a VM of each scope: see events, and approve them."""
        while not self._over.is_set():
            for vm in ("web-2", "batch_1", "spot_1", CHEAP.name):
                for event in self.asking.events(vm):
                    if event["EventStatus"] == "Scheduled" and event["Resources"] != LEFT:
                        self.seen.append([event["EventType"], *event["Resources"]])
                        self.acknowledge(vm, event["EventId"])
            self.asking.served.inside(self.let_go())
            self._over.wait(POLL_SECONDS)

    async def let_go(self):
        """Let the impacts end for which somebody waits, or nobody ever does."""
        for one in self.asking.fleet.impacts.values():
            request = one.operation.partition(".")[0]
            awaited = (one.kind, one.vm) not in self.unawaited
            if request in Watched.told or not (self.holding and awaited):
                self.driver.let_go(one.vm)

    def acknowledge(self, vm, event):
        """As whatever runs inside a VM does it: at its metadata endpoint."""
        body = json.dumps({"StartRequests": [{"EventId": event}]})
        connection = HTTPConnection(*self.asking.served.run.metadata, timeout=10)
        path = f"/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
        connection.request("POST", path, body, {"Metadata": "true"})
        connection.getresponse().read()
        connection.close()

    def identities(self):
        """A VM that was given an identity signs in with it and restarts; another has none."""
        service = {"FAIRNOTICE_URL": self.environment["CONTROL_URL"]}
        create = [*FAIRNOTICE, "token", "create", IDENTIFIED, "--role", "operator"]
        limits = ("--scope", "scale-set:spot:0")
        self.run("identity", *create, "--vm", IDENTIFIED, *limits, **service)
        for vm in (IDENTIFIED, ANONYMOUS):
            own = environment(Path(self.environment["HOME"]) / vm, self.url)
            where = {"AZURE_CONFIG_DIR": own["AZURE_CONFIG_DIR"], **service}
            for line in ("login --identity", *((RESTART, BEYOND) if vm == IDENTIFIED else ())):
                inside = (*FAIRNOTICE, "as", vm, "--", BIN / "az", *line.split())
                self.run(f"{vm}: az {line}", *inside, **where)

    def approvals(self):
        """What happens to a VM is approved by `az rest`, since nobody in it does."""
        self.az(f"vm restart -g sample -n {LEFT[0]} --no-wait")
        (event,) = (one for one in self.asking.events(LEFT[0]) if one["Resources"] == LEFT)
        path = f"{COMPUTE}/virtualMachines/{LEFT[0]}/providers/Microsoft.Maintenance"
        path += f"/scheduledevents/{event['EventId']}/acknowledge?api-version=2025-10-01-preview"
        line = [BIN / "az", "rest", "--method", "post", "--url", path]
        self.run("acknowledge", *line)

    def all_over(self):
        """Let all end that is under way; whatever begins from here on is waited for."""
        self.holding = False
        until(lambda: all(event["gone_at"] for event in self.events().values()), "the end")
        self.holding, self.unawaited = True, frozenset()

    def events(self):
        """Every event there was, as the control plane tells of it: by its id."""
        found = self.asking.served.get("/v1/events?limit=1000").json["items"]
        return {event["id"]: event for event in found}

    def machines(self):
        """Every VM, and its machine as whoever stands beside it sees it, once there is one."""
        known = self.asking.served.get("/v1/vms?limit=1000").json["items"]
        found = {one.vm: [one.boot_id, one.node, one.power] for one in self.driver.machines()}
        return dict.fromkeys((vm["name"] for vm in known), None) | found

    def run(self, name, *line, **more):
        """Run one of them; what came of it, and how all was at that moment."""
        machines, events = self.machines(), self.events()
        done = subprocess.run(  # noqa: S603
            list(map(str, line)),
            check=False,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        new = [event for id_, event in self.events().items() if id_ not in events]
        seen = {"before": machines, "after": self.machines(), "events": new}
        self.found[name] = [done.returncode, done.stdout, done.stderr[-2000:], seen]

    def az(self, line, who="", **more):
        """One command of az."""
        self.run(f"{who}az {line}", BIN / "az", *line.split(), "--output", "json", **more)

    def lane(self, lines):
        """Several, one after another."""
        for line in lines:
            self.az(line)

    def all(self):
        """All of them, two at a time."""
        polling = threading.Thread(target=self.poll)
        polling.start()
        try:
            self.az(f"login --service-principal -u operator -p x --tenant {TENANT}")
            with ThreadPoolExecutor(len(LANES) + 1) as lanes:
                identities = lanes.submit(self.identities)
                list(lanes.map(self.lane, LANES))
                identities.result()
            self.approvals()
            self.all_over()
            self.run("python", ROOT / ".venv-sdks/bin/python", ROOT / "tests/arm/sdk.py")
            self.run("node", "node", ROOT / "tests/arm/sdk.mjs")
        finally:
            self._over.set()
            polling.join()
        return {"found": self.found, "seen": self.seen}


def add_cheap(served):
    """Declare the Spot VM beside the sample fleet."""
    sample = sample_fleet()
    fleet = msgspec.structs.replace(sample, vm=[*sample.vm, CHEAP])
    served.inside(served.run.service.apply_fleet(specification(fleet)))
    driver = served.run.conductor._driver
    driver.declare(CHEAP.name, CHEAP.node, Power.RUNNING)


def main(folder):
    """Run all of it."""
    # So that every list that they read has several pages.
    paging.PAGE_ROWS = 2
    serving.Arm = Watched
    port = serving.opened_for_this_machine(ANYWHERE, folder / "tools", CLOCK)
    with served_here(beside=port) as served:
        add_cheap(served)
        json.dump(Tools(Asking(served), folder).all(), sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
