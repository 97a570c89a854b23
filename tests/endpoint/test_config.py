"""endpoint.toml: what it may say, and what is said of what it may not."""

from pathlib import Path

import pytest

from fairnotice.cli.main import main
from fairnotice.endpoint import node_setup
from fairnotice.endpoint.config import read
from fairnotice.endpoint.passing import Passing
from fairnotice.endpoint.vouching import Network
from fairnotice.errors import UsageError
from tests.cli.serves import certificate
from tests.house import ROOT

LEAST = 'node = "n"\ncontrol_planes = ["https://cp.example.net:8600"]\n'


def written(folder, text):
    """A file with this in it."""
    path = folder / "endpoint.toml"
    path.write_text(text)
    return path


def test_the_least_that_can_be_said(tmp_path):
    """A node and a control plane: all else has its default, Azure's address among it."""
    config = read(written(tmp_path, LEAST))

    assert (config.node, config.control_planes) == ("n", ("https://cp.example.net:8600",))
    assert config.metadata == ("169.254.169.254", 80)
    assert config.manner.rate_limit is not None
    assert config.workers == 1
    assert config.token() is None


def test_the_example_can_be_served(tmp_path):
    """deploy/endpoint.toml, with its files in another place."""
    made, _ = certificate(tmp_path / "tls")
    made.rename(tmp_path / "ca.pem")
    (tmp_path / "endpoint.token").write_text("fairnotice_x\n")
    text = (ROOT / "deploy" / "endpoint.toml").read_text()
    config = read(written(tmp_path, text.replace("/etc/fairnotice", str(tmp_path))))

    assert config.node == "node-17"
    assert config.token() == "fairnotice_x"
    assert config.trusted() is not None
    Passing(config.node, config.control_planes, token=config.token, trust=config.trusted())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "node is missing"),
        ('node = "n"', "control_planes is missing"),
        (LEAST + 'wokers = 2\nworkers = "x"', "workers is 'x': give a whole number"),
        (LEAST + "wokers = 2", "there is no key wokers. Did you mean workers"),
        ('node = "n"\ncontrol_planes = ["cp:8600"]', "each is a URL"),
        (
            'node = "n"\ncontrol_planes = ["http://cp:8600"]\ntoken_file = "/t"',
            "everybody could read it",
        ),
        (LEAST + '[metadata]\nlisten = "10.0.0.1:80"', "routable = true"),
        (LEAST + '[metadata]\nlisten = "0.0.0.0:80"', "routable = true"),
        (LEAST + '[metadata]\nlisten = "somewhere"', "give HOST:PORT"),
        (LEAST + '[metadata]\nlisten = "somewhere:80"\nroutable = true', "is no IP address"),
        (LEAST + '[metrics]\nlisten = "127.0.0:80"', "is no IP address"),
        (LEAST + '[metadata]\nrate_limit = "fast"', "rate_limit is 'fast'"),
        (LEAST + "[metadata]\nfirst_answer_delay_seconds = 121", "give 0 to 120"),
        (LEAST + '[log]\nlevel = "loud"', "level is 'loud'"),
        (LEAST + "metadata = 3", "metadata is a table"),
        ("node = ", "is no TOML"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path, text, says):
    """The sentence has the file, the key, and what would be right."""
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        read(path)

    assert str(path) in str(error.value)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fe80::1]:80"]
)
def test_addresses_that_nobody_beyond_reaches_need_no_word(tmp_path, listen):
    """Loopback and link-local."""
    assert read(written(tmp_path, f'{LEAST}[metadata]\nlisten = "{listen}"')).metadata[1] == 80


def test_a_routable_address_has_to_be_meant(tmp_path):
    """Then it is taken."""
    text = LEAST + '[metadata]\nlisten = "10.0.0.1:80"\nroutable = true\nrate_limit = "off"'
    config = read(written(tmp_path, text))

    assert config.metadata == ("10.0.0.1", 80)
    assert config.manner.rate_limit is None


def test_a_token_is_one_line(tmp_path):
    """It is read from its file, and never shown."""
    (tmp_path / "token").write_text("fairnotice_a_b\n")
    config = read(written(tmp_path, LEAST + f'token_file = "{tmp_path}/token"\n'))
    assert config.token() == "fairnotice_a_b"
    assert "fairnotice_a_b" not in repr(config)

    (tmp_path / "token").write_text("fairnotice_a_b\nmore")
    with pytest.raises(UsageError, match="one token") as error:
        config.token()
    assert "fairnotice_a_b" not in str(error.value)


def test_check_reads_and_starts_nothing(tmp_path, capsys):
    """The exit code says whether the file would do."""
    good = written(tmp_path, LEAST)
    assert main(["endpoint", "--config", str(good), "--check"]) == 0
    assert "as it should be" in capsys.readouterr().out

    good.write_text("")
    assert main(["endpoint", "--config", str(good), "--check"]) == 2


def test_check_says_for_want_of_what_no_vm_is_answered(tmp_path, capsys, monkeypatch):
    """The bridge and the file of places; and what it did not look at."""
    (tmp_path / "token").write_text("fairnotice_a_b\n")
    vms = tmp_path / "vms.json"
    token = f'token_file = "{tmp_path}/token"\n'
    network = f'[network]\nbridge = "br9"\nvms = "{vms}"\n'
    words = ["endpoint", "--config", str(written(tmp_path, LEAST + token + network)), "--check"]
    monkeypatch.setattr(node_setup, "INTERFACES", tmp_path)
    assert main(words) == 1
    said = capsys.readouterr()
    assert "can be read, but no VM would be answered now. Not looked at: whether a" in said.out
    assert "takes the token for n's" in said.out
    assert "[network]: There is no interface br9 here." in said.err
    assert f"[network]: vms: {vms} cannot be read: No such file" in said.err

    (tmp_path / "br9").mkdir()
    vms.write_text("{")
    assert main(words) == 1
    said = capsys.readouterr()
    assert "[network]: br9 is no bridge." in said.err
    assert f"{vms} is no JSON" in said.err

    (tmp_path / "br9" / "bridge").mkdir()
    vms.write_text('{"vms": {}}')
    assert main(words) == 0
    said = capsys.readouterr()
    assert ("is as it should be. Not looked at: whether a" in said.out, said.err) == (True, "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('node = "n"\ncontrol_planes = ["https://"]', "'https://' is no"),
        ('node = "n"\ncontrol_planes = ["https://cp:x"]', "'https://cp:x' is no URL"),
        (LEAST + 'trust = "{folder}/nope.pem"', "nope.pem, which is no CA file"),
        (LEAST + 'token_file = "{folder}/nope"', "nope cannot be read"),
        (LEAST + 'token_file = "{folder}/empty"', "must hold one token"),
    ],
)
def test_check_finds_what_could_not_run(tmp_path, capsys, text, says):
    """The URLs, and the files that are named."""
    (tmp_path / "empty").write_text("")
    path = written(tmp_path, text.replace("{folder}", str(tmp_path)))

    assert main(["endpoint", "--config", str(path), "--check"]) == 2
    assert says in capsys.readouterr().err


def test_where_vms_are_plugged_in_is_told(tmp_path):
    """Nothing is checked unless somebody says where; a second address needs no word."""
    assert read(written(tmp_path, LEAST)).manner.network is None
    text = LEAST + '[metadata]\nclassic_listen = "168.63.129.16:80"\n[network]\nbridge = "br0"\n'
    config = read(written(tmp_path, text))
    assert config.classic == ("168.63.129.16", 80)
    assert config.manner.network == Network("br0", "", None, Path("/run/fairnotice-node/vms.json"))
    text += 'interface = "br0.10"\nvlan = 10\nvms = "/etc/vms.json"\n'
    network = read(written(tmp_path, text)).manner.network
    assert network == Network("br0", "br0.10", 10, Path("/etc/vms.json"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[network]\nvms = "x"', "[network]: bridge is missing"),
        ('[network]\nbridge = "br0"\nvlan = 4095', "vlan is 4095"),
        ('[network]\nbridge = "br0"\nport = 7', "port"),
        ('[network]\nbrigde = "br0"', "brigde"),
        ('[metadata]\nclassic_listen = "8.8.8.8:80"', "classic_listen is 8.8.8.8"),
        ('[metadata]\nclassic_listen = "here"', "classic_listen is 'here'"),
    ],
)
def test_what_does_not_fit_about_the_network_is_said(tmp_path, text, says):
    """By its key."""
    with pytest.raises(UsageError) as error:
        read(written(tmp_path, LEAST + text))
    assert says in str(error.value)
