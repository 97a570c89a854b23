"""What a node is told of itself beside what is missing: from libvirt's own files."""

import json
import os

import pytest

from fairnotice.endpoint.node_findings import not_called, out_of_place
from fairnotice.endpoint.node_setup import HOOK_FILE, Wanted
from tests.endpoint.test_places import LABEL, libvirt

MAC = "52:54:00:aa:bb:01"
# Than anything that is written while this runs; in seconds.
LATER = 2**31 - 9


@pytest.fixture
def wanted(tmp_path):
    """A node on which web-0 runs at vnet3, as libvirt has it."""
    domains = tmp_path / "domains"
    domains.mkdir()
    libvirt(domains, LABEL)
    return Wanted("br0", vms=tmp_path / "vms.json", domains=domains, leases=domains)


def told(wanted, vms):
    """Write this into the file of places."""
    wanted.vms.write_text(json.dumps({"vms": vms}))


def test_a_vm_that_the_file_does_not_have_is_named(wanted):
    """Started without a hook, or labeled since: it was nobody until then."""
    assert out_of_place(wanted) == ["web-0 is at vnet3 for libvirt, and at no port in the file"]
    place = {"port": "vnet3", "mac": MAC, "addresses": ["10.0.0.4", "10.0.0.5"]}
    told(wanted, {"": [place]})
    nobodys, web_0 = out_of_place(wanted)
    assert nobodys == (
        "domains that are no VMs by their labels are at no port for libvirt, and at vnet3 in the "
        "file"
    )
    assert web_0 == "web-0 is at vnet3 for libvirt, and at no port in the file"
    told(wanted, {"web-0": [place]})
    assert out_of_place(wanted) == []


def test_a_vm_at_another_port_or_with_other_addresses_is_named(wanted):
    """After a reboot by hand its port is another; after a lease its address is."""
    told(wanted, {"web-0": [{"port": "vnet1", "mac": MAC}]})
    assert out_of_place(wanted) == ["web-0 is at vnet3 for libvirt, and at vnet1 in the file"]
    told(wanted, {"web-0": [{"port": "vnet3", "mac": MAC, "addresses": ["10.0.0.4"]}]})
    assert out_of_place(wanted) == [
        "web-0 at vnet3 has other hardware or addresses for libvirt than in the file"
    ]


def test_where_somebody_else_says_who_is_where_libvirt_is_not_asked(wanted, tmp_path):
    """Nor where there is none."""
    told(wanted, {})
    assert out_of_place(Wanted("br0", vms=wanted.vms, domains=None)) == []
    assert out_of_place(Wanted("br0", vms=wanted.vms, domains=tmp_path / "none")) == []


def test_a_daemon_that_is_older_than_its_hook_is_named(tmp_path):
    """It looks for hooks when it starts; one that is gone needs no restart."""
    wanted, hook = Wanted("br0", hooks=tmp_path), tmp_path / HOOK_FILE
    pid = tmp_path / "virtqemud.pid"
    pid.write_text(f"{os.getpid()}\n")
    assert not_called(wanted, [pid]) == ""
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    os.utime(pid, (1, 1))
    assert not_called(wanted, [tmp_path / "none.pid", pid]) == "virtqemud"
    assert not_called(Wanted("br0"), [pid]) == ""

    os.utime(hook, (0, 0))
    assert not_called(wanted, [pid]) == ""
    os.utime(hook, (2, 2))
    assert not_called(wanted, [pid]) == "virtqemud"
    for nobody in ("999999999", "", "-1"):
        pid.write_text(nobody)
        os.utime(pid, (1, 1))
        assert not_called(wanted, [pid]) == ""


def test_a_daemon_that_had_a_hook_when_it_started_calls_them_all(tmp_path):
    """One that is written anew in its place, or beside another: no restart is needed for it."""
    wanted, hook = Wanted("br0", hooks=tmp_path), tmp_path / HOOK_FILE
    pid = tmp_path / "libvirtd.pid"
    pid.write_text(f"{os.getpid()}\n")
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    os.utime(hook, (2, 2))
    os.utime(pid, (1, 1))
    os.utime(hook.parent, (0, 0))
    assert not_called(wanted, [pid]) == ""

    for other in (tmp_path / "qemu", hook.parent / "10-other"):
        other.write_text("#!/bin/sh\n")
        # It starts after the other was written, and before ours was.
        os.utime(pid, (LATER, LATER))
        for ours in (hook, hook.parent):
            os.utime(ours, (LATER + 1, LATER + 1))
        assert not_called(wanted, [pid]) == "libvirtd"
        other.chmod(0o755)
        assert not_called(wanted, [pid]) == ""
        os.utime(pid, (1, 1))
        assert not_called(wanted, [pid]) == "libvirtd"
        other.unlink()
