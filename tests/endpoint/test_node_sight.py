"""What --check says to whoever may not look at all of a node: nothing, and least of all a fault."""

import shlex
import sys
import sysconfig
from pathlib import Path

import pytest

import fairnotice
from tests.endpoint.bridging import bridged_node, needs_a_bridge
from tests.endpoint.test_node_setup import flags, take_away
from tests.endpoint.test_places import LABEL, libvirt

pytestmark = needs_a_bridge


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with hosts and nothing else."""
    with bridged_node(tmp_path_factory.mktemp("sight")) as node:
        yield node


def as_nobody(*capabilities):
    """What a command is called by, so that it runs as a user who has only these."""
    given = ",".join(f"+{one}" for one in capabilities)
    nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
    return [*nobody, f"--inh-caps={given}", f"--ambient-caps={given}"]


def as_anybody_reads_it():
    """This Python and its packages as a user finds them who may not enter whoever's home.

    What calls it, and what makes that work in a /run of the node's own.
    """
    home, ours = Path(sys.base_prefix), Path(fairnotice.__file__).parents[1]
    places = {"home": home, "ours": ours, "packages": Path(sysconfig.get_path("purelib"))}
    bound = [
        f"mkdir -p /run/{name} && mount --bind {shlex.quote(str(path))} /run/{name}"
        for name, path in places.items()
    ]
    program = Path(sys.executable).resolve().relative_to(home)
    variables = {
        "PYTHONHOME": "/run/home",
        "PYTHONPATH": "/run/ours:/run/packages",
        "LD_LIBRARY_PATH": "/run/home/lib",
    }
    python = ["env", *(f"{name}={value}" for name, value in variables.items())]
    return [*python, f"/run/home/{program}"], " && ".join(bound)


def test_who_may_not_look_finds_nothing(node):
    """What is only out of sight is not said to be missing; with what it takes, it is seen."""
    words = flags(node, hooks=False)
    command = [sys.executable, "-m", "fairnotice", "node-setup", *words, "--check"]
    sees_it = ("net_admin", "dac_read_search")
    for prepare, code, said in (
        ("--apply", 0, "br0 is as it should be."),
        ("--undo", 1, "missing: no VM claims"),
    ):
        node.setup(*words, prepare)
        seen = node.on_node([*as_nobody(*sees_it), *command], check=False)
        assert (seen.returncode, seen.stdout.startswith(said)) == (code, True), seen
        for line in (command, [*command, "--json"]):
            found = node.on_node([*as_nobody("dac_read_search"), *line], check=False)
            assert (found.returncode, found.stdout) == (2, "")
            assert "nft list tables failed: Operation not permitted" in found.stderr
            assert "Only root can look at all of it: sudo fairnotice node-setup" in found.stderr

    # Typed by hand: the kernel is asked, in a network that not everybody may make.
    node.on_node(["sh", "-ec", node.setup(*words)])
    found = node.on_node([*as_nobody(*sees_it), *command], check=False)
    assert (found.returncode, "unshare --net true failed" in found.stderr) == (2, True), found
    seen = node.on_node([*as_nobody(*sees_it, "sys_admin"), *command])
    assert seen.startswith("br0 is as it should be.\n")
    take_away(node, words)


def test_a_vm_of_libvirts_that_is_out_of_sight_is_not_out_of_place(node, tmp_path):
    """What libvirt knows, it keeps for root."""
    libvirt(tmp_path, LABEL)
    words = ["--bridge", "br0", "--vms", "/run/vms.json", "--record", "/run/record", "--check"]
    python, environment = as_anybody_reads_it()
    command = [*as_nobody("net_admin"), *python, "-m", "fairnotice", "node-setup", *words]
    known = "/run/libvirt/qemu/web.xml"
    line = (
        "mount -t tmpfs none /run && chmod 755 /run && mkdir -p /run/libvirt/qemu && "
        f"cp {tmp_path}/guest-7.xml {known} && chmod 600 {known} && "
        f"{environment} && {shlex.join(command)}"
    )
    found = node.on_node(["sh", "-c", line], check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert f"{known} cannot be read: Permission denied. Only root" in found.stderr
    folder = line.replace(f"chmod 600 {known}", "chmod 700 /run/libvirt/qemu")
    found = node.on_node(["sh", "-c", folder], check=False)
    assert (found.returncode, "/run/libvirt/qemu cannot be read" in found.stderr) == (2, True)


def test_what_no_root_could_see_is_not_said_to_be_out_of_sight(node):
    """A record that is damaged: sudo would not help."""
    words = flags(node, hooks=False)
    record = Path(words[words.index("--record") + 1])
    record.mkdir(parents=True, exist_ok=True)
    damaged = record / "br0.json"
    damaged.write_text("{")
    command = [sys.executable, "-m", "fairnotice", "node-setup", *words, "--check"]
    found = node.on_node([*as_nobody("net_admin", "dac_read_search"), *command], check=False)
    damaged.unlink()
    assert (found.returncode, found.stdout) == (2, "")
    assert "the record of what was done, cannot be read" in found.stderr
    assert "Only root" not in found.stderr
