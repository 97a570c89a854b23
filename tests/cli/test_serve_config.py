"""The file of `serve`: what is in it, what is refused in which words; what deploy/ has of it."""

import logging
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairnotice.arm.signing import make_key_file
from fairnotice.cli.main import main
from fairnotice.cli.serve_check import doubts, kinds_without_command
from fairnotice.cli.serve_config import read
from fairnotice.cli.serve_reload import RELOADED, Reload
from fairnotice.control.holders import is_routable
from fairnotice.control.running import Entrance, Place
from fairnotice.endpoint.config import read as read_endpoint
from fairnotice.errors import UsageError
from fairnotice.metadata.rate import rate_of
from fairnotice.words import ImpactKind
from tests.cli.serves import certificate
from tests.control.calling import serving

ROOT = Path(__file__).parents[2]
STORE = '[store]\nurl = "sqlite:/x/y.db"\n'
POSTGRES = '[store]\nurl = "postgresql://me:secret@db/x"\n'
CLUSTER = '[cluster]\naddress = "https://cp1:8600"\n'
OPEN = '[control]\nlisten = "0.0.0.0:8600"\n'


def config_of(folder, text):
    """The configuration that this text is."""
    path = folder / "serve.toml"
    path.write_text(text)
    return read(path)


def tls(folder):
    """A table with a certificate of this machine."""
    made, key = certificate(folder)
    return f'[tls]\ncertificate = "{made}"\nkey = "{key}"\n'


def test_only_the_store_must_be_said(tmp_path):
    """All else has a default: nobody asks from outside, and everybody is asked who he is."""
    config = config_of(tmp_path, STORE)
    assert config.store_url() == "sqlite:/x/y.db"
    assert config.control_place == Place("127.0.0.1", 8600)
    assert config.metadata_place is None
    assert (config.timing, config.auth.required) == ("azure", True)


def test_a_url_with_a_password_is_in_a_file_of_its_own(tmp_path):
    """Its first line, and no other."""
    (tmp_path / "url").write_text("postgresql://me:secret@db/x\nnotes\n")
    config = config_of(tmp_path, f'[store]\nurl_file = "{tmp_path}/url"\n')
    assert config.store_url() == "postgresql://me:secret@db/x"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "`store` is missing"),
        ("[store]\n", "store: give one of `url` and `url_file`"),
        ('[store]\nurl = "mysql:x"\n', "store.url is no memory:, sqlite:PATH or postgresql://…"),
        ('[store]\nurl_file = "/nowhere"\n', "store.url_file: /nowhere cannot be read: No such"),
        ("[stor]\n", "unknown key `stor`; did you mean `store`?"),
        (STORE + "[control]\nlisten = 8600\n", "`control.listen` must be text, not a whole number"),
        (STORE + '[control]\nlisten = "here"\n', "control.listen is 'here': give HOST:PORT"),
        (STORE + '[log]\nlevel = "inf"\n', "`log.level` cannot be `inf`; did you mean `info`?"),
        ('timing = "slow"\n' + STORE, "`timing` cannot be `slow`; choose among azure, dev"),
        (STORE + "[retention]\naudit_days = 0\n", "`retention.audit_days` must be 1 or more"),
        (STORE + "[metadata]\nrate_limit = 0\n", "`metadata.rate_limit` must be more than 0"),
        (STORE + "[metadata]\nrate_limit = true\n", "must be a number with a point or text, not"),
        (STORE + '[tls]\ncertificate = "/x"\n', "`tls.key` is missing"),
        (STORE + '[tls]\ncertificate = "/x"\nkey = "/y"\n', "/x cannot be read: No such file"),
        (
            STORE + '[arm]\nkeys = "/x"\nurl = "https://a:1"\n',
            "arm: Azure's tools need a certificate",
        ),
        (STORE + CLUSTER, "cluster: several control planes need one PostgreSQL"),
        (POSTGRES + CLUSTER + "[metadata]\n", "cluster and metadata exclude each other"),
        (POSTGRES + '[cluster]\naddress = "cp1"\n', "cluster.address is no URL"),
        (POSTGRES + CLUSTER + 'trust = "/x/ca"\n', "cluster.trust: /x/ca is not there"),
        (STORE + '[driver]\noutcome = ["x"]\n', "is `kind = 'command'` meant?"),
        (STORE + '[driver]\nkind = "command"\nstate_directory = "x"\n', "give an absolute path"),
        (
            STORE + '[driver]\nkind = "command"\n[driver.commands]\nreboot = ["/x/reboot"]\n',
            "driver: /x/reboot is no program that may be run",
        ),
        (STORE + '[driver.commands]\nrebot = ["x"]\n', "`driver.commands` cannot be `rebot`; did"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, text, complaint):
    """With the name of the file and the key; a password is in no sentence."""
    with pytest.raises(UsageError) as refused:
        config_of(tmp_path, text)
    assert complaint in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path}/serve.toml: ")
    assert "secret" not in str(refused.value)


MISSING = '[driver]\nkind = "command"\n[driver.commands]\nreboot = ["/x/a"]\nfreeze = ["no-such"]\n'


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    """A line each; of commands that are not there too."""
    with pytest.raises(UsageError) as refused:
        config_of(tmp_path, "[store]\n" + OPEN + '[metadata]\nlisten = "0.0.0.0:80"\n' + MISSING)
    said = str(refused.value).splitlines()
    assert len(said) == 5
    assert [line.partition(": driver: ")[2].partition(" is ")[0] for line in said[-2:]] == [
        "/x/a",
        "no-such",
    ]


def test_a_store_that_cannot_be_opened_here_is_said(tmp_path, monkeypatch):
    """What PostgreSQL needs is an extra of its own; nobody finds that out in a downtime."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"pip install 'fairnotice\[server,postgres\]'"):
        config_of(tmp_path, POSTGRES)


def test_what_may_be_missing_is_said_of_a_file_that_fits(tmp_path):
    """A directory, an address, commands: nothing of a file that has all of them."""
    text = (
        STORE + '[metadata]\nlisten = "169.254.7.7:80"\n[driver]\nkind = "command"\n'
        "[driver.commands]\n" + "".join(f'{kind} = ["true"]\n' for kind in ("reboot", "stop"))
    )
    others = [kind for kind in ImpactKind if kind not in ("reboot", "stop")]
    found = list(doubts(config_of(tmp_path, text)))
    assert found == [
        "store: there is no directory /x yet.",
        "metadata.listen: no interface of this machine has 169.254.7.7 yet.",
        (
            f"driver.commands has no command for {', '.join(others)}: what asks for that is "
            "announced to VMs, and fails."
        ),
    ]
    assert list(doubts(config_of(tmp_path, STORE.replace("/x", str(tmp_path))))) == []


# ---- Azure's tools ----

ARM = '[arm]\nkeys = "{keys}"\nurl = "{url}"\n'


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (None, "arm.keys: {keys} cannot be read: No such file"),
        ("genrsa 1024", "arm.keys: {keys} holds a key that is no RSA key of 2048 bits or more"),
        ("ecparam -name prime256v1 -genkey -noout", "arm.keys: {keys} holds a key that is no RSA"),
        ("version", "arm.keys: {keys} holds no key in PEM: make one with openssl genrsa 2048"),
        ("genrsa -aes128 -passout pass:word 2048", "arm.keys: {keys} is no private key in PEM wi"),
    ],
)
def test_keys_that_can_sign_nothing_are_said_before_anybody_signs_in(tmp_path, made, complaint):
    """By a check, and at the start; which file it is, and nothing of what is in it."""
    keys = tmp_path / "keys.pem"
    if made is not None:
        line = ["openssl", *made.split()]
        ran = subprocess.run(line, check=True, capture_output=True)  # noqa: S603 - for this alone
        keys.write_bytes(ran.stdout)
    with pytest.raises(UsageError) as refused:
        config_of(tmp_path, STORE + tls(tmp_path) + ARM.format(keys=keys, url="https://a:1"))
    assert complaint.format(keys=keys) in str(refused.value)
    assert "PRIVATE KEY" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "cloud", "http://cloud:8643", "https://", "https://a:0"])
def test_azures_tools_are_given_a_url_of_https(tmp_path, url):
    """They would sign in nowhere else, and it is what tokens are signed for."""
    keys = tmp_path / "keys.pem"
    make_key_file(keys)
    with pytest.raises(UsageError, match=r"arm\.url is no URL of https://"):
        config_of(tmp_path, STORE + tls(tmp_path) + ARM.format(keys=keys, url=url))


def test_a_certificate_of_another_name_and_a_key_that_anybody_reads_are_doubted(tmp_path):
    """Azure's tools would refuse the one, and the other is found out when it is too late."""
    keys = tmp_path / "keys.pem"
    make_key_file(keys)
    store = STORE.replace("/x", str(tmp_path)) + tls(tmp_path)
    for url in ("https://localhost:8643", "https://127.0.0.1"):
        assert list(doubts(config_of(tmp_path, store + ARM.format(keys=keys, url=url)))) == []
    keys.chmod(0o644)
    text = store + ARM.format(keys=keys, url="https://cloud.example:1") + 'listen = "192.0.2.1:1"\n'
    assert list(doubts(config_of(tmp_path, text))) == [
        "arm.listen: no interface of this machine has 192.0.2.1 yet.",
        (
            f"arm.url: {tmp_path}/tls.pem is no certificate for cloud.example, so Azure's tools "
            "will refuse it."
        ),
        f"arm.keys: everybody on this machine can read {keys}, and sign in as anybody.",
    ]


# ---- Who reaches it ----

PROXY = "behind_proxy = true\n"
NOBODY_ASKED = "[auth]\nrequired = false\n"


@pytest.mark.parametrize(
    ("text", "has_tls", "missing"),
    [
        (OPEN, False, ["[tls]"]),
        (OPEN + NOBODY_ASKED, False, ["[tls]", "[auth]"]),
        (OPEN + NOBODY_ASKED, True, ["[auth]"]),
        (OPEN, True, []),
        (OPEN + PROXY, False, []),
        (OPEN + PROXY + NOBODY_ASKED, False, []),
        ('[control]\nlisten = "[::1]:8600"\n' + NOBODY_ASKED, False, []),
    ],
)
def test_beyond_this_machine_it_needs_authentication_and_tls(tmp_path, text, has_tls, missing):
    """Or somebody says that a proxy does it."""
    text = STORE + text + (tls(tmp_path) if has_tls else "")
    if not missing:
        config_of(tmp_path, text)
        return
    with pytest.raises(UsageError) as refused:
        config_of(tmp_path, text)
    said = str(refused.value)
    assert [table for table in ("[tls]", "[auth]") if f"`{table}`" in said] == missing
    assert "`behind_proxy = true`" in said


@pytest.mark.parametrize(
    ("host", "routable"),
    [
        ("169.254.169.254", False),
        ("127.0.0.9", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("localhost", False),
        ("0.0.0.0", True),  # noqa: S104 - that is what is tested
        ("::", True),
        ("10.0.0.1", True),
        ("192.0.2.1", True),
        ("metadata.example.net", True),
    ],
)
def test_metadata_is_not_served_to_other_networks_unasked(tmp_path, host, routable):
    """A VM is known by its address, which anybody there could have."""
    assert is_routable(host) is routable
    where = f"[{host}]" if ":" in host else host
    text = STORE + f'[metadata]\nlisten = "{where}:80"\n'
    config_of(tmp_path, text + "routable = true\n")
    if routable:
        with pytest.raises(UsageError, match="routable = true"):
            config_of(tmp_path, text)
    else:
        config_of(tmp_path, text)


# ---- Reloading ----


@pytest.fixture
def _logs_as_they_were():
    root, server = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.level, server.level, list(root.handlers)
    yield
    root.setLevel(before[0])
    server.setLevel(before[1])
    root.handlers[:] = before[2]


@pytest.mark.usefixtures("_logs_as_they_were")
def test_a_reload_reaches_the_endpoint_and_the_law(tmp_path):
    """The rate of VMs, and how long what is over is remembered, in the fleet too."""
    with serving() as served:
        config = config_of(tmp_path, STORE + "[metadata]\n")
        reload = Reload(tmp_path / "serve.toml", config, served.run, Entrance())
        kept = "[retention]\njournal_days = 3\nhistory_days = 4\naudit_days = 5\n"
        config_of(tmp_path, STORE + "[metadata]\nrate_limit = 2\n" + kept)
        reload()
        assert served.run.worker.rate_limit == rate_of(2, 10)
        timing = served.run.service.fleet.timing
        assert (timing.journal_days, timing.history_days) == (3, 4)
        assert served.run.conductor.timing is timing
        assert served.run.conductor.timing.audit_days == 5


def test_what_is_reloaded_is_a_key_of_the_file():
    """A key that was renamed is not forgotten here."""
    keys = tomllib.loads((ROOT / "deploy" / "serve.toml").read_text())
    keys["metadata"] = {"rate_limit": 5}
    keys["control"]["names"] = []
    for one in RELOADED:
        table, _, key = one.partition(".")
        assert not key or key in keys[table]
        assert table in keys


@pytest.mark.parametrize(
    ("driver", "doubt"),
    [
        ("", "driver.kind is simulated"),
        ('[driver]\nkind = "command"\n', "neither `outcome` nor a `state_directory`"),
        ('[driver]\nkind = "command"\noutcome = ["true"]\n', None),
        ('[driver]\nkind = "command"\nstate_directory = "/srv/impacts"\n', None),
    ],
)
def test_several_whose_driver_forgets_are_doubted(tmp_path, capsys, driver, doubt):
    """A takeover would leave nobody who knows what was done; it is said, and can be served."""
    path = tmp_path / "serve.toml"
    for more in (CLUSTER, ""):
        path.write_text(POSTGRES + more + driver)
        assert main(["serve", "--config", str(path), "--check"]) == 0
        said = capsys.readouterr()
        assert ("after a takeover" in said.err) == bool(more and doubt)
        assert doubt is None or not more or doubt in said.err
        assert "can be served." in said.out


# ---- What is deployed ----


def moved_here(folder, text):
    """A configuration whose files are all there, in another place."""
    for program in re.findall(r"/opt/cloud/(\w+)", text):
        (folder / program).touch(0o755)
    made, key = certificate(folder / "tls")
    made.rename(folder / "tls" / "fullchain.pem")
    key.rename(folder / "tls" / "key.pem")
    (folder / "ca.pem").touch()
    (folder / "store-url").write_text("postgresql://me@db/x\n")
    here = text.replace("/etc/fairnotice", str(folder)).replace("/opt/cloud", str(folder))
    return here.replace("/var/lib/fairnotice", str(folder))


def test_the_guide_can_be_followed(tmp_path):
    """Every file that docs/guides/growing.md has one write, as it grows from step to step."""
    page = (ROOT / "docs" / "guides" / "growing.md").read_text("utf-8")
    one, endpoint, store, *others = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    cluster = next(block for block in others if "[cluster]" in block)
    here = moved_here(tmp_path, one)
    config = config_of(tmp_path, here)
    assert str(config.metadata_place) == "169.254.169.254:80"
    assert list(kinds_without_command(config.driver)) == []
    without, _, driver = here.partition("[metadata]")
    rest = without.partition("[control]")[2] + "[driver]" + driver.partition("[driver]")[2]
    grown = store + "[control]" + rest + cluster
    grown = grown.replace("/etc/fairnotice", str(tmp_path))
    assert config_of(tmp_path, grown).cluster.address == "https://cp2.example.net:8600"
    (tmp_path / "endpoint.toml").write_text(endpoint)
    assert read_endpoint(tmp_path / "endpoint.toml").metadata == ("169.254.169.254", 80)


def test_the_example_can_be_served(tmp_path):
    """deploy/serve.toml, with its files in another place."""
    here = moved_here(tmp_path, (ROOT / "deploy" / "serve.toml").read_text())
    config = config_of(tmp_path, here)
    assert config.cluster.address == "https://cp1.example.net:8600"
    assert list(doubts(config)) == []
    alone = here.partition("[cluster]")[0] + "[driver]" + here.partition("[driver]")[2]
    assert config_of(tmp_path, alone).cluster is None


SYSTEMD = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ,
    reason="systemd-analyze is not installed",
)


@SYSTEMD
def test_the_address_of_vms_is_given_by_a_unit(tmp_path):
    """Before whatever listens there is started."""
    path = tmp_path / "fairnotice-address.service"
    unit = (ROOT / "deploy" / path.name).read_text("utf-8")
    path.write_text(unit.replace("=ip ", f"={sys.executable} "))
    line = ["systemd-analyze", "verify", str(path)]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603 - our own unit
    assert (ran.returncode, ran.stderr) == (0, "")
    for name in ("fairnotice.service", "fairnotice-endpoint.service"):
        assert re.search(rf"^Before=.*\b{name}", unit, re.MULTILINE)
        listens = (ROOT / "deploy" / name).read_text("utf-8")
        assert re.search(rf"^After=.*\b{path.name}", listens, re.MULTILINE)
        assert "\nStartLimitIntervalSec=0\n" in listens.partition("[Service]")[0]


@SYSTEMD
@pytest.mark.parametrize("name", ["fairnotice", "fairnotice-endpoint"])
def test_the_units_are_hardened_ones(tmp_path, name):
    """No fault is found with them, and little that they leave open; planted ones are."""
    unit = (ROOT / "deploy" / f"{name}.service").read_text("utf-8")
    there = unit.replace("/usr/local/bin/fairnotice ", f"{sys.executable} -m fairnotice ")
    path = tmp_path / f"{name}.service"

    def analyzed(*words):
        line = ["systemd-analyze", *words, str(path)]
        ran = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603 - our own unit
        return ran.returncode == 0 and not ran.stderr.strip()

    # Of ten: nought is a unit that may do nothing, and most that there are have nine.
    secure = ("security", "--offline=true", "--threshold=20")
    path.write_text(there)
    assert analyzed("verify")
    assert analyzed(*secure)
    # With what port 80 needs it may do little more.
    drop_in = tmp_path / f"{name}.service.d"
    if (ROOT / "deploy" / drop_in.name).is_dir():
        shutil.copytree(ROOT / "deploy" / drop_in.name, drop_in)
        assert analyzed("verify")
        assert analyzed(*secure)
        shutil.rmtree(drop_in)
    path.write_text(there.replace("KillMode", "KilMode"))
    assert not analyzed("verify")
    path.write_text(there.replace("ProtectSystem=strict", "").replace("SystemCallFilter", "#"))
    assert not analyzed(*secure)
