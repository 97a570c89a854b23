"""Real VMs, by QEMU, on two nodes of libvirt: a control plane killed in every impact.

Every impact as it goes when nothing is in its way: test_demo_vms.py.
"""

import os
import subprocess
import sys
from threading import Event

import pytest

from tests.vms.nodes import CLOCK, Nodes, missing

if missing():
    assert "CI" not in os.environ, missing()
    pytest.skip(missing(), allow_module_level=True)

import libvirt

from fairnotice.drivers.libvirt.happenings import SAME_WITHIN_SECONDS
from fairnotice.drivers.libvirt.host import set_label
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.records import records_in
from tests.vms import guest
from tests.vms.cloud import Cloud, wait_until
from tests.vms.walk import ADDRESS, RUNNING, VM, run_uncordon

SAID_OF_A_REBOOT = f"{VM} on n1 has rebooted"


@pytest.fixture
def nodes(tmp_path):
    """Two, for one test."""
    with Nodes(tmp_path) as both:
        yield both


@pytest.fixture
def cloud(nodes):
    """A control plane for them."""
    with Cloud(nodes) as one:
        yield one


def _begin(cloud, **more):
    cloud.run_vm(VM, ADDRESS, **more)
    cloud.start()
    cloud.declare()
    _answered(cloud)


# ---- Killed in the middle ----

# So long a guest takes to end: longer than it takes to see that, and to kill.
SLOW_SECONDS = 3
# At this rate, what the guest has in memory takes some seconds.
MIGRATION_MIB_PER_SECOND = 16


def _domain(cloud):
    """The VM's, on the node where it runs."""
    running = [one for one in cloud.domains(VM).values() if one.isActive()]
    assert running, f"{VM} does not run: {cloud.states(VM)}"
    return running[0]


ON_POWEROFF = libvirt.VIR_DOMAIN_LIFECYCLE_POWEROFF
RESTART = libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_RESTART


def _restarts_when_its_guest_shuts_down(cloud):
    """Its owner has chosen that libvirt boots its guest again."""
    both = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
    _domain(cloud).setLifecycleAction(ON_POWEROFF, RESTART, both)


def _is_as_its_owner_has_chosen(cloud):
    """Now, and when it starts again."""
    xml = [_domain(cloud).XMLDesc(flags) for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)]
    return ["<on_poweroff>restart</on_poweroff>" in one for one in xml] == [True, True]


def _unfinished(cloud):
    """The kinds of the impacts whose keys are on the VM, and have not ended."""
    return [str(one.kind) for one in records_in(_domain(cloud).XMLDesc(0)) if not one.ended]


def _killed_in(cloud, kind, *words, when):
    """Ask for something, and kill the control plane in the middle of it; afterwards it is done."""
    cloud.ask(*words)
    deadline = CLOCK.monotonic() + 30
    while not when(cloud):
        assert CLOCK.monotonic() < deadline, "it does not begin"
    cloud.kill()
    # Nobody carries on now, and it was not over: it was in the middle.
    assert _unfinished(cloud) == [kind]
    cloud.start()
    assert cloud.wait_for_end()["status"] == "Completed", cloud.operations()[-1]


def _paused(cloud):
    return libvirt.VIR_DOMAIN_PAUSED in cloud.states(VM).values()


def _pressed(cloud):
    """Whether this boot of the guest was told to end."""
    return [cloud.boots(VM)[-1]] in cloud.said(VM, guest.PRESSED)


def _migrating(cloud):
    return _domain(cloud).jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE


def test_a_control_plane_killed_in_each_impact_leaves_the_vm_as_it_should_be(cloud):
    """Never paused for good, never rebooted twice; not even where libvirt would boot it, too."""
    _begin(cloud, manner=guest.slow(SLOW_SECONDS))
    _restarts_when_its_guest_shuts_down(cloud)
    first = cloud.boots(VM)
    maintain = ("node", "maintain", "n1", "--duration", "4")
    _killed_in(cloud, "freeze", *maintain, when=_paused)
    assert cloud.states(VM) == {"n1": RUNNING}
    assert cloud.boots(VM) == first
    _killed_in(cloud, "reboot", "vm", "restart", VM, when=_pressed)
    assert cloud.states(VM) == {"n1": RUNNING}
    wait_until("it has booted", lambda: len(cloud.boots(VM)) == 2)
    assert _is_as_its_owner_has_chosen(cloud)
    _answered(cloud)
    _killed_while_it_moves(cloud, "n1", "n2", autostart=0)
    # What its node starts by itself is held back meanwhile.
    _killed_while_it_moves(cloud, "n2", "n1", autostart=1)
    assert len(cloud.boots(VM)) == 2
    _killed_in(cloud, "redeploy", "vm", "redeploy", VM, when=_pressed)
    assert cloud.states(VM) == {"n2": RUNNING}
    assert _domain(cloud).autostart() == 1
    wait_until("it has booted", lambda: len(cloud.boots(VM)) == 3)
    assert _is_as_its_owner_has_chosen(cloud)
    _answered(cloud)
    assert len(set(cloud.boots(VM))) == len(cloud.boots(VM)) == 3
    _killed_in(cloud, "delete", "vm", "delete", VM, when=_pressed)
    assert cloud.states(VM) == {}


def _killed_while_it_moves(cloud, source, target, *, autostart):
    domain = _domain(cloud)
    domain.setAutostart(autostart)
    domain.migrateSetMaxSpeed(MIGRATION_MIB_PER_SECOND)
    _killed_in(cloud, "migrate", "node", "migrate", source, when=_migrating)
    assert cloud.states(VM) == {target: RUNNING}
    assert _domain(cloud).autostart() == autostart
    run_uncordon(cloud)
    _answered(cloud)


def _answered(cloud, vm=VM):
    ticks = cloud.ticks(vm)
    wait_until("the guest is answered again", lambda: cloud.ticks(vm) > ticks)


# ---- What happens by itself ----


SPOT = ("priority=Spot", "ephemeral_disks=vdb")
OTHER, OTHER_ADDRESS = "vm1", "10.77.0.11"
DISK = "/var/lib/libvirt/images/vm0-temp"
DISK_MIB = 2
TEMPORARY = f"""<disk type="file"><driver name="qemu" type="raw"/>
    <source file="{DISK}"/><target dev="vdb" bus="virtio"/></disk>"""
POOL = """<pool type="dir"><name>images</name>
    <target><path>/var/lib/libvirt/images</path></target></pool>"""


def test_a_guest_that_does_not_hear_is_reset_and_what_befalls_it_is_seen(nodes):
    """Rebooted by itself, stopped, started, evicted, and its node lost, with us, for good."""
    with Cloud(nodes, limit_seconds=2.0) as cloud:
        _give_pools(nodes)
        _begin(cloud, manner=guest.DEAF, labels=SPOT, more=TEMPORARY)
        _restarts_when_its_guest_shuts_down(cloud)
        cloud.ask("vm", "restart", VM)
        assert cloud.wait_for_end()["status"] == "Completed"
        wait_until("it was reset", lambda: len(cloud.boots(VM)) == 2)
        assert cloud.states(VM) == {"n1": RUNNING}
        assert _is_as_its_owner_has_chosen(cloud)
        _rebooted_by_its_user(cloud)

        domain = libvirt.open(nodes.nodes["n1"].uri).lookupByName(VM)
        domain.destroy()
        wait_until("it is seen to be stopped", lambda: cloud.vm(VM)["power"] == "stopped")
        domain.create()
        wait_until("it is seen to run", lambda: cloud.vm(VM)["power"] == "running")
        nodes.nodes["n2"].stop()
        wait_until("n2 is seen to be away", lambda: _node(cloud, "n2") == "unreachable")
        nodes.nodes["n2"].start()
        wait_until("n2 is seen to be back", lambda: _node(cloud, "n2") == "in service")
        _lost_with_its_node(cloud)
        boots = cloud.boots(VM)
        _evicted(cloud)
        libvirt.open(nodes.nodes["n2"].uri).lookupByName(VM).undefine()
        nodes.nodes["n1"].start()
        libvirt.open(nodes.nodes["n1"].uri).lookupByName(VM).undefine()
        wait_until("it is seen to be gone", lambda: not cloud.ask("vm", "list")["items"])
        assert cloud.boots(VM) == boots
        _evicted_for_good(cloud)


def _give_pools(nodes):
    for node in nodes.nodes.values():
        node.path(DISK).parent.mkdir(parents=True, exist_ok=True)
        libvirt.open(node.uri).storagePoolDefineXML(POOL).create()
    with nodes.nodes["n1"].path(DISK).open("wb") as disk:
        disk.truncate(DISK_MIB * 1024 * 1024)


def _lost_with_its_node(cloud):
    """n1 is lost for good while no control plane runs: n2 alone knows how the VM was defined."""
    cloud.kill()
    cloud.nodes.nodes["n1"].stop()
    cloud.start()
    wait_until("n1 is seen to be away", lambda: _node(cloud, "n1") == "unreachable")
    assert cloud.states(VM) == {}
    boots = len(cloud.boots(VM))
    cloud.ask("node", "fail", "n1")
    assert cloud.wait_for_end()["status"] == "Completed", cloud.operations()[-1]
    wait_until("it has booted on n2", lambda: len(cloud.boots(VM)) == boots + 1)
    made = cloud.nodes.nodes["n2"].path(DISK)
    assert made.stat().st_size == DISK_MIB * 1024 * 1024


def _evicted(cloud):
    """Preempt, approved from inside; we die while the guest is waited for, which does not heed."""
    _answered(cloud)
    _killed_in(cloud, "deallocate", "vm", "evict", VM, when=_pressed)
    _was_told_of_its_preempt(cloud, VM)
    # Destroyed, and still there for whoever starts it.
    assert cloud.states(VM) == {"n2": libvirt.VIR_DOMAIN_SHUTOFF}
    assert cloud.vm(VM)["power"] == "deallocated"


def _evicted_for_good(cloud):
    """One whose policy is Delete is gone from its node."""
    cloud.run_vm(OTHER, OTHER_ADDRESS, "n2", labels=("priority=Spot", "eviction_policy=Delete"))
    cloud.declare()
    _answered(cloud, OTHER)
    cloud.ask("vm", "evict", OTHER)
    assert cloud.wait_for_end()["status"] == "Completed", cloud.operations()[-1]
    _was_told_of_its_preempt(cloud, OTHER)
    assert cloud.states(OTHER) == {}
    assert cloud.ask("vm", "list")["items"] == []


def _was_told_of_its_preempt(cloud, vm):
    """And has approved it, which is why it came."""
    assert any('"EventType":"Preempt"' in " ".join(words) for words in cloud.said(vm, guest.SAW))
    assert cloud.said(vm, guest.APPROVED)[-1][1] in cloud.operations()[-1]["events"]


def _rebooted_by_its_user(cloud):
    """It boots again, stays running in the fleet, and that is said once."""
    _answered(cloud)
    Event().wait(SAME_WITHIN_SECONDS)
    boots, said = len(cloud.boots(VM)), _told_of_reboots(cloud)
    wait_until("its user has asked for it", lambda: _asks_for_a_reboot(cloud))
    wait_until("it has booted again", lambda: len(cloud.boots(VM)) == boots + 1)
    _answered(cloud)
    assert _told_of_reboots(cloud) == said + 1
    assert cloud.vm(VM)["power"] == "running"
    assert len(cloud.boots(VM)) == boots + 1


def _told_of_reboots(cloud):
    """How often that was said, but for those of a guest that hung while it booted."""
    hung = cloud.nodes.console(VM).read_text(errors="replace").count(guest.HUNG)
    return cloud.log.read_text().count(SAID_OF_A_REBOOT) - hung


def _asks_for_a_reboot(cloud):
    into = f"echo | timeout 5 busybox nc {ADDRESS} {guest.REBOOT_PORT}"
    command = cloud.nodes.network.inside("sh", "-c", into)
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    # Once heard it is not said again, however the guest hangs up.
    return "refused" not in done.stderr


def _node(cloud, name):
    return next(one for one in cloud.ask("node", "list")["items"] if one["name"] == name)["state"]


# ---- Ways to a node ----

_DISCOVER = """
import asyncio, sys
from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt.driver import LibvirtDriver
from fairnotice.drivers.libvirt.settings import LibvirtSettings, NodeAddress

async def main():
    nodes = {"n2": NodeAddress(sys.argv[1])}
    driver = LibvirtDriver(LibvirtSettings(nodes=nodes), SystemClock())
    print(*[f"{one.vm} on {one.node}: {one.power}" for one in await driver.discover(1)])
    await driver.close()

asyncio.run(main())
"""


def test_the_driver_opens_a_node_by_tls(nodes, tmp_path):
    """With certificates of our own on both sides, and finds what is there."""
    pki = _certificates(tmp_path / "pki")
    node = nodes.nodes["n2"]
    node.stop()
    node.write(
        f'listen_tls = 1\nlisten_addr = "127.0.0.1"\nca_file = "{pki}/cacert.pem"\n'
        f'cert_file = "{pki}/clientcert.pem"\nkey_file = "{pki}/clientkey.pem"\n'
    )
    node.more = "--listen"
    node.start()
    uri = f"qemu+tls://127.0.0.1/system?pkipath={pki}"
    _finds_a_vm(nodes, node, nodes.network.inside(sys.executable, "-c", _DISCOVER, uri))


def test_the_driver_opens_the_node_that_it_runs_on(nodes):
    """As qemu:///system, which says no path: libvirtd is where it is by default."""
    node = nodes.nodes["n2"]
    _finds_a_vm(nodes, node, node.inside(sys.executable, "-c", _DISCOVER, "qemu:///system"))


def _finds_a_vm(nodes, node, command):
    domain = libvirt.open(node.uri).defineXML(nodes.domain_xml(VM, ADDRESS))
    set_label(domain, Label())
    deadline = CLOCK.monotonic() + 20
    while True:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False
        )
        if done.returncode == 0 or CLOCK.monotonic() > deadline:
            break
    assert done.stdout == f"{VM} on n2: stopped\n", done.stderr


def _certificates(folder):
    """One of our own, vouched for by itself's maker: for the server and for whoever asks it."""
    folder.mkdir()
    files = {
        name: str(folder / name)
        for name in (
            "cacert.pem",
            "cakey.pem",
            "clientcert.pem",
            "clientkey.pem",
            "request",
            "more",
        )
    }
    (folder / "more").write_text("subjectAltName=IP:127.0.0.1\n")
    make = ["openssl", "req", "-nodes", "-newkey", "rsa:2048", "-subj"]
    for command in (
        [*make, "/CN=tests", "-x509", "-keyout", files["cakey.pem"], "-out", files["cacert.pem"]],
        [*make, "/CN=127.0.0.1", "-keyout", files["clientkey.pem"], "-out", files["request"]],
        [
            "openssl",
            "x509",
            "-req",
            "-in",
            files["request"],
            "-CA",
            files["cacert.pem"],
            "-CAkey",
            files["cakey.pem"],
            "-set_serial",
            "1",
            "-extfile",
            files["more"],
            "-out",
            files["clientcert.pem"],
        ],
    ):
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    return folder
