"""A node is set up, again, and back; and a VM that others lie about is answered meanwhile."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from fairnotice.client.discovery import leased_address
from fairnotice.endpoint.node_setup import HOOK_FILE
from tests.endpoint.bridging import (
    ADDRESSES,
    CLASSIC,
    MACS,
    METADATA,
    PATH,
    bridged_node,
    needs_a_bridge,
    run,
)
from tests.waiting import until

pytestmark = needs_a_bridge

# What udhcpc calls with what it was told.
HEARD = """#!/bin/sh
[ "$1" = bound ] && echo "option_245=$opt245" > "{file}"
exit 0
"""
# The command, killed before or after its so-manieth line.
KILLED = """
import os, signal, sys
from fairnotice.cli.main import main
from fairnotice.endpoint.node_deeds import Line
when, number = sys.argv[1].split()
do, done = Line.do, []
def killed(line):
    done.append(line)
    if when == "after":
        do(line)
    if len(done) == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    if when == "before":
        do(line)
Line.do = killed
main(["node-setup", *sys.argv[2:]])
"""
# The command, where nft is not installed.
WITHOUT_NFT = """
import shutil, sys
from fairnotice.cli.main import main
which = shutil.which
shutil.which = lambda name, **more: None if name == "nft" else which(name, **more)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with hosts and nothing else."""
    with bridged_node(tmp_path_factory.mktemp("node")) as node:
        # Until the kernel has nothing more to say of the addresses that it gave itself.
        until(lambda: "tentative" not in node.on_node("ip addr"), "an address")
        yield node


def flags(node, *, hooks=True):
    """How the command is called here: nothing of the machine's own is touched."""
    libvirt = (
        ("--libvirt-hooks", str(node.folder / "etc" / "hooks")) if hooks else ("--no-libvirt",)
    )
    return (
        *("--bridge", "br0", "--vms", str(node.vms)),
        *("--record", str(node.folder / "record")),
        *("--dnsmasq", str(node.folder / "dnsmasq")),
        *libvirt,
    )


def state(node):
    """All of a node that may be changed, as text."""
    lines = ("ip addr", "ip route show table all", "ip rule", "bridge link", "bridge vlan")
    shown = [node.on_node(line) for line in lines]
    shown.append(node.on_node("nft list ruleset"))
    shown.append(node.on_node("cat /sys/class/net/br0/bridge/no_linklocal_learn"))
    shown.append(
        node.on_node("sh -c 'grep -r . /proc/sys/net/ipv4/conf /proc/sys/net/bridge || :'")
    )
    files = sorted(path for path in node.folder.rglob("*") if "log-" not in path.name)
    return [*shown, *(f"{path} {path.read_text() if path.is_file() else ''}" for path in files)]


def test_applied_repeated_and_undone_it_is_as_it_was(node):
    """Byte for byte; and what was printed is what is done."""
    (node.folder / "dnsmasq").mkdir()
    (node.folder / "dnsmasq" / "fairnotice.conf").write_text("# somebody's\n")
    before = state(node)
    printed = node.setup(*flags(node))
    assert state(node) == before
    assert node.setup(*flags(node), "--check", check=False).returncode == 1

    done = node.setup(*flags(node), "--apply")
    after = state(node)
    assert [line for line in done.splitlines() if line[:1] != "#" and line not in printed] == []
    assert node.setup(*flags(node), "--check").startswith("br0 is as it should be.\n")
    assert METADATA in after[0]
    assert CLASSIC in after[0]
    again = json.loads(node.setup(*flags(node), "--apply", "--json"))
    assert (again["bridge"], again["done"]) == ("br0", [])
    assert state(node) == after

    node.setup(*flags(node), "--undo")
    assert state(node) == before
    assert json.loads(node.setup(*flags(node), "--undo", "--json"))["undone"] == []
    (node.folder / "dnsmasq" / "fairnotice.conf").unlink()


def test_what_was_typed_by_hand_is_not_said_to_be_undone(node):
    """It is not recorded: it is said what is still there, and how it would go."""
    clean = state(node)
    nothing = node.setup(*flags(node), "--undo")
    assert "Nothing is recorded for br0" in nothing
    assert "Still there" not in nothing
    node.on_node(["sh", "-ec", node.setup(*flags(node))])
    before = state(node)
    assert METADATA in before[0]

    told = node.setup(*flags(node), "--undo")
    assert "so nothing was undone" in told
    assert "is undone" not in told
    assert state(node) == before
    found = json.loads(node.setup(*flags(node), "--undo", "--json"))
    assert (found["undone"], found["recorded"]) == ([], False)
    assert [line for line in found["still_there"] if f"#   {line}" not in told] == []
    node.on_node(["sh", "-ec", "\n".join(found["still_there"])])
    after = node.setup(*flags(node), "--undo")
    assert "Still there" not in after
    assert METADATA not in node.on_node("ip addr")
    assert "fairnotice" not in node.on_node("nft list ruleset")
    for name, value in (("rp_filter", 0), ("arp_announce", 0)):
        node.on_node(f"sh -c 'echo {value} > /proc/sys/net/ipv4/conf/br0/{name}'")
    node.on_node("sh -c 'echo 0 > /sys/class/net/br0/bridge/no_linklocal_learn'")
    for folder in ("etc/hooks/qemu.d", "etc/hooks", "etc", "dnsmasq"):
        if not any((node.folder / folder).iterdir()):
            (node.folder / folder).rmdir()
    assert state(node)[:7] == clean[:7]


def take_away(node, words):
    """What was typed by hand, so that the node is as it was."""
    for line in json.loads(node.setup(*words, "--undo", "--json"))["still_there"]:
        node.on_node(["sh", "-ec", line])
    for name in ("rp_filter", "arp_announce"):
        node.on_node(f"sh -c 'echo 0 > /proc/sys/net/ipv4/conf/br0/{name}'")
    node.on_node("sh -c 'echo 0 > /sys/class/net/br0/bridge/no_linklocal_learn'")


def test_what_was_typed_by_hand_is_as_it_should_be(node):
    """Nobody recorded it: the kernel is asked; and who is plugged in where it is told later on."""
    node.place()
    words = flags(node, hooks=False)
    table = "bridge fairnotice_br0"
    node.on_node(["sh", "-ec", node.setup(*words)])
    assert node.setup(*words, "--check").startswith("br0 is as it should be.\n")
    node.place(a="fn-a7")
    node.setup(*words, "--refresh")
    assert "fn-a7" in node.on_node(f"nft list set {table} ports")
    assert node.setup(*words, "--check").startswith("br0 is as it should be.\n")

    def left():
        found = node.setup(*words, "--check", "--json", check=False)
        assert found.returncode == 1
        return [one["key"] for one in json.loads(found.stdout)["missing"]]

    # Of other flags; less than it was; more; and half of it.
    rules = node.setup(*words).split("\n\n")[0]
    for otherwise in (
        ["sh", "-ec", node.setup(*words, "--no-classic").split("\n\n")[0]],
        f"nft flush chain {table} forward",
        f"nft insert rule {table} prerouting accept",
        "nft delete table inet fairnotice_br0",
    ):
        node.on_node(otherwise)
        assert left() == ["rules fairnotice_br0"]
        node.on_node(["sh", "-ec", rules])
        node.setup(*words, "--refresh")
        assert node.setup(*words, "--check").startswith("br0 is as it should be.\n")
    take_away(node, words)
    node.place()


def test_what_was_typed_by_hand_says_what_fills_it(node):
    """The lines end with the command that tells who is plugged in where: with the same flags."""
    words = flags(node, hooks=False)
    node.vms.unlink()
    node.on_node(["sh", "-ec", node.setup(*words)])
    node.place()
    command = node.setup(*words).splitlines()[-1].removeprefix("# ")
    assert json.loads(node.setup(*words, "--json"))["refresh"] == command
    program, name, *rest = shlex.split(command)
    assert (program, name, "--refresh" in rest) == ("fairnotice", "node-setup", True)
    node.setup(*rest)
    assert "fn-a" in node.on_node("nft list set bridge fairnotice_br0 ports")
    take_away(node, words)


def test_what_was_there_already_stays(node):
    """An address and a setting that somebody else made are not ours to take."""
    node.on_node(f"ip addr add {METADATA}/32 dev br0")
    node.on_node("sh -c 'echo 1 > /proc/sys/net/ipv4/conf/br0/rp_filter'")
    before = state(node)
    node.setup(*flags(node), "--apply")
    node.setup(*flags(node), "--undo")
    assert state(node) == before
    node.on_node(f"ip addr del {METADATA}/32 dev br0")
    node.on_node("sh -c 'echo 0 > /proc/sys/net/ipv4/conf/br0/rp_filter'")


def test_what_somebody_changed_since_is_his(node):
    """Undone is what is still as it was done."""
    node.setup(*flags(node), "--apply")
    node.on_node("sh -c 'echo 2 > /proc/sys/net/ipv4/conf/br0/rp_filter'")
    node.on_node(f"ip addr del {CLASSIC}/32 dev br0")
    node.setup(*flags(node), "--undo")
    assert node.on_node("cat /proc/sys/net/ipv4/conf/br0/rp_filter") == "2\n"
    assert METADATA not in node.on_node("ip addr")
    node.on_node("sh -c 'echo 0 > /proc/sys/net/ipv4/conf/br0/rp_filter'")


def test_what_all_interfaces_are_set_to_is_said(node):
    """The larger counts: the bridge's own is right, and void."""
    node.setup(*flags(node), "--apply")
    for name, value in (("route_localnet", 1), ("arp_accept", 1), ("rp_filter", 2)):
        file = f"/proc/sys/net/ipv4/conf/all/{name}"
        node.on_node(f"sh -c 'echo {value} > {file}'")
        found = node.setup(*flags(node), "--check", check=False)
        assert (found.returncode, f"{file} is {value}" in found.stdout) == (1, True), found
        assert f"as it should be, but:\n# {file}" in node.setup(*flags(node), "--apply")
        node.on_node(f"sh -c 'echo 0 > {file}'")
        assert node.setup(*flags(node), "--check")
    node.setup(*flags(node), "--undo")


def test_the_nodes_own_loopback_is_not_reached(tmp_path):
    """Not even where somebody lets all interfaces route to it."""
    with bridged_node(tmp_path) as node:
        words = [sys.executable, "-m", "http.server", "8099", "--bind", "127.0.0.1"]
        line = ["ip", "netns", "exec", node.name, *words]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(line, cwd=tmp_path, **silent)  # noqa: S603 - our own
        node.processes.append(server)
        for on in (node.on_node, lambda line: node.on("b", line)):
            on("sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet'")
        node.on("b", "ip addr flush dev lo")
        node.on("b", "ip route add 127.0.0.1/32 via 10.79.0.1 dev eth0 src 10.79.0.12")

        def reached():
            asked = "curl -s -m 1 -o /dev/null -w %{http_code} --interface eth0"
            return node.on("b", f"{asked} http://127.0.0.1:8099/", check=False).stdout == "200"

        until(reached, "the loopback of a node that is not set up")
        node.setup(*flags(node, hooks=False), "--apply")
        assert not reached()


def test_other_flags_take_back_what_they_do_not_want(node):
    """What was done for others is not left behind; and the undo goes back to the beginning."""
    (node.folder / "dnsmasq").mkdir(exist_ok=True)
    before = state(node)
    node.setup(*flags(node), "--apply")
    fewer = (*flags(node, hooks=False), "--no-classic")
    checked = json.loads(node.setup(*fewer, "--check", "--json", check=False).stdout)
    assert f"address {CLASSIC} br0" in checked["left_over"]
    node.setup(*fewer, "--apply")
    assert CLASSIC not in node.on_node("ip addr") + node.on_node("nft list ruleset")
    assert list((node.folder / "etc").rglob("*fairnotice*")) == []
    assert node.setup(*fewer, "--check").startswith("br0 is as it should be.\n")
    node.setup(*fewer, "--undo")
    assert state(node) == before


@pytest.mark.parametrize("moment", ["before 1", "after 1", "before 4", "after 4", "after 8"])
def test_a_kill_in_between_is_undone_too(node, moment):
    """Killed before or after something is done: it is taken back, or completed, to the byte."""
    before = state(node)
    line = [sys.executable, "-c", KILLED, moment, *flags(node), "--apply"]
    killed = node.on_node(line, check=False)
    assert killed.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}, killed
    assert state(node) != before
    if "after" in moment:
        node.setup(*flags(node), "--apply")
        assert node.setup(*flags(node), "--check").startswith("br0 is as it should be.\n")
    node.setup(*flags(node), "--undo")
    assert state(node) == before


def test_what_fails_in_the_middle_is_undone_too(node):
    """The last step cannot be done: it is said, and the undo goes back to the byte."""
    in_the_way = node.folder / "dnsmasq"
    if in_the_way.is_dir():
        in_the_way.rmdir()
    in_the_way.write_text("no folder\n")
    before = state(node)
    failed = node.setup(*flags(node), "--apply", check=False)
    assert (failed.returncode, "cannot be written" in failed.stderr) == (2, True), failed.stderr
    assert METADATA in node.on_node("ip addr")
    node.setup(*flags(node), "--undo")
    assert state(node) == before
    in_the_way.unlink()


def test_an_undo_that_cannot_be_ended_says_what_is_left(node):
    """Without nft: what was done is said before, and what is not at the end; then it goes on."""
    before = state(node)
    node.setup(*flags(node), "--apply")
    words = ["node-setup", *flags(node), "--undo"]
    line = shlex.join([sys.executable, "-c", WITHOUT_NFT, *words])
    done = node.on_node(["sh", "-c", f"{line} 2>&1"], check=False)
    *lines, last = done.stdout.splitlines()
    assert done.returncode == 2
    assert lines[-1].startswith("echo 0 > ")
    assert "in the package nftables. Not undone yet: rules fairnotice_br0" in last
    assert last.endswith("Once that is mended, run it again (--bridge br0 --undo).")
    assert METADATA not in node.on_node("ip addr")
    node.setup(*flags(node), "--undo")
    assert state(node) == before


def test_a_bridge_that_is_gone_is_undone_too(tmp_path):
    """What is left of it is not its addresses and settings, but its rules and files."""
    with bridged_node(tmp_path) as node:
        words = flags(node)
        node.setup(*words, "--apply")
        files = sorted(path for path in tmp_path.rglob("*") if "fairnotice" in path.name)
        node.on_node("ip link del br0")
        node.setup(*words, "--undo")
        assert "fairnotice" not in node.on_node("nft list ruleset")
        assert files
        assert not any(path.exists() for path in files)
        assert not (tmp_path / "record").exists()


def test_who_sees_whose_frames_is_said(node):
    """And is no fault: VMs of one owner may."""
    node.place()
    words = (*flags(node, hooks=False), "--check", "--json")

    def seen():
        return json.loads(node.setup(*words, check=False).stdout)["not_isolated"]

    assert seen() == ["fn-a", "fn-b", "fn-c"]
    node.on_node("bridge link set dev fn-a isolated on")
    assert seen() == ["fn-b", "fn-c"]
    node.on_node("bridge link set dev fn-b isolated on")
    assert seen() == []
    for letter in "ab":
        node.on_node(f"bridge link set dev fn-{letter} isolated off")


def test_ports_that_are_nobodys_are_named(node):
    """A domain without a label may be no VM at all: it is said, and is no fault."""
    node.setup(*flags(node, hooks=False), "--apply")
    vms = {"a": [{"port": "fn-a"}], "": [{"port": "fn-c"}, {"port": "fn-b"}]}
    node.vms.write_text(json.dumps({"vms": vms}))
    words = (*flags(node, hooks=False), "--check")
    assert "nobody, and answered 403: fn-b, fn-c. A domain is a VM by" in node.setup(*words)
    assert json.loads(node.setup(*words, "--json"))["nobodys"] == ["fn-b", "fn-c"]
    node.place()
    assert "nobody" not in node.setup(*words)
    node.setup(*flags(node, hooks=False), "--undo")


def test_a_node_has_one_bridge_for_its_vms(node):
    """Each bridge's rules keep the others' VMs from the endpoint: a second one is refused."""
    node.on_node("ip link add br1 type bridge")
    node.setup(*flags(node), "--apply")
    after = state(node)
    refused = node.setup(*flags(node), "--bridge", "br1", "--apply", check=False)
    assert (refused.returncode, "set up for br0" in refused.stderr) == (2, True), refused.stderr
    assert state(node) == after
    node.setup(*flags(node), "--undo")
    node.on_node("ip link del br1")


def test_a_bridge_that_was_set_up_by_hand_is_the_one_for_vms_too(node):
    """Nobody recorded it: it is known by what is there, and what is said to be done helps."""
    node.on_node("ip link add br1 type bridge")
    hook = node.folder / "etc" / "hooks" / HOOK_FILE
    node.on_node(["sh", "-ec", node.setup(*flags(node))])
    node.setup(*flags(node), "--apply")
    assert not (node.folder / "record").exists()
    second = ("--bridge", "br1", "--apply")

    def refused(*what):
        before = state(node)
        found = node.setup(*flags(node), *second, check=False)
        assert found.returncode == 2
        assert f"already, without a record: {', '.join(what)}. A node" in found.stderr
        assert "--bridge br0 --undo says how" in found.stderr
        assert state(node) == before

    bridge, inet = (f"the table {family} fairnotice_br0" for family in ("bridge", "inet"))
    refused(bridge, inet, f"the hook {hook}")
    node.on_node("nft delete table bridge fairnotice_br0")
    refused(inet, f"the hook {hook}")
    # What is left after a reboot; and it need not be what these flags would write.
    node.on_node("nft delete table inet fairnotice_br0")
    hook.write_text(hook.read_text().replace(sys.executable, "/opt/python"))
    refused(f"the hook {hook}")
    hook.unlink()
    take_away(node, flags(node))

    for others in ("#!/bin/sh\n# somebody's\n", "\x00", ""):
        hook.write_text(others)
        node.setup(*flags(node), *second)
        node.setup(*flags(node), "--bridge", "br1", "--undo")
        assert hook.read_text() == others
    shutil.rmtree(node.folder / "etc")
    node.on_node("ip link del br1")


def test_who_may_not_or_cannot_is_told_why(node):
    """In a sentence, with exit code 2, and nothing is done."""
    before = state(node)
    for words, said in (
        (("--bridge", "br7"), "There is no interface br7 here. Bridges of this machine: br0."),
        (("--bridge", "lo"), "lo is no bridge. Bridges of this machine: br0."),
        (("--bridge", "../br0"), "no name of an interface"),
        (("--bridge", "br0", "--interface", "br0.10"), "There is no interface br0.10"),
    ):
        refused = node.setup(*words, "--apply", check=False)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    command = [sys.executable, "-m", "fairnotice", "node-setup", *flags(node), "--apply"]
    nobody = subprocess.run(  # noqa: S603 - our own
        ["setpriv", "--reuid=65534", "--clear-groups", *command],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": PATH},
    )
    assert (nobody.returncode, "Only root" in nobody.stderr) == (2, True), nobody.stderr
    assert state(node) == before


def test_a_vm_that_others_lie_about_goes_on_being_answered(node):
    """With the rules: the lie goes nowhere, and the neighbour stays where it is."""
    node.setup(*flags(node, hooks=False), "--apply")
    node.control_plane()
    node.endpoint()
    node.answered("a")
    node.take("b", address=ADDRESSES["a"])
    node.lie("b", ADDRESSES["a"])
    assert node.status("b", ADDRESSES["a"], seconds=1) == 0
    assert node.status("a") == 200

    run(f"ip -n {node.hosts['b']} addr flush dev eth0")
    node.take("b", address=ADDRESSES["a"], mac=MACS["a"])
    run(f"ip -n {node.hosts['b']} route replace default via 10.79.0.1")
    for _ in range(3):
        assert node.status("b", seconds=1) == 0
        assert node.status("a") == 200
    assert node.refused("other_port") == node.refused("other_mac") == 0
    # Nor does anybody else become the address at which VMs ask.
    node.take("b", address=METADATA, mac=MACS["b"])
    node.lie("b", METADATA)
    assert node.status("a") == 200
    node.setup(*flags(node, hooks=False), "--undo")


def test_a_dhcp_client_is_told_where_to_ask(node):
    """A real server with what node-setup wrote, a real client, and our own reading of its lease."""
    node.setup(*flags(node, hooks=False), "--apply")
    conf = node.folder / "dnsmasq" / "fairnotice.conf"
    words = ["dnsmasq", "--no-daemon", f"--conf-file={conf}", "--interface=br0", "--no-ping"]
    words += ["--bind-interfaces", "--port=0", "--no-resolv", "--dhcp-range=10.79.0.50,10.79.0.60"]
    words += [f"--dhcp-host={MACS['c']},{ADDRESSES['c']}", "--leasefile-ro"]
    server = subprocess.Popen(  # noqa: S603 - our own
        ["ip", "netns", "exec", node.name, *words],  # noqa: S607
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": PATH},
    )
    node.processes.append(server)
    heard, script = node.folder / "lease", node.folder / "heard.sh"
    script.write_text(HEARD.format(file=heard))
    script.chmod(0o755)
    ask = f"busybox udhcpc -i eth0 -O 245 -n -q -f -t 5 -T 1 -s {script}"
    node.on("c", ask)
    assert leased_address(heard.read_text()) == CLASSIC
    node.setup(*flags(node, hooks=False), "--undo")
