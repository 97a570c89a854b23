"""Which VM is plugged in where: the file, and how it is made from what libvirt keeps."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairnotice.drivers.libvirt import labels
from fairnotice.endpoint import libvirt_places, node_setup, places
from fairnotice.endpoint.places import Place, PlacesFile
from fairnotice.errors import UsageError

DOMAIN = """<domstatus state='running' reason='booted' pid='17'>
  <domain type='kvm' id='3'>
    <name>guest-7</name>
    <metadata>{label}</metadata>
    <devices>
      <interface type='network'>
        <mac address='52:54:00:AA:BB:01'/>
        <source network='default' portid='x'/>
        <actual type='network'><source bridge='{bridge}'/></actual>
        <target dev='vnet3'/>
      </interface>
      <interface type='user'><mac address='52:54:00:aa:bb:02'/></interface>
    </devices>
  </domain>
</domstatus>"""
NAMELESS = "<f:vm xmlns:f='urn:fairnotice:libvirt:vm:1'/>"
LABEL = "<f:vm xmlns:f='urn:fairnotice:libvirt:vm:1' name='web-0' addresses='10.0.0.4'/>"
LEASES = [{"ip-address": "10.0.0.5", "mac-address": "52:54:00:aa:bb:01", "expiry-time": 1}]


def libvirt(folder, label=NAMELESS, bridge="br0", leases=LEASES):
    """What libvirt keeps about one domain."""
    (folder / "guest-7.xml").write_text(DOMAIN.format(label=label, bridge=bridge))
    (folder / "broken.xml").write_text("<domstatus>")
    (folder / "br0.status").write_text(json.dumps(leases))
    return folder


def test_a_domain_is_found_at_its_port(tmp_path):
    """By its own name, with the address that it was given."""
    found = libvirt_places.places("br0", libvirt(tmp_path), tmp_path)

    assert found == {"guest-7": (Place("vnet3", "52:54:00:aa:bb:01", ("10.0.0.5",)),)}


def test_a_label_says_what_the_fleet_calls_it(tmp_path):
    """And its addresses."""
    found = libvirt_places.places("br0", libvirt(tmp_path, LABEL), tmp_path)

    assert found == {"web-0": (Place("vnet3", "52:54:00:aa:bb:01", ("10.0.0.4", "10.0.0.5")),)}


def test_who_is_whom_is_said_by_labels_and_by_one_alone(tmp_path, caplog):
    """A domain that is only called like a VM is nobody; of two that claim to be one, neither is."""
    port = Place("vnet3", "52:54:00:aa:bb:01", ("10.0.0.5",))
    libvirt(tmp_path, label="")
    assert libvirt_places.places("br0", tmp_path, tmp_path) == {"": (port,)}

    named = DOMAIN.replace("vnet3", "vnet4").replace("guest-7", "zz")
    (tmp_path / "zz.xml").write_text(
        named.format(label=NAMELESS.replace("/>", " name='guest-7'/>"), bridge="br0")
    )
    found = libvirt_places.places("br0", tmp_path, tmp_path)
    assert found == {"": (port,), "guest-7": (port._replace(port="vnet4"),)}

    libvirt(tmp_path)
    found = libvirt_places.places("br0", tmp_path, tmp_path)
    assert found == {"": (port, port._replace(port="vnet4"))}
    assert "2 domains say that they are guest-7" in caplog.text


def test_another_bridges_domain_and_one_that_ends_are_not_here(tmp_path):
    """Nor is anything where libvirt keeps nothing."""
    assert libvirt_places.places("br0", libvirt(tmp_path, bridge="br1"), tmp_path) == {}
    ending = libvirt_places.places("br0", libvirt(tmp_path), tmp_path, without="guest-7")
    assert ending == {}
    assert libvirt_places.places("br0", tmp_path / "none", tmp_path) == {}


def test_leases_that_are_no_leases_are_no_addresses(tmp_path):
    """A DHCP server's file may be anything."""
    for leases in (7, [7], [{"mac-address": 7}], {}):
        found = libvirt_places.places("br0", libvirt(tmp_path, leases=leases), tmp_path)
        assert found["guest-7"][0].addresses == ()


def test_what_is_written_is_read():
    """All of it."""
    known = {
        "a": (Place("vnet0", "52:54:00:00:00:01", ("10.0.0.1", "2001:db8::1")), Place("vnet1")),
        "ä b": (),
    }

    assert places.parsed(places.written(known).encode(), "here") == known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "no vms"),
        ('{"vms": []}', "no vms"),
        ('{"vms": {"a": {}}}', "a is a list"),
        ('{"vms": {"a": [{"mac": "52:54:00:00:00:01"}]}}', "port is None"),
        ('{"vms": {"a": [{"port": "a/b"}]}}', "port is 'a/b'"),
        (r'{"vms": {"a": [{"port": "x\"}"}]}}', "port is 'x\"}'"),
        ('{"vms": {"a": [{"port": "v*"}]}}', "port is 'v*'"),
        ('{"vms": {"a": [{"port": "vnet0", "mac": "52:54"}]}}', "mac is '52:54'"),
        ('{"vms": {"a": [{"port": "vnet0", "addresses": "10.0.0.1"}]}}', "addresses is a list"),
        ('{"vms": {"a": [{"port": "vnet0", "addresses": ["x"]}]}}', "addresses: 'x'"),
        ('{"vms": {"a": [{"port": "vnet0", "prot": 1}]}}', "nothing else"),
    ],
)
def test_what_does_not_fit_is_said(text, said):
    """With the name of the file."""
    with pytest.raises(UsageError, match=r"^here") as refused:
        places.parsed(text.encode(), "here")
    assert said in str(refused.value)


def test_a_file_that_changes_is_read_again(tmp_path):
    """One that is not there, or is wrong, places nobody."""
    path = tmp_path / "vms.json"
    file = PlacesFile(path)
    assert file.of("a") == ()
    path.write_text(places.written({"a": (Place("vnet0"),)}))
    assert file.of("a") == (Place("vnet0"),)
    path.write_text("{")
    assert file.of("a") == ()
    assert "no JSON" in file.trouble
    new = tmp_path / "new"
    new.write_text(places.written({"a": (Place("vnet1"),)}))
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    new.replace(path)
    assert (file.of("a"), file.trouble) == ((Place("vnet1"),), "")


def test_a_refresh_writes_the_file_whole(tmp_path):
    """From libvirt where it is; and where it is not, what somebody else wrote stays."""
    here = {
        "records": tmp_path / "record",
        "vms": tmp_path / "run" / "vms.json",
        "leases": tmp_path,
    }
    wanted = node_setup.Wanted("br0", domains=libvirt(tmp_path, LABEL), **here)
    assert node_setup.refresh(wanted) == 1
    assert places.read(wanted.vms)["web-0"][0].port == "vnet3"
    assert [path.name for path in wanted.vms.parent.iterdir()] == ["vms.json"]
    elsewhere = node_setup.Wanted("br0", domains=tmp_path / "none", **here)
    assert node_setup.refresh(elsewhere) == 1
    assert node_setup.refresh(wanted, without="guest-7") == 0
    assert places.read(wanted.vms) == {}


def test_a_hook_that_waits_while_everything_is_taken_back_leaves_nothing_behind(tmp_path):
    """A domain starts during `--undo`: its hook comes after, and is gone itself by then."""
    hook, record = tmp_path / "50-fairnotice", tmp_path / "record"
    hook.write_text("#!/bin/sh\n")
    record.mkdir()
    before = {"text": None, "mode": 0o755, "folders": []}
    deed = ["file", str(hook), hook.read_text(), 0o755]
    kept = {f"file {hook}": {"before": before, "ours": hook.read_text(), "deed": deed}}
    (record / "br0.json").write_text(json.dumps({"deeds": kept}))
    domains = libvirt(tmp_path, LABEL)
    wanted = node_setup.Wanted(
        "br0", domains=domains, records=record, vms=tmp_path / "run" / "vms.json", leases=tmp_path
    )
    with ThreadPoolExecutor(1) as pool:
        calls = []

        def begin(_):
            calls.append(pool.submit(node_setup.refresh, wanted, hook=hook))

        assert node_setup.undo(wanted, begin) == 1
        assert calls[0].result() == 0
    assert not wanted.vms.exists()
    assert not record.exists()


@pytest.mark.parametrize(
    "port", ["vnetü", "x&quot;}", "v*", "a\\b", "much-too-long-for-a-port", ""]
)
def test_one_domains_port_puts_no_other_out(tmp_path, port, caplog):
    """What the file could not say, or nft would read as something else, is left out and said."""
    libvirt(tmp_path)
    other = DOMAIN.format(label=NAMELESS, bridge="br0").replace("guest-7", "evil")
    (tmp_path / "evil.xml").write_text(other.replace("vnet3", port))

    found = libvirt_places.places("br0", tmp_path, tmp_path)

    assert list(found) == ["guest-7"]
    assert places.parsed(places.written(found).encode(), "here") == found
    assert ("evil is left out" in caplog.text) == bool(port)


def test_an_address_that_is_written_otherwise_is_the_same(tmp_path):
    """As everybody else writes it."""
    label = "<f:vm xmlns:f='urn:fairnotice:libvirt:vm:1' addresses='2001:DB8:0::1'/>"
    found = libvirt_places.places("br0", libvirt(tmp_path, label), tmp_path)
    assert found["guest-7"][0].addresses == ("2001:db8::1", "10.0.0.5")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("10.0.0.4 2001:db8::1", ("10.0.0.4", "2001:db8::1")),
        (" 10.0.0.4\t", ("10.0.0.4",)),
        ("", ()),
    ],
)
def test_the_addresses_of_a_label_are_what_they_are_for_the_driver(tmp_path, text, addresses):
    """With spaces between."""
    label = NAMELESS.replace("/>", f" addresses='{text}'/>")
    found = libvirt_places.places("br0", libvirt(tmp_path, label, leases=[]), tmp_path)

    assert found["guest-7"][0].addresses == addresses
    assert labels.label_of({"addresses": text}).addresses == addresses


@pytest.mark.parametrize(
    "attributes",
    [
        "name='web-0' addresses='10.0.0.4,10.0.0.6'",
        "name='web-0' addresses='10.0.0.4 nonsense'",
        "name='web-0' addresses='10.0.0.4/24'",
        "name='web/0'",
        f"name='{'x' * 300}'",
        "name='web&#10;0'",
        "name='web-0' update_domain='-1'",
        "name='web-0' update_domain='²'",
        f"name='web-0' update_domain='{'9' * 5000}'",
        "name='web-0' priority='urgent'",
        "name='web-0' network='CLASSIC'",
        "name='web-0' availability_set='a' scale_set='b'",
        "name='web-0' adresses='10.0.0.4'",
        "name='web-0' f:addresses='10.0.0.4'",
    ],
)
def test_a_label_that_the_driver_refuses_makes_nobodys_port(tmp_path, caplog, attributes):
    """It is no VM of the fleet, so nobody is believed to be there; and it is said which it is."""
    label = NAMELESS.replace("/>", f" {attributes}/>")
    libvirt(tmp_path, label)
    with pytest.raises(UsageError):
        labels.label_in(f"<domain><metadata>{label}</metadata></domain>")

    found = libvirt_places.places("br0", tmp_path, tmp_path)

    assert found == {"": (Place("vnet3", "52:54:00:aa:bb:01", ("10.0.0.5",)),)}
    assert "guest-7 is nobody: its label is passed over" in caplog.text


def test_libvirts_own_library_is_not_needed_for_it():
    """The hook runs on nodes on which the program is without its extra."""
    asked = "import sys; sys.modules['libvirt'] = None; import fairnotice.endpoint.libvirt_places"
    subprocess.run([sys.executable, "-c", asked], check=True)  # noqa: S603 - our own
