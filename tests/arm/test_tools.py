"""Azure's own tools, unmodified: az, the SDKs of Python and of JavaScript, with loopback alone."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.arm.guide import redeploy_of
from tests.arm.tools import ANONYMOUS, BEYOND, IDENTIFIED, NOTICE, RESTART, WAITING
from tests.cli.serves import certificate

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300
PART = "---- and then ----"
REFUSED = {
    "vm restart -g sample -n nobody": (3, "ResourceNotFound"),
    "vm list-ip-addresses": (3, "InvalidResourceNamespace"),
    "vm simulate-eviction -g sample -n web-2": (1, "OperationNotAllowed"),
    "vm perform-maintenance -g sample -n web-2": (1, "No maintenance is announced"),
    "vmss perform-maintenance -g sample -n batch": (1, "No maintenance is announced"),
    f"{NOTICE} 20": (1, "PT5M to PT15M"),
    "login --use-device-code": (1, "sign in by fairnotice az-login"),
    "group create -n new -l local": (1, "declared in the fleet file"),
    "group delete -n sample --yes": (1, "declared in the fleet file"),
    "vm create -g sample -n new --image Canonical:ubuntu:server:latest": (
        2,
        "declared in the fleet file",
    ),
}


def alone(line, folder, **environment):
    """Run this where nothing but loopback is; what it printed."""
    modules = ROOT / "tests" / "arm" / "node_modules" / "@azure"
    there = (ROOT / ".venv-azure" / "bin" / "az").exists() and modules.exists()
    if "CI" not in os.environ and not (there and all(map(shutil.which, ("unshare", "node", "ip")))):
        pytest.skip("Azure's tools are not installed: run scripts/test-tools")
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    with subprocess.Popen(  # noqa: S603
        ["unshare", "--net", *rights, "sh", "-ec", f"ip link set lo up; {line}"],  # noqa: S607
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, "FOLDER": str(folder)},
        start_new_session=True,
    ) as running:
        try:
            printed, said = running.communicate(timeout=SECONDS_MAX)
        finally:
            # The tools that hang, too.
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, said
    return printed


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """What all of them came to: one service, run once."""
    line = f"exec {sys.executable} -m tests.arm.tools $FOLDER"
    return json.loads(alone(line, tmp_path_factory.mktemp("tools")))


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """What the guide's lines came to, as they stand there, part by part; and what `up` said."""
    folder = tmp_path_factory.mktemp("guided")
    page = (ROOT / "docs/guides/azure-tools.md").read_text("utf-8")
    lines = page.partition("```bash\n")[2].partition("```")[0].strip().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("make up ")
    up = (
        f'{lines[0].partition("#")[0]} > $FOLDER/up.log 2>&1 & trap "kill $!" EXIT; '
        "until grep -q 'fairnotice is up' $FOLDER/up.log; do sleep 0.1; done; "
    )
    path = f"{ROOT}/.venv/bin:{ROOT}/.venv-azure/bin:{os.environ['PATH']}"
    snippet = folder / "snippet.py"
    snippet.write_text(page.partition("```python\n")[2].partition("```")[0])
    # Whomever the terminal trusts otherwise.
    other, _ = certificate(folder, "other")
    typed = (
        *lines[1:],
        redeploy_of(page),
        f"echo {PART}",
        f"REQUESTS_CA_BUNDLE={other} {ROOT}/.venv-sdks/bin/python {snippet}",
        f"echo {PART}",
        # The key that signs goes at once, as one that was stolen must.
        "openssl genrsa 2048 > $HOME/.local/state/fairnotice/azure-tools/signing.pem 2>&-",
        "az vm list 2>&1 || true",
        f"echo {PART}",
        'eval "$(fairnotice az-login --arm localhost:1)" && az vm list || az vm list 2>&1 || true',
        f"echo {PART}",
        lines[1],
        "az vm list --query [].name --output tsv",
    )
    where = {"HOME": str(folder), "PATH": path, "XDG_STATE_HOME": ""}
    # Whoever makes the tests would have this one make say where it is.
    where |= {"MAKEFLAGS": "", "MAKELEVEL": "0"}
    parts = alone(up + "\n".join(typed), folder, **where).split(PART)
    return parts, (folder / "up.log").read_text()


def test_the_five_lines_of_the_guide(guided):
    """From `make up` to a restart, and what Python does, as they stand there."""
    (restarted, sdk, *_), up = guided
    assert '"EventType":"Reboot"' in restarted
    assert '"EventStatus":"Scheduled"' in restarted
    assert sdk.split("\n")[1:3] == ["['db', 'web-0', 'web-1', 'web-2']", "InProgress"]
    assert "make" not in up


def test_az_login_mends_what_no_key_vouches_for_any_more(guided):
    """Az is refused, and shows what to do; it takes nothing that it has kept for a new token."""
    _, _, refused, _, mended = guided[0]
    assert "InvalidAuthenticationToken" in refused
    assert "Sign in anew: fairnotice az-login." in refused
    assert mended.split() == ["db", "web-0", "web-1", "web-2"]


def test_an_az_that_could_not_be_logged_in_asks_nobody(guided):
    """Neither on the same line nor on the next one: not fairnotice, and no account of its own."""
    asked = guided[0][3].strip()
    assert asked.endswith("Not a directory: '/dev/null/az-login-failed'")
    assert asked.count("Traceback") == 1


def shown(tools, line):
    """What az printed."""
    code, printed, said, _ = tools["found"][f"az {line}"]
    assert code == 0, said
    return json.loads(printed) if printed else None


def test_every_command_of_az_comes_to_what_it_should(tools):
    """Also those that wait for an event: a VM sees it, approves, and the command returns."""
    commands = {name: found for name, found in tools["found"].items() if name.startswith("az ")}
    assert len(commands) == 54
    for name, (code, _, said, _) in commands.items():
        wanted, word = REFUSED.get(name.removeprefix("az "), (0, ""))
        assert code == wanted, (name, said)
        assert word in said, (name, said)


# Who polls in each scope: tests/arm/tools.py.
APPROVERS = {"web": "web-2", "batch": "batch_1", "spot": "spot_1"}


def ended(event, vm):
    """An event that is over, as the control plane tells of it: somebody in its scope approved."""
    return [event, "Completed", [APPROVERS[re.split("[-_]", vm)[0]]]]


@pytest.mark.parametrize("line", WAITING)
def test_a_command_that_waits_returns_when_it_is_done_and_no_sooner(tools, line):
    """Its event was seen, approved by a VM and is gone, and the machine is as it was to become."""
    waits = WAITING[line]
    _, _, _, seen = tools["found"][line]
    of_it = [event for event in seen["events"] if event["resources"] == [waits.vm]]
    shown = [[event["type"], event["status"], by(event)] for event in of_it]
    assert shown == ([ended(waits.event, waits.vm)] if waits.event else [])
    assert all(event["gone_at"] and not event["failed"] for event in of_it)
    must_have_become(waits.became, waits.vm, seen)


def by(event):
    """Who approved it."""
    return [one["by"] for one in event["approvals"]]


def must_have_become(what, vm, seen):
    """Between the beginning of a command and its return, the machine has become so."""
    if what == "gone":
        assert vm in seen["before"]
        assert vm not in seen["after"]
        return
    (boot_before, node_before, _), (boot, node, power) = seen["before"][vm], seen["after"][vm]
    assert power == (what if what in ("stopped", "deallocated") else "running")
    assert (boot != boot_before) == (what in ("booted", "moved", "running"))
    if what != "running":
        # Started, it is anywhere.
        assert (node != node_before) == (what in ("moved", "deallocated"))


def test_a_vm_signs_in_by_what_it_is_and_only_if_it_was_given_an_identity(tools):
    """It has no secret: its metadata endpoint knows who asks, and the other is told of none."""
    found = tools["found"]
    for name in ("identity", f"{IDENTIFIED}: az login --identity", f"{IDENTIFIED}: az {RESTART}"):
        code, _, said, _ = found[name]
        assert code == 0, (name, said)
    assert ["Reboot", IDENTIFIED] in tools["seen"]
    code, _, said, _ = found[f"{IDENTIFIED}: az {BEYOND}"]
    assert code == 1
    assert "AuthorizationFailed" in said
    code, _, said, _ = found[f"{ANONYMOUS}: az login --identity"]
    assert code == 1
    assert "Identity not found" in said


def test_what_az_shows(tools):
    """Names, power, instances, sets and groups."""
    names = ["cheap", "db", "web-0", "web-1", "web-2"]
    assert [vm["name"] for vm in shown(tools, "vm list")] == names
    assert {vm["powerState"] for vm in shown(tools, "vm list -d")} == {"VM running"}
    assert shown(tools, "vm show -g sample -n web-0")["name"] == "web-0"
    view = shown(tools, "vm get-instance-view -g sample -n web-0")["instanceView"]
    assert [one["code"] for one in view["statuses"]][1] == "PowerState/running"
    assert [one["name"] for one in shown(tools, "vmss list")] == ["batch", "spot"]
    assert shown(tools, "vmss show -g sample -n batch")["sku"]["capacity"] == 4
    view = shown(tools, "vmss get-instance-view -g sample -n batch")
    counted = {one["code"]: one["count"] for one in view["virtualMachine"]["statusesSummary"]}
    assert counted["PowerState/running"] == 4
    assert shown(tools, "vm list -g sample --vmss batch") == []
    instances = shown(tools, "vmss list-instances -g sample -n batch")
    assert [one["instanceId"] for one in instances] == ["0", "1", "2", "3"]
    assert [one["name"] for one in shown(tools, "group list")] == ["sample"]
    assert shown(tools, "group show -n sample")["name"] == "sample"
    assert shown(tools, "group exists -n sample") is True
    (web,) = shown(tools, "vm availability-set list -g sample")
    assert web["name"] == "web"
    assert len(shown(tools, "vm availability-set show -g sample -n web")["virtualMachines"]) == 3


def test_what_az_changes(tools):
    """The terminate notice, how many there are, tags, and what is only kept of an instance."""
    updated = shown(tools, f"{NOTICE} 10")
    profile = updated["virtualMachineProfile"]["scheduledEventsProfile"]
    assert profile["terminateNotificationProfile"] == {"enable": True, "notBeforeTimeout": "PT10M"}
    assert shown(tools, "vmss scale -g sample -n batch --new-capacity 5")["sku"]["capacity"] == 5
    assert shown(tools, "vm update -g sample -n web-2 --set tags.team=red")["tags"] == {
        "team": "red"
    }
    for line in (
        "update -g sample -n batch --instance-id 1 --set tags.team=red",
        "show -g sample -n batch --instance-id 1",
    ):
        assert shown(tools, f"vmss {line}")["tags"] == {"team": "red"}
    instance = shown(tools, "vmss show -g sample -n batch --instance-id 1")
    assert instance["protectionPolicy"]["protectFromScaleIn"] is True


def test_vms_saw_what_was_going_to_happen(tools):
    """Before it did: the commands returned because a VM approved."""
    for event in (
        ["Reboot", "web-0"],
        ["Redeploy", "web-0"],
        ["Reboot", "web-1"],
        ["Reboot", "batch_0"],
        ["Terminate", "batch_4"],
        ["Preempt", "spot_0"],
        ["Preempt", "cheap"],
        ["Redeploy", "batch_1"],
    ):
        assert event in tools["seen"]


def test_az_rest_acknowledges(tools):
    """An event that nobody in the VM approves."""
    code, printed, said, _ = tools["found"]["acknowledge"]
    assert code == 0, said
    assert json.loads(printed) == {"value": "Successfully Approved"}


def test_the_sdks_of_python(tools):
    """Synchronous and not; and Microsoft.Maintenance, which approves what nobody else does."""
    code, printed, said, seen = tools["found"]["python"]
    assert code == 0, said
    names = ["cheap", "web-0", "web-1", "web-2"]
    batch = ("batch_0", "batch_1", "batch_2")
    restarted = [ended("Reboot", vm) for vm in ("web-0", *batch)]
    redeployed = ["Redeploy", "Completed", ["operator"]]
    assert json.loads(printed) == [
        [names, "Succeeded", restarted, "ResourceNotFound"],
        ["Successfully Approved", "Succeeded", [redeployed]],
        ["Succeeded", [ended("Reboot", "web-1")]],
    ]
    for vm in ("web-0", "web-1", *batch):
        must_have_become("booted", vm, seen)
    must_have_become("moved", "web-2", seen)


def test_the_sdk_of_javascript(tools):
    """It lists, restarts and waits, and knows Azure's codes."""
    code, printed, said, seen = tools["found"]["node"]
    assert code == 0, said
    names = ["cheap", "web-0", "web-1", "web-2"]
    assert json.loads(printed) == [names, ended("Reboot", "web-0"), "ResourceNotFound"]
    must_have_become("booted", "web-0", seen)
