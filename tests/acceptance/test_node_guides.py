"""What the guides of libvirt and of a node's network have one type and write is understood.

Nothing of it is done here, since that takes two hosts: each command is parsed by the real parser,
each file is read by whoever reads it.
"""

import re
import shlex
import shutil
import subprocess

import pytest

from fairnotice.cli.main import parser
from fairnotice.cli.serve_config import read as read_serve
from fairnotice.drivers.libvirt.labels import label_in, label_of
from fairnotice.endpoint.config import read as read_endpoint
from fairnotice.endpoint.places import parsed
from tests.cli.test_serve_config import moved_here
from tests.house import ROOT

PAGES = {
    name: (ROOT / "docs" / "guides" / name).read_text("utf-8")
    for name in ("libvirt.md", "node-network.md")
}
LIBVIRT, NETWORK = PAGES.values()
WHERE_IT_ENDS = {">", "|", "&&", ";"}


def blocks(page, kind):
    """What is written between fences of this kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(page):
    """Every command of ours on a page: in a block, or between backticks."""
    lines = [
        line for kind in ("sh", "console") for one in blocks(page, kind) for line in one.split("\n")
    ]
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    lines += re.findall(r"`([^`\n]+)`", text)
    begins = re.compile(r"(?:\$ |runuser -u fairnotice -- | *)fairnotice (.*)")
    found = [begin[1] for line in lines if (begin := begins.fullmatch(line))]
    return list(dict.fromkeys(map(words, found)))


def words(line):
    """As a shell would hand them over, up to where its own words begin."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    found = []
    for word in reader:
        if word in WHERE_IT_ENDS:
            break
        found.append(word)
    return tuple(found)


TYPED = [(name, *one) for name, page in PAGES.items() for one in commands(page)]


@pytest.mark.parametrize("line", TYPED, ids=" ".join)
def test_every_command_is_one(line):
    """With every flag and word that it is given."""
    assert parser(line[1:]).parse_args(line[1:]).run


def test_the_commands_are_found():
    """In blocks, behind another program and between backticks; and a wrong one would be found."""
    for one in (
        ("libvirt.md", "serve", "--config", "/etc/fairnotice/serve.toml", "--check"),
        ("libvirt.md", "libvirt", "fleet", "--output", "fleet.toml"),
        ("libvirt.md", "node", "maintain", "kvm-0", "--duration", "5"),
        ("libvirt.md", "node", "fail", "$1"),
        (
            "libvirt.md",
            "token",
            "create",
            "fencing",
            "--role",
            "operator",
            "--output",
            "fencing.token",
        ),
        ("node-network.md", "node-setup", "--bridge", "br0", "--undo"),
    ):
        assert one in TYPED
    with pytest.raises(SystemExit):
        parser(["node", "evacuat", "kvm-0"]).parse_args(["node", "evacuat", "kvm-0"])


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_shell(page):
    """Whoever copies a whole block has no quotation mark too many."""
    for block in blocks(PAGES[page], "sh"):
        line = [shutil.which("sh"), "-n"]
        subprocess.run(line, input=block, text=True, check=True)  # noqa: S603 - our own pages


def test_every_label_is_taken():
    """Those that are typed, and the one that is shown as libvirt keeps it."""
    typed = [line[4:] for line in TYPED if line[1:3] == ("libvirt", "label")]
    assert len(typed) == 3
    for fields in typed:
        given = dict(word.split("=", 1) for word in fields if "=" in word and "://" not in word)
        assert label_of(given).addresses
    (shown,) = re.findall(r"<fairnotice:vm [^>]*/>", NETWORK)
    assert label_in(f"<domain><metadata>{shown}</metadata></domain>").name == "web-0"


def test_every_file_is_read(tmp_path):
    """serve.toml, endpoint.toml and the file of places, with their own files in another place."""
    serve, endpoint = blocks(LIBVIRT, "toml")
    path = tmp_path / "serve.toml"
    path.write_text(moved_here(tmp_path, serve))
    config = read_serve(path)
    assert (config.driver.kind, list(config.driver.nodes)) == ("libvirt", ["kvm-0", "kvm-1"])

    (network,) = blocks(NETWORK, "toml")
    least = endpoint.partition("[metadata]")[0]
    for text in (endpoint, least + network):
        path = tmp_path / "endpoint.toml"
        path.write_text(text)
        found = read_endpoint(path)
        assert (found.node, found.metadata) == ("kvm-0", ("169.254.169.254", 80))
        assert found.manner.network.bridge == "br0"
    # What is commented out is read as well.
    path.write_text(least + re.sub(r"^# (?=interface|vlan)", "", network, flags=re.MULTILINE))
    assert read_endpoint(path).manner.network[1:3] == ("br0.10", 10)

    (places,) = blocks(NETWORK, "json")
    assert parsed(places.encode(), "node-network.md")["web-0"][0].port == "vnet3"
