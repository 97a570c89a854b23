"""`fairnotice az-login`: what az is told, where there is no az; test_tools.py has the real one."""

import stat

import pytest

from fairnotice.cli import exits
from tests.cli.typed import typed, write

URL = "https://cloud.example:8643"


def login(folder, *words, **env):
    """Typed by somebody who has no az, and keeps what is written in this folder."""
    there = {"PATH": "", "HOME": str(folder), **env}
    return typed("az-login", "--directory", str(folder / "azure"), *words, env=there)


def exported(ended):
    """What the shell is to have."""
    assert ended.code == exits.DONE, ended
    return dict(line.removeprefix("export ").split("=", 1) for line in ended.out.splitlines())


def test_az_is_told_of_this_cloud_in_files_of_its_own(tmp_path):
    """The secret is in none of them, nor in what is printed; and how to log in is said."""
    token = "fairnotice_0123456789abcdef_" + "secret" * 2
    ended = login(tmp_path, "--arm", f"{URL}/", FAIRNOTICE_TOKEN=token)
    folder = tmp_path / "azure"
    assert exported(ended)["AZURE_CONFIG_DIR"] == str(folder)
    assert "REQUESTS_CA_BUNDLE" not in exported(ended)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert f"endpoint_active_directory = {URL}/adfs\n" in files["clouds.config"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert "az login --service-principal -u 0123456789abcdef" in ended.err
    assert not any("secretsecret" in text for text in (*files.values(), ended.out, ended.err))


@pytest.mark.parametrize(
    ("words", "env", "url"),
    [
        ((), {}, "https://localhost:8643"),
        ((), {"FAIRNOTICE_ARM": "127.0.0.1:9443"}, "https://localhost:9443"),
        ((), {"FAIRNOTICE_ARM": "off"}, "https://localhost:8643"),
        (("--arm", "https://Cloud.example/"), {"FAIRNOTICE_ARM": "off"}, "https://cloud.example"),
    ],
)
def test_where_it_asks_is_said_or_where_up_serves(tmp_path, words, env, url):
    """The setting of `up` counts for both; a URL needs no port."""
    assert exported(login(tmp_path, *words, **env))
    written = (tmp_path / "azure" / "clouds.config").read_text()
    assert f"endpoint_resource_manager = {url}\n" in written


@pytest.mark.parametrize("by", ["--authority", "--ca", "FAIRNOTICE_CA", "both"])
def test_whom_it_trusts_the_tools_are_to_trust(tmp_path, by):
    """As every other command; what is said for the tools alone counts first."""
    ca, other = (write(tmp_path, name, "x") for name in ("ca.pem", "other.pem"))
    words = () if by == "FAIRNOTICE_CA" else ("--authority" if by == "both" else by, ca)
    env = {"FAIRNOTICE_CA": ca} if by == "FAIRNOTICE_CA" else {}
    env = {"FAIRNOTICE_CA": other} if by == "both" else env
    found = exported(login(tmp_path, *words, **env))
    assert (found["REQUESTS_CA_BUNDLE"], found["NODE_EXTRA_CA_CERTS"]) == (ca, ca)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--arm", "http://cloud.example:8643"), exits.WRONG_USAGE, "give https://HOST:PORT"),
        (("--arm", "cloud"), exits.WRONG_USAGE, "give https://HOST:PORT"),
        (("--authority", "/nowhere.pem"), exits.NOT_FOUND, "/nowhere.pem is not there"),
    ],
)
def test_what_az_could_not_use_is_said_and_nothing_written(tmp_path, words, code, said):
    """Neither files, nor a line for the shell."""
    ended = login(tmp_path, *words)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert not (tmp_path / "azure").exists()
