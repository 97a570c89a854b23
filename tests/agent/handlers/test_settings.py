"""Settings that cannot be are refused with a sentence: which table, which key, and what instead."""

import re
from types import SimpleNamespace

import pytest

from fairnotice.agent.handlers import registry
from fairnotice.agent.handlers.handler import Handler
from fairnotice.errors import HandlerFailed, UsageError
from tests.agent.handlers.calls import call, made

COMMAND = "kind = 'command'\nprepare = ['true']\n"
MAIL = "kind = 'mail'\nserver = 'm:25'\nfrom = 'a@b'\nto = ['b@c']\n"
WRONG = {
    "kind = 'comand'": "there is no kind 'comand'. Did you mean command?",
    "kind = 'command'": "give prepare or recover",
    "kind = 'command'\nperpare = ['true']": "there is no key perpare. Did you mean prepare?",
    "kind = 'command'\nprepare = 'true'": "prepare is a text: give a list of words",
    "kind = 'command'\nprepare = []": "prepare is []: give a list of texts",
    "kind = 'command'\nprepare = ['sh', 1]": "prepare has 1 in it",
    f"{COMMAND}grace_seconds = -1": "grace_seconds is -1: give a number",
    f"{COMMAND}grace_seconds = true": "grace_seconds is True",
    f"{COMMAND}environment = {{A = 1}}": "environment.A is 1: give a text",
    f"{COMMAND}directory = ''": "directory is ''",
    "kind = 'webhook'\nurl = 'ftp://a'": "url is 'ftp://a': give http",
    "kind = 'webhook'\nurl = 'http://[::'": "give http",
    "kind = 'webhook'\nurl = 'http://a:b@c'": "url has a user in it",
    "kind = 'webhook'\nurl = 'http://a'\nsecret = 'x'": "secret is a secret, which has no place",
    "kind = 'webhook'\nurl = 'http://a'\nsecret_file = 'x'\nsecret_env = 'y'": "which one is it?",
    "kind = 'webhook'": "url is missing",
    "kind = 'webhook'\nurl = 'http://a'\nurl_env = 'U'": "url is given twice",
    "kind = 'webhook'\nurl = 'http://a'\nheaders = {cookie = 'b'}": "headers.cookie is a secret",
    "kind = 'webhook'\nurl = 'http://a'\nheaders = {'A b' = 'c'}": "headers.A b is no header",
    "kind = 'webhook'\nurl = 'http://a'\nheaders = {A = \"c\\nd\"}": "give one line",
    "kind = 'mail'\nserver = 'mail'": "server is 'mail': give HOST:PORT, such as \"mail.example",
    f"{MAIL}security = true": "security is true: give one of plain, starttls, tls.",
    "kind = 'health-gate'\nlisten = 8088": "listen is 8088: give HOST:PORT, such as",
    f"{COMMAND}margin_seconds = 1": "no key margin_seconds. It stands at the top of the file",
    "kind = 'mail'\nserver = 'm:25'\nfrom = 'a@b'": "to is missing",
    "kind = 'mail'\nserver = 'm:25'\nform = 'a@b'": "from is missing: is it form?",
    "kind = 'mail'\nserver = 'm:25'\nfrom = 'a'\nto = ['b@c']": "from has 'a', which is no mail",
    f"{MAIL}user = 'a'": "belong together",
    f"{MAIL}security = 'ssl'": "security is 'ssl'",
    f"{MAIL}security = 'plain'\nuser = 'a'\npassword_env = 'P'": "would send the password readable",
    "kind = 'systemd'\nunits = ['--now']": "units has '--now' in it",
    "kind = 'haproxy'\nservers = ['web/web-0']": "give socket",
    "kind = 'haproxy'\nsocket = '/s'\nservers = ['web-0']": "give BACKEND/SERVER",
    "kind = 'haproxy'\nsocket = '/s'\nservers = ['a/b; shutdown']": "give BACKEND/SERVER",
    "kind = 'haproxy'\naddress = 'h:99999'\nservers = ['a/b']": "address is 'h:99999'",
    "kind = 'health-gate'\nlisten = '127.0.0.1:0'\npath = 'h'": "path is 'h': it begins with /",
    "kind = 'checkpoint'\nsvae = ['true']": "save is missing: is it svae?",
    "kind = 'failover'\ncommand = ['true']": "check is missing",
    "kind = 'log'\nto = 'journal'": "to is 'journal'. Did you mean journald?",
    "kind = 'log'\nto = 'file'": "file is the file to write to",
    "kind = 'log'\nto = 'stdout'\nsocket = '/dev/log'": "socket belongs to",
    "kind = 'log'\nto = 'syslog'\nidentifier = 'a b'": "identifier is 'a b'",
    "kind = 'shutdown'\ncommand = 'poweroff'": "command is a text",
}


@pytest.mark.parametrize("toml", WRONG)
def test_what_cannot_be_is_said_in_a_sentence(toml):
    """It names the table, and what is wrong in it."""
    with pytest.raises(UsageError, match=re.escape(WRONG[toml])) as refused:
        made(toml)
    assert str(refused.value).startswith("[handler.it]: ")


def test_every_kind_is_listed_and_has_a_wrong_setting_here():
    """No kind is forgotten by those who list them, nor by the table above."""
    kinds = {"checkpoint", "command", "failover", "haproxy", "health-gate", "log", "mail"}
    kinds |= {"shutdown", "systemd", "webhook"}

    assert set(registry.kinds()) == kinds
    assert {kind for kind in kinds if not any(f"'{kind}'" in toml for toml in WRONG)} == set()


def test_a_secret_shows_itself_nowhere(tmp_path, monkeypatch):
    """Neither what is missing nor what is there is in a sentence."""
    secret = tmp_path / "token"
    webhook = made(f"kind = 'webhook'\nurl = 'http://127.0.0.1:9'\nsecret_file = '{secret}'")
    with pytest.raises(HandlerFailed, match="secret cannot be read"):
        webhook.prepare(call(1))
    secret.write_text("hunter2\nhunter3\n")
    with pytest.raises(HandlerFailed, match="must be one line") as failed:
        webhook.prepare(call(1))
    assert "hunter" not in str(failed.value)
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    webhook = made("kind = 'webhook'\nurl = 'http://127.0.0.1:9'\nsecret_env = 'NO_SUCH_TOKEN'")
    with pytest.raises(HandlerFailed, match="NO_SUCH_TOKEN"):
        webhook.prepare(call(1))


class Bell(Handler):
    """What another package may bring."""

    def __init__(self, settings):
        if "tone" not in settings:
            raise UsageError("tone is missing.")
        self.tone = settings["tone"]


@pytest.fixture
def other_packages(monkeypatch):
    """Kinds of handlers that another package offers."""

    def offer(**made_by):
        entries = [
            SimpleNamespace(name=name, value=f"bells:{name}", load=lambda make=make: make)
            for name, make in made_by.items()
        ]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)

    return offer


def test_another_package_brings_a_kind(other_packages):
    """It is made from the settings of its table, without those of the plan."""
    other_packages(bell=Bell)

    bell = made("kind = 'bell'\nseconds = 3\ntone = 'c'")

    assert (bell.tone, "bell" in registry.kinds()) == ("c", True)
    bell.open(prepared=False)
    bell.recover(call())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Bell, "tone is missing"),
        (lambda settings: 1 // 0, "the kind bell of bells:bell cannot be made: ZeroDivisionError"),
        (lambda settings: object(), "has no prepare and no recover and no open and no close"),
    ],
)
def test_what_another_package_gets_wrong_is_said(other_packages, make, sentence):
    """With the table, and whose fault it is."""
    other_packages(bell=make)
    with pytest.raises(UsageError, match=re.escape(sentence)) as refused:
        made("kind = 'bell'")
    assert "[handler.it]" in str(refused.value)
