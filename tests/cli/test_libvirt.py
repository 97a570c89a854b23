"""`fairnotice libvirt`, and libvirt in the file of `serve`; on libvirt's own test driver."""

import os
import tomllib
from contextlib import contextmanager
from xml.etree import ElementTree as ET

import pytest

if "CI" not in os.environ:
    pytest.importorskip("libvirt")

from fairnotice.cli.libvirt import fleet_of, kept
from fairnotice.cli.main import main
from fairnotice.cli.serve_check import doubts
from fairnotice.cli.serve_config import read
from fairnotice.control.fleet_body import FleetBody, NodeBody, ScaleSetBody, SetBody, VmBody
from fairnotice.control.fleet_files import to_toml
from fairnotice.drivers.libvirt import labels
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.settings import NodeAddress
from fairnotice.errors import UsageError
from fairnotice.words import EventType, Priority
from tests.cli.typed import served

STORE = '[store]\nurl = "sqlite:/x/y.db"\n'
CLONE = """<domain type="test"><name>clone</name><memory unit="MiB">64</memory>
<os><type>hvm</type></os></domain>"""
DRIVER = '[driver]\nkind = "libvirt"\n'


def test_a_domain_is_labeled_shown_and_let_go_of(capsys):
    """In one process libvirt's test driver remembers while somebody has it open."""
    import libvirt  # noqa: PLC0415

    kept = libvirt.open("test:///default")
    label, there = ["libvirt", "label", "test"], ["--connect", "test:///default"]
    assert main([*label, *there]) == 0
    # Whoever looks changes nothing.
    said = capsys.readouterr().out
    assert "test has no label" in said
    # A whole command, and none that gives a name: a clone of the domain would have that as well.
    command = "fairnotice libvirt label test addresses=ADDRESS --connect test:///default"
    assert said.endswith(f": {command}\n")
    assert "urn:fairnotice" not in kept.lookupByName("test").XMLDesc(0)
    # Fields may stand on both sides of an option.
    fields = ["availability_set=web", *there, "addresses=10.0.0.4 10.0.0.5", "zone=1"]
    assert main([*label, *fields]) == 0
    capsys.readouterr()
    assert main([*label, *there, "update_domain=2", "zone="]) == 0
    assert capsys.readouterr().out.split() == [
        *("test", "name", "test", "availability_set", "web", "update_domain", "2"),
        *("addresses", "10.0.0.4", "10.0.0.5"),
    ]
    assert "urn:fairnotice:libvirt:vm:1" in kept.lookupByName("test").XMLDesc(0)
    assert main([*label, "--remove", *there]) == 0
    assert "urn:fairnotice" not in kept.lookupByName("test").XMLDesc(0)
    kept.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test", "colour=red"], "A label has no colour"),
        (["test", "colour="], "A label has no colour"),
        (["test", "web"], "no FIELD=VALUE"),
        (["test", "=web"], "no FIELD=VALUE"),
        (["test", "zone=1", "zone=2"], "zone is given twice"),
        (["test", "addresses=10.0.0.4,10.0.0.5"], "give IP addresses, with spaces between"),
        (["test", "ephemeral_disks=vdb"], "It has vda."),
        (["test", "update_domain=0"], "name the set of this one too, or drop it"),
        (["test", "zone=1", "--remove"], "Give fields, or --remove"),
        (["nobody"], "does not give nobody"),
    ],
)
def test_a_label_that_cannot_be_is_refused_in_a_sentence(capsys, words, said):
    """With an exit code that is not 0."""
    assert main(["libvirt", "label", *words, "--connect", "test:///default"]) != 0
    assert said in capsys.readouterr().err


@contextmanager
def labeled_by_hand(**fields):
    """The domain of libvirt's test driver, whose label somebody has written with virsh."""
    import libvirt  # noqa: PLC0415

    kept = libvirt.open("test:///default")
    domain = kept.lookupByName("test")
    element = ET.tostring(ET.Element("vm", fields), encoding="unicode")
    live_and_config = 3
    domain.setMetadata(2, element, "fairnotice", labels.LABEL, live_and_config)
    try:
        yield domain
    finally:
        domain.setMetadata(2, None, "fairnotice", labels.LABEL, live_and_config)
        kept.close()


LABEL_TEST = ("libvirt", "label", "test", "--connect", "test:///default")
SAID = "The label that test has cannot be read: "


def test_what_is_wrong_with_a_label_is_shown_and_mended_field_by_field(capsys):
    """Whoever looks sees all of it; a field that is named is dropped, or has another value."""
    with labeled_by_hand(availabilityset="web", update_domain="one", zone="1") as domain:
        assert main(LABEL_TEST) == 1
        shown = capsys.readouterr()
        assert shown.out.split()[1:] == [
            *("name", "test", "availabilityset", "web", "update_domain", "one", "zone", "1"),
        ]
        assert shown.err.startswith(f"{SAID}A label has no availabilityset: it has name, ")
        assert "update_domain cannot be 'one': give a whole number" in shown.err
        mends = "fairnotice libvirt label test availabilityset= update_domain= --connect test:///"
        assert mends in shown.err

        # Half of it: what is left is said to be there, with a command that does both.
        before = domain.XMLDesc(0)
        assert main([*LABEL_TEST, "availabilityset=", "addresses=10.0.0.4"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"{SAID}update_domain cannot be 'one'")
        assert "label test availabilityset= addresses=10.0.0.4 update_domain= --connect" in said
        assert domain.XMLDesc(0) == before

        words = ["availabilityset=", "availability_set=web", "update_domain=0"]
        assert main([*LABEL_TEST, *words]) == 0
        label = labels.label_in(domain.XMLDesc(0))
    assert label == Label(availability_set="web", update_domain=0, zone="1")


def test_a_label_with_two_sets_is_mended_by_letting_go_of_one(capsys):
    """And a set beside the one that is there is a mistake of what was typed."""
    with labeled_by_hand(availability_set="web", scale_set="batch") as domain:
        assert main(LABEL_TEST) == 1
        assert "A VM is in one of" in (said := capsys.readouterr().err)
        assert "label test scale_set= --connect" in said
        assert main([*LABEL_TEST, "availability_set="]) == 0
        assert labels.label_in(domain.XMLDesc(0)) == Label(scale_set="batch")
        capsys.readouterr()
        assert main([*LABEL_TEST, "availability_set=web"]) == 2
        assert capsys.readouterr().err.startswith("A VM is in one of")


def test_a_fleet_is_made_of_labels():
    """Every node, every set that a label names, every VM; as a file that can be read again."""
    body = fleet_of(
        ("n1", "n2"),
        (
            ("b", "n2", Label(scale_set="batch", placement_group=1, priority=Priority.SPOT)),
            ("w", "n1", Label(availability_set="web", update_domain=3, addresses=("10.0.0.4",))),
            ("s", "n1", Label(cloud_service="shop")),
        ),
    )
    tables = tomllib.loads(to_toml(body))
    assert [one["name"] for one in tables["node"]] == ["n1", "n2"]
    assert tables["scale_set"][0]["placement_groups"] == 2
    assert [one["name"] for one in tables["vm"]] == ["b", "s", "w"]
    assert tables["vm"][2]["update_domain"] == 3


def test_what_only_people_know_is_kept_when_a_fleet_is_made_again():
    """Fault domains, capacities, notice, policies and tags; what the labels say is theirs."""
    labeled = (
        ("b", "n2", Label(scale_set="batch", placement_group=1)),
        ("d", "n1", Label()),
        ("w", "n3", Label(availability_set="web")),
    )
    declared = FleetBody(
        node=[NodeBody("n1", 2, 4), NodeBody("n2", 2, 8), NodeBody("gone", 7)],
        availability_set=[SetBody("web", automatically_approve=[EventType.REBOOT])],
        scale_set=[ScaleSetBody("batch", terminate_notice_minutes=5)],
        vm=[
            VmBody("d", "n2", automatically_approve=[EventType.REDEPLOY], tags={"who": "ada"}),
            # It stood alone, and is in a set by now: the policy is the set's.
            VmBody("w", "n1", automatically_approve=[EventType.REBOOT]),
        ],
    )
    made = kept(fleet_of(("n1", "n2", "n3"), labeled), declared)
    assert made.node == [NodeBody("n1", 2, 4), NodeBody("n2", 2, 8), NodeBody("n3", 8)]
    assert made.availability_set == declared.availability_set
    assert made.scale_set == [ScaleSetBody("batch", terminate_notice_minutes=5, placement_groups=2)]
    assert [(vm.name, vm.node) for vm in made.vm] == [("b", "n2"), ("d", "n1"), ("w", "n3")]
    assert made.vm[1].tags == {"who": "ada"}
    assert made.vm[1].automatically_approve == [EventType.REDEPLOY]
    assert made.vm[2].automatically_approve == []
    assert kept(made, made) == made


def test_a_fleet_of_labels_is_made_with_what_is_declared_or_says_what_is_not_known(
    tmp_path, capsys, monkeypatch
):
    """Standard output is the file; whence the rest is, or that nobody knows it, is said beside."""
    path = tmp_path / "serve.toml"
    path.write_text(STORE + DRIVER + '[driver.nodes]\nnode-1 = "test:///default"\n')
    words = ["libvirt", "fleet", "--config", str(path)]
    monkeypatch.setenv("FAIRNOTICE_URL", "http://127.0.0.1:1")
    assert main(words) == 0
    alone = capsys.readouterr()
    with served(()) as there:
        monkeypatch.setenv("FAIRNOTICE_URL", there.url)
        assert main(words) == 0
    together = capsys.readouterr()

    assert tomllib.loads(alone.out)["node"] == [{"name": "node-1"}]
    assert "Fault domains and capacities are not known to libvirt" in alone.err
    assert tomllib.loads(together.out)["node"][0]["fault_domain"] == 1
    assert f"are those declared at {there.url}." in together.err


def test_no_fleet_is_made_while_two_domains_say_that_they_are_one_vm(tmp_path, capsys):
    """It would declare one of them, and nobody has said which."""
    import libvirt  # noqa: PLC0415

    path = tmp_path / "serve.toml"
    path.write_text(STORE + DRIVER + '[driver.nodes]\nnode-1 = "test:///default"\n')
    kept = libvirt.open("test:///default")
    there = ["--connect", "test:///default"]
    kept.defineXML(CLONE)
    assert main(["libvirt", "label", "test", "zone=1", *there]) == 0
    assert main(["libvirt", "label", "clone", "name=test", *there]) == 0
    capsys.readouterr()
    code = main(["libvirt", "fleet", "--config", str(path)])
    said = capsys.readouterr()
    assert main(["libvirt", "label", "test", "--remove", *there]) == 0
    kept.lookupByName("clone").undefine()
    kept.close()
    assert (code, said.out) == (1, "")
    assert "clone on node-1 and test on node-1 both say that they are test" in said.err


def test_no_fleet_is_made_while_a_label_cannot_be_read(tmp_path, capsys, caplog):
    """Its VM would not be in it, and whoever applies it would delete the VM."""
    path = tmp_path / "serve.toml"
    path.write_text(STORE + DRIVER + '[driver.nodes]\nnode-1 = "test:///default"\n')
    with labeled_by_hand(availabilityset="web"):
        code = main(["libvirt", "fleet", "--config", str(path)])
    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert said.err.startswith("the label of test on node-1 cannot be read: A label has no avail")
    assert said.err.endswith(": fairnotice libvirt label test --connect test:///default\n")
    # Once is enough.
    assert caplog.text == ""


def test_a_fleet_file_is_written_when_all_of_it_is_known(tmp_path, capsys, monkeypatch):
    """One that is there is replaced where that is asked for, and by a whole one alone."""
    monkeypatch.setenv("FAIRNOTICE_URL", "http://127.0.0.1:1")
    path, fleet = tmp_path / "serve.toml", tmp_path / "fleet.toml"
    nodes = '[driver.nodes]\nnode-1 = "test:///default"\n'
    words = ["libvirt", "fleet", "--config", str(path), "--output", str(fleet)]
    path.write_text(STORE + DRIVER + nodes)
    assert main(words) == 0
    assert capsys.readouterr().out == f"{fleet}: nodes: 1, VMs: 0\n"
    made = fleet.read_text()
    assert tomllib.loads(made)["node"] == [{"name": "node-1"}]

    assert main(words) == 2
    assert f"{fleet} is there already" in capsys.readouterr().err
    path.write_text(f'{STORE}{DRIVER}{nodes}node-2 = "test:///{tmp_path}/no.xml"\n')
    assert main([*words, "--force"]) == 1
    assert "node-2 cannot be reached" in capsys.readouterr().err
    assert fleet.read_text() == made
    path.write_text(f"{STORE}{DRIVER}{nodes.replace('node-1', 'node-3')}")
    assert main([*words, "--force"]) == 0
    assert tomllib.loads(fleet.read_text())["node"] == [{"name": "node-3"}]
    assert set(tmp_path.iterdir()) == {fleet, path}


def test_libvirt_is_configured_by_uri_or_by_table(tmp_path):
    """A node is a URI, or a table where other nodes reach it otherwise."""
    text = f"""{STORE}{DRIVER}reboot_limit_seconds = 5
[driver.nodes]
n1 = "qemu+tls://n1/system"
n2 = {{uri = "qemu+ssh://n2/system", peer_uri = "qemu+tls://n2/system"}}
"""
    path = tmp_path / "serve.toml"
    path.write_text(text)
    settings = read(path).driver.libvirt
    assert settings.reboot_limit_seconds == 5
    assert settings.nodes["n1"] == NodeAddress("qemu+tls://n1/system")
    assert settings.nodes["n2"].peer_uri == "qemu+tls://n2/system"


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (DRIVER, "nodes is empty"),
        (DRIVER + 'outcome = ["x"]\n', "driver.outcome is not for `kind = 'libvirt'`"),
        (
            '[driver]\nkind = "command"\n[driver.nodes]\na = "qemu:///system"\n',
            "driver.nodes is not",
        ),
        ('[driver.nodes]\na = "qemu:///system"\n', "is `kind = 'libvirt'` meant?"),
        (DRIVER + '[driver.nodes]\na = "here"\n', "give a URI"),
        (DRIVER + '[driver.nodes]\na = "qemu+tsl://a/system"\n', "driver.nodes.a is 'qemu.tsl"),
    ],
)
def test_libvirt_that_cannot_be_is_refused_by_its_key(tmp_path, driver, said):
    """With the file's name and the key."""
    path = tmp_path / "serve.toml"
    path.write_text(STORE + driver)
    with pytest.raises(UsageError, match=said):
        read(path)


def test_a_check_says_that_it_has_asked_no_hypervisor(tmp_path, capsys):
    """Nobody may have that name: only who connects knows. It is said how to."""
    path = tmp_path / "serve.toml"
    path.write_text(STORE + DRIVER + '[driver.nodes]\na = "qemu+tls://no.such.example/system"\n')
    assert main(["serve", "--config", str(path), "--check"]) == 0
    said = capsys.readouterr().out
    assert "whether the hypervisors answer (virsh -c URI list)" in said
    assert (
        "reach each other for a live migration (the same on each of them, with `peer_uri`" in said
    )
    assert "commands" not in said


TLS = "qemu+tls://{}.example/system"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((TLS.format("a"), TLS.format("b")), []),
        # One has nowhere to migrate to.
        ((TLS.format("a") + "?pkipath=/etc/pki",), []),
        ((TLS.format("a"), TLS.format("b") + "?no_verify=1&pkipath=/etc/pki"), ["has pkipath= of"]),
        (
            ("qemu:///system", "qemu+ssh://b.example/system?keyfile=/etc/key&known_hosts=/etc/h"),
            ["names no machine", "has keyfile= and known_hosts= of"],
        ),
    ],
)
def test_what_other_nodes_cannot_reach_by_the_same_uri_is_said_before(tmp_path, nodes, said):
    """Else it is found out when the VMs have prepared for their migration."""
    path = tmp_path / "serve.toml"
    tables = "".join(f'n{at} = "{uri}"\n' for at, uri in enumerate(nodes))
    path.write_text(f"{STORE}{DRIVER}[driver.nodes]\n{tables}")
    found = [doubt for doubt in doubts(read(path)) if doubt.startswith("driver.nodes.")]
    assert len(found) == len(said)
    for doubt, words in zip(found, said, strict=True):
        assert f"it has no peer_uri, and its uri {words}" in doubt


def test_a_fleet_is_asked_of_libvirt_alone(tmp_path, capsys):
    """Where machines are simulated there is nothing to look at."""
    path = tmp_path / "serve.toml"
    path.write_text(STORE)
    assert main(["libvirt", "fleet", "--config", str(path)]) != 0
    assert "not libvirt" in capsys.readouterr().err
