"""Azure's own tools against a service, where nothing but loopback is: run in such a namespace.

    unshare --net sh -c 'ip link set lo up; exec .venv/bin/python -m tests.arm.tools FOLDER'

Prints what each of them came to, as JSON. tests/arm/test_tools.py reads it.
"""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from fairnotice.arm.serving import opened_for_this_machine
from fairnotice.arm.signing import TENANT
from fairnotice.clock import SystemClock
from tests.arm.calling import COMPUTE, VERSION, Asking
from tests.control.calling import ANYWHERE, serving

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-azure" / "bin"
SECONDS_MAX = 120
POLL_SECONDS = 0.2
CLOCK = SystemClock()
# What happens to this one is approved by Microsoft.Maintenance (sdk.py).
LEFT = ["web-2"]
FAIRNOTICE = (sys.executable, "-m", "fairnotice")
IDENTIFIED, ANONYMOUS = "spot_1", "web-2"
RESTART = "vmss restart -g sample -n spot --instance-ids 1"
NOTICE = (
    "vmss update -g sample -n batch --enable-terminate-notification true "
    "--terminate-notification-time"
)
# There is no command of az for it.
REDEPLOY = f"{COMPUTE}/virtualMachineScaleSets/batch/virtualMachines/1/redeploy?{VERSION}"
# Side by side; what is of one VM or set stands in one lane, in its order.
LANES = (
    (
        "vm list",
        "vm list -d",
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
        "vm simulate-eviction -g sample -n web-2",
        "vm update -g sample -n web-2 --set tags.team=red",
    ),
    (
        "group list",
        "vmss list",
        "vmss show -g sample -n batch",
        "vmss get-instance-view -g sample -n batch",
        "vmss list-instances -g sample -n batch",
        "vmss restart -g sample -n batch --instance-ids 0",
        f"{NOTICE} 10",
        f"{NOTICE} 20",
        "vmss scale -g sample -n batch --new-capacity 5",
        "vmss delete-instances -g sample -n batch --instance-ids 4",
        f"rest --method post --url {REDEPLOY}",
        "vmss simulate-eviction -g sample -n spot --instance-id 0",
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


class Tools:
    """The service, who polls in its VMs, and the tools."""

    def __init__(self, asking, folder):
        self.asking = asking
        self.url = f"https://localhost:{asking.served.run.arm.port}"
        self.environment = environment(folder, self.url)
        self.environment["CONTROL_URL"] = f"http://{asking.served.run.control}"
        self.found = {}
        self.seen = []
        self._over = threading.Event()

    def poll(self):
        """In a VM of each scope: see events, and approve them."""
        while not self._over.is_set():
            for vm in ("web-2", "batch_1", "spot_1"):
                for event in self.asking.events(vm):
                    if event["EventStatus"] == "Scheduled" and event["Resources"] != LEFT:
                        self.seen.append([event["EventType"], *event["Resources"]])
                        self.acknowledge(vm, event["EventId"])
            self._over.wait(POLL_SECONDS)

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
        service = f"http://{self.asking.served.run.control}"
        create = [*FAIRNOTICE, "token", "create", IDENTIFIED, "--role", "operator"]
        self.run("identity", *create, "--vm", IDENTIFIED, FAIRNOTICE_URL=service)
        for vm in (IDENTIFIED, ANONYMOUS):
            own = environment(Path(self.environment["HOME"]) / vm, self.url)
            host = f"http://{self.asking.served.run.metadata}/vm/{vm}"
            inside = {
                "AZURE_CONFIG_DIR": own["AZURE_CONFIG_DIR"],
                "AZURE_POD_IDENTITY_AUTHORITY_HOST": host,
            }
            self.az("login --identity", f"{vm}: ", **inside)
            if vm == IDENTIFIED:
                self.az(RESTART, f"{vm}: ", **inside)

    def run(self, name, *line, **more):
        """Run one of them; what came of it."""
        began = CLOCK.monotonic()
        done = subprocess.run(  # noqa: S603
            list(map(str, line)),
            check=False,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        seconds = round(CLOCK.monotonic() - began, 1)
        self.found[name] = [done.returncode, done.stdout, done.stderr[-2000:], seconds]

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
            self.run("python", ROOT / ".venv-sdks/bin/python", ROOT / "tests/arm/sdk.py")
            self.run("node", "node", ROOT / "tests/arm/sdk.mjs")
        finally:
            self._over.set()
            polling.join()
        return {"found": self.found, "seen": self.seen}


def main(folder):
    """Run all of it."""
    port = opened_for_this_machine(ANYWHERE, folder / "tools", CLOCK)
    with serving(beside=port) as served:
        json.dump(Tools(Asking(served), folder).all(), sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
