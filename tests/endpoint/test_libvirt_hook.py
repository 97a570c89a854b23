"""libvirt says who is where: a hook under a real libvirtd, on two nodes, with real VMs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.vms.nodes import BRIDGE, Network, Node, missing, run

if missing():
    assert "CI" not in os.environ, missing()
    pytest.skip(missing(), allow_module_level=True)

import libvirt

from tests.endpoint.bridging import METADATA, BridgedNode
from tests.vms import guest
from tests.waiting import until

VM, MAC = "vm0", "52:54:00:00:00:0a"
LABEL = (
    "<metadata><f:vm xmlns:f='urn:fairnotice:libvirt:vm:1' name='web-0' addresses='10.77.0.10'/>"
    "</metadata>"
)
# A network of libvirt's own, with its DHCP server; without a packet filter of libvirt's.
OPEN_NETWORK = """<network><name>open</name><forward mode="open"/><bridge name="{bridge}"/>
<ip address="10.78.0.1" netmask="255.255.255.0"><dhcp>
<range start="10.78.0.2" end="10.78.0.9"/></dhcp></ip></network>"""
MIGRATE = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PEER2PEER
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
)


class HookedNode(Node):
    """A node in a network of its own, which node-setup has prepared."""

    def __init__(self, folder, name):
        self.network = Network()
        super().__init__(self.network, folder / name, name)
        self.folder = folder / name
        self.vms = self.folder / "vms.json"

    def setup(self, *words, bridge=BRIDGE):
        """`fairnotice node-setup`, where libvirtd has its files."""
        return run(*self._line(*words, bridge=bridge))

    def checked(self, bridge=BRIDGE):
        """What `--check` ends with, and what it finds."""
        line = self._line("--check", "--json", bridge=bridge)
        done = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        return done.returncode, json.loads(done.stdout)

    def _line(self, *words, bridge):
        mounts = " && ".join(
            f"mount --bind {self.folder}{place} {place}"
            for place in ("/etc/libvirt", "/run/libvirt")
        )
        command = [sys.executable, "-m", "fairnotice", "node-setup", "--bridge", bridge]
        command += ["--vms", str(self.vms), "--record", str(self.folder / "record"), *words]
        line = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]
        return self.network.inside(*line)

    def placed(self):
        """Who is where, as the file has it, and who is known to the packet filter."""
        return json.loads(self.vms.read_text())["vms"] if self.vms.exists() else None

    def filtered(self):
        """The VMs whose addresses the packet filter knows."""
        command = ("nft", "-j", "list", "set", "bridge", f"fairnotice_{BRIDGE}", "vms")
        (found,) = [
            one["set"] for one in json.loads(run(*self.network.inside(*command)))["nftables"][1:]
        ]
        return [one["concat"] for one in found.get("elem", [])]

    @contextlib.contextmanager
    def begun_anew(self):
        """With another libvirtd, which finds the VMs of the one before."""
        before = self.process
        pid = self.folder / "run" / "libvirt" / "libvirtd.pid"
        os.kill(int(pid.read_text()), signal.SIGTERM)
        until(lambda: not pid.exists(), "the end of libvirtd")
        self.socket.unlink(missing_ok=True)
        try:
            self.start()
            yield
        finally:
            before.send_signal(signal.SIGTERM)
            before.wait(30)

    def open(self):
        """A connection to its libvirtd."""
        return libvirt.open(self.uri)


@pytest.fixture
def nodes(tmp_path):
    """Two, joined by a wire between their bridges."""
    with contextlib.ExitStack() as stack:
        both = [HookedNode(tmp_path, name) for name in ("n1", "n2")]
        for node in both:
            stack.enter_context(node.network)
            node.write()
            stack.callback(node.stop)
        first, second = (node.network.name for node in both)
        run(*f"ip link add up0 netns {first} type veth peer name up0 netns {second}".split())
        for node in both:
            run("ip", "-n", node.network.name, *f"link set up0 master {BRIDGE} up".split())
            run("ip", "-n", node.network.name, *f"address del {METADATA}/32 dev {BRIDGE}".split())
        yield both


def domain(folder, name=VM):
    """A VM with a label."""
    xml = guest.domain_xml(name, "10.77.0.10", folder / f"{name}.console", BRIDGE)
    return xml.replace("<memory", f"{LABEL}<memory", 1)


def place(port, address="10.77.0.10"):
    """Where the VM is, as the file says it."""
    return {"web-0": [{"port": port, "mac": MAC, "addresses": [address]}]}


def test_a_vm_is_at_its_place_as_soon_as_it_runs_and_wherever_it_is_moved(nodes, tmp_path):
    """Started, moved, its libvirtd begun anew, ended; and nothing is left of it on the nodes."""
    first, second = nodes
    for node in nodes:
        node.setup("--apply")
        node.start()
    ended = first.open().defineXML(domain(tmp_path))
    ended.create()
    assert first.placed() == place("vnet0")
    assert first.filtered() == [["vnet0", MAC, "10.77.0.10"]]
    ended.migrateToURI3(second.uri, {"migrate_uri": f"unix://{tmp_path}/moving"}, MIGRATE)
    assert (first.placed(), second.placed()) == ({}, place("vnet0"))
    assert (first.filtered(), second.filtered()) == ([], [["vnet0", MAC, "10.77.0.10"]])
    second.vms.unlink()
    with second.begun_anew():
        until(lambda: second.placed() == place("vnet0"), "the hook of a libvirtd that is back")
        second.open().lookupByName(VM).destroy()
        assert (second.placed(), second.filtered()) == ({}, [])
    for node in nodes:
        node.setup("--undo")
        assert node.placed() is None
        assert list((node.folder / "etc" / "libvirt").rglob("*fairnotice*")) == []
        assert "fairnotice" not in run(*node.network.inside("nft", "list", "ruleset"))


def test_a_node_on_which_vms_run_already_knows_them_when_it_is_set_up(nodes, tmp_path):
    """Without the hook having seen them; in a network of libvirt's, where ports are its own."""
    node = nodes[0]
    node.start()
    connection = node.open()
    network = connection.networkCreateXML(OPEN_NETWORK.format(bridge="virbr7"))
    xml = domain(tmp_path).replace('type="bridge"', 'type="network"')
    xml = xml.replace(f'bridge="{BRIDGE}"', 'network="open"').replace("10.77.0.10", "10.78.0.7")
    vm = connection.createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED)
    assert "systemctl restart libvirtd" in node.setup("--apply", bridge="virbr7")
    port = vm.XMLDesc().partition("<target dev='")[2].partition("'")[0]
    assert node.placed() == place(port, "10.78.0.7")
    assert node.checked("virbr7")[1]["out_of_place"] == []
    node.vms.write_text(node.vms.read_text().replace("web-0", "web-1"))
    assert len(node.checked("virbr7")[1]["out_of_place"]) == 2
    node.setup("--refresh", bridge="virbr7")
    assert node.checked("virbr7")[1]["out_of_place"] == []
    node.setup("--undo", bridge="virbr7")
    assert node.placed() is None
    vm.destroy()
    network.destroy()


def test_a_libvirtd_that_does_not_know_its_hook_is_a_fault(nodes, tmp_path):
    """What is left to do is said by --apply, which does not fail, and is missing for --check."""
    node = nodes[0]
    node.start()
    said = node.setup("--apply")
    assert f"# {BRIDGE} is as it should be, but:\n# libvirtd runs since before its hook" in said
    assert "systemctl restart libvirtd" in said
    vm = node.open().createXML(domain(tmp_path), libvirt.VIR_DOMAIN_START_PAUSED)
    assert node.placed() == {}
    node.setup("--refresh")
    code, found = node.checked()
    assert (code, found["restart"], found["missing"], found["out_of_place"]) == (
        1,
        "libvirtd",
        [],
        [],
    )
    vm.destroy()
    assert node.placed() != {}
    with node.begun_anew():
        until(lambda: node.checked()[1]["restart"] is None, "a libvirtd that knows its hook")
        node.setup("--refresh")
        assert node.checked()[0] == 0
        vm = node.open().createXML(domain(tmp_path), libvirt.VIR_DOMAIN_START_PAUSED)
        assert node.placed() != {}
        vm.destroy()
        assert node.placed() == {}


def test_vms_that_start_at_once_all_have_their_place(nodes, tmp_path):
    """The hook of one must not write what it saw before another started."""
    node = nodes[0]
    node.setup("--apply")
    node.start()
    names = [f"vm{number}" for number in range(4)]

    def start(name):
        number = names.index(name)
        xml = domain(tmp_path, name).replace("name='web-0'", f"name='{name}'")
        xml = xml.replace(MAC, MAC[:-1] + str(number)).replace("10.77.0.10", f"10.77.0.2{number}")
        return node.open().createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED)

    with ThreadPoolExecutor(4) as pool:
        domains = list(pool.map(start, names))
    assert sorted(node.placed()) == names
    assert len(node.filtered()) == len(names)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: one.destroy(), domains))
    assert node.placed() == {}


def test_a_real_vm_is_answered_at_its_place_and_nowhere_else(nodes, tmp_path):
    """By the endpoint of its node, which asks the tables and libvirt's word for every poll."""
    first, _ = nodes
    first.setup("--apply")
    first.start()
    served = BridgedNode(tmp_path)
    served.name, served.bridge, served.vms, served.hosts = first.network.name, BRIDGE, first.vms, {}
    console = tmp_path / f"{VM}.console"

    def answers():
        return console.read_text(errors="replace").count(guest.TICK) if console.exists() else 0

    try:
        served.control_plane(addresses={"web-0": "10.77.0.10"})
        served.endpoint()
        vm = first.open().createXML(domain(tmp_path))
        until(lambda: answers() > 1, "an answer for the VM", 60)
        assert served.refused("vouched") > 0
        # Somebody says that another is there: the same VM, at the same port, is nobody.
        first.vms.write_text(first.vms.read_text().replace("web-0", "web-1"))
        until(lambda: served.refused("no_place") > 1, "a refusal")
        before = answers()
        first.setup("--refresh")
        until(lambda: answers() > before, "an answer again")
        vm.destroy()
    finally:
        served.end_all()
